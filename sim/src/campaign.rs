//! Many histories in a row.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

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

/// Consecutive seeds that several threads take from.
#[derive(Debug)]
pub struct Seeds {
    next: AtomicU64,
    end: u64,
    stopped: AtomicBool,
    done: AtomicU64,
    broken: AtomicU64,
}

impl Seeds {
    /// All of them.
    #[must_use]
    pub const fn new(seeds: Range<u64>) -> Self {
        Self {
            next: AtomicU64::new(seeds.start),
            end: seeds.end,
            stopped: AtomicBool::new(false),
            done: AtomicU64::new(0),
            broken: AtomicU64::new(0),
        }
    }

    /// No further one is taken; those that were are still consecutive.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// How many histories happened by now, and how many of them broke a promise.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.broken.load(Ordering::Relaxed))
    }

    fn take(&self) -> Option<u64> {
        let left = |next| (next < self.end && !self.stopped.load(Ordering::Relaxed)).then_some(next + 1);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).ok()
    }
}

impl Campaign {
    /// Runs the histories of all `seeds` on every processor; what comes of them does not depend on how many there are.
    #[must_use]
    pub fn of(seeds: &Seeds) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let parts: Vec<_> = (0..threads).map(|_| scope.spawn(|| Self::part(seeds))).collect();
            let mut whole = Self::default();
            for part in parts {
                whole.add(part.join().expect("a history panics only by a fault of the simulation"));
            }
            whole
        })
    }

    fn part(seeds: &Seeds) -> Self {
        let mut part = Self::default();
        while let Some(seed) = seeds.take() {
            let before = part.broken;
            part.run(seed);
            seeds.done.fetch_add(1, Ordering::Relaxed);
            seeds.broken.fetch_add(part.broken - before, Ordering::Relaxed);
        }
        part
    }

    fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.broken += other.broken;
        self.coverage.add(&other.coverage);
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|failure| failure.seed);
        self.failures.truncate(Self::FAILURES_MAX);
    }

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
