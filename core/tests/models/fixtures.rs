//! The values that all models speak of.

use palisade_core::admin::time::Timestamp;
use palisade_core::operation::{Call, Declaration, Operation, Support};
use palisade_core::session::hub::presence::{Authority, Standing};
use palisade_core::units::{Digest, Generation, Id, Millis, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity, Reference};

/// The moment at which every clock stands.
pub(crate) const NOW: Millis = Millis(1_000_000);
/// The same on the database's clock.
pub(crate) const TIME: Timestamp = Timestamp(0);
pub(crate) const NODE: Id = Id::from_random([100; 16]);

const INSTALLATION: Id = Id::from_random([101; 16]);

pub(crate) const fn id(number: u8) -> Id {
    Id::from_random([number; 16])
}

pub(crate) fn generation(number: u64) -> Generation {
    Generation::new(number).unwrap()
}

pub(crate) fn epoch(number: u64) -> OwnerEpoch {
    OwnerEpoch::new(number).unwrap()
}

/// A generation with the one digest that it has.
pub(crate) fn reference(number: u64) -> GenerationReference {
    GenerationReference { generation: generation(number), specification_digest: Digest::of(&number.to_be_bytes()) }
}

pub(crate) fn deployment(target: u64, serving: Option<u64>) -> Deployment {
    let GenerationReference { generation: target, specification_digest } = reference(target);
    Deployment { generation: target, specification_digest, serving_generation: serving.map(generation) }
}

/// Core's own record, with the specifications of three generations.
pub(crate) fn authority(owner: u64, target: u64) -> Authority {
    let digests = (1..=3).map(|number| (generation(number), reference(number).specification_digest));
    Authority {
        installation: Some(INSTALLATION),
        owner_epoch: Some(epoch(owner)),
        target: Some(generation(target)),
        digests: digests.collect(),
    }
}

/// The record of the node before it ever connected.
pub(crate) fn standing(pin: u64) -> Standing {
    Standing { pin: Some(generation(pin)), ..Standing::enrolled(INSTALLATION) }
}

pub(crate) fn declaration() -> Declaration {
    let unsupported = Support::Unsupported { reason: "checkpoint_not_supported".to_owned() };
    Declaration::of_groups(&Support::Supported, &unsupported, &unsupported).unwrap()
}

pub(crate) fn identity() -> Identity<'static> {
    Identity {
        node_id: NODE.to_string().into(),
        installation_id: INSTALLATION.to_string().into(),
        provider: "docker".into(),
        backend_fingerprint: Digest::of(b"backend").to_string().into(),
        deployment_generation: 1,
        specification_digest: reference(1).specification_digest.to_string().into(),
        max_active: 2,
        max_retained: 8,
    }
}

pub(crate) fn health() -> Health<'static> {
    Health {
        observed_at: "2026-10-01T08:00:00Z".into(),
        active_operations: 0,
        cpu_utilization: None,
        total_memory_bytes: None,
        effective_cpu_cores: None,
        cpu_count: None,
        available_memory_bytes: None,
        available_disk_bytes: None,
        generations: Vec::new(),
    }
}

/// A request that needs no ready generation.
pub(crate) fn call(request: Id, generation: Generation, timeout_ms: u64) -> Call<'static> {
    let reference = Reference { tenant: id(1), environment: id(2), allocation: id(3) };
    Call { id: request, deployment_generation: generation, reference, timeout_ms, operation: Operation::GetInfo }
}
