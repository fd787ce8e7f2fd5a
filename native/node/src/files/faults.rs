//! A disk for tests: it stops at a chosen system call, in a chosen way, and can lose what was not synced.
//!
//! The files are real, so that locks, inodes and permissions are; the loss of power is the taking back of every change
//! that no sync made durable. Names are lost from the last change backwards, as a journal loses them; content that was
//! not synced is lost whatever becomes of the name.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::disk::{Disk, System};

/// What happens at the chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The power fails: this call and all that follow do nothing.
    Power,
    /// Half of the bytes of a write are written, then the power fails.
    Torn,
    /// The process is killed with SIGKILL instead of making the call.
    Kill,
    /// No space or inode is left from here on: only as much can be made and written as is removed meanwhile.
    Full,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Faults {
    left: usize,
    stop: Stop,
    /// What was called, in order.
    pub(crate) calls: Vec<String>,
    changes: Vec<Change>,
    /// Files and folders that were removed since the disk was full.
    freed: usize,
    /// Inodes of files that have such room.
    fitting: BTreeSet<u64>,
    /// The chosen call was reached.
    stopped: bool,
    /// Where replaced and removed files wait for their return; on the same file system, outside of what is tested.
    attic: Option<PathBuf>,
}

/// Something that is not durable yet.
#[derive(Debug)]
enum Change {
    Content {
        inode: u64,
        file: File,
        length: u64,
    },
    /// What an emptied file had in it.
    Emptied {
        inode: u64,
        file: File,
        content: Vec<u8>,
    },
    Name {
        directory: PathBuf,
        back: Back,
    },
}

/// How a change of a name is taken back.
#[derive(Debug)]
enum Back {
    Remove(PathBuf),
    RemoveDirectory(PathBuf),
    Return { from: PathBuf, to: PathBuf },
    Rename { from: PathBuf, to: PathBuf, replaced: Option<PathBuf> },
    MakeDirectory(PathBuf),
}

impl Faults {
    /// Makes `calls` calls, and stops at the next one.
    pub(crate) fn after(calls: usize, stop: Stop) -> Self {
        Self {
            left: calls,
            stop,
            calls: Vec::new(),
            changes: Vec::new(),
            freed: 0,
            fitting: BTreeSet::new(),
            stopped: false,
            attic: None,
        }
    }

    /// Never stops, and counts.
    pub(crate) fn none() -> Self {
        Self::after(usize::MAX, Stop::Power)
    }

    /// Remembers how to take back what is not synced. `attic` is an empty directory.
    pub(crate) fn remembering(mut self, attic: &Path) -> Self {
        self.attic = Some(attic.to_owned());
        self
    }

    /// The next process on the same disk: it is not stopped, and what is not durable still is not.
    pub(crate) fn next_process(self) -> Self {
        Self { left: usize::MAX, freed: 0, fitting: BTreeSet::new(), stopped: false, ..self }
    }

    /// The changes of names that are not durable.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = |change: &Change| match change {
            Change::Name { back, .. } => Some(format!("{back:?}")),
            Change::Content { .. } | Change::Emptied { .. } => None,
        };
        self.changes.iter().filter_map(names).collect()
    }

    /// How many changes of names are not durable.
    pub(crate) fn names_at_risk(&self) -> usize {
        self.changes.iter().filter(|change| matches!(change, Change::Name { .. })).count()
    }

    /// Loses the power: all but the first `kept` changes of names that are not durable, and all content that is not.
    pub(crate) fn lose(mut self, kept: usize) {
        let mut lost = self.names_at_risk().saturating_sub(kept);
        while let Some(change) = self.changes.pop() {
            match change {
                Change::Content { file, length, .. } => file.set_len(length).unwrap(),
                Change::Emptied { file, content, .. } => {
                    file.set_len(0).unwrap();
                    System.write(&file, &content).unwrap();
                }
                Change::Name { back, .. } if lost > 0 => {
                    lost -= 1;
                    back.take();
                }
                Change::Name { .. } => {}
            }
        }
    }

    fn call<T>(
        &mut self,
        name: &str,
        path: &Path,
        makes: bool,
        act: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            self.calls.push(format!("{name} {file}"));
            return act(self);
        }
        self.stopped = true;
        match self.stop {
            Stop::Kill => {
                nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::Signal::SIGKILL).unwrap();
                unreachable!("killed");
            }
            Stop::Full if !makes => act(self),
            Stop::Power | Stop::Torn | Stop::Full => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// What happened in a directory that is gone for good is gone with it.
    fn forget_removed_directories(&mut self) {
        let returning: BTreeSet<PathBuf> = self.changes.iter().filter_map(Change::removed_directory).collect();
        let may_return = |place: &Path| place.ancestors().any(|place| returning.contains(place));
        self.changes.retain(|change| match change {
            Change::Name { directory, .. } => directory.exists() || may_return(directory),
            Change::Content { .. } | Change::Emptied { .. } => true,
        });
    }

    fn name(&mut self, path: &Path, back: Back) {
        let directory = path.parent().unwrap().to_owned();
        self.changes.push(Change::Name { directory, back });
    }

    /// Keeps what `path` names, under another name.
    fn keep(&self, path: &Path) -> Option<PathBuf> {
        let attic = self.attic.as_ref()?;
        let kept: BTreeSet<_> = std::fs::read_dir(attic).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let name =
            (0..=u32::MAX).map(|number| format!("{number}")).find(|name| !kept.contains(std::ffi::OsStr::new(name)));
        let place = attic.join(name.unwrap());
        std::fs::hard_link(path, &place).ok().map(|()| place)
    }
}

impl Change {
    fn removed_directory(&self) -> Option<PathBuf> {
        match self {
            Self::Name { back: Back::MakeDirectory(path), .. } => Some(path.clone()),
            Self::Name { .. } | Self::Content { .. } | Self::Emptied { .. } => None,
        }
    }
}

impl Back {
    fn take(self) {
        match self {
            Self::Remove(path) => std::fs::remove_file(path).unwrap(),
            Self::RemoveDirectory(path) => std::fs::remove_dir(path).unwrap(),
            Self::Return { from, to } => std::fs::rename(from, to).unwrap(),
            Self::Rename { from, to, replaced } => {
                std::fs::rename(&to, from).unwrap();
                if let Some(replaced) = replaced {
                    std::fs::rename(replaced, to).unwrap();
                }
            }
            Self::MakeDirectory(path) => System.make_directory(&path).unwrap(),
        }
    }
}

impl Disk for Faults {
    fn create(&mut self, path: &Path) -> io::Result<File> {
        let makes = self.freed == 0;
        self.call("create", path, makes, |disk| {
            let file = System.create(path)?;
            disk.name(path, Back::Remove(path.to_owned()));
            if disk.stopped {
                disk.freed -= 1;
                disk.fitting.insert(file.metadata()?.ino());
            }
            Ok(file)
        })
    }

    fn write(&mut self, file: &File, contents: &[u8]) -> io::Result<()> {
        let metadata = file.metadata()?;
        let change = Change::Content { inode: metadata.ino(), file: file.try_clone()?, length: metadata.len() };
        self.changes.push(change);
        if self.left == 0 && self.stop == Stop::Torn {
            System.write(file, &contents[..contents.len() / 2])?;
        }
        let makes = !self.fitting.contains(&metadata.ino());
        self.call("write", Path::new(""), makes, |_| System.write(file, contents))
    }

    fn overwrite(&mut self, file: &File, contents: &[u8]) -> io::Result<()> {
        let metadata = file.metadata()?;
        assert!(metadata.len() >= contents.len() as u64, "it has the room already");
        // Without a sync nobody knows which blocks are old.
        self.changes.push(Change::Content { inode: metadata.ino(), file: file.try_clone()?, length: 0 });
        if self.left == 0 && self.stop == Stop::Torn {
            System.overwrite(file, &contents[..contents.len() / 2])?;
        }
        self.call("overwrite", Path::new(""), false, |_| System.overwrite(file, contents))
    }

    fn empty(&mut self, file: &File) -> io::Result<()> {
        self.call("empty", Path::new(""), false, |disk| {
            let (inode, length) = (file.metadata()?.ino(), file.metadata()?.len());
            let mut content = vec![0; usize::try_from(length).expect("a test's file fits into memory")];
            file.read_exact_at(&mut content, 0)?;
            disk.changes.push(Change::Emptied { inode, file: file.try_clone()?, content });
            System.empty(file)
        })
    }

    fn set_mode(&mut self, file: &File, mode: u32) -> io::Result<()> {
        self.call("set_mode", Path::new(""), false, |_| System.set_mode(file, mode))
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        let synced = file.metadata()?.ino();
        self.call("sync", Path::new(""), false, |disk| {
            let is_of_it = |change: &Change| match change {
                Change::Content { inode, .. } | Change::Emptied { inode, .. } => *inode == synced,
                Change::Name { .. } => false,
            };
            disk.changes.retain(|change| !is_of_it(change));
            System.sync(file)
        })
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        assert_eq!(from.parent(), to.parent(), "a file gets its final name where it was written");
        self.call("rename", to, false, |disk| {
            let replaced = disk.keep(to);
            System.rename(from, to)?;
            disk.name(to, Back::Rename { from: from.to_owned(), to: to.to_owned(), replaced });
            Ok(())
        })
    }

    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        self.call("unlink", path, false, |disk| {
            let kept = disk.keep(path);
            System.unlink(path)?;
            disk.freed += usize::from(disk.stopped);
            if let Some(from) = kept {
                disk.name(path, Back::Return { from, to: path.to_owned() });
            }
            Ok(())
        })
    }

    fn make_directory(&mut self, path: &Path) -> io::Result<()> {
        let makes = self.freed == 0;
        self.call("make_directory", path, makes, |disk| {
            System.make_directory(path)?;
            disk.freed -= usize::from(disk.stopped);
            disk.name(path, Back::RemoveDirectory(path.to_owned()));
            Ok(())
        })
    }

    fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        self.call("remove_directory", path, false, |disk| {
            System.remove_directory(path)?;
            disk.name(path, Back::MakeDirectory(path.to_owned()));
            Ok(())
        })
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.call("sync_directory", path, false, |disk| {
            disk.changes.retain(|change| !matches!(change, Change::Name { directory, .. } if directory == path));
            disk.forget_removed_directories();
            System.sync_directory(path)
        })
    }
}
