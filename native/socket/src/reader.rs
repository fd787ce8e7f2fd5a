//! The receiving half.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use palisade_core::limits::MESSAGE_TIMEOUT_MS;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep};
use tungstenite::error::{Error, ProtocolError};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, Utf8Bytes};

use crate::limits::CLOSE_TIMEOUT_MS;
use crate::meter::Meter;
use crate::shared::Shared;
use crate::writer::SendError;

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// One whole text message of at most 72 MiB.
    Text(Utf8Bytes),
    /// A data fragment arrived that completes no message yet: the peer is alive. Re-arms the 35 s deadline.
    Fragment,
    /// A binary message, which the protocol does not have (wire §0.3).
    Binary,
    /// Nothing follows; the stream is closed.
    Closed(Closed),
}

/// Why a socket ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The peer closed with a close handshake.
    #[error("the peer closed the connection")]
    ByPeer,
    /// The stream ended or failed without a close handshake.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// A message above 72 MiB.
    #[error("the peer sent a message above the limit of 72 MiB")]
    TooLarge,
    /// A text message that is not UTF-8.
    #[error("the peer sent text that is not UTF-8")]
    InvalidText,
    /// A violation of the WebSocket protocol itself.
    #[error("the peer violated the WebSocket protocol: {0}")]
    Violation(String),
    /// A message that took longer than 120 s (decision 29).
    #[error("the peer did not finish a message within 120 s")]
    Stalled,
    /// The writing half could not send a message.
    #[error(transparent)]
    Unsent(SendError),
    /// Our own side aborted.
    #[error("the connection was aborted")]
    Aborted,
}

/// The receiving half of a socket. Dropping it ends the connection.
pub struct Reader<S> {
    shared: Arc<Shared<S>>,
    /// What had arrived when the stream was asked last.
    progress: Progress,
    /// Fragments that were reported or belong to reported messages.
    reported: u64,
    /// Bounds the message that is arriving, with its number.
    message: Option<(u64, Pin<Box<Sleep>>)>,
    /// Whether the peer's Close frame has come.
    closed_by_peer: bool,
    /// Set by a Close frame: bounds the wait for the end of the stream.
    closing: Option<Pin<Box<Sleep>>>,
}

/// How far the messages that arrive have come.
#[derive(Debug, Clone, Copy)]
struct Progress {
    fragments: u64,
    begun: u64,
    open: bool,
}

impl Progress {
    const NONE: Self = Self { fragments: 0, begun: 0, open: false };

    const fn of(meter: &Meter) -> Self {
        Self { fragments: meter.fragments, begun: meter.begun, open: meter.open }
    }
}

impl<S> Reader<S> {
    pub(crate) const fn new(shared: Arc<Shared<S>>) -> Self {
        Self { shared, progress: Progress::NONE, reported: 0, message: None, closed_by_peer: false, closing: None }
    }

    /// Closes the stream at once, without a close handshake.
    pub fn abort(&self) {
        self.shared.abort();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Reader<S> {
    /// The next message or fragment. Pings are answered by the library and never reported. Cancel safe.
    pub async fn next(&mut self) -> Incoming {
        poll_fn(|cx| self.poll_incoming(cx)).await
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Incoming> {
        loop {
            let received = match self.poll_message(cx) {
                Poll::Pending => return self.poll_progress(cx),
                Poll::Ready(received) => received,
            };
            match received {
                Ok(Message::Text(text)) if !self.shared.is_closing() => return Poll::Ready(Incoming::Text(text)),
                Ok(Message::Binary(_)) if !self.shared.is_closing() => return Poll::Ready(Incoming::Binary),
                Ok(Message::Close(_)) => {
                    self.closed_by_peer = true;
                    self.bound_closing();
                }
                Ok(Message::Text(_) | Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {
                }
                Err(reason) => return Poll::Ready(self.end(reason)),
            }
        }
    }

    /// The library's next message, with the meter's view of it.
    fn poll_message(&mut self, cx: &Context<'_>) -> Poll<Result<Message, Closed>> {
        let mut guard = self.shared.for_reader(cx);
        let Some(stream) = guard.as_mut() else { return Poll::Ready(Err(self.shared.aborted())) };
        if !self.shared.take_ready() {
            return Poll::Pending;
        }
        let polled = stream.poll_message(&mut self.shared.context());
        self.progress = Progress::of(stream.meter());
        let next = std::task::ready!(polled);
        self.shared.set_ready();
        if let Some(Ok(Message::Text(_) | Message::Binary(_))) = &next {
            self.reported = self.progress.fragments;
        }
        Poll::Ready(match next {
            Some(Ok(message)) => Ok(message),
            Some(Err(error)) => Err(stream.meter().refused.clone().unwrap_or_else(|| reason(error))),
            None => Err(Closed::ByPeer),
        })
    }

    /// Nothing whole has arrived: a fragment perhaps, or a deadline.
    fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<Incoming> {
        if self.shared.is_closing() {
            self.bound_closing();
        }
        if self.closing.as_mut().is_some_and(|bound| bound.as_mut().poll_is_over(cx)) {
            return Poll::Ready(self.end(Closed::Aborted));
        }
        let Progress { fragments, begun, open } = self.progress;
        if !open {
            self.message = None;
        } else if self.message.as_ref().is_none_or(|(number, _)| *number != begun) {
            self.message = Some((begun, Box::pin(sleep(Duration::from_millis(MESSAGE_TIMEOUT_MS)))));
        }
        if self.message.as_mut().is_some_and(|(_, bound)| bound.as_mut().poll_is_over(cx)) {
            return Poll::Ready(self.end(Closed::Stalled));
        }
        if fragments > self.reported && self.closing.is_none() {
            self.reported = fragments;
            return Poll::Ready(Incoming::Fragment);
        }
        Poll::Pending
    }

    fn bound_closing(&mut self) {
        self.closing.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(CLOSE_TIMEOUT_MS))));
    }

    fn end(&mut self, reason: Closed) -> Incoming {
        if let Some(code) = close_code(&reason) {
            self.say_why(code);
        }
        self.shared.abort();
        Incoming::Closed(if self.closed_by_peer { Closed::ByPeer } else { reason })
    }

    /// A Close frame as far as the stream takes it at once; nobody waits for a peer that is at fault.
    fn say_why(&self, code: CloseCode) {
        let mut guard = self.shared.lock();
        let Some(stream) = guard.as_mut() else { return };
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static("") };
        let mut cx = self.shared.context();
        if stream.give(&mut cx, Message::Close(Some(frame))).is_ok() {
            let _ = stream.poll_flush(&mut cx);
        }
    }
}

impl<S> Drop for Reader<S> {
    fn drop(&mut self) {
        self.abort();
    }
}

trait PollIsOver {
    fn poll_is_over(self, cx: &mut Context<'_>) -> bool;
}

impl PollIsOver for Pin<&mut Sleep> {
    fn poll_is_over(self, cx: &mut Context<'_>) -> bool {
        self.poll(cx).is_ready()
    }
}

/// What a peer at fault is told (RFC 6455 §7.4.1).
const fn close_code(reason: &Closed) -> Option<CloseCode> {
    match reason {
        Closed::Violation(_) => Some(CloseCode::Protocol),
        Closed::InvalidText => Some(CloseCode::Invalid),
        Closed::TooLarge => Some(CloseCode::Size),
        Closed::Stalled => Some(CloseCode::Policy),
        Closed::ByPeer | Closed::Lost(_) | Closed::Unsent(_) | Closed::Aborted => None,
    }
}

fn reason(error: Error) -> Closed {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => Closed::ByPeer,
        Error::Io(error) => Closed::Lost(error.to_string()),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            Closed::Lost("the stream ended without a close handshake".to_owned())
        }
        Error::Capacity(_) => Closed::TooLarge,
        Error::Utf8(_) => Closed::InvalidText,
        other => Closed::Violation(other.to_string()),
    }
}
