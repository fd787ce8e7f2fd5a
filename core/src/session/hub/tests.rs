use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::testing::{self, epoch, generation, identity, reference};
use crate::units::Sequence;
use crate::wire::frame::Response;
use crate::wire::payload::{Exchange, ObservedState, Retention};

const CONNECTION: Id = Id::from_random([9; 16]);

fn request_id(value: u8) -> Id {
    Id::from_random([value; 16])
}

fn health(states: &[(u64, bool)]) -> Health<'static> {
    let state = |ready| {
        if ready { ObservedState::Ready { checkpoint: None } } else { ObservedState::Preparing { diagnostic: None } }
    };
    testing::health(states.iter().map(|(number, ready)| testing::observation(*number, state(*ready))))
}

fn deployment() -> Deployment {
    testing::deployment(4, Some(3))
}

fn announcement() -> Announcement {
    Announcement { connection_id: CONNECTION, owner_epoch: epoch(7), deployment: deployment() }
}

fn exchange(sequence: u64) -> Exchange {
    Exchange {
        id: request_id(200),
        sequence: Sequence::new(sequence).expect("positive"),
        connection_id: CONNECTION,
        owner_epoch: epoch(7),
    }
}

/// A connection and a clock that only the test moves.
struct Rig {
    machine: Connection,
    now: Millis,
}

impl Rig {
    fn new() -> Self {
        Self { machine: Connection::new(Millis(1_000), identity(), CONNECTION, epoch(7)), now: Millis(1_000) }
    }

    /// Welcomed and published; generation 3 is ready, 4 is not.
    fn live() -> Self {
        let mut rig = Self::new();
        rig.hello();
        rig.reply(Reply::Done);
        rig.reply(Reply::Recorded(vec![generation(3), generation(4)]));
        rig.reply(Reply::Deployment(deployment()));
        assert_eq!(rig.written(), vec![Action::Publish]);
        rig
    }

    fn drain(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    fn hello(&mut self) -> Vec<Action> {
        self.frame(Frame::Hello { identity: identity(), health: health(&[(3, true), (4, false)]) })
    }

    fn heartbeat(&mut self) -> Vec<Action> {
        self.frame(Frame::Heartbeat { connection_id: CONNECTION, owner_epoch: epoch(7), health: health(&[]) })
    }

    fn frame(&mut self, frame: Frame<'_>) -> Vec<Action> {
        assert!(self.machine.accepts_frames(), "the driver reads only when the machine listens");
        assert_eq!(self.machine.handle_frame(self.now, frame), None);
        self.drain()
    }

    fn reply(&mut self, reply: Reply) -> Vec<Action> {
        self.machine.handle_callback(self.now, reply);
        self.drain()
    }

    fn written(&mut self) -> Vec<Action> {
        self.machine.handle_written(self.now, true);
        self.drain()
    }

    fn submit(&mut self, id: Id, wait_ms: u64) -> Vec<Action> {
        let deadline = self.now.after(wait_ms);
        let request = Submission { id, generation: generation(3), needs_ready: false, deadline };
        self.machine.handle_request(self.now, request);
        self.drain()
    }

    fn respond(&mut self, id: Id) -> Option<Id> {
        let response = Response { id: id.to_string().into(), connection_id: Some(CONNECTION), ..Response::default() };
        let delivery = self.machine.handle_frame(self.now, Frame::Response(Box::new(response)));
        delivery.map(|delivery| delivery.id)
    }

    fn pass(&mut self, ms: u64) -> Vec<Action> {
        self.now = self.now.after(ms);
        self.machine.handle_timeout(self.now);
        self.drain()
    }

    fn close(&mut self, reason: CloseReason) -> Vec<Action> {
        self.machine.handle_close(self.now, reason);
        self.drain()
    }
}

fn call(callback: Callback) -> Vec<Action> {
    vec![Action::Call(callback)]
}

fn request(id: Id, sequence: u64, timeout_ms: u64) -> Action {
    Action::Write(Write::Request { id, sequence: Sequence::new(sequence).expect("positive"), timeout_ms })
}

fn abandoned(id: Id, cause: Cause, sent: bool) -> Action {
    Action::Abandon { id, outcome: Uncertain { cause, sent } }
}

#[test]
fn opening_records_presence_then_health_then_reads_the_deployment_and_publishes_last() {
    let mut rig = Rig::new();
    assert_eq!(rig.hello(), call(Callback::Connect));
    let recorded = Callback::Record(Box::new(health(&[(3, true), (4, false)])));
    assert_eq!(rig.reply(Reply::Done), call(recorded));
    assert_eq!(rig.reply(Reply::Recorded(vec![generation(3)])), call(Callback::Deployment));
    let welcome = Action::Write(Write::Welcome(announcement()));
    assert_eq!(rig.reply(Reply::Deployment(deployment())), vec![welcome]);
    assert_eq!(rig.submit(request_id(1), 1_000), vec![abandoned(request_id(1), Cause::Unavailable, false)]);
    assert_eq!(rig.written(), vec![Action::Publish]);
}

/// W 187. Core's half: hello later than 15 s closes, and nothing was recorded.
#[test]
fn late_hello_closes_without_a_cleanup() {
    let mut rig = Rig::new();
    assert_eq!(rig.machine.poll_timeout(), Some((Millis(16_000), Wake::Hello)));
    assert_eq!(rig.pass(14_999), vec![]);
    assert_eq!(rig.pass(1), vec![Action::Close(CloseReason::HelloTimeout), Action::Finish]);
}

/// W 73. A node's cached capacity neither refuses the connection nor changes what Core approved.
#[test]
fn cached_capacity_is_ignored() {
    let mut rig = Rig::new();
    let claimed = Identity { max_active: 100, max_retained: 100, ..identity() };
    assert_eq!(rig.frame(Frame::Hello { identity: claimed, health: health(&[]) }), call(Callback::Connect));
    assert_eq!((rig.machine.node().max_active, rig.machine.node().max_retained), (2, 8));
}

#[test]
fn hello_of_somebody_else_closes_and_records_nothing() {
    let others = [
        Identity { node_id: "other".into(), ..identity() },
        Identity { installation_id: "other".into(), ..identity() },
        Identity { provider: "e2b".into(), ..identity() },
        Identity { backend_fingerprint: "33".repeat(32).into(), ..identity() },
        Identity { deployment_generation: 4, ..identity() },
        Identity { specification_digest: "44".repeat(32).into(), ..identity() },
    ];
    for other in others {
        let actions = Rig::new().frame(Frame::Hello { identity: other, health: health(&[]) });
        assert_eq!(actions, vec![Action::Close(CloseReason::Identity), Action::Finish]);
    }
}

/// W 61. A presence record that failed may have committed: exactly one cleanup, no welcome, never published.
#[test]
fn failed_presence_is_cleaned_up_once() {
    let mut rig = Rig::new();
    rig.hello();
    let close = Action::Close(CloseReason::Storage);
    assert_eq!(rig.reply(Reply::Failed), vec![close, Action::Call(Callback::Disconnect)]);
    assert_eq!(rig.reply(Reply::Failed), vec![Action::Finish]);
}

/// W 61. A failing first health record likewise.
#[test]
fn failed_first_health_record_is_cleaned_up_once() {
    let mut rig = Rig::new();
    rig.hello();
    rig.reply(Reply::Done);
    let close = Action::Close(CloseReason::Storage);
    assert_eq!(rig.reply(Reply::Failed), vec![close, Action::Call(Callback::Disconnect)]);
    assert_eq!(rig.reply(Reply::Done), vec![Action::Finish]);
}

/// W 55, W 57, W 58, W 64. Closing cancels the running callback; the cleanup waits until it really returned, then has its own five seconds.
#[test]
fn cleanup_waits_for_the_cancelled_presence_record() {
    let mut rig = Rig::new();
    rig.hello();
    let closed = vec![Action::Close(CloseReason::Asked), Action::CancelCallback];
    assert_eq!(rig.close(CloseReason::Asked), closed);
    assert_eq!(rig.pass(60_000), vec![], "a cancelled callback is waited for, however long it takes");
    assert_eq!(rig.reply(Reply::Done), call(Callback::Disconnect));
    assert_eq!(rig.machine.poll_timeout(), Some((rig.now.after(5_000), Wake::Callback)));
    assert_eq!(rig.reply(Reply::Done), vec![Action::Finish]);
}

/// W 56, W 66. A storage call that hangs is cancelled after five seconds, in every step of the opening.
#[test]
fn hanging_callback_is_cancelled_after_five_seconds() {
    let replies = [Reply::Done, Reply::Recorded(vec![]), Reply::Deployment(deployment())];
    for answered in 0..replies.len() {
        let mut rig = Rig::new();
        rig.hello();
        for reply in &replies[..answered] {
            rig.reply(reply.clone());
        }
        assert_eq!(rig.pass(4_999), vec![]);
        assert_eq!(rig.pass(1), vec![Action::Close(CloseReason::StorageTimeout), Action::CancelCallback]);
        assert_eq!(rig.reply(Reply::Failed), call(Callback::Disconnect));
    }
}

/// W 60. A cleanup that hangs is cancelled as well; the reservation ends only when it returned.
#[test]
fn hanging_cleanup_is_cancelled_and_still_holds_the_reservation() {
    let mut rig = Rig::live();
    rig.close(CloseReason::PeerGone);
    assert_eq!(rig.pass(5_000), vec![Action::CancelCallback]);
    assert_eq!(rig.pass(60_000), vec![]);
    assert_eq!(rig.reply(Reply::Failed), vec![Action::Finish]);
}

/// W 57. Presence that was never attempted is never cleaned up.
#[test]
fn connection_without_presence_finishes_at_once() {
    let actions = Rig::new().close(CloseReason::PeerGone);
    assert_eq!(actions, vec![Action::Close(CloseReason::PeerGone), Action::Finish]);
}

#[test]
fn heartbeat_is_authenticated_fenced_recorded_and_answered_with_a_fresh_deployment() {
    let mut rig = Rig::live();
    assert_eq!(rig.heartbeat(), call(Callback::Authenticate));
    assert!(!rig.machine.accepts_frames());
    assert_eq!(rig.reply(Reply::Authenticated(Box::new(identity()))), call(Callback::Epoch));
    let recorded = Callback::Record(Box::new(health(&[])));
    assert_eq!(rig.reply(Reply::Epoch(epoch(7))), call(recorded));
    assert_eq!(rig.reply(Reply::Recorded(vec![])), call(Callback::Deployment));
    let ack = Action::Write(Write::HeartbeatAck(announcement()));
    assert_eq!(rig.reply(Reply::Deployment(deployment())), vec![ack]);
    assert_eq!(rig.written(), vec![]);
    assert!(rig.machine.accepts_frames());
}

/// W 74, W 75. A changed approval is taken over by the next heartbeat and interrupts nothing.
#[test]
fn approved_capacity_follows_the_heartbeat() {
    let mut rig = Rig::live();
    rig.heartbeat();
    let approved = Identity { max_active: 5, ..identity() };
    assert_eq!(rig.reply(Reply::Authenticated(Box::new(approved))), call(Callback::Epoch));
    assert_eq!(rig.machine.node().max_active, 5);
}

/// W 206. A revoked credential closes at the next heartbeat.
#[test]
fn revoked_credential_closes_at_the_next_heartbeat() {
    let mut rig = Rig::live();
    rig.heartbeat();
    let closed = vec![Action::Close(CloseReason::Storage), Action::Call(Callback::Disconnect)];
    assert_eq!(rig.reply(Reply::Failed), closed);
}

/// W 37. A changed owner epoch closes at the next heartbeat.
#[test]
fn changed_epoch_closes_at_the_next_heartbeat() {
    let mut rig = Rig::live();
    rig.heartbeat();
    rig.reply(Reply::Authenticated(Box::new(identity())));
    let actions = rig.reply(Reply::Epoch(epoch(8)));
    assert_eq!(actions[0], Action::Close(CloseReason::EpochChanged));
}

#[test]
fn heartbeat_of_another_connection_or_epoch_closes() {
    let mut rig = Rig::live();
    let foreign = Frame::Heartbeat { connection_id: request_id(1), owner_epoch: epoch(7), health: health(&[]) };
    assert_eq!(rig.frame(foreign)[0], Action::Close(CloseReason::Fenced));
    let mut rig = Rig::live();
    rig.frame(Frame::Heartbeat { connection_id: CONNECTION, owner_epoch: epoch(6), health: health(&[]) });
    rig.reply(Reply::Authenticated(Box::new(identity())));
    assert_eq!(rig.reply(Reply::Epoch(epoch(7)))[0], Action::Close(CloseReason::Fenced));
}

/// W 65. Disconnecting during a periodic health record cancels it, acknowledges nothing and cleans up.
#[test]
fn disconnect_during_a_health_record_sends_no_acknowledgement() {
    let mut rig = Rig::live();
    rig.heartbeat();
    rig.reply(Reply::Authenticated(Box::new(identity())));
    rig.reply(Reply::Epoch(epoch(7)));
    assert_eq!(rig.close(CloseReason::Asked), vec![Action::Close(CloseReason::Asked), Action::CancelCallback]);
    assert_eq!(rig.reply(Reply::Recorded(vec![])), call(Callback::Disconnect));
    assert_eq!(rig.reply(Reply::Done), vec![Action::Finish]);
}

/// W 187. Core's half: 35 s without a frame closes; every frame and every fragment starts the time again.
#[test]
fn silent_node_is_closed_after_35_seconds() {
    let mut rig = Rig::live();
    assert_eq!(rig.pass(34_999), vec![]);
    rig.machine.handle_fragment(rig.now);
    assert_eq!(rig.pass(34_999), vec![]);
    let closed = vec![Action::Close(CloseReason::Idle), Action::Call(Callback::Disconnect)];
    assert_eq!(rig.pass(1), closed);
}

#[test]
fn frame_of_another_phase_or_direction_closes() {
    let placed = [
        Frame::Welcome(announcement()),
        Frame::HeartbeatAck(announcement()),
        Frame::Hello { identity: identity(), health: health(&[]) },
        Frame::RetentionAck { exchange: exchange(1), retentions: vec![], deployment: deployment() },
    ];
    for frame in placed {
        assert_eq!(Rig::live().frame(frame)[0], Action::Close(CloseReason::Violation));
    }
    let early = Frame::Heartbeat { connection_id: CONNECTION, owner_epoch: epoch(7), health: health(&[]) };
    assert_eq!(Rig::new().frame(early)[0], Action::Close(CloseReason::Violation));
}

#[test]
fn sequence_starts_at_one_and_follows_the_wire_order() {
    let mut rig = Rig::live();
    assert_eq!(rig.submit(request_id(1), 500), vec![request(request_id(1), 1, 500)]);
    assert_eq!(rig.submit(request_id(2), 500), vec![], "waits for the send lock");
    assert_eq!(rig.written(), vec![request(request_id(2), 2, 500)]);
}

/// W 27, W 29. The budget is what remains when the lock was obtained, capped.
#[test]
fn budget_is_recomputed_under_the_send_lock() {
    let mut rig = Rig::live();
    assert_eq!(rig.submit(request_id(1), 300_000), vec![request(request_id(1), 1, 120_000)]);
    rig.submit(request_id(2), 2_000);
    rig.now = rig.now.after(50);
    assert_eq!(rig.written(), vec![request(request_id(2), 2, 1_950)]);
}

/// W 62. A caller whose time ends in line consumes no sequence, leaks no slot and closes nothing.
#[test]
fn caller_that_expires_in_line_consumes_no_sequence() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 10_000);
    rig.submit(request_id(2), 100);
    rig.submit(request_id(3), 10_000);
    assert_eq!(rig.pass(100), vec![abandoned(request_id(2), Cause::Deadline, false)]);
    assert_eq!(rig.written(), vec![request(request_id(3), 2, 9_900)]);
}

/// W 62. The same when the lock is obtained in the very millisecond in which the time ends (decision 13).
#[test]
fn caller_that_expires_as_it_gets_the_lock_closes_nothing() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 10_000);
    rig.submit(request_id(2), 100);
    rig.now = rig.now.after(100);
    assert_eq!(rig.written(), vec![abandoned(request_id(2), Cause::Deadline, false)]);
    assert_eq!(rig.submit(request_id(3), 100), vec![request(request_id(3), 2, 100)]);
}

/// W 41. A caller that gives up after the write knows nothing; a late answer is ignored and the connection stays.
#[test]
fn late_and_second_answers_are_ignored() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 150);
    rig.written();
    assert_eq!(rig.pass(150), vec![abandoned(request_id(1), Cause::Deadline, true)]);
    assert_eq!(rig.respond(request_id(1)), None);
    rig.submit(request_id(2), 150);
    rig.written();
    assert_eq!(rig.respond(request_id(2)), Some(request_id(2)));
    assert_eq!(rig.respond(request_id(2)), None, "a second answer");
    assert_eq!(rig.drain(), vec![]);
}

#[test]
fn answer_to_a_request_that_was_never_sent_is_ignored() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 1_000);
    rig.submit(request_id(2), 1_000);
    assert_eq!(rig.respond(request_id(2)), None);
    assert_eq!(rig.written(), vec![request(request_id(2), 2, 1_000)]);
}

#[test]
fn answer_of_another_connection_closes() {
    let mut rig = Rig::live();
    let response = Response { connection_id: Some(request_id(1)), ..Response::default() };
    assert_eq!(rig.frame(Frame::Response(Box::new(response)))[0], Action::Close(CloseReason::Fenced));
}

/// W 192. 32 pending are accepted, the 33rd is unavailable, a finished one frees its slot.
#[test]
fn thirty_third_pending_request_is_unavailable() {
    let mut rig = Rig::live();
    for value in 1..=32 {
        let actions = rig.submit(request_id(value), 10_000);
        assert!(!actions.iter().any(|action| matches!(action, Action::Abandon { .. })));
    }
    assert_eq!(rig.submit(request_id(33), 1_000), vec![abandoned(request_id(33), Cause::Unavailable, false)]);
    assert_eq!(rig.respond(request_id(1)), Some(request_id(1)));
    assert_eq!(rig.submit(request_id(34), 1_000), vec![]);
    assert_eq!(rig.submit(request_id(35), 1_000), vec![abandoned(request_id(35), Cause::Unavailable, false)]);
}

#[test]
fn cancelled_caller_frees_its_slot_and_its_place_in_line() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 10_000);
    rig.submit(request_id(2), 10_000);
    rig.machine.handle_cancel(request_id(2));
    rig.machine.handle_cancel(request_id(1));
    let cancelled = |id, sent| abandoned(id, Cause::Cancelled, sent);
    assert_eq!(rig.drain(), vec![cancelled(request_id(2), false), cancelled(request_id(1), true)]);
    assert_eq!(rig.written(), vec![]);
}

/// W 195. Core's half: what needs a ready generation is not sent to one that is not, observation is.
#[test]
fn unready_generation_gets_no_create() {
    let mut rig = Rig::live();
    let submission =
        |id, needs_ready| Submission { id, generation: generation(4), needs_ready, deadline: Millis(u64::MAX) };
    rig.machine.handle_request(rig.now, submission(request_id(1), true));
    assert_eq!(rig.drain(), vec![abandoned(request_id(1), Cause::Unavailable, false)]);
    rig.machine.handle_request(rig.now, submission(request_id(2), false));
    assert_eq!(rig.drain(), vec![request(request_id(2), 1, 120_000)]);
}

/// W 38, E14. Whoever still waits when the connection ends knows nothing, and knows whether anything was sent.
#[test]
fn closing_ends_every_wait_at_once() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 10_000);
    rig.submit(request_id(2), 10_000);
    let expected = vec![
        Action::Close(CloseReason::PeerGone),
        abandoned(request_id(1), Cause::Unavailable, true),
        abandoned(request_id(2), Cause::Unavailable, false),
        Action::Call(Callback::Disconnect),
    ];
    assert_eq!(rig.close(CloseReason::PeerGone), expected);
}

/// W 209. A write that failed ends the connection.
#[test]
fn failed_write_closes() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 10_000);
    rig.machine.handle_written(rig.now, false);
    let actions = rig.drain();
    assert_eq!(actions[0], Action::Close(CloseReason::WriteFailed));
    assert_eq!(actions[1], abandoned(request_id(1), Cause::Write, true));
}

#[test]
fn acknowledgement_goes_before_waiting_requests() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 10_000);
    rig.submit(request_id(2), 10_000);
    rig.heartbeat();
    rig.reply(Reply::Authenticated(Box::new(identity())));
    rig.reply(Reply::Epoch(epoch(7)));
    assert_eq!(rig.reply(Reply::Recorded(vec![])), vec![]);
    assert_eq!(rig.written(), call(Callback::Deployment));
    rig.reply(Reply::Deployment(deployment()));
    assert_eq!(rig.written(), vec![request(request_id(2), 2, 10_000)]);
}

#[test]
fn retention_is_answered_in_order_and_forgets_dropped_readiness() {
    let mut rig = Rig::live();
    let references = vec![reference(4), reference(3)];
    let asked = rig.frame(Frame::Retention { exchange: exchange(1), references: references.clone() });
    assert_eq!(asked, call(Callback::Retain(references.clone())));
    let retentions: Vec<_> =
        references.iter().map(|r| Retention { reference: *r, keep: r.generation == generation(4) }).collect();
    let ack = Write::RetentionAck { exchange: exchange(1), retentions: retentions.clone(), deployment: deployment() };
    assert_eq!(rig.reply(Reply::Retained(retentions, deployment())), vec![Action::Write(ack)]);
    assert!(rig.machine.readiness().is_ready(generation(3)), "until the answer is written");
    rig.written();
    assert!(!rig.machine.readiness().is_ready(generation(3)));
}

#[test]
fn retention_out_of_sequence_or_of_another_connection_closes() {
    let foreign = [
        exchange(2),
        Exchange { connection_id: request_id(1), ..exchange(1) },
        Exchange { owner_epoch: epoch(8), ..exchange(1) },
    ];
    for exchange in foreign {
        let actions = Rig::live().frame(Frame::Retention { exchange, references: vec![reference(3)] });
        assert_eq!(actions[0], Action::Close(CloseReason::Fenced));
    }
}

/// A store that answers for other references than were asked is never passed on.
#[test]
fn retention_answer_for_other_references_closes() {
    let mut rig = Rig::live();
    rig.frame(Frame::Retention { exchange: exchange(1), references: vec![reference(3), reference(4)] });
    let partial = vec![Retention { reference: reference(3), keep: false }];
    assert_eq!(rig.reply(Reply::Retained(partial, deployment()))[0], Action::Close(CloseReason::Storage));
}

#[test]
fn observation_of_a_generation_that_core_does_not_keep_is_forgotten() {
    let mut readiness = Readiness::default();
    readiness.record(&health(&[(3, true), (4, true)]).generations, &[generation(3)]);
    assert!(readiness.is_ready(generation(3)) && !readiness.is_ready(generation(4)));
    readiness.record(&health(&[]).generations, &[]);
    assert!(readiness.is_ready(generation(3)), "an omitted generation keeps its state");
    readiness.record(&health(&[(3, false)]).generations, &[generation(3)]);
    assert!(!readiness.is_ready(generation(3)));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Submit { wait_ms: u64 },
    Cancel(usize),
    Respond(usize),
    Heartbeat,
    Reply { good: bool },
    Written,
    Pass(u64),
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u64..3_000).prop_map(|wait_ms| Step::Submit { wait_ms }),
        2 => any::<prop::sample::Index>().prop_map(|index| Step::Cancel(index.index(200))),
        4 => any::<prop::sample::Index>().prop_map(|index| Step::Respond(index.index(200))),
        2 => Just(Step::Heartbeat),
        6 => prop::bool::weighted(0.97).prop_map(|good| Step::Reply { good }),
        6 => Just(Step::Written),
        3 => (0_u64..2_000).prop_map(Step::Pass),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..200)
}

/// What a driver keeps beside the machine, to hold the machine to its promises.
#[derive(Default)]
struct Model {
    submitted: Vec<Id>,
    settled: BTreeSet<Id>,
    last_sequence: u64,
    writing: bool,
    running: Option<Callback>,
    disconnects: usize,
    finished: usize,
}

impl Model {
    fn observe(&mut self, actions: Vec<Action>) {
        for action in actions {
            let late_caller = matches!(action, Action::Abandon { .. });
            assert!(late_caller || self.finished == 0, "nothing else follows the end: {action:?}");
            match action {
                Action::Call(callback) => {
                    assert!(self.running.is_none(), "one callback at a time");
                    self.disconnects += usize::from(callback == Callback::Disconnect);
                    self.running = Some(callback);
                }
                Action::Write(write) => {
                    assert!(!self.writing, "one write at a time");
                    self.writing = true;
                    if let Write::Request { sequence, .. } = write {
                        assert_eq!(sequence.get(), self.last_sequence + 1, "no gap and no repeat");
                        self.last_sequence = sequence.get();
                    }
                }
                Action::Abandon { id, .. } => assert!(self.settled.insert(id), "each caller is told once"),
                Action::Finish => self.finished += 1,
                Action::Close(_) => self.writing = false,
                Action::CancelCallback | Action::Publish => {}
            }
        }
    }

    fn answer(&self, good: bool) -> Option<Reply> {
        let good = match self.running.as_ref()? {
            Callback::Connect | Callback::Disconnect => Reply::Done,
            Callback::Record(_) if good => Reply::Recorded(vec![generation(3)]),
            Callback::Deployment if good => Reply::Deployment(deployment()),
            Callback::Authenticate if good => Reply::Authenticated(Box::new(identity())),
            Callback::Epoch if good => Reply::Epoch(epoch(7)),
            _ => Reply::Failed,
        };
        Some(good)
    }
}

fn perform(rig: &mut Rig, model: &mut Model, step: Step) {
    let actions = match step {
        Step::Submit { wait_ms } => {
            let mut bytes = [1; 16];
            bytes[0] = u8::try_from(model.submitted.len()).expect("at most 200 steps");
            model.submitted.push(Id::from_random(bytes));
            rig.submit(Id::from_random(bytes), wait_ms)
        }
        Step::Cancel(index) => {
            model.submitted.get(index).copied().into_iter().for_each(|id| rig.machine.handle_cancel(id));
            rig.drain()
        }
        Step::Respond(index) => {
            if let Some(id) = model.submitted.get(index)
                && let Some(answered) = rig.respond(*id)
            {
                assert!(model.settled.insert(answered), "each caller is told once");
            }
            rig.drain()
        }
        Step::Heartbeat if rig.machine.accepts_frames() => rig.heartbeat(),
        Step::Reply { good } => match model.answer(good) {
            Some(reply) => {
                model.running = None;
                rig.reply(reply)
            }
            None => vec![],
        },
        Step::Written if std::mem::take(&mut model.writing) => rig.written(),
        Step::Heartbeat | Step::Written => vec![],
        Step::Pass(ms) => rig.pass(ms),
        Step::Close => rig.close(CloseReason::Asked),
    };
    model.observe(actions);
}

proptest! {
    /// W 57, W 62, W 192, E14. Whatever happens: sequences are gapless, every caller is told exactly once,
    /// and presence that was attempted is cleaned up exactly once.
    #[test]
    fn history_keeps_the_promises(history in steps()) {
        let (mut rig, mut model) = (Rig::live(), Model::default());
        for step in history {
            perform(&mut rig, &mut model, step);
        }
        perform(&mut rig, &mut model, Step::Close);
        while model.running.is_some() {
            perform(&mut rig, &mut model, Step::Reply { good: true });
        }
        prop_assert_eq!(model.finished, 1);
        prop_assert_eq!(model.disconnects, 1);
        prop_assert_eq!(model.settled.len(), model.submitted.len());
    }
}

/// A retention request asks about one to eight generations.
#[test]
fn retention_request_has_one_to_eight_references() {
    let ask = |count: u64| {
        let references = (1..=count).map(reference).collect();
        Rig::live().frame(Frame::Retention { exchange: exchange(1), references })
    };
    assert_eq!(ask(8), call(Callback::Retain((1..=8).map(reference).collect())));
    assert_eq!(ask(9)[0], Action::Close(CloseReason::Violation));
    assert_eq!(ask(10)[0], Action::Close(CloseReason::Violation));
    assert_eq!(ask(0)[0], Action::Close(CloseReason::Violation));
}

/// A deployment that nobody asked for is no acknowledgement.
#[test]
fn deployment_before_the_send_lock_is_free_closes() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 10_000);
    rig.heartbeat();
    rig.reply(Reply::Authenticated(Box::new(identity())));
    rig.reply(Reply::Epoch(epoch(7)));
    assert_eq!(rig.reply(Reply::Recorded(vec![])), vec![], "the request is still being written");
    assert_eq!(rig.reply(Reply::Deployment(deployment()))[0], Action::Close(CloseReason::Storage));
}

#[test]
fn timer_is_the_end_of_silence_or_of_the_first_budget() {
    let mut rig = Rig::live();
    let heard = rig.now;
    assert_eq!(rig.machine.poll_timeout(), Some((heard.after(35_000), Wake::Idle)));
    rig.submit(request_id(1), 20_000);
    rig.submit(request_id(2), 10_000);
    assert_eq!(rig.machine.poll_timeout(), Some((heard.after(10_000), Wake::Request)));
}

/// However often callers come and go while one message is being written, nothing of them stays in line.
#[test]
fn line_holds_nobody_whose_caller_is_gone() {
    let mut rig = Rig::live();
    rig.submit(request_id(1), 30_000);
    rig.submit(request_id(2), 30_000);
    rig.machine.handle_cancel(request_id(2));
    rig.submit(request_id(3), 1_000);
    rig.pass(1_000);
    let Phase::Live(live) = &rig.machine.phase else { panic!("it is live") };
    assert!(live.queue.is_empty());
}
