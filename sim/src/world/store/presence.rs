//! What the connection of a node does to the rows: read, ask the rule, write what it says (wire §5.5, §7.3).

use palisade_core::session::hub::presence::{self, Authority, Change, Connected, Retained, Standing};
use palisade_core::units::{Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity};

use super::{CAPACITY, Store};
use crate::clock::Time;

/// The connection that a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) node: Id,
    pub(crate) by: Connected,
}

/// Why a credential was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    Rejected,
    Failed,
}

impl Store {
    pub(crate) fn authenticate(&self, id: Id, credential: &str) -> Result<Identity<'static>, Denied> {
        let row = self.nodes.get(&id).filter(|row| !row.removed && row.credential == credential);
        let row = row.filter(|_| self.configured).ok_or(Denied::Rejected)?;
        if self.digest(row.enrolled).is_some_and(|digest| digest != row.digest) {
            return Err(Denied::Failed);
        }
        Ok(Identity {
            node_id: id.to_string().into(),
            installation_id: self.installation.to_string().into(),
            provider: "docker".into(),
            backend_fingerprint: "1".repeat(64).into(),
            deployment_generation: row.enrolled.get(),
            specification_digest: row.digest.to_string().into(),
            max_active: CAPACITY.into(),
            max_retained: CAPACITY.into(),
        })
    }

    pub(crate) fn authority(&self) -> Authority {
        let digests = self.selections.iter();
        let digests = digests.filter_map(|(of, selection)| Generation::new(*of).map(|of| (of, selection.digest)));
        Authority {
            installation: Some(self.installation),
            owner_epoch: OwnerEpoch::new(self.owner_epoch),
            target: self.target(),
            digests: digests.collect(),
        }
    }

    /// What is recorded of a node, with what it holds.
    pub(crate) fn standing(&self, id: Id) -> Option<Standing> {
        let row = self.nodes.get(&id).filter(|row| !row.removed)?;
        let held = self.sessions.iter().filter(|session| session.holds()).filter_map(|session| session.placement);
        let held = held.filter(|placement| placement.node == id).map(|placement| placement.generation).collect();
        Some(Standing { held, ..row.standing.clone() })
    }

    fn apply(&mut self, node: Id, changes: impl IntoIterator<Item = Change>) {
        if let Some(row) = self.nodes.get_mut(&node) {
            for change in changes {
                row.standing.apply(change);
            }
        }
    }

    pub(crate) fn connect(&mut self, link: Link, now: Time) -> Option<()> {
        let standing = self.standing(link.node)?;
        let change = presence::connect(&self.authority(), &standing, link.by, self.clock(now)).ok()?;
        self.apply(link.node, [change]);
        Some(())
    }

    pub(crate) fn disconnect(&mut self, link: Link) {
        let change = self.nodes.get(&link.node).and_then(|row| presence::disconnect(&row.standing, link.by));
        self.apply(link.node, change);
    }

    pub(crate) fn record(&mut self, link: Link, health: &Health<'_>, now: Time) -> Option<Vec<Generation>> {
        let standing = self.standing(link.node)?;
        let clock = self.clock(now);
        let recorded = presence::record(&self.authority(), &standing, link.by, &health.generations, clock).ok()?;
        self.apply(link.node, recorded.changes);
        Some(recorded.kept)
    }

    pub(crate) fn announcement(&self, node: Id) -> Option<Deployment> {
        presence::announce(&self.authority(), &self.standing(node)?).ok()
    }

    pub(crate) fn retain(&mut self, link: Link, references: &[GenerationReference]) -> Option<Retained> {
        let retained = presence::retain(&self.authority(), &self.standing(link.node)?, link.by, references).ok()?;
        self.apply(link.node, retained.changes.iter().cloned());
        Some(retained)
    }
}
