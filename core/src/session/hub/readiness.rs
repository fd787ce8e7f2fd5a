use std::collections::BTreeMap;

use crate::units::Generation;
use crate::wire::payload::{Observation, ObservedState};

/// What one connection said of each generation last (wire §5.5).
///
/// An omitted generation keeps its state; one that Core does not keep is forgotten at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Readiness {
    ready: BTreeMap<Generation, bool>,
}

impl Readiness {
    /// Whether the last word on `generation` was `ready`.
    #[must_use]
    pub fn is_ready(&self, generation: Generation) -> bool {
        self.ready.get(&generation).copied().unwrap_or(false)
    }

    /// Takes over a report of which Core keeps the generations `kept`.
    pub fn record(&mut self, observations: &[Observation<'_>], kept: &[Generation]) {
        for observation in observations {
            if kept.contains(&observation.generation) {
                let ready = matches!(observation.state, ObservedState::Ready { .. });
                self.ready.insert(observation.generation, ready);
            } else {
                self.ready.remove(&observation.generation);
            }
        }
    }

    /// Core no longer keeps `generation`.
    pub fn forget(&mut self, generation: Generation) {
        self.ready.remove(&generation);
    }
}
