//! What a frame may look like (wire §0.3, §1, §2).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod samples;

use palisade_core::limits::{CALL_FRAME_MAX_BYTES, CONTROL_FRAME_MAX_BYTES};
use palisade_core::units::{Digest, Generation};
use palisade_core::wire::payload::{Checkpoint, Health, Observation, ObservedState};
use palisade_core::wire::{Frame, IntoOwned, Kind, Reason, decode, decode_text, encode};
use rstest::rstest;
use samples::{
    HEARTBEAT, HEARTBEAT_ACK, HELLO, QUIET_HEARTBEAT, RETENTION, RETENTION_ACK, WELCOME, all, closes, decodes, edited,
    request, response,
};

/// W 1. W 17. W 21. W 188.
#[test]
fn every_sample_decodes_and_survives_encoding() {
    for text in all() {
        let frame = decodes(&text);
        let written = encode(&frame).unwrap_or_else(|violation| panic!("{violation}: {text}"));
        assert_eq!(decode(&written), Ok(frame), "{text}");
    }
}

#[test]
fn members_may_stand_in_any_order() {
    let moved =
        edited(WELCOME, r#""version":6,"type":"welcome","#, "").replacen('}', r#"},"type":"welcome","version":6"#, 1);
    assert_eq!(decodes(&moved), decodes(WELCOME));
    let spaced = format!(" \n{}\t", WELCOME.replace(':', " : "));
    assert_eq!(decodes(&spaced), decodes(WELCOME));
    let escaped = WELCOME.replace("version", r"ver\u0073ion").replace("\"welcome\"", r#""\u0077elcome""#);
    assert_eq!(decodes(&escaped), decodes(WELCOME));
}

/// W 2. W 3. W 4. W 5. W 6. W 7. W 8. W 9. W 10.
#[rstest]
#[case::duplicate(r#""keep":true"#, r#""keep":true,"keep":false"#, Reason::RepeatedMember)]
#[case::alias(r#""keep":true"#, r#""Keep":true"#, Reason::UnknownMember)]
#[case::null(r#""keep":true"#, r#""keep":null"#, Reason::Null)]
#[case::absent(r#","keep":true"#, "", Reason::MissingMember)]
#[case::foreign(r#""type":"#, r#""request":null,"type":"#, Reason::UnknownMember)]
#[case::other_list(r#""retentions":"#, r#""references":null,"retentions":"#, Reason::UnknownMember)]
#[case::no_serving(r#","serving_generation":null"#, "", Reason::MissingMember)]
#[case::version_again(r#""type":"#, r#""version":5,"type":"#, Reason::RepeatedMember)]
#[case::sequence(r#""sequence":1"#, r#""sequence":9223372036854775808"#, Reason::NumberRange)]
fn ambiguous_authority_to_delete_is_refused(#[case] from: &str, #[case] to: &str, #[case] reason: Reason) {
    closes(&edited(RETENTION_ACK, from, to), reason);
}

#[rstest]
#[case(
    RETENTION,
    r#"[{"generation":1,"specification_digest":"bfedd8252478cfeb7e927ccd9aab6e812e0a35405046db3cf023fe62a869de04"}]"#
)]
#[case(RETENTION_ACK, r#"[{"generation":1,"specification_digest":"bfedd8252478cfeb7e927ccd9aab6e812e0a35405046db3cf023fe62a869de04","keep":true}]"#)]
fn retention_lists_hold_one_to_eight_unique_generations(#[case] frame: &str, #[case] one: &str) {
    let list = |generations: &mut dyn Iterator<Item = usize>| {
        let entry = one.trim_matches(['[', ']']);
        let entries: Vec<_> = generations.map(|n| entry.replace(":1,", &format!(":{n},"))).collect();
        edited(frame, one, &format!("[{}]", entries.join(",")))
    };
    decodes(&list(&mut (1..=8)));
    closes(&list(&mut (1..=9)), Reason::ListLength);
    closes(&list(&mut (1..1)), Reason::ListLength);
    closes(&list(&mut [1, 2, 1].into_iter()), Reason::RepeatedGeneration);
}

/// W 11. W 12. W 13. W 14. W 15. W 16. W 183.
#[rstest]
#[case(r#""active_operations":1"#, r#""active_operations":-1"#, Reason::NumberRange)]
#[case(r#""active_operations":1"#, r#""active_operations":33"#, Reason::NumberRange)]
#[case(r#""active_operations":1"#, r#""active_operations":1.0"#, Reason::NumberRange)]
#[case(r#""active_operations":1"#, r#""active_operations":1e0"#, Reason::NumberRange)]
#[case(r#""active_operations":1"#, r#""active_operations":-0"#, Reason::NumberRange)]
#[case(r#""active_operations":1"#, r#""active_operations":"1""#, Reason::WrongType)]
#[case(r#""cpu_utilization":0.25"#, r#""cpu_utilization":1.1"#, Reason::NumberRange)]
#[case(r#""cpu_utilization":0.25"#, r#""cpu_utilization":-0.1"#, Reason::NumberRange)]
#[case(r#""cpu_utilization":0.25"#, r#""cpu_utilization":1e999"#, Reason::NumberRange)]
#[case(r#""cpu_utilization":0.25"#, r#""cpu_utilization":"0""#, Reason::WrongType)]
#[case(r#""cpu_utilization":0.25"#, r#""cpu_utilization":true"#, Reason::WrongType)]
#[case(r#""cpu_utilization":0.25,"#, "", Reason::MissingMember)]
#[case(r#""total_memory_bytes":33554432000"#, r#""total_memory_bytes":9007199254740992"#, Reason::NumberRange)]
#[case(r#""total_memory_bytes":33554432000"#, r#""total_memory_bytes":0"#, Reason::NumberRange)]
#[case(r#""effective_cpu_cores":1.5"#, r#""effective_cpu_cores":0"#, Reason::NumberRange)]
#[case(r#""effective_cpu_cores":1.5"#, r#""effective_cpu_cores":-0.0"#, Reason::NumberRange)]
#[case(r#""cpu_count":8"#, r#""cpu_count":9007199254740992"#, Reason::NumberRange)]
#[case(r#""cpu_count":8"#, r#""available_memory_bytes":33554432001"#, Reason::MemoryAboveTotal)]
#[case(r#""observed_at""#, r#""Observed_At""#, Reason::UnknownMember)]
#[case("2026-10-01T08:00:10Z", "2026-10-01t08:00:10Z", Reason::Time)]
#[case("2026-10-01T08:00:10Z", "0001-01-01T00:00:00Z", Reason::Time)]
#[case("2026-10-01T08:00:10Z", "1970-01-01T00:00:00+00:01", Reason::Time)]
#[case("2026-10-01T08:00:10Z", "9999-12-31T23:59:59-00:01", Reason::Time)]
#[case(r#""cpu_count":8"#, r#""provider_ready":true"#, Reason::UnknownMember)]
#[case(r#""cpu_count":8"#, r#""diagnostic":"provider_unavailable""#, Reason::UnknownMember)]
#[case(r#""owner_epoch":12"#, r#""owner_epoch":12,"generation_management":true"#, Reason::UnknownMember)]
fn health_with_an_impossible_value_is_refused(#[case] from: &str, #[case] to: &str, #[case] reason: Reason) {
    closes(&edited(HEARTBEAT, from, to), reason);
}

#[rstest]
#[case(r#""active_operations":0"#, r#""active_operations":32"#)]
#[case(r#""cpu_utilization":null"#, r#""cpu_utilization":1"#)]
#[case(r#""cpu_utilization":null"#, r#""cpu_utilization":1.00000000000000000001"#)]
#[case(r#""cpu_utilization":null"#, r#""cpu_utilization":-0"#)]
#[case(r#""total_memory_bytes":null"#, r#""total_memory_bytes":9007199254740991"#)]
#[case(r#""total_memory_bytes":null"#, r#""total_memory_bytes":7,"available_memory_bytes":7"#)]
#[case(r#""total_memory_bytes":null"#, r#""total_memory_bytes":null,"available_memory_bytes":0,"cpu_count":null"#)]
#[case(r#""effective_cpu_cores":null"#, r#""effective_cpu_cores":5e-324"#)]
#[case(r#""effective_cpu_cores":null"#, r#""effective_cpu_cores":null,"generations":[]"#)]
#[case("2026-10-01T08:00:10Z", "1970-01-01T00:00:00Z")]
#[case("2026-10-01T08:00:10Z", "9999-12-31T23:59:59.999999999Z")]
fn health_at_its_bounds_is_accepted(#[case] from: &str, #[case] to: &str) {
    decodes(&edited(QUIET_HEARTBEAT, from, to));
}

/// W 18. W 183.
#[test]
fn only_the_current_version_is_decoded() {
    for version in ["0", "1", "2", "3", "4", "5", "7", "6.0", "-6", "\"6\"", "null", "18446744073709551616"] {
        assert!(decode_text(&HELLO.replacen(":6,", &format!(":{version},"), 1)).is_err(), "{version}");
    }
    closes(&HELLO.replacen(":6,", ":5,", 1), Reason::Version);
    closes(&edited(HELLO, r#""version":6,"#, ""), Reason::Version);
    closes(&edited(HELLO, r#""type":"hello""#, r#""type":"Hello""#), Reason::Type);
    closes(&edited(HELLO, r#""type":"hello","#, ""), Reason::Type);
    closes(&edited(HELLO, r#""health""#, r#""generation_management":false,"health""#), Reason::UnknownMember);
}

/// W 22.
#[test]
fn unknown_measurements_are_written_as_null() {
    let health = Health {
        observed_at: "2026-10-01T08:00:10Z".into(),
        active_operations: 0,
        cpu_utilization: None,
        total_memory_bytes: None,
        effective_cpu_cores: None,
        cpu_count: None,
        available_memory_bytes: None,
        available_disk_bytes: None,
        generations: vec![],
    };
    let text = serde_json::to_string(&health).unwrap();
    assert_eq!(
        text,
        r#"{"observed_at":"2026-10-01T08:00:10Z","active_operations":0,"cpu_utilization":null,"total_memory_bytes":null,"effective_cpu_cores":null}"#
    );
}

/// W 184.
#[test]
fn announcement_without_a_deployment_is_refused() {
    for frame in [WELCOME, HEARTBEAT_ACK] {
        let at = frame.find(r#","deployment""#).unwrap();
        closes(&format!("{}}}", &frame[..at]), Reason::MissingMember);
        closes(&format!(r#"{},"deployment":null}}"#, &frame[..at]), Reason::Null);
    }
    closes(&edited(WELCOME, r#""serving_generation":3"#, r#""serving_generation":0"#), Reason::NumberRange);
    // Above the target: the node judges that, not the decoder.
    decodes(&edited(WELCOME, r#""serving_generation":3"#, r#""serving_generation":9"#));
}

/// W 185.
#[test]
fn frame_as_long_as_its_type_allows_is_accepted_and_one_byte_more_closes() {
    let padded = |text: &str, length: usize| format!("{text}{}", " ".repeat(length - text.len()));
    let command = |stdin: &str| {
        request("command", &format!(r#""command":{{"Args":["/bin/cat"],"Directory":"","Stdin":"{stdin}"}}"#))
    };
    let room = CALL_FRAME_MAX_BYTES - command("").len();
    let full = command(&"A".repeat(room / 4 * 4 - 4));
    for (frame, limit) in [(HEARTBEAT, CONTROL_FRAME_MAX_BYTES), (&*full, CALL_FRAME_MAX_BYTES)] {
        let mut text = padded(frame, limit);
        decodes(&text);
        assert!(decode_text(&text).is_ok());
        text.pop();
        decodes(&text);
        text.push_str("  ");
        assert_eq!(decode_text(&text).unwrap_err().reason, Reason::TooLong);
    }
    assert_eq!(Kind::Response.limit(), CALL_FRAME_MAX_BYTES);
    // A frame that does not begin as it is usually written has the same limit.
    let mut unusual = format!(" {}", padded(HEARTBEAT, CONTROL_FRAME_MAX_BYTES - 1));
    decodes(&unusual);
    unusual.push(' ');
    assert_eq!(decode_text(&unusual).unwrap_err().reason, Reason::TooLong);
}

#[test]
fn outgoing_frame_that_is_too_long_or_invalid_fails_and_writes_nothing() {
    let text = edited(HEARTBEAT, "2026-10-01T08:00:10Z", "2026-10-01T08:00:10.000000000Z");
    let Frame::Heartbeat { connection_id, owner_epoch, mut health } = decodes(&text).clone() else { panic!() };
    let frame = |health: &Health<'static>| Frame::Heartbeat { connection_id, owner_epoch, health: health.clone() };
    health.cpu_utilization = Some(f64::NAN);
    let mut health = health.into_owned();
    assert_eq!(encode(&frame(&health)).unwrap_err().reason, Reason::NumberRange);
    health.cpu_utilization = None;
    let observation = |n| Observation {
        generation: Generation::new(n).unwrap(),
        specification_digest: Digest::of(b""),
        state: ObservedState::Ready {
            checkpoint: Some(Checkpoint { artifact_domain: "a".repeat(256).into(), execution_class: "b".into() }),
        },
    };
    health.generations = (1..=8).map(observation).collect();
    assert!(encode(&frame(&health)).is_ok());
    health.generations.push(observation(9));
    let mut out = b"before".to_vec();
    let refused = palisade_core::wire::encode_into(&frame(&health), &mut out);
    assert_eq!(refused.unwrap_err().reason, Reason::ListLength);
    assert!(out.is_empty());
    let Frame::Hello { mut identity, health } = decodes(HELLO) else { panic!() };
    identity.provider = "p".repeat(CONTROL_FRAME_MAX_BYTES).into();
    assert_eq!(encode(&Frame::Hello { identity, health }).unwrap_err().reason, Reason::TooLong);
}

/// W 188.
#[rstest]
#[case::empty("archive-a", "", Reason::CheckpointToken)]
#[case::long("archive-a", &"x".repeat(257), Reason::CheckpointToken)]
#[case::missing(r#""artifact_domain":"archive-a","#, "", Reason::MissingMember)]
#[case::extra(r#""artifact_domain""#, r#""x":1,"artifact_domain""#, Reason::UnknownMember)]
#[case::null(r#""archive-a""#, "null", Reason::Null)]
#[case::not_ready(r#""state":"ready""#, r#""state":"preparing""#, Reason::StateMember)]
#[case::failed(r#""state":"ready""#, r#""state":"failed""#, Reason::StateMember)]
#[case::state(r#""state":"ready""#, r#""state":"Ready""#, Reason::State)]
#[case::state_as_object(r#""state":"ready""#, r#""state":{"ready":null}"#, Reason::WrongType)]
fn checkpoint_that_is_not_two_tokens_of_a_ready_generation_is_refused(
    #[case] from: &str,
    #[case] to: &str,
    #[case] reason: Reason,
) {
    decodes(&edited(HEARTBEAT, "archive-a", &"x".repeat(256)));
    closes(&edited(HEARTBEAT, from, to), reason);
}

/// W 189. W 190.
#[rstest]
#[case(r#""diagnostic":"runtime_download_failed""#, r#""diagnostic":"host_unsupported""#, Reason::Diagnostic)]
#[case(r#""diagnostic":"runtime_download_failed""#, r#""diagnostic":"""#, Reason::Diagnostic)]
#[case(r#""diagnostic":"runtime_download_failed""#, r#""diagnostic":null"#, Reason::Null)]
#[case(r#""state":"failed""#, r#""state":"ready""#, Reason::StateMember)]
fn undeclared_or_misplaced_diagnostic_is_refused(#[case] from: &str, #[case] to: &str, #[case] reason: Reason) {
    closes(&edited(HEARTBEAT, from, to), reason);
}

/// W 191.
#[test]
fn more_than_eight_observations_or_a_repeated_generation_are_refused() {
    let entry = |n: u64| {
        let digest = "9ad09c54f0a5b1143c191fc5dec37ed385c4917080c45ef79e1b6a98925a704a";
        format!(r#"{{"generation":{n},"specification_digest":"{digest}","state":"preparing"}}"#)
    };
    let beat = |generations: &[u64]| {
        let list: Vec<_> = generations.iter().copied().map(entry).collect();
        let more = format!(r#""active_operations":0,"generations":[{}]"#, list.join(","));
        edited(QUIET_HEARTBEAT, r#""active_operations":0"#, &more)
    };
    decodes(&beat(&[1, 2, 3, 4, 5, 6, 7, i64::MAX as u64]));
    closes(&beat(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), Reason::ListLength);
    closes(&beat(&[1, 2, 1]), Reason::RepeatedGeneration);
    closes(&beat(&[0]), Reason::NumberRange);
    closes(&beat(&[1 << 63]), Reason::NumberRange);
}

#[rstest]
#[case(r#""id":"11f2d3c4-b5a6-4798-8899-aabbccddeeff""#, r#""id":"whatever""#)]
#[case(r#""info":"#, r#""command":{"Stdout":"","Stderr":"","ExitCode":0},"info":"#)]
#[case(r#""info":"#, r#""error_code":"never seen","info":"#)]
#[case(r#""info":"#, r#""unsupported":{},"info":"#)]
fn response_that_the_proxy_judges_later_decodes(#[case] from: &str, #[case] to: &str) {
    let whole = response(&format!(r#""info":{}"#, samples::INFO));
    decodes(&edited(&whole, from, to));
}

#[rstest]
#[case(r#""error_code":"""#, Reason::EmptyErrorCode)]
#[case(r#""error_code":null"#, Reason::Null)]
#[case(r#""unsupported":{"operation":null}"#, Reason::Null)]
#[case(r#""unsupported":{"Operation":"Create"}"#, Reason::UnknownMember)]
#[case(r#""restored":0"#, Reason::WrongType)]
#[case(r#""command":{"Stdout":"","Stderr":"","ExitCode":9223372036854775808}"#, Reason::NumberRange)]
#[case(r#""compute":{"Generation":9223372036854775808,"Name":"","ID":"","RestoredFrom":null}"#, Reason::NumberRange)]
#[case(r#""compute":{"Generation":-0,"Name":"","ID":"","RestoredFrom":null}"#, Reason::NumberRange)]
fn response_with_a_malformed_member_is_refused(#[case] members: &str, #[case] reason: Reason) {
    closes(&response(members), reason);
}

#[test]
fn large_generations_keep_every_digit() {
    let text = edited(RETENTION, r#"[{"generation":1"#, r#"[{"generation":9223372036854775807"#);
    let Frame::Retention { references, .. } = decodes(&text) else { panic!() };
    assert_eq!(references[0].generation.get(), 9_223_372_036_854_775_807);
}

/// Standard input is written in pieces; the seams show nowhere, and the buffer grows once.
#[test]
fn standard_input_of_any_length_encodes_as_one_text() {
    let text = request("command", &format!(r#""command":{}"#, samples::COMMAND));
    for length in [0, 1, 2, 3, 3_071, 3_072, 3_073, 6_144, 6_145, 100_000] {
        let Frame::Request(mut request) = decodes(&text) else { panic!() };
        let bytes: Vec<u8> = (0..length).map(|at: usize| at.to_le_bytes()[0]).collect();
        request.command.as_mut().unwrap().stdin = Some(bytes.clone().into());
        let frame = Frame::Request(request);
        let written = encode(&frame).unwrap();
        let expected = format!("\"Stdin\":\"{}\"", base64_simd::STANDARD.encode_to_string(&bytes));
        assert!(String::from_utf8(written.clone()).unwrap().contains(&expected), "{length}");
        assert_eq!(decode(&written), Ok(frame), "{length}");
        assert!(
            length < 10_000 || written.capacity() < written.len() + 2_048,
            "{} for {}",
            written.capacity(),
            written.len()
        );
    }
}
