//! One line per step: when it ended, how long it took, what is true now.

use std::fmt::Display;
use std::io::Write as _;
use std::time::Instant;

pub(crate) struct Timeline {
    start: Instant,
    last: Instant,
}

impl Timeline {
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        say("   at s  took s");
        Self { start: now, last: now }
    }

    /// A step ended.
    pub(crate) fn step(&mut self, what: impl Display) {
        let now = Instant::now();
        let (at, took) = (now - self.start, now - self.last);
        self.last = now;
        say(format_args!("{:>7.2} {:>7.2}  {what}", at.as_secs_f64(), took.as_secs_f64()));
    }

    /// More about the step before.
    pub(crate) fn detail(what: impl Display) {
        say(format_args!("{:17}{what}", ""));
    }
}

/// One line for the person. A reader that went away (`| head`) does not keep the demo from cleaning up.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// One line about what went wrong; like [`say`].
pub(crate) fn warn(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
