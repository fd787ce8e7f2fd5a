//! Connections: two pipes each, in order, and everything that goes wrong on the way.

use std::collections::VecDeque;

use crate::clock::Time;

/// One TCP connection from a node to a Core, or an attempt at one.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Link {
    pub(crate) host: usize,
    /// Which attempt of which process of the host.
    pub(crate) attempt: (u32, u64),
    pub(crate) core: usize,
    pub(crate) core_life: u32,
    pub(crate) node_open: bool,
    pub(crate) core_open: bool,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    /// Set when a peer's end was seen by the operating system, read or not.
    pub(crate) reset_at_node: bool,
    pub(crate) reset_at_core: bool,
    /// Somebody else's request was accepted in Core's name, so that sequences differ since.
    pub(crate) deceived: bool,
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub(crate) flight: VecDeque<Parcel>,
    last: Time,
    /// Nothing arrives any more, and nobody is told.
    pub(crate) dead: bool,
    pub(crate) stalled_until: Time,
    pub(crate) blocked_until: Time,
}

/// What travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parcel {
    Text(Vec<u8>),
    /// A message that breaks a rule of the grammar which the books do not know in detail.
    Malformed(Vec<u8>),
    Binary,
    Fragment,
    /// The peer closed, or the connection was reset.
    End,
}

impl Link {
    pub(crate) fn new(host: usize, attempt: (u32, u64), core: usize, core_life: u32) -> Self {
        Self {
            host,
            attempt,
            core,
            core_life,
            node_open: true,
            core_open: false,
            up: Pipe::default(),
            down: Pipe::default(),
            reset_at_node: false,
            reset_at_core: false,
            deceived: false,
        }
    }

    pub(crate) fn pipe(&mut self, up: bool) -> &mut Pipe {
        if up { &mut self.up } else { &mut self.down }
    }
}

impl Pipe {
    /// Puts `parcel` on the way: when it arrives, unless it never does.
    pub(crate) fn send(&mut self, parcel: Parcel, now: Time, latency: u64) -> Option<Time> {
        if self.dead {
            return None;
        }
        self.last = self.last.max(now + latency);
        self.flight.push_back(parcel);
        Some(self.last)
    }

    pub(crate) fn kill(&mut self) {
        self.dead = true;
        self.flight.clear();
    }
}
