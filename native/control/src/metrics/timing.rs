//! How long things take.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::{Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::hub::{Bounds, Denied, Failed, NodeStore, Retained};

/// Upper bounds of the buckets, in seconds: from a commit on a fast disk to the longest budget of a command.
const BUCKETS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    operation: Cow<'static, str>,
    outcome: &'static str,
}

pub(super) type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Times of operations by outcome. Clones share them. Both labels must come from a fixed set.
#[derive(Debug, Clone)]
pub(crate) struct Times(Histograms);

impl Default for Times {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(BUCKETS)))
    }
}

impl Times {
    pub(super) fn family(&self) -> Histograms {
        self.0.clone()
    }

    /// Begins to measure; what is dropped before it ended counts as `gone`.
    pub(crate) fn begin(&self, operation: impl Into<Cow<'static, str>>) -> Timed {
        Timed { times: self.clone(), operation: operation.into(), outcome: "gone", since: Instant::now() }
    }

    pub(crate) fn observe(&self, operation: impl Into<Cow<'static, str>>, outcome: &'static str, lasted: Duration) {
        let labels = Labels { operation: operation.into(), outcome };
        self.0.get_or_create(&labels).observe(lasted.as_secs_f64());
    }
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Timed {
    times: Times,
    operation: Cow<'static, str>,
    outcome: &'static str,
    since: Instant,
}

impl Timed {
    /// It ended like this.
    pub(crate) fn end(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }

    /// It ended well, or not.
    pub(crate) fn end_with<T, E>(self, result: &Result<T, E>) {
        self.end(if result.is_ok() { "done" } else { "failed" });
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.times.observe(std::mem::take(&mut self.operation), self.outcome, self.since.elapsed());
    }
}

/// What the store measures.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreTimes {
    /// `read`, `write` (both until the transaction has begun) and `commit`.
    pub(crate) steps: Times,
    /// What connections ask of the records.
    pub(crate) records: Times,
}

/// Records whose calls are measured.
#[derive(Debug)]
pub(crate) struct Measured<R> {
    records: R,
    times: Times,
}

impl<R> Measured<R> {
    pub(crate) fn new(records: R, times: Times) -> Self {
        Self { records, times }
    }

    async fn time<T, E>(&self, call: &'static str, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let timed = self.times.begin(call);
        let result = work.await;
        timed.end_with(&result);
        result
    }
}

#[async_trait]
impl<R: NodeStore> NodeStore for Measured<R> {
    async fn authenticate(&self, bounds: &Bounds, node: Id, credential: &str) -> Result<Identity<'static>, Denied> {
        self.time("authenticate", self.records.authenticate(bounds, node, credential)).await
    }

    async fn owner_epoch(&self, bounds: &Bounds) -> Result<OwnerEpoch, Failed> {
        self.records.owner_epoch(bounds).await
    }

    async fn connect(&self, bounds: &Bounds, node: Id, connection: Connected) -> Result<(), Failed> {
        self.time("connect", self.records.connect(bounds, node, connection)).await
    }

    async fn record(
        &self,
        bounds: &Bounds,
        node: Id,
        connection: Connected,
        health: &Health<'static>,
    ) -> Result<Vec<Generation>, Failed> {
        self.time("heartbeat", self.records.record(bounds, node, connection, health)).await
    }

    async fn deployment(&self, bounds: &Bounds, node: Id) -> Result<Deployment, Failed> {
        self.time("deployment", self.records.deployment(bounds, node)).await
    }

    async fn retain(
        &self,
        bounds: &Bounds,
        node: Id,
        connection: Connected,
        references: &[GenerationReference],
    ) -> Result<Retained, Failed> {
        self.time("retain", self.records.retain(bounds, node, connection, references)).await
    }

    async fn disconnect(&self, bounds: &Bounds, node: Id, connection: Connected) -> Result<(), Failed> {
        self.time("disconnect", self.records.disconnect(bounds, node, connection)).await
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    /// How often each outcome of an operation was counted.
    fn counted(times: &Times) -> Vec<String> {
        let mut registry = Registry::default();
        registry.register("t", "times", times.family());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let mut counts: Vec<_> = text.lines().filter(|line| line.starts_with("t_count")).map(str::to_owned).collect();
        counts.sort();
        counts
    }

    #[test]
    fn every_end_is_counted_also_that_of_what_was_dropped() {
        let times = Times::default();
        times.begin("a").end_with(&Ok::<_, ()>(()));
        times.begin("a").end_with(&Err::<(), _>(()));
        drop(times.begin("a"));
        drop(times.begin("a"));
        let line = |outcome: &str, count| format!("t_count{{operation=\"a\",outcome=\"{outcome}\"}} {count}");
        assert_eq!(counted(&times), [line("done", 1), line("failed", 1), line("gone", 2)]);
    }
}
