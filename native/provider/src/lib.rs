//! The provider contract: what a sandbox provider must do, and never does (node-host §9).
//!
//! A provider never replays a mutation, never cleans up by itself, never calls a native failure a success, and never
//! touches a resource before it knows that the resource belongs to the named sandbox.
//!
//! # Driving a provider
//!
//! Call [`dispatch`], never [`Provider::execute`] directly: it refuses what the provider declared unsupported before
//! any native call. The future ends when the *work* has ended, which may be later than [`Context::deadline`]: a
//! provider that has to stop a command, or whose creation cannot be taken back, goes on until that is settled. A
//! caller whose wait ends first answers `unconfirmed` by itself, keeps the sandbox's lane occupied, and goes on
//! polling. Dropping the future ends the wait alone: a creation goes on without it, and so does the stop of a command.

#![forbid(unsafe_code)]

pub mod content;
mod dispatch;
#[cfg(feature = "testing")]
pub mod testing;
pub mod workspace;

use std::time::Instant;

use async_trait::async_trait;
use palisade_core::operation::{Declaration, Operation};
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::units::Generation;
use palisade_core::wire::payload::{Checkpoint, Diagnostic, Info, RawReference, Reference};

pub use dispatch::dispatch;

/// A bounded call to one sandbox.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// Which sandbox.
    pub reference: Reference,
    /// When the caller's wait ends. A deadline ends the wait, not the work.
    pub deadline: Instant,
}

/// Why a probe found a provider not ready: one declared class, and local text that never leaves the host.
#[derive(Debug, thiserror::Error)]
#[error("{}: {detail}", .diagnostic.code())]
pub struct NotReady {
    /// What crosses the wire.
    pub diagnostic: Diagnostic,
    /// What the local log says.
    pub detail: String,
}

/// One backend for sandboxes of one deployment generation.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Which methods this provider supports. A [`Declaration`] is valid by construction.
    fn declaration(&self) -> &Declaration;

    /// Carries out one declared operation. Starts nothing after the context's deadline, and ends when the work has.
    ///
    /// # Errors
    /// What the contract allows for the operation (node-host §9.2), with the evidence that may travel beside it.
    async fn execute(
        &self,
        context: Context,
        operation: Operation<'static>,
    ) -> Result<Answer<'static>, Failed<'static>>;

    /// Whether a sandbox could be created now; bounded by [`palisade_core::limits::PROBE_TIMEOUT_MS`].
    ///
    /// # Errors
    /// The first failing check, as a declared class.
    async fn probe(&self) -> Result<Option<Checkpoint<'static>>, NotReady>;

    /// Which deployment generation this provider serves.
    fn generation(&self) -> Generation;
}

/// The three texts of `reference`, as results carry it.
#[must_use]
pub fn flattened(reference: Reference) -> RawReference<'static> {
    RawReference {
        tenant_id: reference.tenant.to_string().into(),
        environment_id: reference.environment.to_string().into(),
        allocation_id: reference.allocation.to_string().into(),
    }
}

/// The receipt that the creation of `reference` left nothing and never will (wire §2.11).
#[must_use]
pub fn absent_receipt(reference: Reference) -> Info<'static> {
    Info {
        reference: flattened(reference),
        provider_id: "".into(),
        state: "absent".into(),
        bootstrap_complete: false,
        create_settled: true,
    }
}

/// A creation that was refused before anything native was started: the failure, settled.
#[must_use]
pub fn refused_before_native_call(failure: Failure, reference: Reference) -> Failed<'static> {
    Failed { failure, info: Some(absent_receipt(reference)), state: None }
}
