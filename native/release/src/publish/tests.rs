#![expect(clippy::disallowed_methods, reason = "a test writes throw-away files")]

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use tempfile::TempDir;

use super::*;
use crate::{Inputs, Source, build};

/// The smallest file that passes for a static program.
fn static_program(folder: &Path, name: &str) -> PathBuf {
    let mut bytes = [b"\x7fELF\x02\x01", &[0; 122][..]].concat();
    bytes[18] = 62;
    bytes.extend_from_slice(name.as_bytes());
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

struct Lab {
    home: TempDir,
    release: Release,
}

impl Lab {
    fn new() -> Self {
        Self::with("a1", "")
    }

    /// A release of another commit, or with a folder on the net.
    fn with(commit: &str, base: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("program");
        std::fs::write(&program, format!("the node program of {commit}")).unwrap();
        let inputs = Inputs {
            source: Source::new(&commit.repeat(20), &"b2".repeat(20)).unwrap(),
            guest: static_program(home.path(), "guest"),
            busybox: static_program(home.path(), "busybox"),
            node_program: program,
            artifact_base_url: base.to_owned(),
        };
        let release = build(&inputs, &home.path().join("release")).unwrap();
        Self { home, release }
    }

    fn payload(&self) -> PathBuf {
        self.home.path().join("payload")
    }

    fn publish(&self) -> Result<Published, Error> {
        publish(&self.release, &self.payload(), Contents::Complete)
    }

    fn published(&self, file: &str) -> PathBuf {
        self.payload().join(RELEASES).join("a1".repeat(20)).join(file)
    }
}

/// Everything below a folder: type and mode, inode, content.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            if metadata.is_dir() {
                open.push(path.clone());
            }
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), (metadata.mode(), metadata.ino(), content));
        }
    }
    found
}

#[test]
fn a_release_is_added_offered_and_left_alone_the_second_time() {
    let lab = Lab::new();
    let first = lab.publish().unwrap();
    assert_eq!((first.added.len(), first.kept.len(), first.activated), (7, 0, true));
    assert_eq!(first.added.last().unwrap(), "manifest.json", "what says that it is complete comes last");
    let pointer = std::fs::read(lab.payload().join(POINTER)).unwrap();
    assert_eq!(Pointer::parse(&pointer).unwrap().source_commit, lab.release.manifest().source_commit);
    let before = tree(&lab.payload());
    let second = lab.publish().unwrap();
    assert_eq!((second.added.len(), second.kept.len(), second.activated), (0, 7, false));
    assert_eq!(tree(&lab.payload()), before);
    assert!(Release::open(&first.folder).unwrap().verify().is_ok());
}

#[test]
fn an_earlier_release_stays_and_can_be_offered_again() {
    let (old, new) = (Lab::new(), Lab::with("c3", ""));
    old.publish().unwrap();
    let before = tree(&old.payload().join(RELEASES));
    publish(&new.release, &old.payload(), Contents::Complete).unwrap();
    let after = tree(&old.payload().join(RELEASES));
    assert!(before.iter().all(|entry| after.get(entry.0) == Some(entry.1)), "an earlier release is untouched");
    let back = old.publish().unwrap();
    assert_eq!((back.added.len(), back.activated), (0, true));
}

/// Every file under its name that is another one prevents every addition, and all of them are named.
#[test]
fn a_conflict_prevents_every_addition_and_changes_nothing() {
    let kinds: [fn(&Path); 4] = [
        |path| std::fs::write(path, "other").unwrap(),
        |path| std::os::unix::fs::symlink("/etc/passwd", path).unwrap(),
        |path| std::fs::create_dir(path).unwrap(),
        |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR).unwrap(),
    ];
    let names = Lab::new().publish().unwrap().added;
    for (number, name) in names.iter().enumerate() {
        let lab = Lab::new();
        let (path, other) = (lab.published(name), lab.published(&names[(number + 1) % names.len()]));
        for file in [&path, &other] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            kinds[number % kinds.len()](file);
        }
        let before = tree(&lab.payload());
        let refused = lab.publish().unwrap_err();
        let Error::Conflict { paths } = &refused else { panic!("{name}: {refused}") };
        assert!(paths.len() == 2 && paths.contains(&path) && paths.contains(&other), "{paths:?}");
        let after = tree(&lab.payload());
        let lock = after.keys().filter(|path| !before.contains_key(*path)).collect::<Vec<_>>();
        assert_eq!(lock, [Path::new(".publish.lock")], "{name}: nothing was added");
        assert!(before.iter().all(|entry| after.get(entry.0) == Some(entry.1)), "{name}");
    }
}

#[test]
fn missing_files_of_a_published_release_are_added() {
    let lab = Lab::new();
    let names = lab.publish().unwrap().added;
    let before = tree(&lab.payload());
    for name in &names {
        std::fs::remove_file(lab.published(name)).unwrap();
        let repaired = lab.publish().unwrap();
        assert_eq!((&repaired.added, repaired.activated), (&vec![name.clone()], false));
    }
    let content = |tree: &BTreeMap<_, (u32, u64, Vec<u8>)>| -> Vec<_> {
        tree.iter().map(|(path, entry)| (PathBuf::clone(path), entry.0, entry.2.clone())).collect()
    };
    assert_eq!(content(&tree(&lab.payload())), content(&before));
}

/// Stops before one step, as a crash does: nothing is cleaned up.
struct Crash {
    left: usize,
}

impl Steps for Crash {
    fn step(&mut self, _: &'static str) -> std::io::Result<()> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(std::io::ErrorKind::Interrupted.into()),
        }
    }
}

/// Before each step: what has its name is whole, the pointer names a whole release or is as it was, and the same command
/// completes the publication to the same files.
#[test]
fn a_publication_that_is_cut_off_at_any_step_is_completed_by_the_next() {
    let clean = Lab::new();
    let names = clean.publish().unwrap().added;
    let mut points = 0;
    loop {
        let lab = Lab::new();
        let crashed = publish_with(&mut Crash { left: points }, &lab.release, &lab.payload(), Contents::Complete);
        if crashed.is_ok() {
            break;
        }
        for name in &names {
            let (here, whole) = (lab.published(name), clean.published(name));
            if here.exists() {
                assert_eq!(std::fs::read(here).unwrap(), std::fs::read(whole).unwrap(), "{name} at point {points}");
            }
        }
        let offered = lab.payload().join(POINTER).exists();
        assert!(!offered || names.iter().all(|name| lab.published(name).exists()), "point {points}");
        let completed = lab.publish().unwrap();
        assert_eq!(completed.added.len() + completed.kept.len(), names.len());
        assert!(Release::open(&completed.folder).unwrap().verify().is_ok(), "point {points}");
        let left = tree(&lab.payload());
        assert!(left.keys().all(|path| !path.to_string_lossy().ends_with(".partial")), "point {points}: {left:?}");
        points += 1;
    }
    // Four folders, and for each of eight files six steps.
    assert!(points >= 8 * 6, "{points} points");
}

#[test]
fn a_damaged_release_is_not_published() {
    for name in ["SHA256SUMS", "node-install", "runtime/seccomp.json"] {
        let lab = Lab::new();
        std::fs::write(lab.home.path().join("release").join(name), "other").unwrap();
        assert!(Release::open(lab.release.folder()).is_err(), "{name}");
    }
    for artifact in Lab::new().release.manifest().artifacts.values() {
        let lab = Lab::new();
        let path = lab.home.path().join("release/artifacts").join(&artifact.filename);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[0] ^= 1;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(lab.publish(), Err(Error::Unusable { .. })), "{}", artifact.filename);
        assert!(!lab.payload().exists(), "nothing is touched");
    }
}

#[test]
fn metadata_alone_need_a_folder_on_the_net() {
    let refused = publish(&Lab::new().release, Path::new("/nonexistent/payload"), Contents::Metadata).unwrap_err();
    assert!(refused.to_string().contains("--artifact-base-url"), "{refused}");
    let lab = Lab::with("a1", "https://files.example/v1.0.0");
    let published = publish(&lab.release, &lab.payload(), Contents::Metadata).unwrap();
    assert_eq!(published.added, ["runtime/seccomp.json", "node-install", "SHA256SUMS", "manifest.json"]);
    let completed = lab.publish().unwrap();
    assert_eq!((completed.added.len(), completed.activated), (3, false));
}

#[test]
fn a_place_that_cannot_be_a_payload_is_refused() {
    let lab = Lab::new();
    let release = lab.release.folder().to_owned();
    for place in [release.clone(), release.join("payload")] {
        let refused = publish(&lab.release, &place, Contents::Complete).unwrap_err();
        assert!(refused.to_string().contains("name another payload folder"), "{refused}");
    }
    let other = Lab::with("c3", "");
    let refused = publish(&lab.release, other.release.folder(), Contents::Complete).unwrap_err();
    assert!(refused.to_string().contains("releases/<its source commit>/"), "{refused}");
    let from_payload =
        publish(&Release::open(&lab.publish().unwrap().folder).unwrap(), &lab.payload(), Contents::Complete);
    assert!(from_payload.unwrap_err().to_string().contains("is the folder of the release itself"));
}

#[test]
fn two_publications_at_once_are_one() {
    let lab = Lab::new();
    durable::folder(&mut Unbroken, &lab.payload()).unwrap();
    let held = lock(&lab.payload()).unwrap();
    assert!(lab.publish().unwrap_err().to_string().contains("another command"));
    drop(held);
    lab.publish().unwrap();
}

#[test]
fn permissions_are_set_whatever_the_umask_is() {
    let lab = Lab::new();
    lab.publish().unwrap();
    for (path, (mode, _, _)) in tree(&lab.payload()) {
        let name = path.to_string_lossy().into_owned();
        let expected = match mode & 0o170_000 {
            0o040_000 => 0o755,
            _ if name.ends_with("node-install") || name.ends_with("sandbox-node") => 0o755,
            _ if name == ".publish.lock" => 0o600,
            _ => 0o644,
        };
        assert_eq!(std::fs::Permissions::from_mode(mode & 0o7777).mode(), expected, "{name}");
    }
}
