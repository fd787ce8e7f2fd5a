//! Incarnations and snapshots: what a provider with checkpoints makes of an allocation (wire §2.3-2.7).
//!
//! The first incarnation is the sandbox that `create` made; later ones are restored from a snapshot, once for each name.

use std::collections::BTreeMap;

use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::units::{Generation, Id};
use palisade_core::wire::IntoOwned as _;
use palisade_core::wire::payload::{Compute, ComputeState, Reference, Resume, Snapshot, Suspend};

use super::{Engine, Sandbox};

/// What exists beside the sandboxes.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    later: BTreeMap<(Id, u64), Later>,
    snapshots: BTreeMap<(Id, String), Captured>,
}

/// An incarnation that was restored.
#[derive(Debug)]
struct Later {
    compute: Compute<'static>,
    generation: Generation,
    status: &'static str,
    /// It ran at least once.
    ran: bool,
}

#[derive(Debug)]
struct Captured {
    snapshot: Snapshot<'static>,
    generation: Generation,
}

/// An answer that carries a state.
pub(super) type Stated = Result<Answer<'static>, Failed<'static>>;

const RUNNING: &str = "running";
const PAUSED: &str = "paused";
const STOPPED: &str = "stopped";
const STARTING: &str = "starting";

/// The name of an incarnation; constructed, never allocated.
pub(super) fn name(reference: Reference, generation: u64, from: Option<Snapshot<'static>>) -> Compute<'static> {
    let name = format!("sim-{}-g{generation}", reference.allocation).into();
    Compute { generation, name, id: "".into(), restored_from: from }
}

/// The snapshot that `suspend` makes of its source.
fn snapshot(suspend: &Suspend<'_>) -> Snapshot<'static> {
    let operation = &suspend.operation_id;
    let text = |prefix: &str| format!("{prefix}-{operation}").into();
    Snapshot {
        reference: format!("{}:s-{operation}", suspend.source.name).into(),
        id: text("snapshot"),
        digest: text("digest"),
        checkpoint_id: text("checkpoint"),
        checkpoint_root: text("root"),
        operation_id: operation.to_string().into(),
        source_generation: suspend.source.generation,
        source_name: suspend.source.name.to_string().into(),
        source_id: suspend.source.id.to_string().into(),
    }
}

impl Sandbox {
    const fn status(&self) -> &'static str {
        match (self.running, self.paused) {
            (true, _) => RUNNING,
            (false, true) => PAUSED,
            (false, false) => STOPPED,
        }
    }

    fn set(&mut self, status: &str) {
        (self.running, self.paused) = (status == RUNNING, status == PAUSED);
    }
}

impl Engine {
    /// Whether an incarnation or a snapshot needs the image of `generation`.
    pub(super) fn kept_for_checkpoints(&self, generation: Generation) -> bool {
        self.checkpoints.later.values().any(|later| later.generation == generation)
            || self.checkpoints.snapshots.values().any(|captured| captured.generation == generation)
    }

    /// Everything that runs stops: the power went, or somebody stopped it.
    pub(crate) fn stop_all(&mut self, only: Option<Id>) {
        for (_, sandbox) in self.sandboxes.iter_mut().filter(|(of, _)| only.is_none_or(|only| only == **of)) {
            sandbox.set(STOPPED);
        }
        for (_, later) in self.checkpoints.later.iter_mut().filter(|((of, _), _)| only.is_none_or(|only| only == *of)) {
            later.status = STOPPED;
        }
    }

    /// Exactly this incarnation, with its status; an empty identity is one that nobody has seen yet.
    fn find(
        &self,
        reference: Reference,
        asked: &Compute<'_>,
    ) -> Result<Option<(Compute<'static>, &'static str)>, Failure> {
        let seen = if asked.generation == 0 {
            self.sandboxes.get(&reference.allocation).map(|sandbox| {
                let id = sandbox.provider_id.clone().into();
                (Compute { id, ..name(reference, 0, None) }, sandbox.status())
            })
        } else {
            let later = self.checkpoints.later.get(&(reference.allocation, asked.generation));
            later.map(|later| (later.compute.clone(), later.status))
        };
        let Some((compute, status)) = seen else { return Ok(None) };
        let known = asked.id.is_empty() || asked.id == compute.id;
        let exact = known && asked.name == compute.name && asked.restored_from == compute.restored_from;
        if exact { Ok(Some((compute, status))) } else { Err(Failure::Ownership) }
    }

    fn set_status(&mut self, allocation: Id, generation: u64, status: &'static str) {
        if generation == 0 {
            if let Some(sandbox) = self.sandboxes.get_mut(&allocation) {
                sandbox.set(status);
            }
        } else if let Some(later) = self.checkpoints.later.get_mut(&(allocation, generation)) {
            later.status = status;
            later.ran |= status == RUNNING;
        }
    }

    /// Whether a command may begin in this incarnation.
    pub(super) fn may_run(&self, reference: Reference, compute: &Compute<'_>) -> Result<bool, Failure> {
        let (_, status) = self.find(reference, compute)?.ok_or(Failure::NotFound)?;
        Ok(status == RUNNING)
    }

    pub(super) fn look_at(&self, reference: Reference, compute: &Compute<'_>) -> Stated {
        let (compute, status) = self.find(reference, compute)?.ok_or(Failure::NotFound)?;
        Ok(state(compute, status, None))
    }

    /// Thaws only the same resident instance.
    pub(super) fn thaw(&mut self, reference: Reference, compute: &Compute<'_>) -> Stated {
        let (compute, status) = self.find(reference, compute)?.ok_or(Failure::Unconfirmed)?;
        if status != RUNNING && status != PAUSED {
            return Err(Failure::Unconfirmed.into());
        }
        self.set_status(reference.allocation, compute.generation, RUNNING);
        Ok(state(compute, RUNNING, None))
    }

    /// Removes one incarnation; true when it was there.
    pub(super) fn kill_incarnation(&mut self, reference: Reference, compute: &Compute<'_>) -> Result<bool, Failure> {
        let there = self.find(reference, compute)?.is_some();
        if compute.generation == 0 {
            self.sandboxes.remove(&reference.allocation);
        } else {
            self.checkpoints.later.remove(&(reference.allocation, compute.generation));
        }
        Ok(there)
    }

    /// Removes one snapshot; true when it was there.
    pub(super) fn delete_snapshot(&mut self, allocation: Id, snapshot: &Snapshot<'_>) -> Result<bool, Failure> {
        let key = (allocation, snapshot.operation_id.to_string());
        match self.checkpoints.snapshots.get(&key) {
            Some(held) if held.snapshot != *snapshot => Err(Failure::Ownership),
            held => {
                let there = held.is_some();
                self.checkpoints.snapshots.remove(&key);
                Ok(there)
            }
        }
    }

    /// Captures a running source: the snapshot is complete before the source is stopped. `goes_on`: it runs until then.
    pub(super) fn capture(
        &mut self,
        reference: Reference,
        suspend: &Suspend<'_>,
        generation: Generation,
        goes_on: bool,
    ) -> Result<(), Failure> {
        let (_, status) = self.find(reference, &suspend.source)?.ok_or(Failure::Unconfirmed)?;
        if status != RUNNING {
            return Err(Failure::Invalid);
        }
        let key = (reference.allocation, suspend.operation_id.to_string());
        self.checkpoints.snapshots.insert(key, Captured { snapshot: snapshot(suspend), generation });
        if !goes_on {
            self.set_status(reference.allocation, suspend.source.generation, PAUSED);
        }
        Ok(())
    }

    /// The captured source stops.
    pub(super) fn stop_source(&mut self, allocation: Id, suspend: &Suspend<'_>) {
        self.set_status(allocation, suspend.source.generation, STOPPED);
    }

    /// What came of a suspend.
    pub(super) fn captured(&self, reference: Reference, suspend: &Suspend<'_>) -> Stated {
        let source = self.find(reference, &suspend.source)?;
        let key = (reference.allocation, suspend.operation_id.to_string());
        if let Some(held) = self.checkpoints.snapshots.get(&key) {
            let status = source.map_or(STOPPED, |(_, status)| status);
            return Ok(state(suspend.source.clone().into_owned(), status, Some(held.snapshot.clone())));
        }
        let (compute, status) = source.ok_or(Failure::Unconfirmed)?;
        let intact = suspend.snapshot.is_none() && (status == RUNNING || status == PAUSED);
        if intact { Ok(state(compute, status, None)) } else { Err(Failure::Unconfirmed.into()) }
    }

    /// Begins to restore to the target's name, once, and only while nothing else of the allocation runs.
    pub(super) fn restore(
        &mut self,
        reference: Reference,
        resume: &Resume<'_>,
        generation: Generation,
        number: u64,
    ) -> Result<(), Failure> {
        let allocation = reference.allocation;
        let key = (allocation, resume.snapshot.operation_id.to_string());
        if self.checkpoints.snapshots.get(&key).map(|held| &held.snapshot)
            != Some(&resume.snapshot.clone().into_owned())
        {
            return Err(Failure::CheckpointUnusable);
        }
        let alive = |status: &str| status == RUNNING || status == PAUSED || status == STARTING;
        let first = self.sandboxes.get(&allocation).is_some_and(|sandbox| alive(sandbox.status()));
        let later = self.checkpoints.later.iter().any(|((of, _), later)| *of == allocation && alive(later.status));
        if first || later {
            return Err(Failure::Unconfirmed);
        }
        let target = resume.target.clone().into_owned();
        let compute = Compute { id: format!("native-{number}").into(), ..target };
        let restored = Later { generation, status: STARTING, ran: false, compute };
        self.checkpoints.later.insert((allocation, resume.target.generation), restored);
        Ok(())
    }

    /// What was restored runs, or does not.
    pub(super) fn restored(&mut self, allocation: Id, target: &Compute<'_>, runs: bool) {
        self.set_status(allocation, target.generation, if runs { RUNNING } else { STOPPED });
    }

    /// What came of a resume. Evidence of what exists travels beside a failure.
    pub(super) fn resumed(&self, reference: Reference, resume: &Resume<'_>) -> Stated {
        if let Some((compute, status)) = self.find(reference, &resume.target)? {
            return Ok(state(compute, status, None));
        }
        let key = (reference.allocation, resume.snapshot.operation_id.to_string());
        let held = self.checkpoints.snapshots.contains_key(&key);
        Err(if held { Failure::Unconfirmed } else { Failure::CheckpointUnusable }.into())
    }

    /// The state of a target beside a failure of its resume.
    pub(super) fn evidence(&self, reference: Reference, target: &Compute<'_>) -> Option<Box<ComputeState<'static>>> {
        match self.look_at(reference, target) {
            Ok(Answer::State(state)) => Some(state),
            Ok(_) | Err(_) => None,
        }
    }
}

fn state(compute: Compute<'static>, status: &'static str, snapshot: Option<Snapshot<'static>>) -> Answer<'static> {
    let (source_stopped, bootstrap_complete) = (status == STOPPED, status != STARTING);
    let status = status.into();
    Answer::State(Box::new(ComputeState { compute, status, bootstrap_complete, snapshot, source_stopped }))
}
