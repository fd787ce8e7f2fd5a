//! Bringing the files of a release to this host (node-host §5.3–5.5).
//!
//! - A file stands under its own name only when its size and SHA-256 are those of a manifest that `SHA256SUMS` lists.
//!   What is unfinished stands under another name, and is never taken for a whole file.
//! - A file that is there and differs is never overwritten, and then nothing is fetched at all.
//! - No request carries a credential, and no answer leads to plain http or away from the origin for metadata.
//! - Nothing is read without a bound: not the metadata, not a file, not the time without progress.
//! - Room and inodes are looked at before the first byte and while bytes come; a full disk releases what it stopped.
//!
//! ```text
//! let downloader = Downloader::new(Source::console("https://core.example")?)?;
//! let release = downloader.release(Some(&commit), &cancel).await?;
//! downloader.fetch(&release.wanted("docker", &[Role::Policy, Role::Image])?, &root, &cancel, &mut progress).await?;
//! ```
//!
//! The caller holds the lock of `root`, which is a private directory: one download at a time writes there.

mod artifact;
mod bundle;
mod error;
mod expand;
mod metadata;
mod part;
mod progress;
mod request;
mod room;
mod transfer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use palisade_core::distribution::Commit;
use palisade_core::distribution::route::File;
use palisade_core::units::Malformed;
use tokio_util::sync::CancellationToken;

use crate::origin::Origin;
use artifact::Task;
pub use error::DownloadError;
pub use expand::expand;
pub use metadata::{Release, Wanted};
pub use progress::{Event, Lines, Progress, Silent};
use request::Requests;
use room::{Disk, Statvfs};

/// Where the files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The Core that offers releases below `/node-install/`.
    Console(Origin),
    /// A folder with the files of one release; nothing is asked on the net.
    Bundle(PathBuf),
}

impl Source {
    /// Reads `scheme://host[:port][/]`, scheme `http` or `https`.
    pub fn console(origin: &str) -> Result<Self, Malformed> {
        Origin::parse(origin).map(Self::Console)
    }

    /// A clean absolute path.
    pub fn bundle(folder: &Path) -> Result<Self, DownloadError> {
        crate::files::require_clean(folder)?;
        Ok(Self::Bundle(folder.to_owned()))
    }
}

/// Fetches files of releases from one source.
pub struct Downloader {
    source: Source,
    requests: Requests,
    pace: Pace,
    disk: Box<dyn Disk>,
}

/// How patient a download is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Pauses before the second and the third request.
    pub(crate) pauses: [Duration; 2],
    /// Time in which [`crate::limits::STALL_BYTES`] must arrive.
    pub(crate) stall: Duration,
}

impl Pace {
    /// The specified patience.
    pub(crate) const PATIENT: Self =
        Self { pauses: [Duration::from_secs(1), Duration::from_secs(2)], stall: crate::limits::STALL_WINDOW };
}

impl Downloader {
    /// A downloader on the real network and disk. The proxies of the environment apply, but never between two programs
    /// of one host.
    pub fn new(source: Source) -> Result<Self, DownloadError> {
        let requests = Requests::new(&source, std::convert::identity)?;
        Ok(Self { source, requests, pace: Pace::PATIENT, disk: Box::new(Statvfs) })
    }

    /// The verified metadata of a release; without a commit, of the one that the source offers now.
    ///
    /// # Errors
    /// Nothing is on the disk then.
    pub async fn release(&self, commit: Option<&Commit>, cancel: &CancellationToken) -> Result<Release, DownloadError> {
        let found = metadata::release(self, commit);
        cancel.run_until_cancelled(found).await.unwrap_or(Err(DownloadError::Cancelled))
    }

    /// Brings every one of these files below `root`, verified and durable, at its logical path.
    ///
    /// All files that are there already are verified before the first request, and room is made sure of. What an earlier
    /// download left unfinished is resumed.
    ///
    /// # Errors
    /// Files that are whole by then stay, and so does what a transfer left unfinished, unless the disk is full.
    pub async fn fetch(
        &self,
        wanted: &[Wanted],
        root: &Path,
        cancel: &CancellationToken,
        progress: &mut dyn Progress,
    ) -> Result<(), DownloadError> {
        crate::files::require_private_directory(root)?;
        let mut missing = Vec::new();
        for wanted in wanted {
            let task = Task::new(wanted, root);
            if task.verify_existing(cancel).await? {
                progress.event(Event::Kept { path: &wanted.path }).map_err(DownloadError::Unwatched)?;
            } else {
                missing.push(task);
            }
        }
        room::require(self.disk.as_ref(), root, missing.iter().map(Task::need))?;
        for task in &missing {
            task.fetch(self, cancel, progress).await?;
        }
        Ok(())
    }

    /// Bytes that unfinished downloads of these files hold below `root`.
    #[must_use]
    pub fn unfinished(wanted: &[Wanted], root: &Path) -> u64 {
        wanted.iter().map(|wanted| Task::new(wanted, root).unfinished()).sum()
    }

    /// What to call a file in a message.
    fn name(file: File<'_>) -> String {
        file.path().into_owned()
    }
}

#[cfg(test)]
pub(crate) mod tests;
