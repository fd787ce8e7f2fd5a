//! The system calls that change files. Whatever this crate keeps on disk is changed through these and nothing else, so
//! that a test can stop, kill or fail the program after each, and can take back what was not synced.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// One system call each. Names are not followed: a link at the end of a path is an error or is itself replaced.
pub(crate) trait Disk {
    /// Makes a private empty file, open for reading and writing; one that exists is an error.
    fn create(&mut self, path: &Path) -> io::Result<File>;
    /// Appends to a file that this process created, or opened to append.
    fn write(&mut self, file: &File, contents: &[u8]) -> io::Result<()>;
    /// Makes this the whole content of a file that this process created and that is longer: no room is needed, where files are written
    /// in place (not on btrfs or ZFS, which copy what is written).
    fn overwrite(&mut self, file: &File, contents: &[u8]) -> io::Result<()>;
    /// Takes everything away that is in a file that this process opened to append.
    fn empty(&mut self, file: &File) -> io::Result<()>;
    /// Gives an opened file or directory exactly these permissions.
    fn set_mode(&mut self, file: &File, mode: u32) -> io::Result<()>;
    /// Makes content and permissions of an opened file durable.
    fn sync(&mut self, file: &File) -> io::Result<()>;
    /// Gives a file its final name; what had the name loses it.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&mut self, path: &Path) -> io::Result<()>;
    /// Makes an empty private directory.
    fn make_directory(&mut self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&mut self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&mut self, path: &Path) -> io::Result<()>;
}

/// The real one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct System;

impl Disk for System {
    fn create(&mut self, path: &Path) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).custom_flags(flags.bits()).open(path)
    }

    fn write(&mut self, mut file: &File, contents: &[u8]) -> io::Result<()> {
        file.write_all(contents)
    }

    fn overwrite(&mut self, file: &File, contents: &[u8]) -> io::Result<()> {
        file.write_all_at(contents, 0)?;
        file.set_len(contents.len() as u64)
    }

    fn empty(&mut self, file: &File) -> io::Result<()> {
        file.set_len(0)
    }

    fn set_mode(&mut self, file: &File, mode: u32) -> io::Result<()> {
        file.set_permissions(PermissionsExt::from_mode(mode))
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        directory(path)?.sync_all()
    }
}

impl<D: Disk + ?Sized> Disk for &mut D {
    fn create(&mut self, path: &Path) -> io::Result<File> {
        (**self).create(path)
    }

    fn write(&mut self, file: &File, contents: &[u8]) -> io::Result<()> {
        (**self).write(file, contents)
    }

    fn overwrite(&mut self, file: &File, contents: &[u8]) -> io::Result<()> {
        (**self).overwrite(file, contents)
    }

    fn empty(&mut self, file: &File) -> io::Result<()> {
        (**self).empty(file)
    }

    fn set_mode(&mut self, file: &File, mode: u32) -> io::Result<()> {
        (**self).set_mode(file, mode)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        (**self).sync(file)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        (**self).rename(from, to)
    }

    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        (**self).unlink(path)
    }

    fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        (**self).make_directory(path)
    }

    fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        (**self).remove_directory(path)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        (**self).sync_directory(path)
    }
}

/// A directory itself, not what a link at its name leads to.
pub(crate) fn directory(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits()).open(path)
}
