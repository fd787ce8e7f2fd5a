//! The two roads agree: what is read and written fast is what `serde_json` reads and writes.

use std::collections::HashSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::frame::Response;
use super::payload::CommandResult;
use super::{Frame, Kind, Reason, Violation, decode, decode_text, encode, exact, fast, writer};
use crate::limits::{CALL_FRAME_MAX_BYTES, CONTROL_FRAME_MAX_BYTES};
use crate::units::Id;

/// What a careless or hostile writer puts in place of something else.
const PIECES: &[&str] = &[
    "null",
    "true",
    "-0",
    "-1",
    "1.5",
    "1e3",
    "1e999",
    "01",
    "1.",
    "18446744073709551616",
    "9223372036854775808",
    "{}",
    "[]",
    "\"\"",
    "\"",
    "\\",
    "\\n",
    "\\u0041",
    "\\ud800",
    "\\\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    " ",
    "\n",
    "\t",
    "\u{1f}",
    "\u{7f}",
    "\u{e9}",
    "A",
    "0",
    "=",
    "aGVsbG8K",
    "\"version\":6,",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];

/// The texts of the vectors, those that are padded to the limits without their padding.
static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let entries: Vec<Value> =
        serde_json::from_str(include_str!("../../../vectors/frames.json")).expect("the vectors are JSON");
    entries.iter().filter_map(|entry| entry["text"].as_str()).map(str::to_owned).collect()
});

/// Holds the fast road to what `serde_json` says, in both of its forms.
fn roads_agree(text: &str) -> Result<(), TestCaseError> {
    let judged = exact(text);
    for frame in [fast(text), fast(text.as_bytes())].into_iter().flatten() {
        prop_assert_eq!(Ok(frame), judged.clone(), "{}", text);
    }
    prop_assert_eq!(decode_text(text), judged);
    Ok(())
}

/// Holds the writer to what `serde_json` writes.
fn writers_agree(frame: &Frame<'_>) -> Result<(), TestCaseError> {
    match frame {
        Frame::Hello { identity, health } => {
            writes_alike(identity)?;
            writes_alike(health)
        }
        Frame::Welcome(announcement) | Frame::HeartbeatAck(announcement) => writes_alike(&announcement.deployment),
        Frame::Heartbeat { health, .. } => writes_alike(health),
        Frame::Retention { references, .. } => writes_alike(references),
        Frame::RetentionAck { retentions, .. } => writes_alike(retentions),
        Frame::Request(request) => writes_alike(&**request),
        Frame::Response(response) => writes_alike(&**response),
    }
}

fn writes_alike(value: &impl Serialize) -> Result<(), TestCaseError> {
    let mut written = Vec::new();
    // What may be received and never be sent fails either way.
    match (writer::write(value, &mut written), serde_json::to_vec(value)) {
        (Ok(()), Ok(expected)) => prop_assert_eq!(String::from_utf8(written), String::from_utf8(expected)),
        (written, expected) => prop_assert!(written.is_err() && expected.is_err()),
    }
    Ok(())
}

#[test]
fn every_vector_is_read_and_written_alike_on_both_roads() {
    for text in TEXTS.iter() {
        roads_agree(text).expect("both roads agree");
        if let Ok(frame) = decode_text(text) {
            writers_agree(&frame).expect("both writers agree");
        }
    }
}

/// What takes the slow road without being wrong is slow for nothing.
#[test]
fn frames_that_we_write_are_read_on_the_fast_road() {
    let mut kinds = HashSet::new();
    for frame in TEXTS.iter().filter_map(|text| decode_text(text).ok()) {
        let Ok(written) = encode(&frame) else { continue };
        assert_eq!(fast(&*written), Some(frame.clone()));
        let text = std::str::from_utf8(&written).expect("frames are written as UTF-8");
        assert_eq!(fast(text), Some(frame.clone()));
        kinds.insert(frame.kind());
    }
    assert_eq!(kinds.len(), Kind::ALL.len());
}

/// Puts `more` behind each of these characters that stands outside of strings, one place after the other or at all.
fn with_more(text: &str, behind: &[char], more: &str) -> (Vec<String>, String) {
    let (mut quoted, mut escaped) = (false, false);
    let mut places = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if !quoted && behind.contains(&character) => places.push(at + 1),
            _ => {}
        }
    }
    // The fast road begins where the names of version and type end.
    places.retain(|at| *at > text.find(r#","type":"#).expect("a type") + 10);
    let one = |at: &usize| format!("{}{more}{}", &text[..*at], &text[*at..]);
    let all = places.iter().rev().fold(text.to_owned(), |text, at| format!("{}{more}{}", &text[..*at], &text[*at..]));
    (places.iter().map(one).collect(), all)
}

/// Each character that needs an escape has the one that `serde_json` gives it, alone and among others.
#[test]
fn every_escape_is_written_alike() {
    let all: String = (0..=0x80_u8).map(char::from).collect();
    for text in (0..=0x80_u8).map(|character| format!("a{}b", char::from(character))).chain([all]) {
        writes_alike(&text).expect("both writers agree");
    }
}

/// White space between the parts of a frame is no reason for the slow road, and a comma too many is no frame.
#[test]
fn white_space_is_read_on_the_fast_road_and_no_comma_too_many_is() {
    for frame in TEXTS.iter().filter_map(|text| decode_text(text).ok()) {
        let Ok(written) = encode(&frame) else { continue };
        let text = String::from_utf8(written).expect("frames are written as UTF-8");
        let (_, spaced) = with_more(&text, &['{', '}', '[', ']', ',', ':'], " \n\t\r ");
        if exact(&spaced).as_ref() == Ok(&frame) {
            assert_eq!(fast(&*spaced), Some(frame.clone()), "{spaced}");
        }
        for comma in with_more(&text, &['{', '[', ','], ",").0 {
            assert_eq!((fast(&*comma), exact(&comma).is_err()), (None, true), "{comma}");
        }
    }
}

fn command_response(length: usize) -> Response<'static> {
    let command = CommandResult { stdout: "x".repeat(length).into(), stderr: "\n".into(), exit_code: 0 };
    Response { id: Id::from_random([2; 16]).to_string().into(), command: Some(command), ..Response::default() }
}

/// What a provider answered travels exactly as long as the whole frame is short enough.
#[test]
fn a_response_encodes_up_to_the_limit_of_its_frame() {
    let length = |stdout| {
        let connection_id = Some(Id::from_random([1; 16]));
        let response = Response { connection_id, ..command_response(stdout) };
        encode(&Frame::Response(Box::new(response))).map(|text| text.len())
    };
    let longest = CALL_FRAME_MAX_BYTES - length(0).expect("it keeps the rules");
    assert_eq!(length(longest), Ok(CALL_FRAME_MAX_BYTES));
    assert_eq!(length(longest + 1), Err(Violation::frame(Reason::TooLong)));
}

#[test]
fn long_bytes_that_are_no_utf8_are_refused_wherever_they_stand() {
    let text = TEXTS.iter().find(|text| text.contains(r#""Stdin":"aGVsbG8K""#)).expect("a command is a vector");
    let long = text.replace("aGVsbG8K", &"aGVsbG8K".repeat(CONTROL_FRAME_MAX_BYTES / 8)).into_bytes();
    assert!(decode(&long).is_ok());
    for at in (0..long.len()).filter(|at| *at < 600 || at % 997 == 0 || at + 100 > long.len()) {
        let mut broken = long.clone();
        broken[at] = 0xff;
        let refused = decode(&broken).map(|frame| frame.kind());
        assert_eq!(refused, Err(super::Violation::frame(super::Reason::NotUtf8)), "at {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// W 182. W 185. Pieces put in, cut out, repeated or replaced: the fast road takes nothing that `serde_json` refuses, and
    /// reads the same from what both take.
    #[test]
    fn changed_frames_are_judged_alike_on_both_roads(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..40_usize, prop::option::of(prop::sample::select(PIECES)), any::<bool>()),
            1..4,
        ),
    ) {
        let mut text: Vec<char> = which.get(&TEXTS).chars().collect();
        for (at, length, piece, repeat) in changes {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            let cut = text[at..end].to_vec();
            let put: Vec<char> = piece.map_or(if repeat { [&cut[..], &cut[..]].concat() } else { Vec::new() }, |piece| piece.chars().collect());
            text.splice(at..end, put);
        }
        let text: String = text.into_iter().collect();
        roads_agree(&text)?;
        if let Ok(frame) = decode_text(&text) {
            writers_agree(&frame)?;
        }
    }
}
