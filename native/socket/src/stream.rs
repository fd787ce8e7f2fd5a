//! The WebSocket library, which has no tasks, over a stream that is polled.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tungstenite::{Error, Message};

use crate::meter::{Meter, Metered};

/// A WebSocket after its upgrade.
pub(crate) struct Stream<S> {
    context: WebSocketContext,
    bytes: Metered<S>,
    /// Whether an error was reported, after which nothing can be read.
    ended: bool,
}

impl<S> Stream<S> {
    /// `already_read` came off the stream before.
    pub(crate) fn new(bytes: S, already_read: &[u8], role: Role, configuration: WebSocketConfig) -> Self {
        let (bytes, passed) = Metered::new(bytes, role, already_read);
        let already_read = already_read[..passed].to_vec();
        let context = WebSocketContext::from_partially_read(already_read, role, Some(configuration));
        Self { context, bytes, ended: false }
    }

    pub(crate) const fn meter(&self) -> &Meter {
        &self.bytes.meter
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    /// The next message; `None` behind the last one.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let read = self.context.read(&mut Polled { bytes: &mut self.bytes, cx });
        poll(read).map(|read| {
            self.ended = read.is_err();
            match read {
                Err(Error::AlreadyClosed | Error::ConnectionClosed) => None,
                read => Some(read),
            }
        })
    }

    /// Writes as much of the message as the stream takes at once, and holds the rest.
    pub(crate) fn give(&mut self, cx: &mut Context<'_>, message: Message) -> Result<(), Error> {
        match poll(self.context.write(&mut Polled { bytes: &mut self.bytes, cx }, message)) {
            Poll::Ready(given) => given,
            Poll::Pending => Ok(()),
        }
    }

    /// Until nothing is held any more.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        poll(self.context.flush(&mut Polled { bytes: &mut self.bytes, cx }))
    }
}

/// A call that would block has seen to it that the task is woken.
fn poll<T>(outcome: Result<T, Error>) -> Poll<Result<T, Error>> {
    match outcome {
        Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        outcome => Poll::Ready(outcome),
    }
}

/// A stream for the length of one poll.
struct Polled<'p, 'c, S> {
    bytes: &'p mut Metered<S>,
    cx: &'p mut Context<'c>,
}

fn or_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl<S: AsyncRead + Unpin> Read for Polled<'_, '_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut into = ReadBuf::new(into);
        or_would_block(Pin::new(&mut *self.bytes).poll_read(self.cx, &mut into))?;
        Ok(into.filled().len())
    }
}

impl<S: AsyncWrite + Unpin> Write for Polled<'_, '_, S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        or_would_block(Pin::new(&mut *self.bytes).poll_write(self.cx, from))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_would_block(Pin::new(&mut *self.bytes).poll_flush(self.cx))
    }
}
