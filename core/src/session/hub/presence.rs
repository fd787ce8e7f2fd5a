//! What Core's records say of a node's connection, and what a call of a connection may change (wire §5.5, §5.7, §7.3).
//!
//! A call speaks for one connection and the epoch it was opened under ([`Connected`]). The store reads an [`Authority`] and
//! a [`Standing`] in one transaction, asks one of the functions here, and writes what comes back in the same
//! transaction; what is refused writes nothing. [`Standing::apply`] says what each [`Change`] means.
//!
//! ```text
//!             connect: epoch is the current one, none higher was seen
//!  Disconnected ───────────────────────────────────────────────────► Connected ──┐ connect: replaces the connection
//!   the highest   ◄────────────────────────────────────────────────   │  ▲ ▲     │
//!   epoch stays     disconnect: the same connection and epoch         │  │ └─────┘
//!                                                              record,│  │
//!                                                              retain └──┘ the same connection, the current epoch
//! ```
//!
//! - Never does a connection of another epoch than the current one record anything, whoever it belonged to
//!   (`a_lost_lease_records_nothing_in_the_transaction_that_would_record`, `every_history_of_several_owners_is_fenced`).
//! - Never does a connection that was replaced change what its successor recorded, not even by its end
//!   (`a_stale_connection_changes_nothing`).
//! - Never is a part of a report recorded: a digest that differs refuses all of it
//!   (`a_report_is_recorded_completely_or_not_at_all`).
//! - Never does a serving pin fall, and never does it rise to anything but the current target, reported ready
//!   (`a_pin_only_rises_to_a_ready_target`).
//! - Never does an observation count that another connection or epoch left behind
//!   (`readiness_belongs_to_one_connection_and_epoch`).
//! - Never does a missing observation say anything about a generation (`readiness_belongs_to_one_connection_and_epoch`).
//! - Never is a generation given up that is the target, the pin or held
//!   (`retention_keeps_target_pin_and_sandboxes_in_the_order_asked`).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::admin::time::Timestamp;
use crate::limits::ONLINE_AGE_MS;
use crate::units::{Digest, Generation, Id, OwnerEpoch};
use crate::wire::IntoOwned as _;
use crate::wire::payload::{self, Checkpoint, GenerationReference, Observation, ObservedState, Retention};

/// A connection and the epoch it was opened under. Presence, observations and their end speak for exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connected {
    /// Which connection.
    pub connection_id: Id,
    /// Under which epoch.
    pub owner_epoch: OwnerEpoch,
}

/// What Core's own record says, read in the transaction that a call decides in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Authority {
    /// `None` until an owner claimed the installation.
    pub installation: Option<Id>,
    /// The fencing number of the owner; `None` before the first.
    pub owner_epoch: Option<OwnerEpoch>,
    /// The current target; `None` when nothing is selected.
    pub target: Option<Generation>,
    /// The digests of Core's specifications: of the target, and at least of those a call names. A kept generation that
    /// is missing here has no specification, and so differs from whatever a node says.
    pub digests: BTreeMap<Generation, Digest>,
}

/// What is recorded of one enrolled node, read in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The installation that it enrolled with.
    pub installation: Id,
    /// The current connection; `None` when it is disconnected.
    pub connection: Option<Id>,
    /// The highest epoch that it was connected under; it stays when the connection ends.
    pub epoch: Option<OwnerEpoch>,
    /// When its last connect or report was recorded.
    pub last_seen_at: Option<Timestamp>,
    /// The serving pin.
    pub pin: Option<Generation>,
    /// Generations of its unreleased placements and allocations.
    pub held: BTreeSet<Generation>,
    /// What it said last of each generation, on whichever connection.
    pub statuses: BTreeMap<Generation, Status>,
}

/// What a node said of one generation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Status {
    /// On which connection.
    pub by: Connected,
    /// What it said.
    pub said: Observation<'static>,
}

/// One thing to write, in order and in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// The node is connected by this connection, and was heard at this time.
    Connected(Connected, Timestamp),
    /// The node is not connected.
    Disconnected,
    /// The node was heard at this time.
    Heard(Timestamp),
    /// The node said this of a generation.
    Observed(Status),
    /// Core no longer knows what the node said of this generation.
    Forgotten(Generation),
    /// The serving pin is this generation.
    Pinned(Generation),
}

/// What becomes of a report.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Recorded {
    /// What to write.
    pub changes: Vec<Change>,
    /// The reported generations that Core keeps for this node; it skipped what the node said of the others.
    pub kept: Vec<Generation>,
}

/// The answer to a retention exchange.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Retained {
    /// What to write.
    pub changes: Vec<Change>,
    /// One entry for each reference, in the order asked.
    pub retentions: Vec<Retention>,
    /// What is announced beside them.
    pub deployment: payload::Deployment,
}

/// Why a call changes nothing. The connection that made it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// The node is of another installation.
    #[error("the node belongs to another installation")]
    Foreign,
    /// The epoch of the call is not Core's current one: this process lost its lease, or has none yet.
    #[error("owner epoch {0} is not the current one")]
    Fenced(OwnerEpoch),
    /// The node was connected under a higher epoch than Core's current one.
    #[error("the node was connected under the higher owner epoch {0}")]
    LowerEpoch(OwnerEpoch),
    /// Another connection is the current one, or none is.
    #[error("the connection is not the node's current one")]
    Stale,
    /// A kept generation has another digest here.
    #[error("generation {0} is known with another specification digest")]
    Mismatch(Generation),
    /// Nothing is selected that could be announced.
    #[error("nothing is selected")]
    Unconfigured,
}

/// Records a new connection. It replaces whichever was recorded before, and readiness starts anew with it.
pub fn connect(authority: &Authority, node: &Standing, by: Connected, now: Timestamp) -> Result<Change, Refused> {
    authority.check(node, by.owner_epoch)?;
    match node.epoch {
        Some(seen) if seen > by.owner_epoch => Err(Refused::LowerEpoch(seen)),
        Some(_) | None => Ok(Change::Connected(by, now)),
    }
}

/// Records a heartbeat, or the health of `hello`: presence, observations and the serving pin, all or nothing.
pub fn record(
    authority: &Authority,
    node: &Standing,
    by: Connected,
    observations: &[Observation<'_>],
    now: Timestamp,
) -> Result<Recorded, Refused> {
    check_current(authority, node, by)?;
    let (mut changes, mut kept) = (vec![Change::Heard(now)], Vec::new());
    for said in observations {
        if !authority.keeps(node, said.generation, said.specification_digest)? {
            continue;
        }
        kept.push(said.generation);
        changes.push(Change::Observed(Status { by, said: said.clone().into_owned() }));
        if authority.target == Some(said.generation) && is_ready(&said.state) && node.pin < authority.target {
            changes.push(Change::Pinned(said.generation));
        }
    }
    Ok(Recorded { changes, kept })
}

/// Decides which references the node must keep, and forgets what it said of the others.
pub fn retain(
    authority: &Authority,
    node: &Standing,
    by: Connected,
    references: &[GenerationReference],
) -> Result<Retained, Refused> {
    check_current(authority, node, by)?;
    let deployment = announce(authority, node)?;
    let (mut changes, mut retentions) = (Vec::new(), Vec::with_capacity(references.len()));
    for &reference in references {
        let keep = authority.keeps(node, reference.generation, reference.specification_digest)?;
        if !keep {
            changes.push(Change::Forgotten(reference.generation));
        }
        retentions.push(Retention { reference, keep });
    }
    Ok(Retained { changes, retentions, deployment })
}

/// Ends a connection; `None` when it is not the current one. No epoch is asked for: the end of a connection is recorded
/// also by a process that lost its lease, because it changes nothing that is not its own.
#[must_use]
pub fn disconnect(node: &Standing, by: Connected) -> Option<Change> {
    node.is_current(by).then_some(Change::Disconnected)
}

/// What `welcome`, `heartbeat_ack` and `retention_ack` announce: the target and the node's serving pin.
pub fn announce(authority: &Authority, node: &Standing) -> Result<payload::Deployment, Refused> {
    let generation = authority.target.ok_or(Refused::Unconfigured)?;
    let specification_digest = *authority.digests.get(&generation).ok_or(Refused::Unconfigured)?;
    Ok(payload::Deployment { generation, specification_digest, serving_generation: node.pin })
}

/// Whether whoever acts under `claimed` still owns execution. Asked in the transaction that records the effect, under
/// the lock that a new owner takes: a process that lost its lease changes nothing, however late it notices.
pub fn fence(current: Option<OwnerEpoch>, claimed: OwnerEpoch) -> Result<(), Refused> {
    if current == Some(claimed) { Ok(()) } else { Err(Refused::Fenced(claimed)) }
}

impl Authority {
    /// Whether a generation is kept for a node: the target, its pin, or one that it holds a sandbox of.
    #[must_use]
    pub fn needs(&self, node: &Standing, generation: Generation) -> bool {
        self.target == Some(generation) || node.pin == Some(generation) || node.held.contains(&generation)
    }

    fn keeps(&self, node: &Standing, generation: Generation, given: Digest) -> Result<bool, Refused> {
        match (self.needs(node, generation), self.digests.get(&generation) == Some(&given)) {
            (false, _) => Ok(false),
            (true, true) => Ok(true),
            (true, false) => Err(Refused::Mismatch(generation)),
        }
    }

    fn check(&self, node: &Standing, epoch: OwnerEpoch) -> Result<(), Refused> {
        if self.installation != Some(node.installation) {
            return Err(Refused::Foreign);
        }
        fence(self.owner_epoch, epoch)
    }
}

fn check_current(authority: &Authority, node: &Standing, by: Connected) -> Result<(), Refused> {
    authority.check(node, by.owner_epoch)?;
    if node.is_current(by) { Ok(()) } else { Err(Refused::Stale) }
}

impl Standing {
    /// A node that enrolled and never connected.
    #[must_use]
    pub const fn enrolled(installation: Id) -> Self {
        Self {
            installation,
            connection: None,
            epoch: None,
            last_seen_at: None,
            pin: None,
            held: BTreeSet::new(),
            statuses: BTreeMap::new(),
        }
    }

    /// What a change does to the record.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Connected(by, at) => {
                (self.connection, self.epoch) = (Some(by.connection_id), Some(by.owner_epoch));
                self.last_seen_at = Some(at);
            }
            Change::Disconnected => self.connection = None,
            Change::Heard(at) => self.last_seen_at = Some(at),
            Change::Observed(status) => {
                self.statuses.insert(status.said.generation, status);
            }
            Change::Forgotten(generation) => {
                self.statuses.remove(&generation);
            }
            Change::Pinned(generation) => self.pin = Some(generation),
        }
    }

    /// Connected under the current epoch, and heard of less than 45 s from now. A clock that jumped back keeps nobody
    /// online for longer: what was heard in the future counts as little as what was heard long ago.
    #[must_use]
    pub fn is_online(&self, owner_epoch: Option<OwnerEpoch>, now: Timestamp) -> bool {
        self.connection.is_some()
            && self.epoch.is_some()
            && self.epoch == owner_epoch
            && self.last_seen_at.is_some_and(|seen| now.0.abs_diff(seen.0) < ONLINE_AGE_MS)
    }

    /// What the node says of a generation on its current connection; `None` when it is offline or said nothing.
    #[must_use]
    pub fn status(
        &self,
        generation: Generation,
        owner_epoch: Option<OwnerEpoch>,
        now: Timestamp,
    ) -> Option<&Observation<'static>> {
        let status = self.statuses.get(&generation).filter(|status| self.is_current(status.by))?;
        self.is_online(owner_epoch, now).then_some(&status.said)
    }

    /// The node can carry out a creation of this generation now.
    #[must_use]
    pub fn is_ready(&self, generation: Generation, owner_epoch: Option<OwnerEpoch>, now: Timestamp) -> bool {
        self.status(generation, owner_epoch, now).is_some_and(|said| is_ready(&said.state))
    }

    /// The serving pin is ready.
    #[must_use]
    pub fn is_serving(&self, owner_epoch: Option<OwnerEpoch>, now: Timestamp) -> bool {
        self.pin.is_some_and(|pin| self.is_ready(pin, owner_epoch, now))
    }

    /// The compatibility tokens of a generation, while it is ready on the current connection (wire §5.7).
    #[must_use]
    pub fn checkpoint(
        &self,
        generation: Generation,
        owner_epoch: Option<OwnerEpoch>,
        now: Timestamp,
    ) -> Option<&Checkpoint<'static>> {
        match &self.status(generation, owner_epoch, now)?.state {
            ObservedState::Ready { checkpoint } => checkpoint.as_ref(),
            ObservedState::Preparing { .. } | ObservedState::Failed { .. } => None,
        }
    }

    fn is_current(&self, by: Connected) -> bool {
        self.connection == Some(by.connection_id) && self.epoch == Some(by.owner_epoch)
    }
}

const fn is_ready(state: &ObservedState<'_>) -> bool {
    match state {
        ObservedState::Ready { .. } => true,
        ObservedState::Preparing { .. } | ObservedState::Failed { .. } => false,
    }
}
