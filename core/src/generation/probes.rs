//! Which generation is probed next, and what its probe changes (node-host §4.4).

use super::record::{Phase, Readiness};
use super::{Probed, Table, Task};
use crate::limits::PROBE_INTERVAL_MS;
use crate::operation::{Declaration, Method, Support};
use crate::units::{Generation, Millis};
use crate::wire::payload::{Checkpoint, Diagnostic};

impl Table {
    pub(super) fn poll_probe(&mut self, now: Millis) -> Option<Task> {
        if now < self.probe_at || self.probing.is_some() {
            return None;
        }
        self.probe_at = now.after(PROBE_INTERVAL_MS);
        self.probe_tick = self.probe_tick.wrapping_add(1);
        let generation = self.next_probe()?;
        self.records.get_mut(&generation).expect("chosen from the records").holds += 1;
        self.probing = Some(generation);
        Some(Task::Probe(generation))
    }

    /// Odd ticks look at the target and the serving pin in turn, even ticks rotate over the rest.
    fn next_probe(&mut self) -> Option<Generation> {
        let probable = |generation: &Generation| self.records[generation].provider().is_some();
        let pinned: Vec<_> = self.announced.into_iter().flat_map(|deployment| self.priority(deployment)).collect();
        if self.probe_tick % 2 == 1 {
            let turn = usize::from(self.probe_tick % 4 == 3);
            let mut preferred = pinned.iter().cycle().skip(turn).take(pinned.len()).copied();
            if let Some(generation) = preferred.find(probable) {
                return Some(generation);
            }
        }
        let rest = self.others(self.probe_cursor).filter(|generation| !pinned.contains(generation));
        let generation = rest.into_iter().find(probable)?;
        self.probe_cursor = Some(generation);
        Some(generation)
    }

    /// Takes the end of the running probe. A missing image or artifact queues a repair.
    pub fn handle_probed(&mut self, generation: Generation, outcome: Probed) {
        if self.probing.take_if(|probing| *probing == generation).is_none() {
            return;
        }
        self.release(generation);
        let phase = self.records.get_mut(&generation).map(|record| &mut record.phase);
        let Some(Phase::Present { readiness, repair, provider }) = phase else { return };
        match outcome {
            Probed::Ready(checkpoint) => {
                let checkpoint = checkpoint.filter(|checkpoint| may_declare(provider, checkpoint));
                (*readiness, *repair) = (Readiness::Ready { checkpoint }, false);
            }
            Probed::NotReady(diagnostic) => {
                *readiness = Readiness::Failed(diagnostic);
                *repair |= needs_repair(diagnostic);
            }
            Probed::Cancelled => {}
        }
    }
}

/// Whether a probe's checkpoint declaration may be passed on: of a provider that has checkpoints, with tokens that a
/// frame can carry (decision 26). A generation without one is as ready as with one.
fn may_declare(provider: &Declaration, checkpoint: &Checkpoint<'_>) -> bool {
    *provider.support(Method::Suspend) == Support::Supported && checkpoint.is_well_formed()
}

/// Whether files are missing that a repair can bring back (node-host §3.4).
fn needs_repair(diagnostic: Diagnostic) -> bool {
    match diagnostic {
        Diagnostic::RuntimeImageUnavailable | Diagnostic::MicrosandboxArtifactsUnavailable => true,
        Diagnostic::ProviderUnavailable
        | Diagnostic::DockerUnavailable
        | Diagnostic::DockerLimitsUnsupported
        | Diagnostic::RuntimeDownloadFailed
        | Diagnostic::KvmUnavailable
        | Diagnostic::CapacityInsufficient => false,
    }
}
