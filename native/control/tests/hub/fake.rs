//! Records in memory that do what a test planned.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use palisade_control::hub::{Bounds, Denied, Failed, NodeStore, Retained};
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity, Retention};
use tokio::sync::watch;
use tokio::time::Instant;

/// A storage call, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Authenticate,
    Epoch,
    Connect,
    Record,
    Deployment,
    Retain,
    Disconnect,
}

/// What a planned call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Has its effect, then fails.
    FailAfterwards,
    /// Has no effect until it is cancelled, then fails.
    Hang,
    /// Ignores its cancellation until the test lets it go, then has its effect and succeeds.
    Late,
}

#[derive(Default)]
struct State {
    nodes: HashMap<Id, Identity<'static>>,
    plans: HashMap<(Call, Id), Plan>,
    log: Vec<(Call, Id)>,
    presence: HashMap<Id, Connected>,
    connected: Vec<(Id, Connected)>,
    disconnected: Vec<(Id, Connected)>,
    longest: Duration,
    epoch: u64,
}

/// Records whose every call is logged.
pub(crate) struct Fake {
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

/// Stands for every node in a plan of the epoch read.
pub(crate) const ANY: Id = Id::from_random([0xee; 16]);

impl Default for Fake {
    fn default() -> Self {
        Self { state: Mutex::new(State { epoch: 7, ..State::default() }), version: watch::Sender::new(0) }
    }
}

impl Fake {
    pub(crate) fn enroll(&self, node: Id) {
        self.change(|state| drop(state.nodes.insert(node, identity(node))));
    }

    pub(crate) fn approve(&self, node: Id, max_active: i64) {
        self.change(|state| state.nodes.get_mut(&node).unwrap().max_active = max_active);
    }

    pub(crate) fn revoke(&self, node: Id) {
        self.change(|state| drop(state.nodes.remove(&node)));
    }

    pub(crate) fn plan(&self, call: Call, node: Id, plan: Plan) {
        self.change(|state| state.plans.insert((call, node), plan));
    }

    pub(crate) fn release(&self, call: Call, node: Id) {
        self.change(|state| state.plans.remove(&(call, node)));
    }

    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.change(|state| state.epoch = epoch);
    }

    pub(crate) fn count(&self, call: Call, node: Id) -> usize {
        self.state.lock().unwrap().log.iter().filter(|entry| **entry == (call, node)).count()
    }

    pub(crate) fn presence(&self, node: Id) -> Option<Connected> {
        self.state.lock().unwrap().presence.get(&node).copied()
    }

    pub(crate) fn connected(&self, node: Id) -> Vec<Connected> {
        of(&self.state.lock().unwrap().connected, node)
    }

    pub(crate) fn disconnected(&self, node: Id) -> Vec<Connected> {
        of(&self.state.lock().unwrap().disconnected, node)
    }

    /// The longest time that any call was given.
    pub(crate) fn longest(&self) -> Duration {
        self.state.lock().unwrap().longest
    }

    /// Waits until `call` was made `times` times for `node`.
    pub(crate) async fn called(&self, call: Call, node: Id, times: usize) {
        self.wait(|fake| fake.count(call, node) >= times).await;
    }

    async fn wait(&self, holds: impl Fn(&Self) -> bool) {
        let mut version = self.version.subscribe();
        while !holds(self) {
            version.changed().await.unwrap();
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.lock().unwrap());
        self.version.send_modify(|version| *version += 1);
        changed
    }

    /// Logs the call and does what was planned before its effect.
    async fn begin(&self, call: Call, node: Id, bounds: &Bounds) -> Result<bool, Failed> {
        let plan = self.change(|state| {
            state.log.push((call, node));
            state.longest = state.longest.max(bounds.deadline.saturating_duration_since(Instant::now()));
            state.plans.get(&(call, node)).copied()
        });
        match plan {
            None => Ok(true),
            Some(Plan::FailAfterwards) => Ok(false),
            Some(Plan::Hang) => {
                bounds.cancel.cancelled().await;
                Err(Failed)
            }
            Some(Plan::Late) => {
                self.wait(|fake| !fake.state.lock().unwrap().plans.contains_key(&(call, node))).await;
                Ok(true)
            }
        }
    }
}

fn of(list: &[(Id, Connected)], node: Id) -> Vec<Connected> {
    list.iter().filter(|(of, _)| *of == node).map(|(_, connected)| *connected).collect()
}

fn sure<T>(value: T, good: bool) -> Result<T, Failed> {
    if good { Ok(value) } else { Err(Failed) }
}

pub(crate) fn identity(node: Id) -> Identity<'static> {
    Identity {
        node_id: node.to_string().into(),
        installation_id: Id::from_random([0x11; 16]).to_string().into(),
        provider: "docker".into(),
        backend_fingerprint: "11".repeat(32).into(),
        deployment_generation: 3,
        specification_digest: Digest::of(b"three").to_string().into(),
        max_active: 2,
        max_retained: 2,
    }
}

/// The credential of a node.
pub(crate) fn credential(node: Id) -> String {
    Digest::of(node.as_bytes()).to_string()
}

pub(crate) fn generation(value: u64) -> Generation {
    Generation::new(value).unwrap()
}

fn deployment() -> Deployment {
    Deployment {
        generation: generation(4),
        specification_digest: Digest::of(b"four"),
        serving_generation: Some(generation(3)),
    }
}

#[async_trait]
impl NodeStore for Fake {
    async fn authenticate(&self, bounds: &Bounds, node: Id, given: &str) -> Result<Identity<'static>, Denied> {
        let good = self.begin(Call::Authenticate, node, bounds).await?;
        let identity = self.state.lock().unwrap().nodes.get(&node).cloned();
        let identity = identity.filter(|_| given == credential(node)).ok_or(Denied::Rejected)?;
        Ok(sure(identity, good)?)
    }

    async fn owner_epoch(&self, bounds: &Bounds) -> Result<OwnerEpoch, Failed> {
        let good = self.begin(Call::Epoch, ANY, bounds).await?;
        sure(OwnerEpoch::new(self.state.lock().unwrap().epoch).unwrap(), good)
    }

    async fn connect(&self, bounds: &Bounds, node: Id, connection: Connected) -> Result<(), Failed> {
        let good = self.begin(Call::Connect, node, bounds).await?;
        self.change(|state| {
            state.presence.insert(node, connection);
            state.connected.push((node, connection));
        });
        sure((), good)
    }

    async fn record(
        &self,
        bounds: &Bounds,
        node: Id,
        _: Connected,
        health: &Health<'static>,
    ) -> Result<Vec<Generation>, Failed> {
        let good = self.begin(Call::Record, node, bounds).await?;
        sure(health.generations.iter().map(|observation| observation.generation).collect(), good)
    }

    async fn deployment(&self, bounds: &Bounds, node: Id) -> Result<Deployment, Failed> {
        let good = self.begin(Call::Deployment, node, bounds).await?;
        sure(deployment(), good)
    }

    async fn retain(
        &self,
        bounds: &Bounds,
        node: Id,
        _: Connected,
        references: &[GenerationReference],
    ) -> Result<Retained, Failed> {
        let good = self.begin(Call::Retain, node, bounds).await?;
        let keep = |reference: &GenerationReference| reference.generation >= generation(3);
        let answer = |reference: &GenerationReference| Retention { reference: *reference, keep: keep(reference) };
        sure((references.iter().map(answer).collect(), deployment()), good)
    }

    async fn disconnect(&self, bounds: &Bounds, node: Id, connection: Connected) -> Result<(), Failed> {
        assert!(!bounds.cancel.is_cancelled(), "the cleanup has a context of its own");
        let good = self.begin(Call::Disconnect, node, bounds).await?;
        self.change(|state| {
            if state.presence.get(&node) == Some(&connection) {
                state.presence.remove(&node);
            }
            state.disconnected.push((node, connection));
        });
        sure((), good)
    }
}
