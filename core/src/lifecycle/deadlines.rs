//! Deadlines that are stored as times of the database's clock, and what becomes of them when that clock jumps.
//!
//! The stored time is the authority whenever somebody sees it for the first time, above all after a restart. From then on
//! the time left is counted on a clock that cannot jump: setting the database's clock neither extends nor skips the rest.

use std::collections::BTreeMap;

use crate::admin::time::Timestamp;
use crate::units::Millis;

/// The deadlines that one process has seen; losing them loses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Deadlines<K>(BTreeMap<K, Seen>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Seen {
    stored: Timestamp,
    due: Millis,
}

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    /// Whether the deadline `stored` of `of` has passed. `database` and `now` are read at the same moment. Another stored
    /// time is another deadline.
    pub fn passed(&mut self, of: K, stored: Timestamp, database: Timestamp, now: Millis) -> bool {
        let fresh = Seen { stored, due: now.after(stored.since(database)) };
        let seen = self.0.entry(of).or_insert(fresh);
        if seen.stored != stored {
            *seen = fresh;
        }
        now >= seen.due
    }

    /// Forgets everything but `kept`.
    pub fn retain(&mut self, kept: impl Fn(&K) -> bool) {
        self.0.retain(|of, _| kept(of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: Timestamp = Timestamp(1_000_000);
    const FIRST: Timestamp = Timestamp(940_000);

    fn seen() -> Deadlines<u8> {
        let mut deadlines = Deadlines::default();
        assert!(!deadlines.passed(1, STORED, FIRST, Millis(0)), "a minute is left");
        deadlines
    }

    /// E25. A clock that is set forward skips nothing, one that is set back extends nothing.
    #[test]
    fn a_jump_of_the_clock_moves_no_deadline_that_was_seen() {
        let mut deadlines = seen();
        assert!(!deadlines.passed(1, STORED, Timestamp(9_000_000), Millis(59_999)));
        assert!(deadlines.passed(1, STORED, Timestamp(0), Millis(60_000)));
    }

    /// E25. After a restart the stored time alone decides.
    #[test]
    fn the_stored_time_decides_at_first_sight() {
        assert!(Deadlines::default().passed(1, STORED, STORED, Millis(5)));
        assert!(Deadlines::default().passed(1, STORED, Timestamp(1_000_001), Millis(0)));
        assert!(!Deadlines::default().passed(1, STORED, Timestamp(999_999), Millis(u64::MAX - 1)));
    }

    #[test]
    fn another_stored_time_is_another_deadline() {
        let mut deadlines = seen();
        let later = Timestamp(1_060_000);
        assert!(!deadlines.passed(1, later, STORED, Millis(60_000)));
        assert!(!deadlines.passed(2, later, STORED, Millis(0)));
        assert!(deadlines.passed(1, later, STORED, Millis(120_000)));
    }

    #[test]
    fn what_is_forgotten_is_seen_anew() {
        let mut deadlines = seen();
        deadlines.retain(|of| *of != 1);
        assert!(deadlines.passed(1, STORED, STORED, Millis(0)));
    }
}
