//! What the two halves of a socket hold together.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;

use futures_util::task::AtomicWaker;
use tokio_tungstenite::WebSocketStream;

use crate::meter::Metered;

pub(crate) type Stream<S> = WebSocketStream<Metered<S>>;

/// The stream, until somebody aborts it. The lock is held for one poll, never across a wait.
pub(crate) struct Shared<S> {
    stream: Mutex<Option<Stream<S>>>,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl<S> Shared<S> {
    pub(crate) fn new(stream: Stream<S>) -> Self {
        Self { stream: Mutex::new(Some(stream)), reader: AtomicWaker::new(), writer: AtomicWaker::new() }
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

    fn lock(&self) -> MutexGuard<'_, Option<Stream<S>>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
