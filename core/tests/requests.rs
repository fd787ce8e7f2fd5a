//! What makes a request that decodes an acceptable call (wire §1.8, §3.1).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod samples;

use palisade_core::limits::STDIN_MAX_BYTES;
use palisade_core::operation::{Call, Class, Fencing, Flaw, Method, Operation, budget};
use palisade_core::units::{Id, OwnerEpoch, Sequence};
use palisade_core::wire::payload::Command;
use palisade_core::wire::{Frame, Grade, IntoOwned, Kind, Reason, check, decode, encode};
use rstest::rstest;
use samples::{OBSERVATION, SNAPSHOT, bootstrap, closes, edited, operations, request, resume, suspend};

fn accept(text: &str) -> Result<Call<'_>, Flaw> {
    match samples::decodes(text) {
        Frame::Request(request) => Call::accept(*request).map_err(|invalid| invalid.flaw),
        other => panic!("{:?} is no request", other.kind()),
    }
}

#[track_caller]
fn is_invalid(text: &str, flaw: Flaw) {
    assert_eq!(accept(text).map(drop), Err(flaw), "{text}");
    let verdict = check(text.as_bytes());
    assert_eq!((verdict.grade(), verdict.kind()), (Grade::InvalidRequest, Some(Kind::Request)));
    assert_eq!(verdict.reason(), Some(flaw.text()));
}

const FENCING: Fencing =
    Fencing { sequence: Sequence::FIRST, owner_epoch: OwnerEpoch::FIRST, connection_id: CONNECTION };
const CONNECTION: Id = Id::from_random([7; 16]);

/// W 23. W 128. The samples hold a matching workspace binding.
#[test]
fn every_operation_is_accepted_and_sent_as_it_was_received() {
    for (operation, arguments) in operations() {
        let text = request(operation, &arguments);
        let call = accept(&text).unwrap_or_else(|flaw| panic!("{flaw}: {text}")).into_owned();
        assert_eq!(call.operation.method().operation(), operation);
        assert_eq!(call.verify(), Ok(()));
        let Frame::Request(mut sent) = samples::decodes(&text) else { panic!() };
        (sent.sequence, sent.owner_epoch, sent.connection_id) =
            (FENCING.sequence, FENCING.owner_epoch, FENCING.connection_id);
        let built = call.into_request(FENCING);
        assert_eq!(built, *sent);
        let written = String::from_utf8(encode(&Frame::Request(Box::new(built))).unwrap()).unwrap();
        assert!(written.contains(r#""timeout_ms":30000"#) && !written.contains("deadline"), "{written}");
    }
}

/// E11. A request carries a budget and no point in time, and house law keeps every clock out of the core: nothing can
/// compare the clocks of two hosts.
#[test]
fn nothing_compares_the_clocks_of_two_hosts() {
    for (operation, arguments) in operations() {
        let text = request(operation, &arguments);
        samples::decodes(&text);
        let timed = r#""sent_at":"2026-10-01T08:00:00Z","timeout_ms":"#;
        closes(&edited(&text, r#""timeout_ms":"#, timed), Reason::UnknownMember);
    }
    let law = include_str!("../clippy.toml");
    assert!(["std::time::SystemTime::now", "std::time::Instant::now"].iter().all(|clock| law.contains(clock)));
}

/// W 25. W 26.
#[rstest]
#[case("-1", Err(Flaw::Timeout))]
#[case("0", Err(Flaw::Timeout))]
#[case("1", Ok(1))]
#[case("120000", Ok(120_000))]
#[case("120001", Err(Flaw::Timeout))]
#[case("9223372036854775807", Err(Flaw::Timeout))]
#[case("-9223372036854775808", Err(Flaw::Timeout))]
fn budget_on_receipt_is_1_to_120000(#[case] literal: &str, #[case] outcome: Result<u64, Flaw>) {
    let text = edited(&request("info", ""), "30000", literal);
    assert_eq!(accept(&text).map(|call| call.timeout_ms), outcome);
}

#[test]
fn literal_that_does_not_fit_64_bits_closes() {
    let info = request("info", "");
    closes(&edited(&info, "30000", "9223372036854775808"), Reason::NumberRange);
    closes(&edited(&info, "30000", "30000.0"), Reason::NumberRange);
    let compute = request("new_compute", r#""generation":1"#);
    let with = |literal: &str| edited(&compute, r#""generation":1"#, &format!(r#""generation":{literal}"#));
    is_invalid(&with("0"), Flaw::Generation);
    is_invalid(&with("9223372036854775808"), Flaw::Generation);
    is_invalid(&with("18446744073709551615"), Flaw::Generation);
    assert!(accept(&with("9223372036854775807")).is_ok());
    closes(&with("18446744073709551616"), Reason::NumberRange);
    closes(&with("-1"), Reason::NumberRange);
    is_invalid(&request("new_compute", ""), Flaw::MissingArgument);
}

/// W 27. W 28. W 29.
#[rstest]
#[case(300_000, Some(120_000))]
#[case(120_001, Some(120_000))]
#[case(120_000, Some(120_000))]
#[case(2_000, Some(2_000))]
#[case(1, Some(1))]
#[case(0, None)]
fn sender_budget_is_capped_and_never_empty(#[case] remaining: u64, #[case] sent: Option<u64>) {
    assert_eq!(budget(remaining), sent);
}

#[rstest]
#[case(r#""id":"11f2d3c4-b5a6-4798-8899-aabbccddeeff""#, r#""id":"11F2D3C4-B5A6-4798-8899-AABBCCDDEEFF""#, Flaw::Id)]
#[case(r#""id":"11f2d3c4-b5a6-4798-8899-aabbccddeeff""#, r#""id":"""#, Flaw::Id)]
#[case(r#""id":"11f2d3c4-b5a6-4798-8899-aabbccddeeff""#, r#""id":"00000000-0000-0000-0000-000000000000""#, Flaw::Id)]
#[case(r#""operation":"info""#, r#""operation":"Info""#, Flaw::Operation)]
#[case(r#""operation":"info""#, r#""operation":"GetInfo""#, Flaw::Operation)]
#[case("41f2d3c4-b5a6-4798-8899-aabbccddeeff", "41f2d3c4b5a647988899aabbccddeeff", Flaw::Reference)]
#[case("21f2d3c4-b5a6-4798-8899-aabbccddeeff", "{21f2d3c4-b5a6-4798-8899-aabbccddeeff}", Flaw::Reference)]
fn malformed_common_member_is_invalid(#[case] from: &str, #[case] to: &str, #[case] flaw: Flaw) {
    is_invalid(&edited(&request("info", ""), from, to), flaw);
}

#[rstest]
#[case("id")]
#[case("operation")]
#[case("timeout_ms")]
#[case("reference")]
#[case("sequence")]
fn absent_common_member_closes(#[case] member: &str) {
    let text = request("info", "");
    let start = text.find(&format!(r#""{member}":"#)).unwrap();
    let end = match member {
        "reference" => text.rfind("}}").unwrap(),
        _ => start + text[start..].find(',').unwrap() + 1,
    };
    let (head, tail) = (text[..start].trim_end_matches(|c| c == ',' && member == "reference"), &text[end..]);
    closes(&format!("{head}{tail}"), Reason::MissingMember);
}

#[test]
fn invalid_request_keeps_its_id_for_the_answer() {
    let text = edited(&request("info", ""), "11f2d3c4-b5a6-4798-8899-aabbccddeeff", "no id at all");
    let Frame::Request(request) = samples::decodes(&text) else { panic!() };
    assert_eq!(Call::accept(*request).unwrap_err().id, "no id at all");
}

#[test]
fn operation_takes_exactly_its_arguments() {
    let arguments: Vec<(&str, String)> = vec![
        ("bootstrap", bootstrap()),
        ("compute", samples::COMPUTE.to_owned()),
        ("generation", "1".to_owned()),
        ("command", samples::COMMAND.to_owned()),
        ("suspend", suspend()),
        ("resume", resume()),
        ("snapshot", SNAPSHOT.to_owned()),
        ("observation", OBSERVATION.to_owned()),
        ("key", r#""venv""#.to_owned()),
    ];
    for (operation, own) in operations() {
        for (name, value) in &arguments {
            let argument = format!(r#""{name}":{value}"#);
            if own.contains(&argument) {
                let optional = operation == "new_compute" && *name == "snapshot";
                let without = own.replacen(&argument, "", 1);
                let text = request(operation, without.trim_matches(','));
                assert_eq!(accept(&text).map(drop), if optional { Ok(()) } else { Err(Flaw::MissingArgument) });
            } else {
                let both = if own.is_empty() { argument } else { format!("{own},{argument}") };
                is_invalid(&request(operation, &both), Flaw::ForeignArgument);
            }
        }
    }
}

const OTHER: &str = "99f2d3c4-b5a6-4798-8899-aabbccddeeff";

#[rstest]
#[case::tenant("21f2d3c4-b5a6-4798-8899-aabbccddeeff")]
#[case::environment("31f2d3c4-b5a6-4798-8899-aabbccddeeff")]
#[case::allocation("41f2d3c4-b5a6-4798-8899-aabbccddeeff")]
fn argument_of_another_sandbox_is_invalid(#[case] own: &str) {
    let changed = |text: &str| text.replacen(own, OTHER, 1);
    is_invalid(&request("create", &format!(r#""bootstrap":{}"#, changed(&bootstrap()))), Flaw::OtherReference);
    is_invalid(&request("suspend", &format!(r#""suspend":{}"#, changed(&suspend()))), Flaw::OtherReference);
    let reference = changed(samples::REFERENCE);
    let resumed = resume().replacen(samples::REFERENCE, &reference, 1);
    is_invalid(&request("resume", &format!(r#""resume":{resumed}"#)), Flaw::OtherReference);
}

/// W 125.
#[rstest]
#[case("31f2d3c4-b5a6-4798-8899-aabbccddeeff", OTHER, Flaw::OtherReference)]
#[case("21f2d3c4-b5a6-4798-8899-aabbccddeeff", OTHER, Flaw::OtherReference)]
#[case("41f2d3c4-b5a6-4798-8899-aabbccddeeff", OTHER, Flaw::OtherReference)]
#[case("51f2d3c4-b5a6-4798-8899-aabbccddeeff", "nobody", Flaw::ObservationId)]
#[case("0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f", "", Flaw::ObservationId)]
#[case("openai_hosted", "none", Flaw::Mode)]
#[case("openai_hosted", "self_hosted", Flaw::Mode)]
#[case(r#""TokenUsage":null"#, r#""TokenUsage":{"a":[1,{"a":2,"a":3}]}"#, Flaw::TokenUsage)]
#[case(r#""TokenUsage":null"#, r#""TokenUsage":0"#, Flaw::TokenUsage)]
fn observation_of_another_target_is_invalid(#[case] from: &str, #[case] to: &str, #[case] flaw: Flaw) {
    let target = edited(OBSERVATION, from, to);
    is_invalid(&request("observe", &format!(r#""observation":{target}"#)), flaw);
}

#[test]
fn provider_state_is_carried_unchanged() {
    for state in [r#"{"a":1,"A":2,"a":null}"#, "null", r#""\ud800""#, "[1e999,-0]", " { \"x\" : 1 } "] {
        let target = edited(OBSERVATION, r#"{"current":{"id":"local:16","generation":0}}"#, state);
        let text = request("observe", &format!(r#""observation":{target}"#));
        let Operation::Observe(target) = accept(&text).unwrap().operation else { panic!() };
        assert_eq!(target.instance.provider_state, state.trim());
        let frame = samples::decodes(&text);
        assert_eq!(decode(&encode(&frame).unwrap()), Ok(frame));
    }
}

/// W 129. W 130. W 136. W 137.
#[rstest]
#[case::environment(
    r#"EnvironmentID":"31f2d3c4-b5a6-4798-8899-aabbccddeeff","ObjectID"#,
    r#"EnvironmentID":"99f2d3c4-b5a6-4798-8899-aabbccddeeff","ObjectID"#
)]
#[case::tenant(r#""Attachment":{"Reference":{"TenantID":"21"#, r#""Attachment":{"Reference":{"TenantID":"99"#)]
#[case::configuration(r#""ConfigurationID":"91f2"#, r#""ConfigurationID":"99f2"#)]
#[case::configuration_form(r#""ID":"91f2d3c4-b5a6-4798-8899-aabbccddeeff","Adapter""#, r#""ID":"x","Adapter""#)]
#[case::nil_object("a1f2d3c4-b5a6-4798-8899-aabbccddeeff", "00000000-0000-0000-0000-000000000000")]
#[case::compact_object("a1f2d3c4-b5a6-4798-8899-aabbccddeeff", "a1f2d3c4b5a647988899aabbccddeeff")]
#[case::upper_object("a1f2d3c4-b5a6-4798-8899-aabbccddeeff", "A1F2D3C4-B5A6-4798-8899-AABBCCDDEEFF")]
#[case::no_object("a1f2d3c4-b5a6-4798-8899-aabbccddeeff", "my-object")]
#[case::path(r#""Adapter":"nfs""#, r#""Adapter":"../nfs""#)]
#[case::separator(r#""Adapter":"nfs""#, r#""Adapter":"a/b""#)]
#[case::no_adapter(r#""Adapter":"nfs""#, r#""Adapter":"""#)]
#[case::kind("host_directory", "block_device")]
fn workspace_binding_of_something_else_is_invalid(#[case] from: &str, #[case] to: &str) {
    let observing = resume().replace(r#""ObserveOnly":false"#, r#""ObserveOnly":true"#);
    for (operation, argument, whole) in
        [("create", "bootstrap", bootstrap()), ("resume", "resume", resume()), ("resume", "resume", observing)]
    {
        let broken = edited(&whole, from, to);
        is_invalid(&request(operation, &format!(r#""{argument}":{broken}"#)), Flaw::Workspace);
    }
}

/// W 136. Parameters and receipts are exactly one object; anything else is no frame.
#[rstest]
fn workspace_value_that_is_no_object_closes(
    #[values("Parameters", "Native")] member: &str,
    #[values("", "null", "[]", r#""{}""#, "{", "{}{}", "1")] value: &str,
) {
    let broken = edited(&bootstrap(), &format!(r#""{member}":{{}}"#), &format!(r#""{member}":{value}"#));
    let text = request("create", &format!(r#""bootstrap":{broken}"#));
    assert_eq!(check(text.as_bytes()).grade(), Grade::InvalidFrame, "{text}");
}

#[rstest]
#[case("venv", true)]
#[case("!~", true)]
#[case(&"k".repeat(256), true)]
#[case(&"k".repeat(257), false)]
#[case("", false)]
#[case("a b", false)]
#[case("a\u{7f}", false)]
#[case("ä", false)]
fn key_is_1_to_256_printable_ascii_characters(#[case] key: &str, #[case] valid: bool) {
    for operation in ["restore_preparation", "save_preparation"] {
        let text = request(operation, &format!(r#""key":"{key}""#));
        assert_eq!(accept(&text).map(drop), if valid { Ok(()) } else { Err(Flaw::Key) });
    }
}

#[rstest]
#[case("", Some(&b""[..]))]
#[case("aGVsbG8K", Some(&b"hello\n"[..]))]
#[case("aGVsbG8=", Some(&b"hello"[..]))]
#[case(r"\/\u002f8=", Some(&b"\xff\xff"[..]))]
#[case("aGVsbG8", None)]
#[case("aGVsbG9=", None)]
#[case("aGVs bG8K", None)]
#[case("aGVsbG8K\\n", None)]
#[case("_-8=", None)]
#[case("aGVsbG8==", None)]
#[case("=", None)]
fn standard_input_is_canonical_base64(#[case] text: &str, #[case] bytes: Option<&[u8]>) {
    let text = request("command", &edited(r#""command":{"Args":[],"Directory":"relative","Stdin":"X"}"#, "X", text));
    match (bytes, decode(text.as_bytes())) {
        (Some(bytes), Ok(Frame::Request(request))) => {
            assert_eq!(request.command.unwrap().stdin.as_deref(), Some(bytes));
        }
        (None, Err(violation)) => assert_eq!(violation.reason, Reason::Base64),
        (expected, found) => panic!("{expected:?}: {found:?}"),
    }
}

/// The limit counts decoded bytes; one byte more decodes and is answered `invalid`.
#[test]
fn standard_input_has_a_limit_in_decoded_bytes() {
    let call = |length: usize| Call {
        id: CONNECTION,
        deployment_generation: palisade_core::units::Generation::FIRST,
        reference: accept(&request("info", "")).unwrap().reference,
        timeout_ms: 1,
        operation: Operation::RunCommand(Command {
            args: vec!["cat".into()],
            directory: "".into(),
            stdin: Some(vec![b'x'; length].into()),
        }),
    };
    for length in [STDIN_MAX_BYTES - 1, STDIN_MAX_BYTES] {
        assert_eq!(call(length).verify(), Ok(()));
    }
    let longer = call(STDIN_MAX_BYTES + 1);
    assert_eq!(longer.verify(), Err(Flaw::Stdin));
    let written = encode(&Frame::Request(Box::new(longer.into_request(FENCING)))).unwrap();
    is_invalid(&String::from_utf8(written).unwrap(), Flaw::Stdin);
}

/// W 109. The seventeen, by both of their names.
#[rstest]
#[case("create", "Create")]
#[case("info", "GetInfo")]
#[case("renew", "Renew")]
#[case("kill", "Kill")]
#[case("command", "RunCommand")]
#[case("observe", "Observe")]
#[case("initial", "Initial")]
#[case("new_compute", "NewCompute")]
#[case("compute", "GetCompute")]
#[case("kill_compute", "KillCompute")]
#[case("resume_compute", "ResumeCompute")]
#[case("command_compute", "RunCommandCompute")]
#[case("suspend", "Suspend")]
#[case("resume", "Resume")]
#[case("delete_snapshot", "DeleteSnapshot")]
#[case("restore_preparation", "RestorePreparation")]
#[case("save_preparation", "SavePreparation")]
fn an_operation_is_one_method(#[case] operation: &str, #[case] name: &str) {
    let method = Method::from_operation(operation).unwrap();
    assert_eq!((method.name(), method.operation()), (name, operation));
    assert_eq!(Method::from_name(name), Some(method));
    assert_eq!(operations().iter().filter(|(known, _)| *known == operation).count(), 1);
    let (_, arguments) = operations().into_iter().find(|(known, _)| *known == operation).unwrap();
    assert_eq!(accept(&request(operation, &arguments)).unwrap().operation.method(), method);
}

/// W 109.
#[test]
fn methods_and_operations_map_to_each_other() {
    let operations: std::collections::BTreeSet<_> = Method::ALL.map(Method::operation).into();
    assert_eq!((Method::ALL.len(), operations.len()), (17, 17));
    for method in Method::ALL {
        assert_eq!(Method::from_operation(method.operation()), Some(method));
        assert_eq!(Method::from_name(method.name()), Some(method));
        assert_eq!(method.name(), format!("{method:?}"));
    }
    assert_eq!(Method::from_operation("save_preparation"), Some(Method::SavePreparation));
    assert_eq!(Method::from_operation("SavePreparation"), None);
    assert_eq!(Method::from_name("info"), None);
}

/// W 195. Only an effective resume and a create need a ready generation.
#[test]
fn observing_only_is_a_read_that_needs_no_ready_generation() {
    let observing = resume().replace(r#""ObserveOnly":false"#, r#""ObserveOnly":true"#);
    let text = request("resume", &format!(r#""resume":{observing}"#));
    let observes = accept(&text).unwrap().operation;
    assert_eq!((observes.needs_ready(), observes.class()), (false, Class::Read));
    for (operation, arguments) in operations() {
        let text = request(operation, &arguments);
        let call = accept(&text).unwrap();
        assert_eq!(call.operation.needs_ready(), ["create", "resume"].contains(&operation), "{operation}");
        assert_eq!(call.asked().target.is_some(), operation == "resume");
    }
}

#[test]
fn debug_output_shows_no_content() {
    let text = request("create", &format!(r#""bootstrap":{}"#, bootstrap()));
    assert!(!format!("{:?}", accept(&text).unwrap()).contains("synthetic"));
    let text = request("command", &format!(r#""command":{}"#, samples::COMMAND));
    let shown = format!("{:?}", accept(&text).unwrap().operation.into_owned());
    assert!(!shown.contains("env") && !shown.contains("hello"), "{shown}");
}

#[test]
fn methods_and_flaws_are_shown_by_their_names() {
    for method in Method::ALL {
        assert_eq!(method.to_string(), method.name());
    }
    assert_eq!(Flaw::Mode.to_string(), "the mode is not openai_hosted");
}
