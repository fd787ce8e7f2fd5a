//! Every hostile document of `vectors/frames.json` gets the verdict that stands beside it. The Web package runs the
//! same file.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod samples;

use palisade_core::wire::{Frame, Grade, IntoOwned, Kind, Reason, check, decode, encode};
use proptest::prelude::*;
use samples::all;
use serde_json::Value;

fn message(entry: &Value) -> Vec<u8> {
    let mut bytes = match entry["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => base64_simd::STANDARD.decode_to_vec(entry["base64"].as_str().unwrap()).unwrap(),
    };
    if let Some(length) = entry["padded_to"].as_u64() {
        bytes.resize(usize::try_from(length).unwrap(), b' ');
    }
    bytes
}

/// W 182. W 185. E38. Letter case, duplicates, numbers and texts that two readers read differently; `web-tests` gives the
/// same documents to the Web package.
#[test]
fn hostile_documents_get_the_verdict_of_the_vectors() {
    let entries: Vec<Value> = serde_json::from_str(include_str!("../../vectors/frames.json")).unwrap();
    assert!(entries.len() > 250);
    let mut wrong = Vec::new();
    for entry in &entries {
        let verdict = check(&message(entry));
        let found = (verdict.grade().name(), verdict.kind().map(Kind::name), verdict.reason());
        let expected = (entry["grade"].as_str().unwrap(), entry["type"].as_str(), entry["reason"].as_str());
        if found != expected {
            wrong.push(format!("{}: {found:?} instead of {expected:?}", entry["name"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// E38. Generations, epochs and sequences beyond 2^53 keep their last digit, up to 2^63 - 1 and no further.
#[test]
fn integers_beyond_the_doubles_survive_to_the_last_digit() {
    for number in [(1_u64 << 53) + 1, i64::MAX as u64 - 1, i64::MAX as u64] {
        for (frame, member) in [(samples::WELCOME, r#""generation":4"#), (samples::RETENTION, r#""sequence":1"#)] {
            let name = member.split_once(':').unwrap().0;
            let text = samples::edited(frame, member, &format!("{name}:{number}"));
            let written = String::from_utf8(encode(&samples::decodes(&text)).unwrap()).unwrap();
            assert!(written.contains(&format!("{name}:{number}")), "{written}");
        }
    }
    let beyond = samples::edited(samples::WELCOME, r#""generation":4"#, &format!(r#""generation":{}"#, 1_u64 << 63));
    assert!(decode(beyond.as_bytes()).is_err());
}

#[test]
fn whatever_decodes_encodes_to_the_same_frame() {
    let entries: Vec<Value> = serde_json::from_str(include_str!("../../vectors/frames.json")).unwrap();
    for entry in &entries {
        let message = message(entry);
        let Ok(frame) = decode(&message) else { continue };
        // The only frame that may be received and never be sent: `TokenUsage` is stripped by its sender.
        match encode(&frame) {
            Ok(written) => assert_eq!(decode(&written), Ok(frame), "{}", entry["name"]),
            Err(_) => assert!(entry["name"].as_str().unwrap().starts_with("token usage"), "{}", entry["name"]),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any change of one byte is refused or yields a frame that encodes and decodes to itself; nothing panics.
    #[test]
    fn changed_byte_never_breaks_the_decoder(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte: u8) {
        let samples = all();
        let mut message = which.get(&samples).clone().into_bytes();
        let at = at.index(message.len());
        message[at] = byte;
        let written = decode(&message).ok().and_then(|frame| encode(&frame).ok());
        if let Some(written) = written {
            prop_assert_eq!(decode(&written), decode(&message));
        }
        let _ = check(&message);
    }

    /// Any text of the members that take any text survives.
    #[test]
    fn any_text_and_bytes_survive(args in prop::collection::vec(any::<String>(), 0..4), stdin in prop::option::of(any::<Vec<u8>>()), stdout: String, exit_code: i64) {
        let text = samples::request("command", &format!(r#""command":{}"#, samples::COMMAND));
        let Frame::Request(mut request) = samples::decodes(&text) else { panic!() };
        let command = request.command.as_mut().unwrap();
        command.args = args.into_iter().map(Into::into).collect();
        command.stdin = stdin.map(Into::into);
        let frame = Frame::Request(request);
        let written = encode(&frame).unwrap();
        prop_assert_eq!(decode(&written), Ok(frame));
        let text = samples::response(r#""command":{"Stdout":"","Stderr":"","ExitCode":0}"#);
        let Frame::Response(mut response) = samples::decodes(&text) else { panic!() };
        let result = response.command.as_mut().unwrap();
        (result.stdout, result.exit_code) = (stdout.into(), exit_code);
        let frame = Frame::Response(response);
        let written = encode(&frame).unwrap();
        prop_assert_eq!(decode(&written), Ok(frame));
    }

    /// Any number that health and samples may hold survives to the last bit.
    #[test]
    fn any_number_survives(cpu in 0.0..=1.0_f64, cores in any::<f64>(), seconds in any::<f64>(), memory in 0..=i64::MAX as u64) {
        let Frame::Heartbeat { connection_id, owner_epoch, mut health } = samples::decodes(samples::HEARTBEAT) else { panic!() };
        health.cpu_utilization = Some(cpu);
        health.effective_cpu_cores = Some(cores.abs()).filter(|cores| *cores > 0.0 && cores.is_finite());
        let frame = Frame::Heartbeat { connection_id, owner_epoch, health };
        let written = encode(&frame).unwrap();
        prop_assert_eq!(decode(&written), Ok(frame));
        let text = samples::response(&format!(r#""sample":{}"#, samples::SAMPLE));
        let Frame::Response(response) = samples::decodes(&text) else { panic!() };
        let mut response = response.into_owned();
        let sample = response.sample.as_mut().unwrap();
        sample.cpu_usage_seconds_total = Some(seconds).filter(|seconds| seconds.is_finite());
        sample.memory_usage_bytes = Some(memory);
        let frame = Frame::Response(response);
        let written = encode(&frame).unwrap();
        prop_assert_eq!(decode(&written), Ok(frame));
    }
}

#[test]
fn grades_have_the_names_of_the_command_line() {
    let names = [Grade::Ok, Grade::InvalidFrame, Grade::InvalidRequest].map(Grade::name);
    assert_eq!(names, ["ok", "invalid_frame", "invalid_request"]);
}

/// Standard input of every length around the sizes of blocks survives, padding included.
#[test]
fn input_of_every_length_survives() {
    let text = samples::request("command", &format!(r#""command":{}"#, samples::COMMAND));
    for length in (0..=300).chain(3_060..=3_090).chain(6_130..=6_160).chain(12_270..=12_300) {
        let Frame::Request(mut request) = samples::decodes(&text) else { panic!() };
        let bytes: Vec<u8> = (0..length).map(|at: usize| u8::try_from(at * 7 % 251).unwrap()).collect();
        let expected = base64_simd::STANDARD.encode_to_string(&bytes);
        request.command.as_mut().unwrap().stdin = Some(bytes.into());
        let frame = Frame::Request(request);
        let written = encode(&frame).unwrap();
        assert!(String::from_utf8_lossy(&written).contains(&format!("\"{expected}\"")), "{length}");
        assert_eq!(decode(&written), Ok(frame), "{length}");
    }
}

/// People read what is wrong and where; nothing of the message stands in it.
#[test]
fn a_verdict_explains_itself() {
    let explained = |text: &str| check(text.as_bytes()).explanation();
    assert_eq!(explained(samples::HEARTBEAT), None);
    let unknown = explained(&samples::request("reboot", "")).unwrap();
    assert_eq!(unknown, "unknown operation");
    for text in ["", "{", "[]", &samples::HEARTBEAT.replace("0.25", "1.5"), &samples::HEARTBEAT.replace("0.25", "true")]
    {
        let verdict = check(text.as_bytes());
        let explanation = verdict.explanation().unwrap();
        assert!(explanation.starts_with(verdict.reason().unwrap()), "{explanation}");
        assert!(explanation.len() > 10 && !explanation.contains("1.5"), "{explanation}");
    }
}

/// The first type is the one that a verdict names, whatever comes after it.
#[test]
fn a_repeated_type_is_refused_as_the_first_one() {
    for text in [r#"{"version":6,"type":"hello","type":"welcome"}"#, r#"{"type":"hello","version":6,"type":"welcome"}"#]
    {
        let verdict = check(text.as_bytes());
        assert_eq!((verdict.grade(), verdict.kind()), (Grade::InvalidFrame, Some(Kind::Hello)));
    }
}

/// Credentials, commands and their output never stand in a log line that shows a frame.
#[test]
fn a_shown_frame_holds_sizes_and_no_content() {
    let shown = |text: &str| format!("{:?}", samples::decodes(text));
    let create = shown(&samples::request("create", &format!(r#""bootstrap":{}"#, samples::bootstrap())));
    assert!(create.contains("[secret]") && !create.contains("synthetic-daemon-secret"), "{create}");
    let command = shown(&samples::request("command", &format!(r#""command":{}"#, samples::COMMAND)));
    assert!(command.contains("Command { args: 2, stdin_bytes: Some(6), .. }"), "{command}");
    assert!(!command.contains("hello") && !command.contains("/usr/bin/env"), "{command}");
    let result = shown(&samples::response(r#""command":{"Stdout":"private","Stderr":"own","ExitCode":7}"#));
    assert!(result.contains("CommandResult { stdout_bytes: 7, stderr_bytes: 3, exit_code: 7 }"), "{result}");
    assert!(!result.contains("private"), "{result}");
}

/// A number that no double holds is out of range wherever a number may stand.
#[test]
fn a_number_beyond_every_double_is_refused() {
    let sample = samples::response(&format!(r#""sample":{}"#, samples::SAMPLE));
    for member in ["CPUUsageSecondsTotal\":12.5", "CPUCapacityCores\":2", "CPUUtilizationRatio\":0.5"] {
        let (name, _) = member.split_once(':').unwrap();
        assert!(sample.contains(member), "{member}");
        for number in ["1e999", "-1e999"] {
            let text = sample.replace(member, &format!("{name}:{number}"));
            assert_eq!(decode(text.as_bytes()).unwrap_err().reason, Reason::NumberRange, "{text}");
        }
    }
}
