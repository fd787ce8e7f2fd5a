//! Bytes of a file on their way to somebody, who may be slow, but not for ever.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::limits::{DOWNLOAD_PIECE_BYTES, DOWNLOAD_STALL, DOWNLOADS_MAX};

/// Room for [`DOWNLOADS_MAX`] downloads at once.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(DOWNLOADS_MAX)))
    }
}

/// There is no room for another download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Busy;

/// `length` bytes of the file from `first` on. Somebody who takes nothing for [`DOWNLOAD_STALL`] gets no more.
pub(super) fn stream(file: File, first: u64, length: u64, places: &Places) -> Result<Body, Busy> {
    let permit = Arc::clone(&places.0).try_acquire_owned().map_err(|_| Busy)?;
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(read(file, first, length, sender, permit));
    let pieces = stream::unfold(receiver, async |mut receiver: mpsc::Receiver<io::Result<Bytes>>| {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    Ok(Body::from_stream(pieces))
}

/// Reads ahead by a piece or two. A file that is shorter than it was, or that cannot be read, breaks the transfer.
async fn read(
    mut file: File,
    first: u64,
    length: u64,
    sender: mpsc::Sender<io::Result<Bytes>>,
    _permit: OwnedSemaphorePermit,
) {
    let (mut at, end) = (first, first + length);
    while at < end {
        let Ok(Ok(room)) = timeout(DOWNLOAD_STALL, sender.reserve()).await else { return };
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(DOWNLOAD_PIECE_BYTES);
        let read = tokio::task::spawn_blocking(move || {
            let piece = piece(&mut file, at, wanted);
            (file, piece)
        });
        let Ok((returned, piece)) = read.await else { return };
        file = returned;
        match piece {
            Ok(piece) => {
                at += piece.len() as u64;
                room.send(Ok(piece));
            }
            Err(error) => return room.send(Err(error)),
        }
    }
}

fn piece(file: &mut File, at: u64, length: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; length];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use http_body_util::BodyExt as _;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[tokio::test]
    async fn exactly_the_wanted_bytes_are_sent() {
        let bytes: Vec<u8> = (0..3 * DOWNLOAD_PIECE_BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (first, length) = (7, 2 * DOWNLOAD_PIECE_BYTES + 5);
        let body = stream(file(&bytes), first as u64, length as u64, &Places::default()).unwrap();
        let sent = body.collect().await.unwrap().to_bytes();
        assert!(sent == bytes[first..first + length], "{} bytes", sent.len());
    }

    #[tokio::test]
    async fn a_file_that_shrank_breaks_the_transfer() {
        let body = stream(file(b"short"), 0, 6, &Places::default()).unwrap();
        body.collect().await.unwrap_err();
    }

    /// Somebody who reads nothing gives the place back after a while, and then another one has it.
    #[tokio::test(start_paused = true)]
    async fn a_place_that_a_stalled_download_holds_comes_back() {
        let places = Places::default();
        let bytes = vec![0; 8 * DOWNLOAD_PIECE_BYTES];
        let open = || stream(file(&bytes), 0, bytes.len() as u64, &places);
        let held: Vec<_> = (0..DOWNLOADS_MAX).map(|_| open().unwrap()).collect();
        assert_eq!(open().err(), Some(Busy));
        let free = Arc::clone(&places.0).acquire_many_owned(u32::try_from(DOWNLOADS_MAX).unwrap());
        drop(timeout(2 * DOWNLOAD_STALL, free).await.unwrap().unwrap());
        for body in held {
            assert!(body.collect().await.unwrap().to_bytes().len() < bytes.len());
        }
    }
}
