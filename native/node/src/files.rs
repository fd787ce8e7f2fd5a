//! The one durable writer, and the one strict reader of private files (node-host §1.8, decision 24).

pub(crate) mod disk;
pub(crate) mod look;
pub(crate) mod mounts;
pub(crate) mod writer;

#[cfg(test)]
pub(crate) mod faults;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::OFlag;

use disk::System;

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

    pub(crate) fn expected(path: &Path, what: &'static str) -> Self {
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
    /// Of no use to anybody else, whatever our own bits are.
    Own,
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
        Privacy::Own if mode & 0o077 != 0 => Err(FileError::expected(path, "a file that nobody but its owner can use")),
        Privacy::Published if mode & 0o022 != 0 => {
            Err(FileError::expected(path, "a file that only its owner can write"))
        }
        Privacy::Private | Privacy::Own | Privacy::Published => Ok(()),
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

/// [`writer::replace`] on the real disk.
pub(crate) fn replace(directory: &Path, name: &str, temporary: &str, contents: &[u8]) -> Result<(), FileError> {
    writer::replace(&mut System, directory, name, temporary, contents)
}

/// [`writer::ensure_private_directory`] on the real disk.
pub(crate) fn ensure_private_directory(path: &Path) -> Result<(), FileError> {
    writer::ensure_private_directory(&mut System, path)
}

#[cfg(test)]
mod tests;
