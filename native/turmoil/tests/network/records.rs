//! Core's records in memory. They survive a crash of Core, as a database does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use palisade_control::hub::{Bounds, Denied, Failed, NodeStore, Retained};
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity, Retention};
use tokio::time::sleep;

use crate::stream::Trace;

/// The one generation of these tests.
pub(crate) fn generation() -> Generation {
    Generation::new(1).unwrap()
}

pub(crate) fn digest() -> Digest {
    Digest::of(b"specification")
}

pub(crate) fn node_id(number: usize) -> Id {
    let mut bytes = [7; 16];
    bytes[8..].copy_from_slice(&(number as u64).to_be_bytes());
    Id::from_random(bytes)
}

pub(crate) fn credential(node: Id) -> String {
    Digest::of(node.as_bytes()).to_string()
}

pub(crate) fn identity(node: Id) -> Identity<'static> {
    Identity {
        node_id: node.to_string().into(),
        installation_id: Id::from_random([9; 16]).to_string().into(),
        provider: "docker".into(),
        backend_fingerprint: digest().to_string().into(),
        deployment_generation: generation().get(),
        specification_digest: digest().to_string().into(),
        max_active: 2,
        max_retained: 8,
    }
}

#[derive(Default)]
struct State {
    /// Names in the trace.
    nodes: BTreeMap<Id, String>,
    presence: BTreeMap<Id, Connected>,
    epoch: u64,
    slow_disconnect: Duration,
    retry_after_secs: Option<u64>,
}

/// Shared by all lives of Core.
#[derive(Clone)]
pub(crate) struct Records {
    state: Arc<Mutex<State>>,
    trace: Trace,
}

impl Records {
    pub(crate) fn new(trace: Trace) -> Self {
        Self { state: Arc::default(), trace }
    }

    pub(crate) fn enroll(&self, node: Id, name: &str) {
        self.state.lock().unwrap().nodes.entry(node).or_insert_with(|| name.to_owned());
    }

    /// A new life of Core: another owner epoch.
    pub(crate) fn claim(&self) {
        self.state.lock().unwrap().epoch += 1;
    }

    /// The disconnect callback takes that long from now on.
    pub(crate) fn slow_down_disconnects(&self, by: Duration) {
        self.state.lock().unwrap().slow_disconnect = by;
    }

    /// Every dial gets a 503 with this `Retry-After` from now on.
    pub(crate) fn turn_away(&self, retry_after_secs: Option<u64>) {
        self.state.lock().unwrap().retry_after_secs = retry_after_secs;
    }

    pub(crate) fn turns_away(&self) -> Option<u64> {
        self.state.lock().unwrap().retry_after_secs
    }

    fn said(&self, node: Id, what: &str) {
        let name = self.state.lock().unwrap().nodes.get(&node).cloned().unwrap_or_default();
        self.trace.add(format!("core {what} {name}"));
    }

    fn deployment_now() -> Deployment {
        let (generation, specification_digest) = (generation(), digest());
        Deployment { generation, specification_digest, serving_generation: Some(generation) }
    }

    fn epoch(&self) -> OwnerEpoch {
        OwnerEpoch::new(self.state.lock().unwrap().epoch).unwrap()
    }

    fn require(&self, node: Id, connection: Connected) -> Result<(), Failed> {
        let current = self.state.lock().unwrap().presence.get(&node) == Some(&connection);
        if current && connection.owner_epoch == self.epoch() { Ok(()) } else { Err(Failed) }
    }
}

#[async_trait]
impl NodeStore for Records {
    async fn authenticate(&self, _: &Bounds, node: Id, given: &str) -> Result<Identity<'static>, Denied> {
        let known = self.state.lock().unwrap().nodes.contains_key(&node);
        if known && given == credential(node) { Ok(identity(node)) } else { Err(Denied::Rejected) }
    }

    async fn owner_epoch(&self, _: &Bounds) -> Result<OwnerEpoch, Failed> {
        Ok(self.epoch())
    }

    async fn connect(&self, _: &Bounds, node: Id, connection: Connected) -> Result<(), Failed> {
        self.state.lock().unwrap().presence.insert(node, connection);
        self.said(node, "connects");
        Ok(())
    }

    async fn record(
        &self,
        _: &Bounds,
        node: Id,
        connection: Connected,
        health: &Health<'static>,
    ) -> Result<Vec<Generation>, Failed> {
        self.require(node, connection)?;
        self.said(node, "hears");
        Ok(health.generations.iter().map(|observation| observation.generation).collect())
    }

    async fn deployment(&self, _: &Bounds, _: Id) -> Result<Deployment, Failed> {
        Ok(Self::deployment_now())
    }

    async fn retain(
        &self,
        _: &Bounds,
        node: Id,
        connection: Connected,
        references: &[GenerationReference],
    ) -> Result<Retained, Failed> {
        self.require(node, connection)?;
        let kept = references.iter().map(|reference| Retention { reference: *reference, keep: true });
        Ok((kept.collect(), Self::deployment_now()))
    }

    async fn disconnect(&self, _: &Bounds, node: Id, connection: Connected) -> Result<(), Failed> {
        let slow = self.state.lock().unwrap().slow_disconnect;
        sleep(slow).await;
        let mut state = self.state.lock().unwrap();
        if state.presence.get(&node) == Some(&connection) {
            state.presence.remove(&node);
        }
        drop(state);
        self.said(node, "forgets");
        Ok(())
    }
}
