//! New files, written so that a name has its whole content or does not exist, whatever crashes.
//!
//! ```text
//! .name.partial: made, written, permitted, synced ──▶ named unless the name exists ──▶ folder synced
//! ```
//!
//! One writer at a time, who holds the lock of the folder. Permissions are set, not left to the umask.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};

use crate::Error;

/// Stops before a step when a test says so.
pub(crate) trait Steps {
    fn step(&mut self, name: &'static str) -> io::Result<()>;
}

/// Never stops.
pub(crate) struct Unbroken;

impl Steps for Unbroken {
    fn step(&mut self, _: &'static str) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a name that exists may be given to a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Never: it is an error then.
    New,
    /// The old file loses it.
    Replaced,
}

/// Makes a folder and its missing parents, readable for everybody.
pub(crate) fn folder(steps: &mut dyn Steps, path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        folder(steps, parent)?;
    }
    let mut made = || {
        steps.step("make a folder")?;
        DirBuilder::new().mode(0o755).create(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o755))?;
        File::open(parent)?.sync_all()
    };
    made().map_err(Error::file(path))
}

/// Writes a file of these bytes.
pub(crate) fn write(steps: &mut dyn Steps, target: &Path, mode: u32, names: Names, bytes: &[u8]) -> Result<(), Error> {
    copy(steps, target, mode, names, &mut &*bytes)
}

/// Writes a file of everything that `from` gives. What could not be written is removed, so that a full disk gets it back.
pub(crate) fn copy(
    steps: &mut dyn Steps,
    target: &Path,
    mode: u32,
    names: Names,
    from: &mut dyn Read,
) -> Result<(), Error> {
    let partial = partial(target);
    let written = (|| {
        steps.step("remove an old partial file")?;
        remove(&partial)?;
        steps.step("make a partial file")?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&partial)?;
        steps.step("write a partial file")?;
        io::copy(from, &mut file)?;
        file.flush()?;
        finish(steps, &file, &partial, target, mode, names)
    })();
    written.map_err(|error| failed(&partial, target, error))
}

/// Gives the bytes of `from` another name, without writing them again where the file system can.
pub(crate) fn second_name(steps: &mut dyn Steps, from: &Path, target: &Path, mode: u32) -> Result<(), Error> {
    let partial = partial(target);
    let linked = (|| {
        remove(&partial)?;
        std::fs::hard_link(from, &partial)?;
        finish(steps, &File::open(&partial)?, &partial, target, mode, Names::New)
    })();
    linked.or_else(|_| {
        let mut bytes = File::open(from).map_err(Error::file(from))?;
        copy(steps, target, mode, Names::New, &mut bytes)
    })
}

fn finish(
    steps: &mut dyn Steps,
    file: &File,
    partial: &Path,
    target: &Path,
    mode: u32,
    names: Names,
) -> io::Result<()> {
    steps.step("sync a partial file")?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    steps.step("name a file")?;
    match names {
        Names::New => rename_new(partial, target)?,
        Names::Replaced => std::fs::rename(partial, target)?,
    }
    steps.step("sync a folder")?;
    File::open(target.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Renames unless the new name exists; where the file system cannot do that in one step, by way of a second name.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

fn failed(partial: &Path, target: &Path, error: io::Error) -> Error {
    // A test's crash leaves everything as it is; a real one does not get here.
    if error.kind() != io::ErrorKind::Interrupted {
        let _ = remove(partial);
    }
    Error::file(target)(error)
}

fn partial(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.partial"))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
