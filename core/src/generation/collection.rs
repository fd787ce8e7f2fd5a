//! Which generations Core is asked about, and what becomes of those that nobody needs (wire §7.1, §7.4).

use super::record::Phase;
use super::{Drop, Table, rotation};
use crate::limits::REFERENCES_MAX;
use crate::units::Generation;
use crate::wire::payload::GenerationReference;

impl Table {
    /// At most eight generations to ask Core about, ascending after `cursor` and wrapping (wire §7.1).
    #[must_use]
    pub fn candidates(&self, cursor: Option<Generation>) -> Vec<GenerationReference> {
        rotation::after(&self.records, cursor)
            .filter(|(_, record)| !matches!(record.phase, Phase::Removing))
            .map(|(&generation, record)| GenerationReference { generation, specification_digest: record.digest })
            .take(REFERENCES_MAX)
            .collect()
    }

    /// Takes Core's word that nobody needs this generation any more (wire §7.4).
    pub fn drop_granted(&mut self, reference: GenerationReference) -> Drop {
        let pinned = self.announced.is_some_and(|deployment| {
            deployment.generation == reference.generation || deployment.serving_generation == Some(reference.generation)
        });
        let Some(record) = self.records.get_mut(&reference.generation) else { return Drop::Unknown };
        if record.digest != reference.specification_digest {
            return Drop::Foreign;
        }
        let free = match record.phase {
            Phase::Absent { .. } | Phase::Present { .. } | Phase::Collecting => record.holds == 0 && !pinned,
            Phase::Preparing { .. } | Phase::Removing => false,
        };
        if !free || self.attempt.is_some() {
            return Drop::Busy;
        }
        record.phase = Phase::Removing;
        Drop::Remove
    }

    /// Takes the end of a removal. One that did not finish waits for a new grant.
    pub fn handle_removed(&mut self, generation: Generation, finished: bool) {
        let Some(record) = self.records.get_mut(&generation) else { return };
        if !matches!(record.phase, Phase::Removing) {
            return;
        }
        if finished {
            self.records.remove(&generation);
        } else {
            record.phase = Phase::Collecting;
        }
    }

    /// A removal and a preparation would need the same lock of the installation, and the second one would fail.
    pub(super) fn is_removing(&self) -> bool {
        self.records.values().any(|record| matches!(record.phase, Phase::Removing))
    }
}
