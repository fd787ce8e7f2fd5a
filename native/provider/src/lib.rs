//! The provider contract: what a sandbox provider must do, and never does (node-host §9).
//!
//! A provider never replays a mutation, never cleans up by itself, and never calls a native failure a success.

use std::time::Instant;

use async_trait::async_trait;
use palisade_core::operation::Operation;
use palisade_core::outcome::{Answer, Failed};
use palisade_core::units::Generation;
use palisade_core::wire::payload::{Checkpoint, Diagnostic, Reference};

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
#[error("{detail}")]
pub struct NotReady {
    /// What crosses the wire.
    pub diagnostic: Diagnostic,
    /// What the local log says.
    pub detail: String,
}

/// One backend for sandboxes of one deployment generation.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Which methods this provider supports; validated before it accepts work.
    fn declaration(&self) -> &palisade_core::operation::Declaration;

    /// Carries out one declared operation within the context's deadline.
    ///
    /// # Errors
    /// What the contract allows for the operation (node-host §9.2), with the evidence that may travel beside it.
    async fn execute(
        &self,
        context: Context,
        operation: Operation<'static>,
    ) -> Result<Answer<'static>, Failed<'static>>;

    /// Whether a sandbox could be created now.
    ///
    /// # Errors
    /// The first failing check, as a declared class.
    async fn probe(&self) -> Result<Option<Checkpoint<'static>>, NotReady>;

    /// Which deployment generation this provider serves.
    fn generation(&self) -> Generation;
}
