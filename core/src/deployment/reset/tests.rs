use super::*;
use crate::deployment::admission::tests::node;
use crate::deployment::contract::Provider;
use crate::deployment::tests::{deployment, id, resetting};

const NOW: Timestamp = Timestamp(1_000_000);
const HOUR_MS: i64 = 3_600_000;

fn configured() -> Deployment {
    deployment(Some(Provider::Docker))
}

fn under(reset: Reset) -> Deployment {
    Deployment { reset: Some(reset), ..resetting(Provider::Docker) }
}

fn request(clear: Clear) -> Request {
    Request { expected_generation: 3, clear, deadline_seconds: None }
}

fn decided(request: Request, deployment: &Deployment) -> Result<Change, Code> {
    request.decide(deployment, id(1), NOW).map_err(|fault| fault.code)
}

fn started(clear: Clear) -> Reset {
    match decided(request(clear), &configured()) {
        Ok(Change::Started(reset)) => reset,
        other => panic!("{other:?}"),
    }
}

/// D 57. What is wrong with a body is named by its member, and the deadline by its bounds.
#[test]
fn a_body_is_refused_by_its_first_fault() {
    let parse = |text: &str| Request::parse(text.as_bytes());
    let auto = Request { deadline_seconds: Some(300), ..request(Clear::Auto) };
    assert_eq!(parse(r#"{"expected_generation":3,"clear":"auto","deadline_seconds":300}"#), Ok(auto));
    assert_eq!(parse(r#"{"expected_generation":3,"clear":"force"}"#), Ok(request(Clear::Force)));
    for (text, param) in [
        ("[]", None),
        ("", None),
        (r#"{"expected_generation":3,"clear":"auto","more":1}"#, None),
        (r#"{"expected_generation":3.0,"clear":"auto"}"#, None),
        (r#"{"expected_generation":-1,"clear":"auto"}"#, None),
        (r#"{"clear":"never"}"#, Some("expected_generation")),
        (r#"{"expected_generation":null,"clear":"auto"}"#, Some("expected_generation")),
        (r#"{"expected_generation":3}"#, Some("clear")),
        (r#"{"expected_generation":3,"clear":"AUTO","deadline_seconds":null}"#, Some("clear")),
        (r#"{"expected_generation":3,"clear":"auto","deadline_seconds":null}"#, Some("deadline_seconds")),
        (r#"{"expected_generation":3,"clear":"auto","deadline_seconds":299}"#, Some("deadline_seconds")),
        (r#"{"expected_generation":3,"clear":"auto","deadline_seconds":86401}"#, Some("deadline_seconds")),
        (r#"{"expected_generation":3,"clear":"auto","deadline_seconds":-300}"#, Some("deadline_seconds")),
        (r#"{"expected_generation":3,"clear":"auto","deadline_seconds":99999999999}"#, Some("deadline_seconds")),
        (r#"{"expected_generation":3,"clear":"force","deadline_seconds":300}"#, Some("deadline_seconds")),
    ] {
        let fault = parse(text).expect_err(text);
        assert_eq!((fault.code, fault.param), (Code::InvalidRequestError, param), "{text}");
    }
    let longest = parse(r#"{"expected_generation":3,"clear":"auto","deadline_seconds":86400}"#);
    assert_eq!(longest.map(|request| request.deadline_seconds), Ok(Some(86_400)));
    let bounds = parse(r#"{"expected_generation":3,"clear":"auto","deadline_seconds":1}"#).expect_err("too short");
    assert_eq!(bounds.details.keys().copied().collect::<Vec<_>>(), ["max", "min"]);
}

/// D 57. The deployment is checked in order: generation, owner, selection, mode.
#[test]
fn a_start_is_refused_by_the_first_check() {
    let stale = Request { expected_generation: 2, ..request(Clear::Auto) };
    let fault = stale.decide(&deployment(None), id(9), NOW).expect_err("stale");
    assert_eq!(fault, Fault::from(Code::SandboxGenerationStale).detail("current_generation", 3));
    assert_eq!(request(Clear::Auto).decide(&configured(), id(9), NOW), Err(Code::SandboxDeploymentConflict.into()));
    let process_managed = Deployment { web_managed: false, ..configured() };
    assert_eq!(decided(request(Clear::Auto), &process_managed), Err(Code::SandboxDeploymentConflict));
    assert_eq!(decided(request(Clear::Auto), &deployment(None)), Err(Code::SandboxNotConfigured));
}

/// D 57. D 61. The deadline is an hour away by default, exactly, and `force` has none.
#[test]
fn a_start_stores_an_absolute_deadline() {
    let auto = started(Clear::Auto);
    let deadline = Timestamp(NOW.0 + HOUR_MS);
    assert_eq!(auto, Reset { clear: Clear::Auto, requested_at: NOW, deadline_at: Some(deadline), forced_at: None });
    let force = started(Clear::Force);
    assert_eq!(force, Reset { clear: Clear::Force, requested_at: NOW, deadline_at: None, forced_at: Some(NOW) });
    let soon = Request { deadline_seconds: Some(300), ..request(Clear::Auto) };
    let Ok(Change::Started(soon)) = decided(soon, &configured()) else { panic!("a start") };
    assert_eq!(soon.deadline_at, Some(Timestamp(NOW.0 + 300_000)));
}

/// D 57. D 61. A repetition changes nothing, whatever deadline it names; `auto` escalates and keeps both times;
/// `force` stays.
#[test]
fn a_reset_escalates_and_never_goes_back() {
    let auto = Reset { requested_at: Timestamp(5), ..started(Clear::Auto) };
    let again = Request { deadline_seconds: Some(86_400), ..request(Clear::Auto) };
    assert_eq!(decided(again, &under(auto)), Ok(Change::Repeated));
    let forced = Reset { clear: Clear::Force, forced_at: Some(NOW), ..auto };
    assert_eq!(decided(request(Clear::Force), &under(auto)), Ok(Change::Escalated(forced)));
    assert_eq!(decided(request(Clear::Force), &under(forced)), Ok(Change::Repeated));
    assert_eq!(decided(request(Clear::Auto), &under(forced)), Err(Code::SandboxResetInProgress));
}

/// D 58. A stale cancellation is refused, one without a reset does nothing.
#[test]
fn a_cancellation_needs_the_current_generation() {
    let refused =
        |generation, deployment: &Deployment| cancel(generation, deployment, id(1)).map_err(|fault| fault.code);
    assert_eq!(refused(2, &resetting(Provider::Docker)), Err(Code::SandboxGenerationStale));
    assert_eq!(refused(3, &configured()), Ok(false));
    assert_eq!(refused(3, &deployment(None)), Ok(false));
    assert_eq!(refused(3, &resetting(Provider::Docker)), Ok(true));
    assert_eq!(cancel(3, &resetting(Provider::Docker), id(2)), Err(Code::SandboxDeploymentConflict.into()));
}

/// D 58. The query of a cancellation holds exactly the generation.
#[test]
fn the_query_of_a_cancellation_is_exactly_the_generation() {
    assert_eq!(cancel_generation([("expected_generation", "18446744073709551615")]), Ok(u64::MAX));
    for pairs in [
        &[][..],
        &[("expected_generation", "")],
        &[("expected_generation", "+3")],
        &[("expected_generation", "-3")],
        &[("expected_generation", "3.0")],
        &[("expected_generation", " 3")],
        &[("expected_generation", "18446744073709551616")],
        &[("Expected_generation", "3")],
        &[("expected_generation", "3"), ("expected_generation", "3")],
        &[("expected_generation", "3"), ("more", "")],
        &[("more", ""), ("expected_generation", "3")],
    ] {
        let refused = cancel_generation(pairs.iter().copied()).map_err(|fault| (fault.code, fault.param));
        assert_eq!(refused, Err((Code::InvalidRequestError, Some("expected_generation"))), "{pairs:?}");
    }
}

/// D 59. Only `auto` escalates, and only from its deadline on.
#[test]
fn a_deadline_escalates_once_it_has_passed() {
    let auto = started(Clear::Auto);
    let deadline = NOW.0 + HOUR_MS;
    assert_eq!(overdue(auto, Timestamp(deadline - 1)), None);
    let at = Timestamp(deadline);
    assert_eq!(overdue(auto, at), Some(Reset { clear: Clear::Force, forced_at: Some(at), ..auto }));
    let forced = Reset { clear: Clear::Force, forced_at: Some(NOW), ..auto };
    assert_eq!(overdue(forced, at), None);
    assert_eq!(overdue(started(Clear::Force), at), None);
}

/// D 67. D 69. A busy session waits in `auto` and is archived in `force`; another reset's candidates count for nothing.
#[test]
fn a_candidate_counts_for_its_own_reset_only() {
    let auto = started(Clear::Auto);
    let of = Identity { generation: 3, requested_at: NOW };
    assert_eq!(Identity::of(&under(auto)), Some(of));
    assert_eq!(candidate(of, &under(auto), true), Candidate::Busy);
    assert_eq!(candidate(of, &under(auto), false), Candidate::Archive);
    assert_eq!(candidate(of, &under(started(Clear::Force)), true), Candidate::Archive);
    let successor = Reset { requested_at: Timestamp(NOW.0 + 1), ..auto };
    assert_eq!(candidate(of, &under(successor), false), Candidate::Superseded);
    assert_eq!(candidate(of, &configured(), false), Candidate::Superseded);
    let later = Deployment { generation: 4, ..under(auto) };
    assert_eq!(candidate(of, &later, false), Candidate::Superseded);
}

/// D 60. A reset ends only as itself, with nothing left and numbers left to rise to.
#[test]
fn a_reset_ends_when_nothing_is_held() {
    let of = Identity { generation: 3, requested_at: NOW };
    let resetting = under(started(Clear::Auto));
    let ended = complete(of, &resetting, Held::default()).expect("nothing is held");
    assert_eq!((ended.generation.get(), ended.owner_epoch.get()), (4, 8));
    for held in [Held { allocations: 1, pending: 0 }, Held { allocations: 0, pending: 2 }] {
        assert_eq!(complete(of, &resetting, held), Err(Incomplete::Remaining(held)));
    }
    let other = Identity { requested_at: Timestamp(0), ..of };
    assert_eq!(complete(other, &resetting, Held::default()), Err(Incomplete::Superseded));
    assert_eq!(complete(of, &configured(), Held::default()), Err(Incomplete::Superseded));
    let stale = Identity { generation: 2, ..of };
    assert_eq!(complete(stale, &resetting, Held::default()), Err(Incomplete::Superseded));
    let last = i64::MAX.unsigned_abs();
    let exhausted = Deployment { generation: last, ..resetting.clone() };
    let of_last = Identity { generation: last, ..of };
    assert_eq!(complete(of_last, &exhausted, Held::default()), Err(Incomplete::Exhausted));
    let exhausted = Deployment { owner_epoch: OwnerEpoch::new(i64::MAX as u64), ..resetting };
    assert_eq!(complete(of, &exhausted, Held::default()), Err(Incomplete::Exhausted));
}

fn resource(node: u8) -> Resource {
    Resource {
        node: Some(id(node)),
        direct: false,
        ended: false,
        retained_until: None,
        kept_at: Some(NOW),
        busy: false,
    }
}

/// D 97. The first rule decides: what is ending is cleanup even while it works.
#[test]
fn a_resource_stands_in_the_first_category_that_fits() {
    let busy = Resource { busy: true, ..resource(2) };
    assert_eq!(resource(2).category(NOW), Category::Idle);
    assert_eq!(busy.category(NOW), Category::Busy);
    assert_eq!(Resource { ended: true, ..busy }.category(NOW), Category::Cleanup);
    let suspended = Resource { retained_until: Some(Timestamp(NOW.0 + 1)), ..resource(2) };
    assert_eq!(suspended.category(NOW), Category::Idle);
    assert_eq!(suspended.category(Timestamp(NOW.0 + 1)), Category::Cleanup);
    let nodeless = Resource { node: None, ..busy };
    assert_eq!(nodeless.category(Timestamp(NOW.0 + HOUR_MS)), Category::Busy);
    assert_eq!(nodeless.category(Timestamp(NOW.0 + HOUR_MS + 1)), Category::Cleanup);
    assert_eq!(Resource { direct: true, ..nodeless }.category(Timestamp(NOW.0 + HOUR_MS + 1)), Category::Busy);
    assert_eq!(Resource { kept_at: None, ..nodeless }.category(Timestamp(i64::MAX)), Category::Busy);
}

/// D 97. The categories add up to what is held, and what stands on offline nodes is told by node, in their order.
#[test]
fn offline_nodes_are_told_with_what_they_hold() {
    let online = node(2);
    let offline = |last: u8| {
        let mut node = node(last);
        node.standing.connection = None;
        node
    };
    let nodes = [offline(9), online, offline(4), offline(3)];
    let resources = [
        resource(9),
        resource(4),
        Resource { busy: true, ..resource(9) },
        Resource { ended: true, ..resource(2) },
        Resource { node: None, ..resource(2) },
    ];
    let remaining = remaining(&resources, &nodes, &resetting(Provider::Docker), NOW);
    assert_eq!((remaining.busy, remaining.idle, remaining.cleanup), (1, 3, 1));
    assert_eq!(remaining.on_offline_nodes, 3);
    let told: Vec<_> = remaining.offline_nodes.iter().map(|node| (node.0.node_id, node.0.resources)).collect();
    assert_eq!(told, [(id(4), 1), (id(9), 2)]);
}

/// The audit log tells the five steps of a reset apart.
#[test]
fn every_step_of_a_reset_has_its_action() {
    let steps = [Audit::Start, Audit::Force, Audit::Cancel, Audit::Deadline, Audit::Complete];
    let actions = ["reset_start", "reset_force", "reset_cancel", "reset_deadline", "reset_complete"];
    assert_eq!(steps.map(Audit::action), actions);
}
