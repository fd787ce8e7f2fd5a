//! From what the file system shows to an [`Entry`]: strict, bounded, and without a way around (node-host §1.8, §2.1).

use super::facts::{Damage, Entry, Lease};

/// What stands at a path. It is opened without following links and without waiting, and read one byte beyond its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Look<'a> {
    /// There is no entry.
    Absent,
    /// A symbolic link on the path, a replacement while reading, a failed read.
    Failed(Damage),
    /// It was opened; the bytes are what a regular file holds.
    Opened(Status, &'a [u8]),
}

/// What `fstat` says of an opened file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    /// What it is.
    pub kind: FileKind,
    /// Whether the effective account of this process owns it.
    pub owned: bool,
    /// Permission bits, at most 0o7777.
    pub mode: u32,
    /// Number of its names.
    pub links: u64,
    /// The device that it is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A FIFO, a device, a socket.
    Other,
}

impl<'a> Look<'a> {
    /// `generations/`: a real directory, ours, mode exactly 0700.
    #[must_use]
    pub fn directory(self) -> Entry<()> {
        self.opened(FileKind::Directory, |status| status.mode == 0o700).and_then(|_| Entry::Ours(()))
    }

    /// `<g>.lease`: an empty private file.
    #[must_use]
    pub fn lease(self) -> Lease {
        match self.private(0) {
            Entry::Absent => Lease::Absent,
            Entry::Damaged(damage) => Lease::Damaged(damage),
            Entry::Ours(_) | Entry::Foreign(_) => Lease::Present,
        }
    }

    /// A private file: regular, ours, mode exactly 0600, with one name and at most `max` bytes.
    #[must_use]
    pub fn private(self, max: usize) -> Entry<&'a [u8]> {
        self.opened(FileKind::File, |status| status.mode == 0o600).and_then(|(status, bytes)| {
            if status.links == 1 { bounded(bytes, max) } else { Entry::Damaged(Damage::HardLink) }
        })
    }

    /// A file that is not secret: regular, ours, writable by neither group nor others, with at most `max` bytes.
    pub(super) fn published(self, max: usize) -> Entry<&'a [u8]> {
        let access = |status: Status| status.mode & 0o022 == 0;
        self.opened(FileKind::File, access).and_then(|(_, bytes)| bounded(bytes, max))
    }

    fn opened(self, kind: FileKind, access: impl Fn(Status) -> bool) -> Entry<(Status, &'a [u8])> {
        match self {
            Self::Absent => Entry::Absent,
            Self::Failed(damage) => Entry::Damaged(damage),
            Self::Opened(status, _) if status.kind != kind => Entry::Damaged(Damage::Kind),
            Self::Opened(status, _) if !status.owned || !access(status) => Entry::Damaged(Damage::Access),
            Self::Opened(status, bytes) => Entry::Ours((status, bytes)),
        }
    }
}

const fn bounded(bytes: &[u8], max: usize) -> Entry<&[u8]> {
    if bytes.len() > max { Entry::Damaged(Damage::Size) } else { Entry::Ours(bytes) }
}

impl<T> Entry<T> {
    /// Looks closer at what is there.
    pub(super) fn and_then<U>(self, look: impl FnOnce(T) -> Entry<U>) -> Entry<U> {
        match self {
            Self::Absent => Entry::Absent,
            Self::Damaged(damage) => Entry::Damaged(damage),
            Self::Foreign(difference) => Entry::Foreign(difference),
            Self::Ours(content) => look(content),
        }
    }

    /// The content, if the entry is ours.
    #[must_use]
    pub fn ours(self) -> Option<T> {
        match self {
            Self::Ours(content) => Some(content),
            Self::Absent | Self::Damaged(_) | Self::Foreign(_) => None,
        }
    }

    /// The same entry with a part of its content.
    #[must_use]
    pub fn to<U>(&self, content: impl FnOnce(&T) -> U) -> Entry<U> {
        match self {
            Self::Absent => Entry::Absent,
            Self::Damaged(damage) => Entry::Damaged(*damage),
            Self::Foreign(difference) => Entry::Foreign(*difference),
            Self::Ours(inner) => Entry::Ours(content(inner)),
        }
    }
}
