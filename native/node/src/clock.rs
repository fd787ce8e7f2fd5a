//! The monotonic clock that the machine's times are read from.

use std::time::Duration;

use palisade_core::units::Millis;
use tokio::time::Instant;

/// Milliseconds since the program started. Follows the runtime's clock, so that tests may stop it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(self) -> Millis {
        Millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The first moment at which [`Clock::now`] is `at`.
    pub(crate) fn instant(self, at: Millis) -> Instant {
        self.start + Duration::from_millis(at.0)
    }
}
