//! Create × lost answer × restart.
//!
//! One environment with its owners, one node, one container engine. Real: the owner's lifecycle and what it concludes
//! from outcomes, and the node's lanes. The engine creates a second sandbox when it is asked twice: nothing but the rules
//! above it prevents that. Assumed of it, as decision 34 does: what it was asked to create exists or never will five
//! minutes later.

mod node;
mod owner;
mod store;

use std::sync::Arc;

use palisade_core::lifecycle::{Allocation, Attempt, Step};
use stateright::{Model, Property};

use crate::check;
use node::{Engine, Node};
use owner::{Doing, Owner};
use store::Store;

/// What may happen how often, and which rule is broken.
#[derive(Clone)]
pub(crate) struct Creation {
    left: Left,
    broken: Option<Broken>,
    reached: fn() -> Vec<Property<Self>>,
}

/// A rule that a broken variant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// A create whose answer was lost counts as not sent.
    Replayed,
    /// The attempt is recorded after it was handed over.
    RecordedLate,
    /// One look that finds nothing settles a creation.
    SettledByOneLook,
}

/// What may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Left {
    connections: u8,
    owners: u8,
    restarts: u8,
    questions: u8,
    deletions: u8,
    failures: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    store: Store,
    /// The owner of each epoch so far; only the last one is the owner.
    owners: Vec<Owner>,
    node: Arc<Node>,
    /// The owner whose Core the node is connected to, and the number of the connection.
    link: Option<(usize, u8)>,
    left: Left,
    last: Option<Notable>,
}

/// What the last step was, when it is worth a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Notable {
    /// The answer of a create got lost.
    AnswerLost,
    /// A former owner could write nothing.
    Fenced,
    /// An attempt was taken back, because nothing was sent.
    Cleared,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// This owner reads the facts and decides.
    Decide(usize),
    /// This owner's transaction is committed or refused.
    Write(usize),
    /// This owner hands its call to its hub.
    Call(usize),
    /// This owner's request arrives on the node.
    Arrive(usize),
    /// The node's next operation starts.
    Start,
    /// The engine ends the create: with a running sandbox, with one that does not run, with nothing.
    EngineEnds(Engine),
    /// The node loses the engine's answer, which goes on.
    EngineLost,
    /// The budget of the operation that runs is over; it goes on.
    Overdue,
    /// An answer reaches the owner that asked.
    Answer(usize),
    Connect,
    Disconnect,
    NodeRestart,
    /// Core's process is replaced; the old one may be about to do something.
    NewOwner,
    /// The budget of the creation is over.
    Late,
    /// Five minutes of absence.
    Wait,
    Delete,
}

impl World {
    fn node(&mut self) -> &mut Node {
        Arc::make_mut(&mut self.node)
    }

    fn act(&mut self, broken: Option<Broken>, action: &Action) {
        match *action {
            Action::Decide(at) => {
                let facts = self.store.facts(self.is_linked(at));
                self.owners[at].decide(&facts, broken);
            }
            Action::Write(at) => self.write(at),
            Action::Call(at) => self.call(at),
            Action::Arrive(at) => {
                let Some((request, step)) = self.owners[at].arrive() else { return };
                let (_, connection) = self.link.expect("a request arrives over a connection");
                self.node().admit(connection, request, step);
            }
            Action::Start => self.node().start(broken),
            Action::EngineEnds(how) => {
                self.left.failures -= u8::from(how != Engine::Running);
                self.node().engine_ends(how);
            }
            Action::EngineLost => {
                self.left.failures -= 1;
                self.node().engine_lost();
            }
            Action::Overdue => self.node().overdue(),
            Action::Answer(at) => self.answer(at, broken),
            Action::Connect => {
                self.left.connections -= 1;
                self.link = Some((self.owners.len() - 1, self.left.connections));
            }
            Action::Disconnect => self.disconnect(broken),
            Action::NodeRestart => {
                self.left.restarts -= 1;
                self.disconnect(broken);
                self.node().restart();
            }
            Action::NewOwner => {
                self.left.owners -= 1;
                self.store.epoch += 1;
                self.owners.push(Owner::new(self.store.epoch));
            }
            Action::Late => self.store.late = true,
            Action::Wait => self.node().wait(),
            Action::Delete => {
                self.left.deletions -= 1;
                self.store.deleted = true;
            }
        }
    }

    fn is_linked(&self, owner: usize) -> bool {
        self.link.is_some_and(|(linked, _)| linked == owner)
    }

    /// Every write proves the owner's epoch in its own transaction.
    fn write(&mut self, at: usize) {
        if self.owners[at].epoch == self.store.epoch {
            let cleared = self.owners[at].write(&mut self.store);
            self.last = cleared.then_some(Notable::Cleared);
        } else {
            self.owners[at].doing = Doing::Over;
            self.last = Some(Notable::Fenced);
        }
    }

    fn call(&mut self, at: usize) {
        let linked = self.is_linked(at);
        self.left.questions = self.left.questions.saturating_sub(1);
        let request = self.left.questions;
        self.owners[at].call(linked.then_some(request));
    }

    /// The answer to what the owner asked; that of another request it does not wait for any more.
    fn answer(&mut self, at: usize, broken: Option<Broken>) {
        let Some((request, outcome)) = self.node().answers.pop_front() else { return };
        self.owners[at].conclude(Some(request), &outcome, broken);
    }

    fn disconnect(&mut self, broken: Option<Broken>) {
        let Some((owner, connection)) = self.link.take() else { return };
        if self.owners[owner].waits_for_create() {
            self.last = Some(Notable::AnswerLost);
        }
        self.node().disconnect(connection);
        self.owners[owner].lose(broken);
    }

    fn can(&self, action: &Action) -> bool {
        let node = &self.node;
        match *action {
            Action::Decide(at) => self.owners[at].is_idle() && self.is_worth_asking(at),
            Action::Write(at) => self.owners[at].writes(),
            Action::Call(at) => matches!(self.owners[at].doing, Doing::Calling(_)) && self.left.questions > 0,
            Action::Arrive(at) => self.is_linked(at) && self.owners[at].is_under_way(),
            Action::Start => node.has_work(),
            Action::EngineEnds(how) => node.engine && (how == Engine::Running || self.left.failures > 0),
            Action::EngineLost => node.is_awaited() && self.left.failures > 0,
            Action::Overdue => node.is_overdue_possible(),
            Action::Answer(at) => self.is_linked(at) && !node.answers.is_empty(),
            Action::Connect => self.link.is_none() && self.left.connections > 0,
            Action::Disconnect => self.link.is_some(),
            Action::NodeRestart => self.left.restarts > 0,
            Action::NewOwner => self.left.owners > 0,
            Action::Late => !self.store.late && self.store.handed,
            Action::Wait => node.may_wait(),
            Action::Delete => self.left.deletions > 0 && self.store.allocation.is_some(),
        }
    }

    /// An owner that can ask nobody decides the same again and again.
    fn is_worth_asking(&self, at: usize) -> bool {
        self.is_linked(at) || self.owners[at].epoch == self.store.epoch
    }

    fn is_released(&self) -> bool {
        self.store.facts(false).allocation == Allocation::Released
    }
}

impl Model for Creation {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            store: Store::new(),
            owners: vec![Owner::new(1)],
            node: Arc::new(Node::default()),
            link: Some((0, self.left.connections)),
            left: self.left.clone(),
            last: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let each = |action: fn(usize) -> Action| (0..world.owners.len()).map(action);
        let of_owners = [Action::Decide, Action::Write, Action::Call, Action::Arrive, Action::Answer].map(each);
        let others = [
            Action::Start,
            Action::EngineEnds(Engine::Running),
            Action::EngineEnds(Engine::Stopped),
            Action::EngineEnds(Engine::Nothing),
            Action::EngineLost,
            Action::Overdue,
            Action::Connect,
            Action::Disconnect,
            Action::NodeRestart,
            Action::NewOwner,
            Action::Late,
            Action::Wait,
            Action::Delete,
        ];
        actions.extend(of_owners.into_iter().flatten().chain(others).filter(|action| world.can(action)));
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = World { last: None, ..last.clone() };
        world.act(self.broken, &action);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises().into_iter().chain((self.reached)()).collect()
    }
}

fn promises() -> Vec<Property<Creation>> {
    vec![
        Property::always("the engine is asked for one sandbox at most", |_, world: &World| world.node.asked <= 1),
        Property::always("what is released has left nothing", |_, world: &World| {
            !world.is_released() || (world.node.sandboxes, world.node.engine) == (0, false)
        }),
        Property::always("a create is handed over only after its attempt was recorded", |_, world: &World| {
            let creates = world.owners.iter().any(|owner| owner.has_handed(Step::Create));
            !creates || world.store.handed || world.store.epoch > 1
        }),
        Property::always("what runs was created once and is there", |_, world: &World| {
            world.store.facts(false).allocation != Allocation::Running || world.node.asked == 1
        }),
    ]
}

fn reached() -> Vec<Property<Creation>> {
    vec![
        Property::sometimes("the answer of a create is lost", |_, world: &World| {
            world.last == Some(Notable::AnswerLost)
        }),
        Property::sometimes("a sandbox runs whose create was never answered", |_, world: &World| {
            world.store.allocation == Some(store::State::Running) && world.left.connections == 0
        }),
        Property::sometimes("a sandbox that ran is removed and released", |_, world: &World| {
            world.is_released() && world.node.removed > 0
        }),
        Property::sometimes("a creation that left nothing is released", |_, world: &World| {
            world.is_released() && world.node.asked == 1 && world.node.removed == 0
        }),
        Property::sometimes("an attempt of which nothing was sent is taken back", |_, world: &World| {
            world.last == Some(Notable::Cleared)
        }),
    ]
}

fn reached_with_owners() -> Vec<Property<Creation>> {
    let fenced =
        Property::sometimes("a former owner can write nothing", |_, world: &World| world.last == Some(Notable::Fenced));
    let continued = Property::sometimes("the next owner finishes what the first one began", |_, world: &World| {
        world.store.epoch == 2 && world.store.allocation == Some(store::State::Running)
    });
    let unknown = Property::sometimes("the next owner finds an attempt without an outcome", |_, world: &World| {
        let handed = matches!(world.store.facts(false).allocation, Allocation::Creating(Attempt::Handed { .. }));
        world.store.epoch == 2 && handed && world.node.asked == 0
    });
    vec![fenced, continued, unknown]
}

fn reached_with_restarts() -> Vec<Property<Creation>> {
    let orphan = Property::sometimes("a create outlives the node's process", |_, world: &World| {
        world.node.engine && !world.node.is_awaited() && world.left.restarts == 0
    });
    let settled = Property::sometimes("five minutes of absence settle a creation", |_, world: &World| {
        world.is_released() && world.left.restarts == 0 && world.node.has_waited()
    });
    vec![orphan, settled]
}

const CALM: Left = Left { connections: 1, owners: 0, restarts: 0, questions: 6, deletions: 1, failures: 1 };
const OWNERS: Left = Left { owners: 1, questions: 5, failures: 0, ..CALM };
const RESTARTS: Left = Left { restarts: 1, ..CALM };

fn prove(name: &str, left: Left, reached: fn() -> Vec<Property<Creation>>) {
    let bounds = format!("1 environment, 1 node, at most {left:?}");
    check::prove(name, &bounds, Creation { left, broken: None, reached });
}

fn refute(property: &'static str, left: Left, broken: Broken) {
    check::refute("creation", property, &Creation { left, broken: Some(broken), reached: Vec::new });
}

/// Promise 4. A create whose answer was lost is never sent again, and what is released has left nothing behind.
#[test]
fn a_lost_answer_never_makes_a_second_sandbox() {
    prove("creation, lost answers", CALM, reached);
}

/// Promise 4. E26. The same while the owner is replaced at any moment.
#[test]
fn a_new_owner_never_makes_a_second_sandbox() {
    prove("creation, new owner", OWNERS, reached_with_owners);
}

/// Promise 4. The same while the node restarts and the engine goes on.
#[test]
fn a_restarted_node_leaves_no_sandbox_behind() {
    prove("creation, node restart", RESTARTS, reached_with_restarts);
}

#[test]
fn a_create_that_is_replayed_after_a_lost_answer_is_caught() {
    refute("the engine is asked for one sandbox at most", CALM, Broken::Replayed);
}

#[test]
fn an_attempt_recorded_after_the_hand_over_is_caught() {
    refute("the engine is asked for one sandbox at most", CALM, Broken::RecordedLate);
}

#[test]
fn a_creation_settled_by_one_look_is_caught() {
    refute("what is released has left nothing", RESTARTS, Broken::SettledByOneLook);
}
