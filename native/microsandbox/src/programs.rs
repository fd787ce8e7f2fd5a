//! The programs of the release, hashed once for as long as they do not change.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Mutex;

use nix::fcntl::OFlag;
use palisade_core::units::Digest;
use sha2::{Digest as _, Sha256};

use crate::limits::HASH_BYTES;

/// What a file was when it had the right content. Only successes are remembered: what fails is looked at again.
#[derive(Debug, Default)]
pub(crate) struct Verified(Mutex<Option<Version>>);

/// Changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Verified {
    /// Whether the file at `path` has this content.
    pub(crate) fn check(&self, path: &Path, expected: Digest) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}; prepare the generation again", path.display());
        let file = open(path).map_err(failed)?;
        let version = Version::of(&file).map_err(failed)?;
        let mut known = self.0.lock().expect("nothing below panics");
        if *known == Some(version) {
            return Ok(());
        }
        *known = None;
        if hash(&file).map_err(failed)? != expected {
            return Err(format!("{} is not the release's file; prepare the generation again", path.display()));
        }
        *known = Some(version);
        Ok(())
    }
}

/// Whether a regular file that its owner may execute stands at `path`.
pub(crate) fn is_executable(path: &Path) -> Result<(), String> {
    let found = path.symlink_metadata().map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_file() && found.mode() & 0o100 != 0 {
        Ok(())
    } else {
        Err(format!("{} is no regular executable file; prepare the generation again", path.display()))
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

impl Version {
    fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            inode: (found.dev(), found.ino()),
            size: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

fn hash(mut file: &File) -> io::Result<Digest> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; HASH_BYTES]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Digest::from_bytes(hash.finalize().into())),
            read => hash.update(&buffer[..read]),
        }
    }
}
