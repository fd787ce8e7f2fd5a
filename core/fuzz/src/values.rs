//! Values that structured targets speak of.

use palisade_core::operation::{Declaration, Support};
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity};

pub(crate) fn id(kind: u8, number: u64) -> Id {
    let mut bytes = [kind; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Id::from_random(bytes)
}

/// One of a handful, so that histories meet.
pub(crate) fn generation(choice: u8) -> Generation {
    Generation::new(u64::from(choice % 12) + 1).expect("positive")
}

pub(crate) fn epoch(choice: u8) -> OwnerEpoch {
    OwnerEpoch::new(u64::from(choice % 4) + 1).expect("positive")
}

pub(crate) fn digest(generation: Generation) -> Digest {
    Digest::of(&generation.get().to_be_bytes())
}

pub(crate) fn reference(choice: u8) -> GenerationReference {
    let generation = generation(choice);
    GenerationReference { generation, specification_digest: digest(generation) }
}

pub(crate) fn deployment(target: u8, serving: Option<u8>) -> Deployment {
    let GenerationReference { generation: target, specification_digest } = reference(target);
    Deployment { generation: target, specification_digest, serving_generation: serving.map(generation) }
}

pub(crate) fn declaration(checkpoints: bool) -> Declaration {
    let unsupported = Support::Unsupported { reason: "checkpoint_not_supported".to_owned() };
    let group = if checkpoints { Support::Supported } else { unsupported.clone() };
    Declaration::of_groups(&Support::Supported, &group, &unsupported).expect("complete")
}

pub(crate) fn identity() -> Identity<'static> {
    Identity {
        node_id: id(1, 1).to_string().into(),
        installation_id: id(1, 2).to_string().into(),
        provider: "docker".into(),
        backend_fingerprint: Digest::of(b"backend").to_string().into(),
        deployment_generation: 1,
        specification_digest: digest(Generation::FIRST).to_string().into(),
        max_active: 2,
        max_retained: 8,
    }
}

pub(crate) fn health() -> Health<'static> {
    Health {
        observed_at: "2026-10-01T08:00:00Z".into(),
        active_operations: 0,
        cpu_utilization: Some(0.5),
        total_memory_bytes: None,
        effective_cpu_cores: None,
        cpu_count: None,
        available_memory_bytes: None,
        available_disk_bytes: None,
        generations: Vec::new(),
    }
}
