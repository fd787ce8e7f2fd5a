//! What clients and operators write.

use palisade_core::admin::deployment::Clear;
use palisade_core::deployment::{Reset, admission};
use palisade_core::lifecycle::Environment;
use palisade_core::session::hub::presence::Standing;
use palisade_core::units::{Digest, Generation, Id};

use super::{AllocationState, NodeRow, Placement, Session, Store, Turn, TurnState};
use crate::clock::Time;

/// What a client or an operator is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Done,
    Refused(&'static str),
}

impl Store {
    pub(crate) fn create_session(&mut self, ids: [Id; 2], now: Time) -> Told {
        let nodes: Vec<_> = self.nodes.keys().filter_map(|id| self.node(*id)).collect();
        match admission::admit(&self.deployment(), &nodes, self.clock(now)) {
            Ok(placement) => {
                let placement = placement.map(|admission::Placement { node, generation }| Placement {
                    node,
                    generation,
                    released: false,
                });
                self.sessions.push(Session {
                    tenant: ids[0],
                    environment: ids[1],
                    deleted: false,
                    status: Environment::Pending,
                    placement,
                    allocation: None,
                    turns: Vec::new(),
                });
                Told::Done
            }
            Err(refused) => Told::Refused(match refused {
                admission::Refused::Reset => "admission: reset in progress",
                admission::Refused::Closed => "admission: closed",
                admission::Refused::Loopback => "admission: loopback origin",
                admission::Refused::NoNode => "admission: no node",
                admission::Refused::Preparing => "admission: nodes prepare",
                admission::Refused::Unconfigured => "admission: unconfigured",
            }),
        }
    }

    pub(crate) fn post_turn(&mut self, at: usize, id: Id, timeout_ms: u64, now: Time) -> Told {
        let created = self.clock(now);
        let session = &mut self.sessions[at];
        if session.deleted || matches!(session.status, Environment::Failed | Environment::Expired) {
            return Told::Refused("environment_unavailable");
        }
        session.turns.push(Turn { id, state: TurnState::Queued, created, timeout_ms, cancel_requested: false });
        Told::Done
    }

    pub(crate) fn cancel_turns(&mut self, at: usize) {
        for turn in self.sessions[at].turns.iter_mut().filter(|turn| !turn.state.ended()) {
            turn.cancel_requested = true;
            if turn.state == TurnState::Queued {
                turn.state = TurnState::Cancelled;
            }
        }
    }

    /// Only an idle session is deleted.
    pub(crate) fn delete_session(&mut self, at: usize) -> Told {
        let session = &mut self.sessions[at];
        if session.deleted || session.turns.iter().any(|turn| !turn.state.ended()) {
            return Told::Refused("session_busy");
        }
        session.deleted = true;
        session.let_go();
        Told::Done
    }

    /// Ends an environment whatever it does.
    pub(crate) fn archive(&mut self, at: usize) {
        self.cancel_turns(at);
        let session = &mut self.sessions[at];
        if !matches!(session.status, Environment::Failed | Environment::Expired) {
            session.status = Environment::Expired;
        }
        session.let_go();
    }

    pub(crate) fn start_reset(&mut self, now: Time) -> Told {
        if self.reset.is_some() || !self.configured {
            return Told::Refused("sandbox_reset_conflict");
        }
        let requested_at = self.clock(now);
        self.reset = Some(Reset { clear: Clear::Force, requested_at, deadline_at: None, forced_at: None });
        Told::Done
    }

    /// One pass of the owner over a reset: true when it is complete.
    pub(crate) fn advance_reset(&mut self) -> bool {
        if self.reset.is_none() {
            return false;
        }
        for at in 0..self.sessions.len() {
            if self.sessions[at].holds() && self.sessions[at].status != Environment::Expired {
                self.archive(at);
            }
        }
        if self.sessions.iter().any(Session::holds) {
            return false;
        }
        self.reset = None;
        self.configured = false;
        self.generation += 1;
        self.owner_epoch += 1;
        self.selections.clear();
        for node in self.nodes.values_mut() {
            node.removed = true;
            (node.standing.pin, node.standing.connection) = (None, None);
        }
        true
    }

    /// Only a node that holds nothing is removed.
    pub(crate) fn remove_node(&mut self, id: Id) -> Told {
        let holds = |session: &Session| session.holds() && session.placement.is_some_and(|at| at.node == id);
        if self.reset.is_some() || self.sessions.iter().any(holds) {
            return Told::Refused("runtime_node_in_use");
        }
        match self.nodes.get_mut(&id).filter(|row| !row.removed) {
            Some(row) => {
                (row.removed, row.standing.connection) = (true, None);
                Told::Done
            }
            None => Told::Refused("runtime_node_not_found"),
        }
    }

    /// Enrolls a node for the current target.
    pub(crate) fn enroll(&mut self, id: Id, credential: String) -> Option<(Generation, Digest)> {
        let enrolled = self.target().filter(|_| self.reset.is_none())?;
        let digest = self.digest(enrolled)?;
        let standing = Standing { pin: Some(enrolled), ..Standing::enrolled(self.installation) };
        let row = NodeRow { credential, enrolled, digest, standing, removed: false };
        self.nodes.insert(id, row);
        Some((enrolled, digest))
    }
}

impl Session {
    /// A session without an allocation gives its place back at once.
    fn let_go(&mut self) {
        let held = self.allocation.as_ref().is_some_and(|held| held.state != AllocationState::Released);
        if let Some(placement) = self.placement.as_mut().filter(|_| !held) {
            placement.released = true;
        }
    }
}
