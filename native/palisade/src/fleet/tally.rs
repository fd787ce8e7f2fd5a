//! What happened to the nodes, counted by all of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Different reasons that are told apart; a Core that invents new ones is summed up.
const REASONS_MAX: usize = 32;
const OTHER: &str = "other reasons";

/// Counts and latencies. Heartbeats count only while [`Tally::count`] is on.
#[derive(Default)]
pub(crate) struct Tally {
    counting: AtomicBool,
    open: watch::Sender<u32>,
    opened: AtomicU32,
    sent: AtomicU64,
    latencies_us: Mutex<Vec<u32>>,
    refused: Mutex<Reasons>,
    ended: Mutex<Reasons>,
}

/// How often, by reason.
pub(crate) type Reasons = BTreeMap<String, u64>;

impl Tally {
    pub(crate) fn count(&self, counting: bool) {
        self.counting.store(counting, Ordering::Relaxed);
    }

    pub(crate) fn opened_one(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.open.send_modify(|open| *open += 1);
    }

    pub(crate) fn closed_one(&self) {
        self.open.send_modify(|open| *open -= 1);
    }

    /// Connections that are welcome and not ended.
    pub(crate) fn open(&self) -> u32 {
        *self.open.borrow()
    }

    /// Connections that were ever welcome.
    pub(crate) fn opened(&self) -> u32 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Waits until this many connections are open at once.
    pub(crate) async fn reached(&self, nodes: u32) {
        // We hold the sender: it does not end before us.
        let _ = self.open.subscribe().wait_for(|open| *open >= nodes).await;
    }

    /// A heartbeat is sent; tells whether it counts.
    pub(crate) fn sent(&self) -> bool {
        let counts = self.counting.load(Ordering::Relaxed);
        if counts {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        counts
    }

    pub(crate) fn heartbeats(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// A heartbeat that counts was acknowledged.
    pub(crate) fn acknowledged(&self, after: Duration) {
        lock(&self.latencies_us).push(u32::try_from(after.as_micros()).unwrap_or(u32::MAX));
    }

    /// Waits for the acknowledgements that are still on the way, for a bounded time.
    pub(crate) async fn settle(&self, bound: Duration) {
        let end = tokio::time::Instant::now() + bound;
        while (lock(&self.latencies_us).len() as u64) < self.heartbeats() && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Latencies in microseconds, ascending.
    pub(crate) fn latencies_us(&self) -> Vec<u32> {
        let mut latencies = lock(&self.latencies_us).clone();
        latencies.sort_unstable();
        latencies
    }

    pub(crate) fn refused(&self, reason: String) {
        add(&self.refused, reason);
    }

    pub(crate) fn ended(&self, reason: String) {
        add(&self.ended, reason);
    }

    pub(crate) fn refusals(&self) -> Reasons {
        lock(&self.refused).clone()
    }

    pub(crate) fn ends(&self) -> Reasons {
        lock(&self.ended).clone()
    }
}

fn add(reasons: &Mutex<Reasons>, reason: String) {
    let mut reasons = lock(reasons);
    let told = reasons.len() < REASONS_MAX || reasons.contains_key(&reason);
    *reasons.entry(if told { reason } else { OTHER.to_owned() }).or_default() += 1;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_heartbeats_of_the_measured_time_count() {
        let tally = Tally::default();
        assert!(!tally.sent());
        tally.count(true);
        assert!(tally.sent());
        tally.count(false);
        assert!(!tally.sent());
        assert_eq!(tally.heartbeats(), 1);
    }

    #[test]
    fn reasons_beyond_the_limit_are_summed_up() {
        let tally = Tally::default();
        for reason in 0..REASONS_MAX + 5 {
            tally.refused(reason.to_string());
        }
        tally.refused("0".to_owned());
        let refusals = tally.refusals();
        assert_eq!((refusals[OTHER], refusals["0"], refusals.len()), (5, 2, REASONS_MAX + 1));
    }
}
