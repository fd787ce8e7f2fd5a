//! The database that all Cores share. Only what a transaction committed exists; each function is one transaction.

mod clients;
mod compute;
mod owner;
mod presence;

use std::collections::BTreeMap;

use palisade_core::admin::node::ComputePhase;
use palisade_core::admin::time::Timestamp;
use palisade_core::deployment::admission::Candidate;
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::deployment::{Deployment, Reset, Selected};
use palisade_core::lifecycle::{Environment, TurnError};
use palisade_core::session::hub::presence::Standing;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};

pub(crate) use clients::Told;
pub(crate) use compute::{Compute, Held, Policy};
pub(crate) use owner::{Fenced, Started, Work};
pub(crate) use presence::{Denied, Link};

use crate::clock::Time;

/// All rows.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) installation: Id,
    pub(crate) generation: u64,
    pub(crate) owner_epoch: u64,
    pub(crate) configured: bool,
    pub(crate) paused: bool,
    pub(crate) reset: Option<Reset>,
    /// The current selection, and superseded ones that something refers to.
    pub(crate) selections: BTreeMap<u64, Selection>,
    pub(crate) nodes: BTreeMap<Id, NodeRow>,
    pub(crate) sessions: Vec<Session>,
    /// Which life of which core holds the advisory lock.
    pub(crate) lock: Option<(usize, u32)>,
    /// Transactions wait until then.
    pub(crate) silent_until: Time,
    /// Rows that a transaction still holds, with the moment it ends.
    pub(crate) held: BTreeMap<Id, Time>,
    wall_ms: i64,
    /// How far the clock was ever set back.
    pub(crate) set_back_ms: u64,
    /// How far it was ever set forward.
    pub(crate) set_forward_ms: u64,
    /// Where the provider has checkpoints.
    pub(crate) policy: Option<Policy>,
}

/// A selection with its digest.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) specification: Specification,
    pub(crate) digest: Digest,
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct NodeRow {
    pub(crate) credential: String,
    pub(crate) enrolled: Generation,
    pub(crate) digest: Digest,
    pub(crate) standing: Standing,
    pub(crate) removed: bool,
}

/// A session with its environment, placement, allocation and Turns.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) tenant: Id,
    pub(crate) environment: Id,
    pub(crate) deleted: bool,
    pub(crate) status: Environment,
    pub(crate) placement: Option<Placement>,
    pub(crate) allocation: Option<Allocation>,
    pub(crate) turns: Vec<Turn>,
}

/// Where a session was placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    pub(crate) node: Id,
    pub(crate) generation: Generation,
    pub(crate) released: bool,
}

/// A sandbox as Core knows it.
#[derive(Debug, Clone)]
pub(crate) struct Allocation {
    pub(crate) id: Id,
    pub(crate) device: Id,
    pub(crate) state: AllocationState,
    pub(crate) sent_at: Option<Timestamp>,
    pub(crate) settled: bool,
    pub(crate) provider_id: String,
    /// When it was seen to be there last.
    pub(crate) kept_at: Timestamp,
    pub(crate) compute: Option<Compute>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocationState {
    Creating,
    Running,
    CleanupPending,
    Released,
}

/// One command of a client.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) id: Id,
    pub(crate) state: TurnState,
    pub(crate) created: Timestamp,
    pub(crate) timeout_ms: u64,
    pub(crate) cancel_requested: bool,
}

/// What a client is told of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnState {
    Queued,
    InProgress,
    Completed { stdout: String, exit_code: i64 },
    Failed(TurnError),
    Cancelled,
}

impl TurnState {
    pub(crate) const fn ended(&self) -> bool {
        matches!(self, Self::Completed { .. } | Self::Failed(_) | Self::Cancelled)
    }
}

const CORE_URL: &str = "https://core.example";
const CAPACITY: u32 = 4;

impl Store {
    pub(crate) fn new(installation: Id, policy: Option<Policy>) -> Self {
        let mut store = Self {
            installation,
            generation: 0,
            owner_epoch: 0,
            configured: false,
            paused: false,
            reset: None,
            selections: BTreeMap::new(),
            nodes: BTreeMap::new(),
            sessions: Vec::new(),
            lock: None,
            silent_until: 0,
            held: BTreeMap::new(),
            wall_ms: 1_790_000_000_000,
            set_back_ms: 0,
            set_forward_ms: 0,
            policy,
        };
        store.select();
        store
    }

    /// The database's clock.
    pub(crate) fn clock(&self, now: Time) -> Timestamp {
        Timestamp(self.wall_ms + i64::try_from(now).unwrap_or(0))
    }

    /// Somebody sets the database's clock.
    pub(crate) fn jump(&mut self, ms: i64) {
        self.wall_ms += ms;
        self.set_back_ms += u64::try_from(-ms).unwrap_or(0);
        self.set_forward_ms += u64::try_from(ms).unwrap_or(0);
    }

    /// The next selection becomes the target.
    pub(crate) fn select(&mut self) {
        let referenced = self.referenced();
        if self.configured && !palisade_core::deployment::retention::is_retained(self.generation, &referenced) {
            self.selections.remove(&self.generation);
        }
        self.generation += 1;
        self.configured = true;
        self.selections.insert(self.generation, Selection::of(self.generation));
        let retained = self.selections.keys().copied().collect();
        for generation in
            palisade_core::deployment::retention::collectable(self.generation, &retained, &self.referenced())
        {
            self.selections.remove(&generation);
        }
    }

    /// Generations that an unreleased placement or allocation, or a pin, refers to.
    fn referenced(&self) -> std::collections::BTreeSet<u64> {
        let placed = self.sessions.iter().filter(|session| session.holds()).filter_map(|session| session.placement);
        let pins = self.nodes.values().filter(|node| !node.removed).filter_map(|node| node.standing.pin);
        placed.map(|placement| placement.generation).chain(pins).map(Generation::get).collect()
    }

    pub(crate) fn target(&self) -> Option<Generation> {
        Generation::new(self.generation).filter(|_| self.configured)
    }

    /// The digest of a stored selection.
    pub(crate) fn digest(&self, generation: Generation) -> Option<Digest> {
        self.selections.get(&generation.get()).map(|selection| selection.digest)
    }

    /// The deployment as the rules see it.
    pub(crate) fn deployment(&self) -> Deployment {
        let selection = self.selections.get(&self.generation).filter(|_| self.configured);
        Deployment {
            installation: Some(self.installation),
            web_managed: true,
            generation: self.generation,
            owner_epoch: OwnerEpoch::new(self.owner_epoch),
            core_url: CORE_URL.to_owned(),
            admission_paused: self.paused || self.reset.is_some(),
            reset: self.reset,
            selected: selection.map(|selection| Selected {
                provider: Provider::Docker,
                specification: Some(selection.specification.clone()),
                configuration: palisade_core::admin::deployment::Configuration::default(),
                metadata: palisade_core::admin::deployment::Metadata::default(),
                credential_configured: false,
            }),
        }
    }

    /// A node as the choice of one sees it.
    pub(crate) fn node(&self, id: Id) -> Option<Candidate> {
        let standing = self.standing(id)?;
        let holds = |session: &&Session| session.holds() && session.placement.is_some_and(|place| place.node == id);
        let retained = self.sessions.iter().filter(holds).count() as u64;
        let active = self.sessions.iter().filter(holds).filter(|session| !session.is_suspended()).count() as u64;
        Some(Candidate {
            id,
            core_url: CORE_URL.to_owned(),
            max_active: CAPACITY,
            max_retained: CAPACITY,
            active,
            retained,
            standing,
        })
    }

    /// What waits for the row of `node` comes after what holds it.
    pub(crate) fn hold(&mut self, node: Id, until: Time) -> Time {
        let free = self.held.entry(node).or_default();
        *free = until.max(*free);
        *free
    }
}

impl Selection {
    /// Every generation has another memory size, and so another digest.
    fn of(generation: u64) -> Self {
        let text = format!(
            concat!(
                r#"{{"resources":{{"cpus":2,"memory_mib":{}}},"runtime":"#,
                r#"{{"source_commit":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","#,
                r#""image_id":"sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","#,
                r#""image_manifest_digest":"sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","#,
                r#""microsandbox_ref":"oac-runtime@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd","#,
                r#""runtime_sha256":"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee","#,
                r#""firmware_sha256":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}}}}"#
            ),
            1_024 + generation
        );
        let specification =
            Specification::parse(Provider::Docker, text.as_bytes()).expect("the text is a valid specification");
        Self { digest: specification.digest(), specification }
    }
}

impl Session {
    /// It still holds its place.
    pub(crate) fn holds(&self) -> bool {
        let allocated = self.allocation.as_ref().is_some_and(|held| held.state != AllocationState::Released);
        allocated || self.placement.is_some_and(|placement| !placement.released)
    }

    /// It frees its place on its node.
    fn is_suspended(&self) -> bool {
        let compute = self.allocation.as_ref().and_then(|held| held.compute.as_ref());
        compute.is_some_and(|compute| compute.state.phase() == ComputePhase::Suspended)
    }

    /// Ends the environment, unless it has ended.
    fn end(&mut self, status: Environment) {
        if matches!(self.status, Environment::Pending | Environment::Connected | Environment::Disconnected) {
            self.status = status;
        }
    }
}
