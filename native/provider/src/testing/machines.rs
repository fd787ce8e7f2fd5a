//! Sandboxes in memory, with their incarnations and snapshots (node-host §8.5, §8.7).

use std::collections::BTreeMap;

use palisade_core::outcome::Failure;
use palisade_core::wire::payload::{Compute, ComputeState, Reference, Resume, Snapshot, Suspend};

/// Everything that exists.
#[derive(Default)]
pub(super) struct Machines(BTreeMap<Reference, Machine>);

/// What exists of one allocation.
#[derive(Default)]
struct Machine {
    incarnations: BTreeMap<u64, Incarnation>,
    snapshots: BTreeMap<String, Snapshot<'static>>,
}

struct Incarnation {
    compute: Compute<'static>,
    status: String,
}

/// The name of an incarnation; constructed, never allocated.
pub(super) fn name(reference: Reference, generation: u64, from: Option<Snapshot<'static>>) -> Compute<'static> {
    let name = format!("test-{}-g{generation}", reference.allocation).into();
    Compute { generation, name, id: "".into(), restored_from: from }
}

/// The native identity of an incarnation.
pub(super) fn native_id(reference: Reference, generation: u64) -> String {
    format!("local:{}:{generation}", reference.allocation)
}

impl Machines {
    /// Allocations of which anything exists.
    pub(super) fn references(&self) -> Vec<Reference> {
        self.0.iter().filter(|(_, machine)| !machine.is_empty()).map(|(reference, _)| *reference).collect()
    }

    pub(super) fn incarnations(&self, reference: Reference) -> Vec<(u64, String)> {
        let machine = self.0.get(&reference).into_iter();
        machine.flat_map(|machine| &machine.incarnations).map(|(at, seen)| (*at, seen.status.clone())).collect()
    }

    pub(super) fn snapshots(&self, reference: Reference) -> usize {
        self.0.get(&reference).map_or(0, |machine| machine.snapshots.len())
    }

    pub(super) fn is_running(&self, reference: Reference) -> bool {
        self.incarnations(reference).iter().any(|(_, status)| status == "running")
    }

    pub(super) fn create(&mut self, reference: Reference) -> Result<(), Failure> {
        if self.first(reference).is_some() {
            return Err(Failure::Exists);
        }
        self.set(reference, Some("running"));
        Ok(())
    }

    /// The state of the first incarnation.
    pub(super) fn first(&self, reference: Reference) -> Option<String> {
        Some(self.0.get(&reference)?.incarnations.get(&0)?.status.clone())
    }

    pub(super) fn set(&mut self, reference: Reference, status: Option<&str>) {
        let machine = self.0.entry(reference).or_default();
        match status {
            Some(status) => {
                let compute = Compute { id: native_id(reference, 0).into(), ..name(reference, 0, None) };
                machine.incarnations.insert(0, Incarnation { compute, status: status.to_owned() });
            }
            None => drop(machine.incarnations.remove(&0)),
        }
    }

    /// An incarnation by its name, whatever its identity.
    pub(super) fn named(&self, reference: Reference, compute: &Compute<'_>) -> Option<ComputeState<'static>> {
        let seen = self.0.get(&reference)?.incarnations.get(&compute.generation)?;
        (seen.compute.restored_from == compute.restored_from).then(|| seen.state())
    }

    /// Exactly this incarnation; an empty identity is one that nobody has seen yet.
    pub(super) fn look(&self, reference: Reference, compute: &Compute<'_>) -> Result<ComputeState<'static>, Failure> {
        let seen = self.0.get(&reference).and_then(|machine| machine.incarnations.get(&compute.generation));
        let seen = seen.ok_or(Failure::NotFound)?;
        if seen.is(compute) { Ok(seen.state()) } else { Err(Failure::Ownership) }
    }

    /// Thaws only the same resident instance.
    pub(super) fn thaw(
        &mut self,
        reference: Reference,
        compute: &Compute<'_>,
    ) -> Result<ComputeState<'static>, Failure> {
        let seen = self.incarnation(reference, compute)?.ok_or(Failure::Unconfirmed)?;
        if !matches!(&*seen.status, "running" | "paused") {
            return Err(Failure::Unconfirmed);
        }
        "running".clone_into(&mut seen.status);
        Ok(seen.state())
    }

    pub(super) fn kill(&mut self, reference: Reference, compute: &Compute<'_>) -> Result<(), Failure> {
        self.incarnation(reference, compute)?;
        if let Some(machine) = self.0.get_mut(&reference) {
            machine.incarnations.remove(&compute.generation);
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, reference: Reference, snapshot: &Snapshot<'_>) -> Result<(), Failure> {
        let Some(machine) = self.0.get_mut(&reference) else { return Ok(()) };
        match machine.snapshots.get(&*snapshot.operation_id) {
            Some(held) if held != snapshot => Err(Failure::Ownership),
            Some(_) | None => {
                machine.snapshots.remove(&*snapshot.operation_id);
                Ok(())
            }
        }
    }

    /// Captures once for each operation, then stops the source.
    pub(super) fn suspend(
        &mut self,
        reference: Reference,
        suspend: &Suspend<'_>,
    ) -> Result<ComputeState<'static>, Failure> {
        let machine = self.0.entry(reference).or_default();
        let captured = machine.snapshots.get(&*suspend.operation_id).cloned();
        let source = machine.incarnations.get_mut(&suspend.source.generation).filter(|seen| seen.is(&suspend.source));
        if let Some(snapshot) = captured {
            let status = source.map_or_else(|| "stopped".to_owned(), |source| source.status.clone());
            let compute = owned(&suspend.source);
            return Ok(shown(compute, &status, Some(snapshot)));
        }
        let source = source.ok_or(Failure::Unconfirmed)?;
        if suspend.observe_only {
            let intact = suspend.snapshot.is_none() && matches!(&*source.status, "running" | "paused");
            return if intact { Ok(source.state()) } else { Err(Failure::Unconfirmed) };
        }
        if source.status != "running" {
            return Err(Failure::Invalid);
        }
        let snapshot = capture(&source.compute, &suspend.operation_id);
        "stopped".clone_into(&mut source.status);
        let state = shown(source.compute.clone(), "suspended", Some(snapshot.clone()));
        machine.snapshots.insert(suspend.operation_id.to_string(), snapshot);
        Ok(ComputeState { source_stopped: true, ..state })
    }

    /// Restores to the target's name, once.
    pub(super) fn resume(
        &mut self,
        reference: Reference,
        resume: &Resume<'_>,
    ) -> Result<ComputeState<'static>, Failure> {
        if resume.target.restored_from.as_ref() != Some(&resume.snapshot) {
            return Err(Failure::Invalid);
        }
        if let Some(seen) = self.incarnation(reference, &resume.target)? {
            return Ok(seen.state());
        }
        let machine = self.0.entry(reference).or_default();
        if machine.snapshots.get(&*resume.snapshot.operation_id) != Some(&resume.snapshot) {
            return Err(Failure::CheckpointUnusable);
        }
        let alive = |seen: &Incarnation| matches!(&*seen.status, "running" | "paused");
        if resume.observe_only || !resume.target.id.is_empty() || machine.incarnations.values().any(alive) {
            return Err(Failure::Unconfirmed);
        }
        let generation = resume.target.generation;
        let compute = Compute { id: native_id(reference, generation).into(), ..owned(&resume.target) };
        let restored = Incarnation { compute, status: "running".to_owned() };
        let state = restored.state();
        machine.incarnations.insert(generation, restored);
        Ok(state)
    }

    fn incarnation(
        &mut self,
        reference: Reference,
        compute: &Compute<'_>,
    ) -> Result<Option<&mut Incarnation>, Failure> {
        let machine = self.0.entry(reference).or_default();
        match machine.incarnations.get_mut(&compute.generation) {
            Some(seen) if seen.is(compute) => Ok(Some(seen)),
            Some(_) => Err(Failure::Ownership),
            None => Ok(None),
        }
    }
}

impl Machine {
    fn is_empty(&self) -> bool {
        self.incarnations.is_empty() && self.snapshots.is_empty()
    }
}

impl Incarnation {
    fn is(&self, asked: &Compute<'_>) -> bool {
        let known = asked.id.is_empty() || asked.id == self.compute.id;
        known && asked.name == self.compute.name && asked.restored_from == self.compute.restored_from
    }

    fn state(&self) -> ComputeState<'static> {
        ComputeState { snapshot: None, source_stopped: false, ..shown(self.compute.clone(), &self.status, None) }
    }
}

fn shown(compute: Compute<'static>, status: &str, snapshot: Option<Snapshot<'static>>) -> ComputeState<'static> {
    let source_stopped = matches!(status, "stopped" | "crashed");
    ComputeState { compute, status: status.to_owned().into(), bootstrap_complete: true, snapshot, source_stopped }
}

fn owned(compute: &Compute<'_>) -> Compute<'static> {
    palisade_core::wire::IntoOwned::into_owned(compute.clone())
}

fn capture(source: &Compute<'_>, operation: &str) -> Snapshot<'static> {
    let text = |prefix: &str| format!("{prefix}-{operation}").into();
    Snapshot {
        reference: format!("{}:s-{operation}", source.name).into(),
        id: text("snapshot"),
        digest: text("digest"),
        checkpoint_id: text("checkpoint"),
        checkpoint_root: text("root"),
        operation_id: operation.to_owned().into(),
        source_generation: source.generation,
        source_name: source.name.to_string().into(),
        source_id: source.id.to_string().into(),
    }
}
