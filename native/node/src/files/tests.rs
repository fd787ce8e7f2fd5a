use std::os::unix::fs::{PermissionsExt, symlink};

use palisade_core::generation::recovery::Damage;

use super::disk::Disk;
use super::faults::{Faults, Stop};
use super::look::Seen;
use super::*;

/// The steps of a replacement: remove, create, write, sync, rename, sync the directory.
const STEPS: usize = 6;

fn replace_identity(disk: &mut dyn Disk, directory: &Path, contents: &[u8]) -> Result<(), FileError> {
    writer::replace(disk, directory, "identity.json", ".identity-partial", contents)
}

/// W 149. Promise 15. E36. A crash at any system call leaves the old bytes or the new ones, whatever part of what was not
/// synced is lost with it, and the next write succeeds.
#[test]
fn a_crash_at_any_step_leaves_the_old_bytes_or_the_new() {
    let mut outcomes = Vec::new();
    for (stop, calls, kept) in [Stop::Power, Stop::Torn]
        .into_iter()
        .flat_map(|stop| (0..STEPS).flat_map(move |calls| (0..4).map(move |kept| (stop, calls, kept))))
    {
        let (place, attic) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        replace_identity(&mut System, place.path(), b"old bytes").unwrap();
        let mut disk = Faults::after(calls, stop).remembering(attic.path());
        replace_identity(&mut disk, place.path(), b"new bytes").unwrap_err();
        disk.lose(kept);
        let found = read(&place.path().join("identity.json"), Privacy::Private, 100).unwrap();
        assert!(
            found == b"old bytes" || (calls == STEPS - 1 && found == b"new bytes"),
            "after {calls} steps: {found:?}"
        );
        outcomes.push((calls, found));
        replace_identity(&mut System, place.path(), b"newer").unwrap();
        assert_eq!(names(place.path()), ["identity.json"]);
    }
    for bytes in [b"old bytes", b"new bytes"] {
        assert!(outcomes.contains(&(STEPS - 1, bytes.to_vec())), "a rename that is not synced may be lost or not");
    }
}

/// E36. Without the sync of the file or of the directory a loss of power would empty the file or undo the write.
#[test]
fn what_is_synced_is_never_lost() {
    let (place, attic) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut disk = Faults::none().remembering(attic.path());
    replace_identity(&mut disk, place.path(), b"bytes").unwrap();
    assert_eq!(disk.calls.len(), STEPS, "{:?}", disk.calls);
    disk.lose(0);
    assert_eq!(read(&place.path().join("identity.json"), Privacy::Private, 100).unwrap(), b"bytes");

    let mut disk = Faults::none().remembering(attic.path());
    let file = disk.create(&place.path().join("careless")).unwrap();
    disk.write(&file, b"bytes").unwrap();
    disk.sync_directory(place.path()).unwrap();
    disk.lose(0);
    assert_eq!(std::fs::read(place.path().join("careless")).unwrap(), b"", "this disk does lose what is not synced");
}

#[test]
fn a_first_write_that_fails_leaves_no_file() {
    for calls in 0..STEPS - 1 {
        let place = tempfile::tempdir().unwrap();
        replace_identity(&mut Faults::after(calls, Stop::Torn), place.path(), b"new").unwrap_err();
        assert!(!place.path().join("identity.json").exists());
    }
}

/// E33. A full disk leaves the old bytes, and nothing of the attempt.
#[test]
fn a_full_disk_leaves_nothing_of_the_attempt() {
    for calls in 0..STEPS {
        let place = tempfile::tempdir().unwrap();
        replace_identity(&mut System, place.path(), b"old").unwrap();
        let _ = replace_identity(&mut Faults::after(calls, Stop::Full), place.path(), b"new");
        assert_eq!(names(place.path()), ["identity.json"]);
    }
}

/// A record that never changes is written once; another content is refused and kept.
#[test]
fn a_record_that_never_changes_is_compared() {
    let place = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        writer::record_once(&mut System, place.path(), "1.json", b"first").unwrap();
    }
    for other in [&b"other"[..], b"longer than the first", b""] {
        writer::record_once(&mut System, place.path(), "1.json", other).unwrap_err();
    }
    assert_eq!(std::fs::read(place.path().join("1.json")).unwrap(), b"first");
    std::fs::set_permissions(place.path().join("1.json"), PermissionsExt::from_mode(0o644)).unwrap();
    writer::record_once(&mut System, place.path(), "1.json", b"first").unwrap_err();
}

/// A tree is removed without following a link out of it.
#[test]
fn a_tree_is_removed_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    writer::ensure_private_directories(&mut System, place.path(), &tree.join("a/b")).unwrap();
    crate::testing::write(place.path().join("outside"), "outside");
    std::fs::create_dir(place.path().join("folder")).unwrap();
    crate::testing::write(place.path().join("folder/kept"), "kept");
    symlink(place.path().join("outside"), tree.join("a/file")).unwrap();
    symlink(place.path().join("folder"), tree.join("a/folder")).unwrap();
    writer::remove_tree(&mut System, &tree).unwrap();
    assert_eq!(crate::testing::files_below(place.path()), ["folder", "outside"]);
    assert!(place.path().join("folder/kept").exists());
}

/// H 141, H 155. A link is seen wherever it stands on the path, and nothing behind it is read.
#[test]
fn a_link_anywhere_on_the_path_is_seen() {
    let place = tempfile::tempdir().unwrap();
    let real = place.path().join("real");
    writer::ensure_private_directories(&mut System, place.path(), &real.join("inner")).unwrap();
    writer::record(&mut System, &real.join("inner"), "file", b"secret").unwrap();
    let is_link = |path: &Path| matches!(look::look(path, 10), Seen::Failed(Damage::Link));
    assert!(matches!(look::look(&real.join("inner/file"), 10), Seen::Opened(_, bytes) if bytes == b"secret"));
    for (link, target) in [("whole", "real"), ("real/alias", "real/inner")] {
        symlink(place.path().join(target), place.path().join(link)).unwrap();
    }
    symlink("file", real.join("inner/other")).unwrap();
    symlink("nowhere", real.join("dangling")).unwrap();
    for path in ["whole/inner/file", "real/alias/file", "real/inner/other", "real/dangling", "real/dangling/file"] {
        assert!(is_link(&place.path().join(path)), "{path}");
    }
    assert!(matches!(look::look(&real.join("nothing/file"), 10), Seen::Absent));
    assert!(matches!(look::look(&real.join("inner/file/file"), 10), Seen::Failed(Damage::Unreadable)));
}

#[test]
fn a_written_file_is_private_whatever_it_replaces() {
    let directory = tempfile::tempdir().unwrap();
    let outside = directory.path().join("outside");
    crate::testing::write(&outside, "outside");
    for name in ["target", "partial"] {
        symlink(&outside, directory.path().join(name)).unwrap();
    }
    replace(directory.path(), "target", "partial", b"ours").unwrap();
    assert_eq!(read(&directory.path().join("target"), Privacy::Private, 4).unwrap(), b"ours");
    assert_eq!(std::fs::read(&outside).unwrap(), b"outside");
}

#[test]
fn only_a_regular_private_file_of_bounded_size_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let refused = |max, expected: &str| {
        let error = read(&path, Privacy::Private, max).unwrap_err().to_string();
        assert!(error.contains(expected) && error.starts_with(path.to_str().unwrap()), "{error}");
    };
    assert!(read(&path, Privacy::Private, 10).unwrap_err().is_missing());
    replace(directory.path(), "file", "partial", b"12345").unwrap();
    assert_eq!(read(&path, Privacy::Private, 5).unwrap(), b"12345");
    refused(4, "smaller");
    for mode in [0o640, 0o604, 0o400, 0o700, 0o4600] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        refused(10, "0600");
    }
    std::fs::rename(&path, directory.path().join("elsewhere")).unwrap();
    symlink(directory.path().join("elsewhere"), &path).unwrap();
    refused(10, "symbolic link");
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    refused(10, "regular");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    refused(10, "regular");
}

#[test]
fn a_private_directory_is_made_once_and_never_adopted_with_another_mode() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("state");
    ensure_private_directory(&path).unwrap();
    ensure_private_directory(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
    ensure_private_directory(&path).unwrap_err();
    let link = parent.path().join("link");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    symlink(&path, &link).unwrap();
    ensure_private_directory(&link).unwrap_err();
    ensure_private_directory(&parent.path().join("no/parent")).unwrap_err();
    assert!(!parent.path().join("no").exists());
}

/// W 149. Promise 15. A record and a directory that another process made and did not sync are durable for whoever finds
/// them; what is no directory has nothing to sync.
#[test]
fn what_is_there_already_is_durable_afterwards() {
    let (place, attic) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inner = place.path().join("inner");
    let mut disk = Faults::none().remembering(attic.path());
    disk.make_directory(&inner).unwrap();
    writer::ensure_private_directory(&mut disk, &inner).unwrap();
    assert_eq!(disk.names_at_risk(), 0, "{:?}", disk.names());
    let file = disk.create(&inner.join("1.json")).unwrap();
    disk.write(&file, b"first").unwrap();
    disk.sync(&file).unwrap();
    writer::record_once(&mut disk, &inner, "1.json", b"first").unwrap();
    assert_eq!(disk.names_at_risk(), 0, "{:?}", disk.names());
    writer::settle(&mut disk, &inner.join("nothing")).unwrap();
    writer::settle(&mut disk, &inner.join("1.json")).unwrap();
}

#[test]
fn a_path_must_be_absolute_and_clean() {
    for path in ["/", "/a", "/a/b.c"] {
        require_clean(Path::new(path)).unwrap();
    }
    for path in ["", "a", "./a", "/a/", "/a//b", "/a/./b", "/a/../b", "/..", "../a"] {
        require_clean(Path::new(path)).unwrap_err();
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
