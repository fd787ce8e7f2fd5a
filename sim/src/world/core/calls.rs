//! Transactions under way: each commits or rolls back on its own, and its answer may be lost.

use palisade_core::lifecycle::Change;
use palisade_core::lifecycle::compute::{State, Step};
use palisade_core::outcome::Answer;
use palisade_core::session::hub::{Callback, Reply};
use palisade_core::units::Id;
use palisade_core::wire::payload::Identity;

use super::CoreEvent;
use crate::plan::{Party, Trap};
use crate::world::store::{Denied, Fenced, Held, Link, Started, Work};
use crate::world::{Event, World};

/// One transaction and who waits for it.
#[derive(Debug)]
pub(crate) struct StoreCall {
    pub(super) core: usize,
    pub(super) life: u32,
    pub(super) of: Purpose,
    /// Commits, but whoever asked is told that it failed.
    unsure: bool,
    /// Nobody waits for it any more.
    pub(super) mute: bool,
    done: Option<Done>,
}

#[derive(Debug, Clone)]
pub(super) enum Purpose {
    Dial { link: usize },
    Connection { link: usize, scope: Link, callback: Callback },
    Task { session: usize, serial: u64, ask: Box<Ask> },
}

/// What the work on one environment asks of the database.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Work,
    Reserve([Id; 2]),
    Attempt,
    StartTurn(Id),
    Unwanted(Id),
    Abandon(Id),
    Conclude(Vec<Change>, Option<Box<Answer<'static>>>),
    SetCompute(Box<Held>, Box<State>),
    HandOver(Box<Held>, Step, Id),
    GiveUp(Box<Held>, Box<State>),
    Expire(Box<Held>),
}

#[derive(Debug)]
pub(super) enum Done {
    Identity(Result<Identity<'static>, Denied>),
    Hub(Reply),
    Work(Box<Work>),
    Flag(Result<bool, Fenced>),
    Started(Result<Option<Started>, Fenced>),
    Written(Result<(), Fenced>),
    Handed(Result<Option<Box<Held>>, Fenced>),
    /// It failed, or nobody knows.
    Failed,
}

/// What a storage call of a connection may take.
const BOUND_MS: u64 = 5_000;

impl World {
    /// Starts a transaction.
    pub(super) fn ask_store(&mut self, core: usize, of: Purpose) -> u64 {
        self.tickets += 1;
        let ticket = self.tickets;
        let slow = self.store_luck.chance(self.weather.slow_store);
        let latency = if slow { 400 + self.store_luck.below(7_000) } else { 1 + self.store_luck.below(4) };
        let mut commit = (self.now + latency).max(self.store.silent_until);
        let mut bounded = matches!(of, Purpose::Dial { .. });
        if let Purpose::Connection { scope, callback, .. } = &of {
            bounded = true;
            let locks = matches!(
                callback,
                Callback::Connect | Callback::Record(_) | Callback::Retain(_) | Callback::Disconnect
            );
            if locks {
                commit = self.store.hold(scope.node, commit);
            }
        }
        let unsure = self.store_luck.chance(self.weather.unsure_commit);
        let life = self.cores[core].life;
        self.calls.insert(ticket, StoreCall { core, life, of, unsure, mute: false, done: None });
        self.queue.push(commit, Event::Commit(ticket));
        if bounded && commit > self.now + BOUND_MS {
            self.core_later(core, self.now + BOUND_MS, CoreEvent::GiveUp(ticket));
        }
        ticket
    }

    /// The database ends a transaction. Of a process that is gone, most have rolled back by then.
    pub(in crate::world) fn commit(&mut self, ticket: u64) {
        let Some(call) = self.calls.get(&ticket) else { return };
        let (core, life, of, unsure, mute) = (call.core, call.life, call.of.clone(), call.unsure, call.mute);
        let gone = self.cores[core].life != life || !self.cores[core].alive;
        if gone && !self.store_luck.chance(300) {
            self.calls.remove(&ticket);
            return;
        }
        if gone {
            self.cover.hit("fault: commit of a core that is gone");
        }
        let mut done = self.transact(core, of);
        self.books.committed(&self.store, self.now);
        self.effect(Party::Core(core), Trap::Committed);
        if mute || gone {
            self.calls.remove(&ticket);
            return;
        }
        if unsure {
            self.cover.hit("fault: committed, but the answer is lost");
            done = Done::Failed;
        }
        if let Some(call) = self.calls.get_mut(&ticket) {
            call.done = Some(done);
        }
        let late = if unsure { self.store_luck.below(2_000) } else { self.store_luck.below(3) };
        self.core_later(core, self.now + late, CoreEvent::Reply(ticket));
    }

    fn transact(&mut self, core: usize, of: Purpose) -> Done {
        let now = self.now;
        let lease = self.cores[core].lease;
        match of {
            Purpose::Dial { link } => {
                let identity = &self.hosts[self.links[link].host].identity;
                Done::Identity(self.store.authenticate(identity.node, &identity.credential))
            }
            Purpose::Connection { link, scope, callback } => {
                let reply = self.transact_for_connection(link, scope, callback);
                Done::Hub(reply.unwrap_or(Reply::Failed))
            }
            Purpose::Task { session, ask, .. } => match (*ask, lease) {
                (Ask::Work, _) => Done::Work(Box::new(self.store.work(session, now))),
                (Ask::Unwanted(turn), _) => Done::Flag(Ok(self.store.turn_is_unwanted(session, turn))),
                (_, None) => Done::Failed,
                (Ask::Reserve([id, device]), Some(epoch)) => {
                    Done::Flag(self.store.reserve(epoch, session, (id, device), now))
                }
                (Ask::Attempt, Some(epoch)) => Done::Flag(self.store.record_attempt(epoch, session, now)),
                (Ask::StartTurn(turn), Some(epoch)) => Done::Started(self.store.start_turn(epoch, session, turn)),
                (Ask::Abandon(turn), Some(epoch)) => Done::Written(self.store.abandon_turn(epoch, session, turn)),
                (Ask::Conclude(changes, answer), Some(epoch)) => {
                    Done::Written(self.store.conclude(epoch, session, &changes, answer.as_deref(), now))
                }
                (Ask::SetCompute(held, next), Some(epoch)) => {
                    Done::Flag(self.store.set_compute(epoch, session, &held, &next, now).map(|held| held.is_some()))
                }
                (Ask::HandOver(held, _, fresh), Some(epoch)) => {
                    Done::Handed(self.store.hand_over(epoch, session, &held, fresh, now).map(|held| held.map(Box::new)))
                }
                (Ask::GiveUp(held, last), Some(epoch)) => {
                    Done::Flag(self.store.give_up(epoch, session, &held, &last, now))
                }
                (Ask::Expire(held), Some(epoch)) => Done::Flag(self.store.expire(epoch, session, &held)),
            },
        }
    }

    fn transact_for_connection(&mut self, link: usize, scope: Link, callback: Callback) -> Option<Reply> {
        let now = self.now;
        match callback {
            Callback::Connect => self.store.connect(scope, now).map(|()| Reply::Done),
            Callback::Record(health) => self.store.record(scope, &health, now).map(Reply::Recorded),
            Callback::Deployment => self.store.announcement(scope.node).map(Reply::Deployment),
            Callback::Authenticate => {
                let credential = self.hosts[self.links[link].host].identity.credential.clone();
                let identity = self.store.authenticate(scope.node, &credential).ok()?;
                Some(Reply::Authenticated(Box::new(identity)))
            }
            Callback::Epoch => self.cores[self.links[link].core].lease.map(Reply::Epoch),
            Callback::Retain(references) => {
                let retained = self.store.retain(scope, &references)?;
                self.books.decided(scope.node, &retained.retentions, &self.store);
                Some(Reply::Retained(retained.retentions, retained.deployment))
            }
            Callback::Disconnect => {
                self.store.disconnect(scope);
                Some(Reply::Done)
            }
        }
    }

    /// Whoever asked stops waiting. The transaction rolls back, or commits all the same.
    pub(super) fn give_up(&mut self, ticket: u64) {
        let Some(call) = self.calls.get_mut(&ticket).filter(|call| call.done.is_none() && !call.mute) else { return };
        let (core, of) = (call.core, call.of.clone());
        if self.store_luck.chance(300) {
            call.mute = true;
        } else {
            self.calls.remove(&ticket);
        }
        let late = self.now + self.store_luck.below(50);
        match of {
            Purpose::Connection { link, .. } => self.core_later(core, late, CoreEvent::CallbackFailed(link)),
            Purpose::Dial { link } => {
                self.refuse_dial(link, palisade_core::session::hub::upgrade::Refusal::Unavailable);
            }
            Purpose::Task { .. } => {}
        }
    }

    pub(super) fn replied(&mut self, ticket: u64) {
        let Some(StoreCall { core, of, done: Some(done), .. }) = self.calls.remove(&ticket) else { return };
        match (of, done) {
            (Purpose::Dial { link }, Done::Identity(identity)) => self.authenticated(core, link, identity),
            (Purpose::Dial { link }, _) => self.authenticated(core, link, Err(Denied::Failed)),
            (Purpose::Connection { link, .. }, Done::Hub(reply)) => self.callback_done(core, link, reply),
            (Purpose::Connection { link, .. }, _) => self.callback_done(core, link, Reply::Failed),
            (Purpose::Task { session, serial, ask }, done) => self.task_replied(core, session, serial, *ask, done),
        }
    }
}
