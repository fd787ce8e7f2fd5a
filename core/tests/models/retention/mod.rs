//! Retention request × target change × disconnect.
//!
//! One Core and one node with two generations on its disk. Real: Core's connection and its judgement of what is kept,
//! the node with its generation table, and every frame between them. Beside what a network may do, answers are repeated
//! out of their time and cut short, as no correct Core would send them.

mod host;
mod hub;

use std::sync::Arc;

use stateright::{Model, Property};

use crate::check;
use host::{Disk, Host};
use hub::Hub;

/// What may happen how often, and which rule is broken.
#[derive(Clone)]
pub(crate) struct Retention {
    left: Left,
    broken: Option<Broken>,
    reached: fn() -> Vec<Property<Self>>,
}

/// A rule that a broken variant leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// An answer to an earlier question is taken for the answer to the last one.
    StaleAccepted,
    /// An operation gives its generation back when it starts instead of when it ended.
    EarlyRelease,
    /// Core forgets that sandboxes keep their generation.
    SandboxesForgotten,
}

/// What may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Left {
    dials: u8,
    heartbeats: u8,
    retargets: u8,
    pins: u8,
    ends: u8,
    claims: u8,
    crashes: u8,
    requests: u8,
    forgeries: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// Shared between states as long as they do not change.
    hub: Arc<Hub>,
    host: Arc<Host>,
    left: Left,
    last: Option<Notable>,
}

/// What the last step was, when it is worth a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Notable {
    /// The node began to remove a generation.
    Removes { granted: bool, kept: bool, used: bool, again: bool },
    /// The node closed on an answer that is not the one it waits for.
    Refused,
    /// The connection ended while a removal ran.
    Interrupted,
    /// A generation is gone.
    Gone,
    /// Core answered after its target had changed.
    Overtaken,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A new connection, up to its welcome.
    Connect,
    /// The connection ends on both sides.
    Disconnect,
    Heartbeat,
    ToCore,
    /// Core's transaction on the references that were asked about.
    Decide,
    ToNode,
    /// The answer of an earlier exchange arrives again.
    Repeat,
    /// The answer under way loses its last entry, and arrives.
    Shorten,
    /// The administrator selects a new generation.
    Retarget,
    /// The target proved ready: it serves this node.
    Pin,
    /// The sandbox on the first generation is released.
    EndSandbox,
    /// Core asks something of the sandbox on the first generation.
    Request,
    /// The oldest running operation ends.
    EndOperation,
    EndProbe,
    EndPreparation,
    /// The begin of the removal becomes durable.
    Journal,
    /// The removal ends, with or without having finished.
    EndRemoval(bool),
    /// The node's process ends at once and starts again.
    Crash,
    /// Core restarts under a new epoch.
    Claim,
}

impl World {
    fn hub(&mut self) -> &mut Hub {
        Arc::make_mut(&mut self.hub)
    }

    fn host(&mut self) -> &mut Host {
        Arc::make_mut(&mut self.host)
    }

    fn act(&mut self, broken: Option<Broken>, action: &Action) {
        self.left.pay(action);
        match action {
            Action::Connect => self.connect(),
            Action::Disconnect => self.disconnect(),
            Action::Heartbeat => self.host().heartbeat(),
            Action::ToCore => {
                if let Some(message) = self.host().up.pop_front() {
                    self.hub().receive(&message);
                }
            }
            Action::Decide => {
                self.last = self.hub.is_overtaken().then_some(Notable::Overtaken);
                self.hub().decide(broken);
            }
            Action::ToNode => {
                if let Some(message) = self.host().down.pop_front() {
                    self.host().receive(&message);
                }
            }
            Action::Repeat => self.host().repeat(broken),
            Action::Shorten => self.host().shorten(),
            Action::Retarget => self.hub().retarget(),
            Action::Pin => self.hub().pin(),
            Action::EndSandbox => self.hub().rows.held.clear(),
            Action::Request => self.hub().request(),
            Action::EndOperation => self.host().end_operation(),
            Action::EndProbe => self.host().end_probe(),
            Action::EndPreparation => self.host().end_preparation(),
            Action::Journal => self.host().journal(),
            Action::EndRemoval(finished) => self.last = self.host().end_removal(*finished),
            Action::Crash => {
                self.disconnect();
                self.host().restart();
            }
            Action::Claim => {
                self.disconnect();
                self.hub().claim();
            }
        }
        self.settle(broken);
    }

    fn connect(&mut self) {
        let number = self.left.dials;
        self.hub().open(number);
        self.host().open();
        // The opening has its own model; here it succeeds.
        while self.hub.session.is_some() && self.host.node.live().is_none() && self.host.node.is_connected() {
            self.host().drain(None);
            while let Some(message) = self.host().up.pop_front() {
                self.hub().receive(&message);
            }
            for message in self.hub().drain() {
                self.host().receive(&message);
            }
        }
    }

    fn disconnect(&mut self) {
        if self.host.removal.is_some() && self.host.node.is_connected() {
            self.last = Some(Notable::Interrupted);
        }
        self.hub().session = None;
        self.host().close();
    }

    /// Everything that follows from one step.
    fn settle(&mut self, broken: Option<Broken>) {
        let messages = self.hub().drain();
        self.host().down.extend(messages);
        for event in self.host().drain(broken) {
            self.last = Some(match event {
                host::Event::Removes(generation) => self.removes(generation),
                host::Event::Refused => Notable::Refused,
            });
        }
        if !self.host.node.is_connected() || self.hub.session.is_none() {
            self.hub().session = None;
            self.host().close();
        }
    }

    fn removes(&self, generation: u64) -> Notable {
        Notable::Removes {
            granted: self.host.granted.contains(&generation),
            kept: self.hub.keeps(generation),
            used: self.host.uses(generation),
            again: self.host.disk.get(&generation) == Some(&Disk::Begun),
        }
    }

    fn can(&self, action: &Action) -> bool {
        let (hub, host) = (&self.hub, &self.host);
        let connected = hub.session.is_some();
        match action {
            Action::Connect => !connected && self.left.dials > 0,
            Action::Disconnect => connected,
            Action::Heartbeat => connected && self.left.heartbeats > 0,
            Action::ToCore => connected && !host.up.is_empty() && hub.listens(),
            Action::Decide => hub.is_asked(),
            Action::ToNode => connected && !host.down.is_empty(),
            Action::Repeat => connected && self.left.forgeries > 0 && host.answer.is_some(),
            Action::Shorten => connected && self.left.forgeries > 0 && host.has_long_answer(),
            Action::Retarget => self.left.retargets > 0,
            Action::Pin => self.left.pins > 0 && hub.may_pin(&host.disk),
            Action::EndSandbox => self.left.ends > 0 && !hub.rows.held.is_empty(),
            Action::Request => connected && self.left.requests > 0 && !hub.rows.held.is_empty(),
            Action::EndOperation => !host.running.is_empty(),
            Action::EndProbe => host.probing.is_some(),
            Action::EndPreparation => host.preparing.is_some(),
            Action::Journal => {
                host.removal.as_ref().is_some_and(|removal| host.disk[&removal.generation] == Disk::Whole)
            }
            Action::EndRemoval(_) => host.removal.is_some(),
            Action::Crash => self.left.crashes > 0,
            Action::Claim => self.left.claims > 0,
        }
    }
}

impl Left {
    fn pay(&mut self, action: &Action) {
        let budget = match action {
            Action::Connect => &mut self.dials,
            Action::Heartbeat => &mut self.heartbeats,
            Action::Retarget => &mut self.retargets,
            Action::Pin => &mut self.pins,
            Action::EndSandbox => &mut self.ends,
            Action::Claim => &mut self.claims,
            Action::Crash => &mut self.crashes,
            Action::Request => &mut self.requests,
            Action::Repeat | Action::Shorten => &mut self.forgeries,
            Action::Disconnect
            | Action::ToCore
            | Action::Decide
            | Action::ToNode
            | Action::EndOperation
            | Action::EndProbe
            | Action::EndPreparation
            | Action::Journal
            | Action::EndRemoval(_) => return,
        };
        *budget -= 1;
    }
}

impl Model for Retention {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let hub = Hub::new();
        let host = Host::new([(1, Disk::Whole), (2, Disk::Whole)].into());
        vec![World { hub: Arc::new(hub), host: Arc::new(host), left: self.left.clone(), last: None }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let simple = [
            Action::Connect,
            Action::Disconnect,
            Action::Heartbeat,
            Action::ToCore,
            Action::Decide,
            Action::ToNode,
            Action::Repeat,
            Action::Shorten,
            Action::Retarget,
            Action::Pin,
            Action::EndSandbox,
            Action::Request,
            Action::EndOperation,
            Action::EndProbe,
            Action::EndPreparation,
            Action::Journal,
            Action::EndRemoval(true),
            Action::EndRemoval(false),
            Action::Crash,
            Action::Claim,
        ];
        actions.extend(simple.into_iter().filter(|action| world.can(action)));
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

fn promises() -> Vec<Property<Retention>> {
    vec![
        Property::always("only the whole answer to the last question removes", |_, world: &World| {
            !matches!(world.last, Some(Notable::Removes { granted: false, .. }))
        }),
        Property::always("nothing is removed that core keeps", |_, world: &World| {
            !matches!(world.last, Some(Notable::Removes { kept: true, .. }))
        }),
        Property::always("nothing is removed while something runs on it", |_, world: &World| {
            !matches!(world.last, Some(Notable::Removes { used: true, .. }))
        }),
        Property::always("what core keeps is whole on the disk, observed or not", |_, world: &World| {
            [1, 2].iter().all(|of| !world.hub.keeps(*of) || world.host.disk.get(of) == Some(&Disk::Whole))
        }),
    ]
}

fn reached() -> Vec<Property<Retention>> {
    vec![
        Property::sometimes("a generation is gone", |_, world: &World| world.last == Some(Notable::Gone)),
        Property::sometimes("a disconnect interrupts a removal", |_, world: &World| {
            world.last == Some(Notable::Interrupted)
        }),
    ]
}

fn reached_with_forgeries() -> Vec<Property<Retention>> {
    let refused = Property::sometimes("a stale or short answer is refused", |_, world: &World| {
        world.last == Some(Notable::Refused)
    });
    reached().into_iter().chain([refused]).collect()
}

fn reached_with_crashes() -> Vec<Property<Retention>> {
    let again = Property::sometimes("a removal that did not finish is granted again", |_, world: &World| {
        matches!(world.last, Some(Notable::Removes { again: true, .. }))
    });
    let overtaken = Property::sometimes("the target changes between question and answer", |_, world: &World| {
        world.last == Some(Notable::Overtaken)
    });
    reached().into_iter().chain([again, overtaken]).collect()
}

fn reached_with_operations() -> Vec<Property<Retention>> {
    let running = Property::sometimes("an operation outlives its connection and its sandbox", |_, world: &World| {
        !world.host.running.is_empty() && world.hub.rows.held.is_empty() && world.hub.session.is_none()
    });
    reached().into_iter().chain([running]).collect()
}

/// One retarget, one new pin and the end of the sandbox; what else may happen is added to these, or takes their place.
const CALM: Left =
    Left { dials: 2, heartbeats: 2, retargets: 1, pins: 1, ends: 1, claims: 0, crashes: 0, requests: 0, forgeries: 0 };
const FORGERIES: Left = Left { heartbeats: 3, claims: 1, forgeries: 1, retargets: 0, ..CALM };
const CRASHES: Left = Left { crashes: 1, ..CALM };
const OPERATIONS: Left = Left { requests: 1, retargets: 0, ..CALM };

fn prove(name: &str, left: Left, reached: fn() -> Vec<Property<Retention>>) {
    let bounds = format!("1 core, 1 node, 2 generations and a new target, at most {left:?}");
    check::prove(name, &bounds, Retention { left, broken: None, reached });
}

fn refute(property: &'static str, left: Left, broken: Broken) {
    check::refute("retention", property, &Retention { left, broken: Some(broken), reached: Vec::new });
}

/// Promises 5 and 14. A stale, partial or mixed-epoch answer deletes nothing, and neither does the absence of an
/// observation.
#[test]
fn forged_and_late_answers_delete_nothing() {
    prove("retention, forgeries", FORGERIES, reached_with_forgeries);
}

/// Promises 5 and 14. The same across crashes of the node during a removal.
#[test]
fn crashes_delete_nothing_that_is_kept() {
    prove("retention, crashes", CRASHES, reached_with_crashes);
}

/// Promise 7. What an operation or a probe uses is not collected, even when its connection and its sandbox are gone.
#[test]
fn what_is_in_use_is_not_collected() {
    prove("retention, operations", OPERATIONS, reached_with_operations);
}

#[test]
fn a_stale_answer_that_is_accepted_is_caught() {
    let left = Left { claims: 0, ..FORGERIES };
    refute("only the whole answer to the last question removes", left, Broken::StaleAccepted);
}

#[test]
fn a_hold_that_is_given_back_too_early_is_caught() {
    let left = Left { dials: 1, heartbeats: 1, ..OPERATIONS };
    refute("nothing is removed while something runs on it", left, Broken::EarlyRelease);
}

#[test]
fn a_core_that_forgets_its_sandboxes_is_caught() {
    refute("nothing is removed that core keeps", CALM, Broken::SandboxesForgotten);
}
