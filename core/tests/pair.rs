//! Both halves of a connection against each other, each by its own clock.

use std::collections::{BTreeMap, VecDeque};

use palisade_core::generation::{Found, Table};
use palisade_core::limits::{HEARTBEAT_INTERVAL_MS, IDLE_TIMEOUT_MS, RECONNECT_MAX_MS};
use palisade_core::operation::{Call, Fencing, Operation};
use palisade_core::session::backoff::{Backoff, Refused as Judged};
use palisade_core::session::hub::reservations::{Phase, Refused, Reservations, Ticket};
use palisade_core::session::hub::{self, Callback, CloseReason, Connection, Reply, Submission, Write};
use palisade_core::session::node::{Action, Ended, Node};
use palisade_core::testing::{declaration, deployment, epoch, generation, health, id, identity, reference, sandbox};
use palisade_core::units::{Id, Millis};
use palisade_core::wire::{self, Frame};

/// A node and its connection in Core. Core's clock shows `ahead` more than the node's.
struct Pair {
    table: Reservations,
    ticket: Ticket,
    core: Connection,
    node: Node,
    now: Millis,
    ahead: u64,
    /// Whether messages arrive.
    linked: bool,
    /// Arrived and not read: Core listens only between its storage calls.
    unread: VecDeque<Vec<u8>>,
    calls: BTreeMap<Id, Call<'static>>,
    budgets: Vec<u64>,
    deadlines: Vec<Millis>,
    core_closed: Option<(CloseReason, Millis)>,
    node_closed: Option<(Ended, Millis)>,
}

impl Pair {
    fn live(now: Millis, ahead: u64) -> Self {
        let mut table = Reservations::default();
        let ticket = table.reserve(id(100)).expect("free");
        let found = Table::new([(reference(1), Found::Provider(declaration()))]);
        let mut pair = Self {
            table,
            ticket,
            core: Connection::new(now.after(ahead), identity(), id(200), epoch(7)),
            node: Node::new(identity(), None, found),
            now,
            ahead,
            linked: true,
            unread: VecDeque::new(),
            calls: BTreeMap::new(),
            budgets: Vec::new(),
            deadlines: Vec::new(),
            core_closed: None,
            node_closed: None,
        };
        pair.node.handle_opened(now);
        pair.settle();
        assert_eq!(pair.node.live(), Some((id(200), epoch(7))));
        pair
    }

    fn core_now(&self) -> Millis {
        self.now.after(self.ahead)
    }

    /// Drains both machines until nothing is left to do.
    fn settle(&mut self) {
        loop {
            if let Some(action) = self.node.poll_action() {
                self.node_does(action);
            } else if let Some(action) = self.core.poll_action() {
                self.core_does(action);
            } else if self.core.accepts_frames()
                && let Some(message) = self.unread.pop_front()
            {
                let frame = wire::decode(&message).expect("what a node sends decodes");
                self.core.handle_frame(self.core_now(), frame);
            } else {
                return;
            }
        }
    }

    fn node_does(&mut self, action: Action) {
        match action {
            Action::MeasureHealth => self.node.handle_health(self.now, health([]), [7; 16]),
            Action::StoreEpoch(epoch) => self.node.handle_epoch_stored(self.now, epoch),
            Action::Execute { deadline, .. } => self.deadlines.push(deadline),
            Action::Close(ended) => self.node_closed = Some((ended, self.now)),
            Action::Task(_) | Action::Remove(_) | Action::CancelRemoval(_) => {}
            Action::Send(message) => {
                self.node.handle_written(self.now, message.len());
                if self.linked {
                    self.unread.push_back(message);
                }
            }
        }
    }

    fn core_does(&mut self, action: hub::Action) {
        let now = self.core_now();
        match action {
            hub::Action::Call(callback) => self.core.handle_callback(now, answer(callback)),
            hub::Action::Write(write) => {
                let message = wire::encode(&self.frame(write)).expect("what Core writes encodes");
                self.core.handle_written(now, true);
                if self.linked {
                    self.node.handle_message(self.now, std::str::from_utf8(&message).expect("JSON"));
                }
            }
            hub::Action::Publish => self.table.publish(id(100), self.ticket),
            hub::Action::Close(reason) => {
                self.table.close(id(100), self.ticket);
                self.core_closed = Some((reason, self.now));
            }
            hub::Action::Finish => self.table.release(id(100), self.ticket),
            hub::Action::CancelCallback | hub::Action::Abandon { .. } => {}
        }
    }

    fn frame(&mut self, write: Write) -> Frame<'static> {
        match write {
            Write::Welcome(announcement) => Frame::Welcome(announcement),
            Write::HeartbeatAck(announcement) => Frame::HeartbeatAck(announcement),
            Write::RetentionAck { exchange, retentions, deployment } => {
                Frame::RetentionAck { exchange, retentions, deployment }
            }
            Write::Request { id, sequence, timeout_ms } => {
                self.budgets.push(timeout_ms);
                let call = Call { timeout_ms, ..self.calls.remove(&id).expect("submitted") };
                let fencing = Fencing { sequence, owner_epoch: epoch(7), connection_id: self.core.connection_id() };
                Frame::Request(Box::new(call.into_request(fencing)))
            }
        }
    }

    fn request(&mut self, request: u64, wait_ms: u64) {
        let (id, generation, operation) = (id(request), generation(1), Operation::GetInfo);
        let call = Call { id, deployment_generation: generation, reference: sandbox(3), timeout_ms: 1, operation };
        self.calls.insert(id, call);
        let deadline = self.core_now().after(wait_ms);
        self.core.handle_request(self.core_now(), Submission { id, generation, needs_ready: false, deadline });
        self.settle();
    }

    /// Lets both clocks run, one wake-up at a time.
    fn run_until(&mut self, end: Millis) {
        while self.now < end {
            let node = self.node.poll_timeout().map_or(end, |(at, _)| at);
            let core = self.core.poll_timeout().map_or(end, |(at, _)| Millis(at.0 - self.ahead));
            self.now = node.min(core).min(end).max(Millis(self.now.0 + 1));
            self.node.handle_timeout(self.now);
            self.core.handle_timeout(self.core_now());
            self.settle();
        }
    }
}

fn answer(callback: Callback) -> Reply {
    match callback {
        Callback::Connect | Callback::Disconnect => Reply::Done,
        Callback::Record(_) => Reply::Recorded(Vec::new()),
        Callback::Deployment => Reply::Deployment(deployment(1, None)),
        Callback::Authenticate => Reply::Authenticated(Box::new(identity())),
        Callback::Epoch => Reply::Epoch(epoch(7)),
        Callback::Retain(references) => {
            let keep = |reference| palisade_core::wire::payload::Retention { reference, keep: true };
            Reply::Retained(references.into_iter().map(keep).collect(), deployment(1, None))
        }
    }
}

const START: Millis = Millis(1_000_000);

/// E1. A conflict clears at most 35 s after the old socket went silent, whatever became of the node behind it.
#[test]
fn a_conflict_clears_35_seconds_after_the_old_socket_went_silent() {
    let mut pair = Pair::live(START, 0);
    pair.run_until(START.after(3 * HEARTBEAT_INTERVAL_MS));
    assert_eq!(pair.table.reserve(id(100)), Err(Refused::Conflict(Phase::Live)));
    let silent = pair.now;
    pair.linked = false;
    pair.run_until(silent.after(IDLE_TIMEOUT_MS - 1));
    assert_eq!(pair.table.reserve(id(100)), Err(Refused::Conflict(Phase::Live)));
    pair.run_until(silent.after(IDLE_TIMEOUT_MS));
    assert!(pair.table.reserve(id(100)).is_ok());
}

/// E1. A node retries a conflict for ever: it never counts as final, and the waits keep their random half for as long as
/// it lasts.
#[test]
fn a_node_retries_a_conflict_for_ever_with_jitter() {
    let conflict = br#"{"error":{"message":"identity in use","type":"conflict_error","code":null,"param":null}}"#;
    let (mut backoff, mut random) = (Backoff::default(), 0x9E37_79B9_7F4A_7C15_u64);
    let mut waits = std::collections::BTreeSet::new();
    for attempt in 0..10_000 {
        assert_eq!(Judged::judge(409, conflict), Judged::Core, "not the credential's end");
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wait = backoff.next_delay_ms(0, None, random >> 11);
        assert!(wait <= RECONNECT_MAX_MS && (attempt < 5 || wait >= RECONNECT_MAX_MS / 2), "{wait}");
        waits.insert(wait);
    }
    assert!(waits.len() > 1_000, "only {} different waits", waits.len());
}

/// E3. Neither side needs an error of TCP: of a half-open connection both sides end theirs after 35 s without a frame.
#[test]
fn both_sides_close_after_35_seconds_without_a_frame() {
    let mut pair = Pair::live(START, 0);
    pair.run_until(START.after(2 * HEARTBEAT_INTERVAL_MS));
    let silent = pair.now;
    pair.linked = false;
    pair.run_until(silent.after(IDLE_TIMEOUT_MS - 1));
    assert_eq!((&pair.core_closed, &pair.node_closed), (&None, &None));
    pair.run_until(silent.after(IDLE_TIMEOUT_MS));
    assert_eq!(pair.core_closed, Some((CloseReason::Idle, silent.after(IDLE_TIMEOUT_MS))));
    assert_eq!(pair.node_closed, Some((Ended::Silent, silent.after(IDLE_TIMEOUT_MS))));
}

/// E11. Clocks that differ by years change nothing: an hour of heartbeats, and each budget is a span, not a time.
#[test]
fn clocks_that_differ_by_years_lose_nobody() {
    for ahead in [0, 760, 10 * 365 * 86_400_000] {
        let mut pair = Pair::live(START, ahead);
        pair.run_until(START.after(3_600_000));
        assert_eq!((&pair.core_closed, &pair.node_closed), (&None, &None));
        pair.request(1, 4_000);
        assert_eq!((pair.budgets.as_slice(), pair.deadlines.as_slice()), (&[4_000][..], &[pair.now.after(4_000)][..]));
    }
}
