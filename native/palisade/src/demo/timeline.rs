//! One line per step: when it ended, how long it took, what is true now.

use std::fmt::Display;
use std::time::Instant;

pub(crate) struct Timeline {
    start: Instant,
    last: Instant,
}

impl Timeline {
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        println!("   at s  took s");
        Self { start: now, last: now }
    }

    /// A step ended.
    pub(crate) fn step(&mut self, what: impl Display) {
        let now = Instant::now();
        let (at, took) = (now - self.start, now - self.last);
        self.last = now;
        println!("{:>7.2} {:>7.2}  {what}", at.as_secs_f64(), took.as_secs_f64());
    }

    /// More about the step before.
    pub(crate) fn detail(what: impl Display) {
        println!("{:17}{what}", "");
    }
}
