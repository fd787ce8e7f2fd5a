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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use palisade_core::operation::{Asked, Method};
    use palisade_core::session::hub::Submission;
    use palisade_core::testing::{generation, id, sandbox};
    use palisade_core::units::Millis;
    use tokio::sync::oneshot;

    use super::*;
    use crate::hub::Room;

    fn request(number: u64) -> Box<Request> {
        let submission =
            Submission { id: id(number), generation: generation(1), needs_ready: true, deadline: Millis(0) };
        let asked = Asked { id: id(number), method: Method::GetInfo, reference: sandbox(1), target: None };
        Box::new(Request { submission, asked, call: None, answer: oneshot::channel().0, room: Room::default() })
    }

    /// How often the task of the connection was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Woken {
        fn times(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Whose order is next, and whether it is taken back.
    fn next(line: &Line, waker: &Waker) -> Option<(Id, bool)> {
        match line.poll_next(&mut Context::from_waker(waker)) {
            Poll::Ready(order) => Some(told(&order)),
            Poll::Pending => None,
        }
    }

    fn told(order: &Order) -> (Id, bool) {
        match order {
            Order::Request(request) => (request.submission.id, false),
            Order::Cancel(request) => (*request, true),
        }
    }

    #[test]
    fn orders_come_in_the_order_in_which_they_joined() {
        let line = Line::default();
        assert!(line.join(request(1)) && line.join(request(2)));
        line.cancel(id(1));
        assert!(line.clone().join(request(3)), "clones share the line");
        let given: Vec<_> = std::iter::from_fn(|| next(&line, Waker::noop())).collect();
        assert_eq!(given, [(id(1), false), (id(2), false), (id(1), true), (id(3), false)]);
    }

    /// A call that was lost here would wait for its whole budget.
    #[test]
    fn whatever_joins_wakes_the_task_that_waits() {
        let (line, woken) = (Line::default(), Arc::<Woken>::default());
        let waker = Waker::from(Arc::clone(&woken));
        assert_eq!(next(&line, &waker), None);
        assert_eq!(woken.times(), 0);
        assert!(line.join(request(1)));
        assert_eq!(woken.times(), 1);
        assert_eq!(next(&line, &waker), Some((id(1), false)));
        assert_eq!(next(&line, &waker), None);
        line.cancel(id(1));
        assert_eq!(woken.times(), 2);
    }

    /// The line has an end for requests, and none for what takes them back: a caller who has gone is always heard.
    #[test]
    fn a_full_line_refuses_requests_and_takes_them_back() {
        let line = Line::default();
        for number in 1..=ORDERS as u64 {
            assert!(line.join(request(number)));
        }
        assert!(!line.join(request(0)));
        line.cancel(id(1));
        assert_eq!(next(&line, Waker::noop()), Some((id(1), false)));
        assert!(!line.join(request(0)), "what takes one back has its place");
        assert_eq!(next(&line, Waker::noop()), Some((id(2), false)));
        assert!(line.join(request(0)));
    }

    #[test]
    fn a_closed_line_gives_who_is_in_it_and_lets_nobody_in() {
        let line = Line::default();
        assert!(line.join(request(1)));
        line.cancel(id(1));
        assert_eq!(line.close().iter().map(told).collect::<Vec<_>>(), [(id(1), false), (id(1), true)]);
        assert!(!line.join(request(2)));
        line.cancel(id(2));
        assert_eq!((next(&line, Waker::noop()), line.close().len()), (None, 0));
    }

    /// Most connections have nobody in line most of the time, and there are ten thousand of them.
    #[test]
    fn an_empty_line_keeps_no_memory() {
        let line = Line::default();
        assert!(line.join(request(1)));
        assert!(line.waiting().orders.capacity() > 0);
        assert_eq!(next(&line, Waker::noop()), Some((id(1), false)));
        assert_eq!(line.waiting().orders.capacity(), 0);
    }
}
