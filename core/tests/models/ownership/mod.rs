//! Owner epoch × duplicate connection × reservation lifetime.
//!
//! Two Cores over one store, one node and its clone with the same identity and credential. Real: the reservations and
//! connections of both Cores, the check before a dispatch, both nodes, and every frame between them.

mod hub;
mod peer;
mod store;

use std::sync::Arc;

use palisade_core::session::hub::Reply;
use stateright::{Model, Property};

use crate::check;
use crate::fixtures::epoch;
use hub::{Core, Session};
use peer::{Link, Peer};
use store::{Store, Transaction};

/// What may happen how often, and which rule is broken.
#[derive(Clone)]
pub(crate) struct Ownership {
    left: Left,
    broken: Option<Broken>,
    properties: fn() -> Vec<Property<Self>>,
}

/// A rule that a broken variant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The identity is free as soon as the connection closes, although its last callback still runs.
    EarlyRelease,
    /// A transaction trusts the epoch that its connection was opened under.
    EpochUnchecked,
}

/// What may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Left {
    dials: u8,
    claims: u8,
    crashes: u8,
    restarts: u8,
    heartbeats: u8,
    requests: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    store: Store,
    /// Shared between states as long as they do not change.
    cores: [Arc<Core>; 2],
    peers: [Arc<Peer>; 2],
    /// Transactions of a crashed Core that the store has not heard the end of.
    orphans: Vec<Transaction>,
    left: Left,
    /// What the last step was, when it is worth a property.
    last: Option<Notable>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Notable {
    /// A second connection of the identity got 409.
    Conflict,
    /// A transaction of an epoch that is over was refused.
    StaleRefused,
    /// A transaction of an epoch that is over changed a row.
    StaleWritten,
    /// A callback that was cancelled had its effect all the same.
    CancelledWritten,
    /// A transaction of a crashed Core had its effect afterwards.
    OrphanWritten,
    /// A node closed on an epoch below the highest one it has seen.
    LowerEpochRefused,
    /// A node carried out a request.
    Executed { epoch: u64, highest: u64, current: u64 },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// This peer dials this Core.
    Dial(usize, usize),
    /// The next frame of this peer arrives.
    ToCore(usize),
    /// The next frame for this peer arrives.
    ToNode(usize),
    /// This peer finds its connection closed or silent.
    NodeCloses(usize),
    /// This Core finds a connection closed or silent.
    CoreCloses(usize, usize),
    /// The transaction that this connection waits for takes effect, or is refused.
    Commit(usize, usize),
    /// The callback of this connection returns; `true` with what it came to, `false` as failed.
    Return(usize, usize, bool),
    /// A transaction of a Core that crashed takes effect after all.
    Orphan(usize),
    /// The epoch is durable on this peer, or could not be made so.
    Stored(usize, bool),
    Heartbeat(usize),
    /// This Core asks something over this connection.
    Request(usize, usize),
    /// This Core becomes the owner.
    Claim(usize),
    /// This Core learns that it is the owner no more.
    Notice(usize),
    /// This Core's process ends at once.
    Crash(usize),
    /// This peer's process ends at once and starts again.
    Restart(usize),
}

impl World {
    fn core(&mut self, at: usize) -> &mut Core {
        Arc::make_mut(&mut self.cores[at])
    }

    fn peer(&mut self, at: usize) -> &mut Peer {
        Arc::make_mut(&mut self.peers[at])
    }

    /// The peer's end of connection `number`, if it still has it.
    fn end(&mut self, core: usize, number: u8) -> Option<&mut Link> {
        let at = self.peers.iter().position(|peer| peer.is_linked(core, number))?;
        self.peer(at).link.as_mut()
    }

    fn act(&mut self, broken: Option<Broken>, action: &Action) {
        match *action {
            Action::Dial(peer, core) => self.dial(peer, core),
            Action::ToCore(peer) => self.deliver_to_core(peer, broken),
            Action::ToNode(peer) => self.deliver_to_node(peer),
            Action::NodeCloses(peer) => self.peer(peer).close(),
            Action::CoreCloses(core, at) => self.on_connection((core, at), broken, Session::lose),
            Action::Commit(core, at) => self.commit(core, at, broken),
            Action::Return(core, at, known) => {
                self.on_connection((core, at), broken, |session| session.give_back(known));
            }
            Action::Orphan(at) => {
                let transaction = self.orphans.remove(at);
                let (reply, notable) = self.store.run(&transaction, broken);
                let written = transaction.is_write() && reply != Reply::Failed;
                self.last = notable.or(written.then_some(Notable::OrphanWritten));
            }
            Action::Stored(peer, stored) => self.peer(peer).stored(stored),
            Action::Heartbeat(peer) => {
                self.left.heartbeats -= 1;
                self.peer(peer).heartbeat();
            }
            Action::Request(core, at) => self.request(core, at, broken),
            Action::Claim(core) => {
                self.left.claims -= 1;
                self.store.claim();
                self.core(core).lease = Some(self.store.epoch());
            }
            Action::Notice(core) => self.core(core).lease = None,
            Action::Crash(core) => self.crash(core),
            Action::Restart(peer) => {
                self.left.restarts -= 1;
                self.peer(peer).restart();
            }
        }
    }

    fn dial(&mut self, peer: usize, core: usize) {
        let number = self.left.dials;
        match self.core(core).accept(number) {
            Some(()) => {
                self.left.dials -= 1;
                self.peer(peer).open(core, number);
            }
            None => self.last = Some(Notable::Conflict),
        }
    }

    fn deliver_to_core(&mut self, peer: usize, broken: Option<Broken>) {
        let Some(link) = &mut self.peer(peer).link else { return };
        let (core, number) = (link.core, link.number);
        let Some(message) = link.up.pop_front() else { return };
        if let Some(at) = self.cores[core].position(number) {
            self.on_connection((core, at), broken, |session| session.receive(&message));
        }
    }

    fn deliver_to_node(&mut self, peer: usize) {
        let current = self.store.epoch();
        self.last = self.peer(peer).receive(current);
    }

    /// One input for a connection, then everything that follows from it.
    fn on_connection(&mut self, (core, at): (usize, usize), broken: Option<Broken>, input: impl FnOnce(&mut Session)) {
        input(&mut self.core(core).sessions[at]);
        let drained = self.core(core).drain(broken);
        for (number, message) in drained.messages {
            if let Some(link) = self.end(core, number) {
                link.down.push_back(message);
            }
        }
        for number in drained.closed {
            self.cut(core, number);
        }
    }

    fn commit(&mut self, core: usize, at: usize, broken: Option<Broken>) {
        let session = &self.cores[core].sessions[at];
        let (cancelled, transaction) = (session.is_cancelled(), session.pending());
        let Some(transaction) = transaction else { return };
        let (reply, notable) = self.store.run(&transaction, broken);
        let written = cancelled && transaction.is_write() && reply != Reply::Failed;
        self.last = notable.or(written.then_some(Notable::CancelledWritten));
        self.core(core).sessions[at].committed(reply);
    }

    fn request(&mut self, core: usize, at: usize, broken: Option<Broken>) {
        let lease = self.cores[core].lease;
        self.left.requests -= 1;
        let number = self.left.requests;
        self.on_connection((core, at), broken, |session| session.request(lease, number));
    }

    /// What the process had asked of the store is decided there, without it.
    fn crash(&mut self, core: usize) {
        self.left.crashes -= 1;
        for session in std::mem::take(self.core(core)).sessions {
            self.orphans.extend(session.pending());
            self.cut(core, session.number);
        }
    }

    fn cut(&mut self, core: usize, number: u8) {
        if let Some(link) = self.end(core, number) {
            link.cut = true;
            link.up.clear();
        }
    }

    /// Whether nobody holds the identity any more.
    fn is_released(&self) -> bool {
        self.cores.iter().all(|core| core.sessions.is_empty() && core.table.count() == 0)
    }
}

impl Model for Ownership {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let owner = Core { lease: Some(1), ..Core::default() };
        vec![World {
            store: Store::new(),
            cores: [owner, Core::default()].map(Arc::new),
            peers: [None, None].map(|epoch| Arc::new(Peer::new(epoch))),
            orphans: Vec::new(),
            left: self.left.clone(),
            last: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, peer) in world.peers.iter().enumerate() {
            peer_actions(world, at, peer, actions);
        }
        for (at, core) in world.cores.iter().enumerate() {
            core_actions(world, at, core, actions);
        }
        actions.extend((0..world.orphans.len()).map(Action::Orphan));
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = World { last: None, ..last.clone() };
        world.act(self.broken, &action);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        (self.properties)()
    }
}

fn peer_actions(world: &World, at: usize, peer: &Peer, actions: &mut Vec<Action>) {
    match &peer.link {
        // The two are alike: let the first one begin.
        None if world.left.dials > 0 && (at == 0 || world.left.dials < DIALS) => {
            actions.extend((0..2).filter(|core| world.cores[*core].lease.is_some()).map(|core| Action::Dial(at, core)));
        }
        None => {}
        Some(link) => {
            actions.push(Action::NodeCloses(at));
            if !link.up.is_empty() && world.cores[link.core].listens(link.number) {
                actions.push(Action::ToCore(at));
            }
            if !link.down.is_empty() && peer.node.may_read() {
                actions.push(Action::ToNode(at));
            }
            if peer.node.live().is_some() && world.left.heartbeats > 0 {
                actions.push(Action::Heartbeat(at));
            }
        }
    }
    if !peer.storing.is_empty() {
        actions.extend([true, false].map(|stored| Action::Stored(at, stored)));
    }
    if world.left.restarts > 0 {
        actions.push(Action::Restart(at));
    }
}

fn core_actions(world: &World, at: usize, core: &Core, actions: &mut Vec<Action>) {
    for (number, session) in core.sessions.iter().enumerate() {
        if session.is_open() {
            actions.push(Action::CoreCloses(at, number));
        }
        if session.pending().is_some() {
            actions.push(Action::Commit(at, number));
        }
        if session.is_busy() {
            actions.extend([true, false].map(|known| Action::Return(at, number, known)));
        }
        if session.published && world.left.requests > 0 {
            actions.push(Action::Request(at, number));
        }
    }
    match core.lease {
        Some(lease) if lease < world.store.epoch() => actions.push(Action::Notice(at)),
        None if world.left.claims > 0 => actions.push(Action::Claim(at)),
        Some(_) | None => {}
    }
    if world.left.crashes > 0 && core.lease.is_some() {
        actions.push(Action::Crash(at));
    }
}

fn promises() -> Vec<Property<Ownership>> {
    [promises_of_core(), promises_of_node()].concat()
}

fn all() -> Vec<Property<Ownership>> {
    [promises(), reached()].concat()
}

fn across_crashes() -> Vec<Property<Ownership>> {
    let orphan = Property::sometimes("a transaction outlives its core", |_, world: &World| {
        world.last == Some(Notable::OrphanWritten)
    });
    let claimed = Property::sometimes("a core that crashed is the owner again", |_, world: &World| {
        world.left.crashes == 0 && world.cores[0].lease == Some(2) && world.cores[0].table.count() > 0
    });
    promises().into_iter().chain([orphan, claimed]).collect()
}

/// What the node holds without any help of Core's store.
fn node_alone() -> Vec<Property<Ownership>> {
    let refused = Property::sometimes("a node refuses a lower epoch", |_, world: &World| {
        world.last == Some(Notable::LowerEpochRefused)
    });
    promises_of_node().into_iter().chain([refused]).collect()
}

fn promises_of_core() -> Vec<Property<Ownership>> {
    vec![
        Property::always("a core holds at most one connection of an identity", |_, world: &World| {
            world.cores.iter().all(|core| core.sessions.len() <= 1)
        }),
        Property::always("a live connection of the current epoch owns the presence row", |_, world: &World| {
            let current = world.store.epoch();
            let mut live = world.cores.iter().flat_map(|core| &core.sessions).filter(|session| session.published);
            live.all(|session| session.epoch() < current || world.store.is_present(session.number, current))
        }),
        Property::always("no row is written under an epoch that is over", |_, world: &World| {
            world.last != Some(Notable::StaleWritten)
        }),
        Property::always("whatever ends gives the identity back", |model: &Ownership, world: &World| {
            let mut actions = Vec::new();
            model.actions(world, &mut actions);
            !actions.is_empty() || world.is_released()
        }),
    ]
}

fn promises_of_node() -> Vec<Property<Ownership>> {
    vec![
        Property::always(
            "no request below the highest epoch seen is carried out",
            |_, world: &World| !matches!(world.last, Some(Notable::Executed { epoch, highest, .. }) if epoch < highest),
        ),
        Property::always("an epoch takes effect only once it is durable", |_, world: &World| {
            let live = |peer: &Peer| peer.node.live().map(|(_, epoch)| epoch);
            world.peers.iter().all(|peer| live(peer).is_none_or(|live| peer.durable.map(epoch) >= Some(live)))
        }),
    ]
}

fn reached() -> Vec<Property<Ownership>> {
    vec![
        Property::sometimes("a second connection gets 409", |_, world: &World| world.last == Some(Notable::Conflict)),
        Property::sometimes("both cores hold a live connection of the identity", |_, world: &World| {
            world.cores.iter().all(|core| core.sessions.iter().any(|session| session.published))
        }),
        Property::sometimes("the store refuses a core whose epoch is over", |_, world: &World| {
            world.last == Some(Notable::StaleRefused)
        }),
        Property::sometimes("a cancelled callback has its effect", |_, world: &World| {
            world.last == Some(Notable::CancelledWritten)
        }),
        Property::sometimes("a request of the second owner is carried out", |_, world: &World| {
            matches!(world.last, Some(Notable::Executed { epoch: 2, .. }))
        }),
        Property::sometimes(
            "a core that lost its lease reaches a node that knows no better",
            |_, world: &World| matches!(world.last, Some(Notable::Executed { epoch, current, .. }) if epoch < current),
        ),
        Property::sometimes("the other peer is live after the first one was released", |_, world: &World| {
            world.left.dials == 0 && world.peers[1].node.live().is_some() && world.peers[0].link.is_none()
        }),
        Property::sometimes("everything is over", |_, world: &World| {
            world.is_released() && world.left.dials == 0 && world.orphans.is_empty()
        }),
    ]
}

const DIALS: u8 = 2;
/// Two dials and a change of the owner; what else may happen is added to one of these at a time.
const CALM: Left = Left { dials: DIALS, claims: 1, crashes: 0, restarts: 0, heartbeats: 0, requests: 1 };

const CRASHES: Left = Left { crashes: 1, requests: 0, ..CALM };
const HEARTBEATS: Left = Left { dials: 1, crashes: 1, restarts: 1, heartbeats: 1, ..CALM };

fn bounds(left: &Left) -> String {
    format!("2 cores, a node and its clone, at most {left:?}")
}

/// Promises 1 and 2. E2. E26. Whatever two Cores and two holders of one identity do, at most one connection counts, and
/// what an epoch that is over still does has no effect.
#[test]
fn one_connection_and_one_epoch_count() {
    check::prove("ownership", &bounds(&CALM), Ownership { left: CALM, broken: None, properties: all });
}

/// Promises 1 and 2. E26. The same while a Core and a node crash, and while heartbeats are recorded.
#[test]
fn one_connection_and_one_epoch_count_across_crashes() {
    let model = Ownership { left: CRASHES, broken: None, properties: across_crashes };
    check::prove("ownership, crashes", &bounds(&CRASHES), model);
    let model = Ownership { left: HEARTBEATS, broken: None, properties: promises };
    check::prove("ownership, heartbeats", &bounds(&HEARTBEATS), model);
}

/// Promise 2. Were Core to forget its own fence, the node's would still hold.
#[test]
fn a_node_refuses_lower_epochs_without_the_help_of_the_store() {
    let model = Ownership { left: CALM, broken: Some(Broken::EpochUnchecked), properties: node_alone };
    check::prove("ownership, node alone", &bounds(&CALM), model);
}

#[test]
fn a_reservation_released_too_early_is_caught() {
    let model = Ownership { left: CALM, broken: Some(Broken::EarlyRelease), properties: all };
    check::refute("ownership", "a core holds at most one connection of an identity", &model);
}

/// E26.
#[test]
fn an_epoch_not_checked_in_the_transaction_is_caught() {
    let model = Ownership { left: CALM, broken: Some(Broken::EpochUnchecked), properties: all };
    check::refute("ownership", "no row is written under an epoch that is over", &model);
}
