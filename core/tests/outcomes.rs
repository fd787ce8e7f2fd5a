//! What a call came to, on the node's side and on Core's (wire §2.11, §3.4, §6).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod samples;

use palisade_core::limits::STREAM_MAX_BYTES;
use palisade_core::operation::{Asked, Declaration, Entry, InvalidDeclaration, Method, is_reason};
use palisade_core::outcome::{Answer, Failed, Failure, code, is_receipt, judge, refusal, uncertain, unknown};
use palisade_core::units::Id;
use palisade_core::wire::frame::Response;
use palisade_core::wire::payload::{
    CommandResult, Compute, ComputeState, Info, Reference, Sample, UnsupportedEvidence,
};
use palisade_core::wire::{Frame, decode};
use rstest::rstest;

const TENANT: Id = Id::from_random([1; 16]);
const ENVIRONMENT: Id = Id::from_random([2; 16]);
const REFERENCE: Reference =
    Reference { tenant: TENANT, environment: ENVIRONMENT, allocation: Id::from_random([3; 16]) };
const FOREIGN: Reference = Reference { tenant: TENANT, environment: ENVIRONMENT, allocation: Id::from_random([4; 16]) };

fn asked(method: Method) -> Asked {
    let target = (method == Method::Resume).then(target);
    Asked { id: Id::from_random([9; 16]), method, reference: REFERENCE, target }
}

fn target() -> Compute<'static> {
    let text = samples::response(&format!(r#""compute":{}"#, samples::target()));
    match samples::decodes(&text) {
        Frame::Response(response) => palisade_core::wire::IntoOwned::into_owned(response.compute.unwrap()),
        _ => unreachable!(),
    }
}

fn info(reference: Reference, provider_id: &'static str, state: &'static str, flags: (bool, bool)) -> Info<'static> {
    Info {
        reference: reference.into(),
        provider_id: provider_id.into(),
        state: state.into(),
        bootstrap_complete: flags.0,
        create_settled: flags.1,
    }
}

fn absent() -> Info<'static> {
    info(REFERENCE, "", "absent", (false, true))
}

fn state(compute: Compute<'static>) -> ComputeState<'static> {
    ComputeState { compute, status: "running".into(), bootstrap_complete: true, snapshot: None, source_stopped: false }
}

fn command(stdout: usize, stderr: usize) -> CommandResult<'static> {
    CommandResult { stdout: "o".repeat(stdout).into(), stderr: "e".repeat(stderr).into(), exit_code: 3 }
}

fn sample(cpu: f64) -> Sample<'static> {
    Sample {
        observed_at: "2026-10-01T08:00:09Z".into(),
        started_at: None,
        cpu_usage_seconds_total: Some(cpu),
        cpu_capacity_cores: None,
        cpu_utilization_ratio: None,
        memory_usage_bytes: Some(0),
        memory_limit_bytes: None,
        disk_usage_bytes: None,
        disk_limit_bytes: None,
    }
}

fn answer(method: Method) -> Answer<'static> {
    let mut restored = target();
    restored.id = "local:17".into();
    match method {
        Method::Create | Method::GetInfo | Method::Renew => {
            Answer::Info(info(REFERENCE, "native-17", "running", (true, false)))
        }
        Method::Initial | Method::NewCompute => Answer::Compute(target()),
        Method::GetCompute | Method::ResumeCompute | Method::Suspend | Method::Resume => {
            Answer::State(Box::new(state(restored)))
        }
        Method::RunCommand | Method::RunCommandCompute => Answer::Command(command(3, 0)),
        Method::Observe => Answer::Sample(sample(0.0)),
        Method::RestorePreparation => Answer::Restored(false),
        Method::Kill | Method::KillCompute | Method::DeleteSnapshot | Method::SavePreparation => Answer::Done,
    }
}

/// What the node answers, as it arrives.
fn respond(asked: &Asked, outcome: Result<Answer<'_>, Failed<'_>>) -> Response<'static> {
    let text = palisade_core::outcome::respond(TENANT, asked, outcome);
    let Ok(Frame::Response(response)) = decode(&text) else { panic!("no response") };
    assert_eq!(response.connection_id, Some(TENANT));
    palisade_core::wire::IntoOwned::into_owned(*response)
}

/// Over the wire and back: what Core's caller is told of what the node's provider did.
fn travel(
    asked: &Asked,
    outcome: Result<Answer<'static>, Failed<'static>>,
) -> Result<Answer<'static>, Failed<'static>> {
    judge(asked, respond(asked, outcome))
}

fn fails(method: Method, change: impl FnOnce(&mut Response<'static>)) -> Failed<'static> {
    let mut response = respond(&asked(method), Ok(answer(method)));
    change(&mut response);
    judge(&asked(method), response).expect_err("no success")
}

/// W 118. W 199. W 200.
#[test]
fn every_success_arrives_as_it_was() {
    for method in Method::ALL {
        assert_eq!(travel(&asked(method), Ok(answer(method))), Ok(answer(method)), "{method}");
    }
    for restored in [false, true] {
        let outcome = Ok(Answer::Restored(restored));
        assert_eq!(travel(&asked(Method::RestorePreparation), outcome.clone()), outcome);
    }
}

/// W 103. W 124. W 197. A failure arrives as it was from the methods it may come from; from any other, nobody knows.
#[rstest]
#[case(Failure::Invalid, &Method::ALL)]
#[case(Failure::Ownership, &Method::ALL)]
#[case(Failure::NotFound, &Method::ALL)]
#[case(Failure::Exists, &Method::ALL)]
#[case(Failure::CommandUnconfirmed, &[Method::RunCommand, Method::RunCommandCompute])]
#[case(Failure::ObservationUnavailable, &[Method::Observe])]
#[case(Failure::RuntimeNotRunning, &[Method::Observe])]
#[case(Failure::CheckpointUnusable, &[Method::Resume])]
fn every_failure_arrives_as_it_was_from_where_it_may_come(#[case] failure: Failure, #[case] from: &[Method]) {
    for method in Method::ALL {
        let told = travel(&asked(method), Err(failure.clone().into()));
        let sent = Response { id: "x".into(), error_code: Some(code(&failure).into()), ..Response::default() };
        let read = judge(&asked(method), sent).unwrap_err();
        if from.contains(&method) {
            assert_eq!((told, read), (Err(failure.clone().into()), failure.clone().into()), "{method}");
        } else {
            let nobody_knows = |failure: Failure| {
                [unknown(method), Failure::Unconfirmed, Failure::ObservationUnavailable].contains(&failure)
            };
            assert!(nobody_knows(told.unwrap_err().failure) && nobody_knows(read.failure), "{method}");
        }
    }
}

/// W 103. W 126.
#[test]
fn typed_unsupported_arrives_with_its_evidence() {
    let failure =
        Failure::Unsupported { method: "Observe".to_owned(), reason: "native_metrics_not_supported".to_owned() };
    assert_eq!(travel(&asked(Method::Observe), Err(failure.clone().into())), Err(failure.into()));
}

fn evidence(operation: Option<&'static str>, reason: Option<&'static str>) -> UnsupportedEvidence<'static> {
    UnsupportedEvidence { operation: operation.map(Into::into), reason: reason.map(Into::into) }
}

/// W 104. W 105. W 106. W 126.
#[rstest]
#[case::none("unsupported", None)]
#[case::empty("unsupported", Some(evidence(None, None)))]
#[case::no_reason("unsupported", Some(evidence(Some("RunCommand"), None)))]
#[case::no_method("unsupported", Some(evidence(None, Some("a"))))]
#[case::unsafe_reason("unsupported", Some(evidence(Some("RunCommand"), Some("A"))))]
#[case::other_method("unsupported", Some(evidence(Some("Create"), Some("a"))))]
#[case::wire_name("unsupported", Some(evidence(Some("command"), Some("a"))))]
#[case::beside_another_code("not_found", Some(evidence(Some("RunCommand"), Some("a"))))]
fn unsound_evidence_of_an_unsupported_operation_is_unconfirmed(
    #[case] code: &'static str,
    #[case] unsupported: Option<UnsupportedEvidence<'static>>,
) {
    let told = fails(Method::RunCommand, |response| {
        *response = Response { id: "x".into(), error_code: Some(code.into()), unsupported, ..Response::default() };
    });
    assert_eq!(told, Failure::Unconfirmed.into());
    let beside_success = fails(Method::RunCommand, |response| {
        response.unsupported = Some(evidence(Some("RunCommand"), Some("a")));
    });
    assert_eq!(beside_success, Failure::Unconfirmed.into());
}

/// W 126. In evidence and in declarations.
#[test]
fn reason_is_valid_exactly_as_in_the_vectors() {
    let text = include_str!("../../vectors/observation_reasons.json");
    let vectors: serde_json::Value = serde_json::from_str(text).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let (reason, valid) = (case["reason"].as_str().unwrap(), case["valid"].as_bool().unwrap());
        assert_eq!(is_reason(reason), valid, "{reason:?}");
        let entries = Method::ALL.map(|method| match method {
            Method::Observe => Entry { method: method.name(), state: "unsupported", reason: Some(reason) },
            _ => Entry { method: method.name(), state: "supported", reason: None },
        });
        let expected = if valid { Ok(()) } else { Err(InvalidDeclaration::Reason(Method::Observe)) };
        assert_eq!(Declaration::read(entries).map(drop), expected, "{reason:?}");
        let asked = asked(Method::Observe);
        let unsupported = UnsupportedEvidence { operation: Some("Observe".into()), reason: Some(reason.into()) };
        let code = Some("unsupported".into());
        let response =
            Response { id: "x".into(), error_code: code, unsupported: Some(unsupported), ..Response::default() };
        let told = judge(&asked, response).unwrap_err().failure;
        assert_eq!(matches!(told, Failure::Unsupported { .. }), valid, "{reason:?}");
    }
}

#[test]
fn declaration_entry_that_contradicts_itself_is_refused() {
    let entries = |at: usize, entry: Entry<'static>| {
        let mut all = Method::ALL.map(|method| Entry { method: method.name(), state: "supported", reason: None });
        all[at] = entry;
        Declaration::read(all)
    };
    let entry = |state, reason| entries(5, Entry { method: "Observe", state, reason });
    assert_eq!(entry("supported", Some("a")), Err(InvalidDeclaration::State(Method::Observe)));
    assert_eq!(entry("unsupported", None), Err(InvalidDeclaration::State(Method::Observe)));
    assert_eq!(entry("", None), Err(InvalidDeclaration::State(Method::Observe)));
    let unknown = entries(5, Entry { method: "ObserveBatch", state: "supported", reason: None });
    assert_eq!(unknown, Err(InvalidDeclaration::Unknown));
}

/// W 110. W 111. W 113. W 114. W 115. W 116. W 117. H 254.
#[rstest]
#[case::rejected_before_bootstrap(info(REFERENCE, "native-17", "created", (false, true)), true)]
#[case::confirmed_absent(absent(), true)]
#[case::unsettled(info(REFERENCE, "native-17", "running", (true, false)), false)]
#[case::foreign(info(FOREIGN, "", "absent", (false, true)), false)]
#[case::absent_but_ready(info(REFERENCE, "", "absent", (true, true)), false)]
#[case::absent_with_identity(info(REFERENCE, "native-17", "absent", (false, true)), false)]
#[case::no_identity(info(REFERENCE, "", "running", (false, true)), false)]
fn failure_keeps_only_a_receipt(
    #[case] info: Info<'static>,
    #[case] receipt: bool,
    #[values(Method::Create, Method::GetInfo, Method::Renew)] method: Method,
    #[values(Failure::Unconfirmed, Failure::Exists, Failure::NotFound)] failure: Failure,
) {
    assert_eq!(is_receipt(&info, &REFERENCE), receipt);
    let failed = Failed { failure: failure.clone(), info: Some(info.clone()), state: None };
    let expected = Failed { failure: failure.clone(), info: receipt.then(|| info.clone()), state: None };
    assert_eq!(travel(&asked(method), Err(failed.clone())), Err(expected.clone()), "the node keeps it");
    let error_code = Some(code(&failure).into());
    let response = Response { id: "x".into(), error_code, info: Some(info), ..Response::default() };
    assert_eq!(judge(&asked(method), response), Err(expected), "Core keeps it");
}

/// W 131. A refusal before anything native is unsupported over the wire and keeps its absent receipt.
#[test]
fn a_refused_workspace_keeps_its_settled_absence() {
    let refused = |method: Method| Failed {
        failure: Failure::Unsupported {
            method: method.name().to_owned(),
            reason: "external_workspace_unsupported".to_owned(),
        },
        info: Some(absent()),
        state: None,
    };
    assert_eq!(travel(&asked(Method::Create), Err(refused(Method::Create))), Err(refused(Method::Create)));
    let resumed = travel(&asked(Method::Resume), Err(refused(Method::Resume))).unwrap_err();
    assert_eq!(resumed, Failed { info: None, ..refused(Method::Resume) }, "a resume settles no creation");
    let other = travel(&asked(Method::Create), Err(refused(Method::Resume))).unwrap_err();
    assert_eq!(other.failure, Failure::Unconfirmed, "evidence of another method is none");
}

/// W 112. W 117.
#[test]
fn success_needs_an_identity_or_an_absent_receipt() {
    let judged = |info: Info<'static>| fails_or(Method::GetInfo, info);
    assert_eq!(judged(absent()), Ok(Answer::Info(absent())));
    for unsound in [
        info(REFERENCE, "", "running", (true, false)),
        info(REFERENCE, "", "absent", (true, true)),
        info(REFERENCE, "", "absent", (false, false)),
        info(FOREIGN, "native-17", "running", (true, false)),
    ] {
        assert_eq!(judged(unsound), Err(Failure::Unconfirmed.into()));
    }
}

fn fails_or(method: Method, info: Info<'static>) -> Result<Answer<'static>, Failed<'static>> {
    travel(&asked(method), Ok(Answer::Info(info)))
}

/// W 198.
#[rstest]
#[case::matching(|_: &mut Compute<'static>| {}, true)]
#[case::no_id(|compute: &mut Compute<'static>| compute.id = "".into(), false)]
#[case::name(|compute: &mut Compute<'static>| compute.name = "other".into(), false)]
#[case::generation(|compute: &mut Compute<'static>| compute.generation = 2, false)]
#[case::provenance(|compute: &mut Compute<'static>| compute.restored_from = None, false)]
fn failed_resume_keeps_only_the_requested_target(
    #[case] change: fn(&mut Compute<'static>),
    #[case] kept: bool,
    #[values(Failure::Unconfirmed, Failure::CheckpointUnusable)] failure: Failure,
) {
    let mut compute = target();
    compute.id = "local:17".into();
    change(&mut compute);
    let state = Box::new(state(compute));
    let failed = Failed { failure: failure.clone(), info: None, state: Some(state.clone()) };
    let expected = Failed { failure: failure.clone(), info: None, state: kept.then(|| state.clone()) };
    assert_eq!(travel(&asked(Method::Resume), Err(failed)), Err(expected.clone()), "the node keeps it");
    let error_code = Some(code(&failure).into());
    let response = Response { id: "x".into(), error_code, state: Some(state), ..Response::default() };
    assert_eq!(judge(&asked(Method::Resume), response), Err(expected), "Core keeps it");
}

/// W 200. W 210.
#[test]
fn success_without_its_result_or_with_a_foreign_one_is_unknown() {
    for method in Method::ALL {
        let result = !matches!(answer(method), Answer::Done);
        let bare = judge(&asked(method), Response { id: "x".into(), ..Response::default() });
        if result {
            assert_eq!(bare, Err(uncertain(method, false).into()), "{method}");
        } else {
            assert_eq!(bare, Ok(Answer::Done));
        }
        let expected = if method == Method::Observe { Failure::ObservationUnavailable } else { Failure::Unconfirmed };
        let foreign = fails(method, |response| match response.restored {
            None => response.restored = Some(true),
            Some(_) => response.compute = Some(target()),
        });
        assert_eq!(foreign, expected.into(), "{method}");
    }
    let empty_id = fails(Method::Suspend, |response| {
        response.state.as_mut().unwrap().compute.id = "".into();
    });
    assert_eq!(empty_id, Failure::Unconfirmed.into());
}

/// Puts one result into a response.
type Place = fn(&mut Response<'static>);

/// W 201. W 210.
#[test]
fn failure_with_a_foreign_result_or_an_unknown_code_is_unknown() {
    for method in Method::ALL {
        let expected = if method == Method::Observe { Failure::ObservationUnavailable } else { Failure::Unconfirmed };
        for code in ["out_of_cheese", "unconfirmed", "INVALID", "invalid "] {
            let response = Response { id: "x".into(), error_code: Some(code.into()), ..Response::default() };
            assert_eq!(judge(&asked(method), response), Err(expected.clone().into()), "{method} {code}");
        }
        let told = fails(method, |response| {
            response.error_code = Some("not_found".into());
            response.command = Some(command(1, 1));
        });
        assert_eq!(told, expected.into(), "{method}");
    }
    let results: [Place; 6] = [
        |response| response.info = Some(absent()),
        |response| response.compute = Some(target()),
        |response| response.state = Some(Box::new(state(target()))),
        |response| response.command = Some(command(0, 0)),
        |response| response.sample = Some(sample(0.5)),
        |response| response.restored = Some(false),
    ];
    for place in results {
        let mut response = Response { id: "x".into(), error_code: Some("not_found".into()), ..Response::default() };
        place(&mut response);
        assert_eq!(judge(&asked(Method::Kill), response), Err(Failure::Unconfirmed.into()));
    }
    let told = fails(Method::Kill, |response| {
        response.error_code = Some("not_found".into());
        response.info = Some(absent());
    });
    assert_eq!(told, Failure::Unconfirmed.into());
}

#[test]
fn stream_above_one_mebibyte_is_an_unknown_outcome_on_both_sides() {
    for (stdout, stderr, fits) in
        [(STREAM_MAX_BYTES, STREAM_MAX_BYTES, true), (STREAM_MAX_BYTES + 1, 0, false), (0, STREAM_MAX_BYTES + 1, false)]
    {
        let asked = asked(Method::RunCommand);
        let response = respond(&asked, Ok(Answer::Command(command(stdout, stderr))));
        assert_eq!(response.error_code.as_deref(), (!fits).then_some("command_unconfirmed"));
        let sent = Response { id: "x".into(), command: Some(command(stdout, stderr)), ..Response::default() };
        assert_eq!(judge(&asked, sent).is_ok(), fits);
    }
}

#[test]
fn result_that_cannot_travel_becomes_the_unknown_outcome_of_its_method() {
    let wrong_kind = respond(&asked(Method::Create), Ok(Answer::Done));
    assert_eq!(wrong_kind.error_code.as_deref(), Some("unconfirmed"));
    let no_number = respond(&asked(Method::Observe), Ok(Answer::Sample(sample(f64::INFINITY))));
    assert_eq!((no_number.error_code.as_deref(), no_number.sample), (Some("unconfirmed"), None));
    let mut compute = target();
    compute.generation = u64::MAX;
    let too_high = respond(&asked(Method::Initial), Ok(Answer::Compute(compute)));
    assert_eq!(too_high.error_code.as_deref(), Some("unconfirmed"));
    let no_command = respond(&asked(Method::RunCommandCompute), Ok(Answer::Restored(true)));
    assert_eq!(no_command.error_code.as_deref(), Some("command_unconfirmed"));
}

#[test]
fn unknown_outcome_has_the_name_of_its_method() {
    assert_eq!(unknown(Method::RunCommandCompute), Failure::CommandUnconfirmed);
    assert_eq!(unknown(Method::Create), Failure::Unconfirmed);
    assert_eq!(uncertain(Method::Observe, false), Failure::ObservationUnavailable);
    assert_eq!(uncertain(Method::Observe, true), Failure::Unconfirmed);
    assert_eq!(uncertain(Method::RunCommand, false), Failure::CommandUnconfirmed);
}

#[test]
fn refusal_echoes_whatever_id_it_was_given() {
    let response = refusal("no id at all".into(), &Failure::Invalid);
    assert_eq!((&*response.id, response.error_code.as_deref()), ("no id at all", Some("invalid")));
}

/// Only a question for a sample learns that there is nothing to observe; of any other method the code says nothing.
#[test]
fn an_unavailable_observation_keeps_its_name_for_its_own_method_alone() {
    for method in Method::ALL {
        let code = Some("observation_unavailable".into());
        let response = Response { id: "x".into(), error_code: code, ..Response::default() };
        let expected = if method == Method::Observe { Failure::ObservationUnavailable } else { Failure::Unconfirmed };
        assert_eq!(judge(&asked(method), response), Err(expected.into()), "{method}");
    }
}
