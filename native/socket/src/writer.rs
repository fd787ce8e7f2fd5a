//! The sending half.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Sink as _;
use palisade_core::limits::{FRAGMENT_MAX_BYTES, WRITE_TIMEOUT_MS};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

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
    /// Set while a message is being written: still set at the next call when that call was dropped half-way.
    midway: bool,
}

impl<S> Writer<S> {
    pub(crate) const fn new(shared: Arc<Shared<S>>) -> Self {
        Self { shared, midway: false }
    }

    /// Closes the stream at once, without a close handshake.
    pub fn abort(&self) {
        self.shared.abort();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Writer<S> {
    /// Writes one text message, in fragments of at most 256 KiB, each within 10 s (decision 29). `text` must be
    /// UTF-8. A call that is dropped after it began leaves half a message: the next call then ends the connection.
    ///
    /// # Errors
    /// The message may have been sent in part; the connection is closed.
    pub async fn send_text(&mut self, text: impl Into<Bytes> + Send) -> Result<(), SendError> {
        let mut text = text.into();
        self.begin()?;
        let mut opcode = OpCode::Data(Data::Text);
        loop {
            let fragment = text.split_to(text.len().min(FRAGMENT_MAX_BYTES));
            let last = text.is_empty();
            self.write(Message::Frame(Frame::message(fragment, opcode, last))).await?;
            if last {
                self.midway = false;
                return Ok(());
            }
            opcode = OpCode::Data(Data::Continue);
        }
    }

    /// Writes a Close frame within 10 s. [`crate::Reader::next`] then reports nothing but the end of the connection,
    /// after the peer's own Close or after another 10 s.
    ///
    /// # Errors
    /// The connection was closed without a close handshake.
    pub async fn close(&mut self) -> Result<(), SendError> {
        self.begin()?;
        self.write(Message::Close(None)).await?;
        self.shared.begin_closing();
        self.midway = false;
        Ok(())
    }

    fn begin(&mut self) -> Result<(), SendError> {
        if std::mem::replace(&mut self.midway, true) {
            self.abort();
            return Err(SendError::Closed);
        }
        Ok(())
    }

    async fn write(&self, message: Message) -> Result<(), SendError> {
        let mut message = Some(message);
        let written = poll_fn(|cx| self.poll_write(cx, &mut message));
        let outcome = timeout(Duration::from_millis(WRITE_TIMEOUT_MS), written).await;
        let outcome = outcome.unwrap_or(Err(SendError::Timeout));
        if let Err(error) = &outcome {
            self.shared.abort_unsent(error.clone());
        }
        outcome
    }

    fn poll_write(&self, cx: &mut Context<'_>, message: &mut Option<Message>) -> Poll<Result<(), SendError>> {
        let mut guard = self.shared.for_writer(cx);
        let Some(stream) = guard.as_mut() else { return Poll::Ready(Err(SendError::Closed)) };
        let mut stream = Pin::new(stream);
        if message.is_some() {
            // Pongs that wait for a slow peer go first; together with a whole fragment they might not fit.
            ready!(stream.as_mut().poll_flush(cx)).map_err(lost)?;
        }
        if let Some(message) = message.take() {
            stream.as_mut().start_send(message).map_err(lost)?;
        }
        stream.poll_flush(cx).map_err(lost)
    }
}

impl<S> Drop for Writer<S> {
    fn drop(&mut self) {
        self.abort();
    }
}

fn lost(error: tokio_tungstenite::tungstenite::Error) -> SendError {
    use tokio_tungstenite::tungstenite::Error;
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(_) => SendError::Closed,
        other => SendError::Lost(other.to_string()),
    }
}
