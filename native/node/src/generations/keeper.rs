//! What a running node does with generations: it starts a preparer, and constructs the provider of what was prepared.

use std::sync::Arc;

use palisade_core::generation::preparer::conclude;
use palisade_core::generation::recovery::{Local, local};
use palisade_core::units::Digest;
use palisade_core::wire::payload::{Diagnostic, GenerationReference};
use palisade_provider::Provider;
use tokio_util::sync::CancellationToken;

use super::layout::Layout;
use super::preparer::Preparer;
use super::program::Action;
use super::records::Records;
use crate::configuration::{Backend, Configuration, ConfigurationError};
use crate::host::{Generations, Work};

/// Makes the provider of a configuration.
pub(crate) type Build = dyn Fn(&Configuration) -> Result<Backend, ConfigurationError> + Send + Sync;

/// Keeps the generations of one installation.
#[derive(Clone)]
pub(crate) struct Keeper {
    pub(crate) layout: Layout,
    pub(crate) preparer: Preparer,
    pub(crate) base: Arc<Configuration>,
    pub(crate) fingerprint: Digest,
    pub(crate) build: Arc<Build>,
}

impl Generations for Keeper {
    fn prepare(
        &self,
        reference: GenerationReference,
        cancel: CancellationToken,
    ) -> Work<Result<Arc<dyn Provider>, Diagnostic>> {
        let keeper = self.clone();
        Box::pin(async move {
            let (ended, cancelled) = keeper.preparer.run(Action::Prepare, reference, &cancel).await;
            conclude(ended, cancelled)?;
            let loading = tokio::task::spawn_blocking(move || keeper.load(reference));
            loading.await.unwrap_or(Err(Diagnostic::ProviderUnavailable))
        })
    }

    fn collect(&self, reference: GenerationReference, cancel: CancellationToken) -> Work<bool> {
        let keeper = self.clone();
        Box::pin(async move {
            let (ended, cancelled) = keeper.preparer.run(Action::Collect, reference, &cancel).await;
            conclude(ended, cancelled).is_ok()
        })
    }
}

impl Keeper {
    /// What was published is read again, and believed only as a whole (node-host §3.2 step 21).
    fn load(&self, reference: GenerationReference) -> Result<Arc<dyn Provider>, Diagnostic> {
        let GenerationReference { generation, specification_digest } = reference;
        let unusable = |reason: &str| {
            tracing::error!(%generation, reason, "the prepared generation cannot be used");
            Diagnostic::ProviderUnavailable
        };
        let records = Records::read(&self.layout.generations(), &self.base.record);
        let recorded = records.map_err(|error| unusable(&error.to_string()))?.of(generation);
        let place = local(&recorded.journals).map_err(|refusal| unusable(&refusal.to_string()))?;
        let configuration = recorded.configuration.filter(|_| place == Local::Configured);
        let configuration = configuration.ok_or_else(|| unusable("it has no final configuration"))?;
        if configuration.envelope.digest() != specification_digest {
            return Err(unusable("it has another specification"));
        }
        let backend = (self.build)(&configuration.into()).map_err(|error| unusable(&error.to_string()))?;
        if backend.fingerprint != self.fingerprint {
            return Err(unusable("it is for another backend"));
        }
        Ok(backend.provider)
    }
}
