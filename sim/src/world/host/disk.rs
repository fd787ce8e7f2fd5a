//! A disk that keeps what was synced, and of everything else what it likes.

use std::collections::BTreeMap;

use palisade_core::generation::recovery::{
    Collecting, Damage, Entry, Files, Journals, Lease, Preparing, Release, Root,
};
use palisade_core::units::{Digest, Generation};

use crate::random::Random;

/// A file of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum File {
    /// The highest owner epoch, in `identity.json`.
    Epoch,
    /// `generations/`.
    Directory,
    /// The microsandbox store with its owner record.
    Store,
    Lease(Generation),
    Record(Generation),
    Configuration(Generation),
    Preparing(Generation),
    Collecting(Generation),
    Dropped(Generation),
    /// How many of its three files the release has.
    Release(Generation),
    Manifest(Generation),
    /// Files of the enrolled generation.
    Originals(Generation),
}

impl File {
    /// Whether its name stands where starts and runs look for what is recorded: in `state/node/` or `generations/`.
    const fn is_record(self) -> bool {
        match self {
            Self::Epoch
            | Self::Directory
            | Self::Lease(_)
            | Self::Record(_)
            | Self::Configuration(_)
            | Self::Preparing(_)
            | Self::Collecting(_)
            | Self::Dropped(_) => true,
            Self::Store | Self::Release(_) | Self::Manifest(_) | Self::Originals(_) => false,
        }
    }
}

/// What a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Says(u64),
    /// Unreadable; this was in it, and an operator has a copy.
    Damaged(Option<u64>),
}

impl Content {
    const fn says(self) -> Option<u64> {
        match self {
            Self::Says(says) => Some(says),
            Self::Damaged(before) => before,
        }
    }
}

/// All files, as programs see them and as a power cut would leave them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    visible: BTreeMap<File, Content>,
    durable: BTreeMap<File, Content>,
    digests: BTreeMap<Generation, Digest>,
}

pub(crate) const RELEASE_FILES: u64 = 3;

impl Disk {
    /// Changes what programs see; [`Disk::sync`] makes it survive.
    pub(crate) fn write(&mut self, file: File, says: u64) {
        self.visible.insert(file, Content::Says(says));
    }

    pub(crate) fn unlink(&mut self, file: File) {
        self.visible.remove(&file);
    }

    pub(crate) fn sync(&mut self, file: File) {
        match self.visible.get(&file) {
            Some(content) => self.durable.insert(file, *content),
            None => self.durable.remove(&file),
        };
    }

    /// Makes durable whatever name of a record somebody changed and did not sync; says whether there was one.
    pub(crate) fn settle(&mut self) -> bool {
        let files: Vec<File> = self.visible.keys().chain(self.durable.keys()).copied().collect();
        let open = |file: &File| file.is_record() && self.visible.get(file) != self.durable.get(file);
        let open: Vec<File> = files.into_iter().filter(open).collect();
        for file in &open {
            self.sync(*file);
        }
        !open.is_empty()
    }

    pub(crate) fn read(&self, file: File) -> Option<u64> {
        match self.visible.get(&file) {
            Some(Content::Says(says)) => Some(*says),
            Some(Content::Damaged(_)) | None => None,
        }
    }

    pub(crate) fn remember(&mut self, generation: Generation, digest: Digest) {
        self.digests.insert(generation, digest);
    }

    /// A generation that was dropped here, or else the lowest that this disk ever heard of.
    pub(crate) fn oldest(&self) -> Option<(Generation, Digest)> {
        let dropped = |(of, _): &(&Generation, &Digest)| self.visible.contains_key(&File::Dropped(**of));
        let known = self.digests.iter().find(dropped).or(self.digests.first_key_value());
        known.map(|(generation, digest)| (*generation, *digest))
    }

    pub(crate) fn digest(&self, generation: Generation) -> Option<Digest> {
        self.digests.get(&generation).copied()
    }

    /// The power goes: of what was not synced, each file keeps its old or its new content, or rarely is damaged.
    pub(crate) fn lose_power(&mut self, damage: u32, luck: &mut Random) -> bool {
        let mut damaged = false;
        let files: Vec<File> = self.visible.keys().chain(self.durable.keys()).copied().collect();
        for file in files {
            let (old, new) = (self.durable.get(&file).copied(), self.visible.get(&file).copied());
            if old == new {
                continue;
            }
            let torn = matches!(file, File::Configuration(_) | File::Preparing(_)) && luck.chance(damage);
            damaged |= torn;
            let kept = match luck.below(2) {
                _ if torn => Some(Content::Damaged(old.and_then(Content::says))),
                0 => old,
                _ => new,
            };
            for side in [&mut self.visible, &mut self.durable] {
                match kept {
                    Some(content) => side.insert(file, content),
                    None => side.remove(&file),
                };
            }
        }
        damaged
    }

    /// A file of a generation goes bad where it lies.
    pub(crate) fn rot(&mut self, luck: &mut Random) -> bool {
        let records: Vec<File> = self
            .visible
            .keys()
            .filter(|file| matches!(file, File::Configuration(_) | File::Preparing(_) | File::Collecting(_)))
            .copied()
            .collect();
        if records.is_empty() {
            return false;
        }
        let file = luck.pick(&records);
        for side in [&mut self.visible, &mut self.durable] {
            if let Some(content) = side.get_mut(&file) {
                *content = Content::Damaged(content.says());
            }
        }
        true
    }

    /// An operator looks at what the start or a preparation refused: a damaged file comes back from its copy, a lease
    /// that was never recorded goes.
    pub(crate) fn inspect(&mut self) {
        for side in [&mut self.visible, &mut self.durable] {
            side.retain(|_, content| *content != Content::Damaged(None));
            for content in side.values_mut() {
                if let Content::Damaged(Some(says)) = content {
                    *content = Content::Says(*says);
                }
            }
        }
        let lonely = |file: &&File| match file {
            File::Lease(generation) => !self.visible.contains_key(&File::Record(*generation)),
            _ => false,
        };
        let unrecorded: Vec<File> = self.visible.keys().filter(lonely).copied().collect();
        for file in unrecorded {
            self.unlink(file);
            self.sync(file);
        }
    }

    fn entry<T>(&self, file: File, read: impl FnOnce(u64) -> T) -> Entry<T> {
        match self.visible.get(&file) {
            None => Entry::Absent,
            Some(Content::Damaged(_)) => Entry::Damaged(Damage::Content),
            Some(Content::Says(says)) => Entry::Ours(read(*says)),
        }
    }

    pub(crate) fn there(&self, file: File) -> Entry<()> {
        self.entry(file, |_| ())
    }

    pub(crate) fn lease(&self, generation: Generation, created: bool) -> Lease {
        match self.there(File::Lease(generation)) {
            Entry::Ours(()) if created => Lease::Created,
            Entry::Ours(()) => Lease::Present,
            Entry::Absent | Entry::Damaged(_) | Entry::Foreign(_) => Lease::Absent,
        }
    }

    pub(crate) fn journals(&self, generation: Generation, enrolled: Generation) -> Journals {
        Journals {
            enrolled: generation == enrolled,
            configuration: self.there(File::Configuration(generation)),
            preparing: self.entry(File::Preparing(generation), |says| Preparing { import_started: says == 1 }),
            collecting: self.entry(File::Collecting(generation), |says| Collecting { native_complete: says == 1 }),
            dropped: self.there(File::Dropped(generation)),
        }
    }

    /// Every other generation's records, the first unsound one standing for all.
    pub(crate) fn others(&self, generation: Generation) -> Entry<()> {
        let mut found = Entry::Absent;
        for (file, content) in &self.visible {
            let (File::Configuration(of) | File::Preparing(of) | File::Collecting(of) | File::Dropped(of)) = file
            else {
                continue;
            };
            match content {
                Content::Damaged(_) if *of != generation => return Entry::Damaged(Damage::Content),
                Content::Says(_) if *of != generation => found = Entry::Ours(()),
                Content::Damaged(_) | Content::Says(_) => {}
            }
        }
        found
    }

    pub(crate) fn files(&self, generation: Generation, enrolled: Generation) -> Files {
        if generation == enrolled {
            return if self.read(File::Originals(generation)).is_some() { Files::Whole } else { Files::Missing };
        }
        match (self.read(File::Release(generation)), self.read(File::Manifest(generation))) {
            (Some(RELEASE_FILES), Some(_)) => Files::Whole,
            (Some(RELEASE_FILES), None) => Files::Unlisted,
            (Some(_) | None, _) => Files::Missing,
        }
    }

    pub(crate) fn release(&self, generation: Generation) -> Release {
        let present = self.read(File::Release(generation)).is_some() || self.read(File::Manifest(generation)).is_some();
        if present { Release::Present } else { Release::Gone }
    }

    /// What a start looks at.
    pub(crate) fn root(&self, enrolled: Generation) -> Root {
        let of = |file: &File| match file {
            File::Configuration(of) | File::Preparing(of) | File::Collecting(of) | File::Dropped(of) => Some(*of),
            File::Epoch
            | File::Directory
            | File::Store
            | File::Lease(_)
            | File::Record(_)
            | File::Release(_)
            | File::Manifest(_)
            | File::Originals(_) => None,
        };
        let generations = self.visible.keys().filter_map(of).map(|of| (of, self.journals(of, enrolled))).collect();
        Root { base: Entry::Ours(enrolled), directory: self.there(File::Directory), generations }
    }
}
