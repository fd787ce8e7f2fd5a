#![allow(
    clippy::result_large_err,
    clippy::unnecessary_wraps,
    reason = "the outcomes that a test names are values, not errors"
)]

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::outcome::{Answer, Failed, Failure};
use crate::session::hub::dispatch::Refusal;
use crate::session::hub::{Cause, Uncertain};
use crate::wire::payload::{CommandResult, Info, RawReference};

const HANDED: Attempt = Attempt::Handed { ago_ms: 0 };
const OBSERVE: Step = Step::Observe { late: false };
const TURN: Id = Id::from_random([5; 16]);
const NOW: Millis = Millis(1_000_000);
const AWAY: NodeState = NodeState::Offline { away_ms: 600_000 };

fn facts(allocation: Allocation) -> Facts {
    Facts {
        admission_open: true,
        session_deleted: false,
        environment: Environment::Pending,
        node: NodeState::Ready,
        allocation,
        compute: None,
        stale: false,
        turn: None,
    }
}

fn queued(waited_ms: u64) -> Turn {
    Turn { id: TURN, state: TurnState::Queued { waited_ms } }
}

fn info(state: &'static str, provider_id: &'static str, complete: bool, settled: bool) -> Info<'static> {
    let reference = RawReference { tenant_id: "t".into(), environment_id: "e".into(), allocation_id: "a".into() };
    let (provider_id, state) = (provider_id.into(), state.into());
    Info { reference, provider_id, state, bootstrap_complete: complete, create_settled: settled }
}

fn running() -> Outcome<'static> {
    Ok(Answer::Info(info("running", "native", true, true)))
}

fn absent() -> Outcome<'static> {
    Ok(Answer::Info(info("absent", "", false, true)))
}

fn uncertain(sent: bool) -> Outcome<'static> {
    Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent }))
}

fn failed(failure: Failure) -> Outcome<'static> {
    Err(CallError::Failed(failure.into()))
}

fn conclude(step: Step, outcome: &Outcome<'_>) -> Vec<Change> {
    Lifecycle::default().conclude(NOW, step, outcome)
}

fn cleanup(attempt: Attempt, settled: bool) -> Facts {
    facts(Allocation::CleanupPending { attempt, settled })
}

#[rstest]
#[case(facts(Allocation::None), Step::Reserve)]
#[case(Facts { admission_open: false, ..facts(Allocation::None) }, Step::Rest)]
#[case(Facts { node: NodeState::Unready, ..facts(Allocation::None) }, Step::Rest)]
#[case(Facts { node: AWAY, ..facts(Allocation::None) }, Step::Rest)]
#[case(Facts { session_deleted: true, ..facts(Allocation::None) }, Step::Rest)]
#[case(Facts { environment: Environment::Expired, ..facts(Allocation::None) }, Step::Rest)]
#[case(facts(Allocation::Creating(Attempt::None)), Step::Create)]
#[case(Facts { node: NodeState::Unready, ..facts(Allocation::Creating(Attempt::None)) }, Step::Rest)]
#[case(facts(Allocation::Creating(HANDED)), OBSERVE)]
#[case(Facts { environment: Environment::Failed, ..facts(Allocation::Creating(HANDED)) }, Step::RequestCleanup)]
#[case(Facts { session_deleted: true, ..facts(Allocation::Running) }, Step::RequestCleanup)]
#[case(facts(Allocation::Running), Step::Rest)]
#[case(Facts { turn: Some(queued(0)), ..facts(Allocation::Running) }, Step::Dispatch(TURN))]
#[case(Facts { turn: Some(queued(0)), ..facts(Allocation::Creating(HANDED)) }, OBSERVE)]
#[case(cleanup(Attempt::None, false), Step::Release)]
#[case(cleanup(HANDED, false), Step::Kill)]
#[case(cleanup(HANDED, true), Step::Kill)]
#[case(facts(Allocation::Released), Step::Rest)]
fn facts_decide_the_step(#[case] facts: Facts, #[case] expected: Step) {
    assert_eq!(Lifecycle::default().step(&facts, NOW), expected);
}

/// D 55. While admission is closed nothing new is reserved, but what was started goes on.
#[test]
fn closed_admission_stops_only_new_reservations() {
    let closed = |allocation| Facts { admission_open: false, ..facts(allocation) };
    let step = |facts| Lifecycle::default().step(&facts, NOW);
    assert_eq!(step(closed(Allocation::None)), Step::Rest);
    assert_eq!(step(closed(Allocation::Creating(Attempt::None))), Step::Create);
    assert_eq!(step(closed(Allocation::Creating(HANDED))), OBSERVE);
    assert_eq!(step(Facts { turn: Some(queued(0)), ..closed(Allocation::Running) }), Step::Dispatch(TURN));
}

/// E14. A create that may have reached the node is observed, never sent again and never moved.
#[rstest]
#[case(uncertain(true))]
#[case(failed(Failure::Unconfirmed))]
#[case(failed(Failure::Exists))]
#[case(failed(Failure::NotFound))]
#[case(Ok(Answer::Info(info("created", "native", false, false))))]
#[case(Ok(Answer::Info(info("absent", "", false, false))))]
#[case(Ok(Answer::Done))]
fn unsettled_create_changes_nothing(#[case] outcome: Outcome<'static>) {
    assert_eq!(conclude(Step::Create, &outcome), vec![]);
    let handed = facts(Allocation::Creating(HANDED));
    assert_eq!(Lifecycle::default().step(&handed, NOW), OBSERVE);
}

/// Decision 35: only the certainty that nothing was sent takes the attempt back.
#[rstest]
#[case(uncertain(false))]
#[case(Err(CallError::Refused(Refusal::Deadline)))]
#[case(Err(CallError::Refused(Refusal::Uncertain(Uncertain { cause: Cause::Records, sent: false }))))]
fn create_that_was_certainly_not_sent_clears_the_attempt(#[case] outcome: Outcome<'static>) {
    assert_eq!(conclude(Step::Create, &outcome), vec![Change::AttemptCleared]);
}

/// E17, E22. A sandbox that does not run when the creation's time is over is given up and cleaned up; an unreachable node is waited for.
#[rstest]
#[case(Ok(Answer::Info(info("created", "native", false, false))), vec![Change::CleanupRequested])]
#[case(failed(Failure::NotFound), vec![Change::CleanupRequested])]
#[case(running(), vec![Change::Running])]
#[case(uncertain(false), vec![])]
#[case(uncertain(true), vec![])]
fn creation_has_a_deadline(#[case] outcome: Outcome<'static>, #[case] changes: Vec<Change>) {
    let overdue = facts(Allocation::Creating(Attempt::Handed { ago_ms: 120_000 }));
    assert_eq!(Lifecycle::default().step(&overdue, NOW), Step::Observe { late: true });
    assert_eq!(conclude(Step::Observe { late: true }, &outcome), changes);
}

#[test]
fn verified_running_sandbox_is_recorded() {
    assert_eq!(conclude(Step::Create, &running()), vec![Change::Running]);
    assert_eq!(conclude(OBSERVE, &running()), vec![Change::Running]);
}

/// A failed create with a receipt settles the attempt, and stays a failure.
#[test]
fn receipt_beside_a_failure_never_becomes_a_success() {
    let failed = |info| Err(CallError::Failed(Failed { failure: Failure::Invalid, info: Some(info), state: None }));
    let settled = vec![Change::CleanupRequested, Change::Settled];
    assert_eq!(conclude(Step::Create, &failed(info("running", "native", true, true))), settled);
    let released = vec![Change::CleanupRequested, Change::Settled, Change::Released];
    assert_eq!(conclude(Step::Create, &failed(info("absent", "", false, true))), released);
}

#[test]
fn proven_absence_releases_in_one_commit() {
    let released = vec![Change::CleanupRequested, Change::Settled, Change::Released];
    assert_eq!(conclude(OBSERVE, &absent()), released);
    assert_eq!(conclude(Step::Create, &absent()), released);
}

/// "unsupported", "invalid" and "ownership" settle nothing, but no observation turns them into a success.
#[rstest]
#[case(Failure::Invalid)]
#[case(Failure::Ownership)]
#[case(Failure::Unsupported { method: "Create".into(), reason: "external_workspace_unsupported".into() })]
fn refused_create_is_cleaned_up_unsettled(#[case] failure: Failure) {
    assert_eq!(conclude(Step::Create, &failed(failure)), vec![Change::CleanupRequested]);
}

/// E24, E22. Cleanup keeps asking until both questions are answered, and a sandbox that appears after the kill is killed again.
#[test]
fn cleanup_asks_kill_and_info_until_both_are_answered() {
    let mut owner = Lifecycle::default();
    let unsettled = cleanup(HANDED, false);
    let mut now = NOW;
    for unanswered in [uncertain(true), failed(Failure::Ownership), failed(Failure::NotFound)] {
        for step in [Step::Kill, Step::Settle] {
            assert_eq!(owner.step(&unsettled, now), step, "neither question waits for the other");
            assert_eq!(owner.conclude(now, step, &unanswered), vec![]);
            now = now.after(ASK_AGAIN_MAX_MS);
        }
    }
    owner.conclude(now, Step::Kill, &Ok(Answer::Done));
    assert_eq!(owner.step(&unsettled, now.after(ASK_AGAIN_MAX_MS)), Step::Settle);
    assert_eq!(owner.conclude(now, Step::Settle, &failed(Failure::NotFound)), vec![], "absence alone settles nothing");
    let half_made = Ok(Answer::Info(info("created", "native", false, false)));
    assert_eq!(owner.conclude(now, Step::Settle, &half_made), vec![], "the creation may go on");
    assert_eq!(owner.step(&unsettled, now.after(ASK_AGAIN_MAX_MS)), Step::Kill, "it appeared after the kill");
    owner.conclude(now, Step::Kill, &Ok(Answer::Done));
    assert_eq!(owner.conclude(now, Step::Settle, &running()), vec![Change::Settled]);
    let settled = cleanup(HANDED, true);
    assert_eq!(owner.step(&settled, now), Step::Kill, "it appeared after the kill");
    owner.conclude(now, Step::Kill, &Ok(Answer::Done));
    assert_eq!(owner.step(&settled, now), Step::Release);
}

/// E14. A Turn found in progress was interrupted: unconfirmed whatever the sandbox does, and never dispatched again.
#[rstest]
#[case(Allocation::Running)]
#[case(Allocation::Creating(HANDED))]
#[case(Allocation::CleanupPending { attempt: HANDED, settled: true })]
#[case(Allocation::Released)]
fn interrupted_turn_is_unconfirmed(#[case] allocation: Allocation) {
    let turn = Some(Turn { id: TURN, state: TurnState::InProgress });
    let step = Lifecycle::default().step(&Facts { turn, ..facts(allocation) }, NOW);
    assert_eq!(step, Step::FailTurn(TURN, TurnError::Unconfirmed));
}

/// E23. A Turn waits five minutes for its node, and the wait has an end that is known (decision 40).
#[test]
fn queued_turn_waits_at_most_five_minutes_for_its_node() {
    let at = |waited_ms, away_ms| Facts {
        turn: Some(queued(waited_ms)),
        node: NodeState::Offline { away_ms },
        ..facts(Allocation::Running)
    };
    let step = |facts| Lifecycle::default().step(&facts, NOW);
    assert_eq!(step(at(299_999, 600_000)), Step::Wait(NOW.after(1)));
    assert_eq!(step(at(300_000, 600_000)), Step::FailTurn(TURN, TurnError::NodeUnavailable));
    assert_eq!(step(at(600_000, 1_000)), Step::Wait(NOW.after(299_000)), "counted from when the node left");
    assert_eq!(step(Facts { node: NodeState::Unready, ..at(600_000, 0) }), Step::Dispatch(TURN));
}

#[test]
fn turn_of_an_ended_environment_certainly_did_not_run() {
    let expected = Step::FailTurn(TURN, TurnError::EnvironmentUnavailable);
    let ended = Facts { environment: Environment::Failed, turn: Some(queued(0)), ..facts(Allocation::None) };
    assert_eq!(Lifecycle::default().step(&ended, NOW), expected);
    let cleaning = Facts { turn: Some(queued(0)), ..cleanup(HANDED, false) };
    assert_eq!(Lifecycle::default().step(&cleaning, NOW), expected);
}

fn command(exit_code: i64) -> Outcome<'static> {
    Ok(Answer::Command(CommandResult { stdout: "".into(), stderr: "".into(), exit_code }))
}

#[rstest]
#[case(command(0), Change::TurnCompleted(TURN))]
#[case(command(3), Change::TurnCompleted(TURN))]
#[case(uncertain(false), Change::TurnRequeued(TURN))]
#[case(uncertain(true), Change::TurnFailed(TURN, TurnError::Unconfirmed))]
#[case(Ok(Answer::Done), Change::TurnFailed(TURN, TurnError::Unconfirmed))]
#[case(failed(Failure::CommandUnconfirmed), Change::TurnFailed(TURN, TurnError::Unconfirmed))]
#[case(failed(Failure::Unconfirmed), Change::TurnFailed(TURN, TurnError::Unconfirmed))]
#[case(failed(Failure::Exists), Change::TurnFailed(TURN, TurnError::Unconfirmed))]
#[case(failed(Failure::NotFound), Change::TurnFailed(TURN, TurnError::NotFound))]
#[case(Err(CallError::Refused(Refusal::Deadline)), Change::TurnFailed(TURN, TurnError::Expired))]
#[case(Err(CallError::Refused(Refusal::Invalid)), Change::TurnFailed(TURN, TurnError::Invalid))]
fn command_outcome_ends_the_turn_once(#[case] outcome: Outcome<'static>, #[case] change: Change) {
    assert_eq!(conclude(Step::Dispatch(TURN), &outcome), vec![change]);
}

#[test]
fn code_ends_in_unconfirmed_exactly_when_the_outcome_is_unknown() {
    use TurnError as E;
    assert!(E::Unconfirmed.code().ends_with("unconfirmed"));
    let certain = [
        E::NodeUnavailable,
        E::EnvironmentUnavailable,
        E::Expired,
        E::Invalid,
        E::NotFound,
        E::Ownership,
        E::Unsupported,
    ];
    assert!(certain.iter().all(|error| !error.code().ends_with("unconfirmed")));
    assert_eq!(E::NodeUnavailable.code(), "node_unavailable");
}

#[test]
fn questions_without_an_answer_are_asked_ever_more_rarely_until_something_happens() {
    let mut owner = Lifecycle::default();
    let handed = facts(Allocation::Creating(HANDED));
    for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
        owner.conclude(NOW, OBSERVE, &uncertain(true));
        assert_eq!(owner.step(&handed, NOW), Step::Wait(NOW.after(pause)));
    }
    owner.handle_hint();
    assert_eq!(owner.step(&handed, NOW), OBSERVE);
}

#[test]
fn sandbox_that_was_not_found_is_looked_at_before_anything_else() {
    let mut owner = Lifecycle::default();
    owner.conclude(NOW, Step::Dispatch(TURN), &failed(Failure::NotFound));
    assert_eq!(owner.step(&facts(Allocation::Running), NOW), Step::Verify);
    let absent = Ok(Answer::Info(info("absent", "", false, true)));
    assert_eq!(owner.conclude(NOW, Step::Verify, &absent), vec![Change::CleanupRequested]);
}

/// An engine that restarts stops every sandbox; their files must outlive a command that comes meanwhile.
#[test]
fn sandbox_that_was_stopped_is_not_given_up() {
    let mut owner = Lifecycle::default();
    owner.conclude(NOW, Step::Dispatch(TURN), &failed(Failure::NotFound));
    assert_eq!(owner.step(&facts(Allocation::Running), NOW), Step::Verify);
    let stopped = Ok(Answer::Info(info("exited", "native", false, false)));
    assert_eq!(owner.conclude(NOW, Step::Verify, &stopped), vec![]);
    let later = NOW.after(ASK_AGAIN_MAX_MS);
    assert_eq!(owner.step(&facts(Allocation::Running), later), Step::Rest);
}

/// One allocation as a store, a node and a faulty network between them.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the three parties, not one state")]
struct World {
    attempts_handed: bool,
    state: u8, // 0 none, 1 creating, 2 running, 3 cleanup, 4 released
    settled: bool,
    // the node's side
    create_queued: bool,
    exists: bool,
    creates_seen: u32,
}

impl World {
    fn facts(&self) -> Facts {
        let attempt = if self.attempts_handed { HANDED } else { Attempt::None };
        let allocation = match self.state {
            0 => Allocation::None,
            1 => Allocation::Creating(attempt),
            2 => Allocation::Running,
            3 => Allocation::CleanupPending { attempt, settled: self.settled },
            _ => Allocation::Released,
        };
        facts(allocation)
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::AttemptCleared => self.attempts_handed = false,
                Change::Running => (self.state, self.settled) = (2, true),
                Change::Settled => self.settled = true,
                Change::CleanupRequested => self.state = 3,
                Change::Released => {
                    assert!(!self.exists && !self.create_queued, "released while the node may still hold it");
                    self.state = 4;
                }
                Change::Looked(_) | Change::TurnCompleted(_) | Change::TurnFailed(..) | Change::TurnRequeued(_) => {}
            }
        }
    }

    /// A create whose answer was lost finishes at some time.
    fn node_works(&mut self) {
        if std::mem::take(&mut self.create_queued) {
            self.exists = true;
        }
    }

    fn look(&self) -> Outcome<'static> {
        match (self.exists, self.create_queued || self.creates_seen == 0) {
            (true, _) => running(),
            (false, true) => failed(Failure::NotFound),
            (false, false) => absent(),
        }
    }

    fn carry_out(&mut self, step: Step, fault: Fault) -> Outcome<'static> {
        if fault == Fault::NotSent {
            return uncertain(false);
        }
        let outcome = match step {
            Step::Create => {
                self.creates_seen += 1;
                assert_eq!(self.creates_seen, 1, "a create is sent at most once");
                self.create_queued = true;
                if fault != Fault::Lost {
                    self.node_works();
                }
                self.look()
            }
            Step::Kill => {
                self.exists = false;
                Ok(Answer::Done)
            }
            _ => self.look(),
        };
        if fault == Fault::Lost { uncertain(true) } else { outcome }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    NotSent,
    Lost,
    CrashBefore,
    CrashAfter,
    NodeWorks,
    Archive,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::None),
        2 => Just(Fault::NotSent),
        2 => Just(Fault::Lost),
        1 => Just(Fault::CrashBefore),
        1 => Just(Fault::CrashAfter),
        2 => Just(Fault::NodeWorks),
        1 => Just(Fault::Archive),
    ]
}

fn turn_of_the_crank(world: &mut World, owner: &mut Lifecycle, now: Millis, fault: Fault) {
    match fault {
        Fault::NodeWorks => return world.node_works(),
        Fault::Archive => {
            if matches!(world.state, 1 | 2) {
                world.state = 3;
            }
            return;
        }
        Fault::None | Fault::NotSent | Fault::Lost | Fault::CrashBefore | Fault::CrashAfter => {}
    }
    let step = owner.step(&world.facts(), now);
    match step {
        Step::Reserve => return world.state = 1,
        Step::Release => return world.apply(&[Change::Released]),
        Step::Create => world.attempts_handed = true,
        Step::Rest | Step::Wait(_) => return,
        _ => {}
    }
    if fault == Fault::CrashBefore {
        return *owner = Lifecycle::default();
    }
    let outcome = world.carry_out(step, fault);
    if fault == Fault::CrashAfter {
        return *owner = Lifecycle::default();
    }
    let changes = owner.conclude(now, step, &outcome);
    world.apply(&changes);
}

/// Decision 35: whatever was handed to a connection may have been carried out.
#[test]
fn only_an_unsent_call_is_certain_to_have_reached_nobody() {
    let uncertain = |sent| CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent });
    assert!(CallError::Refused(Refusal::Deadline).nothing_sent());
    assert!(uncertain(false).nothing_sent());
    assert!(!uncertain(true).nothing_sent());
    assert!(!CallError::Failed(Failure::Invalid.into()).nothing_sent());
}

#[test]
fn a_call_without_an_answer_says_why() {
    let refused = Refusal::Deadline;
    assert_eq!(CallError::Refused(refused.clone()).to_string(), refused.to_string());
    let uncertain = Uncertain { cause: Cause::Deadline, sent: true };
    assert_eq!(CallError::Uncertain(uncertain).to_string(), uncertain.to_string());
    assert_eq!(CallError::Failed(Failure::Exists.into()).to_string(), Failure::Exists.to_string());
}

/// "Absent" with an identity, an unsettled creation or a finished bootstrap contradicts itself: it proves nothing.
#[rstest]
#[case("", false, false)]
#[case("native", false, true)]
#[case("", true, true)]
#[case("native", true, true)]
fn absence_that_contradicts_itself_settles_nothing(
    #[case] provider_id: &'static str,
    #[case] complete: bool,
    #[case] settled: bool,
) {
    let outcome = Ok(Answer::Info(info("absent", provider_id, complete, settled)));
    assert_eq!(conclude(OBSERVE, &outcome), vec![]);
    assert_eq!(conclude(Step::Settle, &outcome), vec![]);
}

/// What runs without its bootstrap, or was bootstrapped and does not run, is no verified sandbox yet.
#[rstest]
#[case("running", false)]
#[case("created", true)]
fn half_a_start_is_not_running(#[case] state: &'static str, #[case] complete: bool) {
    let outcome = Ok(Answer::Info(info(state, "native", complete, false)));
    assert_eq!(conclude(OBSERVE, &outcome), vec![]);
    assert_eq!(conclude(Step::Observe { late: true }, &outcome), vec![Change::CleanupRequested]);
}

/// A step whose transaction failed is tried again, after a pause that grows.
#[test]
fn a_refused_transaction_is_repeated_later() {
    let mut lifecycle = Lifecycle::default();
    let reserve = facts(Allocation::None);
    assert_eq!(lifecycle.step(&reserve, NOW), Step::Reserve);
    lifecycle.handle_refused(NOW);
    assert_eq!(lifecycle.step(&reserve, NOW), Step::Wait(NOW.after(1_000)));
    assert_eq!(lifecycle.step(&reserve, NOW.after(1_000)), Step::Reserve);
    lifecycle.handle_refused(NOW);
    assert_eq!(lifecycle.step(&reserve, NOW), Step::Wait(NOW.after(2_000)));
}

/// An answer about compute that changed nothing is asked for again after a growing pause, and one that did not at once.
#[test]
fn compute_that_did_not_advance_is_asked_about_later() {
    let mut lifecycle = Lifecycle::default();
    let reserve = facts(Allocation::None);
    for pause in [1_000, 2_000] {
        lifecycle.handle_compute(NOW, false);
        assert_eq!(lifecycle.step(&reserve, NOW), Step::Wait(NOW.after(pause)));
    }
    lifecycle.handle_compute(NOW, true);
    assert_eq!(lifecycle.step(&reserve, NOW), Step::Reserve);
    lifecycle.handle_compute(NOW, false);
    assert_eq!(lifecycle.step(&reserve, NOW), Step::Wait(NOW.after(1_000)), "the pauses begin anew");
}

/// A kill that was not confirmed is repeated after a pause; a confirmed one is followed up at once.
#[test]
fn an_unconfirmed_kill_is_repeated_later() {
    let facts = cleanup(HANDED, false);
    let mut lifecycle = Lifecycle::default();
    lifecycle.conclude(NOW, Step::Kill, &Ok(Answer::Done));
    assert!(!matches!(lifecycle.step(&facts, NOW), Step::Wait(_)));
    let mut lifecycle = Lifecycle::default();
    lifecycle.conclude(NOW, Step::Kill, &uncertain(true));
    assert_eq!(lifecycle.step(&facts, NOW), Step::Wait(NOW.after(1_000)));
}

proptest! {
    /// E14, E24. Under loss, lateness and crashes at every step a create is sent at most once, and nothing is released that the node may still hold.
    #[test]
    fn no_history_sends_twice_or_releases_early(faults in prop::collection::vec(fault(), 1..120)) {
        let (mut world, mut owner, mut now) = (World::default(), Lifecycle::default(), NOW);
        for fault in faults {
            now = now.after(ASK_AGAIN_MAX_MS);
            turn_of_the_crank(&mut world, &mut owner, now, fault);
        }
        // After the storm an archive always ends in a release, unless the create was lost before the node saw it.
        world.node_works();
        turn_of_the_crank(&mut world, &mut owner, now, Fault::Archive);
        for _ in 0..8 {
            now = now.after(ASK_AGAIN_MAX_MS);
            turn_of_the_crank(&mut world, &mut owner, now, Fault::None);
        }
        if world.state == 3 {
            prop_assert!(world.attempts_handed && world.creates_seen == 0, "{world:?}");
        }
    }
}
