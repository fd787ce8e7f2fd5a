//! The books: what crossed the boundaries of the parties, written down plainly, and what must be true of it.
//!
//! Nothing here calls a machine or shares a type of one that decides anything. Frames are read as JSON values.

mod checkpoints;
mod clients;
mod connections;
mod drain;
mod frame;
mod generations;
mod nodes;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use palisade_core::units::Id;

use crate::clock::Time;
use connections::LinkBook;
use nodes::HostBook;

pub(crate) use connections::Seen;
pub(crate) use frame::Duty;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which promise, as a stable short name.
    pub promise: &'static str,
    /// What happened.
    pub text: String,
}

/// Everything that was seen.
#[derive(Debug)]
pub(crate) struct Books {
    /// Copies of an identity scatter sandboxes over hosts; nothing is promised about those.
    cloned: bool,
    broken: Option<Broken>,
    quiet_since: Option<Time>,
    links: Vec<LinkBook>,
    /// Connections that Core has to close soon, among others that it has closed.
    closing: BTreeSet<usize>,
    hosts: Vec<HostBook>,
    /// Cores that were asked to stop, with the time by which they have ended.
    stopping: BTreeMap<usize, Time>,
    /// Accepted connections that have not ended, by Core and node.
    accepted: BTreeMap<(usize, Id), usize>,
    requests: requests::Requests,
    clients: clients::Clients,
    removed_nodes: BTreeSet<Id>,
}

impl Books {
    pub(crate) fn new(cloned: bool) -> Self {
        Self {
            cloned,
            broken: None,
            quiet_since: None,
            links: Vec::new(),
            closing: BTreeSet::new(),
            hosts: Vec::new(),
            stopping: BTreeMap::new(),
            accepted: BTreeMap::new(),
            requests: requests::Requests::default(),
            clients: clients::Clients::default(),
            removed_nodes: BTreeSet::new(),
        }
    }

    /// The first promise that was broken.
    pub(crate) fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    pub(crate) fn fail(&mut self, promise: &'static str, text: String) {
        if self.broken.is_none() {
            self.broken = Some(Broken { promise, text });
        }
    }

    fn require(&mut self, holds: bool, promise: &'static str, text: impl FnOnce() -> String) {
        if !holds {
            self.fail(promise, text());
        }
    }

    pub(crate) fn quiet(&mut self, now: Time) {
        self.quiet_since = Some(now);
    }

    pub(crate) fn quiet_since(&self) -> Option<Time> {
        self.quiet_since
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.text)
    }
}
