//! Small calls of many connections, carried out together in one transaction.
//!
//! A durable commit costs the disk some milliseconds, whatever is in it. What many connections ask within a moment is
//! therefore gathered, and everybody is answered when the one transaction has committed.

use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::limits::GATHERED_MAX;

/// Calls that wait for the next transaction.
pub(super) struct Gathered<Q, A>(Mutex<Vec<Asked<Q, A>>>);

/// One call and its caller.
pub(super) struct Asked<Q, A> {
    pub(super) question: Q,
    answer: oneshot::Sender<A>,
}

impl<Q, A> Default for Gathered<Q, A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Q, A> Gathered<Q, A> {
    /// Joins those who wait. `true` for the first of them, who must start the work that [`Gathered::take`]s all.
    pub(super) fn join(&self, question: Q) -> (bool, oneshot::Receiver<A>) {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(Asked { question, answer });
        (waiting.len() == 1, answered)
    }

    /// The calls of the next transaction, without those whose caller has gone, and whether more wait. While more wait,
    /// nobody else takes them.
    pub(super) fn take(&self) -> (Vec<Asked<Q, A>>, bool) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|asked| !asked.answer.is_closed());
        let taken = waiting.len().min(GATHERED_MAX);
        let rest = waiting.split_off(taken);
        let more = !rest.is_empty();
        (std::mem::replace(&mut *waiting, rest), more)
    }
}

impl<Q, A> Asked<Q, A> {
    /// Waits until the caller has gone.
    pub(super) async fn gone(&mut self) {
        self.answer.closed().await;
    }

    /// A caller that is gone does not want to know.
    pub(super) fn answer(self, answer: A) {
        drop(self.answer.send(answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_group_starts_the_work_and_those_who_left_are_not_in_it() {
        let gathered = Gathered::<u32, ()>::default();
        let (first, _kept) = gathered.join(1);
        let (second, left) = gathered.join(2);
        assert_eq!((first, second), (true, false));
        drop(left);
        let (group, more) = gathered.take();
        assert_eq!((group.iter().map(|asked| asked.question).collect::<Vec<_>>(), more), (vec![1], false));
        assert!(gathered.join(3).0, "the next group has its own first one");
    }

    #[test]
    fn a_group_is_bounded_and_the_rest_stays() {
        let gathered = Gathered::<usize, ()>::default();
        let _callers: Vec<_> = (0..=GATHERED_MAX).map(|number| gathered.join(number).1).collect();
        let (group, more) = gathered.take();
        assert_eq!((group.len(), more), (GATHERED_MAX, true));
        assert!(!gathered.join(0).0, "the rest is still somebody's work");
        assert_eq!(gathered.take().0.len(), 2 - 1, "the caller of the last one has gone");
    }
}
