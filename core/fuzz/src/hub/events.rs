//! What may happen to a connection of Core's.

use arbitrary::Arbitrary;

#[derive(Arbitrary, Debug)]
pub(super) enum Event {
    /// Hello, storage and welcome, all as they should be.
    Open(Vec<Observed>),
    Hello {
        identity: u8,
        observed: Vec<Observed>,
    },
    Heartbeat {
        connection: u8,
        epoch: u8,
        observed: Vec<Observed>,
    },
    Retention {
        connection: u8,
        epoch: u8,
        sequence: u8,
        references: Vec<u8>,
    },
    Response {
        connection: u8,
        request: Answered,
    },
    /// A frame of the other direction.
    Misplaced(u8),
    Fragment,
    Request {
        generation: u8,
        needs_ready: bool,
        wait_ms: u16,
    },
    /// Many at once.
    Flood(u8),
    Cancel(u8),
    Written(bool),
    Return(Returned),
    Close(u8),
    /// The clock moves to the time that the connection waits for.
    Wake,
    Wait(u16),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) generation: u8,
    pub(super) ready: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Answered {
    /// One that was sent.
    Sent(u8),
    /// One that was not, or not yet.
    Number(u8),
    Text(u8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Returned {
    /// What was asked for; references kept or not, by bit.
    Fitting(u8),
    Failed,
    /// An identity or an epoch that changed, or references in another order.
    Changed,
    /// The reply of another callback.
    Other(u8),
}
