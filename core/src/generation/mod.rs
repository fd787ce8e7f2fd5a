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
mod collection;
pub mod configuration;
mod driving;
mod preparation;
pub mod preparer;
mod probes;
mod record;
pub mod recovery;
mod rotation;
pub mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use driving::{Drop, Found, Probed, Refusal, Task, Wake};

use crate::limits::OBSERVATIONS_MAX;
use crate::operation::Declaration;
use crate::units::{Generation, Millis};
use crate::wire::payload::{Deployment, Diagnostic, GenerationReference, Observation};
use preparation::{Attempt, Cancel};
use record::{Phase, Readiness, Record};

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
