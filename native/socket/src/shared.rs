//! What the two halves of a socket hold together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Context;

use futures_util::task::AtomicWaker;
use tokio_tungstenite::WebSocketStream;

use crate::meter::Metered;
use crate::reader::Closed;
use crate::writer::SendError;

pub(crate) type Stream<S> = WebSocketStream<Metered<S>>;

/// The stream, until somebody aborts it. The lock is held for one poll, never across a wait.
pub(crate) struct Shared<S> {
    stream: Mutex<Option<Stream<S>>>,
    /// Why the writer aborted.
    unsent: OnceLock<SendError>,
    /// Set once our own Close is written.
    closing: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl<S> Shared<S> {
    pub(crate) fn new(stream: Stream<S>) -> Self {
        Self {
            stream: Mutex::new(Some(stream)),
            unsent: OnceLock::new(),
            closing: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
        }
    }

    /// For the reader's poll; it is woken when the stream is aborted.
    pub(crate) fn for_reader(&self, cx: &Context<'_>) -> MutexGuard<'_, Option<Stream<S>>> {
        self.reader.register(cx.waker());
        self.lock()
    }

    /// For the writer's poll; it is woken when the stream is aborted.
    pub(crate) fn for_writer(&self, cx: &Context<'_>) -> MutexGuard<'_, Option<Stream<S>>> {
        self.writer.register(cx.waker());
        self.lock()
    }

    /// Drops the stream now, whatever the other half does.
    pub(crate) fn abort(&self) {
        let stream = self.lock().take();
        drop(stream);
        self.reader.wake();
        self.writer.wake();
    }

    /// Drops the stream because a message could not be sent; the reader tells why.
    pub(crate) fn abort_unsent(&self, error: SendError) {
        // An earlier error is the cause of this one.
        let _ = self.unsent.set(error);
        self.abort();
    }

    /// Our Close is written: the reader bounds the wait for the peer's.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        self.reader.wake();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// What the reader says of a stream that is gone.
    pub(crate) fn aborted(&self) -> Closed {
        self.unsent.get().map_or(Closed::Aborted, |error| Closed::Unsent(error.clone()))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Stream<S>>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
