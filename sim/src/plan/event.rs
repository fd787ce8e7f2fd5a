//! What clients and operators do, and what goes wrong.

use std::fmt;

use crate::random::{Random, index};

/// One event of a plan. Indices of sessions are taken modulo those that exist then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    // What clients do.
    CreateSession,
    PostTurn {
        session: usize,
        timeout_ms: u64,
    },
    CancelTurns {
        session: usize,
    },
    DeleteSession {
        session: usize,
    },
    /// Many callers ask at one moment for a measurement, or for an operation that the provider does not have.
    Ask {
        session: usize,
        callers: usize,
        unsupported: bool,
        patience_ms: u64,
    },
    // What operators do.
    ChangeTarget,
    Archive {
        session: usize,
    },
    StartReset,
    CancelReset,
    RemoveNode {
        host: usize,
    },
    PauseAdmission {
        ms: u64,
    },
    // What happens to Core.
    CrashCore {
        core: usize,
    },
    StopCore {
        core: usize,
    },
    SuspendCore {
        core: usize,
        ms: u64,
    },
    LoseLock,
    StoreOutage {
        ms: u64,
    },
    WallClockJump {
        ms: i64,
    },
    // What happens to a host.
    CrashNode {
        host: usize,
    },
    StopNode {
        host: usize,
    },
    NodeAway {
        host: usize,
        ms: u64,
    },
    Reboot {
        host: usize,
    },
    SuspendHost {
        host: usize,
        ms: u64,
    },
    ClockJump {
        host: usize,
        ms: u64,
    },
    EngineDown {
        host: usize,
        ms: u64,
    },
    ProbesFail {
        host: usize,
        ms: u64,
        image: bool,
    },
    HostMeasuresSlowly {
        host: usize,
        ms: u64,
    },
    DiskFails {
        host: usize,
        ms: u64,
    },
    SandboxStops {
        session: usize,
    },
    // What happens on the way.
    Cut {
        host: usize,
        inside: bool,
    },
    HalfOpen {
        host: usize,
        direction: Direction,
    },
    Stall {
        host: usize,
        direction: Direction,
        ms: u64,
    },
    Block {
        host: usize,
        direction: Direction,
        ms: u64,
    },
    Proxy {
        host: usize,
        page: Page,
        ms: u64,
    },
    LoseNextDial {
        host: usize,
    },
    // What a hostile or broken peer sends.
    Send {
        host: usize,
        hostile: Hostile,
    },
    // A crash at an exact point.
    Arm(Party, Trap, u64),
}

/// Which way on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
    Both,
}

/// Who crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    Core(usize),
    Node(usize),
}

/// At which of a party's effects it crashes: before or after the n-th.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trap {
    Sent,
    Received,
    Committed,
    Wrote,
    Executed,
}

/// What answers a dial in Core's place, or on the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    Unauthorized,
    Forbidden,
    BadGateway,
    LikeCore,
    StripsUpgrade,
    AddsOrigin,
}

/// What a hostile or broken peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hostile {
    // To the node.
    RepeatedRequest,
    SkippedSequence,
    LowerEpoch,
    OtherConnection,
    StaleRetention,
    PartialRetention,
    MixedRetention,
    GreedyRetention,
    ChangedDigest,
    ServingAboveTarget,
    OlderTarget,
    ForeignAck,
    InvalidRequest,
    BinaryDown,
    StaleWelcome,
    Flood,
    LowerWelcome,
    SecondWelcome,
    // To Core.
    ForeignResponse,
    RepeatedResponse,
    UnknownCode,
    NineObservations,
    WrongEpochHeartbeat,
    ForeignHeartbeat,
    RetentionGap,
    SecondHello,
    OtherIdentity,
    BinaryUp,
    // Either way.
    LongControl,
    OtherVersion,
    Garbage,
    UnknownMember,
    Malformed,
}

impl Hostile {
    pub(crate) const ALL: [Self; 33] = [
        Self::RepeatedRequest,
        Self::SkippedSequence,
        Self::LowerEpoch,
        Self::OtherConnection,
        Self::StaleRetention,
        Self::PartialRetention,
        Self::MixedRetention,
        Self::GreedyRetention,
        Self::ChangedDigest,
        Self::ServingAboveTarget,
        Self::OlderTarget,
        Self::ForeignAck,
        Self::InvalidRequest,
        Self::BinaryDown,
        Self::StaleWelcome,
        Self::Flood,
        Self::LowerWelcome,
        Self::SecondWelcome,
        Self::Malformed,
        Self::ForeignResponse,
        Self::RepeatedResponse,
        Self::UnknownCode,
        Self::NineObservations,
        Self::WrongEpochHeartbeat,
        Self::ForeignHeartbeat,
        Self::RetentionGap,
        Self::SecondHello,
        Self::OtherIdentity,
        Self::BinaryUp,
        Self::LongControl,
        Self::OtherVersion,
        Self::Garbage,
        Self::UnknownMember,
    ];
}

impl Trap {
    pub(crate) fn any(random: &mut Random) -> Self {
        random.pick(&[Self::Sent, Self::Received, Self::Committed, Self::Wrote, Self::Executed])
    }
}

pub(super) fn client(random: &mut Random) -> Event {
    let session = index(random.below(6));
    match random.below(12) {
        0..=3 => Event::CreateSession,
        4..=7 => Event::PostTurn { session, timeout_ms: random.pick(&[1, 500, 5_000, 30_000, 120_000]) },
        8 => Event::CancelTurns { session },
        9 | 10 => Event::DeleteSession { session },
        _ => Event::Ask {
            session,
            callers: random.pick(&[1, 3, 34, 40]),
            unsupported: random.chance(200),
            patience_ms: random.pick(&[0, 300, 5_000]),
        },
    }
}

/// Clients that come back after a while.
pub(super) fn hosted_client(random: &mut Random) -> Event {
    let session = index(random.below(3));
    match random.below(12) {
        0..=8 => Event::PostTurn { session, timeout_ms: random.pick(&[5_000, 30_000]) },
        9 => Event::SandboxStops { session },
        10 => Event::Archive { session },
        _ => Event::CreateSession,
    }
}

pub(super) fn operator(host: usize, random: &mut Random) -> Event {
    match random.below(12) {
        0..=6 => Event::ChangeTarget,
        7 => Event::Archive { session: index(random.below(6)) },
        8 => Event::StartReset,
        9 => Event::CancelReset,
        10 => Event::RemoveNode { host },
        _ => Event::PauseAdmission { ms: random.between(1_000, 20_000) },
    }
}

pub(super) fn core_fault(core: usize, random: &mut Random) -> Event {
    match random.below(10) {
        0..=2 => Event::CrashCore { core },
        3 => Event::StopCore { core },
        4 | 5 => Event::SuspendCore { core, ms: random.pick(&[500, 4_000, 12_000, 40_000]) },
        6 | 7 => Event::LoseLock,
        8 => Event::StoreOutage { ms: random.pick(&[300, 3_000, 8_000, 20_000]) },
        _ => Event::WallClockJump { ms: random.pick(&[-200_000, -5_000, 5_000, 46_000]) },
    }
}

pub(super) fn host_fault(host: usize, random: &mut Random) -> Event {
    let ms = random.pick(&[700, 5_000, 15_000, 40_000]);
    match random.below(16) {
        0..=2 => Event::CrashNode { host },
        3 if random.chance(300) => Event::NodeAway { host, ms: 330_000 },
        3 => Event::StopNode { host },
        4 | 5 => Event::Reboot { host },
        6 | 7 => Event::SuspendHost { host, ms },
        8 => Event::ClockJump { host, ms },
        9 | 10 => Event::EngineDown { host, ms },
        11 | 12 => Event::ProbesFail { host, ms, image: random.chance(400) },
        13 => Event::HostMeasuresSlowly { host, ms },
        14 => Event::SandboxStops { session: index(random.below(6)) },
        _ => Event::DiskFails { host, ms },
    }
}

pub(super) fn network_fault(host: usize, random: &mut Random) -> Event {
    let direction = random.pick(&[Direction::Up, Direction::Down, Direction::Both]);
    let ms = random.pick(&[800, 6_000, 20_000, 36_000]);
    match random.below(12) {
        0..=2 => Event::Cut { host, inside: random.chance(500) },
        3 | 4 => Event::HalfOpen { host, direction },
        5 | 6 => Event::Stall { host, direction, ms },
        7 | 8 => Event::Block { host, direction, ms },
        9 => Event::LoseNextDial { host },
        _ => Event::Proxy {
            host,
            page: random.pick(&[
                Page::Unauthorized,
                Page::Forbidden,
                Page::BadGateway,
                Page::LikeCore,
                Page::StripsUpgrade,
                Page::AddsOrigin,
            ]),
            ms,
        },
    }
}

pub(super) fn hostile(host: usize, random: &mut Random) -> Event {
    Event::Send { host, hostile: random.pick(&Hostile::ALL) }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateSession => write!(f, "a client creates a session"),
            Self::PostTurn { session, timeout_ms } => {
                write!(f, "a client posts a command of {timeout_ms} ms to session {session}")
            }
            Self::CancelTurns { session } => write!(f, "a client cancels the turns of session {session}"),
            Self::DeleteSession { session } => write!(f, "a client deletes session {session}"),
            Self::Ask { session, callers, unsupported, patience_ms } => {
                let what = if *unsupported { "a suspend" } else { "a measurement" };
                write!(f, "{callers} callers ask for {what} of session {session}, and wait {patience_ms} ms")
            }
            Self::ChangeTarget => write!(f, "the operator selects another specification"),
            Self::Archive { session } => write!(f, "the operator archives session {session}"),
            Self::StartReset => write!(f, "the operator resets the deployment"),
            Self::CancelReset => write!(f, "the operator cancels the reset"),
            Self::RemoveNode { host } => write!(f, "the operator removes the node of host {host}"),
            Self::PauseAdmission { ms } => write!(f, "admission pauses for {ms} ms"),
            Self::CrashCore { core } => write!(f, "core {core} crashes"),
            Self::StopCore { core } => write!(f, "core {core} is asked to stop"),
            Self::SuspendCore { core, ms } => write!(f, "core {core} freezes for {ms} ms"),
            Self::LoseLock => write!(f, "the database drops the owner's lock"),
            Self::StoreOutage { ms } => write!(f, "the database does not answer for {ms} ms"),
            Self::WallClockJump { ms } => write!(f, "the database's clock jumps by {ms} ms"),
            Self::CrashNode { host } => write!(f, "the node of host {host} crashes"),
            Self::StopNode { host } => write!(f, "the node of host {host} is asked to stop"),
            Self::NodeAway { host, ms } => write!(f, "the node of host {host} ends and is not started for {ms} ms"),
            Self::Reboot { host } => write!(f, "host {host} loses power"),
            Self::SuspendHost { host, ms } => write!(f, "host {host} is suspended for {ms} ms"),
            Self::ClockJump { host, ms } => write!(f, "the clock of host {host} jumps ahead by {ms} ms"),
            Self::EngineDown { host, ms } => write!(f, "the engine of host {host} does not answer for {ms} ms"),
            Self::ProbesFail { host, ms, image } => {
                let why = if *image { "the image is gone" } else { "the engine is ill" };
                write!(f, "probes of host {host} fail for {ms} ms: {why}")
            }
            Self::HostMeasuresSlowly { host, ms } => write!(f, "host {host} cannot be measured for {ms} ms"),
            Self::DiskFails { host, ms } => write!(f, "the disk of host {host} refuses writes for {ms} ms"),
            Self::SandboxStops { session } => write!(f, "the sandbox of session {session} stops by itself"),
            Self::Cut { host, inside: false } => write!(f, "the connection of host {host} is reset"),
            Self::Cut { host, inside: true } => write!(f, "the connection of host {host} is reset inside a message"),
            Self::HalfOpen { host, direction } => write!(f, "the connection of host {host} dies silently {direction}"),
            Self::Stall { host, direction, ms } => {
                write!(f, "the connection of host {host} stalls for {ms} ms {direction}")
            }
            Self::Block { host, direction, ms } => {
                write!(f, "the connection of host {host} takes no bytes for {ms} ms {direction}")
            }
            Self::Proxy { host, page, ms } => write!(f, "a proxy answers host {host} for {ms} ms: {page:?}"),
            Self::LoseNextDial { host } => write!(f, "the answer to the next dial of host {host} is lost"),
            Self::Send { host, hostile } => write!(f, "a hostile peer of host {host} sends {hostile:?}"),
            Self::Arm(party, trap, count) => write!(f, "{party:?} crashes at its {count}. {trap:?} from here on"),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "from node to core",
            Self::Down => "from core to node",
            Self::Both => "both ways",
        })
    }
}
