//! The lanes of a node: one per allocation, outliving every connection (decision 8).
//!
//! ```text
//!  admit ──► waiting ──── its lane and one of 32 executions are free ────► executing ── finish ──► (gone)
//!               │                                                             │ ▲
//!               ├─ budget ends: answered, never executed                      └─┘ budget ends: answered, the lane
//!               └─ its connection ends: forgotten                                  stays busy until finish
//! ```
//!
//! - Never do two operations of one allocation overlap or change places; different allocations run side by side
//!   (`every_history_keeps_order_bounds_and_budgets`, `different_allocations_run_side_by_side`).
//! - Never do more than [`EXECUTING_MAX`] execute or [`WAITING_MAX`] wait
//!   (`every_history_keeps_order_bounds_and_budgets`, `the_thirty_third_waiting_operation_is_refused`).
//! - Never does an operation start after its budget, or after its connection ended
//!   (`a_budget_that_ends_in_the_queue_is_answered_and_never_executed`,
//!   `a_running_operation_survives_its_connection_and_queued_ones_do_not`).
//! - Never is a lane free before the provider really ended, even when the answer was given up earlier (decision 34;
//!   `an_overdue_operation_is_answered_once_and_keeps_its_lane`).

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{EXECUTING_MAX, WAITING_MAX};
use crate::operation::{Asked, Call};
use crate::units::{Generation, Id, Millis};

/// Names one execution for as long as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// An admitted operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Work {
    /// The connection that asked.
    pub origin: Id,
    /// What to do.
    pub call: Call<'static>,
    /// End of the budget on this node's clock.
    pub deadline: Millis,
    /// What it occupies of the node's byte budget.
    pub bytes: u64,
}

/// Where an answer belongs, and what it is judged by when the arguments are gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The connection that asked.
    pub connection: Id,
    /// What it asked.
    pub asked: Asked,
}

/// All 32 waiting places are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{WAITING_MAX} operations wait already")]
pub struct Full;

/// What the lanes want done next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// The budget was used up in the queue; never executed. The generation is held no more.
    Expired(Origin, Generation),
    /// The budget of an executing operation ended: answer now, but its lane stays busy.
    Overdue(Origin),
    /// The operation occupies its lane from here on; end it with [`Lanes::finish`].
    Start {
        /// Its name.
        ticket: Ticket,
        /// What to do.
        call: Call<'static>,
        /// End of its budget.
        deadline: Millis,
    },
}

/// An execution that ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finished {
    /// Which generation carried it out.
    pub generation: Generation,
    /// Where the answer belongs; `None` when it was given up at the deadline.
    pub origin: Option<Origin>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Running {
    allocation: Id,
    generation: Generation,
    deadline: Millis,
    bytes: u64,
    origin: Option<Origin>,
}

/// All lanes of one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Lanes {
    waiting: VecDeque<Work>,
    running: BTreeMap<Ticket, Running>,
    next: u64,
    bytes: u64,
}

impl Lanes {
    /// Takes an operation in.
    ///
    /// # Errors
    /// It would have to wait, and all places are taken.
    pub fn admit(&mut self, work: Work) -> Result<(), Full> {
        let lane = work.call.reference.allocation;
        let starts = self.running.len() < EXECUTING_MAX
            && !self.is_busy(lane)
            && !self.waiting.iter().any(|earlier| earlier.call.reference.allocation == lane);
        if !starts && self.waiting.len() >= WAITING_MAX {
            return Err(Full);
        }
        self.bytes += work.bytes;
        self.waiting.push_back(work);
        Ok(())
    }

    /// The next thing to do at `now`.
    pub fn poll(&mut self, now: Millis) -> Option<Step> {
        self.poll_expired(now).or_else(|| self.poll_overdue(now)).or_else(|| self.poll_start())
    }

    fn poll_expired(&mut self, now: Millis) -> Option<Step> {
        let at = self.waiting.iter().position(|work| work.deadline <= now)?;
        let work = self.waiting.remove(at).expect("found above");
        self.bytes -= work.bytes;
        let origin = Origin { connection: work.origin, asked: work.call.asked() };
        Some(Step::Expired(origin, work.call.deployment_generation))
    }

    fn poll_overdue(&mut self, now: Millis) -> Option<Step> {
        let mut running = self.running.values_mut();
        running.find_map(|running| running.origin.take_if(|_| running.deadline <= now)).map(Step::Overdue)
    }

    /// The oldest operation whose lane is free, while there is room to execute.
    fn poll_start(&mut self) -> Option<Step> {
        if self.running.len() >= EXECUTING_MAX {
            return None;
        }
        let at = self.waiting.iter().position(|work| !self.is_busy(work.call.reference.allocation))?;
        let Work { origin, call, deadline, bytes } = self.waiting.remove(at).expect("found above");
        let ticket = Ticket(self.next);
        self.next += 1;
        let running = Running {
            allocation: call.reference.allocation,
            generation: call.deployment_generation,
            deadline,
            bytes,
            origin: Some(Origin { connection: origin, asked: call.asked() }),
        };
        self.running.insert(ticket, running);
        Some(Step::Start { ticket, call, deadline })
    }

    /// The provider really ended; its lane is free again. `None` for a ticket that ended before.
    pub fn finish(&mut self, ticket: Ticket) -> Option<Finished> {
        let Running { generation, origin, bytes, .. } = self.running.remove(&ticket)?;
        self.bytes -= bytes;
        Some(Finished { generation, origin })
    }

    /// The connection ended: what it queued never runs. Gives back the generations that were held for it.
    pub fn abandon(&mut self, connection: Id) -> Vec<Generation> {
        let (dead, alive) = self.waiting.drain(..).partition(|work| work.origin == connection);
        self.waiting = alive;
        let dead: VecDeque<Work> = dead;
        self.bytes -= dead.iter().map(|work| work.bytes).sum::<u64>();
        dead.iter().map(|work| work.call.deployment_generation).collect()
    }

    /// Operations that execute now, 0 … 32.
    #[must_use]
    pub fn executing(&self) -> u32 {
        u32::try_from(self.running.len()).unwrap_or(u32::MAX)
    }

    /// Bytes of the byte budget that are in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last deadline of what executes, answered or not; `None` when nothing does.
    #[must_use]
    pub fn last_deadline(&self) -> Option<Millis> {
        self.running.values().map(|running| running.deadline).max()
    }

    /// When the next budget ends.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        let executing = self.running.values().filter(|running| running.origin.is_some());
        self.waiting.iter().map(|work| work.deadline).chain(executing.map(|running| running.deadline)).min()
    }

    fn is_busy(&self, allocation: Id) -> bool {
        self.running.values().any(|running| running.allocation == allocation)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::operation::Operation;
    use crate::testing::{id, sandbox};

    fn work(connection: u64, allocation: u64, request: u64, deadline: u64) -> Work {
        let operation = Operation::Kill;
        let call = Call {
            id: id(request),
            deployment_generation: Generation::FIRST,
            reference: sandbox(allocation),
            timeout_ms: deadline.max(1),
            operation,
        };
        Work { origin: id(connection), call, deadline: Millis(deadline), bytes: 10 }
    }

    fn start(lanes: &mut Lanes, now: u64) -> Option<(Ticket, Id)> {
        match lanes.poll(Millis(now)) {
            Some(Step::Start { ticket, call, .. }) => Some((ticket, call.id)),
            None => None,
            other => panic!("expected a start, got {other:?}"),
        }
    }

    /// W 30. While a create runs, a kill of the same allocation waits, and its budget runs.
    /// W 31. It is answered and never executed once its budget ran out in the queue.
    /// W 32. A later operation of the allocation runs after the create.
    #[test]
    fn a_budget_that_ends_in_the_queue_is_answered_and_never_executed() {
        let mut lanes = Lanes::default();
        lanes.admit(work(1, 7, 1, 30_000)).unwrap();
        let (create, _) = start(&mut lanes, 0).unwrap();
        lanes.admit(work(1, 7, 2, 80)).unwrap();
        assert!(start(&mut lanes, 79).is_none());
        assert_eq!(lanes.poll_timeout(), Some(Millis(80)));
        assert!(matches!(lanes.poll(Millis(80)), Some(Step::Expired(origin, _)) if origin.asked.id == id(2)));
        lanes.admit(work(1, 7, 3, 30_000)).unwrap();
        assert!(start(&mut lanes, 90).is_none());
        assert!(lanes.finish(create).unwrap().origin.is_some());
        assert_eq!(start(&mut lanes, 100).unwrap().1, id(3));
    }

    /// Decision 8: one hung allocation delays no other (E5).
    #[test]
    fn different_allocations_run_side_by_side() {
        let mut lanes = Lanes::default();
        for allocation in 1..=40 {
            lanes.admit(work(1, allocation, allocation, 1_000)).unwrap();
            start(&mut lanes, 0);
        }
        assert_eq!(lanes.executing(), 32);
        assert_eq!(lanes.waiting.len(), 8);
    }

    /// W 193. The 33rd that would have to wait is refused.
    #[test]
    fn the_thirty_third_waiting_operation_is_refused() {
        let mut lanes = Lanes::default();
        lanes.admit(work(1, 1, 0, 1_000)).unwrap();
        let (running, _) = start(&mut lanes, 0).unwrap();
        for request in 1..=32 {
            lanes.admit(work(1, 1, request, 1_000)).unwrap();
        }
        assert_eq!(lanes.admit(work(1, 1, 33, 1_000)), Err(Full));
        lanes.admit(work(1, 2, 34, 1_000)).expect("it starts at once and does not wait");
        lanes.finish(running);
        start(&mut lanes, 0).unwrap();
        start(&mut lanes, 0).unwrap();
        lanes.admit(work(1, 1, 35, 1_000)).expect("a place is free");
    }

    /// W 193. Places are counted for a free lane as well, once 32 execute.
    #[test]
    fn a_free_lane_waits_for_one_of_32_executions_in_a_counted_place() {
        let mut lanes = Lanes::default();
        for allocation in 1..=64 {
            lanes.admit(work(1, allocation, allocation, 1_000)).unwrap();
            start(&mut lanes, 0);
        }
        assert_eq!(lanes.admit(work(1, 65, 65, 1_000)), Err(Full));
    }

    /// W 44. An operation of a new connection waits for the old connection's operation of its allocation.
    /// W 45. It runs once that one ended; what the old connection queued never runs.
    #[test]
    fn a_running_operation_survives_its_connection_and_queued_ones_do_not() {
        let mut lanes = Lanes::default();
        lanes.admit(work(1, 7, 1, 30_000)).unwrap();
        let (create, _) = start(&mut lanes, 0).unwrap();
        lanes.admit(work(1, 7, 2, 30_000)).unwrap();
        assert_eq!(lanes.abandon(id(1)), [Generation::FIRST]);
        lanes.admit(work(2, 7, 3, 30_000)).unwrap();
        assert!(start(&mut lanes, 0).is_none());
        lanes.finish(create);
        assert_eq!(start(&mut lanes, 0).unwrap().1, id(3));
        assert!(start(&mut lanes, 0).is_none());
    }

    /// Whatever becomes of an operation, its bytes are given back with it, and no others.
    #[test]
    fn bytes_are_held_exactly_as_long_as_their_operation() {
        let mut lanes = Lanes::default();
        for (connection, request, deadline) in [(1, 1, 1_000), (1, 2, 1_000), (2, 3, 100), (2, 4, 1_000)] {
            lanes.admit(work(connection, 7, request, deadline)).unwrap();
        }
        let (running, _) = start(&mut lanes, 0).unwrap();
        assert_eq!(lanes.bytes(), 40);
        assert!(matches!(lanes.poll(Millis(100)), Some(Step::Expired(..))));
        assert_eq!(lanes.bytes(), 30);
        lanes.abandon(id(1));
        assert_eq!(lanes.bytes(), 20);
        lanes.finish(running);
        assert_eq!(lanes.bytes(), 10);
    }

    /// Decision 34: the answer is given at the deadline, the lane is free when the engine answered.
    #[test]
    fn an_overdue_operation_is_answered_once_and_keeps_its_lane() {
        let mut lanes = Lanes::default();
        lanes.admit(work(1, 7, 1, 100)).unwrap();
        let (create, _) = start(&mut lanes, 0).unwrap();
        lanes.admit(work(1, 7, 2, 500)).unwrap();
        assert!(matches!(lanes.poll(Millis(100)), Some(Step::Overdue(origin)) if origin.asked.id == id(1)));
        assert!(lanes.poll(Millis(200)).is_none());
        assert_eq!((lanes.executing(), lanes.bytes(), lanes.last_deadline()), (1, 20, Some(Millis(100))));
        assert!(lanes.finish(create).unwrap().origin.is_none());
        assert!(lanes.finish(create).is_none());
        assert_eq!(start(&mut lanes, 300).unwrap().1, id(2));
    }

    #[derive(Debug, Clone)]
    enum Event {
        Admit { connection: u64, allocation: u64, budget: u64 },
        Finish(usize),
        Abandon(u64),
        Wait(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (1..4_u64, 100..140_u64, 1..400_u64)
                .prop_map(|(connection, allocation, budget)| Event::Admit { connection, allocation, budget }),
            3 => any::<usize>().prop_map(Event::Finish),
            1 => (1..4_u64).prop_map(Event::Abandon),
            2 => (1..200_u64).prop_map(Event::Wait),
        ]
    }

    proptest! {
        /// W 30-32, W 44-45 and W 193 over arbitrary histories, against a model that only remembers.
        #[test]
        fn every_history_keeps_order_bounds_and_budgets(events in prop::collection::vec(event(), 1..300)) {
            let (mut lanes, mut now, mut request) = (Lanes::default(), 0, 1_000);
            let mut admitted: BTreeMap<Id, Work> = BTreeMap::new();
            let mut running: Vec<(Ticket, Id, Id)> = Vec::new();
            let mut last_started: BTreeMap<Id, Id> = BTreeMap::new();
            for event in events {
                match event {
                    Event::Admit { connection, allocation, budget } => {
                        request += 1;
                        let remembered = work(connection, allocation, request, now + budget);
                        if lanes.admit(work(connection, allocation, request, now + budget)).is_ok() {
                            admitted.insert(id(request), remembered);
                        }
                    }
                    Event::Finish(which) if !running.is_empty() => {
                        let (ticket, ..) = running.swap_remove(which % running.len());
                        prop_assert!(lanes.finish(ticket).is_some());
                    }
                    Event::Finish(_) => {}
                    Event::Abandon(connection) => {
                        let queued = admitted.len();
                        admitted.retain(|_, work| work.origin != id(connection));
                        prop_assert_eq!(lanes.abandon(id(connection)).len(), queued - admitted.len());
                    }
                    Event::Wait(span) => now += span,
                }
                while let Some(step) = lanes.poll(Millis(now)) {
                    match step {
                        Step::Expired(Origin { asked, .. }, _) => {
                            let work = admitted.remove(&asked.id).expect("expired once, out of the queue");
                            prop_assert!(work.deadline.0 <= now);
                        }
                        Step::Overdue(Origin { asked, .. }) => prop_assert!(running.iter().any(|(_, request, _)| *request == asked.id)),
                        Step::Start { ticket, call, deadline } => {
                            let allocation = call.reference.allocation;
                            prop_assert!(admitted.remove(&call.id).is_some(), "started twice or after its connection");
                            prop_assert!(deadline.0 > now, "started after its budget");
                            prop_assert!(running.iter().all(|(.., lane)| *lane != allocation), "two in one lane");
                            let earlier = last_started.insert(allocation, call.id);
                            prop_assert!(earlier.is_none_or(|earlier| earlier < call.id), "out of order");
                            running.push((ticket, call.id, allocation));
                        }
                    }
                }
                prop_assert!(running.len() <= EXECUTING_MAX && admitted.len() <= WAITING_MAX);
                prop_assert_eq!(lanes.executing() as usize, running.len());
                prop_assert_eq!(lanes.bytes(), 10 * (running.len() + admitted.len()) as u64);
            }
        }
    }
}
