//! What the connection of a node does to the rows (wire §5.5, §7.3).

use palisade_core::deployment::node::{ObservedState as State, Status};
use palisade_core::deployment::retention::{self, Verdict};
use palisade_core::units::{Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity, ObservedState, Retention};

use super::{CAPACITY, Store};
use crate::clock::Time;

/// The connection that a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) node: Id,
    pub(crate) connection: Id,
    pub(crate) epoch: OwnerEpoch,
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

    pub(crate) fn connect(&mut self, link: Link, now: Time) -> Option<()> {
        let (seen, current) = (self.clock(now), self.owner_epoch == link.epoch.get());
        let row = self.nodes.get_mut(&link.node).filter(|row| !row.removed && current)?;
        if row.epoch.is_some_and(|epoch| epoch > link.epoch) {
            return None;
        }
        (row.connection, row.epoch, row.seen) = (Some(link.connection), Some(link.epoch), Some(seen));
        Some(())
    }

    pub(crate) fn disconnect(&mut self, link: Link) {
        if let Some(row) = self.nodes.get_mut(&link.node)
            && (row.connection, row.epoch) == (Some(link.connection), Some(link.epoch))
        {
            row.connection = None;
        }
    }

    /// Whether the connection is the current one under the current epoch.
    fn is_linked(&self, link: Link) -> bool {
        let row = self.nodes.get(&link.node).filter(|row| !row.removed);
        self.owner_epoch == link.epoch.get()
            && row.is_some_and(|row| (row.connection, row.epoch) == (Some(link.connection), Some(link.epoch)))
    }

    pub(crate) fn record(&mut self, link: Link, health: &Health<'_>, now: Time) -> Option<Vec<Generation>> {
        if !self.is_linked(link) {
            return None;
        }
        let (deployment, node, seen) = (self.deployment(), self.node(link.node)?, self.clock(now));
        let verdict = |of: &palisade_core::wire::payload::Observation<'_>| {
            let kept = retention::is_kept_for(&node, of.generation, &deployment);
            retention::judge(kept, self.digest(of.generation), of.specification_digest)
        };
        let verdicts: Vec<_> = health.generations.iter().map(|observed| (observed, verdict(observed))).collect();
        if verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Mismatch) {
            return None;
        }
        let mut kept = Vec::new();
        let row = self.nodes.get_mut(&link.node)?;
        row.seen = Some(seen);
        for (observed, _) in verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Keep) {
            let (state, diagnostic) = state(&observed.state);
            let (generation, epoch, connection) = (observed.generation, link.epoch, link.connection);
            let status = Status { generation, connection, epoch, state, diagnostic };
            row.statuses.insert(generation, (status, observed.specification_digest));
            row.pin = retention::promote(row.pin, generation, state, &deployment);
            kept.push(generation);
        }
        Some(kept)
    }

    pub(crate) fn announcement(&self, node: Id) -> Option<Deployment> {
        let row = self.nodes.get(&node).filter(|row| !row.removed)?;
        let generation = self.target()?;
        Some(Deployment { generation, specification_digest: self.digest(generation)?, serving_generation: row.pin })
    }

    pub(crate) fn retain(
        &mut self,
        link: Link,
        references: &[GenerationReference],
    ) -> Option<(Vec<Retention>, Deployment)> {
        let announced = self.announcement(link.node).filter(|_| self.is_linked(link))?;
        let (deployment, node) = (self.deployment(), self.node(link.node)?);
        let mut retentions = Vec::with_capacity(references.len());
        for reference in references {
            let kept = retention::is_kept_for(&node, reference.generation, &deployment);
            let keep = match retention::judge(kept, self.digest(reference.generation), reference.specification_digest) {
                Verdict::Keep => true,
                Verdict::Forget => false,
                Verdict::Mismatch => return None,
            };
            retentions.push(Retention { reference: *reference, keep });
        }
        let row = self.nodes.get_mut(&link.node)?;
        for dropped in retentions.iter().filter(|entry| !entry.keep) {
            row.statuses.remove(&dropped.reference.generation);
        }
        Some((retentions, announced))
    }
}

const fn state(state: &ObservedState<'_>) -> (State, Option<palisade_core::wire::payload::Diagnostic>) {
    match state {
        ObservedState::Ready { .. } => (State::Ready, None),
        ObservedState::Preparing { diagnostic } => (State::Preparing, *diagnostic),
        ObservedState::Failed { diagnostic } => (State::Failed, *diagnostic),
    }
}
