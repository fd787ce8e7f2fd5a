//! What clients were told, and what became of their sandboxes.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::lifecycle::{Environment, TurnError};
use palisade_core::units::{Generation, Id};

use super::Books;
use super::checkpoints::{Held, Kept};
use crate::clock::Time;
use crate::world::store::{AllocationState, Session, Store, TurnState};

/// Everything about clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// The node of each host.
    pub(super) nodes: BTreeMap<usize, Id>,
    /// Sandboxes that exist, with their host.
    pub(super) existing: BTreeMap<Id, usize>,
    /// What exists of each.
    pub(super) held: BTreeMap<Id, Held>,
    /// Restores that were refused for good: their environments may be given up.
    pub(super) unusable: BTreeSet<Id>,
    /// Every sandbox that was ever created.
    created: BTreeSet<Id>,
    pub(super) allocations: BTreeMap<Id, AllocationState>,
    turns: BTreeMap<Id, TurnState>,
    /// How often each command began, what came of it, and what the provider said when it did not.
    started: BTreeMap<String, u32>,
    results: BTreeMap<String, (String, i64)>,
    pub(super) refused: BTreeMap<String, &'static str>,
    /// Commands that a client was told have certainly not run.
    never: BTreeSet<String>,
    pins: BTreeMap<Id, Option<Generation>>,
    /// Since when compute is kept, as seen in the database.
    pub(super) kept: BTreeMap<Id, Kept>,
}

impl Books {
    pub(crate) fn node_of_host(&mut self, host: usize, node: Id) {
        self.clients.nodes.insert(host, node);
    }

    /// Promise 16, second half: what is not ours is never touched.
    pub(crate) fn strangers(&mut self, host: usize, left: u32) {
        self.require(left == crate::world::STRANGERS, "promise 16", || {
            format!("host {host} lost containers of others")
        });
    }

    pub(crate) fn turn_posted(&mut self, turn: Id) {
        self.clients.turns.insert(turn, TurnState::Queued);
    }

    pub(crate) fn reset_completed(&mut self) {
        self.clients.pins.clear();
    }

    /// Never two sandboxes for one allocation, on any host, and never one after its release.
    pub(crate) fn sandbox_created(&mut self, host: usize, allocation: Id, _: Time) {
        let fresh = self.clients.created.insert(allocation);
        let state = self.clients.allocations.get(&allocation).copied();
        self.clients.existing.insert(allocation, host);
        self.clients.held.insert(allocation, Held::created());
        self.require(fresh, "no sandbox is duplicated", || format!("a second sandbox of {allocation} on host {host}"));
        self.require(state != Some(AllocationState::Released) || self.cloned, "no sandbox is lost", || {
            format!("a sandbox of {allocation} appears on host {host} after its release")
        });
    }

    /// Never a sandbox deleted that nobody asked to delete.
    pub(crate) fn sandbox_removed(&mut self, host: usize, allocation: Id) {
        self.incarnation_gone(allocation, 0);
        let state = self.clients.allocations.get(&allocation).copied();
        let asked = matches!(state, Some(AllocationState::CleanupPending | AllocationState::Released));
        self.require(asked, "no sandbox is deleted by mistake", || {
            format!("host {host} deletes the sandbox of {allocation}, which is {state:?}")
        });
    }

    pub(crate) fn command_started(&mut self, host: usize, turn: &str) {
        let times = self.clients.started.entry(turn.to_owned()).or_default();
        *times += 1;
        let times = *times;
        let never = self.clients.never.contains(turn);
        self.require(times == 1, "promise 4", || format!("host {host} runs the command of turn {turn} {times} times"));
        self.require(!never, "clients are told the truth", || {
            format!("host {host} runs the command of turn {turn}, which certainly had not run")
        });
    }

    pub(crate) fn command_ended(&mut self, turn: &str, stdout: &str, exit_code: i64) {
        self.clients.results.insert(turn.to_owned(), (stdout.to_owned(), exit_code));
    }

    /// Something was committed: every client can read it now.
    pub(crate) fn committed(&mut self, store: &Store, now: Time) {
        for session in &store.sessions {
            self.look_at_compute(session, store, now);
            self.look_at_allocation(session);
            for turn in &session.turns {
                self.look_at_turn(turn.id, &turn.state);
            }
        }
        for (id, row) in &store.nodes {
            let last = self.clients.pins.insert(*id, row.standing.pin).flatten();
            let lowered = !row.removed && row.standing.pin < last;
            self.require(!lowered, "promise 14", || {
                format!("the pin of node {id} fell from {last:?} to {:?}", row.standing.pin)
            });
        }
    }

    fn look_at_allocation(&mut self, session: &Session) {
        let Some(allocation) = &session.allocation else { return };
        let (id, state) = (allocation.id, allocation.state);
        let last = self.clients.allocations.insert(id, state);
        if last == Some(state) || self.cloned {
            return;
        }
        let exists = self.clients.existing.get(&id).copied();
        match state {
            AllocationState::Released => self.require(exists.is_none(), "no sandbox is lost", || {
                format!("allocation {id} is released while its sandbox is on host {exists:?}")
            }),
            AllocationState::Running => self.require(exists.is_some(), "clients are told the truth", || {
                format!("allocation {id} is running without a sandbox")
            }),
            AllocationState::Creating | AllocationState::CleanupPending => {}
        }
        self.require(last != Some(AllocationState::Released), "no sandbox is lost", || {
            format!("allocation {id} came back from its release")
        });
        let wanted = !session.deleted && session.status != Environment::Expired;
        let kept = wanted && exists.is_some() && !self.clients.unusable.contains(&id);
        let given_up = last == Some(AllocationState::Running) && state == AllocationState::CleanupPending && kept;
        self.require(!given_up, "no sandbox is deleted by mistake", || {
            format!("allocation {id} is given up, although it is there and nobody ended it")
        });
    }

    fn look_at_turn(&mut self, id: Id, state: &TurnState) {
        let last = self.clients.turns.get(&id).cloned();
        if last.as_ref() == Some(state) {
            return;
        }
        let turn = id.to_string();
        self.require(last.as_ref().is_none_or(|last| !last.ended()), "clients are told the truth", || {
            format!("turn {turn} was {last:?} and is {state:?}")
        });
        self.clients.turns.insert(id, state.clone());
        let started = self.clients.started.get(&turn).copied().unwrap_or(0) > 0;
        let wrong = match state {
            TurnState::Queued | TurnState::InProgress | TurnState::Failed(TurnError::Unconfirmed) => None,
            TurnState::Completed { stdout, exit_code } => {
                let real = self.clients.results.get(&turn);
                (real != Some(&(stdout.clone(), *exit_code))).then(|| format!("completed, but it came to {real:?}"))
            }
            TurnState::Cancelled => {
                if last == Some(TurnState::Queued) {
                    self.clients.never.insert(turn.clone());
                }
                None
            }
            TurnState::Failed(error) => {
                self.clients.never.insert(turn.clone());
                started.then(|| format!("failed for certain ({}), but it ran", error.code()))
            }
        };
        if let Some(wrong) = wrong {
            self.fail("clients are told the truth", format!("turn {turn} is {wrong}"));
        }
    }

    /// The sandboxes that should be there are, and no others.
    pub(crate) fn settled(&mut self, store: &Store) {
        if self.cloned {
            return;
        }
        let running: BTreeSet<Id> = store
            .sessions
            .iter()
            .filter_map(|session| session.allocation.as_ref())
            .filter(|allocation| allocation.state == AllocationState::Running)
            .map(|allocation| allocation.id)
            .collect();
        let lost = running.iter().find(|id| !self.clients.existing.contains_key(id)).copied();
        let stray = self.clients.existing.iter().find(|(id, _)| !running.contains(id)).map(|(id, host)| (*id, *host));
        self.require(lost.is_none(), "no sandbox is lost", || format!("the sandbox of {lost:?} is gone"));
        self.require(stray.is_none(), "promise 16", || format!("a sandbox that nobody owns is left: {stray:?}"));
    }
}
