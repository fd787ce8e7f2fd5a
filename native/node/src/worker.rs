//! Work that runs beside the connection: operations, probes, measurements, the epoch.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use futures_util::FutureExt as _;
use palisade_core::generation::Probed;
use palisade_core::limits::PROBE_TIMEOUT_MS;
use palisade_core::operation::Call;
use palisade_core::outcome::{self, Answer, Failed};
use palisade_core::session::lanes::Ticket;
use palisade_core::units::{Generation, OwnerEpoch};
use palisade_core::wire::payload::{Diagnostic, Health};
use palisade_provider::{Context, Provider, dispatch};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::host::{Sampler, Work};
use crate::limits::{MEASUREMENT_TIMEOUT_MS, PROBE_GRACE_MS};

/// What came of it.
pub(crate) enum Outcome {
    /// An operation really ended.
    Executed(Ticket, Result<Answer<'static>, Failed<'static>>),
    /// A probe ended; the text stays on this host.
    Probed(Generation, Probed, Option<String>),
    /// A preparation ended: with the provider, or the class of its failure.
    Prepared(Generation, Result<Arc<dyn Provider>, Diagnostic>),
    /// A removal ended; whether nothing is left to do.
    Removed(Generation, bool),
    /// The host was measured for the connection of that number.
    Measured(u64, Health<'static>),
    /// The epoch is stored; that counts after its connection as well.
    EpochStored(OwnerEpoch),
    /// The epoch could not be stored for the connection of that number.
    EpochNotStored(u64),
}

/// Where outcomes go. The driver outlives every worker that matters; nobody misses what comes after it.
#[derive(Debug, Clone)]
pub(crate) struct Outcomes(pub(crate) UnboundedSender<Outcome>);

impl Outcomes {
    pub(crate) fn report(&self, outcome: Outcome) {
        drop(self.0.send(outcome));
    }
}

/// Carries out one operation to its real end, whatever becomes of the connection that asked.
pub(crate) fn execute(
    outcomes: Outcomes,
    provider: Arc<dyn Provider>,
    ticket: Ticket,
    call: Box<Call<'static>>,
    deadline: Instant,
) {
    tokio::spawn(async move {
        let Call { reference, operation, .. } = *call;
        let context = Context { reference, deadline: deadline.into_std() };
        let method = operation.method();
        let work = AssertUnwindSafe(dispatch(&*provider, context, operation)).catch_unwind();
        let result = work.await.unwrap_or_else(|_| {
            tracing::error!(method = method.name(), "the provider panicked; the outcome is unknown");
            Err(outcome::unknown(method).into())
        });
        outcomes.report(Outcome::Executed(ticket, result));
    });
}

/// Probes once. A provider that does not answer in time is unavailable.
pub(crate) fn probe(outcomes: Outcomes, provider: Arc<dyn Provider>, generation: Generation) {
    tokio::spawn(async move {
        let limit = Duration::from_millis(PROBE_TIMEOUT_MS + PROBE_GRACE_MS);
        let probe = AssertUnwindSafe(provider.probe()).catch_unwind();
        let unavailable = Probed::NotReady(Diagnostic::ProviderUnavailable);
        let (probed, detail) = match tokio::time::timeout(limit, probe).await {
            Ok(Ok(Ok(checkpoint))) => (Probed::Ready(checkpoint), None),
            Ok(Ok(Err(not_ready))) => (Probed::NotReady(not_ready.diagnostic), Some(not_ready.detail)),
            Ok(Err(_)) => (unavailable, Some("the provider panicked".to_owned())),
            Err(_) => (unavailable, Some("the probe did not end in time".to_owned())),
        };
        outcomes.report(Outcome::Probed(generation, probed, detail));
    });
}

/// Waits for a preparation. One that panicked is a failure like any other.
pub(crate) fn prepare(outcomes: Outcomes, generation: Generation, work: Work<Result<Arc<dyn Provider>, Diagnostic>>) {
    tokio::spawn(async move {
        let prepared = AssertUnwindSafe(work).catch_unwind().await;
        outcomes.report(Outcome::Prepared(generation, prepared.unwrap_or(Err(Diagnostic::ProviderUnavailable))));
    });
}

/// Waits for a removal. One that panicked did not finish.
pub(crate) fn remove(outcomes: Outcomes, generation: Generation, work: Work<bool>) {
    tokio::spawn(async move {
        let finished = AssertUnwindSafe(work).catch_unwind().await;
        outcomes.report(Outcome::Removed(generation, finished.unwrap_or(false)));
    });
}

/// Measures for one connection. A host that does not answer in time is unknown: the heartbeat is not late for it.
pub(crate) fn measure(outcomes: Outcomes, connection: u64, sample: Work<Option<Health<'static>>>) {
    tokio::spawn(async move {
        let measured = tokio::time::timeout(Duration::from_millis(MEASUREMENT_TIMEOUT_MS), sample).await;
        let health = measured.ok().flatten().unwrap_or_else(|| {
            tracing::warn!("the host could not be measured in time; its measurements are unknown");
            unknown()
        });
        outcomes.report(Outcome::Measured(connection, health));
    });
}

/// A sampler that blocks and may hang with a disk, beside the tasks that must not.
pub(crate) fn beside(sample: impl FnMut() -> Health<'static> + Send + 'static) -> Box<Sampler> {
    let sample = Arc::new(Mutex::new(sample));
    Box::new(move || {
        let sample = Arc::clone(&sample);
        // One that still hangs is not waited for by another thread at every heartbeat.
        let sampling = tokio::task::spawn_blocking(move || match sample.try_lock() {
            Ok(mut sample) => Some(sample()),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()()),
            Err(TryLockError::WouldBlock) => None,
        });
        Box::pin(async { sampling.await.ok().flatten() })
    })
}

/// A health report that knows nothing but the time.
fn unknown() -> Health<'static> {
    Health {
        observed_at: jiff::Timestamp::now().to_string().into(),
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
