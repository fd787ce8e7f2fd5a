//! What may happen to a node.

use arbitrary::Arbitrary;

/// What it finds when it starts.
#[derive(Arbitrary, Debug)]
pub(super) struct Start {
    pub(super) epoch: Option<u8>,
    pub(super) found: Vec<(u8, Found)>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Found {
    Provider,
    Recovery,
    Collecting,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Event {
    Opened,
    Closed,
    Fragment,
    Binary,
    /// Bytes that no honest Core sends.
    Noise(String),
    /// Hello, measurement, welcome and storage, all as they should be.
    Connect {
        epoch: u8,
        target: u8,
        serving: Option<u8>,
    },
    Welcome {
        epoch: u8,
        target: u8,
        serving: Option<u8>,
    },
    Acknowledgement {
        fence: Fence,
        target: u8,
        serving: Option<u8>,
    },
    Retention {
        fence: Fence,
        keep: u8,
        reorder: bool,
        cut: bool,
        target: u8,
    },
    Request(Request),
    /// A frame of the other direction.
    Misplaced(u8),
    Measured,
    EpochStored {
        which: u8,
        stored: bool,
    },
    Written(u16),
    /// The operation that this chooses among the running ones ends.
    Result {
        which: u8,
        outcome: u8,
    },
    Prepared {
        outcome: Option<u8>,
    },
    Probed {
        outcome: Option<u8>,
    },
    Removed {
        finished: bool,
    },
    /// The clock moves to the time that the node waits for.
    Wake,
    Wait(u16),
}

/// How a frame is fenced: zero is right, and most bytes count as zero.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) connection: u8,
    pub(super) epoch: u8,
    pub(super) sequence: u8,
}

impl Fence {
    pub(super) const fn is_off(byte: u8) -> bool {
        byte > 248
    }
}

#[derive(Arbitrary, Debug)]
pub(super) struct Request {
    pub(super) fence: Fence,
    pub(super) generation: u8,
    pub(super) allocation: u8,
    pub(super) timeout_ms: u16,
    pub(super) operation: u8,
}
