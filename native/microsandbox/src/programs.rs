//! The programs of the release, hashed once for as long as they do not change.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use nix::fcntl::OFlag;
use palisade_core::units::Digest;
use palisade_provider::content;

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
        self.check_by(path, expected, content::digest)
    }

    /// Nobody waits for another one's hash: the lock is held for a comparison alone, and two that hash at once find the same.
    fn check_by(
        &self,
        path: &Path,
        expected: Digest,
        hash: impl FnOnce(&File) -> io::Result<Digest>,
    ) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}; prepare the generation again", path.display());
        let file = open(path).map_err(failed)?;
        let version = Version::of(&file).map_err(failed)?;
        if *self.known() == Some(version) {
            return Ok(());
        }
        if hash(&file).map_err(failed)? != expected {
            return Err(format!("{} is not the release's file; prepare the generation again", path.display()));
        }
        *self.known() = Some(version);
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Option<Version>> {
        self.0.lock().expect("nobody panics with the lock")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A probe of one generation does not wait for as long as that of another reads a program of many megabytes.
    #[test]
    fn a_check_waits_for_no_hash() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (verified, expected) = (Verified::default(), Digest::of(b""));
        let hash = |file: &File| {
            assert!(verified.0.try_lock().is_ok(), "the lock is free while a file is hashed");
            content::digest(file)
        };
        assert_eq!(verified.check_by(file.path(), expected, hash), Ok(()));
        let never = |_: &File| panic!("it is known");
        assert_eq!(verified.check_by(file.path(), expected, never), Ok(()));
    }
}
