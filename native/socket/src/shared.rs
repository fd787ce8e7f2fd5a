//! What the two halves of a socket hold together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

use crate::reader::Closed;
use crate::stream::Stream;
use crate::writer::SendError;

/// The stream, until somebody aborts it. The lock is held for one poll, never across a wait.
pub(crate) struct Shared<S> {
    stream: Mutex<Option<Stream<S>>>,
    /// Why the writer aborted.
    unsent: OnceLock<SendError>,
    /// Set once our own Close is written.
    closing: AtomicBool,
    halves: Arc<Halves>,
    /// Wakes `halves`.
    waker: Waker,
}

/// Whoever waits for the stream. Both halves are woken whenever it is ready, because either of them reads and writes: a
/// reader answers pings, and TLS reads to write.
#[derive(Default)]
struct Halves {
    reader: AtomicWaker,
    writer: AtomicWaker,
    /// Whether anything happened since the reader was told to wait: until then it need not ask the stream again, however
    /// often its task is polled for another reason.
    ready: AtomicBool,
}

impl Wake for Halves {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_reader();
        self.writer.wake();
    }
}

impl Halves {
    fn wake_reader(&self) {
        self.ready.store(true, Ordering::Release);
        self.reader.wake();
    }
}

impl<S> Shared<S> {
    pub(crate) fn new(stream: Stream<S>) -> Self {
        let halves = Arc::new(Halves { ready: AtomicBool::new(true), ..Halves::default() });
        Self {
            stream: Mutex::new(Some(stream)),
            unsent: OnceLock::new(),
            closing: AtomicBool::new(false),
            waker: Arc::clone(&halves).into(),
            halves,
        }
    }

    /// What the stream is polled with.
    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    /// For the reader's poll; it is woken when the stream is ready or aborted.
    pub(crate) fn for_reader(&self, cx: &Context<'_>) -> MutexGuard<'_, Option<Stream<S>>> {
        self.halves.reader.register(cx.waker());
        self.lock()
    }

    /// Whether the reader should ask the stream. Ends with the answer, and is true again when something happened.
    pub(crate) fn take_ready(&self) -> bool {
        self.halves.ready.swap(false, Ordering::AcqRel)
    }

    /// More may be there without anybody being woken for it.
    pub(crate) fn set_ready(&self) {
        self.halves.ready.store(true, Ordering::Release);
    }

    /// For the writer's poll; it is woken when the stream is ready or aborted.
    pub(crate) fn for_writer(&self, cx: &Context<'_>) -> MutexGuard<'_, Option<Stream<S>>> {
        self.halves.writer.register(cx.waker());
        self.lock()
    }

    /// The writer found the stream closed: the reader tells of it.
    pub(crate) fn wake_reader(&self) {
        self.halves.wake_reader();
    }

    /// Drops the stream now, whatever the other half does.
    pub(crate) fn abort(&self) {
        let stream = self.lock().take();
        drop(stream);
        self.waker.wake_by_ref();
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
        self.wake_reader();
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
