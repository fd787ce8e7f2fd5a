//! The connections of the nodes (wire §5).
//!
//! Every rule is in [`palisade_core::session::hub`]; here are the upgrade, one task for each connection, and the way
//! from a caller to the connection of a node and back.
//!
//! # Invariants
//!
//! - Never two accepted connections of one node identity ([`Reservations`]).
//! - Nobody waits for a slow connection but its own callers: closing and disconnecting only ask.
//! - A storage call is never dropped half-way; it is asked to end, and its end is awaited.

mod call;
mod connect;
mod connection;
mod line;
mod records;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palisade_core::limits::HUB_BYTES_MAX;
use palisade_core::session::hub::Readiness;
use palisade_core::session::hub::reservations::{Refused, Reservations, Ticket};
use palisade_core::units::{Generation, Id, Millis, OwnerEpoch};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use call::{Load, Outcome, Placement, Room};
pub use connect::routes;
pub use records::{Bounds, Denied, Failed, NodeStore, Records, Retained};

use crate::metrics::Times;
use line::Line;

/// Requests that wait for a connection's task; it carries half as many, so that the others would be refused anyway.
const ORDERS: usize = 64;

/// Live connections, one per node. Clones share them. The default one has no records and accepts nobody.
#[derive(Clone, Default)]
pub struct Hub(Option<Arc<Shared>>);

struct Shared {
    records: Arc<dyn NodeStore>,
    table: Mutex<Table>,
    bytes: Arc<Semaphore>,
    budget_bytes: u64,
    times: Times,
    started: Instant,
    stop: CancellationToken,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct Table {
    reservations: Reservations,
    open: BTreeMap<Id, Entry>,
}

/// One reserved identity.
struct Entry {
    stop: CancellationToken,
    peer: Option<Peer>,
}

/// A published connection, as a caller sees it.
#[derive(Clone)]
struct Peer {
    owner_epoch: OwnerEpoch,
    line: Line,
    readiness: watch::Receiver<Readiness>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connections = self.0.as_ref().map(|shared| shared.table().reservations.count());
        f.debug_struct("Hub").field("connections", &connections).finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub over Core's records.
    #[must_use]
    pub fn new(records: Arc<dyn NodeStore>) -> Self {
        Self::with_budget(records, HUB_BYTES_MAX)
    }

    /// [`Hub::new`] with another budget for the bodies in flight over all connections (decision 30). A budget below the
    /// largest command would make that wait for ever.
    #[must_use]
    pub fn with_budget(records: Arc<dyn NodeStore>, bytes: u64) -> Self {
        Self(Some(Arc::new(Shared {
            records,
            table: Mutex::default(),
            bytes: Arc::new(Semaphore::new(call::permits(bytes) as usize)),
            budget_bytes: bytes,
            times: Times::default(),
            started: Instant::now(),
            stop: CancellationToken::new(),
            version: watch::Sender::new(0),
        })))
    }

    /// Whether a connection of `node` is live.
    #[must_use]
    pub fn is_live(&self, node: Id) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.peer(node).is_some())
    }

    /// Whether `generation` was reported ready on the live connection of `node`.
    #[must_use]
    pub fn is_ready(&self, node: Id, generation: Generation) -> bool {
        let peer = self.0.as_ref().and_then(|shared| shared.peer(node));
        peer.is_some_and(|peer| peer.readiness.borrow().is_ready(generation))
    }

    /// Counts connections that came, went or changed their readiness; the owner looks again at each change.
    #[must_use]
    pub fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.0.as_ref().map(|shared| shared.version.subscribe())
    }

    /// Asks the connection of `node` to end, if there is one. Returns at once.
    pub fn disconnect(&self, node: Id) {
        if let Some(shared) = &self.0
            && let Some(entry) = shared.table().open.get(&node)
        {
            entry.stop.cancel();
        }
    }

    /// Asks every connection to end and accepts no other. Returns at once.
    pub fn close(&self) {
        if let Some(shared) = &self.0 {
            shared.table().reservations.shut();
            shared.stop.cancel();
        }
    }

    /// Waits until every connection has really ended, its last storage call included.
    pub async fn closed(&self) {
        let Some(shared) = &self.0 else { return };
        let mut version = shared.version.subscribe();
        while shared.table().reservations.count() > 0 {
            if version.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Millis {
        let elapsed = self.started.elapsed().as_millis();
        Millis(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    fn instant(&self, at: Millis) -> Instant {
        // A deadline centuries away is as good as none, and still fits the clock.
        self.started + std::time::Duration::from_millis(at.0.min(1 << 40))
    }

    fn peer(&self, node: Id) -> Option<Peer> {
        self.table().open.get(&node).and_then(|entry| entry.peer.clone())
    }

    fn reserve(self: &Arc<Self>, node: Id) -> Result<Reservation, Refused> {
        let mut table = self.table();
        let ticket = table.reservations.reserve(node)?;
        let stop = self.stop.child_token();
        table.open.insert(node, Entry { stop: stop.clone(), peer: None });
        Ok(Reservation { shared: Arc::clone(self), node, ticket, stop })
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }
}

/// A reserved identity. Dropping it frees the identity.
struct Reservation {
    shared: Arc<Shared>,
    node: Id,
    ticket: Ticket,
    stop: CancellationToken,
}

impl Reservation {
    fn publish(&self, peer: Peer) {
        let mut table = self.shared.table();
        table.reservations.publish(self.node, self.ticket);
        if let Some(entry) = table.open.get_mut(&self.node) {
            entry.peer = Some(peer);
        }
        drop(table);
        self.shared.changed();
    }

    fn close(&self) {
        let mut table = self.shared.table();
        table.reservations.close(self.node, self.ticket);
        if let Some(entry) = table.open.get_mut(&self.node) {
            entry.peer = None;
        }
        drop(table);
        self.shared.changed();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.reservations.release(self.node, self.ticket);
        table.open.remove(&self.node);
        drop(table);
        self.shared.changed();
    }
}
