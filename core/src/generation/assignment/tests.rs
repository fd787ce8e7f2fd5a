use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const INSTALLATION: &str = "0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f";
const CORE: &str = "https://core.example";

fn specification() -> Value {
    let hex = |digit: &str, length| digit.repeat(length);
    json!({
        "resources": {"cpus": 2, "memory_mib": 4096},
        "runtime": {
            "source_commit": hex("a", 40),
            "image_id": format!("sha256:{}", hex("b", 64)),
            "image_manifest_digest": format!("sha256:{}", hex("c", 64)),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("d", 64)),
            "runtime_sha256": hex("e", 64),
            "firmware_sha256": hex("f", 64),
        },
    })
}

fn digest(specification: &Value) -> Digest {
    Specification::parse(Provider::Docker, specification.to_string().as_bytes()).unwrap().digest()
}

fn document() -> Value {
    json!({
        "max_active": 2, "max_retained": 8, "installation_id": INSTALLATION, "provider": "docker", "core_url": CORE,
        "generation": 3, "specification": specification(), "specification_digest": digest(&specification()),
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut document = document();
    document[name] = value;
    document
}

fn read(document: &Value) -> Result<Assignment, InvalidAssignment> {
    Assignment::read(document.to_string().as_bytes())
}

fn expected() -> Expected<'static> {
    Expected {
        installation: Id::parse(INSTALLATION).unwrap(),
        core_url: CORE,
        provider: Some(Provider::Docker),
        requested: None,
        retained: None,
        may_change: false,
    }
}

fn retained() -> Expected<'static> {
    let specification_digest = digest(&specification());
    Expected { retained: Some(Retained { generation: generation(3), specification_digest }), ..expected() }
}

fn generation(number: u64) -> Generation {
    Generation::new(number).unwrap()
}

const fn question(expected: Expected<'_>, has_token: bool, registered: bool) -> Question<'_> {
    Question { expected, has_token, registered }
}

/// Core's own refusal, as opposed to that of a proxy.
fn refusal() -> Vec<u8> {
    json!({"error": {"message": "no", "type": "authentication_error", "code": null, "param": null}}).to_string().into()
}

const AS_NODE: Ask = Ask::AsNode { generation: None };

#[test]
fn what_core_writes_is_what_is_read() {
    let read = read(&document()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), document());
    assert_eq!((read.max_active, read.max_retained, read.generation), (2, 8, generation(3)));
}

/// H 57-59. Every value is of its type and in its range, and the digest is computed again.
#[rstest]
#[case("max_active", json!(0), InvalidAssignment::Capacity)]
#[case("max_active", json!(9), InvalidAssignment::Capacity)]
#[case("max_retained", json!(1_000_001), InvalidAssignment::Capacity)]
#[case("max_active", json!(true), InvalidAssignment::Members)]
#[case("max_active", json!(2.0), InvalidAssignment::Members)]
#[case("max_retained", json!("8"), InvalidAssignment::Members)]
#[case("max_retained", json!(-1), InvalidAssignment::Members)]
#[case("generation", json!(0), InvalidAssignment::Members)]
#[case("generation", json!(true), InvalidAssignment::Members)]
#[case("installation_id", json!("0B9F3C52-7A41-4D7D-8C3E-5B6A7C8D9E0F"), InvalidAssignment::Members)]
#[case("provider", json!("e2b"), InvalidAssignment::Provider)]
#[case("provider", json!("Docker"), InvalidAssignment::Provider)]
#[case("provider", json!("other"), InvalidAssignment::Provider)]
#[case("provider", json!("microsandbox"), InvalidAssignment::Specification)]
#[case("specification", json!({"resources": {"cpus": 2, "memory_mib": 4096}}), InvalidAssignment::Specification)]
#[case("specification", json!([]), InvalidAssignment::Members)]
#[case("specification_digest", json!(Digest::of(b"other")), InvalidAssignment::Digest)]
#[case("other", json!(1), InvalidAssignment::Members)]
fn an_inconsistent_answer_is_refused(#[case] name: &str, #[case] value: Value, #[case] expected: InvalidAssignment) {
    assert_eq!(read(&with(name, value)), Err(expected));
}

/// H 57. Sizes that are no integers, too small, unknown or of another provider are refused.
#[rstest]
#[case("cpus", json!(true))]
#[case("cpus", json!(0))]
#[case("memory_mib", json!(511))]
#[case("root_disk_mib", json!(4096))]
#[case("gpus", json!(1))]
fn a_wrong_size_is_refused(#[case] name: &str, #[case] value: Value) {
    let mut document = document();
    document["specification"]["resources"][name] = value;
    read(&document).unwrap_err();
}

#[test]
fn every_member_is_required_once_and_nothing_follows() {
    let text = document().to_string();
    for name in document().as_object().unwrap().keys() {
        assert_eq!(read(&with(name, Value::Null)), Err(InvalidAssignment::Members), "{name}");
        let repeated = text.replacen('{', &format!("{{\"{name}\":{},", document()[name]), 1);
        assert_eq!(Assignment::read(repeated.as_bytes()), Err(InvalidAssignment::Members), "{name}");
        let mut short = document();
        short.as_object_mut().unwrap().remove(name);
        assert_eq!(read(&short), Err(InvalidAssignment::Members), "{name}");
    }
    assert_eq!(Assignment::read(format!("{text}{{}}").as_bytes()), Err(InvalidAssignment::Members));
    let padded = |length| format!("{text:length$}");
    assert!(Assignment::read(padded(16_384).as_bytes()).is_ok());
    assert_eq!(Assignment::read(padded(16_385).as_bytes()), Err(InvalidAssignment::Size));
}

/// H 61. The digest does not depend on the order of members.
#[test]
fn the_order_of_members_is_no_difference() {
    let runtime = specification()["runtime"].as_object().unwrap().clone();
    let members: Vec<_> = runtime.iter().rev().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let reversed =
        format!("{{\"runtime\":{{{}}},\"resources\":{{\"memory_mib\":4096,\"cpus\":2}}}}", members.join(","));
    let text = document().to_string().replace(&specification().to_string(), &reversed);
    assert!(text.contains(&reversed));
    assert_eq!(Assignment::read(text.as_bytes()), read(&document()));
}

/// W 181. H 51, H 52. A new node sends the token and no node header; a retained one its credential with the header, and
/// never a new token.
#[test]
fn a_retained_identity_authenticates_itself() {
    assert_eq!(question(expected(), true, false).first(), Ok(Ask::WithToken));
    assert_eq!(question(expected(), false, false).first(), Err(Next::NoSecret));
    for (has_token, registered) in [(false, false), (true, false), (false, true), (true, true)] {
        assert_eq!(question(retained(), has_token, registered).first(), Ok(AS_NODE));
    }
}

/// A token reads the target alone; a node may ask for one generation, in canonical decimal.
#[test]
fn only_a_node_asks_for_a_generation() {
    let requested = Some(generation(i64::MAX as u64));
    assert_eq!(question(Expected { requested, ..expected() }, true, false).first(), Ok(Ask::WithToken));
    assert_eq!(Ask::WithToken.path(), "/api/v1/sandbox-node/configuration");
    let ask = question(Expected { requested, ..retained() }, false, true).first().unwrap();
    assert_eq!(ask.path(), "/api/v1/sandbox-node/configuration?generation=9223372036854775807");
}

/// W 181. H 53. A 401 falls back to the token once, while the first registration is open and a token is there.
#[test]
fn a_rejected_credential_falls_back_to_the_token_once() {
    let body = refusal();
    let reply = Reply::Answered { status: 401, body: &body };
    assert_eq!(question(retained(), true, false).judge(AS_NODE, reply), Err(Next::Ask(Ask::WithToken)));
    assert_eq!(question(retained(), false, false).judge(AS_NODE, reply), Err(Next::Rejected(401)));
    for has_token in [false, true] {
        assert_eq!(question(retained(), has_token, true).judge(AS_NODE, reply), Err(Next::NodeRemoved));
    }
    for registered in [false, true] {
        let fallen = question(retained(), true, registered).judge(Ask::WithToken, reply);
        assert_eq!(fallen, Err(Next::Rejected(401)), "the token is tried once");
    }
}

/// Decision 36. A proxy's 401 never makes a node give out its token, nor say that it was removed.
#[test]
fn a_proxys_refusal_is_not_cores() {
    for status in [401, 403, 409, 502] {
        let reply = Reply::Answered { status, body: b"<html>" };
        for registered in [false, true] {
            let next = question(retained(), true, registered).judge(AS_NODE, reply);
            assert_eq!(next, Err(Next::Between(status)));
        }
    }
}

/// H 55. Each refusal has its own class.
#[test]
fn each_refusal_has_its_class() {
    let body = refusal();
    let judge =
        |status| question(expected(), true, false).judge(Ask::WithToken, Reply::Answered { status, body: &body });
    assert_eq!(judge(401), Err(Next::Rejected(401)));
    assert_eq!(judge(403), Err(Next::Rejected(403)));
    assert_eq!(judge(404), Err(Next::NotRouted));
    assert_eq!(judge(409), Err(Next::ResetOrConflict));
    assert_eq!(judge(503), Err(Next::Rejected(503)));
    assert_eq!(question(expected(), true, false).judge(Ask::WithToken, Reply::Unreachable), Err(Next::Unreachable));
    assert_eq!(judge(200), Err(Next::Invalid(InvalidAssignment::Members)));
    let redirect = Reply::Answered { status: 302, body: b"" };
    assert_eq!(question(expected(), true, false).judge(Ask::WithToken, redirect), Err(Next::Between(302)));
}

/// H 54, H 56. A changed public URL asks for a new command; another installation, provider, generation or specification
/// is refused, and only a preparation may find the selection changed.
#[test]
fn an_assignment_for_something_else_is_refused() {
    let text = document().to_string();
    let reply = Reply::Answered { status: 200, body: text.as_bytes() };
    let judge = |expected: Expected<'_>| question(expected, true, true).judge(AS_NODE, reply).err();
    assert_eq!(judge(retained()), None);
    assert_eq!(judge(Expected { core_url: "https://core.example/", ..retained() }), Some(Next::UrlChanged));
    let other = Id::parse("1b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f").unwrap();
    assert_eq!(judge(Expected { installation: other, ..retained() }), Some(Next::Differs(Difference::Installation)));
    let micro = Expected { provider: Some(Provider::Microsandbox), may_change: true, ..retained() };
    assert_eq!(judge(micro), Some(Next::Differs(Difference::Provider)));
    assert_eq!(judge(Expected { provider: None, ..expected() }), None, "a new node asserts no provider of its own");

    let enrolled = |number, digest| Some(Retained { generation: generation(number), specification_digest: digest });
    let older = enrolled(2, digest(&specification()));
    assert_eq!(judge(Expected { retained: older, ..retained() }), Some(Next::Differs(Difference::Generation)));
    let resized = enrolled(3, Digest::of(b"other"));
    assert_eq!(judge(Expected { retained: resized, ..retained() }), Some(Next::Differs(Difference::Specification)));
    for changed in [older, resized] {
        assert_eq!(judge(Expected { retained: changed, may_change: true, ..retained() }), None);
    }
    let requested = Expected { requested: Some(generation(2)), may_change: true, ..retained() };
    assert_eq!(judge(requested), Some(Next::Differs(Difference::Generation)), "the same number comes back");
}
