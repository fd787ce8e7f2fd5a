//! The end of a connection whose client still writes.
//!
//! The system resets a stream that is closed with bytes in it that nobody read, and a reset destroys the answer that is on
//! its way: whoever sends too much would never learn it. Here such a stream is told that nothing more comes, and what its
//! client goes on sending is thrown away for a while.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::limits::{LINGER_BYTES_MAX, LINGER_WAIT};

/// Whether the last request of a connection left something of its body unread.
#[derive(Clone, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

impl Unread {
    /// The same body; the connection learns when it is dropped before its end.
    pub(super) fn watch(&self, body: Incoming) -> Watched {
        self.0.store(false, Ordering::Relaxed);
        Watched { body, ended: false, unread: self.clone() }
    }
}

/// A body that tells its connection when it was given up.
pub(super) struct Watched {
    body: Incoming,
    ended: bool,
    unread: Unread,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.ended = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.unread.0.store(!self.ended && !self.body.is_end_stream(), Ordering::Relaxed);
    }
}

/// A stream that ends like this.
pub(super) struct Lingering<S> {
    stream: S,
    unread: Unread,
    ending: Option<Box<Ending>>,
}

struct Ending {
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
}

impl<S> Lingering<S> {
    pub(super) fn new(stream: S, unread: Unread) -> Self {
        Self { stream, unread, ending: None }
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Reads until the client has ended, or has had enough time or bytes.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut nowhere = [0; 16 * 1024];
        let ending = self.ending.get_or_insert_with(|| {
            let deadline = Box::pin(sleep(LINGER_WAIT));
            Box::new(Ending { deadline, bytes: 0 })
        });
        while ending.deadline.as_mut().poll(cx).is_pending() && ending.bytes <= LINGER_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut nowhere);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => ending.bytes += buffer.filled().len(),
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.unread.0.load(Ordering::Relaxed) { self.poll_rest(cx).map(Ok) } else { Poll::Ready(Ok(())) }
    }
}
