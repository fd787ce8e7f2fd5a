//! Downloads against a real server on loopback that does what servers and networks do wrong.

mod artifacts;
mod bundle;
mod crashes;
mod disk;
mod metadata;
mod redirects;
mod server;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use palisade_core::distribution::catalogue::Role;
use palisade_core::distribution::manifest::Artifact;
use palisade_core::units::Digest;
use tempfile::TempDir;

use super::room::Free;
use super::*;
pub(crate) use crashes::{bring, unpack};
use server::{Answer, Asked, Server};

/// The release of every test.
fn commit() -> Commit {
    Commit::parse(&"ab".repeat(20)).unwrap()
}

/// Bytes that differ everywhere, so that a shifted piece is another one.
fn content(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A node program with these bytes.
fn program(bytes: &[u8]) -> Wanted {
    wanted("native/bin/oac-node", Role::Node, "sandbox-node", bytes)
}

fn wanted(path: &str, role: Role, suffix: &str, bytes: &[u8]) -> Wanted {
    let artifact = Artifact {
        filename: format!("oac-{}-linux-amd64-{suffix}", commit()),
        sha256: Digest::of(bytes),
        size: bytes.len() as u64,
        unpacked_sha256: None,
        unpacked_size: None,
    };
    Wanted { commit: commit(), path: path.to_owned(), role, artifact, import_bytes: 0 }
}

/// A disk with as much room as a test says.
struct Room {
    bytes: AtomicU64,
    inodes: AtomicU64,
}

impl Disk for Arc<Room> {
    fn free(&self, _: &Path) -> io::Result<Free> {
        Ok(Free { bytes: self.bytes.load(Ordering::SeqCst), inodes: self.inodes.load(Ordering::SeqCst) })
    }
}

/// Keeps what it hears, and fails after so many events.
#[derive(Default)]
struct Heard {
    events: Mutex<Vec<String>>,
    fail_after: Option<usize>,
}

impl Progress for Heard {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        let mut events = self.events.lock().unwrap();
        if self.fail_after.is_some_and(|most| events.len() >= most) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        events.push(format!("{event:?}").split_whitespace().next().unwrap().to_owned());
        Ok(())
    }
}

/// A host with an empty private root, and a server.
struct Lab {
    home: TempDir,
    server: Server,
    room: Arc<Room>,
    cancel: CancellationToken,
}

impl Lab {
    async fn new(answer: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        Self::of(Server::start(answer).await)
    }

    fn of(server: Server) -> Self {
        let home = tempfile::tempdir().unwrap();
        let room = Arc::new(Room { bytes: u64::MAX.into(), inodes: u64::MAX.into() });
        let lab = Self { home, server, room, cancel: CancellationToken::new() };
        crate::files::ensure_private_directory(&lab.root()).unwrap();
        lab
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("root")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// A downloader that is soon out of patience and trusts the authority of the test's servers.
    fn downloader(&self) -> Downloader {
        self.downloader_of(Source::console(&self.server.origin).unwrap())
    }

    fn downloader_of(&self, source: Source) -> Downloader {
        let trusted = self.server.authority();
        let requests = Requests::new(&source, |builder| match &trusted {
            Some(authority) => builder.tls_certs_only([authority.clone()]).no_proxy(),
            None => builder,
        });
        let pace = Pace { pauses: [Duration::from_millis(1); 2], stall: Duration::from_millis(500) };
        Downloader { source, requests: requests.unwrap(), pace, disk: Box::new(Arc::clone(&self.room)) }
    }

    async fn fetch(&self, wanted: &Wanted) -> Result<(), DownloadError> {
        self.fetch_heard(wanted, &mut Silent).await
    }

    async fn fetch_heard(&self, wanted: &Wanted, progress: &mut dyn Progress) -> Result<(), DownloadError> {
        self.downloader().fetch(std::slice::from_ref(wanted), &self.root(), &self.cancel, progress).await
    }

    /// Puts a file there with exactly this mode.
    fn put(&self, path: &str, mode: u32, bytes: &[u8]) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(path);
        let mut folder = self.root();
        for part in path.parent().unwrap().strip_prefix(self.root()).unwrap() {
            folder.push(part);
            crate::files::ensure_private_directory(&folder).unwrap();
        }
        crate::testing::write(&path, bytes);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// What an earlier download left of the node program.
    fn put_part(&self, bytes: &[u8], version: Option<&str>) {
        self.put("native/bin/.oac-node.partial", 0o600, bytes);
        if let Some(version) = version {
            self.put("native/bin/.oac-node.partial.validator", 0o600, version.as_bytes());
        }
    }

    /// Every file below the root, sorted.
    fn files(&self) -> Vec<String> {
        let (mut found, mut open) = (Vec::new(), vec![self.root()]);
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.push(path.strip_prefix(self.root()).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap()
    }
}

/// The program's name below the root.
const PROGRAM: &str = "native/bin/oac-node";
/// Its part.
const PART: &str = "native/bin/.oac-node.partial";
