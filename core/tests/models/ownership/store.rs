//! The rows that say which connection of the node counts, and the transactions on them.

use palisade_core::session::hub::{Callback, Reply};

use super::{Broken, Notable};
use crate::fixtures::generation;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    /// The installation's owner epoch.
    pub(super) epoch: u64,
    connection: Option<u8>,
    connected_epoch: Option<u64>,
    /// Connection and epoch of the node's last health.
    observed: Option<(u8, u64)>,
}

/// One transaction, for the connection that wants it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transaction {
    pub(super) connection: u8,
    pub(super) epoch: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Connect,
    Record,
    Disconnect,
}

impl Kind {
    /// The transaction behind a callback; `None` for one that only reads.
    pub(super) fn of(callback: &Callback) -> Option<Self> {
        match callback {
            Callback::Connect => Some(Self::Connect),
            Callback::Record(_) => Some(Self::Record),
            Callback::Disconnect => Some(Self::Disconnect),
            Callback::Deployment | Callback::Authenticate | Callback::Epoch | Callback::Retain(_) => None,
        }
    }
}

impl Transaction {
    /// Whether it makes a claim, rather than taking one back.
    pub(super) fn is_write(&self) -> bool {
        self.kind != Kind::Disconnect
    }
}

impl Store {
    /// Under its first owner, before any connection.
    pub(super) const fn new(epoch: u64) -> Self {
        Self { epoch, connection: None, connected_epoch: None, observed: None }
    }

    /// Runs a transaction to its end, and says what is notable about it.
    pub(super) fn run(&mut self, transaction: &Transaction, broken: Option<Broken>) -> (Reply, Option<Notable>) {
        let Transaction { connection, epoch, kind } = *transaction;
        if kind == Kind::Disconnect {
            if self.is_present(connection, epoch) {
                self.connection = None;
            }
            return (Reply::Done, None);
        }
        let stale = epoch != self.epoch;
        let linked = match kind {
            Kind::Connect => true,
            Kind::Record | Kind::Disconnect => self.is_present(connection, epoch),
        };
        let over = stale || self.connected_epoch.is_some_and(|connected| connected > epoch);
        if !linked || over && broken != Some(Broken::EpochUnchecked) {
            return (Reply::Failed, stale.then_some(Notable::StaleRefused));
        }
        if kind == Kind::Connect {
            (self.connection, self.connected_epoch) = (Some(connection), Some(epoch));
            return (Reply::Done, stale.then_some(Notable::StaleWritten));
        }
        self.observed = Some((connection, epoch));
        (Reply::Recorded(vec![generation(1)]), stale.then_some(Notable::StaleWritten))
    }

    pub(super) fn is_present(&self, connection: u8, epoch: u64) -> bool {
        (self.connection, self.connected_epoch) == (Some(connection), Some(epoch))
    }
}
