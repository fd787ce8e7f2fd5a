//! One attempt: a request, its answer's verdict, and the bytes into the part.

use std::time::Duration;

use bytes::Bytes;
use palisade_core::distribution::answer::{Asked, Head, Verdict, judge};
use reqwest::{Response, header};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::part::Part;
use super::request::{describe, target, text, validator};
use super::{DownloadError, Downloader};
use crate::limits::{CHUNKS_AT_ONCE_MAX, CHUNKS_QUEUED_MAX, REDIRECTS_MAX, STALL_BYTES};

/// How an attempt ended, when nothing is wrong with this host.
pub(super) enum Attempt {
    /// The body ended, and the part is as long as the file.
    Whole,
    /// Time may mend it: what failed, or the status.
    Failed(Failure),
    /// The part is no part of the file.
    Discard,
}

/// Why another attempt may do better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    Connection(&'static str),
    Status(u16),
    Interrupted,
}

/// What one attempt is about.
pub(super) struct Transfer<'a> {
    pub(super) downloader: &'a Downloader,
    pub(super) cancel: &'a CancellationToken,
    /// Address of the file at the origin.
    pub(super) address: &'a str,
    /// What to call the file.
    pub(super) name: &'a str,
    /// Bytes of the whole file.
    pub(super) size: u64,
}

impl Transfer<'_> {
    /// Asks for what is missing, following https, and takes it in. `advanced` hears of every piece.
    pub(super) async fn attempt(
        &self,
        part: &mut Option<Part>,
        advanced: &mut (dyn FnMut(u64) -> Result<(), DownloadError> + Send),
    ) -> Result<Attempt, DownloadError> {
        let open = part.as_mut().expect("a part is at rest between two attempts");
        let asked = Asked { from: if open.validator().is_some() { open.len() } else { 0 }, size: self.size };
        let mut response = match self.ask(asked, open.validator()).await? {
            Ok(response) => response,
            Err(failure) => return Ok(Attempt::Failed(failure)),
        };
        match judge(asked, head(&response)) {
            Verdict::Continue => {
                let same = validator(response.headers()).is_none_or(|version| Some(version) == open.validator());
                if !same {
                    return Ok(Attempt::Discard);
                }
            }
            Verdict::Restart => open.begin(validator(response.headers()).map(str::to_owned))?,
            Verdict::Discard => return Ok(Attempt::Discard),
            Verdict::Foreign => return Err(DownloadError::TooLong(self.name.to_owned())),
            Verdict::Retry => return Ok(Attempt::Failed(Failure::Status(response.status().as_u16()))),
            Verdict::Follow | Verdict::Refused => return Err(self.refused(response.status().as_u16())),
        }
        self.receive(&mut response, part, advanced).await
    }

    /// The first answer that sends nowhere else.
    async fn ask(&self, asked: Asked, version: Option<&str>) -> Result<Result<Response, Failure>, DownloadError> {
        let mut address = self.address.to_owned();
        for hop in 0..=REDIRECTS_MAX {
            let request = self.downloader.requests.artifact(&address, hop, asked.from, version);
            let answer = timeout(self.downloader.pace.stall, request.send());
            let response = match self.cancel.run_until_cancelled(answer).await {
                Some(Ok(Ok(response))) => response,
                Some(Ok(Err(error))) => return Ok(Err(Failure::Connection(describe(&error)))),
                Some(Err(_)) => return Err(self.stalled(asked.from)),
                None => return Err(DownloadError::Cancelled),
            };
            if judge(asked, head(&response)) != Verdict::Follow {
                return Ok(Ok(response));
            }
            address = target(&address, response.headers())
                .ok_or_else(|| self.astray("is allowed only to a plain https address"))?;
        }
        Err(self.astray("is allowed a few times only"))
    }

    /// Takes the body in: one thread hashes and writes what came while the next piece is on its way.
    async fn receive(
        &self,
        response: &mut Response,
        part: &mut Option<Part>,
        advanced: &mut (dyn FnMut(u64) -> Result<(), DownloadError> + Send),
    ) -> Result<Attempt, DownloadError> {
        let open = part.take().expect("a part is at rest between two attempts");
        let before = open.len();
        let (writer, pieces) = mpsc::channel(CHUNKS_QUEUED_MAX);
        let written = tokio::task::spawn_blocking(move || write(open, pieces));
        let mut stream = Stream { transfer: self, writer, waited: Duration::ZERO, lately: 0, total: before };
        let ended = stream.run(response, advanced).await;
        let kept = settle(stream.writer, written, part).await?;
        debug_assert!(kept >= before, "a part only grows");
        match ended? {
            End::Body if kept == self.size => Ok(Attempt::Whole),
            End::Body | End::Broken => Ok(Attempt::Failed(Failure::Interrupted)),
            End::Stalled => Err(self.stalled(kept)),
            End::TooLong => Err(DownloadError::TooLong(self.name.to_owned())),
        }
    }

    fn stalled(&self, kept: u64) -> DownloadError {
        DownloadError::Stalled { file: self.name.to_owned(), kept }
    }

    fn astray(&self, allowed: &'static str) -> DownloadError {
        DownloadError::Redirect { file: self.name.to_owned(), allowed }
    }

    fn refused(&self, status: u16) -> DownloadError {
        DownloadError::Status { file: self.name.to_owned(), status }
    }
}

/// How a body ended.
enum End {
    Body,
    Broken,
    Stalled,
    TooLong,
}

struct Stream<'a> {
    transfer: &'a Transfer<'a>,
    writer: mpsc::Sender<Bytes>,
    /// Time that was waited for bytes since [`STALL_BYTES`] had come.
    waited: Duration,
    /// Bytes since then.
    lately: u64,
    /// Bytes of the part, written or on their way.
    total: u64,
}

impl Stream<'_> {
    async fn run(
        &mut self,
        response: &mut Response,
        advanced: &mut (dyn FnMut(u64) -> Result<(), DownloadError> + Send),
    ) -> Result<End, DownloadError> {
        loop {
            let asked = Instant::now();
            let patience = self.transfer.downloader.pace.stall.saturating_sub(self.waited);
            let next = timeout(patience, response.chunk());
            let piece = match self.transfer.cancel.run_until_cancelled(next).await {
                Some(Ok(Ok(Some(piece)))) => piece,
                Some(Ok(Ok(None))) => return Ok(End::Body),
                Some(Ok(Err(_))) => return Ok(End::Broken),
                Some(Err(_)) => return Ok(End::Stalled),
                None => return Err(DownloadError::Cancelled),
            };
            self.waited += asked.elapsed();
            self.lately += piece.len() as u64;
            if self.lately >= STALL_BYTES {
                (self.waited, self.lately) = (Duration::ZERO, 0);
            }
            self.total += piece.len() as u64;
            if self.total > self.transfer.size {
                return Ok(End::TooLong);
            }
            if self.writer.send(piece).await.is_err() {
                // The writer says why when it is asked.
                return Ok(End::Broken);
            }
            advanced(self.total)?;
        }
    }
}

/// Lets the writer end, and puts the part back at rest.
async fn settle(
    writer: mpsc::Sender<Bytes>,
    written: JoinHandle<Result<Part, DownloadError>>,
    part: &mut Option<Part>,
) -> Result<u64, DownloadError> {
    drop(writer);
    let open = written.await.expect("the writer does not panic and is not cancelled")?;
    let length = open.len();
    *part = Some(open);
    Ok(length)
}

/// Writes pieces until there are no more. A part that cannot be written is removed: the disk is likely full.
fn write(mut part: Part, mut pieces: mpsc::Receiver<Bytes>) -> Result<Part, DownloadError> {
    let mut together = Vec::with_capacity(CHUNKS_AT_ONCE_MAX);
    while pieces.blocking_recv_many(&mut together, CHUNKS_AT_ONCE_MAX) > 0 {
        for piece in together.drain(..) {
            if let Err(error) = part.append(&piece) {
                return Err(part.release(error));
            }
        }
    }
    Ok(part)
}

fn head(response: &Response) -> Head<'_> {
    let headers = response.headers();
    Head {
        status: response.status().as_u16(),
        length: text(headers, header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
        range: text(headers, header::CONTENT_RANGE),
    }
}
