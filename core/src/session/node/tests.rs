mod grants;

use super::super::lanes::Ticket;
use super::*;
use crate::generation::{Found, Probed, Refusal, Task};
use crate::limits::{CALL_FRAME_MAX_BYTES, NODE_BYTES_MAX, STOP_GRACE_MS};
use crate::operation::{Call, Fencing, Method, Operation};
use crate::outcome::{Answer, Failed};
use crate::testing::{declaration, deployment, epoch, generation, health, id, identity, reference, sandbox};
use crate::units::{Digest, Generation, Sequence};
use crate::wire::payload::{
    Command, CommandResult, Diagnostic, Exchange, GenerationReference, Info, ObservedState, RawReference, Reference,
    Resume, Retention, Secret, Snapshot,
};

const EPOCH: u64 = 9;

/// A node under test with the clock and the peer in the test's hand.
struct Bench {
    node: Node,
    now: Millis,
    sequence: u64,
    connection: u64,
    epoch: u64,
    sent: Vec<String>,
    executing: Vec<(Ticket, Call<'static>)>,
    removing: Vec<GenerationReference>,
    cancelled_removals: Vec<Generation>,
    stored: Vec<OwnerEpoch>,
    measurements: u32,
    closed: Option<Ended>,
    ready: bool,
}

impl Bench {
    fn with(generations: impl IntoIterator<Item = u64>) -> Self {
        let found = generations.into_iter().map(|number| (reference(number), Found::Provider(declaration())));
        Self::over(Table::new(found), None)
    }

    fn over(table: Table, epoch: Option<u64>) -> Self {
        let node = Node::new(identity(), epoch.map(self::epoch), table);
        Self {
            node,
            now: Millis(1_000_000),
            sequence: 0,
            connection: 200,
            epoch: EPOCH,
            sent: Vec::new(),
            executing: Vec::new(),
            removing: Vec::new(),
            cancelled_removals: Vec::new(),
            stored: Vec::new(),
            measurements: 0,
            closed: None,
            ready: true,
        }
    }

    /// A node with generation 1, ready, live on its first connection.
    fn live() -> Self {
        let mut bench = Self::with([1]);
        bench.connect(deployment(1, Some(1)));
        bench
    }

    fn connect(&mut self, deployment: Deployment) {
        self.sequence = 0;
        self.connection += 1;
        self.closed = None;
        self.node.handle_opened(self.now);
        self.drain();
        self.measure();
        self.welcome(deployment);
        if self.stored.last() == Some(&epoch(self.epoch)) && self.node.live().is_none() {
            self.store(true);
        }
    }

    fn measure(&mut self) {
        self.node.handle_health(self.now, health([]), [7; 16]);
        self.drain();
    }

    fn store(&mut self, stored: bool) {
        match self.stored.last() {
            Some(&epoch) if stored => self.node.handle_epoch_stored(self.now, epoch),
            _ => self.node.handle_epoch_not_stored(self.now),
        }
        self.drain();
    }

    fn welcome(&mut self, deployment: Deployment) {
        self.receive(&Frame::Welcome(self.announcement(deployment)));
    }

    fn acknowledge(&mut self, deployment: Deployment) {
        self.receive(&Frame::HeartbeatAck(self.announcement(deployment)));
    }

    fn announcement(&self, deployment: Deployment) -> Announcement {
        Announcement { connection_id: id(self.connection), owner_epoch: epoch(self.epoch), deployment }
    }

    fn receive(&mut self, frame: &Frame<'_>) {
        let text = String::from_utf8(wire::encode(frame).unwrap()).unwrap();
        self.receive_text(&text);
    }

    fn receive_text(&mut self, text: &str) {
        self.node.handle_message(self.now, text);
        self.drain();
    }

    fn request(&mut self, request: u64, allocation: u64, operation: Operation<'static>, timeout_ms: u64) {
        self.sequence += 1;
        self.request_at(self.sequence, request, 1, allocation, operation, timeout_ms);
    }

    fn request_at(
        &mut self,
        sequence: u64,
        request: u64,
        on: u64,
        allocation: u64,
        operation: Operation<'static>,
        timeout_ms: u64,
    ) {
        let call = Call {
            id: id(request),
            deployment_generation: generation(on),
            reference: sandbox(allocation),
            timeout_ms,
            operation,
        };
        let fencing = Fencing {
            sequence: Sequence::new(sequence).unwrap(),
            owner_epoch: epoch(self.epoch),
            connection_id: id(self.connection),
        };
        self.receive(&Frame::Request(Box::new(call.into_request(fencing))));
    }

    fn finish(&mut self, request: u64, outcome: Result<Answer<'static>, Failed<'static>>) {
        let at = self.executing.iter().position(|(_, call)| call.id == id(request)).expect("it executes");
        let (ticket, _) = self.executing.remove(at);
        self.node.handle_result(self.now, ticket, outcome);
        self.drain();
    }

    /// Lets time pass, with every timer fired when it is due.
    fn wait(&mut self, ms: u64) {
        let end = self.now.after(ms);
        let mut turns = 0;
        while let Some((at, wake)) = self.node.poll_timeout().filter(|(at, _)| *at <= end) {
            turns += 1;
            assert!(turns < 10_000, "{wake:?} comes again and again at {at:?}");
            self.now = self.now.max(at);
            self.node.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(action) = self.node.poll_action() {
            match action {
                Action::MeasureHealth => self.measurements += 1,
                Action::Send(message) => {
                    self.node.handle_written(self.now, message.len());
                    self.sent.push(String::from_utf8(message).unwrap());
                }
                Action::StoreEpoch(epoch) => self.stored.push(epoch),
                Action::Execute { ticket, call, .. } => self.executing.push((ticket, *call)),
                Action::Task(Task::Probe(generation)) => {
                    let ready =
                        if self.ready { Probed::Ready(None) } else { Probed::NotReady(Diagnostic::DockerUnavailable) };
                    self.node.handle_probed(self.now, generation, ready);
                }
                Action::Task(Task::Prepare(reference)) => {
                    let unavailable = Err(Diagnostic::ProviderUnavailable);
                    self.node.handle_prepared(self.now, reference.generation, unavailable);
                }
                Action::Task(Task::CancelPreparation(_)) => {}
                Action::Remove(reference) => self.removing.push(reference),
                Action::CancelRemoval(generation) => self.cancelled_removals.push(generation),
                Action::Close(ended) => self.closed = Some(ended),
            }
        }
    }

    /// The frames that were sent since the last look.
    fn frames(&mut self) -> Vec<Frame<'static>> {
        let sent = std::mem::take(&mut self.sent);
        sent.into_iter().map(|text| wire::decode_text(Box::leak(text.into_boxed_str())).unwrap()).collect()
    }

    fn responses(&mut self) -> Vec<(String, Option<String>)> {
        let responses = self.frames().into_iter().filter_map(|frame| match frame {
            Frame::Response(response) => {
                Some((response.id.into_owned(), response.error_code.map(std::borrow::Cow::into_owned)))
            }
            _ => None,
        });
        responses.collect()
    }

    fn executed(&self) -> Vec<Id> {
        self.executing.iter().map(|(_, call)| call.id).collect()
    }
}

fn command() -> Operation<'static> {
    Operation::RunCommand(Command { args: vec!["/bin/true".into()], directory: "".into(), stdin: None })
}

fn info(allocation: u64) -> Info<'static> {
    let Reference { tenant, environment, allocation } = sandbox(allocation);
    let reference = RawReference {
        tenant_id: tenant.to_string().into(),
        environment_id: environment.to_string().into(),
        allocation_id: allocation.to_string().into(),
    };
    let state = "running".into();
    Info { reference, provider_id: "native".into(), state, bootstrap_complete: true, create_settled: false }
}

fn create(allocation: u64) -> Operation<'static> {
    let raw = info(allocation).reference;
    Operation::Create(Box::new(crate::wire::payload::Bootstrap {
        tenant_id: raw.tenant_id,
        environment_id: raw.environment_id,
        allocation_id: raw.allocation_id,
        session_id: id(3).to_string().into(),
        device_id: id(4).to_string().into(),
        core_url: "https://core.example/api/v1".into(),
        credential: Secret("synthetic".into()),
        network_access: "disabled".into(),
        allowed_domains: None,
        workspace: None,
    }))
}

fn answered(request: u64, code: &str) -> (String, Option<String>) {
    (id(request).to_string(), Some(code.to_owned()))
}

fn succeeded(request: u64) -> (String, Option<String>) {
    (id(request).to_string(), None)
}

#[test]
fn hello_follows_a_measurement_and_carries_the_observations() {
    let mut bench = Bench::with([1]);
    bench.node.handle_opened(bench.now);
    bench.drain();
    assert_eq!((bench.measurements, bench.sent.len()), (1, 0));
    bench.measure();
    let frames = bench.frames();
    let [Frame::Hello { identity: said, health }] = &frames[..] else { panic!("expected hello, got {frames:?}") };
    assert_eq!(*said, identity());
    assert_eq!(health.generations[0].generation, generation(1));
}

/// W 187. `welcome` later than 15 s after the socket opened ends the connection, however long measuring took.
#[test]
fn a_late_welcome_ends_the_connection() {
    for measured in [false, true] {
        let mut bench = Bench::with([1]);
        bench.node.handle_opened(bench.now);
        bench.drain();
        if measured {
            bench.wait(1_000);
            bench.measure();
            bench.wait(13_999);
        } else {
            bench.wait(14_999);
        }
        assert_eq!(bench.closed, None);
        bench.wait(1);
        assert_eq!(bench.closed, Some(Ended::NoWelcome));
    }
}

/// W 35. The epoch from welcome is stored before the connection is live.
/// W 39. A higher epoch replaces it, also after a restart of the node.
#[test]
fn a_higher_epoch_is_stored_before_anything_else_happens() {
    let mut bench = Bench::with([1]);
    bench.node.handle_opened(bench.now);
    bench.drain();
    bench.measure();
    bench.welcome(deployment(1, None));
    assert_eq!(bench.stored, [epoch(EPOCH)]);
    assert!(bench.node.live().is_none() && !bench.node.may_read());
    bench.store(true);
    assert_eq!(bench.node.live(), Some((id(200), epoch(EPOCH))));
    bench.node.handle_closed(bench.now);
    bench.connect(deployment(1, None));
    assert_eq!(bench.stored.len(), 1, "an equal epoch changes nothing");
    bench.node.handle_closed(bench.now);
    bench.epoch = EPOCH + 1;
    bench.connect(deployment(1, None));
    assert_eq!(bench.stored, [epoch(EPOCH), epoch(EPOCH + 1)]);
}

#[test]
fn an_epoch_that_cannot_be_stored_ends_the_connection() {
    let mut bench = Bench::with([1]);
    bench.node.handle_opened(bench.now);
    bench.drain();
    bench.measure();
    bench.welcome(deployment(1, None));
    bench.store(false);
    assert_eq!(bench.closed, Some(Ended::EpochNotStored));
}

/// W 36. An epoch that became durable only after its connection ended counts: nothing lower is accepted any more.
#[test]
fn an_epoch_stored_after_its_connection_ended_still_fences() {
    let mut bench = Bench::with([1]);
    bench.epoch = EPOCH + 1;
    bench.node.handle_opened(bench.now);
    bench.drain();
    bench.measure();
    bench.welcome(deployment(1, None));
    bench.node.handle_closed(bench.now);
    bench.store(true);
    assert_eq!(bench.node.live(), None);
    bench.epoch = EPOCH;
    bench.connect(deployment(1, None));
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::LowerEpoch)));
    assert_eq!(bench.stored, [epoch(EPOCH + 1)]);
}

/// W 36. E26. An epoch counts from the moment it is seen: while it is still being stored for a connection that ended, a
/// lower one is not served, and the same one waits for the disk.
#[test]
fn an_epoch_that_is_still_being_stored_fences_already() {
    let mut bench = Bench::with([1]);
    bench.epoch = EPOCH + 1;
    bench.node.handle_opened(bench.now);
    bench.drain();
    bench.measure();
    bench.welcome(deployment(1, None));
    bench.node.handle_closed(bench.now);
    bench.epoch = EPOCH;
    bench.connect(deployment(1, None));
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::LowerEpoch)));
    bench.epoch = EPOCH + 1;
    bench.node.handle_opened(bench.now);
    bench.drain();
    bench.measure();
    bench.welcome(deployment(1, None));
    assert_eq!((bench.node.live(), &bench.stored[..]), (None, &[epoch(EPOCH + 1); 2][..]));
    bench.store(true);
    assert!(bench.node.live().is_some());
}

/// W 36. A welcome with an epoch below the stored one ends the connection as an ownership violation.
#[test]
fn a_lower_epoch_is_refused() {
    let mut bench = Bench::over(Table::default(), Some(EPOCH + 1));
    bench.connect(deployment(1, None));
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::LowerEpoch)));
    assert!(bench.stored.is_empty());
}

/// W 33. A repeated sequence is an ownership violation.
/// W 34. The provider was called exactly once.
#[test]
fn a_repeated_sequence_ends_the_connection() {
    let mut bench = Bench::live();
    bench.request(1, 7, Operation::Kill, 1_000);
    bench.finish(1, Ok(Answer::Done));
    assert_eq!(bench.responses(), [succeeded(1)]);
    bench.request_at(1, 2, 1, 7, Operation::Kill, 1_000);
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Sequence { expected: 2, got: 1 })));
    assert!(bench.executing.is_empty());
}

#[test]
fn a_gap_in_the_sequence_and_a_foreign_request_end_the_connection() {
    let mut bench = Bench::live();
    bench.request_at(2, 1, 1, 7, Operation::Kill, 1_000);
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Sequence { expected: 1, got: 2 })));
    let mut bench = Bench::live();
    bench.connection += 1;
    bench.request(1, 7, Operation::Kill, 1_000);
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Fencing)));
    let mut bench = Bench::live();
    bench.epoch += 1;
    bench.request(1, 7, Operation::Kill, 1_000);
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Fencing)));
}

#[test]
fn an_invalid_request_is_answered_and_consumes_its_sequence() {
    let mut bench = Bench::live();
    bench.frames();
    for (sequence, (from, to)) in
        [("\"kill\"", "\"slay\""), ("\"timeout_ms\":5", "\"timeout_ms\":0"), ("00009\"", "0000X\"")]
            .into_iter()
            .enumerate()
    {
        let call = Call {
            id: id(9),
            deployment_generation: generation(1),
            reference: sandbox(7),
            timeout_ms: 5,
            operation: Operation::Kill,
        };
        let fencing = Fencing {
            sequence: Sequence::new(sequence as u64 + 1).unwrap(),
            owner_epoch: epoch(EPOCH),
            connection_id: id(bench.connection),
        };
        let frame = Frame::Request(Box::new(call.into_request(fencing)));
        let text = String::from_utf8(wire::encode(&frame).unwrap()).unwrap();
        assert!(text.contains(from));
        bench.receive_text(&text.replacen(from, to, 1));
        let expected = id(9).to_string().replacen("00009", if sequence == 2 { "0000X" } else { "00009" }, 1);
        assert_eq!(bench.responses(), [(expected, Some("invalid".to_owned()))]);
    }
    bench.sequence = 3;
    bench.request(10, 7, Operation::Kill, 1_000);
    assert_eq!((bench.executed(), &bench.closed), (vec![id(10)], &None));
}

#[test]
fn invalid_binary_and_misplaced_messages_end_the_connection() {
    let mut bench = Bench::live();
    bench.receive_text("{}");
    assert!(matches!(bench.closed, Some(Ended::Invalid(_))));
    let mut bench = Bench::live();
    bench.node.handle_binary(bench.now);
    bench.drain();
    assert_eq!(bench.closed, Some(Ended::Binary));
    let mut bench = Bench::live();
    bench.welcome(deployment(1, None));
    assert_eq!(bench.closed, Some(Ended::Unexpected));
    bench.receive_text("{}");
    assert_eq!(bench.closed, Some(Ended::Unexpected), "nothing is read after the end");
}

/// W 67. An idle node heartbeats, and acknowledgements keep its connection alive.
/// W 208. The interval is 10 s, and the first heartbeat follows welcome by 10 s.
#[test]
fn heartbeats_come_every_ten_seconds() {
    let mut bench = Bench::live();
    bench.frames();
    let measured = bench.measurements;
    bench.wait(9_999);
    assert_eq!(bench.measurements, measured);
    for beat in 1..=20 {
        bench.wait(if beat == 1 { 1 } else { 10_000 });
        assert_eq!(bench.measurements, measured + beat);
        bench.measure();
        let frames = bench.frames();
        assert!(matches!(&frames[0], Frame::Heartbeat { health, .. } if health.generations.len() == 1), "{frames:?}");
        bench.acknowledge(deployment(1, Some(1)));
    }
    assert_eq!(bench.closed, None);
}

/// W 187. 35 s without a protocol frame end the connection; a received fragment is a sign of life.
#[test]
fn silence_ends_the_connection() {
    let mut bench = Bench::live();
    bench.wait(34_999);
    bench.node.handle_fragment(bench.now);
    bench.wait(34_999);
    assert_eq!(bench.closed, None);
    bench.wait(1);
    assert_eq!(bench.closed, Some(Ended::Silent));
}

/// E5: whatever hangs, the heartbeat is asked for on time and says how much executes.
#[test]
fn hung_operations_delay_no_heartbeat() {
    let mut bench = Bench::live();
    for request in 1..=32 {
        bench.request(request, 1_000 + request, command(), 120_000);
    }
    bench.frames();
    bench.wait(10_000);
    bench.measure();
    let frames = bench.frames();
    assert!(matches!(&frames[0], Frame::Heartbeat { health, .. } if health.active_operations == 32), "{frames:?}");
}

#[test]
fn an_acknowledgement_is_fenced_and_its_facts_are_judged() {
    let mut bench = Bench::live();
    bench.connection += 1;
    bench.acknowledge(deployment(1, Some(1)));
    assert_eq!(bench.closed, Some(Ended::Foreign));
    let mut bench = Bench::live();
    bench.epoch += 1;
    bench.acknowledge(deployment(1, Some(1)));
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Fencing)));
    let mut bench = Bench::live();
    bench.acknowledge(Deployment { specification_digest: Digest::of(b"x"), ..deployment(1, None) });
    let refusal = Refusal::DigestChanged(generation(1));
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Deployment(refusal))));
}

/// W 24. The budget starts with the receipt and no clock but the node's counts.
/// W 30. While a create runs, a kill of its allocation waits.
/// W 31. It is never executed once its budget ran out in the queue.
/// W 32. A later info of the allocation succeeds; the create ran once.
#[test]
fn a_budget_ends_in_the_queue_without_an_execution() {
    let mut bench = Bench::live();
    bench.wait(1);
    bench.frames();
    bench.request(1, 7, create(7), 30_000);
    bench.request(2, 7, Operation::Kill, 80);
    bench.wait(79);
    assert_eq!(bench.responses(), []);
    bench.wait(1);
    assert_eq!(bench.responses(), [answered(2, "unconfirmed")]);
    bench.request(3, 7, Operation::GetInfo, 30_000);
    assert_eq!(bench.executed(), [id(1)]);
    bench.finish(1, Ok(Answer::Info(info(7))));
    assert_eq!(bench.executed(), [id(3)]);
    bench.finish(3, Ok(Answer::Info(info(7))));
    assert_eq!(bench.responses(), [succeeded(1), succeeded(3)]);
}

/// Decision 34: the answer comes at the deadline, what the provider says later is discarded, the lane stays busy.
#[test]
fn an_overdue_operation_is_unconfirmed_and_keeps_its_lane() {
    let mut bench = Bench::live();
    bench.frames();
    bench.request(1, 7, create(7), 1_000);
    bench.request(2, 8, command(), 1_000);
    bench.request(3, 7, Operation::Kill, 5_000);
    bench.wait(1_000);
    let mut responses = bench.responses();
    responses.sort();
    assert_eq!(responses, [answered(1, "unconfirmed"), answered(2, "command_unconfirmed")]);
    assert_eq!(bench.executed(), [id(1), id(2)]);
    bench.finish(1, Ok(Answer::Info(info(7))));
    assert_eq!(bench.responses(), []);
    assert!(bench.executed().contains(&id(3)));
}

/// W 41. What an operation of a lost connection comes to is discarded.
/// W 43. The node connects again.
/// W 44. A kill over the new connection waits while the old create runs.
/// W 45. It runs afterwards: one create, one kill, no replay.
#[test]
fn a_lost_connection_neither_cancels_nor_replays() {
    let mut bench = Bench::live();
    bench.request(1, 7, create(7), 60_000);
    bench.request(2, 7, Operation::GetInfo, 60_000);
    bench.node.handle_closed(bench.now);
    bench.drain();
    bench.connect(deployment(1, Some(1)));
    bench.frames();
    bench.request(3, 7, Operation::Kill, 60_000);
    assert_eq!(bench.executed(), [id(1)]);
    bench.finish(1, Ok(Answer::Info(info(7))));
    assert_eq!(bench.responses(), []);
    assert_eq!(bench.executed(), [id(3)]);
    bench.finish(3, Ok(Answer::Done));
    assert_eq!(bench.responses(), [succeeded(3)]);
}

/// W 193. A full queue ends the connection, and nothing that it queued is executed.
#[test]
fn a_full_queue_ends_the_connection() {
    let mut bench = Bench::live();
    bench.request(1, 7, create(7), 60_000);
    for request in 2..=33 {
        bench.request(request, 7, Operation::GetInfo, 60_000);
    }
    assert_eq!(bench.closed, None);
    bench.request(34, 7, Operation::GetInfo, 60_000);
    assert!(matches!(bench.closed, Some(Ended::Full(_))));
    bench.finish(1, Ok(Answer::Info(info(7))));
    assert!(bench.executing.is_empty());
}

/// W 194. A request for an unknown generation is unconfirmed, and the connection stays open.
#[test]
fn an_unknown_generation_is_unconfirmed() {
    let mut bench = Bench::live();
    bench.frames();
    bench.sequence = 1;
    bench.request_at(1, 1, 9, 7, Operation::GetInfo, 1_000);
    assert_eq!((bench.responses(), &bench.closed), (vec![answered(1, "unconfirmed")], &None));
}

/// W 70. A generation that is not ready still serves info and kill; create is unconfirmed.
/// W 196. Readiness is judged at the execution, not at the arrival.
#[test]
fn readiness_is_judged_when_the_operation_would_start() {
    let mut bench = Bench::live();
    bench.frames();
    bench.request(1, 7, Operation::GetInfo, 60_000);
    bench.request(2, 7, create(7), 60_000);
    bench.ready = false;
    bench.wait(3_000);
    bench.finish(1, Ok(Answer::Info(info(7))));
    assert_eq!(bench.responses(), [succeeded(1), answered(2, "unconfirmed")]);
    bench.request(3, 7, Operation::Kill, 60_000);
    assert_eq!(bench.executed(), [id(3)]);
}

/// W 195. A resume that only observes needs no ready generation, an effective one does.
/// W 103. A declared-unsupported operation is answered with its evidence, and the provider is not called.
#[test]
fn readiness_and_declaration_are_judged_before_the_provider() {
    let mut bench = Bench::with([1]);
    bench.ready = false;
    bench.connect(deployment(1, None));
    bench.frames();
    bench.request(1, 7, resume(false), 1_000);
    assert_eq!(bench.responses(), [answered(1, "unconfirmed")]);
    bench.request(2, 7, resume(true), 1_000);
    let frames = bench.frames();
    let [Frame::Response(response)] = &frames[..] else { panic!("expected one response, got {frames:?}") };
    let evidence = response.unsupported.as_ref().unwrap();
    assert_eq!(evidence.operation.as_deref(), Some(Method::Resume.name()));
    assert_eq!(evidence.reason.as_deref(), Some("checkpoint_not_supported"));
    assert!(bench.executing.is_empty());
}

fn resume(observe_only: bool) -> Operation<'static> {
    let text = || "x".into();
    let snapshot = Snapshot {
        reference: text(),
        id: text(),
        digest: text(),
        checkpoint_id: text(),
        checkpoint_root: text(),
        operation_id: id(5).to_string().into(),
        source_generation: 0,
        source_name: text(),
        source_id: text(),
    };
    let target = crate::wire::payload::Compute {
        generation: 1,
        name: text(),
        id: "".into(),
        restored_from: Some(snapshot.clone()),
    };
    let reference = info(7).reference;
    let operation_id = id(6).to_string().into();
    Operation::Resume(Box::new(Resume { workspace: None, reference, operation_id, snapshot, target, observe_only }))
}

/// A result that cannot travel is the unknown outcome of its method (decision 12).
#[test]
fn a_result_that_is_too_large_is_unconfirmed() {
    let mut bench = Bench::live();
    bench.frames();
    bench.request(1, 7, command(), 1_000);
    let stdout = "x".repeat(crate::limits::STREAM_MAX_BYTES + 1).into();
    bench.finish(1, Ok(Answer::Command(CommandResult { stdout, stderr: "".into(), exit_code: 0 })));
    assert_eq!(bench.responses(), [answered(1, "command_unconfirmed")]);
}

/// Decision 30: without room for another message the node stops reading, and silence is not counted meanwhile.
#[test]
fn a_full_byte_budget_stops_reading_instead_of_closing() {
    let mut bench = Bench::live();
    bench.node.unsent = 2 * 64 * 1024 * 1024;
    assert!(bench.node.may_read());
    let stdin = Some(vec![0; 48 * 1024 * 1024].into());
    let large = Operation::RunCommand(Command { args: vec!["/bin/cat".into()], directory: "".into(), stdin });
    bench.request(1, 1, large, 120_000);
    assert!(!bench.node.may_read());
    // Heartbeats and probes in the meantime are no reading.
    bench.wait(64_500);
    assert_eq!(bench.closed, None);
    let result = CommandResult { stdout: "".into(), stderr: "".into(), exit_code: 0 };
    bench.finish(1, Ok(Answer::Command(result)));
    assert!(bench.node.may_read());
    bench.wait(34_999);
    assert_eq!(bench.closed, None);
    bench.wait(1);
    assert_eq!(bench.closed, Some(Ended::Silent));
}

/// Heartbeats until a retention request is out; gives back what it asked.
fn ask(bench: &mut Bench) -> (Exchange, Vec<GenerationReference>) {
    bench.frames();
    bench.wait(10_000);
    bench.measure();
    let asked = bench.frames().into_iter().find_map(|frame| match frame {
        Frame::Retention { exchange, references } => Some((exchange, references)),
        _ => None,
    });
    asked.expect("a retention request follows the heartbeat")
}

fn acknowledgement(exchange: Exchange, references: &[GenerationReference], keep: bool) -> Frame<'static> {
    let retentions = references.iter().map(|&reference| Retention { reference, keep }).collect();
    Frame::RetentionAck { exchange, retentions, deployment: deployment(3, Some(3)) }
}

fn three() -> Bench {
    let mut bench = Bench::with([1, 2, 3]);
    bench.connect(deployment(3, Some(3)));
    bench
}

/// H 159. W 91. Another `id`; W 92. another sequence; W 93. another connection; W 94. another epoch; W 95. a partial list;
/// W 96. another order; W 97. another digest: each is an ownership violation and deletes nothing.
#[test]
fn a_retention_answer_must_match_the_whole_request() {
    type Change = fn(&mut Exchange, &mut Vec<GenerationReference>);
    let changes: [Change; 7] = [
        |exchange, _| exchange.id = id(999),
        |exchange, _| exchange.sequence = exchange.sequence.next().unwrap(),
        |exchange, _| exchange.connection_id = id(999),
        |exchange, _| exchange.owner_epoch = exchange.owner_epoch.next().unwrap(),
        |_, references| references.truncate(2),
        |_, references| references.reverse(),
        |_, references| references[0].specification_digest = Digest::of(b"x"),
    ];
    for change in changes {
        let mut bench = three();
        let (mut exchange, mut references) = ask(&mut bench);
        assert_eq!(references, [reference(1), reference(2), reference(3)]);
        change(&mut exchange, &mut references);
        bench.receive(&acknowledgement(exchange, &references, false));
        assert!(matches!(bench.closed, Some(Ended::Ownership(Ownership::Retention | Ownership::Fencing))));
        assert!(bench.removing.is_empty());
    }
}

/// W 98. The matching answer is accepted exactly once; its replay deletes nothing.
/// W 204. So does an answer to nothing.
#[test]
fn a_matching_retention_answer_is_accepted_once() {
    let mut bench = three();
    let (exchange, references) = ask(&mut bench);
    bench.receive(&acknowledgement(exchange, &references, true));
    assert_eq!((&bench.closed, bench.removing.len()), (&None, 0));
    bench.receive(&acknowledgement(exchange, &references, false));
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Retention)));
    assert!(bench.removing.is_empty());
    let mut bench = three();
    let exchange = Exchange { connection_id: id(bench.connection), ..exchange };
    bench.receive(&acknowledgement(exchange, &references, false));
    assert_eq!(bench.closed, Some(Ended::Ownership(Ownership::Retention)));
    assert!(bench.removing.is_empty());
}

/// W 202. A second request is never sent while one is pending or its grants are worked off; the next connection
/// starts again at sequence 1.
#[test]
fn one_exchange_at_a_time_and_none_survives_its_connection() {
    let mut bench = three();
    let (first, references) = ask(&mut bench);
    assert_eq!(first.sequence, Sequence::FIRST);
    let silent = |bench: &mut Bench| {
        bench.wait(10_000);
        bench.measure();
        bench.acknowledge(deployment(3, Some(3)));
        assert!(!bench.frames().iter().any(|frame| matches!(frame, Frame::Retention { .. })));
    };
    silent(&mut bench);
    bench.receive(&acknowledgement(first, &references, false));
    assert_eq!(bench.removing, [reference(1)]);
    silent(&mut bench);
    bench.node.handle_removed(bench.now, generation(1), true);
    bench.drain();
    assert_eq!(bench.removing, [reference(1), reference(2)]);
    bench.node.handle_removed(bench.now, generation(2), false);
    bench.drain();
    let (second, references) = ask(&mut bench);
    assert_eq!((second.sequence.get(), references), (2, vec![reference(2), reference(3)]));
    bench.node.handle_closed(bench.now);
    bench.connect(deployment(3, Some(3)));
    assert_eq!(ask(&mut bench).0.sequence, Sequence::FIRST);
}

/// W 80. Batches go on after the last generation that was answered for, and wrap.
#[test]
fn batches_rotate_over_all_generations() {
    let mut bench = Bench::with(1..=17);
    let target = deployment(17, Some(17));
    bench.connect(target);
    for expected in [1..=8, 9..=16, 17..=17] {
        let (exchange, references) = ask(&mut bench);
        let numbers: Vec<_> = references.iter().map(|reference| reference.generation.get()).collect();
        assert!(numbers.iter().copied().take(expected.clone().count()).eq(expected), "{numbers:?}");
        let retentions = references.iter().map(|&reference| Retention { reference, keep: true }).collect();
        bench.receive(&Frame::RetentionAck { exchange, retentions, deployment: target });
        assert_eq!(bench.closed, None);
    }
}

/// H 161. W 102. When the connection ends no further removal starts, and the one that runs is ended.
/// W 89. What it left is unusable until a new grant.
#[test]
fn a_lost_connection_stops_the_grants() {
    let mut bench = three();
    let (exchange, references) = ask(&mut bench);
    bench.receive(&acknowledgement(exchange, &references, false));
    bench.node.handle_closed(bench.now);
    bench.drain();
    assert_eq!(bench.cancelled_removals, [generation(1)]);
    bench.node.handle_removed(bench.now, generation(1), false);
    bench.drain();
    assert_eq!(bench.removing, [reference(1)]);
    bench.connect(deployment(3, Some(3)));
    bench.sequence = 1;
    bench.frames();
    bench.request_at(1, 1, 1, 7, Operation::GetInfo, 1_000);
    assert_eq!(bench.responses(), [answered(1, "unconfirmed")]);
    let (exchange, references) = ask(&mut bench);
    bench.receive(&acknowledgement(exchange, &references, false));
    assert_eq!(bench.removing, [reference(1), reference(1)]);
}

/// W 203. Retention works while an operation runs and the queue is full.
#[test]
fn retention_works_beside_a_full_queue() {
    let mut bench = three();
    bench.request(1, 7, create(7), 120_000);
    for request in 2..=33 {
        bench.request(request, 7, Operation::GetInfo, 120_000);
    }
    let (exchange, references) = ask(&mut bench);
    bench.receive(&acknowledgement(exchange, &references, false));
    assert_eq!(bench.closed, None);
    assert_eq!(bench.removing, [reference(2)], "generation 1 is held by what waits and runs");
}

/// Decision 39: a target that cannot be prepared is a record like any other.
#[test]
fn an_unpreparable_target_is_failed_and_asked_about() {
    let mut bench = Bench::with([1]);
    bench.connect(deployment(2, Some(1)));
    let (_, references) = ask(&mut bench);
    assert_eq!(references, [reference(1), reference(2)]);
    bench.wait(10_000);
    bench.measure();
    let frames = bench.frames();
    let Frame::Heartbeat { health, .. } = &frames[0] else { panic!("expected a heartbeat, got {frames:?}") };
    let failed = ObservedState::Failed { diagnostic: Some(Diagnostic::ProviderUnavailable) };
    assert_eq!((health.generations[0].generation, &health.generations[0].state), (generation(2), &failed));
}

/// A measurement that nobody asked for becomes no heartbeat.
#[test]
fn unasked_measurement_sends_nothing() {
    let mut bench = Bench::live();
    bench.frames();
    bench.measure();
    assert!(bench.frames().is_empty());
}

/// A heartbeat that was late does not move those after it.
#[test]
fn late_heartbeat_keeps_the_rhythm() {
    let heartbeat = |bench: &Bench| match &bench.node.link {
        Link::Live(live) => live.heartbeat,
        Link::Down | Link::Measuring { .. } | Link::Greeting { .. } | Link::Storing(_) => panic!("it is live"),
    };
    let mut bench = Bench::live();
    let first = heartbeat(&bench);
    bench.now = first.after(13_000);
    bench.node.handle_timeout(bench.now);
    bench.drain();
    assert_eq!(heartbeat(&bench), first.after(20_000));
}

/// A node that stops waits for the last budget, and then for commands that are being ended.
#[test]
fn stopping_node_is_busy_until_the_last_budget_and_its_grace() {
    let mut bench = Bench::live();
    assert_eq!(bench.node.busy_until(), None);
    bench.request(1, 1, Operation::GetInfo, 5_000);
    bench.request(2, 2, Operation::GetInfo, 9_000);
    assert_eq!(bench.node.busy_until(), Some(bench.now.after(9_000 + STOP_GRACE_MS)));
}

/// Decision 30: what waits to be written fills the byte budget too, to the byte.
#[test]
fn unwritten_bytes_stop_reading_until_they_are_written() {
    let room = NODE_BYTES_MAX - CALL_FRAME_MAX_BYTES as u64;
    let mut bench = Bench::live();
    bench.node.unsent = room;
    bench.node.handle_written(bench.now, 0);
    assert!(bench.node.may_read());
    let frame = Frame::Retention { exchange: exchange_of(&bench), references: vec![reference(1)] };
    bench.node.send_control(&frame).unwrap();
    bench.node.handle_written(bench.now, 0);
    assert!(!bench.node.may_read());
    bench.node.handle_written(bench.now, wire::encode(&frame).unwrap().len() - 1);
    assert!(!bench.node.may_read());
    bench.node.handle_written(bench.now, 1);
    assert!(bench.node.may_read());
}

fn exchange_of(bench: &Bench) -> Exchange {
    let (connection_id, owner_epoch) = bench.node.live().expect("it is live");
    Exchange { id: id(7), sequence: Sequence::FIRST, connection_id, owner_epoch }
}

#[test]
fn table_shows_what_was_announced() {
    let mut bench = Bench::with([1, 2]);
    bench.connect(deployment(2, Some(1)));
    assert_eq!(bench.node.table().announced(), Some(deployment(2, Some(1))));
}
