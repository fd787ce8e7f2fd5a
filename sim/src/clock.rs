//! The clocks of the parties: each its own, drifting, and never behind itself.

use palisade_core::units::Millis;

/// True time in milliseconds since the history began. Only the world knows it.
pub(crate) type Time = u64;

/// A monotonic clock of one party.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    offset: u64,
    /// Milliseconds gained in a million.
    drift_ppm: i64,
}

impl Clock {
    pub(crate) const fn new(offset: u64, drift_ppm: i64) -> Self {
        Self { offset, drift_ppm }
    }

    /// What this clock shows.
    pub(crate) fn show(&self, now: Time) -> Millis {
        Millis(self.offset + self.local(now))
    }

    /// The first moment, not before `now`, at which this clock shows `at`.
    pub(crate) fn when(&self, at: Millis, now: Time) -> Time {
        if self.show(now) >= at {
            return now;
        }
        let local = at.0.saturating_sub(self.offset);
        let rate = 1_000_000_u128.saturating_add_signed(i128::from(self.drift_ppm));
        let estimate = u128::from(local) * 1_000_000 / rate;
        let mut moment = u64::try_from(estimate).unwrap_or(u64::MAX >> 1).saturating_sub(2).max(now);
        while self.show(moment) < at {
            moment += 1;
        }
        moment
    }

    /// The clock jumps ahead, as after a suspend whose length nobody noticed.
    pub(crate) fn jump(&mut self, ms: u64) {
        self.offset += ms;
    }

    /// A fault that is planted: the clock does not count a suspend.
    pub(crate) fn stand_still(&mut self, ms: u64) {
        self.offset -= ms;
    }

    fn local(&self, now: Time) -> u64 {
        let rate = 1_000_000_u128.saturating_add_signed(i128::from(self.drift_ppm));
        u64::try_from(u128::from(now) * rate / 1_000_000).unwrap_or(u64::MAX >> 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_first_at_which_the_clock_shows_it() {
        for drift in [-20_000, -1, 0, 7, 20_000] {
            let clock = Clock::new(1_000_000, drift);
            for at in [1_000_000, 1_000_001, 1_010_000, 1_123_457] {
                let moment = clock.when(Millis(at), 0);
                assert!(clock.show(moment) >= Millis(at));
                assert!(moment == 0 || clock.show(moment - 1) < Millis(at), "{drift} {at}");
            }
        }
    }
}
