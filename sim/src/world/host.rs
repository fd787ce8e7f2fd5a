//! One host: a node process that comes and goes, and a disk, an engine and a preparer that stay.

mod disk;
mod preparer;
mod way;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use palisade_core::generation::recovery::{Construction, Start, discover};
use palisade_core::generation::{Found, Probed, Table, Task};
use palisade_core::operation::{Declaration, Support};
use palisade_core::session::backoff::Backoff;
use palisade_core::session::node::{Action, Node};
use palisade_core::units::{Digest, Generation, Id, Millis, OwnerEpoch};
use palisade_core::wire::payload::{Diagnostic, GenerationReference, Health};

use super::engine::Engine;
use super::net::Parcel;
use super::{Event, World, note};
use crate::clock::{Clock, Time};
use crate::coverage::names;
use crate::plan::{Page, Party, Trap};
use crate::random::Random;
use crate::sabotage::Sabotage;
use disk::{Disk, File};

pub(crate) use preparer::{Action as RunAction, Run};
pub(crate) use way::Answered;
use way::Way;

/// A host.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Host {
    pub(crate) identity: Identity,
    pub(crate) clock: Clock,
    pub(crate) frozen_until: Time,
    pub(crate) trap: Option<(Trap, u64)>,
    pub(crate) disk: Disk,
    pub(crate) engine: Engine,
    pub(crate) process: Option<Process>,
    pub(crate) life: u32,
    /// Ended with 78: nobody starts it again.
    pub(crate) rejected: bool,
    runs: BTreeMap<u64, Run>,
    next_run: u64,
    pub(crate) proxy: Option<(Page, Time)>,
    pub(crate) lose_dial: bool,
    pub(crate) mangle_hello: bool,
    pub(crate) mangle_welcome: bool,
    pub(crate) lower_welcome: bool,
    pub(crate) probes_fail: (Time, Option<Diagnostic>),
    pub(crate) measures_slowly_until: Time,
    pub(crate) disk_fails_until: Time,
    /// The node is not started before.
    pub(crate) away_until: Time,
    pub(crate) luck: Random,
}

/// Who a node is, on its disk since its enrollment.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) node: Id,
    pub(crate) credential: String,
    pub(crate) installation: Id,
    pub(crate) enrolled: Generation,
    pub(crate) digest: Digest,
}

/// A running node. A crash loses all of it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) machine: Node,
    backoff: Backoff,
    pub(crate) way: Way,
    /// Counts attempts, so that what belongs to an old one is recognised.
    pub(crate) number: u64,
    inbox: VecDeque<Parcel>,
    pub(super) wake: Option<Time>,
    providers: BTreeSet<Generation>,
    stopping: bool,
}

/// What happens in one process.
#[derive(Debug)]
pub(crate) enum HostEvent {
    Retry(u64),
    DialAnswered { number: u64, answer: Answered },
    DialTimedOut(u64),
    Measured(u64),
    EpochWritten { epoch: OwnerEpoch, number: u64, synced: bool },
    Written { number: u64, bytes: usize, written: bool },
    /// The machine's next time, as it was known when this was set.
    Wake(Time),
    Probed(Generation, Probed),
    Prepared(Generation, Result<(), Diagnostic>),
    Removed(Generation, bool),
    Exit,
}

const MEASUREMENT_TIMEOUT_MS: u64 = 2_000;
const PROBE_TIMEOUT_MS: u64 = 6_000;

impl Host {
    pub(super) fn new(clock: Clock, luck: Random, identity: Identity) -> Self {
        let mut host = Self {
            clock,
            frozen_until: 0,
            trap: None,
            disk: Disk::default(),
            engine: Engine::new(),
            process: None,
            life: 0,
            rejected: false,
            runs: BTreeMap::new(),
            next_run: 0,
            proxy: None,
            lose_dial: false,
            mangle_hello: false,
            mangle_welcome: false,
            lower_welcome: false,
            probes_fail: (0, None),
            measures_slowly_until: 0,
            disk_fails_until: 0,
            away_until: 0,
            luck,
            identity,
        };
        host.install();
        host
    }

    /// What an installer leaves for the enrolled generation.
    pub(super) fn install(&mut self) {
        let generation = self.identity.enrolled;
        self.disk = Disk::default();
        self.disk.remember(generation, self.identity.digest);
        for file in [File::Directory, File::Lease(generation), File::Record(generation), File::Originals(generation)] {
            self.disk.write(file, 1);
            self.disk.sync(file);
        }
        if self.luck.chance(700) {
            self.disk.write(File::Store, 1);
            self.disk.sync(File::Store);
        }
        self.engine.import(generation);
    }
}

impl World {
    pub(super) fn host_now(&self, host: usize) -> Millis {
        self.hosts[host].clock.show(self.now)
    }

    /// Core takes a new node.
    pub(super) fn enroll(&mut self, host: usize) -> Option<Identity> {
        let (node, secret) = (self.ids.id(), self.ids.id());
        let credential = format!("{secret}-{host}");
        let (enrolled, digest) = self.store.enroll(node, credential.clone())?;
        Some(Identity { node, credential, installation: self.store.installation, enrolled, digest })
    }

    /// The service manager starts the node: the disk says what is there, or the start is refused.
    pub(super) fn start_node(&mut self, host: usize) {
        if self.hosts[host].away_until > self.now {
            let at = self.hosts[host].away_until;
            return self.queue.push(at, Event::StartNode(host));
        }
        if self.hosts[host].process.is_some() || self.hosts[host].rejected || self.hosts[host].frozen_until > self.now {
            return;
        }
        let identity = self.hosts[host].identity.clone();
        let found = match self.discover(host, &identity) {
            Ok(found) => found,
            Err(refused) => {
                self.cover.hit("node refuses to start: damaged file");
                note!(self, "host {host}: the node does not start: {refused}");
                self.books.start_refused(host);
                let again = self.now + 5_000;
                return self.queue.push(again, Event::StartNode(host));
            }
        };
        let epoch = self.hosts[host].disk.read(File::Epoch).and_then(OwnerEpoch::new);
        let providers: BTreeSet<Generation> = found
            .iter()
            .filter(|(_, found)| matches!(found, Found::Provider(_)))
            .map(|(reference, _)| reference.generation)
            .collect();
        let known: Vec<u64> = found.iter().map(|(reference, _)| reference.generation.get()).collect();
        self.hosts[host].life += 1;
        self.books.node_of_host(host, identity.node);
        self.books.node_started(host, identity.node, epoch.map_or(0, OwnerEpoch::get), &known);
        let machine = Node::new(identity.on_the_wire(), epoch, Table::new(found));
        if self.sabotage == Some(Sabotage::EngineKillsAtStart)
            && let Some(killed) = self.hosts[host].engine.lose_one()
        {
            self.books.sandbox_removed(host, killed, self.now);
        }
        self.hosts[host].engine.begin_process();
        self.hosts[host].process = Some(Process {
            machine,
            backoff: Backoff::default(),
            way: Way::Waiting,
            number: 0,
            inbox: VecDeque::new(),
            wake: None,
            providers,
            stopping: false,
        });
        self.cover.hit("event: node starts");
        note!(self, "host {host}: the node starts, epoch {epoch:?}");
        self.host_later(host, self.now + 1, HostEvent::Retry(0));
    }

    fn discover(
        &mut self,
        host: usize,
        identity: &Identity,
    ) -> Result<Vec<(GenerationReference, Found)>, palisade_core::generation::recovery::Refused> {
        let place = &self.hosts[host];
        let locals = discover(&place.disk.root(identity.enrolled))?;
        let mut found = Vec::new();
        for (generation, local) in locals {
            self.cover.hit(names::local(local));
            let Some(specification_digest) = place.disk.digest(generation) else { continue };
            let reference = GenerationReference { generation, specification_digest };
            let entered = match local.start() {
                Start::Skip => continue,
                Start::Enter(found) => found,
                Start::Construct => {
                    let files = place.disk.files(generation, identity.enrolled);
                    let whole = files != palisade_core::generation::recovery::Files::Missing;
                    let built = if whole { Construction::Built(declaration()) } else { Construction::FileMissing };
                    built.found().map_err(|refusal| palisade_core::generation::recovery::Refused {
                        generation: Some(generation),
                        refusal,
                    })?
                }
            };
            found.push((reference, entered));
        }
        Ok(found)
    }

    pub(super) fn host_later(&mut self, host: usize, at: Time, event: HostEvent) {
        let life = self.hosts[host].life;
        self.queue.push(at, Event::Host(host, life, event));
    }

    pub(super) fn host_event(&mut self, host: usize, event: HostEvent) {
        let now = self.host_now(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let current = process.number;
        match event {
            HostEvent::Retry(number) if number == current => self.dial(host),
            HostEvent::DialAnswered { number, answer } if number == current => self.dial_answered(host, answer),
            HostEvent::DialTimedOut(number) if number == current => self.dial_timed_out(host),
            HostEvent::Measured(number) if number == current => {
                let (health, random) = (self.health(host), self.hosts[host].luck.bytes());
                self.with_node(host, |machine| machine.handle_health(now, health, random));
            }
            HostEvent::EpochWritten { epoch, number, synced } => self.epoch_written(host, epoch, number, synced),
            HostEvent::Written { number, bytes, written } if number == current => {
                if written {
                    process.machine.handle_written(now, bytes);
                } else {
                    self.lose_connection(host);
                }
            }
            // Another time was set since.
            HostEvent::Wake(at) if process.wake != Some(at) => return,
            HostEvent::Wake(_) => {
                process.wake = None;
                if let Some((at, wake)) = process.machine.poll_timeout()
                    && at <= now
                {
                    self.cover.hit(names::node_wake(wake));
                    process.machine.handle_timeout(now);
                }
            }
            HostEvent::Probed(generation, outcome) => process.machine.handle_probed(now, generation, outcome),
            HostEvent::Prepared(generation, outcome) => {
                self.cover.hit(if outcome.is_ok() { "preparation succeeded" } else { "preparation failed" });
                if outcome.is_ok() {
                    process.providers.insert(generation);
                    self.books.loaded(host, generation.get());
                }
                process.machine.handle_prepared(now, generation, outcome.map(|()| declaration()));
            }
            HostEvent::Removed(generation, finished) => {
                self.cover.hit(if finished { "removal finished" } else { "removal did not finish" });
                self.books.removed(host);
                process.machine.handle_removed(now, generation, finished);
            }
            HostEvent::Exit => return self.end_node(host),
            HostEvent::Retry(_)
            | HostEvent::DialAnswered { .. }
            | HostEvent::DialTimedOut(_)
            | HostEvent::Measured(_)
            | HostEvent::Written { .. } => {}
        }
        self.drive_node(host);
    }

    fn with_node(&mut self, host: usize, act: impl FnOnce(&mut Node)) {
        if let Some(process) = &mut self.hosts[host].process {
            act(&mut process.machine);
        }
    }

    /// Performs what the machine wants, reads what it lets be read, and waits for its next time.
    pub(super) fn drive_node(&mut self, host: usize) {
        loop {
            self.perform(host);
            if self.is_doomed(Party::Node(host)) {
                return;
            }
            let Some(process) = &mut self.hosts[host].process else { return };
            let open = matches!(process.way, Way::Open { .. });
            if !open || !process.machine.may_read() {
                break;
            }
            let Some(parcel) = process.inbox.pop_front() else { break };
            self.node_reads(host, parcel);
        }
        let now = self.now;
        let place = &mut self.hosts[host];
        let Some(process) = &mut place.process else { return };
        let due = process.machine.poll_timeout().map(|(at, _)| place.clock.when(at, now));
        if let Some(at) = due
            && process.wake.is_none_or(|wake| wake > at)
        {
            process.wake = Some(at);
            self.host_later(host, at, HostEvent::Wake(at));
        }
    }

    fn perform(&mut self, host: usize) {
        while !self.is_doomed(Party::Node(host))
            && let Some(process) = &mut self.hosts[host].process
            && let Some(action) = process.machine.poll_action()
        {
            self.act_for_node(host, action);
        }
    }

    fn act_for_node(&mut self, host: usize, action: Action) {
        match action {
            Action::MeasureHealth => self.measure(host),
            Action::Send(message) => self.send(host, message),
            Action::StoreEpoch(epoch) => self.store_epoch(host, epoch),
            Action::Execute { ticket, call, deadline } => self.execute(host, ticket, *call, deadline),
            Action::Task(Task::Probe(generation)) => self.probe(host, generation),
            Action::Task(Task::Prepare(reference)) => {
                self.hosts[host].disk.remember(reference.generation, reference.specification_digest);
                self.start_run(host, RunAction::Prepare, reference.generation, reference.specification_digest);
            }
            Action::Task(Task::CancelPreparation(generation)) => {
                self.cover.hit("preparation cancelled");
                self.kill_run(host, RunAction::Prepare, generation);
            }
            Action::Remove(reference) => {
                self.books.removing(host, reference.generation.get(), &self.store, self.now);
                if let Some(process) = &mut self.hosts[host].process {
                    process.providers.remove(&reference.generation);
                }
                self.start_run(host, RunAction::Collect, reference.generation, reference.specification_digest);
            }
            Action::CancelRemoval(generation) => {
                self.cover.hit("removal cancelled");
                self.kill_run(host, RunAction::Collect, generation);
            }
            Action::Close(ended) => {
                self.cover.hit(names::ended(&ended));
                note!(self, "host {host} closes its connection: {ended}");
                self.give_up_link(host, None);
            }
        }
    }

    /// Bounded by the shell: a host that does not answer in time is unknown.
    fn measure(&mut self, host: usize) {
        let slow = self.hosts[host].measures_slowly_until > self.now;
        let busy = self.sabotage == Some(Sabotage::HeartbeatWaitsForProvider) && self.hosts[host].engine.is_busy();
        let number = self.number(host);
        let took = if busy {
            8_000
        } else if slow {
            MEASUREMENT_TIMEOUT_MS
        } else {
            self.hosts[host].luck.below(20)
        };
        if slow {
            self.cover.hit("fault: host cannot be measured");
        }
        self.host_later(host, self.now + took, HostEvent::Measured(number));
    }

    fn number(&self, host: usize) -> u64 {
        self.hosts[host].process.as_ref().map_or(0, |process| process.number)
    }

    fn health(&mut self, host: usize) -> Health<'static> {
        let known = self.hosts[host].measures_slowly_until <= self.now;
        Health {
            observed_at: "2026-10-01T08:00:00Z".into(),
            active_operations: 0,
            cpu_utilization: known.then_some(0.25),
            total_memory_bytes: known.then_some(32 << 30),
            effective_cpu_cores: known.then_some(8.0),
            cpu_count: known.then_some(8),
            available_memory_bytes: known.then_some(16 << 30),
            available_disk_bytes: known.then_some(1 << 40),
            generations: Vec::new(),
        }
    }

    fn store_epoch(&mut self, host: usize, epoch: OwnerEpoch) {
        let number = self.number(host);
        let took = 1 + self.hosts[host].luck.below(40);
        self.host_later(host, self.now + took, HostEvent::EpochWritten { epoch, number, synced: false });
    }

    /// Renamed first, durable a little later; only then the machine learns of it.
    fn epoch_written(&mut self, host: usize, epoch: OwnerEpoch, number: u64, synced: bool) {
        let now = self.host_now(host);
        if self.hosts[host].disk_fails_until > self.now {
            self.cover.hit("fault: epoch not stored");
            if number == self.number(host) {
                self.with_node(host, |machine| machine.handle_epoch_not_stored(now));
            }
            return;
        }
        let stored = self.hosts[host].disk.read(File::Epoch).unwrap_or(0);
        if !synced {
            if self.sabotage != Some(Sabotage::DiskDropsEpoch) && epoch.get() > stored {
                self.hosts[host].disk.write(File::Epoch, epoch.get());
            }
            self.effect(Party::Node(host), Trap::Wrote);
            let at = self.now + 1 + self.hosts[host].luck.below(5);
            return self.host_later(host, at, HostEvent::EpochWritten { epoch, number, synced: true });
        }
        self.hosts[host].disk.sync(File::Epoch);
        self.books.epoch_stored(host, epoch.get(), now.0);
        self.effect(Party::Node(host), Trap::Wrote);
        self.with_node(host, |machine| machine.handle_epoch_stored(now, epoch));
    }

    fn probe(&mut self, host: usize, generation: Generation) {
        let image = self.hosts[host].engine.image(generation, self.now);
        let (until, diagnostic) = self.hosts[host].probes_fail;
        let ill = diagnostic.filter(|_| until > self.now);
        let hangs = self.hosts[host].engine.is_down(self.now);
        let fails = self.luck.chance(self.weather.failing_probe);
        let outcome = match (image, ill) {
            (None, _) => Probed::NotReady(Diagnostic::DockerUnavailable),
            (_, Some(diagnostic)) => Probed::NotReady(diagnostic),
            (Some(false), None) => Probed::NotReady(Diagnostic::RuntimeImageUnavailable),
            (Some(true), None) if fails && self.luck.chance(300) => Probed::Cancelled,
            (Some(true), None) if fails => Probed::NotReady(Diagnostic::CapacityInsufficient),
            (Some(true), None) => Probed::Ready(None),
        };
        self.cover.hit(names::probed(&outcome));
        let took = if hangs { PROBE_TIMEOUT_MS } else { 1 + self.luck.below(60) };
        self.host_later(host, self.now + took, HostEvent::Probed(generation, outcome));
    }

    /// The node is asked to stop: its connection closes at once, what runs is waited for.
    pub(super) fn stop_node(&mut self, host: usize) {
        let now = self.host_now(host);
        let Some(process) = self.hosts[host].process.as_mut().filter(|process| !process.stopping) else { return };
        process.stopping = true;
        self.books.node_stopping(host);
        process.machine.handle_closed(now);
        let until = process.machine.busy_until();
        self.close_way(host);
        self.drive_node(host);
        let at = until.map_or(self.now, |until| self.hosts[host].clock.when(until, self.now));
        self.host_later(host, at.max(self.now + 1), HostEvent::Exit);
    }

    /// The process is gone. The operating system closes its socket, unless the power went as well.
    pub(super) fn end_node(&mut self, host: usize) {
        if self.hosts[host].process.is_none() {
            return;
        }
        self.close_way(host);
        self.hosts[host].process = None;
        self.hosts[host].trap = None;
        self.books.node_gone(host);
        self.orphan_runs(host, false);
        self.orphan_operations(host);
        note!(self, "host {host}: the node ends");
        let back = self.now + 100 + self.hosts[host].luck.below(5_000);
        self.queue.push(back, Event::StartNode(host));
    }

    /// The host loses power and comes back.
    pub(super) fn reboot(&mut self, host: usize) {
        if let Some(link) = self.open_link(host) {
            self.links[link].up.kill();
            self.links[link].node_open = false;
        }
        if self.hosts[host].process.take().is_some() {
            self.books.node_gone(host);
        }
        self.hosts[host].trap = None;
        self.orphan_runs(host, true);
        let damage = self.weather.failing_disk;
        let place = &mut self.hosts[host];
        let torn = place.disk.lose_power(damage, &mut place.luck);
        let rotten = place.luck.chance(damage) && place.disk.rot(&mut place.luck);
        if torn || rotten {
            self.cover.hit("fault: file damaged");
        }
        self.reboot_engine(host);
        self.hosts[host].life += 1;
        note!(self, "host {host} loses power");
        let back = self.now + 3_000 + self.hosts[host].luck.below(20_000);
        self.queue.push(back, Event::StartNode(host));
    }

    pub(super) fn thaw_host(&mut self, host: usize) {
        if self.hosts[host].frozen_until > self.now {
            return;
        }
        let now = self.host_now(host);
        self.books.thawed(host, now.0);
        if self.hosts[host].process.is_none() {
            self.queue.push(self.now + 10, Event::StartNode(host));
        }
        self.drive_node(host);
    }
}

impl Identity {
    fn on_the_wire(&self) -> palisade_core::wire::payload::Identity<'static> {
        palisade_core::wire::payload::Identity {
            node_id: self.node.to_string().into(),
            installation_id: self.installation.to_string().into(),
            provider: "docker".into(),
            backend_fingerprint: "1".repeat(64).into(),
            deployment_generation: self.enrolled.get(),
            specification_digest: self.digest.to_string().into(),
            max_active: 1,
            max_retained: 1,
        }
    }
}

/// What the provider of these hosts carries out.
fn declaration() -> Declaration {
    let not_here = |reason: &str| Support::Unsupported { reason: reason.to_owned() };
    Declaration::of_groups(
        &Support::Supported,
        &not_here("checkpoint_not_supported"),
        &not_here("preparation_not_supported"),
    )
    .expect("the reasons are reason codes")
}
