//! How often each kind of event, fault, refusal and outcome was reached, so that nobody believes a simulation that never
//! went there.

pub(crate) mod names;
mod reachable;

mod tally;

use std::collections::BTreeMap;
use std::fmt;

pub(crate) use tally::Tally;

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    /// Adds what other histories reached.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in other.iter() {
            *self.0.entry(name).or_default() += count;
        }
    }

    pub(crate) fn add_history(&mut self, tally: &Tally) {
        for (name, count) in tally.iter() {
            *self.0.entry(name).or_default() += count;
        }
    }

    /// How often `name` was reached.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Everything that was reached, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }

    /// What is listed as reachable and was never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        reachable::NAMES.iter().copied().filter(|name| self.of(name) == 0).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.0 {
            writeln!(f, "{count:>12}  {name}")?;
        }
        for name in self.missing() {
            writeln!(f, "{:>12}  {name}", "never")?;
        }
        Ok(())
    }
}
