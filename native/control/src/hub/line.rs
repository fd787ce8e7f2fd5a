//! Callers in line for the task of a connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use palisade_core::units::Id;

use super::ORDERS;
use super::connection::Request;

/// What a caller wants of a connection.
pub(super) enum Order {
    Request(Box<Request>),
    Cancel(Id),
}

/// The line of one connection. Clones share it. It takes memory only while somebody is in it, because most connections
/// have nobody most of the time.
#[derive(Clone, Default)]
pub(super) struct Line(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    task: AtomicWaker,
}

#[derive(Default)]
struct Waiting {
    orders: VecDeque<Order>,
    closed: bool,
}

impl Line {
    /// Joins the end, unless the line is full or closed.
    pub(super) fn join(&self, request: Box<Request>) -> bool {
        let mut waiting = self.waiting();
        if waiting.closed || waiting.orders.len() >= ORDERS {
            return false;
        }
        waiting.orders.push_back(Order::Request(request));
        drop(waiting);
        self.0.task.wake();
        true
    }

    /// Takes back what joined. There are never more of these than there are requests, so the line is never full for them.
    pub(super) fn cancel(&self, request: Id) {
        let mut waiting = self.waiting();
        if !waiting.closed {
            waiting.orders.push_back(Order::Cancel(request));
        }
        drop(waiting);
        self.0.task.wake();
    }

    /// The next one, for the one task of the connection. Cancel safe.
    pub(super) async fn next(&self) -> Order {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Lets nobody in any more, and gives those who are.
    pub(super) fn close(&self) -> VecDeque<Order> {
        let mut waiting = self.waiting();
        waiting.closed = true;
        std::mem::take(&mut waiting.orders)
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Order> {
        self.0.task.register(cx.waker());
        let mut waiting = self.waiting();
        let next = waiting.orders.pop_front();
        if waiting.orders.is_empty() && waiting.orders.capacity() > 0 {
            waiting.orders = VecDeque::new();
        }
        next.map_or(Poll::Pending, Poll::Ready)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
