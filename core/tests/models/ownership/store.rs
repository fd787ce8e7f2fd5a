//! The rows that say which connection of the node counts, and the transactions on them.

use palisade_core::session::hub::presence::{Authority, Connected, Standing, connect, disconnect, record};
use palisade_core::session::hub::{Callback, Reply};
use palisade_core::units::OwnerEpoch;
use palisade_core::wire::payload::Observation;

use super::{Broken, Notable};
use crate::fixtures::{TIME, authority, epoch, id, standing};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    authority: Authority,
    node: Standing,
}

/// One transaction, for the connection that wants it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transaction {
    pub(super) by: Connected,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Connect,
    Record(Vec<Observation<'static>>),
    Disconnect,
}

impl Kind {
    /// The transaction behind a callback; `None` for one that only reads.
    pub(super) fn of(callback: &Callback) -> Option<Self> {
        match callback {
            Callback::Connect => Some(Self::Connect),
            Callback::Record(health) => Some(Self::Record(health.generations.clone())),
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
    pub(super) fn new() -> Self {
        Self { authority: authority(1, 1), node: standing(1) }
    }

    /// The installation's owner epoch.
    pub(super) fn epoch(&self) -> u64 {
        self.authority.owner_epoch.map_or(0, OwnerEpoch::get)
    }

    /// Another process becomes the owner.
    pub(super) fn claim(&mut self) {
        self.authority.owner_epoch = Some(epoch(self.epoch() + 1));
    }

    /// Runs a transaction to its end, and says what is notable about it.
    pub(super) fn run(&mut self, transaction: &Transaction, broken: Option<Broken>) -> (Reply, Option<Notable>) {
        let by = transaction.by;
        let (mut authority, mut node) = (self.authority.clone(), self.node.clone());
        if broken == Some(Broken::EpochUnchecked) {
            authority.owner_epoch = Some(by.owner_epoch);
            node.epoch = node.epoch.min(Some(by.owner_epoch));
        }
        let stale = Some(by.owner_epoch) != self.authority.owner_epoch;
        let judged = match &transaction.kind {
            Kind::Connect => connect(&authority, &node, by, TIME).map(|change| (vec![change], Reply::Done)),
            Kind::Record(observations) => record(&authority, &node, by, observations, TIME)
                .map(|recorded| (recorded.changes, Reply::Recorded(recorded.kept))),
            Kind::Disconnect => Ok((disconnect(&self.node, by).into_iter().collect(), Reply::Done)),
        };
        let Ok((changes, reply)) = judged else { return (Reply::Failed, stale.then_some(Notable::StaleRefused)) };
        for change in changes {
            self.node.apply(change);
        }
        (reply, (stale && transaction.is_write()).then_some(Notable::StaleWritten))
    }

    pub(super) fn is_present(&self, number: u8, under: u64) -> bool {
        (self.node.connection, self.node.epoch) == (Some(id(number)), Some(epoch(under)))
    }
}
