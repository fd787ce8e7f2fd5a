//! A release on its whole way: built by the command, published, served by a real Core, downloaded by the real downloader,
//! and loaded into the real engine.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "throw-away files of a test")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use bollard::Docker;
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::Commit;
use palisade_core::distribution::catalogue::{IMAGE, NODE, Role, SECCOMP};
use palisade_node::download::{Downloader, Lines, Source};
use palisade_release::{checkout, engine};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const COMMIT: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";

fn palisade() -> Command {
    Command::new(env!("CARGO_BIN_EXE_palisade"))
}

fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The command that builds a release of this source tree into `out`, seen from `folder`.
fn build(guest: &Path, folder: &Path, out: &str) -> Command {
    let mut command = palisade();
    command.current_dir(folder).args(["release", "build", "--json", "--out", out]).arg("--guest").arg(guest);
    command.args(["--source-commit", COMMIT, "--source-tree", COMMIT]);
    command
}

/// Mode and content of every file and folder below `folder`; contents by their digest.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, Option<palisade_core::units::Digest>)> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        let metadata = next.metadata().unwrap();
        let content = metadata.is_file().then(|| palisade_core::units::Digest::of(&std::fs::read(&next).unwrap()));
        found.insert(next.strip_prefix(folder).unwrap().to_owned(), (metadata.mode(), content));
        if metadata.is_dir() {
            open.extend(std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// The same inputs in other folders, at another time, by somebody with another umask, time zone and language.
#[test]
fn two_builds_are_the_same_byte_for_byte() {
    let home = tempfile::tempdir().unwrap();
    let guest = checkout::guest().unwrap();
    let copied = home.path().join("a copy of the guest");
    std::fs::copy(&guest, &copied).unwrap();
    let later = home.path().join("somewhere/else");
    std::fs::create_dir_all(&later).unwrap();

    let mut strict = build(&guest, home.path(), "first");
    let mut open = build(&copied, &later, "deep/second");
    open.env("TZ", "Pacific/Kiritimati").env("LC_ALL", "C.UTF-8");
    for (command, umask) in [(&mut strict, "077"), (&mut open, "000")] {
        // The shell sets the umask; `exec` leaves the command itself.
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
        shell.current_dir(command.get_current_dir().unwrap());
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let before = std::time::SystemTime::now();
        json_of(&shell.output().unwrap());
        // Times in archives and file systems count seconds.
        while before.elapsed().unwrap().as_secs() < 1 {
            std::thread::yield_now();
        }
    }
    let first = tree(&home.path().join("first"));
    assert_eq!(first, tree(&later.join("deep/second")));
    let names: Vec<_> = first.keys().map(|path| path.display().to_string()).collect();
    let artifact = |suffix: &str| format!("artifacts/oac-{COMMIT}-linux-amd64-{suffix}");
    let expected = [
        String::new(),
        "SHA256SUMS".to_owned(),
        "artifacts".to_owned(),
        artifact("runtime.tar.gz"),
        artifact("sandbox-node"),
        artifact("seccomp.json"),
        "manifest.json".to_owned(),
        "node-install".to_owned(),
        "runtime".to_owned(),
        SECCOMP.to_owned(),
    ];
    assert_eq!(names, expected);
}

/// A Core that serves a payload folder; stopped at the end.
struct Core {
    child: Child,
    origin: String,
    _folder: TempDir,
}

impl Core {
    fn start(payload: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "core-key-of-a-distribution").unwrap();
        let mut command = palisade();
        command.args(["core", "serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
        command.arg("--admin-key-file").arg(folder.path().join("key")).arg("--node-payload").arg(payload);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
        let line = BufReader::new(child.stdout.as_mut().unwrap()).lines().next().unwrap().unwrap();
        let origin = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { child, origin, _folder: folder }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// H 15, H 16, H 18. E34. The engine's identity of the downloaded image is one of the two that the release declares, both
/// proven from the archive, and the same as the specification's; with it, no archive is needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_goes_from_its_build_to_the_engine_of_a_node() {
    let home = tempfile::tempdir().unwrap();
    let built = json_of(&build(&checkout::guest().unwrap(), home.path(), "release").output().unwrap());
    let publish = |metadata: &[&str]| {
        let mut command = palisade();
        command.args(["release", "publish", "--json", "--release"]).arg(home.path().join("release"));
        command.arg("--payload").arg(home.path().join("payload")).args(metadata).output().unwrap()
    };
    let refused = publish(&["--metadata-only"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--artifact-base-url"));
    let core = Core::start(&home.path().join("payload"));
    let cancel = CancellationToken::new();
    let downloader = Downloader::new(Source::console(&core.origin).unwrap()).unwrap();
    assert!(downloader.release(None, &cancel).await.is_err(), "nothing is published yet");
    assert_eq!(json_of(&publish(&[]))["activated"], true);
    assert_eq!(json_of(&publish(&[]))["added"], json!([]));

    let release = downloader.release(Some(&Commit::parse(COMMIT).unwrap()), &cancel).await.unwrap();
    let document = json!({ "resources": { "cpus": 1, "memory_mib": 512 }, "runtime": built["runtime"] });
    release.require(&Specification::parse(Provider::Docker, document.to_string().as_bytes()).unwrap()).unwrap();
    let root = home.path().join("node");
    std::fs::create_dir(&root).unwrap();
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o700)).unwrap();
    let wanted = release.wanted("docker", &[Role::Node, Role::Policy, Role::Image]).unwrap();
    let mut lines = Lines::new(Vec::new());
    downloader.fetch(&wanted, &root, &cancel, &mut lines).await.unwrap();
    let program = std::fs::read(root.join(NODE)).unwrap();
    assert!(program == std::fs::read(env!("CARGO_BIN_EXE_palisade")).unwrap(), "the node program is this executable");
    let version = Command::new(root.join(NODE)).arg("--version").output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("palisade "));

    let runtime = release.manifest().runtime();
    let (image_id, manifest_digest) = (runtime.image_id.as_str(), runtime.image_manifest_digest.as_str());
    let docker = Docker::connect_with_unix_defaults().unwrap().negotiate_version().await;
    let docker = docker.expect("no Docker engine answers on /var/run/docker.sock: run scripts/start-docker");
    let archive = std::fs::read(root.join(IMAGE)).unwrap();
    let loaded = engine::load(&docker, archive, image_id, manifest_digest).await.unwrap();
    assert!(loaded == image_id || loaded == manifest_digest, "{loaded}");
    std::fs::remove_file(root.join(IMAGE)).unwrap();
    assert_eq!(engine::resolve(&docker, image_id, manifest_digest).await.unwrap(), Some(loaded));
}
