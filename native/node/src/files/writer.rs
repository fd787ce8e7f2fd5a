//! The one durable writer (node-host §1.8, decision 24): write, sync the file, rename, sync the directory.
//!
//! After a crash at any point a name holds its old bytes or its new ones. One writer at a time: whoever writes holds the
//! lock that the directory belongs to.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::disk::{self, Disk};
use super::{FileError, Privacy, mounts, require_private_directory};

/// Replaces `directory/name` with `contents`, mode 0600.
///
/// `temporary` is a name in the same directory; what an interrupted write left there is removed first.
pub(crate) fn replace(
    disk: &mut dyn Disk,
    directory: &Path,
    name: &str,
    temporary: &str,
    contents: &[u8],
) -> Result<(), FileError> {
    let (target, temporary) = (directory.join(name), directory.join(temporary));
    let written = write_and_rename(disk, &temporary, &target, contents);
    if written.is_err() {
        // The target still has its old bytes. The next write removes what this one cannot.
        let _ = remove_if_there(disk, &temporary);
    }
    written.and_then(|()| disk.sync_directory(directory)).map_err(|error| FileError::new(&target, error))
}

/// Writes a record under its usual temporary name, `.<name>.partial`.
pub(crate) fn record(disk: &mut dyn Disk, directory: &Path, name: &str, contents: &[u8]) -> Result<(), FileError> {
    replace(disk, directory, name, &partial(name), contents)
}

/// Writes a record that never changes: one that is there must be private and hold exactly these bytes.
pub(crate) fn record_once(disk: &mut dyn Disk, directory: &Path, name: &str, contents: &[u8]) -> Result<(), FileError> {
    let path = directory.join(name);
    match super::read(&path, Privacy::Private, contents.len()) {
        Err(error) if error.is_missing() => record(disk, directory, name, contents),
        // Whoever wrote it may have been killed before it was durable.
        Ok(found) if found == contents => settle(disk, directory),
        Ok(_) => Err(FileError::expected(&path, "the recorded content; it is kept as it is")),
        Err(error) => Err(error),
    }
}

/// The room of a record that is not written yet: what must not be begun unless its record fits beside it, is begun after
/// this.
#[derive(Debug)]
pub(crate) struct Reserved {
    directory: PathBuf,
    name: String,
    file: File,
}

impl Reserved {
    /// Takes the room of at most `bytes`, durably, under the temporary name of the record.
    pub(crate) fn take(disk: &mut dyn Disk, directory: &Path, name: &str, bytes: usize) -> Result<Self, FileError> {
        let temporary = directory.join(partial(name));
        let written = write(disk, &temporary, &vec![0; bytes]);
        if written.is_err() {
            // What cannot be removed now is removed by the next write.
            let _ = remove_if_there(disk, &temporary);
        }
        let file = written.map_err(|error| FileError::new(&temporary, error))?;
        Ok(Self { directory: directory.to_owned(), name: name.to_owned(), file })
    }

    /// Makes it the record. Nothing of this needs room on a disk whose files are written in place.
    pub(crate) fn record(&self, disk: &mut dyn Disk, contents: &[u8]) -> Result<(), FileError> {
        let target = self.directory.join(&self.name);
        let mut record = || {
            disk.overwrite(&self.file, contents)?;
            disk.sync(&self.file)?;
            disk.rename(&self.directory.join(partial(&self.name)), &target)?;
            disk.sync_directory(&self.directory)
        };
        record().map_err(|error| FileError::new(&target, error))
    }

    /// Gives the room back, as far as that is possible.
    pub(crate) fn give_back(self, disk: &mut dyn Disk) {
        let _ = remove_if_there(disk, &self.directory.join(partial(&self.name)));
    }
}

/// Where a file of this name is written before it gets the name.
pub(crate) fn partial(name: &str) -> String {
    format!(".{name}.partial")
}

/// Gives a finished file its permissions and its final name, durably. What has the name is replaced.
pub(crate) fn publish(disk: &mut dyn Disk, partial: &Path, target: &Path, mode: u32) -> Result<(), FileError> {
    let publish = |disk: &mut dyn Disk| {
        let file = File::open(partial)?;
        disk.set_mode(&file, mode)?;
        disk.sync(&file)?;
        disk.rename(partial, target)?;
        disk.sync_directory(parent(target))
    };
    publish(disk).map_err(|error| FileError::new(target, error))
}

/// Removes one name durably; one that is gone already is gone durably afterwards.
pub(crate) fn remove(disk: &mut dyn Disk, path: &Path) -> Result<(), FileError> {
    let removed = remove_if_there(disk, path).and_then(|()| disk.sync_directory(parent(path)));
    removed.map_err(|error| FileError::new(path, error))
}

/// Removes a directory with everything in it, durably, entry by entry, and follows no link. One in which something is
/// mounted stays as it is.
pub(crate) fn remove_tree(disk: &mut dyn Disk, path: &Path) -> Result<(), FileError> {
    if mounts::at_or_below(path).map_err(|error| FileError::new(path, error))? {
        return Err(FileError::expected(path, "nothing mounted on it or below it"));
    }
    remove_folder(disk, path)
}

fn remove_folder(disk: &mut dyn Disk, path: &Path) -> Result<(), FileError> {
    for entry in list(path)? {
        let path = path.join(entry);
        let metadata = path.symlink_metadata().map_err(|error| FileError::new(&path, error))?;
        if metadata.is_dir() {
            remove_folder(disk, &path)?;
        } else {
            disk.unlink(&path).map_err(|error| FileError::new(&path, error))?;
        }
    }
    let removed = disk.remove_directory(path).and_then(|()| disk.sync_directory(parent(path)));
    removed.map_err(|error| FileError::new(path, error))
}

/// The names in a directory, sorted, so that every run meets them in the same order.
fn list(path: &Path) -> Result<Vec<std::ffi::OsString>, FileError> {
    let names = std::fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>());
    let mut names = names.map_err(|error| FileError::new(path, error))?;
    names.sort_unstable();
    Ok(names)
}

/// Makes durable what the names in a directory stand for now: whoever changed one may have been killed before its sync,
/// and nothing that is found may be worked with while a loss of power can take it back. Only the holder of the lock that
/// the directory belongs to settles it. One that is missing or cannot be opened is left to whoever reads it.
pub(crate) fn settle(disk: &mut dyn Disk, directory: &Path) -> Result<(), FileError> {
    match disk.sync_directory(directory) {
        Err(error) if is_unopened(&error) => Ok(()),
        synced => synced.map_err(|error| FileError::new(directory, error)),
    }
}

/// Nothing of ours can stand in what is no directory, or in one that we may not read.
fn is_unopened(error: &io::Error) -> bool {
    let known = error.raw_os_error().map(Errno::from_raw);
    matches!(known, Some(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES))
}

/// Makes `path` durably when it is missing and its parent is there; checks it otherwise, and settles its name.
pub(crate) fn ensure_private_directory(disk: &mut dyn Disk, path: &Path) -> Result<(), FileError> {
    match disk.make_directory(path) {
        Ok(()) => {
            let made = disk::directory(path).and_then(|made| {
                // Whatever the umask took away.
                disk.set_mode(&made, 0o700)?;
                disk.sync_directory(parent(path))
            });
            made.map_err(|error| FileError::new(path, error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => settle(disk, parent(path))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(FileError::expected(path, "its parent to exist; make that first"));
        }
        Err(error) => return Err(FileError::new(path, error)),
    }
    require_private_directory(path)
}

/// Makes every directory from below `root`, which exists, down to `path`.
pub(crate) fn ensure_private_directories(disk: &mut dyn Disk, root: &Path, path: &Path) -> Result<(), FileError> {
    let below = path.strip_prefix(root).map_err(|_| FileError::expected(path, "a path inside the installation"))?;
    let mut made = PathBuf::from(root);
    for part in below {
        made.push(part);
        ensure_private_directory(disk, &made)?;
    }
    Ok(())
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Removes one name, not durably yet; one that is gone already is fine.
pub(crate) fn remove_if_there(disk: &mut dyn Disk, path: &Path) -> io::Result<()> {
    match disk.unlink(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn write_and_rename(disk: &mut dyn Disk, temporary: &Path, target: &Path, contents: &[u8]) -> io::Result<()> {
    drop(write(disk, temporary, contents)?);
    disk.rename(temporary, target)
}

/// Makes a durable content under a temporary name; whatever had the name before is removed.
fn write(disk: &mut dyn Disk, temporary: &Path, contents: &[u8]) -> io::Result<File> {
    remove_if_there(disk, temporary)?;
    let file = disk.create(temporary)?;
    disk.write(&file, contents)?;
    disk.sync(&file)?;
    Ok(file)
}
