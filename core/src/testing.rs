//! Plain values for tests and examples, the same ones everywhere. Only with the feature `testing`.
//!
//! Every value is valid and follows from its number, so that two places that name the same number mean the same thing.

use crate::operation::{Declaration, Support};
use crate::units::{Digest, Generation, Id, OwnerEpoch};
use crate::wire::payload::{Deployment, GenerationReference, Health, Identity, Observation, ObservedState, Reference};

/// The identifier with this number.
#[must_use]
pub fn id(number: u64) -> Id {
    Id::parse(&format!("00000000-0000-4000-8000-{number:012x}")).expect("twelve digits at most")
}

/// The generation with this number, at least 1.
#[must_use]
pub fn generation(number: u64) -> Generation {
    Generation::new(number).expect("a positive number")
}

/// The owner epoch with this number, at least 1.
#[must_use]
pub fn epoch(number: u64) -> OwnerEpoch {
    OwnerEpoch::new(number).expect("a positive number")
}

/// The one digest of the generation with this number.
#[must_use]
pub fn digest(number: u64) -> Digest {
    Digest::of(&number.to_be_bytes())
}

/// The generation with this number, by its digest.
#[must_use]
pub fn reference(number: u64) -> GenerationReference {
    GenerationReference { generation: generation(number), specification_digest: digest(number) }
}

/// The sandbox of this allocation.
#[must_use]
pub fn sandbox(allocation: u64) -> Reference {
    Reference { tenant: id(1), environment: id(2), allocation: id(allocation) }
}

/// An announcement of this target and serving pin.
#[must_use]
pub fn deployment(target: u64, serving: Option<u64>) -> Deployment {
    Deployment {
        generation: generation(target),
        specification_digest: digest(target),
        serving_generation: serving.map(generation),
    }
}

/// Supports everything but checkpoints and preparations.
#[must_use]
pub fn declaration() -> Declaration {
    let unsupported = Support::Unsupported { reason: "checkpoint_not_supported".to_owned() };
    Declaration::of_groups(&Support::Supported, &unsupported, &unsupported).expect("a valid reason")
}

/// An enrolled node of generation 1 with room for two sandboxes.
#[must_use]
pub fn identity() -> Identity<'static> {
    Identity {
        node_id: id(100).to_string().into(),
        installation_id: id(101).to_string().into(),
        provider: "docker".into(),
        backend_fingerprint: Digest::of(b"backend").to_string().into(),
        deployment_generation: 1,
        specification_digest: digest(1).to_string().into(),
        max_active: 2,
        max_retained: 8,
    }
}

/// Nothing is measured, and this is said of generations.
#[must_use]
pub fn health(generations: impl IntoIterator<Item = Observation<'static>>) -> Health<'static> {
    Health {
        observed_at: "2026-10-01T08:00:00Z".into(),
        active_operations: 0,
        cpu_utilization: None,
        total_memory_bytes: None,
        effective_cpu_cores: None,
        cpu_count: None,
        available_memory_bytes: None,
        available_disk_bytes: None,
        generations: generations.into_iter().collect(),
    }
}

/// What a node says of the generation with this number.
#[must_use]
pub fn observation(number: u64, state: ObservedState<'static>) -> Observation<'static> {
    Observation { generation: generation(number), specification_digest: digest(number), state }
}

/// The generation with this number is ready.
#[must_use]
pub fn ready(number: u64) -> Observation<'static> {
    observation(number, ObservedState::Ready { checkpoint: None })
}
