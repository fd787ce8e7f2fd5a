//! When a creation can no longer change resources (decision 34).
//!
//! ```text
//!              begin                  every call answered
//!  (unknown) ───────▶ running ─────────────────────────────▶ ended
//!      │                 │ an answer was lost                   │
//!      │ look            ▼                                      │ nothing there
//!      └──────────────▶ lost ── nothing there for 5 minutes ──▶ settled
//! ```
//!
//! Nobody but this table decides that a creation is settled by absence, and a single look never does after a restart
//! or a lost answer: the engine may still be working on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use palisade_core::wire::payload::Reference;
use tokio::sync::Notify;

use crate::limits::{ABSENCE_SETTLES_AFTER, REMEMBERED_CREATIONS_MAX};

/// The creations of this process, by sandbox.
#[derive(Default)]
pub(crate) struct Settlement {
    table: Mutex<Table>,
    ended: Notify,
}

#[derive(Default)]
struct Table {
    creations: HashMap<Reference, Creation>,
    order: VecDeque<Reference>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    Running,
    Ended,
    /// Absent at every look since then; `None` after a look that saw something or nothing at all.
    Lost(Option<Instant>),
}

/// What a look at the container and both volumes showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// All three are absent.
    Absent,
    /// At least one is there.
    Present,
    /// The engine did not answer.
    Unreachable,
}

/// A creation that is running; dropped without [`Attempt::ended`], its answer counts as lost.
pub(crate) struct Attempt<'a> {
    settlement: &'a Settlement,
    reference: Reference,
    outcome: Creation,
}

impl Attempt<'_> {
    /// Every call of the creation was answered or never sent.
    pub(crate) fn ended(mut self) {
        self.outcome = Creation::Ended;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.settlement.table().creations.insert(self.reference, self.outcome);
        self.settlement.ended.notify_waiters();
    }
}

impl Settlement {
    /// Starts a creation; `None` when this process saw one of the same sandbox already.
    pub(crate) fn begin(&self, reference: Reference) -> Option<Attempt<'_>> {
        let mut table = self.table();
        if matches!(table.creations.get(&reference), Some(Creation::Running | Creation::Ended)) {
            return None;
        }
        if table.creations.insert(reference, Creation::Running).is_none() {
            table.order.push_back(reference);
            table.forget_oldest();
        }
        Some(Attempt { settlement: self, reference, outcome: Creation::Lost(None) })
    }

    /// Whether this process never heard of the sandbox's creation.
    pub(crate) fn is_unknown(&self, reference: Reference) -> bool {
        !self.table().creations.contains_key(&reference)
    }

    /// Whether the sandbox's creation is running in this process.
    pub(crate) fn is_running(&self, reference: Reference) -> bool {
        self.table().creations.get(&reference) == Some(&Creation::Running)
    }

    /// Waits until no creation of the sandbox is running in this process; false when the deadline came first.
    pub(crate) async fn until_ended(&self, reference: Reference, deadline: Instant) -> bool {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.is_running(reference) {
                return true;
            }
            if tokio::time::timeout_at(deadline.into(), ended).await.is_err() {
                return false;
            }
        }
    }

    /// Records a look; true when the creation is settled by absence.
    pub(crate) fn look(&self, reference: Reference, look: Look, now: Instant) -> bool {
        let mut table = self.table();
        if !table.creations.contains_key(&reference) {
            if look != Look::Absent {
                return false;
            }
            table.order.push_back(reference);
            table.forget_oldest();
        }
        let creation = table.creations.entry(reference).or_insert(Creation::Lost(None));
        match (*creation, look) {
            (Creation::Ended, Look::Absent) => true,
            (Creation::Running, _) | (Creation::Ended, Look::Present | Look::Unreachable) => false,
            (Creation::Lost(_), Look::Present | Look::Unreachable) => {
                *creation = Creation::Lost(None);
                false
            }
            (Creation::Lost(since), Look::Absent) => {
                let since = since.unwrap_or(now);
                *creation = Creation::Lost(Some(since));
                now.saturating_duration_since(since) >= ABSENCE_SETTLES_AFTER
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn forget_oldest(&mut self) {
        while self.order.len() > REMEMBERED_CREATIONS_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            if self.creations.get(&oldest) == Some(&Creation::Running) {
                self.order.push_back(oldest);
                return;
            }
            self.creations.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use palisade_provider::testing::reference;

    const SECOND: Duration = Duration::from_secs(1);
    const ALMOST: Duration = Duration::from_secs(ABSENCE_SETTLES_AFTER.as_secs() - 1);

    #[test]
    fn creation_that_ended_here_is_settled_by_one_look() {
        let settlement = Settlement::default();
        let now = Instant::now();
        let attempt = settlement.begin(reference(1)).unwrap();
        assert!(!settlement.look(reference(1), Look::Absent, now + ABSENCE_SETTLES_AFTER * 2), "it is running");
        attempt.ended();
        assert!(!settlement.look(reference(1), Look::Present, now));
        assert!(settlement.look(reference(1), Look::Absent, now));
    }

    #[test]
    fn creation_of_an_earlier_process_is_settled_by_five_minutes_of_absence() {
        let settlement = Settlement::default();
        let now = Instant::now();
        assert!(!settlement.look(reference(1), Look::Absent, now));
        assert!(!settlement.look(reference(1), Look::Absent, now + ALMOST));
        assert!(settlement.look(reference(1), Look::Absent, now + ABSENCE_SETTLES_AFTER));
    }

    #[test]
    fn one_look_that_saw_something_or_nothing_starts_the_wait_again() {
        for disturbance in [Look::Present, Look::Unreachable] {
            let settlement = Settlement::default();
            let now = Instant::now();
            assert!(!settlement.look(reference(1), Look::Absent, now));
            assert!(!settlement.look(reference(1), disturbance, now + SECOND));
            assert!(!settlement.look(reference(1), Look::Absent, now + 2 * SECOND));
            assert!(!settlement.look(reference(1), Look::Absent, now + ABSENCE_SETTLES_AFTER + SECOND));
            assert!(settlement.look(reference(1), Look::Absent, now + ABSENCE_SETTLES_AFTER + 2 * SECOND));
        }
    }

    #[test]
    fn creation_whose_answer_was_lost_is_treated_like_one_of_an_earlier_process() {
        let settlement = Settlement::default();
        drop(settlement.begin(reference(1)).unwrap());
        assert!(!settlement.look(reference(1), Look::Absent, Instant::now()));
    }

    #[test]
    fn second_creation_of_one_sandbox_is_refused() {
        let settlement = Settlement::default();
        let attempt = settlement.begin(reference(1)).unwrap();
        assert!(settlement.begin(reference(1)).is_none());
        attempt.ended();
        assert!(settlement.begin(reference(1)).is_none());
        assert!(settlement.begin(reference(2)).is_some());
    }

    #[test]
    fn memory_is_bounded_and_never_forgets_a_running_creation() {
        let settlement = Settlement::default();
        let running = settlement.begin(reference(0)).unwrap();
        for seed in 1..=REMEMBERED_CREATIONS_MAX as u64 + 10 {
            settlement.begin(reference(seed)).unwrap().ended();
        }
        assert!(settlement.table().creations.len() <= REMEMBERED_CREATIONS_MAX + 1);
        assert!(settlement.is_running(reference(0)));
        running.ended();
    }
}
