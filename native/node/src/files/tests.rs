use std::os::unix::fs::symlink;

use super::*;

/// Carries out the real steps up to one, and fails that one and, as a crash does, all that follow.
struct CrashAt {
    left: usize,
    /// Half of the bytes are written by a write that fails.
    torn: bool,
}

impl CrashAt {
    fn step<T>(&mut self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                act()
            }
            None => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

impl Steps for CrashAt {
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.step(|| System.remove(path))
    }
    fn create(&mut self, path: &Path) -> io::Result<File> {
        self.step(|| System.create(path))
    }
    fn write(&mut self, file: &mut File, contents: &[u8]) -> io::Result<()> {
        if self.left == 0 && self.torn {
            file.write_all(&contents[..contents.len() / 2])?;
        }
        self.step(|| System.write(file, contents))
    }
    fn sync(&mut self, file: &File) -> io::Result<()> {
        self.step(|| System.sync(file))
    }
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(|| System.rename(from, to))
    }
    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.step(|| System.sync_directory(path))
    }
}

/// W 149. A crash at any step leaves the old bytes or the new ones, and the next write succeeds.
#[test]
fn a_crash_at_any_step_leaves_the_old_bytes_or_the_new() {
    for torn in [false, true] {
        for left in 0..6 {
            let directory = tempfile::tempdir().unwrap();
            replace(directory.path(), "identity.json", ".identity-partial", b"old bytes").unwrap();
            let outcome = replace_with(
                &mut CrashAt { left, torn },
                directory.path(),
                "identity.json",
                ".identity-partial",
                b"new bytes",
            );
            assert!(outcome.is_err(), "step {left} failed and was reported");
            let found = read(&directory.path().join("identity.json"), Privacy::Private, 100).unwrap();
            let expected: &[u8] = if left < 5 { b"old bytes" } else { b"new bytes" };
            assert_eq!(found, expected, "after {left} steps");
            replace(directory.path(), "identity.json", ".identity-partial", b"newer").unwrap();
            assert_eq!(names(directory.path()), ["identity.json"]);
        }
    }
}

#[test]
fn a_first_write_that_fails_leaves_no_file() {
    for left in 0..5 {
        let directory = tempfile::tempdir().unwrap();
        let mut steps = CrashAt { left, torn: true };
        replace_with(&mut steps, directory.path(), "identity.json", ".partial", b"new").unwrap_err();
        assert!(!directory.path().join("identity.json").exists());
    }
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
