//! The unfinished part of one file: `.<name>.partial` beside its target, and the server's name for its version.
//!
//! ```text
//! absent ──bytes──▶ part ──bytes──▶ whole part ──verified: synced, renamed, folder synced──▶ target
//!                    │ ▲                │
//!                    ╰─╯ resumed        ╰──another SHA-256──▶ absent
//! ```
//!
//! The part has the hash of its bytes at hand, so that a download hashes while bytes come.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use nix::fcntl::OFlag;
use palisade_core::units::Digest;
use sha2::{Digest as _, Sha256};

use super::DownloadError;
use crate::files;
use crate::files::FileError;
use crate::files::disk::{Disk, System};
use crate::files::writer;
use crate::limits::{COPY_BYTES, SYNC_BYTES, VALIDATOR_MAX_BYTES};

/// The names that belong to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    folder: PathBuf,
    name: String,
    /// Mode of the whole file.
    mode: u32,
}

impl Place {
    /// The place of a clean relative path below `root`.
    pub(super) fn new(root: &Path, path: &str) -> Self {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mode = if path.starts_with("native/") { 0o700 } else { 0o600 };
        Self { folder: root.join(folder), name: name.to_owned(), mode }
    }

    pub(super) fn target(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    fn partial(&self) -> PathBuf {
        self.folder.join(format!(".{}.partial", self.name))
    }

    fn validator(&self) -> PathBuf {
        self.folder.join(format!(".{}.partial.validator", self.name))
    }

    /// Name of the temporary file of the validator.
    fn new_validator(&self) -> String {
        format!(".{}.partial.validator.new", self.name)
    }

    /// Makes every folder between `root` and the file.
    pub(super) fn make_folders(&self, disk: &mut dyn Disk, root: &Path) -> Result<(), DownloadError> {
        Ok(writer::ensure_private_directories(disk, root, &self.folder)?)
    }

    /// Bytes of the part on the disk; 0 without one.
    pub(super) fn unfinished(&self) -> u64 {
        self.partial().symlink_metadata().map_or(0, |metadata| metadata.len())
    }

    /// Whether the whole file is there. One with other bytes is a conflict, and nothing is done to it.
    pub(super) fn holds(&self, size: u64, sha256: Digest) -> Result<bool, DownloadError> {
        self.open_whole(size, sha256).map(|file| file.is_some())
    }

    /// The whole file, open at its beginning; `None` when it is not there.
    pub(super) fn open_whole(&self, size: u64, sha256: Digest) -> Result<Option<File>, DownloadError> {
        let target = self.target();
        let Some(mut file) = open_own(&target)? else { return Ok(None) };
        let mut hash = Sha256::new();
        let verified = (|| {
            let same = copy_into(&mut file, &mut hash, size + 1)? == size && finish(hash) == sha256;
            file.rewind()?;
            io::Result::Ok(same && file.metadata()?.mode() & 0o7777 == self.mode)
        })();
        if verified.map_err(DownloadError::disk(&target))? {
            Ok(Some(file))
        } else {
            Err(DownloadError::Conflict(target))
        }
    }

    /// Removes what a download that was overtaken left behind.
    pub(super) fn clear(&self, disk: &mut dyn Disk) -> Result<(), DownloadError> {
        remove(disk, &self.partial())?;
        self.clear_version(disk)
    }

    /// Removes the server's name for the version, written or half written.
    fn clear_version(&self, disk: &mut dyn Disk) -> Result<(), DownloadError> {
        remove(disk, &self.validator())?;
        remove(disk, &self.folder.join(self.new_validator()))
    }
}

/// An open part.
#[derive(Debug)]
pub(super) struct Part<D = System> {
    disk: D,
    place: Place,
    file: File,
    hash: Sha256,
    len: u64,
    /// How much of it was there when the last sync began.
    synced: u64,
    syncing: Option<JoinHandle<io::Result<()>>>,
    validator: Option<String>,
}

impl Part {
    /// [`Part::on`] the real disk.
    pub(super) fn open(place: &Place, size: u64) -> Result<Self, DownloadError> {
        Self::on(System, place, size)
    }
}

impl<D: Disk> Part<D> {
    /// Opens what an earlier download left, or begins a new part. A part that is larger than `size`, or that nobody can say
    /// the version of, begins anew.
    pub(super) fn on(mut disk: D, place: &Place, size: u64) -> Result<Self, DownloadError> {
        let partial = place.partial();
        let failed = || DownloadError::disk(&partial);
        // Refuses what is not ours before anything is written to it.
        if open_own(&partial)?.is_none() {
            drop(disk.create(&partial).map_err(failed())?);
        }
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let file = OpenOptions::new().read(true).append(true).custom_flags(flags).open(&partial).map_err(failed())?;
        let len = file.metadata().map_err(failed())?.len();
        let validator = read_validator(&place.validator())?;
        let (place, hash) = (place.clone(), Sha256::new());
        let mut part = Self { disk, place, file, hash, len: 0, synced: 0, syncing: None, validator };
        if len > size || (len < size && part.validator.is_none()) {
            part.restart()?;
        } else {
            part.len = copy_into(&mut part.file, &mut part.hash, size).map_err(failed())?;
            part.synced = part.len;
        }
        Ok(part)
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// What the server called the version that the part is of.
    pub(super) fn validator(&self) -> Option<&str> {
        self.validator.as_deref()
    }

    /// Empties the part. Its version goes first, so that no crash leaves bytes with another version's name.
    pub(super) fn restart(&mut self) -> Result<(), DownloadError> {
        remove(&mut self.disk, &self.place.validator())?;
        self.disk.empty(&self.file).map_err(DownloadError::disk(&self.place.partial()))?;
        self.hash = Sha256::new();
        (self.len, self.synced) = (0, 0);
        self.validator = None;
        Ok(())
    }

    /// Empties the part and names the version that its bytes will be of. A server that names none cannot be resumed.
    pub(super) fn begin(&mut self, validator: Option<String>) -> Result<(), DownloadError> {
        self.restart()?;
        self.validator = validator.filter(|text| is_header_value(text));
        if let Some(validator) = &self.validator {
            let name = format!(".{}.partial.validator", self.place.name);
            let temporary = self.place.new_validator();
            writer::replace(&mut self.disk, &self.place.folder, &name, &temporary, validator.as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(&self.file, bytes)?;
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        if self.len - self.synced >= SYNC_BYTES { self.begin_sync() } else { Ok(()) }
    }

    /// Lets the disk work while bytes come, so that little is left to wait for when the whole part is synced. Nothing
    /// depends on it: where no thread or descriptor is to be had, there is more to wait for.
    fn begin_sync(&mut self) -> io::Result<()> {
        if self.syncing.as_ref().is_some_and(|running| !running.is_finished()) {
            return Ok(());
        }
        self.end_sync()?;
        let sync = |file: File| std::thread::Builder::new().spawn(move || file.sync_data());
        self.syncing = self.file.try_clone().and_then(sync).ok();
        self.synced = self.len;
        Ok(())
    }

    /// The digest of the bytes so far.
    pub(super) fn digest(&self) -> Digest {
        finish(self.hash.clone())
    }

    /// Makes the whole part the file. The caller has compared size and digest.
    pub(super) fn publish(mut self) -> Result<(), DownloadError> {
        if let Err(error) = self.end_sync() {
            return Err(self.release(error));
        }
        let (partial, target) = (self.place.partial(), self.place.target());
        // The version goes first: a whole part needs none, and beside a file nobody would look for one after a crash.
        let cleared = self.place.clear_version(&mut self.disk);
        let published = cleared.and_then(|()| Ok(writer::publish(&mut self.disk, &partial, &target, self.place.mode)?));
        if published.is_err() {
            // Where blocks are allocated late, a full disk shows only now.
            let _ = self.place.clear(&mut self.disk);
        }
        published
    }

    /// Removes a part that could not be written, so that a full disk gets its room back, and says why.
    pub(super) fn release(mut self, error: io::Error) -> DownloadError {
        let path = self.place.partial();
        match self.place.clear(&mut self.disk) {
            Ok(()) => DownloadError::Disk { path, error },
            Err(error) => error,
        }
    }

    /// Removes the part.
    pub(super) fn discard(mut self) -> Result<(), DownloadError> {
        self.place.clear(&mut self.disk)
    }
}

impl<D> Part<D> {
    fn end_sync(&mut self) -> io::Result<()> {
        self.syncing.take().map_or(Ok(()), |running| running.join().expect("a sync does not panic"))
    }
}

impl<D> Drop for Part<D> {
    /// The kernel tells what went wrong only once: bytes that may never reach the disk are not resumed from.
    fn drop(&mut self) {
        if self.end_sync().is_err() {
            let _ = self.file.set_len(0);
        }
    }
}

fn finish(hash: Sha256) -> Digest {
    Digest::from_bytes(hash.finalize().into())
}

/// Opens a file that is regular, ours, with one name that is no link, and of no use to others; `None` when there is none.
fn open_own(path: &Path) -> Result<Option<File>, DownloadError> {
    match files::open(path, files::Privacy::Own) {
        Ok(file) => match file.metadata().map_err(DownloadError::disk(path))?.nlink() {
            1 => Ok(Some(file)),
            // Whatever is written to the part would be written to a file of another name.
            _ => Err(FileError::expected(path, "a file with one name").into()),
        },
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a server can have called a version this, and can be asked for it again.
fn is_header_value(text: &str) -> bool {
    let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    (1..=VALIDATOR_MAX_BYTES).contains(&text.len()) && text.bytes().all(printable)
}

fn read_validator(path: &Path) -> Result<Option<String>, DownloadError> {
    match files::read(path, files::Privacy::Private, VALIDATOR_MAX_BYTES) {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok().filter(|text| is_header_value(text))),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Feeds at most `max` bytes to the hash, and says how many there were.
fn copy_into(file: &mut File, hash: &mut Sha256, max: u64) -> io::Result<u64> {
    let mut buffer = vec![0; COPY_BYTES];
    let (mut file, mut total) = (file.take(max), 0);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(total);
        }
        hash.update(&buffer[..read]);
        total += read as u64;
    }
}

fn remove(disk: &mut dyn Disk, path: &Path) -> Result<(), DownloadError> {
    writer::remove_if_there(disk, path).map_err(DownloadError::disk(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of 40 MiB, whose sync in the background failed.
    fn unsynced(root: &Path) -> (Place, Part) {
        let place = Place::new(root, "artifact");
        let mut part = Part::open(&place, 64 << 20).unwrap();
        part.begin(Some("\"version\"".to_owned())).unwrap();
        let piece = vec![7; 1 << 20];
        for _ in 0..40 {
            part.append(&piece).unwrap();
        }
        let running = part.syncing.take().expect("so much of it is synced while more comes");
        running.join().unwrap().unwrap();
        part.syncing = Some(std::thread::spawn(|| Err(nix::errno::Errno::EIO.into())));
        (place, part)
    }

    /// H 147. What the disk did not take is neither published nor resumed from, although the kernel tells nobody again.
    #[test]
    fn what_could_not_be_synced_is_neither_published_nor_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let (place, part) = unsynced(folder.path());
        drop(part);
        assert_eq!(place.unfinished(), 0);
        let (place, part) = unsynced(folder.path());
        assert!(matches!(part.publish(), Err(DownloadError::Disk { .. })));
        assert!(!place.target().exists() && !place.partial().exists());
    }
}
