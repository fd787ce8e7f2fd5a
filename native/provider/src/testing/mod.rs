//! What tests of providers, and of whatever drives them, share.

pub mod contract;
mod fault;
mod machines;

use std::time::{Duration, Instant};

use palisade_core::units::Id;
use palisade_core::wire::payload::{Bootstrap, Reference, Secret, Workspace};

use crate::{Context, flattened};

pub use fault::{Fault, FaultProvider};

/// The credential of [`bootstrap`], to search for where it must not be.
pub const CREDENTIAL: &str = "synthetic-credential-0f8fad5b";

/// A sandbox that differs from every other `seed`'s.
#[must_use]
pub fn reference(seed: u64) -> Reference {
    let id = |part: u8| {
        let mut bytes = [part; 16];
        bytes[8..].copy_from_slice(&seed.to_be_bytes());
        Id::from_random(bytes)
    };
    Reference { tenant: id(1), environment: id(2), allocation: id(3) }
}

/// A valid bootstrap of `reference`.
#[must_use]
pub fn bootstrap(reference: Reference) -> Bootstrap<'static> {
    let texts = flattened(reference);
    Bootstrap {
        tenant_id: texts.tenant_id,
        environment_id: texts.environment_id,
        allocation_id: texts.allocation_id,
        session_id: Id::from_random([4; 16]).to_string().into(),
        device_id: Id::from_random([5; 16]).to_string().into(),
        core_url: "https://core.example/api/v1".into(),
        credential: Secret(CREDENTIAL.into()),
        network_access: "disabled".into(),
        allowed_domains: None,
        workspace: None,
    }
}

/// A binding that belongs to `reference`.
#[must_use]
pub fn workspace(reference: Reference) -> Workspace<'static> {
    let configuration = Id::from_random([9; 16]).to_string();
    Workspace {
        configuration_id: configuration.clone().into(),
        adapter: "nfs".into(),
        parameters: "{}".into(),
        tenant_id: reference.tenant.to_string().into(),
        environment_id: reference.environment.to_string().into(),
        object_id: Id::from_random([10; 16]).to_string().into(),
        attachment_configuration_id: configuration.into(),
        kind: "host_directory".into(),
        native: "{}".into(),
    }
}

/// A call to `reference` that may take `budget`.
#[must_use]
pub fn context(reference: Reference, budget: Duration) -> Context {
    Context { reference, deadline: Instant::now() + budget }
}
