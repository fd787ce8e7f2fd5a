//! Looks at what stands at a path, for the judgements of the core: no link is followed anywhere on the path, no pipe is
//! waited for, and one byte beyond the limit is read (node-host §1.8, §2.3).

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use palisade_core::generation::recovery::{Damage, FileKind, Look, Status};

/// A [`Look`] with its bytes.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Absent,
    Failed(Damage),
    Opened(Status, Vec<u8>),
}

impl Seen {
    pub(crate) fn borrow(&self) -> Look<'_> {
        match self {
            Self::Absent => Look::Absent,
            Self::Failed(damage) => Look::Failed(*damage),
            Self::Opened(status, bytes) => Look::Opened(*status, bytes),
        }
    }

    fn failed(error: Errno) -> Self {
        match error {
            Errno::ENOENT => Self::Absent,
            Errno::ELOOP => Self::Failed(Damage::Link),
            _ => Self::Failed(Damage::Unreadable),
        }
    }
}

/// A directory that was reached without a link. Nobody can put one on its path afterwards: names are looked up in the
/// opened directory itself.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens an absolute, clean path component by component.
    ///
    /// # Errors
    /// `ELOOP` for a link, anywhere; what the system says otherwise.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut at = nix::fcntl::open("/", flags, Mode::empty())?;
        for part in path.components() {
            match part {
                Component::RootDir => {}
                Component::Normal(name) => at = enter(&at, Path::new(name))?,
                Component::CurDir | Component::ParentDir | Component::Prefix(_) => return Err(Errno::EINVAL),
            }
        }
        Ok(Self(at))
    }

    /// What `name` stands for here; of a regular file, at most `max` bytes and one more.
    pub(crate) fn look(&self, name: &str, max: usize) -> Seen {
        self.try_look(name, max).unwrap_or_else(Seen::failed)
    }

    /// Opens a file to read it; a pipe is not waited for.
    ///
    /// # Errors
    /// `ENOENT`, `ELOOP` for a link, or what the system says.
    pub(crate) fn read_file(&self, name: &str) -> Result<File, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, Mode::empty())?))
    }

    fn try_look(&self, name: &str, max: usize) -> Result<Seen, Errno> {
        let file = self.read_file(name)?;
        let status = status(&file).map_err(errno)?;
        let mut bytes = Vec::new();
        if status.kind == FileKind::File {
            (&file).take(max as u64 + 1).read_to_end(&mut bytes).map_err(errno)?;
        }
        Ok(if self.names(name, &status) { Seen::Opened(status, bytes) } else { Seen::Failed(Damage::Replaced) })
    }

    /// Whether `name` still stands for the opened file.
    pub(crate) fn names(&self, name: &str, status: &Status) -> bool {
        let found = fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == (status.device, status.inode))
    }

    /// Opens a file to lock it.
    ///
    /// # Errors
    /// `ENOENT`, `ELOOP` for a link, or what the system says.
    pub(crate) fn open_file(&self, name: &str) -> Result<File, Errno> {
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.0, name, flags, Mode::empty())?))
    }
}

/// One component further. A link is told apart from what is no directory.
fn enter(at: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(at, name, flags, Mode::empty()).map_err(|error| {
        let link = || {
            let found = fstatat(at.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
            (found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits()).then_some(Errno::ELOOP)
        };
        if error == Errno::ENOTDIR { link().unwrap_or(error) } else { error }
    })
}

/// Looks at what stands at an absolute path.
pub(crate) fn look(path: &Path, max: usize) -> Seen {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Seen::Failed(Damage::Unreadable);
    };
    match Folder::open(parent) {
        Ok(folder) => folder.look(name, max),
        Err(error) => Seen::failed(error),
    }
}

/// What `fstat` says of an opened file.
pub(crate) fn status(file: &File) -> io::Result<Status> {
    let metadata = file.metadata()?;
    let kind = if metadata.is_file() {
        FileKind::File
    } else if metadata.is_dir() {
        FileKind::Directory
    } else {
        FileKind::Other
    };
    Ok(Status {
        kind,
        owned: metadata.uid() == nix::unistd::geteuid().as_raw(),
        mode: metadata.mode() & 0o7777,
        links: metadata.nlink(),
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function of a failed call")]
fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
