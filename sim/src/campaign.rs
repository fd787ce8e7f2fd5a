//! Many histories in a row.

use crate::coverage::Coverage;
use crate::history::{Failure, History};
use crate::sabotage::Sabotage;

/// Consecutive seeds, and what came of them.
#[derive(Debug, Clone, Default)]
pub struct Campaign {
    /// Histories that happened.
    pub histories: u64,
    /// What they reached.
    pub coverage: Coverage,
    /// Those that broke a promise, shrunken; at most [`Campaign::FAILURES_MAX`].
    pub failures: Vec<Failure>,
    /// How many broke a promise.
    pub broken: u64,
}

impl Campaign {
    /// Failures that are shrunken and kept.
    pub const FAILURES_MAX: usize = 3;
    /// So many histories reach everything that is listed as reachable.
    pub const ENOUGH: u64 = 20_000;

    /// Runs the history of one more seed.
    pub fn run(&mut self, seed: u64) {
        self.take(&History::new(seed));
    }

    /// Whether no promise was broken and, by [`Campaign::ENOUGH`] histories or more, everything was reached that should be.
    #[must_use]
    pub fn held(&self) -> bool {
        self.broken == 0 && (self.histories < Self::ENOUGH || self.coverage.missing().is_empty())
    }

    /// Runs seeds from `first` until a planted fault is found, at most `histories`.
    ///
    /// # Errors
    /// The number of histories that did not find it.
    pub fn hunt(sabotage: Sabotage, first: u64, histories: u64) -> Result<Failure, u64> {
        for seed in first..first + histories {
            if let Err(failure) = History::sabotaged(seed, sabotage).run(&mut Coverage::default()) {
                return Ok(*failure);
            }
        }
        Err(histories)
    }

    fn take(&mut self, history: &History) {
        self.histories += 1;
        if self.failures.len() >= Self::FAILURES_MAX {
            return self.broken += u64::from(history.breaks(&mut self.coverage));
        }
        if let Err(failure) = history.run(&mut self.coverage) {
            self.broken += 1;
            self.failures.push(*failure);
        }
    }
}
