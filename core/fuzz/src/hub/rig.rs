//! The driver of a connection under test, which remembers what it saw and judges each action by it.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::limits::PENDING_MAX;
use palisade_core::session::hub::{Action, Callback, Cause, CloseReason, Connection, Reply, Submission, Write};
use palisade_core::units::{Id, Millis, OwnerEpoch, Sequence};
use palisade_core::wire::encode;
use palisade_core::wire::frame::{Announcement, Frame, Response};
use palisade_core::wire::payload::{
    Exchange, GenerationReference, Health, Identity, Observation, ObservedState, Retention,
};

use super::super::values::{deployment, generation, health, id, identity, reference};
use super::events::{Answered, Event, Observed, Returned};

const CONNECTION: u64 = 1;
const REASONS: [CloseReason; 4] =
    [CloseReason::PeerGone, CloseReason::Violation, CloseReason::Asked, CloseReason::WriteFailed];

#[allow(clippy::struct_excessive_bools, reason = "what was seen, each once")]
pub(super) struct Rig {
    machine: Connection,
    now: Millis,
    callback: Option<Callback>,
    writing: bool,
    /// Requests whose callers wait, and whether they were written.
    waiting: BTreeMap<Id, bool>,
    submitted: u64,
    sequence: u64,
    question: Option<(Exchange, Vec<GenerationReference>)>,
    connected: bool,
    disconnected: bool,
    welcomed: bool,
    published: bool,
    closed: bool,
    finished: bool,
}

impl Rig {
    pub(super) fn new() -> Self {
        let now = Millis(1_000_000);
        Self {
            machine: Connection::new(now, identity(), id(4, CONNECTION), OwnerEpoch::FIRST),
            now,
            callback: None,
            writing: false,
            waiting: BTreeMap::new(),
            submitted: 0,
            sequence: 0,
            question: None,
            connected: false,
            disconnected: false,
            welcomed: false,
            published: false,
            closed: false,
            finished: false,
        }
    }

    pub(super) fn handle(&mut self, event: &Event) {
        match event {
            Event::Open(observed) => self.open(observed),
            Event::Hello { identity: whose, observed } => {
                self.receive(Frame::Hello { identity: who(*whose), health: observation(observed) });
            }
            Event::Heartbeat { connection, epoch, observed } => {
                let (connection_id, owner_epoch) = fence(*connection, *epoch);
                self.receive(Frame::Heartbeat { connection_id, owner_epoch, health: observation(observed) });
            }
            Event::Retention { connection, epoch, sequence, references } => {
                self.ask(fence(*connection, *epoch), *sequence, references);
            }
            Event::Response { connection, request } => self.respond(*connection, *request),
            Event::Misplaced(choice) => self.misplace(*choice),
            Event::Fragment if self.reads() => self.machine.handle_fragment(self.now),
            Event::Fragment => {}
            Event::Request { generation, needs_ready, wait_ms } => {
                self.submit(*generation, *needs_ready, u64::from(*wait_ms));
            }
            Event::Flood(count) => (0..count % 40).for_each(|number| self.submit(number, false, 60_000)),
            Event::Cancel(which) => {
                let request = id(6, u64::from(*which));
                self.machine.handle_cancel(request);
            }
            Event::Written(written) => self.written(*written),
            Event::Return(returned) => self.give_back(*returned),
            Event::Close(reason) => {
                self.machine.handle_close(self.now, REASONS[usize::from(*reason) % REASONS.len()]);
            }
            Event::Wake => self.wake(),
            Event::Wait(span) => {
                self.now = self.now.after(u64::from(*span));
                self.machine.handle_timeout(self.now);
            }
        }
        self.drain();
    }

    /// Whatever happened, a connection that is closed and whose callbacks return is finished, and nobody waits for ever.
    pub(super) fn end(&mut self) {
        self.machine.handle_close(self.now, CloseReason::Asked);
        self.drain();
        for _ in 0..2 {
            self.give_back(Returned::Failed);
            self.drain();
        }
        assert!(self.finished, "a closed connection keeps its reservation");
    }

    fn open(&mut self, observed: &[Observed]) {
        self.receive(Frame::Hello { identity: identity(), health: observation(observed) });
        self.drain();
        for _ in 0..3 {
            self.give_back(Returned::Fitting(u8::MAX));
            self.drain();
        }
        self.written(true);
    }

    /// A driver reads only while the stream is open and the machine listens.
    fn reads(&self) -> bool {
        !self.closed && self.machine.accepts_frames()
    }

    fn receive(&mut self, frame: Frame<'_>) {
        // What cannot be encoded cannot arrive.
        if !self.reads() || encode(&frame).is_err() {
            return;
        }
        if let Some(delivery) = self.machine.handle_frame(self.now, frame) {
            assert_eq!(self.waiting.remove(&delivery.id), Some(true), "an answer to what was not sent");
        }
    }

    fn ask(&mut self, (connection_id, owner_epoch): (Id, OwnerEpoch), sequence: u8, references: &[u8]) {
        let last = self.question.as_ref().map_or(0, |(last, _)| last.sequence.get());
        let sequence = if sequence > 240 { last + u64::from(sequence - 240) } else { last + 1 };
        let sequence = Sequence::new(sequence).expect("positive");
        let exchange = Exchange { id: id(9, sequence.get()), sequence, connection_id, owner_epoch };
        let references: Vec<_> = references.iter().map(|choice| reference(*choice)).collect();
        let expected = sequence.get() == last + 1 && (connection_id, owner_epoch) == fence(0, 0);
        if self.reads() && self.published && expected {
            self.question = Some((exchange, references.clone()));
        }
        self.receive(Frame::Retention { exchange, references });
    }

    fn respond(&mut self, connection: u8, request: Answered) {
        let (connection_id, _) = fence(connection, 0);
        let id = match request {
            Answered::Sent(which) => {
                let sent: Vec<_> = self.waiting.iter().filter(|(_, sent)| **sent).map(|(id, _)| *id).collect();
                match sent.get(usize::from(which) % sent.len().max(1)) {
                    Some(id) => id.to_string(),
                    None => return,
                }
            }
            Answered::Number(number) => id(6, u64::from(number)).to_string(),
            Answered::Text(text) => format!("no identifier {text}"),
        };
        let response = Response { id: id.into(), connection_id: Some(connection_id), ..Response::default() };
        self.receive(Frame::Response(Box::new(response)));
    }

    fn misplace(&mut self, choice: u8) {
        let (connection_id, owner_epoch) = fence(0, 0);
        let announcement = Announcement { connection_id, owner_epoch, deployment: deployment(choice, None) };
        self.receive(if choice.is_multiple_of(2) {
            Frame::Welcome(announcement)
        } else {
            Frame::HeartbeatAck(announcement)
        });
    }

    fn submit(&mut self, number: u8, needs_ready: bool, wait_ms: u64) {
        self.submitted += 1;
        let deadline = self.now.after(wait_ms);
        let request = Submission { id: id(6, self.submitted), generation: generation(number), needs_ready, deadline };
        self.waiting.insert(request.id, false);
        self.machine.handle_request(self.now, request);
        self.drain();
    }

    fn written(&mut self, written: bool) {
        if std::mem::take(&mut self.writing) {
            self.machine.handle_written(self.now, written);
        }
    }

    fn give_back(&mut self, returned: Returned) {
        let Some(callback) = self.callback.take() else { return };
        let reply = match returned {
            Returned::Fitting(keep) => fitting(&callback, keep),
            Returned::Failed => Reply::Failed,
            Returned::Changed => changed(&callback),
            Returned::Other(choice) => other(choice),
        };
        self.machine.handle_callback(self.now, reply);
    }

    /// Waiting for what the connection waits for always brings it on.
    fn wake(&mut self) {
        let Some((at, _)) = self.machine.poll_timeout() else { return };
        self.now = self.now.max(at);
        self.machine.handle_timeout(self.now);
        self.drain();
        let next = self.machine.poll_timeout();
        assert!(next.is_none_or(|(at, _)| at > self.now), "it wakes at {next:?} again, now is {:?}", self.now);
    }

    fn drain(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            self.judge(action);
        }
        assert!(self.waiting.len() <= PENDING_MAX, "the 33rd waits");
        let unanswered = self.closed && !self.waiting.is_empty();
        assert!(!unanswered, "a caller waits for a connection that is gone");
    }

    fn judge(&mut self, action: Action) {
        // Only late callers are still sent away.
        assert!(!self.finished || matches!(action, Action::Abandon { .. }), "{action:?} follows the end");
        match action {
            Action::Call(callback) => self.judge_call(callback),
            Action::CancelCallback => assert!(self.callback.is_some()),
            Action::Write(write) => self.judge_write(write),
            Action::Publish => {
                assert!(self.welcomed && !self.closed && !std::mem::replace(&mut self.published, true));
            }
            Action::Abandon { id, outcome } => {
                let sent = self.waiting.remove(&id).expect("only a waiting caller is abandoned, and once");
                assert_eq!(outcome.sent, sent, "what is said to be unsent was sent, or the other way round");
                assert!(outcome.cause != Cause::Records);
            }
            Action::Close(_) => {
                assert!(!std::mem::replace(&mut self.closed, true), "a connection is closed once");
                self.writing = false;
            }
            Action::Finish => {
                assert!(self.closed && self.callback.is_none());
                assert_eq!(self.connected, self.disconnected, "presence is cleared whenever it was attempted");
                self.finished = true;
            }
        }
    }

    fn judge_call(&mut self, callback: Callback) {
        match &callback {
            Callback::Connect => assert!(!std::mem::replace(&mut self.connected, true)),
            Callback::Disconnect => {
                assert!(self.closed && self.connected && !std::mem::replace(&mut self.disconnected, true));
            }
            Callback::Record(_) | Callback::Deployment | Callback::Authenticate | Callback::Epoch => {
                assert!(self.connected && !self.closed);
            }
            Callback::Retain(references) => {
                assert_eq!(self.question.as_ref().map(|(_, asked)| asked), Some(references));
            }
        }
        assert!(self.callback.replace(callback).is_none(), "one callback at a time");
    }

    fn judge_write(&mut self, write: Write) {
        assert!(!self.closed && !std::mem::replace(&mut self.writing, true), "one write at a time");
        match write {
            Write::Welcome(_) => assert!(!std::mem::replace(&mut self.welcomed, true)),
            Write::HeartbeatAck(announcement) => {
                assert!(self.published);
                assert_eq!((announcement.connection_id, announcement.owner_epoch), fence(0, 0));
            }
            Write::RetentionAck { exchange, retentions, .. } => {
                let (question, references) = self.question.as_ref().expect("an answer follows a question");
                assert_eq!(&exchange, question);
                assert!(retentions.iter().map(|entry| &entry.reference).eq(references));
            }
            Write::Request { id, sequence, timeout_ms } => {
                self.sequence += 1;
                // Promise 3.
                assert_eq!(sequence.get(), self.sequence);
                assert!((1..=120_000).contains(&timeout_ms));
                assert_eq!(self.waiting.insert(id, true), Some(false), "a request is sent once");
            }
        }
    }
}

fn fence(connection: u8, epoch: u8) -> (Id, OwnerEpoch) {
    let connection = if connection > 240 { id(5, 0) } else { id(4, CONNECTION) };
    let epoch = if epoch > 240 { 2 } else { 1 };
    (connection, OwnerEpoch::new(epoch).expect("positive"))
}

fn who(choice: u8) -> Identity<'static> {
    match choice {
        250 => Identity { provider: "microsandbox".into(), ..identity() },
        251 => Identity { deployment_generation: 9, ..identity() },
        252 => Identity { node_id: id(2, 2).to_string().into(), ..identity() },
        253 => Identity { max_active: 1_000_000, ..identity() },
        _ => identity(),
    }
}

fn observation(observed: &[Observed]) -> Health<'static> {
    let generations = observed.iter().map(|observed| {
        let GenerationReference { generation, specification_digest } = reference(observed.generation);
        let ready = ObservedState::Ready { checkpoint: None };
        let state = if observed.ready { ready } else { ObservedState::Preparing { diagnostic: None } };
        Observation { generation, specification_digest, state }
    });
    let mut known = BTreeSet::new();
    let generations = generations.filter(|observation| known.insert(observation.generation)).take(8);
    Health { generations: generations.collect(), ..health() }
}

fn fitting(callback: &Callback, keep: u8) -> Reply {
    match callback {
        Callback::Connect | Callback::Disconnect => Reply::Done,
        Callback::Record(health) => {
            let kept = health.generations.iter().enumerate().filter(|(at, _)| keep >> (at % 8) & 1 == 1);
            Reply::Recorded(kept.map(|(_, observation)| observation.generation).collect())
        }
        Callback::Deployment => Reply::Deployment(deployment(3, Some(2))),
        Callback::Authenticate => Reply::Authenticated(Box::new(identity())),
        Callback::Epoch => Reply::Epoch(OwnerEpoch::FIRST),
        Callback::Retain(references) => {
            let answer = |(at, reference): (usize, &GenerationReference)| Retention {
                reference: *reference,
                keep: keep >> (at % 8) & 1 == 1,
            };
            Reply::Retained(references.iter().enumerate().map(answer).collect(), deployment(3, Some(2)))
        }
    }
}

fn changed(callback: &Callback) -> Reply {
    match callback {
        Callback::Authenticate => Reply::Authenticated(Box::new(who(252))),
        Callback::Epoch => Reply::Epoch(OwnerEpoch::new(2).expect("positive")),
        Callback::Retain(references) => {
            let kept = references.iter().rev().map(|reference| Retention { reference: *reference, keep: true });
            Reply::Retained(kept.collect(), deployment(3, None))
        }
        Callback::Connect | Callback::Disconnect | Callback::Record(_) | Callback::Deployment => Reply::Failed,
    }
}

fn other(choice: u8) -> Reply {
    match choice % 6 {
        0 => Reply::Done,
        1 => Reply::Recorded(vec![generation(choice)]),
        2 => Reply::Deployment(deployment(choice, None)),
        3 => Reply::Authenticated(Box::new(identity())),
        4 => Reply::Epoch(OwnerEpoch::FIRST),
        _ => Reply::Retained(Vec::new(), deployment(choice, None)),
    }
}
