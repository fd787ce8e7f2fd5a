//! The node's side of the retention exchange of one connection, and the removals it grants (wire §7.1, §7.2, §7.4).

use std::collections::VecDeque;

use super::{Action, Ended, Link, Node, Ownership};
use crate::generation::Drop;
use crate::limits::COLLECTION_TIMEOUT_MS;
use crate::units::{Generation, Id, Millis, Sequence};
use crate::wire::frame::Frame;
use crate::wire::payload::{Deployment, Exchange, GenerationReference, Retention};

/// All exchanges of one connection; forgotten with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Exchanges {
    last: Option<Sequence>,
    /// Moves only when a batch was worked off, so that a failing entry starves nobody.
    cursor: Option<Generation>,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum State {
    #[default]
    Idle,
    Pending {
        exchange: Exchange,
        references: Vec<GenerationReference>,
    },
    Granted {
        grants: VecDeque<Retention>,
        last: Option<Generation>,
        removing: Option<Removal>,
    },
}

/// The removal of a batch that runs; without a `deadline` once its end was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Removal {
    generation: Generation,
    deadline: Option<Millis>,
}

impl Exchanges {
    /// The sequence and references of the next request, when one may be sent.
    pub(super) fn next(
        &self,
        candidates: impl FnOnce(Option<Generation>) -> Vec<GenerationReference>,
    ) -> Option<(Sequence, Vec<GenerationReference>)> {
        if !matches!(self.state, State::Idle) {
            return None;
        }
        let references = candidates(self.cursor);
        let sequence = self.last.map_or(Some(Sequence::FIRST), Sequence::next)?;
        (!references.is_empty()).then_some((sequence, references))
    }

    /// The request was handed out.
    pub(super) fn asked(&mut self, exchange: Exchange, references: Vec<GenerationReference>) {
        self.last = Some(exchange.sequence);
        self.state = State::Pending { exchange, references };
    }

    /// Whether this is the whole answer to exactly what was asked, in the same order.
    pub(super) fn matches(&self, answer: &Exchange, retentions: &[Retention]) -> bool {
        match &self.state {
            State::Pending { exchange, references } => {
                answer == exchange && retentions.iter().map(|retention| &retention.reference).eq(references)
            }
            State::Idle | State::Granted { .. } => false,
        }
    }

    /// Queues the grants of an answer that matches.
    pub(super) fn grant(&mut self, retentions: Vec<Retention>) {
        let last = retentions.last().map(|retention| retention.reference.generation);
        self.state = State::Granted { grants: retentions.into(), last, removing: None };
    }

    /// The next grant to work off, while no removal runs.
    pub(super) fn poll_grant(&mut self) -> Option<Retention> {
        let State::Granted { grants, last, removing: None } = &mut self.state else { return None };
        let grant = grants.pop_front();
        if grant.is_none() {
            self.cursor = last.or(self.cursor);
            self.state = State::Idle;
        }
        grant
    }

    /// The grant that was polled last became a removal.
    pub(super) fn start_removal(&mut self, now: Millis, generation: Generation) {
        if let State::Granted { removing, .. } = &mut self.state {
            *removing = Some(Removal { generation, deadline: Some(now.after(COLLECTION_TIMEOUT_MS)) });
        }
    }

    /// The removal that used up its time, once: nobody is asked about while it runs (node-host §4.4).
    pub(super) fn poll_overdue(&mut self, now: Millis) -> Option<Generation> {
        let State::Granted { removing: Some(removal), .. } = &mut self.state else { return None };
        removal.deadline.take_if(|deadline| *deadline <= now).map(|_| removal.generation)
    }

    /// When the running removal has used up its time.
    pub(super) fn poll_timeout(&self) -> Option<Millis> {
        match self.state {
            State::Granted { removing, .. } => removing.and_then(|removal| removal.deadline),
            State::Idle | State::Pending { .. } => None,
        }
    }

    /// A removal ended; another connection's is not ours.
    pub(super) fn handle_removed(&mut self, generation: Generation) {
        if let State::Granted { removing, .. } = &mut self.state {
            removing.take_if(|removal| removal.generation == generation);
        }
    }

    /// The removal that runs.
    pub(super) fn removing(&self) -> impl Iterator<Item = Generation> {
        match self.state {
            State::Granted { removing, .. } => removing.map(|removal| removal.generation),
            State::Idle | State::Pending { .. } => None,
        }
        .into_iter()
    }
}

impl Node {
    /// Takes an answer that matches the whole request, and nothing of any other.
    pub(super) fn handle_retentions(
        &mut self,
        exchange: &Exchange,
        retentions: Vec<Retention>,
        deployment: Deployment,
    ) -> Result<(), Ended> {
        let Link::Live(live) = &mut self.link else { return Err(Ended::Unexpected) };
        if (exchange.connection_id, exchange.owner_epoch) != (live.connection_id, live.owner_epoch) {
            return Err(Ended::Ownership(Ownership::Fencing));
        }
        if !live.exchanges.matches(exchange, &retentions) {
            return Err(Ended::Ownership(Ownership::Retention));
        }
        self.table.announce(deployment).map_err(|refusal| Ended::Ownership(refusal.into()))?;
        live.exchanges.grant(retentions);
        Ok(())
    }

    /// Works off the granted batch, one removal at a time.
    pub(super) fn drain_grants(&mut self, now: Millis) {
        let Link::Live(live) = &mut self.link else { return };
        while let Some(retention) = live.exchanges.poll_grant() {
            if !retention.keep && self.table.drop_granted(retention.reference) == Drop::Remove {
                live.exchanges.start_removal(now, retention.reference.generation);
                self.actions.push_back(Action::Remove(retention.reference));
            }
        }
        self.actions.extend(live.exchanges.poll_overdue(now).map(Action::CancelRemoval));
    }

    /// Asks about the next batch of generations, when none is asked about or worked off.
    pub(super) fn ask_retention(&mut self, id: Id) -> Result<(), Ended> {
        let Link::Live(live) = &mut self.link else { return Ok(()) };
        let references = live.exchanges.next(|cursor| self.table.candidates(cursor));
        let Some((sequence, references)) = references else { return Ok(()) };
        let (connection_id, owner_epoch) = (live.connection_id, live.owner_epoch);
        let exchange = Exchange { id, sequence, connection_id, owner_epoch };
        live.exchanges.asked(exchange, references.clone());
        self.send_control(&Frame::Retention { exchange, references })
    }
}
