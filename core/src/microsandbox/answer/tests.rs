use super::*;

pub(in crate::microsandbox) fn allocation(number: u8) -> Reference {
    let id = |byte| Id::from_random([byte; 16]);
    Reference { tenant: id(10), environment: id(11), allocation: id(100 + number) }
}

pub(in crate::microsandbox) fn names(number: u8) -> Names {
    Names::of(Id::from_random([1; 16]), allocation(number))
}

/// The machine that was created, as it was seen.
pub(in crate::microsandbox) fn made(number: u8) -> Compute<'static> {
    Compute { id: "native-0".into(), ..initial(&names(number)) }
}

/// A snapshot of it.
pub(in crate::microsandbox) fn taken(number: u8) -> Snapshot<'static> {
    let operation = Id::from_random([9; 16]);
    Snapshot {
        reference: names(number).snapshot(operation).to_string().into(),
        id: "snapshot".into(),
        digest: "digest".into(),
        checkpoint_id: "checkpoint".into(),
        checkpoint_root: "root".into(),
        operation_id: operation.to_string().into(),
        source_generation: 0,
        source_name: names(number).compute(0).into(),
        source_id: "native-0".into(),
    }
}

/// What is restored from that.
pub(in crate::microsandbox) fn restored(number: u8) -> Compute<'static> {
    let name = names(number).compute(1).into();
    Compute { generation: 1, name, id: "native-1".into(), restored_from: Some(taken(number)) }
}

fn seen(compute: Compute<'static>, status: &'static str) -> ComputeState<'static> {
    ComputeState { compute, status: status.into(), bootstrap_complete: true, snapshot: None, source_stopped: false }
}

fn answer(state: ComputeState<'static>) -> Response<'static> {
    Response { failure: None, state: Some(state), command: None, metrics: None, create_settled: false }
}

fn unknown_id(compute: Compute<'static>) -> Compute<'static> {
    Compute { id: "".into(), ..compute }
}

/// H 199. The native identity is learned once, and every answer must have it from then on.
#[test]
fn a_native_identity_never_changes() {
    let good = || answer(seen(made(1), RUNNING));
    assert_eq!(state(good(), &unknown_id(made(1))).unwrap().compute, made(1));
    assert_eq!(state(good(), &made(1)).unwrap().compute, made(1));
    let other = Compute { id: "native-2".into(), ..made(1) };
    assert_eq!(state(good(), &other), Err(Failure::Ownership));
    for wrong in [Compute { name: names(2).compute(0).into(), ..made(1) }, Compute { generation: 1, ..made(1) }] {
        assert_eq!(state(answer(seen(wrong, RUNNING)), &made(1)), Err(Failure::Ownership));
    }
    assert_eq!(state(answer(seen(unknown_id(made(1)), RUNNING)), &made(1)), Err(Failure::Unconfirmed));
    assert_eq!(state(Response { state: None, ..good() }, &made(1)), Err(Failure::Unconfirmed));
    let failed = Response { failure: Some(Failure::NotFound), ..good() };
    assert_eq!(state(failed, &made(1)), Err(Failure::NotFound));
}

pub(in crate::microsandbox) fn resume() -> Resume<'static> {
    Resume {
        workspace: None,
        reference: told(&allocation(1), "", "", false, false).reference,
        operation_id: Id::from_random([7; 16]).to_string().into(),
        snapshot: taken(1),
        target: unknown_id(restored(1)),
        observe_only: false,
    }
}

/// H 200. A target is made of exactly the snapshot that it was asked from.
#[test]
fn a_target_keeps_its_provenance() {
    assert_eq!(resumed(answer(seen(restored(1), RUNNING)), &resume()).unwrap().compute, restored(1));
    for from in [
        None,
        Some(Snapshot { id: "other".into(), ..taken(1) }),
        Some(Snapshot { checkpoint_root: "other".into(), ..taken(1) }),
        Some(taken(2)),
    ] {
        let other = Compute { restored_from: from, ..restored(1) };
        assert_eq!(resumed(answer(seen(other, RUNNING)), &resume()), Err(Failure::Ownership));
    }
    for status in [PAUSED, "starting", "stopped", ""] {
        assert_eq!(resumed(answer(seen(restored(1), status)), &resume()), Err(Failure::Unconfirmed), "{status}");
    }
    let unfinished = ComputeState { bootstrap_complete: false, ..seen(restored(1), RUNNING) };
    assert_eq!(resumed(answer(unfinished), &resume()), Err(Failure::Unconfirmed));
}

/// A failed resume may leave a machine behind: only exactly the target is told of.
#[test]
fn what_a_failed_resume_left_is_told_only_of_the_target() {
    let failed = |state| Response { failure: Some(Failure::Unconfirmed), ..answer(state) };
    let left = seen(restored(1), "stopped");
    assert_eq!(left_behind(&failed(left.clone()), &resume()), Some(left.clone()));
    assert_eq!(left_behind(&answer(left), &resume()), None, "nothing failed");
    for other in
        [unknown_id(restored(1)), restored(2), made(1), Compute { restored_from: Some(taken(2)), ..restored(1) }]
    {
        assert_eq!(left_behind(&failed(seen(other, "stopped")), &resume()), None);
    }
}

fn suspend(observe_only: bool) -> Suspend<'static> {
    Suspend {
        reference: told(&allocation(1), "", "", false, false).reference,
        operation_id: taken(1).operation_id,
        source: made(1),
        snapshot: None,
        observe_only,
    }
}

fn capture(status: &'static str, source_stopped: bool) -> ComputeState<'static> {
    ComputeState { snapshot: Some(taken(1)), source_stopped, ..seen(made(1), status) }
}

/// H 202. An observation keeps a snapshot whose source is still resident; only a suspend itself must have stopped it.
#[test]
fn an_observation_keeps_a_resident_source() {
    let resident = || answer(capture(PAUSED, false));
    let kept = suspended(&names(1), resident(), &suspend(true)).unwrap();
    assert_eq!((kept.snapshot, kept.source_stopped, &*kept.status), (Some(taken(1)), false, PAUSED));
    assert_eq!(suspended(&names(1), resident(), &suspend(false)), Err(Failure::Unconfirmed));
    for observe_only in [true, false] {
        assert!(suspended(&names(1), answer(capture("stopped", true)), &suspend(observe_only)).is_ok());
    }
}

#[test]
fn a_capture_is_of_this_operation_and_source() {
    let told = |state| suspended(&names(1), answer(state), &suspend(true));
    let with = |snapshot| ComputeState { snapshot: Some(snapshot), ..capture(PAUSED, false) };
    assert!(told(with(taken(1))).is_ok());
    let other = Id::from_random([8; 16]);
    let renamed = names(1).snapshot(other).to_string().into();
    let another = Snapshot { reference: renamed, operation_id: other.to_string().into(), ..taken(1) };
    assert_eq!(told(with(another)), Err(Failure::Ownership), "another operation's");
    assert_eq!(told(with(Snapshot { source_id: "native-2".into(), ..taken(1) })), Err(Failure::Ownership));
    assert_eq!(told(with(taken(2))), Err(Failure::Ownership));
    let later = Snapshot { source_generation: 1, source_name: names(1).compute(1).into(), ..taken(1) };
    assert_eq!(told(with(later)), Err(Failure::Ownership), "of another machine of the same sandbox");
    assert_eq!(told(with(Snapshot { reference: "/snapshot".into(), ..taken(1) })), Err(Failure::Invalid));
    let known = Suspend { snapshot: Some(Snapshot { digest: "other".into(), ..taken(1) }), ..suspend(true) };
    let changed = suspended(&names(1), answer(capture(PAUSED, false)), &known);
    assert_eq!(changed, Err(Failure::Ownership), "it is not the one that was reported before");
}

/// H 205. Without a snapshot only a source that runs or is held, and is complete, can go on; a snapshot that was reported
/// and is missing now is no word of anything.
#[test]
fn only_an_intact_source_goes_on_without_a_snapshot() {
    let observed = |state, asked: &Suspend<'static>| suspended(&names(1), answer(state), asked);
    for status in [RUNNING, PAUSED] {
        assert!(observed(seen(made(1), status), &suspend(true)).is_ok(), "{status}");
        assert_eq!(observed(seen(made(1), status), &suspend(false)), Err(Failure::Unconfirmed), "{status}");
    }
    for status in ["stopped", "crashed", "draining", "starting", ABSENT, "", "Running"] {
        assert_eq!(observed(seen(made(1), status), &suspend(true)), Err(Failure::Unconfirmed), "{status}");
    }
    let unfinished = ComputeState { bootstrap_complete: false, ..seen(made(1), RUNNING) };
    assert_eq!(observed(unfinished, &suspend(true)), Err(Failure::Unconfirmed));
    let stopped = ComputeState { source_stopped: true, ..seen(made(1), RUNNING) };
    assert_eq!(observed(stopped, &suspend(true)), Err(Failure::Unconfirmed));
    let known = Suspend { snapshot: Some(taken(1)), ..suspend(true) };
    assert_eq!(observed(seen(made(1), RUNNING), &known), Err(Failure::Unconfirmed));
}

/// A creation that was refused for its configuration, with its machine there.
fn refusal() -> Response<'static> {
    let state = ComputeState { bootstrap_complete: false, ..seen(made(1), "running") };
    Response { failure: Some(Failure::Invalid), create_settled: true, ..answer(state) }
}

fn receipt(response: &Response<'_>) -> Option<Info<'static>> {
    rejected(&names(1), &allocation(1), response)
}

/// H 207. Of fourteen answers to a creation exactly one settles it beside its failure.
#[test]
fn a_rejected_configuration_settles_in_one_exact_case() {
    let settled = receipt(&refusal()).unwrap();
    assert_eq!((&*settled.provider_id, &*settled.state), ("native-0", "running"));
    assert!(settled.create_settled && !settled.bootstrap_complete && allocation(1).is(&settled.reference));
    let with = |change: fn(&mut ComputeState<'static>)| {
        let mut response = refusal();
        change(response.state.as_mut().unwrap());
        response
    };
    let others = [
        Response { failure: None, ..refusal() },
        Response { failure: Some(Failure::Unconfirmed), ..refusal() },
        Response { failure: Some(Failure::Exists), ..refusal() },
        Response { create_settled: false, ..refusal() },
        Response { state: None, ..refusal() },
        with(|state| state.compute.id = "".into()),
        with(|state| state.compute.generation = 1),
        with(|state| state.compute.name = names(2).compute(0).into()),
        with(|state| state.compute.restored_from = Some(taken(1))),
        with(|state| state.status = "".into()),
        with(|state| state.status = ABSENT.into()),
        with(|state| state.bootstrap_complete = true),
        with(|state| state.source_stopped = true),
    ];
    assert_eq!(others.len(), 13);
    for other in others {
        assert_eq!(receipt(&other), None, "{other:?}");
    }
    assert_eq!(receipt(&with(|state| state.snapshot = Some(taken(1)))), None);
}

/// H 208. Whatever an observation of a machine that is there says of its creation, it settles nothing.
#[test]
fn an_observation_of_a_machine_settles_nothing() {
    for (create_settled, bootstrap_complete) in [(true, true), (true, false), (false, true), (false, false)] {
        let state = ComputeState { bootstrap_complete, ..seen(made(1), RUNNING) };
        let told = info(&names(1), &allocation(1), Response { create_settled, ..answer(state) }).unwrap();
        assert!(!told.create_settled);
        assert_eq!(
            (&*told.provider_id, &*told.state, told.bootstrap_complete),
            ("native-0", RUNNING, bootstrap_complete)
        );
    }
    let missing = Response {
        failure: Some(Failure::NotFound),
        state: None,
        create_settled: true,
        ..answer(seen(made(1), RUNNING))
    };
    assert_eq!(info(&names(1), &allocation(1), missing), Err(Failure::NotFound), "and a missing one neither");
}

/// H 209. The receipt of an absence is one exact answer.
#[test]
fn an_absence_is_exact() {
    let nothing = || ComputeState { bootstrap_complete: false, ..seen(unknown_id(made(1)), ABSENT) };
    let receipt = || Response { create_settled: true, ..answer(nothing()) };
    let told = |response| info(&names(1), &allocation(1), response);
    let settled = told(receipt()).unwrap();
    assert!(settled.create_settled && settled.provider_id.is_empty() && settled.state == ABSENT);
    assert!(crate::outcome::is_receipt(&settled, &allocation(1)));
    let with = |state| Response { state: Some(state), ..receipt() };
    for other in [
        Response { create_settled: false, ..receipt() },
        Response { failure: Some(Failure::NotFound), ..receipt() },
        Response { state: None, ..receipt() },
        with(ComputeState { status: "".into(), ..nothing() }),
        with(ComputeState { status: "gone".into(), ..nothing() }),
        with(ComputeState { bootstrap_complete: true, ..nothing() }),
        with(ComputeState { source_stopped: true, ..nothing() }),
        with(ComputeState { snapshot: Some(taken(1)), ..nothing() }),
        with(ComputeState { compute: made(1), ..nothing() }),
        with(ComputeState { compute: Compute { generation: 1, ..unknown_id(made(1)) }, ..nothing() }),
        with(ComputeState { compute: unknown_id(made(2)), ..nothing() }),
    ] {
        let told = told(other.clone());
        assert!(told.as_ref().is_ok_and(|info| !info.create_settled) || told.is_err(), "{other:?}");
    }
}

/// H 210. An observation of one machine never asks whether its creation left nothing.
#[test]
fn only_the_allocation_asks_for_a_receipt() {
    let asked = |method| observation(method);
    assert_eq!([asked(Method::GetInfo), asked(Method::Renew)], [Some(Operation::InitialInfo); 2]);
    assert_eq!(asked(Method::GetCompute), Some(Operation::Inspect));
    let others =
        Method::ALL.into_iter().filter(|method| ![Method::GetInfo, Method::Renew, Method::GetCompute].contains(method));
    assert!(others.into_iter().all(|method| asked(method).is_none()));
}
