//! Leases: who may work with a generation, across processes and crashes (node-host §2).
//!
//! - Never is a lease unlinked, truncated or changed after its creation.
//! - Never is a lock given up by unlocking: it belongs to the open file, which a helper process may share, and ends with
//!   the last descriptor.
//! - Never is a lease worked under whose record does not name its device and inode.

mod helper;
#[cfg(test)]
mod tests;

use std::fs::{File, TryLockError};
use std::io::{self, Read as _};
use std::path::Path;

use nix::errno::Errno;
use palisade_core::generation::recovery::{self, Claim, Damage, Entry, Expected, FileKind, Lock, Look, Owner, Status};
use palisade_core::limits::MARKER_MAX_BYTES;
use palisade_core::units::Generation;

use super::layout::name;
use crate::files::FileError;
use crate::files::disk::Disk;
use crate::files::look::{self, Folder, look};
use crate::files::writer::Reserved;

pub use helper::{GenerationLease, HelperLease};

/// The last part of a lease's name.
const LEASE: &str = "lease";
/// The last part of the name of its record.
const RECORD: &str = "lease-identity";

/// A lease of this process, opened and locked.
#[derive(Debug)]
pub(super) struct Lease {
    folder: Folder,
    name: String,
    file: File,
    status: Status,
    /// The room of its record, when this process made it: nobody else can know it before its record is durable.
    reserved: Option<Reserved>,
}

/// What came of trying to lock something.
#[derive(Debug)]
pub(super) enum Held<T> {
    /// Not tried yet.
    No,
    /// Somebody else has it.
    Busy,
    /// This process has it, until it is dropped.
    Yes(T),
}

/// How a lease is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Preparation, repair, collection.
    Exclusive,
    /// A helper process that uses the generation.
    Shared,
}

impl Lease {
    /// Makes the lease exclusively and locks it. The caller syncs and records it before anything else.
    ///
    /// A lease that is left without its record is refused for good, so none is made unless there is room for both.
    pub(super) fn create(
        disk: &mut dyn Disk,
        directory: &Path,
        generation: Generation,
    ) -> Result<Held<Self>, FileError> {
        let reserved = Reserved::take(disk, directory, &name(generation, RECORD), MARKER_MAX_BYTES)?;
        let name = name(generation, LEASE);
        match Self::make(disk, directory, name.clone()) {
            Ok(Held::Yes(lease)) => Ok(Held::Yes(Self { reserved: Some(reserved), ..lease })),
            // Nobody else knows it, so that nobody can have locked it.
            Ok(held @ (Held::No | Held::Busy)) => Ok(held),
            Err(error) => {
                reserved.give_back(disk);
                Err(FileError::new(&directory.join(name), error))
            }
        }
    }

    fn make(disk: &mut dyn Disk, directory: &Path, name: String) -> io::Result<Held<Self>> {
        let folder = Folder::open(directory)?;
        let file = disk.create(&directory.join(&name))?;
        Self::locked(folder, name, file, Mode::Exclusive)
    }

    /// Opens the lease, which must be there, and locks it without waiting.
    pub(super) fn open(directory: &Path, generation: Generation, mode: Mode) -> io::Result<Held<Self>> {
        let folder = Folder::open(directory)?;
        let name = name(generation, LEASE);
        let file = folder.open_file(&name)?;
        Self::locked(folder, name, file, mode)
    }

    fn locked(folder: Folder, name: String, file: File, mode: Mode) -> io::Result<Held<Self>> {
        let status = look::status(&file)?;
        let locked = match mode {
            Mode::Exclusive => file.try_lock(),
            Mode::Shared => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => Ok(Held::Yes(Self { folder, name, file, status, reserved: None })),
            Err(TryLockError::WouldBlock) => Ok(Held::Busy),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Makes the created lease durable, then writes its record, whose directory sync makes the lease's name durable as
    /// well.
    pub(super) fn record(&self, disk: &mut dyn Disk, directory: &Path, owner: &Owner) -> Result<(), FileError> {
        disk.sync(&self.file).map_err(|error| FileError::new(&directory.join(&self.name), error))?;
        let reserved = self.reserved.as_ref().expect("only a lease that was created here is recorded");
        reserved.record(disk, &owner.lease_record(self.status))
    }

    /// Whether the lock still is on what the name stands for.
    fn lock(&self) -> Lock {
        if self.folder.names(&self.name, &self.status) { Lock::Held } else { Lock::Replaced }
    }

    /// What the locked file is, read again.
    fn look(&self) -> recovery::Lease {
        let mut bytes = Vec::new();
        let read = look::status(&self.file).and_then(|status| {
            if status.kind == FileKind::File {
                (&self.file).take(1).read_to_end(&mut bytes)?;
            }
            Ok(status)
        });
        match read.map_or(Look::Failed(Damage::Unreadable), |status| Look::Opened(status, &bytes)).lease() {
            recovery::Lease::Present if self.reserved.is_some() => recovery::Lease::Created,
            found => found,
        }
    }
}

impl Held<Lease> {
    /// The facts of the claim on a generation, whose records must name `expected`.
    pub(super) fn claim(&self, installation: Lock, directory: &Path, located: Entry<()>, expected: &Expected) -> Claim {
        let at = |suffix, max| look(&directory.join(name(expected.generation, suffix)), max);
        let (seen, record) = (at(LEASE, 0), at(RECORD, MARKER_MAX_BYTES));
        let (lease, status, lock) = match (self, seen.borrow()) {
            (Self::Yes(lease), _) => (lease.look(), Some(lease.status), lease.lock()),
            (Self::No, Look::Opened(status, _)) => (seen.borrow().lease(), Some(status), Lock::Open),
            (Self::Busy, Look::Opened(status, _)) => (seen.borrow().lease(), Some(status), Lock::Busy),
            (Self::No | Self::Busy, seen) => (seen.lease(), None, Lock::Open),
        };
        // Without a sound lease there is nothing that a record could name.
        let record = match status.filter(|_| !matches!(lease, recovery::Lease::Damaged(_))) {
            Some(status) => record.borrow().lease_record(expected, status),
            None if matches!(record.borrow(), Look::Absent) => Entry::Absent,
            None => Entry::Ours(()),
        };
        Claim { installation, directory: located, lease, record, lock }
    }
}

/// A lock file of the installation, made when it is missing and never removed.
#[derive(Debug)]
pub(super) struct InstallationLock {
    folder: Folder,
    name: &'static str,
    _file: File,
    status: Status,
}

impl InstallationLock {
    /// Locks `root/name` exclusively, without waiting.
    pub(super) fn take(root: &Path, name: &'static str) -> Result<Held<Self>, FileError> {
        let path = root.join(name);
        let failed = |error: io::Error| FileError::new(&path, error);
        let file = crate::files::open_lock(&path)?;
        let folder = Folder::open(root).map_err(|error| failed(Errno::into(error)))?;
        let status = look::status(&file).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Held::Yes(Self { folder, name, _file: file, status })),
            Err(TryLockError::WouldBlock) => Ok(Held::Busy),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

impl Held<InstallationLock> {
    pub(super) fn lock(&self) -> Lock {
        match self {
            Self::No => Lock::Open,
            Self::Busy => Lock::Busy,
            Self::Yes(lock) if lock.folder.names(lock.name, &lock.status) => Lock::Held,
            Self::Yes(_) => Lock::Replaced,
        }
    }
}
