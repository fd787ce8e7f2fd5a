//! The world of one history: Cores, hosts, a network between them, and one database.
//!
//! One event at a time. After each one the books are compared with what the parties did.

mod core;
mod engine;
mod faults;
mod host;
mod hostile;
mod net;
mod settle;
pub(crate) mod store;

use std::collections::BTreeMap;

use palisade_core::units::Id;

use crate::books::Books;
use crate::clock::Time;
use crate::coverage::Tally;
use crate::plan::{Party, Plan, Trap, Weather};
use crate::queue::Queue;
use crate::random::Random;
use crate::sabotage::Sabotage;
use core::{Core, CoreEvent, StoreCall};
use engine::EngineEvent;
use host::{Host, HostEvent};
use net::{Link, Parcel};
use store::Store;

/// Something that happens at one moment.
#[derive(Debug)]
pub(crate) enum Event {
    /// The n-th event of the plan.
    Planned(usize),
    /// From here on nothing goes wrong any more.
    Quiet,
    /// The next parcel of a pipe arrives.
    Arrive {
        link: usize,
        up: bool,
    },
    /// A dial arrives at its Core.
    Dial {
        link: usize,
    },
    /// A transaction ends in the database.
    Commit(u64),
    Core(usize, u32, CoreEvent),
    Host(usize, u32, HostEvent),
    Engine(usize, EngineEvent),
    StartCore(usize),
    StartNode(usize),
    ThawCore(usize),
    ThawHost(usize),
}

/// Containers of others on each host.
pub(crate) const STRANGERS: u32 = 2;

pub(crate) struct World {
    pub(crate) now: Time,
    queue: Queue<Event>,
    pub(crate) plan: Plan,
    weather: Weather,
    sabotage: Option<Sabotage>,
    pub(crate) quiet: bool,
    pub(crate) store: Store,
    calls: BTreeMap<u64, StoreCall>,
    tickets: u64,
    pub(crate) cores: Vec<Core>,
    pub(crate) hosts: Vec<Host>,
    links: Vec<Link>,
    pub(crate) books: Books,
    pub(crate) cover: Tally,
    trace: Option<Vec<String>>,
    doomed: Vec<Party>,
    luck: Random,
    network_luck: Random,
    store_luck: Random,
    ids: Random,
    /// When each host's network and Cores' answers behave again.
    paused_until: Time,
}

/// Writes a line of the trace, and formats it only when somebody reads it.
macro_rules! note {
    ($world:expr, $($text:tt)*) => {
        if $world.is_traced() {
            let line = format!($($text)*);
            $world.write_trace(&line);
        }
    };
}
use note;

impl World {
    pub(crate) fn new(plan: Plan, sabotage: Option<Sabotage>, traced: bool) -> Self {
        let seed = plan.seed;
        let mut ids = Random::new(seed, 3);
        let mut world = Self {
            now: 0,
            queue: Queue::new(),
            weather: plan.weather.clone(),
            sabotage,
            quiet: false,
            store: Store::new(ids.id(), plan.shape.policy),
            calls: BTreeMap::new(),
            tickets: 0,
            cores: Vec::new(),
            hosts: Vec::new(),
            links: Vec::new(),
            books: Books::new(plan.shape.cloned),
            cover: Tally::default(),
            trace: traced.then(Vec::new),
            doomed: Vec::new(),
            luck: Random::new(seed, 1),
            network_luck: Random::new(seed, 2),
            store_luck: Random::new(seed, 4),
            ids,
            paused_until: 0,
            plan,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        let shape = self.plan.shape.clone();
        for core in 0..shape.cores {
            let clock = self.clock(shape.drift_ppm);
            self.cores.push(Core::new(clock, Random::new(self.plan.seed, 100 + core as u64)));
            let at = self.luck.below(50) + 2_500 * core as u64;
            self.queue.push(at, Event::StartCore(core));
        }
        for host in 0..shape.hosts {
            let clock = self.clock(shape.drift_ppm);
            let random = Random::new(self.plan.seed, 200 + host as u64);
            let identity = if shape.cloned && host + 1 == shape.hosts {
                self.hosts[0].identity.clone()
            } else {
                self.enroll(host).expect("a new deployment takes nodes")
            };
            self.hosts.push(Host::new(clock, random, identity));
            let at = 100 + self.luck.below(1_000);
            self.queue.push(at, Event::StartNode(host));
        }
        for (number, (at, _)) in self.plan.events.iter().enumerate() {
            self.queue.push(*at, Event::Planned(number));
        }
        self.queue.push(self.plan.ends() + 15_000, Event::Quiet);
    }

    fn clock(&mut self, drift_ppm: u64) -> crate::clock::Clock {
        let drift =
            i64::try_from(self.luck.below(2 * drift_ppm + 1)).unwrap_or(0) - i64::try_from(drift_ppm).unwrap_or(0);
        crate::clock::Clock::new(1_000_000 + self.luck.below(1_000_000_000), drift)
    }

    /// Lets the next event happen. False: the history is over.
    pub(crate) fn step(&mut self) -> bool {
        if self.books.broken().is_some() || self.is_over() {
            return false;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = at;
        self.happen(event);
        while let Some(party) = self.doomed.pop() {
            self.crash(party);
        }
        self.audit();
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Planned(number) => self.planned(number),
            Event::Quiet => self.calm_down(),
            Event::Arrive { link, up } => self.arrive(link, up),
            Event::Dial { link } => self.dialled(link),
            Event::Commit(ticket) => self.commit(ticket),
            Event::Core(core, life, event) => {
                let party = &self.cores[core];
                if party.life != life || !party.alive {
                } else if party.frozen_until > self.now {
                    let at = party.frozen_until;
                    self.queue.push(at, Event::Core(core, life, event));
                } else {
                    self.core_event(core, event);
                }
            }
            Event::Host(host, life, event) => {
                let party = &self.hosts[host];
                if party.life != life || party.process.is_none() {
                } else if party.frozen_until > self.now {
                    let at = party.frozen_until;
                    self.queue.push(at, Event::Host(host, life, event));
                } else {
                    self.host_event(host, event);
                }
            }
            Event::Engine(host, event) => {
                let frozen = self.hosts[host].frozen_until;
                if frozen > self.now {
                    self.queue.push(frozen, Event::Engine(host, event));
                } else {
                    self.engine_event(host, event);
                }
            }
            Event::StartCore(core) => self.start_core(core),
            Event::StartNode(host) => self.start_node(host),
            Event::ThawCore(core) => self.thaw_core(core),
            Event::ThawHost(host) => self.thaw_host(host),
        }
    }

    /// A parcel arrives where it was sent to, and is read when its receiver reads.
    fn arrive(&mut self, link: usize, up: bool) {
        let now = self.now;
        let pipe = self.links[link].pipe(up);
        if pipe.stalled_until > now {
            let at = pipe.stalled_until;
            return self.queue.push(at, Event::Arrive { link, up });
        }
        let Some(parcel) = pipe.flight.pop_front() else { return };
        if up {
            self.links[link].reset_at_core |= parcel == Parcel::End;
            self.core_receives(link, parcel);
        } else {
            self.links[link].reset_at_node |= parcel == Parcel::End;
            self.node_receives(link, parcel);
        }
    }

    /// Puts a parcel on the way, sometimes in parts.
    fn transmit(&mut self, link: usize, up: bool, parcel: Parcel) {
        let latency = self.latency();
        let parts = matches!(parcel, Parcel::Text(_)) && self.network_luck.chance(self.weather.fragments);
        let now = self.now;
        if parts && let Some(at) = self.links[link].pipe(up).send(Parcel::Fragment, now, latency) {
            self.cover.hit("network: message in fragments");
            self.queue.push(at, Event::Arrive { link, up });
        }
        let latency = latency + if parts { self.network_luck.below(3_000) } else { 0 };
        if let Some(at) = self.links[link].pipe(up).send(parcel, now, latency) {
            self.queue.push(at, Event::Arrive { link, up });
        }
    }

    fn latency(&mut self) -> u64 {
        1 + self.network_luck.below(self.weather.latency_ms + 1)
    }

    /// An effect of a party; an armed trap may crash it here.
    fn effect(&mut self, party: Party, trap: Trap) {
        let armed = match party {
            Party::Core(core) => &mut self.cores[core].trap,
            Party::Node(host) => &mut self.hosts[host].trap,
        };
        if let Some((at, left)) = armed
            && *at == trap
        {
            *left -= 1;
            if *left == 0 {
                *armed = None;
                self.cover.hit("fault: crash at an exact effect");
                self.doomed.push(party);
            }
        }
    }

    fn is_doomed(&self, party: Party) -> bool {
        self.doomed.contains(&party)
    }

    fn core_id(&mut self) -> Id {
        self.ids.id()
    }

    fn some_session(&self, number: usize) -> Option<usize> {
        number.checked_rem(self.store.sessions.len())
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    pub(crate) fn write_trace(&mut self, line: &str) {
        let line = format!("{:>8} {line}", self.now);
        if let Some(trace) = &mut self.trace {
            trace.push(line);
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }
}
