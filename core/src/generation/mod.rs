//! A node's generation table (node-host §4.4, wire §4.10-4.11, §7).
//!
//! ```text
//!  announced, recovered          loaded                      found half collected
//!         │                        │                                  │
//!         ▼     preparation        ▼      probes                      ▼
//!      Absent ───────────► Preparing ──► Present ─────────┐      Collecting ◄──┐
//!         ▲                 │      ▲   unproven │         │           │        │ failed
//!         └──── failed ─────┘      └─ repair ── ready/failed          │ grant  │
//!         │                                               │           ▼        │
//!         └───────────────────── drop grant ──────────────┴──────► Removing ───┴─► gone
//! ```
//!
//! - Never is a generation collected that is held, prepared, probed, the target or the serving pin
//!   (`a_drop_grant_waits_for_every_hold`, `target_serving_pin_probed_and_foreign_generations_are_not_dropped`,
//!   `no_history_removes_what_is_in_use`).
//! - Never is a generation whose removal began prepared, probed, acquired or observed again
//!   (`an_unfinished_collection_is_never_prepared_or_used`).
//! - Never does a known number get another digest (`a_conflicting_digest_is_refused_and_changes_nothing`).
//! - Never is anything prepared before the first announcement of the process
//!   (`nothing_is_prepared_before_the_first_announcement`).
//!
//! # Driving it
//!
//! ```
//! use palisade_core::generation::{Found, Probed, Table, Task};
//! use palisade_core::testing::{declaration, deployment, generation, reference};
//! use palisade_core::units::Millis;
//!
//! let (mut table, now) = (Table::new([(reference(1), Found::Provider(declaration()))]), Millis(0));
//! assert_eq!(table.poll_task(now), Some(Task::Probe(generation(1))));
//! table.handle_probed(generation(1), Probed::Ready(None));
//! assert!(table.is_ready(generation(1)));
//!
//! // A new target is prepared, then probed; the one that serves stays ready meanwhile.
//! table.announce(deployment(2, Some(1))).unwrap();
//! assert_eq!(table.poll_task(now), Some(Task::Prepare(reference(2))));
//! table.handle_prepared(now, generation(2), Ok(declaration()));
//! assert!(table.is_ready(generation(1)) && !table.is_ready(generation(2)));
//!
//! // Probes start one a second, and not every second has one to start.
//! let task = loop {
//!     let (at, _) = table.poll_timeout().unwrap();
//!     if let Some(task) = table.poll_task(at) {
//!         break task;
//!     }
//! };
//! assert!(matches!(task, Task::Probe(_)));
//! ```

pub mod assignment;
pub mod checkpoint;
pub mod configuration;
pub mod preparer;
mod record;
pub mod recovery;
mod rotation;
pub mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::limits::{OBSERVATIONS_MAX, PREPARATION_TIMEOUT_MS, PROBE_INTERVAL_MS, REFERENCES_MAX};
use crate::operation::{Declaration, Method, Support};
use crate::units::{Generation, Millis};
use crate::wire::payload::{Checkpoint, Deployment, Diagnostic, GenerationReference, Observation};
use record::{Phase, Readiness, Record};

/// What the node found on its disk for one generation at start (node-host §3.10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Found {
    /// A provider was constructed; it is `preparing` until a probe answers.
    Provider(Declaration),
    /// Its files are missing or its preparation is unfinished: repaired before anything else.
    Recovery,
    /// A collection is unfinished: retention candidate only.
    Collecting,
}

/// Why an announcement or a grant is an ownership violation (wire §4.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The serving pin is above the target.
    #[error("serving generation {serving} is above target {target}")]
    ServingAboveTarget {
        /// The pin.
        serving: Generation,
        /// The target.
        target: Generation,
    },
    /// A known number came with another digest.
    #[error("generation {0} is known with another specification digest")]
    DigestChanged(Generation),
    /// The target or the serving pin is being collected here.
    #[error("generation {0} is being collected on this node")]
    Collected(Generation),
}

/// Background work that the table asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Prepare or repair it; answer with [`Table::handle_prepared`].
    Prepare(GenerationReference),
    /// End the running preparation; it still answers with [`Table::handle_prepared`].
    CancelPreparation(Generation),
    /// Probe it, within [`crate::limits::PROBE_TIMEOUT_MS`]; answer with [`Table::handle_probed`].
    Probe(Generation),
}

/// What a probe came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Probed {
    /// A sandbox could be created now.
    Ready(Option<Checkpoint<'static>>),
    /// It could not, for this declared class.
    NotReady(Diagnostic),
    /// The probe was given up; nothing changes.
    Cancelled,
}

/// What became of a drop grant (wire §7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drop {
    /// Nobody can use it from here on; remove it, and answer with [`Table::handle_removed`].
    Remove,
    /// It is not known here.
    Unknown,
    /// The digest is not ours: never our generation.
    Foreign,
    /// Held, prepared, being removed, the target or the serving pin; or another one is prepared, which needs the same lock
    /// of the installation: asked again later.
    Busy,
}

/// Why the table wants to be driven again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wake {
    /// The next probe is due.
    Probe,
    /// A preparation may be tried again.
    Prepare,
    /// The running preparation, or the running removal, used up its time.
    Deadline,
}

/// The one preparation of the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Attempt {
    generation: Generation,
    deadline: Millis,
    cancel: Cancel,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Cancel {
    No,
    Wanted,
    Asked,
}

/// All generations of one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Table {
    records: BTreeMap<Generation, Record>,
    announced: Option<Deployment>,
    attempt: Option<Attempt>,
    probing: Option<Generation>,
    probe_at: Millis,
    probe_tick: u64,
    probe_cursor: Option<Generation>,
    prepare_cursor: Option<Generation>,
    /// Preparations of target and serving pin since one of the others that waited had its turn.
    passed_over: usize,
    observe_cursor: Option<Generation>,
}

impl Table {
    /// The table of what was found at start.
    #[must_use]
    pub fn new(found: impl IntoIterator<Item = (GenerationReference, Found)>) -> Self {
        let record = |(reference, found): (GenerationReference, Found)| {
            let phase = match found {
                Found::Provider(provider) => Phase::Present { provider, readiness: Readiness::Unproven, repair: false },
                Found::Recovery => Phase::Absent { diagnostic: Some(Diagnostic::ProviderUnavailable) },
                Found::Collecting => Phase::Collecting,
            };
            (reference.generation, Record::new(reference.specification_digest, phase))
        };
        Self { records: found.into_iter().map(record).collect(), ..Self::default() }
    }

    /// The last accepted announcement.
    #[must_use]
    pub fn announced(&self) -> Option<Deployment> {
        self.announced
    }

    /// Takes Core's announcement: all of it or nothing. An older target is ignored.
    ///
    /// # Errors
    /// An ownership violation; the table is unchanged.
    pub fn announce(&mut self, deployment: Deployment) -> Result<(), Refusal> {
        let target = deployment.generation;
        if let Some(serving) = deployment.serving_generation.filter(|&serving| serving > target) {
            return Err(Refusal::ServingAboveTarget { serving, target });
        }
        let known = self.announced.map(|known| known.generation);
        if known.is_some_and(|known| target < known) {
            return Ok(());
        }
        self.check_announced(&deployment)?;
        if known != Some(target) {
            self.retarget(target);
        }
        let absent = || Record::new(deployment.specification_digest, Phase::Absent { diagnostic: None });
        self.records.entry(target).or_insert_with(absent);
        self.announced = Some(deployment);
        Ok(())
    }

    fn check_announced(&self, deployment: &Deployment) -> Result<(), Refusal> {
        let target = deployment.generation;
        if self.records.get(&target).is_some_and(|record| record.digest != deployment.specification_digest) {
            return Err(Refusal::DigestChanged(target));
        }
        let pinned = [Some(target), deployment.serving_generation];
        let collected = |generation: &Generation| self.records.get(generation).is_some_and(Record::is_collected);
        pinned.into_iter().flatten().find(collected).map_or(Ok(()), |generation| Err(Refusal::Collected(generation)))
    }

    fn retarget(&mut self, target: Generation) {
        self.passed_over = 0;
        if let Some(attempt) = &mut self.attempt
            && attempt.generation != target
            && attempt.cancel == Cancel::No
        {
            attempt.cancel = Cancel::Wanted;
        }
    }

    /// Holds the generation's provider for one operation; `false` when it has none that may be used.
    #[must_use]
    pub fn acquire(&mut self, generation: Generation) -> bool {
        let Some(record) = self.records.get_mut(&generation).filter(|record| record.provider().is_some()) else {
            return false;
        };
        record.holds += 1;
        true
    }

    /// Gives back one hold, when whatever used it has really ended.
    ///
    /// # Panics
    /// Without a hold to give back.
    pub fn release(&mut self, generation: Generation) {
        let record = self.records.get_mut(&generation).expect("a held generation is never removed");
        record.holds = record.holds.checked_sub(1).expect("each release follows one hold");
    }

    /// Whether the last probe found it ready.
    #[must_use]
    pub fn is_ready(&self, generation: Generation) -> bool {
        self.records.get(&generation).is_some_and(Record::is_ready)
    }

    /// What the generation's provider supports; `None` when it has none that may be used.
    #[must_use]
    pub fn declaration(&self, generation: Generation) -> Option<&Declaration> {
        self.records.get(&generation).and_then(Record::provider)
    }

    /// The next piece of background work, if one may start now.
    pub fn poll_task(&mut self, now: Millis) -> Option<Task> {
        self.poll_cancel(now).or_else(|| self.poll_preparation(now)).or_else(|| self.poll_probe(now))
    }

    fn poll_cancel(&mut self, now: Millis) -> Option<Task> {
        let attempt = self.attempt.as_mut().filter(|attempt| match attempt.cancel {
            Cancel::No => attempt.deadline <= now,
            Cancel::Wanted => true,
            Cancel::Asked => false,
        })?;
        attempt.cancel = Cancel::Asked;
        Some(Task::CancelPreparation(attempt.generation))
    }

    fn poll_preparation(&mut self, now: Millis) -> Option<Task> {
        let deployment = self.announced.filter(|_| self.attempt.is_none() && !self.is_removing())?;
        let eligible = |generation: &Generation| {
            let record = &self.records[generation];
            record.wants_preparation() && record.retry.at <= now
        };
        let pinned: Vec<_> = self.priority(deployment).collect();
        let first = pinned.iter().copied().find(eligible);
        let next = self.others(self.prepare_cursor).filter(|generation| !pinned.contains(generation)).find(eligible);
        // Target and serving pin come first once each: two that fail slowly would otherwise take turns for ever.
        let generation = if self.passed_over < 2 { first.or(next) } else { next.or(first) }?;
        if Some(generation) == next {
            (self.prepare_cursor, self.passed_over) = (next, 0);
        } else if next.is_some() {
            self.passed_over += 1;
        }
        let record = self.records.get_mut(&generation).expect("found above");
        let provider = match std::mem::replace(&mut record.phase, Phase::Preparing { provider: None }) {
            Phase::Present { provider, .. } => Some(provider),
            Phase::Absent { .. } | Phase::Preparing { .. } | Phase::Collecting | Phase::Removing => None,
        };
        record.phase = Phase::Preparing { provider };
        self.attempt = Some(Attempt { generation, deadline: now.after(PREPARATION_TIMEOUT_MS), cancel: Cancel::No });
        Some(Task::Prepare(GenerationReference { generation, specification_digest: record.digest }))
    }

    /// Takes the end of the running preparation: the provider's declaration, or the class of the typed cause. The cause
    /// of one that was cancelled is the cancellation, whatever it says.
    pub fn handle_prepared(&mut self, now: Millis, generation: Generation, outcome: Result<Declaration, Diagnostic>) {
        let Some(attempt) = self.attempt.take_if(|attempt| attempt.generation == generation) else { return };
        let outcome = outcome.map_err(|diagnostic| match attempt.cancel {
            Cancel::No => diagnostic,
            Cancel::Wanted | Cancel::Asked => Diagnostic::ProviderUnavailable,
        });
        let Some(record) = self.records.get_mut(&generation) else { return };
        let previous = std::mem::replace(&mut record.phase, Phase::Absent { diagnostic: None });
        record.phase = match (outcome, previous) {
            (Ok(provider), _) => {
                record.retry = record::Retry::default();
                Phase::Present { provider, readiness: Readiness::Unproven, repair: false }
            }
            (Err(diagnostic), Phase::Preparing { provider: Some(provider) }) => {
                record.retry.failed(now);
                Phase::Present { provider, readiness: Readiness::Failed(diagnostic), repair: true }
            }
            (Err(diagnostic), _) => {
                record.retry.failed(now);
                Phase::Absent { diagnostic: Some(diagnostic) }
            }
        };
    }

    fn poll_probe(&mut self, now: Millis) -> Option<Task> {
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

    /// At most eight observations: target, serving pin, then the others from a rotating cursor (wire §7.5).
    pub fn observe(&mut self) -> Vec<Observation<'static>> {
        let pinned: Vec<_> = self.announced.into_iter().flat_map(|deployment| self.priority(deployment)).collect();
        let rest = self.others(self.observe_cursor).filter(|generation| !pinned.contains(generation));
        let observed = |generation: Generation| {
            let record = &self.records[&generation];
            let specification_digest = record.digest;
            record.observed().map(|state| Observation { generation, specification_digest, state })
        };
        let batch: Vec<_> = pinned.iter().copied().chain(rest).filter_map(observed).take(OBSERVATIONS_MAX).collect();
        let last = batch.iter().rev().map(|observation| observation.generation).find(|last| !pinned.contains(last));
        self.observe_cursor = last.or(self.observe_cursor);
        batch
    }

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

    /// When the table may have work next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Millis, Wake)> {
        let probable = self.probing.is_none() && self.records.values().any(|record| record.provider().is_some());
        let probe = probable.then_some((self.probe_at, Wake::Probe));
        let open = self.announced.is_some() && self.attempt.is_none() && !self.is_removing();
        let waiting = self.records.values().filter(|record| open && record.wants_preparation());
        let prepare = waiting.map(|record| record.retry.at).min().map(|at| (at, Wake::Prepare));
        let attempt = self.attempt.as_ref().filter(|attempt| attempt.cancel == Cancel::No);
        let deadline = attempt.map(|attempt| (attempt.deadline, Wake::Deadline));
        probe.into_iter().chain(prepare).chain(deadline).min_by_key(|(at, _)| *at)
    }

    /// A removal and a preparation would need the same lock of the installation, and the second one would fail.
    fn is_removing(&self) -> bool {
        self.records.values().any(|record| matches!(record.phase, Phase::Removing))
    }

    /// Target and serving pin, once each, as far as they are known here.
    fn priority(&self, deployment: Deployment) -> impl Iterator<Item = Generation> + use<'_> {
        let target = deployment.generation;
        let serving = deployment.serving_generation.filter(move |&serving| serving != target);
        std::iter::once(target).chain(serving).filter(|generation| self.records.contains_key(generation))
    }

    /// All generations in ascending order, starting after `cursor` and wrapping.
    fn others(&self, cursor: Option<Generation>) -> impl Iterator<Item = Generation> + use<'_> {
        rotation::after(&self.records, cursor).map(|(&generation, _)| generation)
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
