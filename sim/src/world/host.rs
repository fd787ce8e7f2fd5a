//! One host: a node process that comes and goes, and a disk, an engine and a preparer that stay.

mod disk;
mod driving;
mod effects;
mod life;
mod preparer;
mod way;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use palisade_core::generation::Probed;
use palisade_core::session::backoff::Backoff;
use palisade_core::session::node::Node;
use palisade_core::units::{Digest, Generation, Id, Millis, OwnerEpoch};
use palisade_core::wire::payload::Diagnostic;

use super::engine::Engine;
use super::net::Parcel;
use super::{Event, World};
use crate::clock::{Clock, Time};
use crate::plan::{Page, Trap};
use crate::random::Random;
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
    DialAnswered {
        number: u64,
        answer: Answered,
    },
    DialTimedOut(u64),
    Measured(u64),
    EpochWritten {
        epoch: OwnerEpoch,
        number: u64,
        synced: bool,
    },
    Written {
        number: u64,
        bytes: usize,
        written: bool,
    },
    /// The machine's next time, as it was known when this was set.
    Wake(Time),
    Probed(Generation, Probed),
    Prepared(Generation, Result<(), Diagnostic>),
    Removed(Generation, bool),
    Exit,
}

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

    pub(super) fn host_later(&mut self, host: usize, at: Time, event: HostEvent) {
        let life = self.hosts[host].life;
        self.queue.push(at, Event::Host(host, life, event));
    }

    fn with_node(&mut self, host: usize, act: impl FnOnce(&mut Node)) {
        if let Some(process) = &mut self.hosts[host].process {
            act(&mut process.machine);
        }
    }

    fn number(&self, host: usize) -> u64 {
        self.hosts[host].process.as_ref().map_or(0, |process| process.number)
    }
}
