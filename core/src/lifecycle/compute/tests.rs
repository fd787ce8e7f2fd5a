#![allow(
    clippy::result_large_err,
    clippy::unnecessary_wraps,
    reason = "the outcomes that a test names are values, not errors"
)]

use rstest::rstest;

use super::super::{
    Allocation, Attempt, CallError, Environment, Lifecycle, NodeState, Outcome, Turn, TurnError, TurnState,
};
use super::super::{Change as Written, Facts as Whole, Step as Next};
use super::*;
use crate::admin::node::AllocationDiagnostic;
use crate::admin::time::Timestamp;
use crate::limits::TURN_OFFLINE_MAX_MS;
use crate::outcome::{Answer, Failed, Failure};
use crate::session::hub::{Cause, Uncertain};
use crate::units::Millis;
use crate::wire::payload::{ComputeState, Reference};

const OPERATION: Id = Id::from_random([7; 16]);
const FRESH: Id = Id::from_random([8; 16]);
const TURN: Id = Id::from_random([9; 16]);
const NOW: Millis = Millis(1_000_000);
const ONLINE: NodeState = NodeState::Ready;
const AWAY: NodeState = NodeState::Offline { away_ms: 600_000 };

const PHASES: [Phase; 7] = [
    Phase::Disabled,
    Phase::Running,
    Phase::Quiescing,
    Phase::Suspending,
    Phase::Suspended,
    Phase::Restoring,
    Phase::Waking,
];

fn first() -> Compute<'static> {
    Compute { generation: 0, name: "name-g0".into(), id: "local:16".into(), restored_from: None }
}

fn snapshot() -> Snapshot<'static> {
    Snapshot {
        reference: "name-g0:s".into(),
        id: "snap".into(),
        digest: "digest".into(),
        checkpoint_id: "checkpoint".into(),
        checkpoint_root: "root".into(),
        operation_id: OPERATION.to_string().into(),
        source_generation: 0,
        source_name: "name-g0".into(),
        source_id: "local:16".into(),
    }
}

fn target() -> Compute<'static> {
    Compute { generation: 1, name: "name-g1".into(), id: "".into(), restored_from: Some(snapshot()) }
}

fn second() -> Compute<'static> {
    Compute { id: "local:17".into(), ..target() }
}

fn running() -> State {
    State::Running { current: first(), leftovers: Vec::new() }
}

fn suspending() -> State {
    State::Suspending { current: first(), operation: OPERATION, handed_at: Some(5), snapshot: None }
}

fn captured() -> State {
    let snapshot = Some(Box::new(snapshot()));
    State::Suspending { current: first(), operation: OPERATION, handed_at: Some(5), snapshot }
}

fn suspended() -> State {
    State::Suspended { source: first(), snapshot: Box::new(snapshot()) }
}

fn restoring() -> State {
    let (source, snapshot) = (first(), Box::new(snapshot()));
    State::Restoring { source, snapshot, operation: OPERATION, target: target(), handed_at: Some(5) }
}

fn waking() -> State {
    let leftovers = vec![Leftover::Compute(Box::new(first())), Leftover::Snapshot(Box::new(snapshot()))];
    State::Waking { current: second(), leftovers }
}

fn every_state() -> Vec<State> {
    let quiescing = State::Quiescing { current: first() };
    let restored = State::Running { current: second(), leftovers: vec![Leftover::Snapshot(Box::new(snapshot()))] };
    vec![State::Disabled, running(), restored, quiescing, suspending(), captured(), suspended(), restoring(), waking()]
}

fn facts(phase: Phase) -> Facts {
    Facts {
        phase,
        handed_ms: None,
        captured: false,
        leftovers: false,
        since_ms: 0,
        idle: false,
        expired: false,
        room: true,
    }
}

fn handed(phase: Phase, ago_ms: u64) -> Facts {
    Facts { handed_ms: Some(ago_ms), ..facts(phase) }
}

fn whole(compute: Facts, node: NodeState, turn: Option<Turn>) -> Whole {
    Whole {
        admission_open: true,
        session_deleted: false,
        environment: Environment::Connected,
        node,
        allocation: Allocation::Running,
        compute: Some(compute),
        stale: false,
        turn,
    }
}

fn queued(waited_ms: u64) -> Option<Turn> {
    Some(Turn { id: TURN, state: TurnState::Queued { waited_ms } })
}

fn asked(state: &State, step: Step) -> Asked<'_> {
    Asked { state, step, named: None, fresh: FRESH, ending: false }
}

fn conclude(state: &State, step: Step, outcome: &Outcome<'_>) -> Verdict {
    asked(state, step).conclude(outcome)
}

fn seen(compute: Compute<'static>, status: &'static str) -> ComputeState<'static> {
    let source_stopped = status == "suspended";
    ComputeState { compute, status: status.into(), bootstrap_complete: true, snapshot: None, source_stopped }
}

fn answer(state: ComputeState<'static>) -> Outcome<'static> {
    Ok(Answer::State(Box::new(state)))
}

fn capture(status: &'static str) -> Outcome<'static> {
    answer(ComputeState { snapshot: Some(snapshot()), ..seen(first(), status) })
}

fn uncertain(sent: bool) -> Outcome<'static> {
    Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent }))
}

fn failed(failure: Failure, state: Option<ComputeState<'static>>) -> Outcome<'static> {
    Err(CallError::Failed(Failed { failure, info: None, state: state.map(Box::new) }))
}

/// Deployment §4.4, all phases: what is done when somebody wants the sandbox and when nobody does.
#[rstest]
#[case(facts(Phase::Disabled), Some(Step::Identify), Some(Step::Identify))]
#[case(facts(Phase::Running), None, None)]
#[case(Facts { idle: true, ..facts(Phase::Running) }, None, Some(Step::Quiesce))]
#[case(Facts { idle: true, leftovers: true, ..facts(Phase::Running) }, None, Some(Step::RemoveLeftover))]
#[case(facts(Phase::Quiescing), Some(Step::Return), Some(Step::Suspend))]
#[case(facts(Phase::Suspending), Some(Step::Return), Some(Step::Suspend))]
#[case(handed(Phase::Suspending, 0), Some(Step::LookSuspend), Some(Step::LookSuspend))]
#[case(Facts { captured: true, ..handed(Phase::Suspending, 0) }, Some(Step::StopSource), Some(Step::StopSource))]
#[case(facts(Phase::Suspended), Some(Step::Plan), None)]
#[case(Facts { room: false, ..facts(Phase::Suspended) }, None, None)]
#[case(facts(Phase::Restoring), Some(Step::Restore), Some(Step::Restore))]
#[case(handed(Phase::Restoring, 299_999), Some(Step::LookRestore), Some(Step::LookRestore))]
#[case(handed(Phase::Restoring, 300_000), Some(Step::Replan), Some(Step::Replan))]
#[case(facts(Phase::Waking), Some(Step::Thaw), Some(Step::Thaw))]
fn each_phase_has_its_next_step(#[case] facts: Facts, #[case] wanted: Option<Step>, #[case] unwanted: Option<Step>) {
    assert_eq!(facts.step(ONLINE, true), wanted, "wanted");
    assert_eq!(facts.step(ONLINE, false), unwanted, "unwanted");
}

/// E14. While its node is away nothing is begun and nothing is given up; only a commit that needs no node is made.
#[test]
fn an_absent_node_stops_everything_but_a_return() {
    for phase in PHASES {
        for facts in [facts(phase), handed(phase, 600_000), Facts { idle: true, leftovers: true, ..facts(phase) }] {
            assert_eq!(facts.step(AWAY, false), None, "{phase:?}");
            let wanted = facts.step(AWAY, true);
            assert!(matches!(wanted, None | Some(Step::Return)), "{phase:?}: {wanted:?}");
        }
    }
}

/// D 51. A restore waits for a node that is ready for its generation, and for room there; it is never elsewhere.
#[test]
fn suspended_compute_waits_for_its_own_node() {
    let suspended = facts(Phase::Suspended);
    assert_eq!(suspended.step(NodeState::Unready, true), None);
    assert_eq!(Facts { room: false, ..suspended }.step(ONLINE, true), None);
    assert_eq!(suspended.step(ONLINE, true), Some(Step::Plan));
    assert_eq!(facts(Phase::Restoring).step(NodeState::Unready, true), None, "a resume needs a ready generation");
    assert_eq!(handed(Phase::Restoring, 0).step(NodeState::Unready, true), Some(Step::LookRestore));
}

/// E25. What was kept for long enough expires in every phase but the running ones, wherever its node is.
#[test]
fn what_was_kept_long_enough_expires() {
    for phase in PHASES {
        let facts = Facts { expired: true, ..handed(phase, 0) };
        let expires = !matches!(phase, Phase::Disabled | Phase::Running);
        for (node, wanted) in [(ONLINE, true), (ONLINE, false), (AWAY, true), (AWAY, false)] {
            assert_eq!(facts.step(node, wanted) == Some(Step::Expire), expires, "{phase:?}");
        }
    }
}

/// E22. Every phase accepts the end of its environment, whatever its node does, and then only removes.
#[test]
fn every_phase_accepts_its_end() {
    let ends = [
        |facts| Whole { session_deleted: true, ..facts },
        |facts| Whole { environment: Environment::Expired, ..facts },
        |facts| Whole { environment: Environment::Failed, ..facts },
    ];
    for phase in PHASES {
        for (node, compute) in [(ONLINE, facts(phase)), (AWAY, handed(phase, 1)), (AWAY, facts(phase))] {
            for end in ends {
                let step = Lifecycle::default().step(&end(whole(compute, node, None)), NOW);
                assert_eq!(step, Next::RequestCleanup, "{phase:?}");
            }
            let allocation = Allocation::CleanupPending { attempt: Attempt::Handed { ago_ms: 0 }, settled: true };
            let cleaning = Whole { allocation, ..whole(compute, node, None) };
            let looks = phase == Phase::Suspending && compute.handed_ms.is_some();
            let expected = if looks { Next::Compute(Step::LookSuspend) } else { Next::Kill };
            assert_eq!(Lifecycle::default().step(&cleaning, NOW), expected, "{phase:?}");
        }
    }
}

/// E22. A capture that nobody can tell anything about holds up a removal for five minutes and no longer.
#[test]
fn an_unknown_capture_does_not_hold_up_a_removal_for_ever() {
    assert!(handed(Phase::Suspending, 299_999).look_for_capture(true));
    assert!(!handed(Phase::Suspending, 300_000).look_for_capture(true));
    assert!(!Facts { captured: true, ..handed(Phase::Suspending, 0) }.look_for_capture(true));
    assert!(!facts(Phase::Suspending).look_for_capture(true));
    assert!(!handed(Phase::Restoring, 0).look_for_capture(true));
}

/// E22, promise 16. A node that was away for longer than a capture is looked for: it is asked when it is back, before
/// anything is removed. Once it could not tell for five minutes, everything goes.
#[test]
fn a_capture_is_looked_for_before_everything_goes_however_long_its_node_was_away() {
    let late = 300_000;
    let allocation = Allocation::CleanupPending { attempt: Attempt::Handed { ago_ms: late }, settled: true };
    let facts = Whole { allocation, ..whole(handed(Phase::Suspending, late), ONLINE, None) };
    let uncertain = |cause, sent| Err(CallError::Uncertain(Uncertain { cause, sent }));
    let look = Next::Compute(Step::LookSuspend);
    let mut owner = Lifecycle::default();
    let unreached =
        [uncertain(Cause::Unavailable, false), uncertain(Cause::Unavailable, true), uncertain(Cause::Deadline, false)];
    for outcome in unreached {
        owner.handle_capture_look(NOW, Some(late), &outcome, false);
        assert_eq!(owner.step(&facts, NOW.after(late)), look, "{outcome:?}");
    }
    let told = [Err(CallError::Failed(Failure::Unconfirmed.into())), uncertain(Cause::Deadline, true)];
    for outcome in told {
        let mut owner = owner.clone();
        owner.handle_capture_look(NOW, Some(late - 1), &outcome, false);
        assert_eq!(owner.step(&facts, NOW.after(late)), look, "it may have changed since");
        owner.handle_capture_look(NOW, Some(late), &outcome, false);
        owner.handle_capture_look(NOW.after(1), Some(late), &outcome, false);
        assert_eq!(owner.step(&facts, NOW.after(late - 1)), look, "its provider may only just be coming back");
        let later = NOW.after(late);
        assert_eq!(owner.step(&facts, later), Next::Kill, "{outcome:?}");
        let mut advanced = owner.clone();
        advanced.handle_compute(later, true);
        assert_eq!(advanced.step(&facts, later), look, "another capture is looked for anew");
        owner.conclude(later, Next::Kill, &Err(CallError::Failed(Failure::Unconfirmed.into())));
        owner.handle_hint();
        assert_eq!(owner.step(&facts, later), look, "a node that could not remove could not tell either");
    }
}

/// Promise 16. A capture may end between the last look for it and the removal of its source, however close they are: the
/// node is asked once more when nothing can be captured any more, and what it tells of is removed as well.
#[test]
fn a_capture_that_ended_just_before_the_removal_is_found_after_it() {
    let late = 300_000;
    let allocation = Allocation::CleanupPending { attempt: Attempt::Handed { ago_ms: late }, settled: true };
    let facts = |compute| Whole { allocation, ..whole(compute, ONLINE, None) };
    let unknown = facts(handed(Phase::Suspending, late));
    let (look, done) = (Next::Compute(Step::LookSuspend), Ok(Answer::Done));
    let cannot_tell = Err(CallError::Failed(Failure::Unconfirmed.into()));
    let mut owner = Lifecycle::default();
    owner.handle_capture_look(NOW, Some(late), &cannot_tell, false);
    let now = NOW.after(late);
    assert_eq!(owner.step(&unknown, now), Next::Kill);
    owner.conclude(now, Next::Kill, &done);
    assert_eq!(owner.step(&unknown, now), look, "what it could not tell before the removal says nothing of later");

    let uncertain = Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent: true }));
    owner.handle_capture_look(now, Some(late), &uncertain, false);
    assert_eq!(owner.step(&unknown, now), look, "an answer that was lost says nothing");
    let mut nothing = owner.clone();
    nothing.handle_capture_look(now, Some(late), &cannot_tell, false);
    let later = now.after(late);
    assert_eq!(nothing.step(&unknown, now.after(late - 1)), look, "its provider may only just be coming back");
    assert_eq!(nothing.step(&unknown, later), Next::Release, "nothing was captured, and nothing can be");

    let mut unwritten = owner.clone();
    unwritten.handle_capture_look(now, Some(late), &cannot_tell, true);
    unwritten.handle_compute(now, false);
    unwritten.handle_hint();
    let told = facts(Facts { captured: true, ..handed(Phase::Suspending, late) });
    assert_eq!(unwritten.step(&told, now), Next::Kill, "what the store took without saying so is removed as well");

    owner.handle_compute(now, true);
    assert_eq!(owner.step(&told, now), Next::Kill, "the snapshot is one of the things to remove now");
    owner.conclude(now, Next::Kill, &done);
    assert_eq!(owner.step(&told, now), Next::Release);

    nothing.conclude(now, Next::Kill, &done);
    assert_eq!(nothing.step(&unknown, now), look, "each removal is looked at by itself");
}

/// E23. A Turn waits five minutes for compute that does not run, from its own beginning or that of the phase.
#[rstest]
#[case(Phase::Disabled)]
#[case(Phase::Quiescing)]
#[case(Phase::Suspending)]
#[case(Phase::Suspended)]
#[case(Phase::Restoring)]
#[case(Phase::Waking)]
fn a_turn_does_not_wait_for_ever_for_compute(#[case] phase: Phase) {
    let step = |waited_ms, since_ms| {
        let compute = Facts { since_ms, room: false, ..facts(phase) };
        Lifecycle::default().step(&whole(compute, ONLINE, queued(waited_ms)), NOW)
    };
    let failed = Next::FailTurn(TURN, TurnError::NodeUnavailable);
    assert_eq!(step(TURN_OFFLINE_MAX_MS, TURN_OFFLINE_MAX_MS), failed);
    assert_ne!(step(TURN_OFFLINE_MAX_MS - 1, u64::MAX), failed);
    assert_ne!(step(u64::MAX, TURN_OFFLINE_MAX_MS - 1), failed);
    if phase == Phase::Suspended {
        assert_eq!(step(TURN_OFFLINE_MAX_MS - 7, u64::MAX), Next::Wait(NOW.after(7)), "no room");
        assert_eq!(step(0, 0), Next::Wait(NOW.after(30_000)), "room may come without a word");
    }
}

#[test]
fn a_turn_runs_only_while_the_compute_runs() {
    for phase in PHASES {
        let step = Lifecycle::default().step(&whole(facts(phase), ONLINE, queued(0)), NOW);
        assert_eq!(step == Next::Dispatch(TURN), phase == Phase::Running, "{phase:?}: {step:?}");
    }
}

/// D 56. A wrong jump, a state that is no object, a phase that is kept for ever and idling without a policy are refused
/// before any storage is asked.
#[test]
fn a_commit_is_checked_before_storage() {
    let later = Some(Timestamp(9));
    let change = |from, to| Change { from, to, state: "{}", retained_until: later, idle_seconds: 300 };
    for from in PHASES {
        for to in PHASES {
            let expected = if from.may_become(to) { Ok(()) } else { Err(Refused::Jump { from, to }) };
            assert_eq!(change(from, to).check(), expected);
        }
    }
    let waking = change(Phase::Restoring, Phase::Waking);
    for state in ["", "[]", "null", "1", "{", r#"{"a":1}x"#] {
        assert_eq!(Change { state, ..waking }.check(), Err(Refused::State), "{state}");
    }
    for retained_until in [None, Some(Timestamp(0))] {
        assert_eq!(Change { retained_until, ..waking }.check(), Err(Refused::Retention));
        assert_eq!(Change { retained_until, ..change(Phase::Waking, Phase::Running) }.check(), Ok(()));
    }
    let quiescing = change(Phase::Running, Phase::Quiescing);
    assert_eq!(Change { idle_seconds: 0, ..quiescing }.check(), Err(Refused::IdleTime));
    assert_eq!(Change { idle_seconds: 0, ..change(Phase::Quiescing, Phase::Quiescing) }.check(), Ok(()));
}

/// Deployment §4.4. Whatever is concluded or committed is a jump that the table allows.
#[test]
fn no_answer_leads_where_the_table_does_not() {
    let steps = [
        Step::Identify,
        Step::Quiesce,
        Step::Return,
        Step::Suspend,
        Step::LookSuspend,
        Step::StopSource,
        Step::Plan,
        Step::Restore,
        Step::LookRestore,
        Step::Replan,
        Step::Thaw,
        Step::RemoveLeftover,
    ];
    let outcomes = [
        Ok(Answer::Done),
        Ok(Answer::Compute(target())),
        answer(seen(first(), "running")),
        answer(seen(second(), "running")),
        capture("suspended"),
        capture("running"),
        capture("paused"),
        failed(Failure::CheckpointUnusable, None),
        failed(Failure::Unconfirmed, Some(seen(second(), "starting"))),
        uncertain(true),
        uncertain(false),
    ];
    for state in every_state() {
        let from = state.phase();
        for step in steps {
            let committed = [state.committed(step), state.handed(FRESH, 9)].into_iter().flatten();
            let concluded = outcomes.iter().filter_map(|outcome| match conclude(&state, step, outcome) {
                Verdict::Unknown => None,
                Verdict::Store(next) | Verdict::GiveUp(next) => Some(*next),
            });
            for next in committed.chain(concluded) {
                assert!(from.may_become(next.phase()), "{step:?}: {from:?} to {:?}", next.phase());
                assert_eq!(State::decode(next.phase(), &next.encode()), Some(next));
            }
        }
    }
}

#[test]
fn every_state_is_read_as_it_was_written() {
    for state in every_state() {
        let text = state.encode();
        assert!(text.starts_with('{'), "{text}");
        assert_eq!(State::decode(state.phase(), &text), Some(state));
    }
    assert!(running().encode().contains(r#""current":{"Generation":0,"Name":"name-g0","ID":"local:16""#));
    for (phase, text) in [
        (Phase::Running, "{}"),
        (Phase::Suspended, r#"{"current":null}"#),
        (Phase::Disabled, "[]"),
        (Phase::Disabled, r#"{"unknown":1}"#),
    ] {
        assert_eq!(State::decode(phase, text), None, "{text}");
    }
    assert_eq!(State::decode(Phase::Restoring, &suspended().encode()), None, "every phase has all of its own");
}

/// W 41. A suspend or resume that may have reached the node is only looked at; one that certainly did not is sent later.
#[test]
fn a_capture_that_may_have_been_sent_is_only_observed() {
    for (state, sent, looked) in
        [(suspending(), Step::Suspend, Step::LookSuspend), (restoring(), Step::Restore, Step::LookRestore)]
    {
        assert_eq!(conclude(&state, sent, &uncertain(true)), Verdict::Unknown);
        assert_eq!(conclude(&state, looked, &uncertain(false)), Verdict::Unknown, "the first may have been sent");
        let Verdict::Store(unsent) = conclude(&state, sent, &uncertain(false)) else { panic!("nothing was sent") };
        assert_eq!(unsent.handed_at(), None);
        assert_eq!(unsent.handed(FRESH, 9).and_then(|again| again.handed_at()), Some(9));
        assert_eq!(state.handed(FRESH, 9), None, "what was handed over is not handed over again");
    }
    let reference = Reference { tenant: TURN, environment: TURN, allocation: TURN };
    let operations = |state: &State| {
        let suspend = state.suspend(reference, true).map(|suspend| suspend.operation_id);
        suspend.or_else(|| state.resume(reference, true).map(|resume| resume.operation_id))
    };
    for state in [suspending(), captured(), restoring()] {
        assert_eq!(operations(&state).as_deref(), Some(&*OPERATION.to_string()));
    }
}

/// E24. An answer about another generation, name, identity or origin moves nothing.
#[test]
fn only_the_exact_incarnation_moves_a_phase() {
    let others = [
        Compute { generation: 2, ..first() },
        Compute { name: "other".into(), ..first() },
        Compute { id: "local:99".into(), ..first() },
        Compute { restored_from: Some(snapshot()), ..first() },
    ];
    for other in others {
        let captured = ComputeState { snapshot: Some(snapshot()), ..seen(other.clone(), "suspended") };
        assert_eq!(conclude(&suspending(), Step::Suspend, &answer(captured)), Verdict::Unknown);
        let waking = State::Waking { current: first(), leftovers: Vec::new() };
        assert_eq!(conclude(&waking, Step::Thaw, &answer(seen(other, "running"))), Verdict::Unknown);
    }
    let snapshots = [
        Snapshot { operation_id: FRESH.to_string().into(), ..snapshot() },
        Snapshot { source_generation: 1, ..snapshot() },
        Snapshot { source_name: "other".into(), ..snapshot() },
        Snapshot { source_id: "local:99".into(), ..snapshot() },
        Snapshot { digest: "".into(), ..snapshot() },
    ];
    for other in snapshots {
        let captured = ComputeState { snapshot: Some(other), ..seen(first(), "suspended") };
        assert_eq!(conclude(&suspending(), Step::LookSuspend, &answer(captured)), Verdict::Unknown);
    }
    let wrong = [Compute { generation: 2, ..target() }, Compute { id: "x".into(), ..target() }, first()];
    for plan in wrong {
        assert_eq!(conclude(&suspended(), Step::Plan, &Ok(Answer::Compute(plan))), Verdict::Unknown);
    }
}

#[test]
fn the_first_incarnation_is_the_named_one() {
    let named = Compute { id: "".into(), ..first() };
    let identify =
        |named| Asked { named, ..asked(&State::Disabled, Step::Identify) }.conclude(&answer(seen(first(), "running")));
    assert_eq!(identify(Some(&named)), running().into());
    assert_eq!(identify(None), Verdict::Unknown);
    assert_eq!(identify(Some(&Compute { name: "other".into(), ..named.clone() })), Verdict::Unknown);
}

/// What a suspend came to, asked or looked at.
#[test]
fn a_source_that_is_gone_is_suspended_and_one_that_is_there_wakes() {
    for step in [Step::Suspend, Step::LookSuspend] {
        assert_eq!(conclude(&suspending(), step, &capture("suspended")), suspended().into());
        assert_eq!(conclude(&captured(), step, &capture("suspended")), suspended().into());
        // Captured and paused: what is missing is the end of the source.
        assert_eq!(conclude(&suspending(), step, &capture("paused")), captured().into());
        assert_eq!(conclude(&captured(), step, &capture("paused")), Verdict::Unknown);
        // It went on after the capture: the capture is worth nothing.
        let leftovers = vec![Leftover::Snapshot(Box::new(snapshot()))];
        let went_on = State::Waking { current: first(), leftovers };
        assert_eq!(conclude(&suspending(), step, &capture("running")), went_on.into());
    }
    let intact = answer(seen(first(), "paused"));
    let woken = State::Waking { current: first(), leftovers: Vec::new() };
    assert_eq!(conclude(&suspending(), Step::LookSuspend, &intact), woken.into());
    assert_eq!(conclude(&suspending(), Step::Suspend, &intact), Verdict::Unknown, "only a look proves it");
    assert_eq!(conclude(&captured(), Step::LookSuspend, &intact), Verdict::Unknown, "the capture was seen before");
    assert_eq!(conclude(&suspending(), Step::LookSuspend, &answer(seen(first(), "crashed"))), Verdict::Unknown);
    assert_eq!(conclude(&captured(), Step::StopSource, &Ok(Answer::Done)), suspended().into());
    assert_eq!(conclude(&captured(), Step::StopSource, &uncertain(true)), Verdict::Unknown);
}

/// E22. When everything is to go, a look at a suspend only learns what there is to remove.
#[test]
fn a_look_before_a_removal_wakes_nothing() {
    let ending = |outcome| Asked { ending: true, ..asked(&suspending(), Step::LookSuspend) }.conclude(&outcome);
    assert_eq!(ending(capture("suspended")), captured().into());
    assert_eq!(ending(capture("running")), captured().into());
    let Verdict::Store(state) = ending(answer(seen(first(), "running"))) else { panic!("nothing was captured") };
    assert_eq!((state.phase(), state.handed_at()), (Phase::Suspending, None));
}

/// W 198. What a failed restore left is kept for the removal; an unknown one is looked at, by the identity that was seen.
#[test]
fn a_failed_restore_keeps_what_there_is_to_remove() {
    let with_target = |target| {
        let (source, snapshot) = (first(), Box::new(snapshot()));
        State::Restoring { source, snapshot, operation: OPERATION, target, handed_at: Some(5) }
    };
    let partial = Some(seen(second(), "starting"));
    let unusable = failed(Failure::CheckpointUnusable, partial.clone());
    for step in [Step::Restore, Step::LookRestore] {
        assert_eq!(conclude(&restoring(), step, &unusable), Verdict::GiveUp(Box::new(with_target(second()))));
        let unknown = failed(Failure::Unconfirmed, partial.clone());
        assert_eq!(conclude(&restoring(), step, &unknown), with_target(second()).into());
        assert_eq!(conclude(&with_target(second()), step, &unknown), Verdict::Unknown);
        assert_eq!(conclude(&restoring(), step, &answer(seen(second(), "running"))), waking().into());
    }
    let removals = with_target(second()).removals();
    let expected = [Operation::KillCompute(second()), Operation::DeleteSnapshot(snapshot()), Operation::Kill];
    assert_eq!(removals, expected, "incarnation 0 goes with the allocation");
}

/// Node-host §8.7. After five minutes without an answer the target is removed, and the next one has another name.
#[test]
fn an_unknown_target_is_removed_before_another_one_is_planned() {
    let (generation, origin) = restoring().plan().unwrap();
    assert_eq!((generation.get(), &origin), (2, &snapshot()));
    let next = Compute { generation: 2, name: "name-g2".into(), ..target() };
    let Verdict::Store(planned) = conclude(&restoring(), Step::Replan, &Ok(Answer::Compute(next.clone()))) else {
        panic!("planned")
    };
    let (source, snapshot) = (first(), Box::new(snapshot()));
    assert_eq!(*planned, State::Restoring { source, snapshot, operation: FRESH, target: next, handed_at: None });
    assert_eq!(conclude(&restoring(), Step::Replan, &Ok(Answer::Compute(target()))), Verdict::Unknown);
    assert_eq!(suspended().plan().unwrap().0.get(), 1);
}

/// The source and its snapshot are removed one after the other, once the restored incarnation was seen to run.
#[test]
fn a_snapshot_goes_after_its_restored_incarnation_runs() {
    assert_eq!(conclude(&waking(), Step::Thaw, &answer(seen(second(), "paused"))), Verdict::Unknown);
    let Verdict::Store(runs) = conclude(&waking(), Step::Thaw, &answer(seen(second(), "running"))) else {
        panic!("it runs")
    };
    assert!(runs.holds_snapshot());
    assert_eq!(runs.leftovers()[0].removal(), Operation::KillCompute(first()));
    assert_eq!(conclude(&runs, Step::RemoveLeftover, &uncertain(true)), Verdict::Unknown);
    let Verdict::Store(runs) = conclude(&runs, Step::RemoveLeftover, &Ok(Answer::Done)) else { panic!("removed") };
    assert_eq!(runs.leftovers()[0].removal(), Operation::DeleteSnapshot(snapshot()));
    let Verdict::Store(runs) = conclude(&runs, Step::RemoveLeftover, &Ok(Answer::Done)) else { panic!("removed") };
    assert_eq!(*runs, State::Running { current: second(), leftovers: Vec::new() });
    assert!(!runs.holds_snapshot());
}

/// Everything that any phase may have left on a node is named in its removal, the allocation itself last.
#[test]
fn a_removal_leaves_nothing_out() {
    for state in every_state() {
        let removals = state.removals();
        assert_eq!(removals.last(), Some(&Operation::Kill));
        let snapshots = removals.iter().filter(|removal| matches!(removal, Operation::DeleteSnapshot(_))).count();
        assert_eq!(snapshots, usize::from(state.holds_snapshot()), "{state:?}");
        let later = matches!(state.current(), Some(current) if current.generation > 0);
        assert_eq!(removals.contains(&Operation::KillCompute(second())), later, "{state:?}");
    }
}

/// A commit needs no node, and is made only in the state that it belongs to.
#[test]
fn a_commit_leads_from_its_own_state_to_the_next() {
    let quiescing = State::Quiescing { current: first() };
    let unhanded = State::Suspending { current: first(), operation: OPERATION, handed_at: None, snapshot: None };
    let woken = State::Waking { current: first(), leftovers: Vec::new() };
    for state in every_state().into_iter().chain([unhanded.clone()]) {
        let quiesced = (state == running()).then(|| quiescing.clone());
        assert_eq!(state.committed(Step::Quiesce), quiesced, "{state:?}");
        let returned = if state == quiescing { Some(running()) } else { (state == unhanded).then(|| woken.clone()) };
        assert_eq!(state.committed(Step::Return), returned, "{state:?}");
        assert_eq!(state.committed(Step::Suspend), None, "{state:?}");
    }
}

/// What another incarnation shows settles no doubt about the one that should run.
#[test]
fn only_the_current_incarnation_settles_a_doubt() {
    let plain = Whole { compute: None, ..whole(facts(Phase::Running), ONLINE, None) };
    for status in ["running", "crashed"] {
        for (shown, settled) in [(second(), true), (first(), false)] {
            let mut owner = Lifecycle::default();
            owner.conclude(NOW, Next::Dispatch(TURN), &failed(Failure::NotFound, None));
            assert_eq!(owner.step(&plain, NOW), Next::Verify);
            assert_eq!(owner.conclude_look(NOW, Next::Verify, &second(), &answer(seen(shown, status))), vec![]);
            let next = owner.step(&plain, NOW.after(60_000));
            assert_eq!(next != Next::Verify, settled, "{status}: {next:?}");
        }
    }
}

/// Promise 16. A sandbox that nobody has seen for a while is looked for; that it is not seen is said, and nothing more.
#[test]
fn a_running_sandbox_is_looked_for_and_given_up_only_by_a_receipt() {
    let plain = Whole { compute: None, stale: true, ..whole(facts(Phase::Running), ONLINE, None) };
    let mut owner = Lifecycle::default();
    assert_eq!(owner.step(&plain, NOW), Next::Confirm);
    assert_eq!(owner.step(&Whole { node: AWAY, ..plain }, NOW), Next::Rest, "an absent node proves nothing");
    assert_eq!(owner.step(&Whole { turn: queued(0), ..plain }, NOW), Next::Dispatch(TURN));
    let looked = |diagnostic| vec![Written::Looked(diagnostic)];
    let mut look = |outcome: &Outcome<'_>| owner.conclude(NOW, Next::Confirm, outcome);
    assert_eq!(look(&failed(Failure::NotFound, None)), looked(AllocationDiagnostic::ResourceMissing));
    assert_eq!(look(&failed(Failure::Ownership, None)), looked(AllocationDiagnostic::OwnershipMismatch));
    assert_eq!(look(&failed(Failure::Unconfirmed, None)), looked(AllocationDiagnostic::ComputeUnconfirmed));
    assert_eq!(look(&failed(Failure::Invalid, None)), looked(AllocationDiagnostic::ProviderUnavailable));
    assert_eq!(look(&uncertain(true)), vec![], "a call without an answer says nothing");
    let mut later = |outcome: &Outcome<'_>| owner.conclude_look(NOW, Next::Confirm, &second(), outcome);
    assert_eq!(later(&answer(seen(second(), "running"))), looked(AllocationDiagnostic::None));
    assert_eq!(later(&answer(seen(second(), "crashed"))), looked(AllocationDiagnostic::ComputeUnconfirmed));
    assert_eq!(later(&failed(Failure::NotFound, None)), looked(AllocationDiagnostic::ResourceMissing));
    assert_eq!(later(&answer(seen(first(), "running"))), looked(AllocationDiagnostic::ComputeUnconfirmed));
}
