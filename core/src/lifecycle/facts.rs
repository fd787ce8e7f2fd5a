use super::compute;
use crate::units::Id;

/// What the store says of one environment, read in one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Whether new allocations are admitted.
    pub admission_open: bool,
    /// The session was deleted.
    pub session_deleted: bool,
    /// Status of the environment.
    pub environment: Environment,
    /// The node of the placement.
    pub node: NodeState,
    /// The allocation, if any.
    pub allocation: Allocation,
    /// Compute that can be suspended; `None` where the provider has no checkpoints.
    pub compute: Option<compute::Facts>,
    /// Nobody has confirmed for a while that the running sandbox is there.
    pub stale: bool,
    /// The Turn in progress, else the oldest one in line.
    pub turn: Option<Turn>,
}

impl Facts {
    /// Nobody wants the sandbox any more.
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.session_deleted || matches!(self.environment, Environment::Failed | Environment::Expired)
    }
}

/// Status of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Environment {
    /// Not provisioned yet.
    Pending,
    /// Its allocation runs.
    Connected,
    /// Its allocation runs somewhere unreachable.
    Disconnected,
    /// Provisioning failed.
    Failed,
    /// Ended.
    Expired,
}

/// The node that an environment was placed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// Online, and the placement's generation is ready.
    Ready,
    /// Online; only a create has to wait.
    Unready,
    /// Not heard of for this long.
    Offline {
        /// Milliseconds since the last heartbeat.
        away_ms: u64,
    },
}

impl NodeState {
    /// How long the node has been away; `None` while it is online.
    #[must_use]
    pub const fn away_ms(self) -> Option<u64> {
        match self {
            Self::Ready | Self::Unready => None,
            Self::Offline { away_ms } => Some(away_ms),
        }
    }
}

/// State of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// Not reserved.
    None,
    /// Reserved, not verified.
    Creating(Attempt),
    /// Verified.
    Running,
    /// To be removed.
    CleanupPending {
        /// Whether a create may have reached the node.
        attempt: Attempt,
        /// Whether the create can no longer change anything.
        settled: bool,
    },
    /// Gone.
    Released,
}

/// Whether a create was handed to the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// Certainly nothing was sent.
    None,
    /// Recorded before the hand-over; it counts as sent.
    Handed {
        /// Milliseconds since the record.
        ago_ms: u64,
    },
}

/// The Turn that is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Which Turn.
    pub id: Id,
    /// Where it stands.
    pub state: TurnState,
}

/// Where a Turn stands that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnState {
    /// In line.
    Queued {
        /// Milliseconds in line.
        waited_ms: u64,
    },
    /// Its start was recorded. Whoever reads this and does not run it finds it interrupted.
    InProgress,
}
