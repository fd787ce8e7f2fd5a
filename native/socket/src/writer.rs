//! The sending half.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use palisade_core::limits::{FRAGMENT_MAX_BYTES, WRITE_TIMEOUT_MS};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep};
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::{Error, Message};

use crate::shared::Shared;

/// Why a message was not, or perhaps not, sent. The connection is closed in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// One fragment could not be written in 10 s.
    #[error("the peer did not take a fragment within 10 s")]
    Timeout,
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed,
    /// The stream failed.
    #[error("the connection was lost: {0}")]
    Lost(String),
}

/// The sending half of a socket. Dropping it ends the connection.
pub struct Writer<S> {
    shared: Arc<Shared<S>>,
    current: Option<Outgoing>,
    /// Messages behind the current one, in their order.
    behind: VecDeque<Bytes>,
    /// Ends the wait for the fragment under way. A write that need not wait has none.
    bound: Option<Pin<Box<Sleep>>>,
}

/// The message that is being written.
struct Outgoing {
    /// Length of all of it, in bytes.
    length: usize,
    /// What the stream was not given yet.
    rest: Bytes,
    /// Of the next fragment.
    opcode: OpCode,
    /// Whether the stream was given the last fragment.
    given: bool,
}

impl<S> Writer<S> {
    pub(crate) const fn new(shared: Arc<Shared<S>>) -> Self {
        Self { shared, current: None, behind: VecDeque::new(), bound: None }
    }

    /// Closes the stream at once, without a close handshake.
    pub fn abort(&self) {
        self.shared.abort();
    }

    /// Puts one text message behind those that are not written yet. `text` must be UTF-8. [`Writer::sent`] writes.
    pub fn push(&mut self, text: impl Into<Bytes>) {
        match self.current {
            None => self.current = Some(Outgoing::new(text.into())),
            Some(_) => self.behind.push_back(text.into()),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Writer<S> {
    /// Writes the oldest message that was pushed, in fragments of at most 256 KiB, each within 10 s (decision 29), and
    /// gives its length in bytes. Waits for ever while there is none. Cancel safe: the next call goes on where this one
    /// was dropped.
    ///
    /// # Errors
    /// The message may have been sent in part; the connection is closed.
    pub async fn sent(&mut self) -> Result<usize, SendError> {
        poll_fn(|cx| self.poll_sent(cx)).await
    }

    /// Writes one text message, after those that were pushed before.
    ///
    /// # Errors
    /// See [`Writer::sent`].
    pub async fn send_text(&mut self, text: impl Into<Bytes> + Send) -> Result<(), SendError> {
        self.push(text);
        while self.current.is_some() {
            self.sent().await?;
        }
        Ok(())
    }

    /// Writes a Close frame within 10 s. [`crate::Reader::next`] then reports nothing but the end of the connection,
    /// after the peer's own Close or after another 10 s. With a message half-way the connection just ends.
    ///
    /// # Errors
    /// The connection was closed without a close handshake.
    pub async fn close(&mut self) -> Result<(), SendError> {
        if self.current.is_some() {
            self.abort();
        }
        poll_fn(|cx| self.poll_flush(cx)).await?;
        self.give(Message::Close(None))?;
        poll_fn(|cx| self.poll_flush(cx)).await?;
        self.shared.begin_closing();
        Ok(())
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, SendError>> {
        loop {
            if self.current.is_none() {
                return Poll::Pending;
            }
            // Before the first fragment: pongs that wait for a slow peer and might not fit together with it.
            ready!(self.poll_flush(cx))?;
            let Some(current) = &mut self.current else { return Poll::Pending };
            if let Some(fragment) = current.next_fragment() {
                self.give(fragment)?;
            } else {
                let length = current.length;
                self.current = self.behind.pop_front().map(Outgoing::new);
                return Poll::Ready(Ok(length));
            }
        }
    }

    /// Until everything that was given is written, or its time is over; then nobody will read the rest.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let flushed = match self.shared.for_writer(cx).as_mut() {
            None => Poll::Ready(Err(SendError::Closed)),
            Some(stream) => match stream.poll_flush(&mut self.shared.context()) {
                // Both Closes are written.
                Poll::Ready(Err(Error::ConnectionClosed)) => {
                    self.shared.wake_reader();
                    Poll::Ready(Ok(()))
                }
                flushed => flushed.map_err(lost),
            },
        };
        if flushed.is_pending() {
            let bound = self.bound.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(WRITE_TIMEOUT_MS))));
            ready!(bound.as_mut().poll(cx));
        }
        self.bound = None;
        let outcome = match flushed {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Err(SendError::Timeout),
        };
        Poll::Ready(self.or_abort(outcome))
    }

    /// The stream takes what it can at once and holds the rest.
    fn give(&mut self, message: Message) -> Result<(), SendError> {
        let given = match self.shared.lock().as_mut() {
            None => Err(SendError::Closed),
            Some(stream) => stream.give(&mut self.shared.context(), message).map_err(lost),
        };
        self.or_abort(given)
    }

    fn or_abort(&self, outcome: Result<(), SendError>) -> Result<(), SendError> {
        outcome.inspect_err(|error| self.shared.abort_unsent(error.clone()))
    }
}

impl Outgoing {
    fn new(text: Bytes) -> Self {
        Self { length: text.len(), rest: text, opcode: OpCode::Data(Data::Text), given: false }
    }

    /// An empty message has one fragment as well.
    fn next_fragment(&mut self) -> Option<Message> {
        if self.given {
            return None;
        }
        let fragment = self.rest.split_to(self.rest.len().min(FRAGMENT_MAX_BYTES));
        self.given = self.rest.is_empty();
        let opcode = std::mem::replace(&mut self.opcode, OpCode::Data(Data::Continue));
        Some(Message::Frame(Frame::message(fragment, opcode, self.given)))
    }
}

impl<S> Drop for Writer<S> {
    fn drop(&mut self) {
        self.abort();
    }
}

fn lost(error: Error) -> SendError {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(_) => SendError::Closed,
        other => SendError::Lost(other.to_string()),
    }
}
