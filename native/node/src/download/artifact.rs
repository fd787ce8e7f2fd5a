//! One file from nothing, or from a part, to its place.

use std::path::Path;

use palisade_core::distribution::catalogue::Role;
use palisade_core::distribution::manifest::Artifact;
use tokio_util::sync::CancellationToken;

use super::part::{Part, Place};
use super::progress::{Event, Progress};
use super::room::{self, Need};
use super::transfer::{Attempt, Failure, Transfer};
use super::{DownloadError, Downloader, Source, Wanted};
use crate::files::disk::System;
use crate::limits::{PROGRESS_AGAIN_BYTES, ROOM_CHECK_BYTES};

/// A wanted file and its place.
pub(super) struct Task<'a> {
    wanted: &'a Wanted,
    place: Place,
    root: &'a Path,
}

impl<'a> Task<'a> {
    pub(super) fn new(wanted: &'a Wanted, root: &'a Path) -> Self {
        Self { wanted, place: Place::new(root, &wanted.path), root }
    }

    fn artifact(&self) -> &'a Artifact {
        &self.wanted.artifact
    }

    /// Whether the file is there, by its bytes. Another one under its name is a conflict.
    pub(super) async fn verify_existing(&self, cancel: &CancellationToken) -> Result<bool, DownloadError> {
        let (place, size, sha256) = (self.place.clone(), self.artifact().size, self.artifact().sha256);
        let held = blocking(move || place.holds(size, sha256));
        let held = cancel.run_until_cancelled(held).await.unwrap_or(Err(DownloadError::Cancelled))?;
        if held {
            self.place.clear(&mut System)?;
        }
        Ok(held)
    }

    /// What the disk must still take: the rest of the file, and for the image what an import needs (node-host §5.5).
    pub(super) fn need(&self) -> Need {
        let rest = self.artifact().size.saturating_sub(self.unfinished());
        Need { bytes: rest.saturating_add(self.wanted.import_bytes), inodes: 3 }
    }

    pub(super) fn unfinished(&self) -> u64 {
        self.place.unfinished()
    }

    /// Brings the file.
    pub(super) async fn fetch(
        &self,
        downloader: &Downloader,
        cancel: &CancellationToken,
        progress: &mut dyn Progress,
    ) -> Result<(), DownloadError> {
        self.place.make_folders(&mut System, self.root)?;
        match (&downloader.source, self.wanted.role) {
            (Source::Console(_), Role::Policy) => {
                let bytes = cancel.run_until_cancelled(super::metadata::policy(downloader, self.wanted)).await;
                self.store(&bytes.unwrap_or(Err(DownloadError::Cancelled))?)?;
            }
            (Source::Console(_), Role::Node | Role::Runtime | Role::Image) => {
                self.download(downloader, cancel, progress).await?;
            }
            (Source::Bundle(folder), _) => {
                let (from, cancel) = (folder.join(self.wanted.file().path().as_ref()), cancel.clone());
                let (place, artifact) = (self.place.clone(), self.artifact().clone());
                blocking(move || super::bundle::copy(&from, &place, &artifact, &cancel)).await?;
            }
        }
        tell(progress, Event::Finished { path: &self.wanted.path, size: self.artifact().size })
    }

    /// A file that is as small as metadata, and was verified in memory.
    fn store(&self, bytes: &[u8]) -> Result<(), DownloadError> {
        let mut part = Part::open(&self.place, 0)?;
        part.begin(None)?;
        match part.append(bytes) {
            Ok(()) => part.publish(),
            Err(error) => Err(part.release(error)),
        }
    }

    async fn download(
        &self,
        downloader: &Downloader,
        cancel: &CancellationToken,
        progress: &mut dyn Progress,
    ) -> Result<(), DownloadError> {
        let (place, size) = (self.place.clone(), self.artifact().size);
        let part = blocking(move || Part::open(&place, size)).await?;
        let resumed = part.len() > 0;
        let mut run = Run { task: self, downloader, cancel, part: Some(part), resumed, failures: 0, high: 0 };
        let fetched = run.until_verified(progress).await;
        match (fetched, run.part) {
            (Ok(()), part) => {
                let part = part.expect("what was verified is at rest");
                blocking(move || part.publish()).await
            }
            // Both wait for what is still synced.
            (Err(error), Some(part)) if error.spoils_the_part() => {
                blocking(move || part.discard()).await.and(Err(error))
            }
            (Err(error), part) => {
                let dropped = blocking(move || {
                    drop(part);
                    Ok(())
                });
                dropped.await.and(Err(error))
            }
        }
    }
}

/// The attempts for one file.
struct Run<'a> {
    task: &'a Task<'a>,
    downloader: &'a Downloader,
    cancel: &'a CancellationToken,
    /// `None` only while an attempt writes.
    part: Option<Part>,
    /// Whether the part has bytes of more than one answer.
    resumed: bool,
    /// Attempts in a row that brought hardly anything.
    failures: usize,
    /// The most that the part has held.
    high: u64,
}

impl Run<'_> {
    /// Attempts until the part is the file. One that brought a good piece more than ever before does not count against the
    /// next ones, so that a large file comes over a bad network, and a source that begins anew each time is given up.
    async fn until_verified(&mut self, progress: &mut dyn Progress) -> Result<(), DownloadError> {
        let (path, size) = (self.task.wanted.path.as_str(), self.task.artifact().size);
        self.high = self.len();
        loop {
            if self.len() == size {
                if self.digest_matches() {
                    return Ok(());
                }
                if !self.resumed {
                    return Err(DownloadError::Mismatch(path.to_owned()));
                }
                self.restart(progress)?;
            }
            tell(progress, Event::Started { path, from: self.len(), size })?;
            match self.attempt(progress).await? {
                Attempt::Whole => {}
                Attempt::Discard => {
                    self.restart(progress)?;
                    self.failed(Failure::Interrupted).await?;
                }
                Attempt::Failed(failure) => self.failed(failure).await?,
            }
        }
    }

    async fn attempt(&mut self, progress: &mut dyn Progress) -> Result<Attempt, DownloadError> {
        let Self { task, downloader, cancel, part, resumed, .. } = self;
        let (wanted, size) = (task.wanted, task.artifact().size);
        let Source::Console(origin) = &downloader.source else { unreachable!("a bundle is copied") };
        let address = origin.join(&wanted.route().to_string());
        let transfer = Transfer { downloader, cancel, address: &address, name: &wanted.path, size };
        let before = part.as_ref().map_or(0, Part::len);
        let mut checked = before;
        let mut advanced = |bytes: u64| {
            // Below what was checked, the file started over.
            if bytes.abs_diff(checked) >= ROOM_CHECK_BYTES {
                checked = bytes;
                let rest = Need { bytes: (size - bytes).saturating_add(wanted.import_bytes), inodes: 0 };
                room::require(downloader.disk.as_ref(), task.root, [rest])?;
            }
            tell(progress, Event::Advanced { path: &wanted.path, bytes, size })
        };
        let attempt = transfer.attempt(part, &mut advanced).await;
        *resumed = before > 0 && part.as_ref().is_some_and(|part| part.len() > 0);
        attempt
    }

    /// Waits before the next attempt, or says why there is none.
    async fn failed(&mut self, failure: Failure) -> Result<(), DownloadError> {
        if self.len() >= self.high + PROGRESS_AGAIN_BYTES {
            (self.high, self.failures) = (self.len(), 0);
        }
        let file = || self.task.wanted.path.clone();
        let Some(pause) = self.downloader.pace.pauses.get(self.failures) else {
            return Err(match failure {
                Failure::Connection(what) => DownloadError::Unreachable { file: file(), what },
                Failure::Status(status) => DownloadError::Status { file: file(), status },
                Failure::Interrupted => DownloadError::Interrupted { file: file(), kept: self.len() },
            });
        };
        self.failures += 1;
        let paused = self.cancel.run_until_cancelled(tokio::time::sleep(*pause)).await;
        paused.ok_or(DownloadError::Cancelled)
    }

    fn restart(&mut self, progress: &mut dyn Progress) -> Result<(), DownloadError> {
        self.resumed = false;
        self.part.as_mut().expect("a part is at rest between two attempts").restart()?;
        tell(progress, Event::Restarted { path: &self.task.wanted.path })
    }

    fn len(&self) -> u64 {
        self.part.as_ref().map_or(0, Part::len)
    }

    fn digest_matches(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.digest() == self.task.artifact().sha256)
    }
}

fn tell(progress: &mut dyn Progress, event: Event<'_>) -> Result<(), DownloadError> {
    progress.event(event).map_err(DownloadError::Unwatched)
}

/// Runs what reads or writes files for long beside the runtime.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DownloadError> + Send + 'static,
) -> Result<T, DownloadError> {
    tokio::task::spawn_blocking(work).await.expect("file work does not panic and is not cancelled")
}
