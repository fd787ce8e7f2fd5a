//! The one durable writer, and the one strict reader of private files (node-host §1.8, decision 24).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::OFlag;

/// What was wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", .path.display())]
pub struct FileError {
    path: PathBuf,
    kind: FileErrorKind,
}

/// What was wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileErrorKind {
    #[error("expected an absolute path without . or .. or repeated slashes")]
    Path,
    #[error("expected {0}")]
    Expected(&'static str),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl FileError {
    pub(crate) fn new(path: &Path, kind: impl Into<FileErrorKind>) -> Self {
        Self { path: path.to_owned(), kind: kind.into() }
    }

    fn expected(path: &Path, what: &'static str) -> Self {
        Self::new(path, FileErrorKind::Expected(what))
    }

    /// Whether the file is not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(&self.kind, FileErrorKind::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Refuses a path that is not absolute and clean.
pub(crate) fn require_clean(path: &Path) -> Result<(), FileError> {
    let clean: PathBuf = path.components().filter(|part| *part != Component::ParentDir).collect();
    if path.is_absolute() && clean.as_os_str() == path.as_os_str() {
        return Ok(());
    }
    Err(FileError::new(path, FileErrorKind::Path))
}

/// Which file a reader accepts. All must be regular, ours and reached without a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privacy {
    /// Mode exactly 0600.
    Private,
    /// Readable by others, writable by us alone.
    Published,
}

/// Opens a file to read it; a pipe is not waited for.
pub(crate) fn open(path: &Path, privacy: Privacy) -> Result<File, FileError> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == nix::errno::Errno::ELOOP as i32 => {
            FileError::expected(path, "a file, not a symbolic link")
        }
        _ => FileError::new(path, error),
    })?;
    check(path, &file, privacy)?;
    Ok(file)
}

/// Reads a whole file of at most `max` bytes.
pub(crate) fn read(path: &Path, privacy: Privacy, max: usize) -> Result<Vec<u8>, FileError> {
    let file = open(path, privacy)?;
    let mut bytes = Vec::new();
    file.take(max as u64 + 1).read_to_end(&mut bytes).map_err(|error| FileError::new(path, error))?;
    if bytes.len() > max {
        return Err(FileError::expected(path, "a smaller file"));
    }
    Ok(bytes)
}

fn check(path: &Path, file: &File, privacy: Privacy) -> Result<(), FileError> {
    let metadata = file.metadata().map_err(|error| FileError::new(path, error))?;
    if !metadata.is_file() {
        return Err(FileError::expected(path, "a regular file"));
    }
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(FileError::expected(path, "a file that belongs to the account of this process"));
    }
    let mode = metadata.mode() & 0o7777;
    match privacy {
        Privacy::Private if mode != 0o600 => Err(FileError::expected(path, "a file of mode 0600")),
        Privacy::Published if mode & 0o022 != 0 => {
            Err(FileError::expected(path, "a file that only its owner can write"))
        }
        Privacy::Private | Privacy::Published => Ok(()),
    }
}

/// Opens or creates a private file that only serves as a lock; never follows a link.
pub(crate) fn open_lock(path: &Path) -> Result<File, FileError> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits())
        .open(path)
        .map_err(|error| FileError::new(path, error))?;
    check(path, &file, Privacy::Private)?;
    Ok(file)
}

/// Refuses what is not a real directory of ours with mode exactly 0700.
pub(crate) fn require_private_directory(path: &Path) -> Result<(), FileError> {
    let metadata = path.symlink_metadata().map_err(|error| FileError::new(path, error))?;
    if !metadata.is_dir() {
        return Err(FileError::expected(path, "a directory, not a link or another file"));
    }
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(FileError::expected(path, "a directory that belongs to the account of this process"));
    }
    if metadata.mode() & 0o7777 != 0o700 {
        return Err(FileError::expected(path, "a directory of mode 0700"));
    }
    Ok(())
}

/// Makes `path` durably when it is missing and its parent is there; checks it otherwise.
pub(crate) fn ensure_private_directory(path: &Path) -> Result<(), FileError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            let made = || {
                std::fs::set_permissions(path, PermissionsExt::from_mode(0o700))?;
                File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
            };
            made().map_err(|error| FileError::new(path, error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(FileError::expected(path, "its parent to exist; make that first"));
        }
        Err(error) => return Err(FileError::new(path, error)),
    }
    require_private_directory(path)
}

/// Replaces `directory/name` with `contents`, mode 0600: after a crash at any point it holds the old bytes or the new.
///
/// One writer at a time: the caller holds the directory's lock. `temporary` is a name in the same directory; what an
/// interrupted write left there is removed first.
pub(crate) fn replace(directory: &Path, name: &str, temporary: &str, contents: &[u8]) -> Result<(), FileError> {
    replace_with(&mut System, directory, name, temporary, contents)
}

/// The steps of a replacement, so that a test can stop after each.
trait Steps {
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    fn create(&mut self, path: &Path) -> io::Result<File>;
    fn write(&mut self, file: &mut File, contents: &[u8]) -> io::Result<()>;
    fn sync(&mut self, file: &File) -> io::Result<()>;
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_directory(&mut self, path: &Path) -> io::Result<()>;
}

struct System;

impl Steps for System {
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn create(&mut self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
    }

    fn write(&mut self, file: &mut File, contents: &[u8]) -> io::Result<()> {
        file.write_all(contents)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

fn replace_with(
    steps: &mut impl Steps,
    directory: &Path,
    name: &str,
    temporary: &str,
    contents: &[u8],
) -> Result<(), FileError> {
    let (target, temporary) = (directory.join(name), directory.join(temporary));
    let written = write_and_rename(steps, &temporary, &target, contents);
    if written.is_err() {
        // The target still has its old bytes. The next write removes what this one cannot.
        let _ = steps.remove(&temporary);
    }
    written.and_then(|()| steps.sync_directory(directory)).map_err(|error| FileError::new(&target, error))
}

fn write_and_rename(steps: &mut impl Steps, temporary: &Path, target: &Path, contents: &[u8]) -> io::Result<()> {
    steps.remove(temporary)?;
    let mut file = steps.create(temporary)?;
    steps.write(&mut file, contents)?;
    steps.sync(&file)?;
    drop(file);
    steps.rename(temporary, target)
}

#[cfg(test)]
mod tests;
