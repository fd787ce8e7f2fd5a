//! Strictness at every depth: each object of each valid frame, broken in every way.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod samples;

use palisade_core::wire::{Reason, decode};
use samples::all;
use serde_json::Value;

/// What to break, at the n-th object of a frame.
#[derive(Clone, Copy, Debug)]
enum Break {
    Unknown,
    Array,
    Repeat(usize),
    Alias(usize),
    Null(usize),
    Omit(usize),
}

/// May be `null` (wire §2).
const NULLABLE: &[&str] = &[
    "AllowedDomains",
    "RestoredFrom",
    "Stdin",
    "TokenUsage",
    "ProviderState",
    "cpu_utilization",
    "total_memory_bytes",
    "effective_cpu_cores",
    "cpu_count",
    "available_memory_bytes",
    "available_disk_bytes",
    "serving_generation",
    "StartedAt",
    "CPUUsageSecondsTotal",
    "CPUCapacityCores",
    "MemoryUsageBytes",
    "MemoryLimitBytes",
];

/// May be absent. The arguments of a request and the results of a response decode without one another.
const OPTIONAL: &[&str] = &[
    "Workspace",
    "cpu_count",
    "available_memory_bytes",
    "available_disk_bytes",
    "generations",
    "diagnostic",
    "checkpoint",
    "CPUUtilizationRatio",
    "DiskUsageBytes",
    "DiskLimitBytes",
];

const ARGUMENTS: &[&str] = &[
    "bootstrap",
    "compute",
    "generation",
    "command",
    "suspend",
    "resume",
    "snapshot",
    "observation",
    "key",
    "error_code",
    "unsupported",
    "info",
    "state",
    "sample",
    "restored",
];

const OPAQUE: &[&str] = &["ProviderState", "Parameters", "Native"];

/// A member of an object of a frame: the object's name, the member's name.
struct Place {
    object: String,
    members: Vec<String>,
}

/// Lists the objects in the order [`render`] meets them.
fn objects(name: &str, value: &Value, found: &mut Vec<Place>) {
    match value {
        Value::Object(members) => {
            found.push(Place { object: name.to_owned(), members: members.keys().cloned().collect() });
            for (name, value) in members.iter().filter(|(name, _)| !OPAQUE.contains(&name.as_str())) {
                objects(name, value, found);
            }
        }
        Value::Array(entries) => entries.iter().for_each(|entry| objects(name, entry, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The text of `value`, with the object that `left` counts down to broken.
fn render(value: &Value, left: &mut Option<usize>, fault: Break) -> String {
    match value {
        Value::Object(members) => {
            let here = *left == Some(0);
            *left = left.and_then(|left| left.checked_sub(1));
            let mut parts = Vec::new();
            for (at, (name, value)) in members.iter().enumerate() {
                let text = if OPAQUE.contains(&name.as_str()) { value.to_string() } else { render(value, left, fault) };
                match fault {
                    Break::Repeat(n) if here && n == at => parts.push(format!("{name:?}:{text},{name:?}:{text}")),
                    Break::Alias(n) if here && n == at => parts.push(format!("{:?}:{text}", alias(name))),
                    Break::Null(n) if here && n == at => parts.push(format!("{name:?}:null")),
                    Break::Omit(n) if here && n == at => {}
                    Break::Array if here => parts.push(text),
                    _ => parts.push(format!("{name:?}:{text}")),
                }
            }
            match fault {
                Break::Array if here => format!("[{}]", parts.join(",")),
                Break::Unknown if here => {
                    parts.push(r#""surprise":1"#.to_owned());
                    format!("{{{}}}", parts.join(","))
                }
                _ => format!("{{{}}}", parts.join(",")),
            }
        }
        Value::Array(entries) => {
            let entries: Vec<_> = entries.iter().map(|entry| render(entry, left, fault)).collect();
            format!("[{}]", entries.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn alias(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    let swapped =
        if first == first.to_ascii_lowercase() { first.to_ascii_uppercase() } else { first.to_ascii_lowercase() };
    format!("{swapped}{rest}")
}

fn may_be_null(object: &str, member: &str) -> bool {
    NULLABLE.contains(&member) || (member == "Snapshot" && matches!(object, "state" | "suspend"))
}

fn may_be_absent(object: &str, member: &str) -> bool {
    let argument = matches!(object, "request" | "response") && ARGUMENTS.contains(&member);
    let evidence = object == "unsupported";
    argument || evidence || OPTIONAL.contains(&member)
}

#[track_caller]
fn is_refused(text: &str, fault: &str) {
    assert!(decode(text.as_bytes()).is_err(), "{fault} decodes: {text}");
}

/// Every object with every fault; returns how many texts were tried.
fn break_everything(sample: &str) -> usize {
    let value: Value = serde_json::from_str(sample).unwrap();
    let mut places = Vec::new();
    objects("frame", &value, &mut places);
    let mut tried = 0;
    for (n, Place { object, members }) in places.iter().enumerate() {
        let broken = |fault| render(&value, &mut Some(n), fault);
        is_refused(&broken(Break::Unknown), "unknown member");
        is_refused(&broken(Break::Array), "array");
        for (at, member) in members.iter().enumerate() {
            is_refused(&broken(Break::Repeat(at)), "repeated member");
            is_refused(&broken(Break::Alias(at)), "case alias");
            let null = broken(Break::Null(at));
            if may_be_null(object, member) {
                assert!(decode(null.as_bytes()).is_ok(), "{object}.{member} may be null");
            } else {
                is_refused(&null, "null");
            }
            let absent = decode(broken(Break::Omit(at)).as_bytes()).map(drop);
            if may_be_absent(object, member) {
                assert_eq!(absent, Ok(()), "{object}.{member} may be absent");
            } else {
                assert!(absent.is_err(), "{object}.{member} is required");
            }
            tried += 4;
        }
    }
    tried
}

/// W 182.
#[test]
fn every_object_refuses_unknown_repeated_aliased_null_and_missing_members() {
    let tried: usize = all().iter().map(|sample| break_everything(sample)).sum();
    assert!(tried > 2_000, "{tried} texts were tried");
}

/// Nests an array `levels` deep.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn opaque_values_count_towards_the_depth_of_the_frame() {
    let state = |levels| {
        samples::request("observe", &format!(r#""observation":{}"#, samples::OBSERVATION))
            .replace(r#"{"current":{"id":"local:16","generation":0}}"#, &nested(levels))
    };
    samples::decodes(&state(124));
    samples::closes(&state(125), Reason::TooDeep);
    let bound = |levels: usize| {
        samples::request("create", &format!(r#""bootstrap":{}"#, samples::bootstrap()))
            .replace(r#""Parameters":{}"#, &format!(r#""Parameters":{{"a":{}}}"#, nested(levels - 1)))
    };
    samples::decodes(&bound(123));
    samples::closes(&bound(124), Reason::TooDeep);
    // Deep nesting where it cannot be valid is refused without recursion.
    let deep = format!(r#"{{"x":{},"version":6,"type":"hello"}}"#, nested(200_000));
    assert!(decode(deep.as_bytes()).is_err());
}

/// Only brackets outside texts nest, and what closes again does not add up.
#[test]
fn brackets_in_texts_and_beside_each_other_are_not_deep() {
    let state = |value: &str| {
        samples::request("observe", &format!(r#""observation":{}"#, samples::OBSERVATION))
            .replace(r#"{"current":{"id":"local:16","generation":0}}"#, value)
    };
    let open = "[{".repeat(200);
    let close = "}]".repeat(200);
    samples::decodes(&state(&format!(r#"{{"a":"{open}","{close}":"\"{open}\\","b":["{close}\\\"{open}"]}}"#)));
    samples::decodes(&state(&format!("[{}[]]", "[],{},".repeat(200).replace("{}", r#"{"a":[]}"#))));
    // A text that ends with an escaped backslash hides nothing that follows it.
    samples::closes(&state(&format!(r#"["\\",{}]"#, nested(124))), Reason::TooDeep);
    samples::closes(&state(&format!(r#"["\"",{}]"#, nested(124))), Reason::TooDeep);
    samples::closes(&state(&format!(r#"["]]",{}]"#, nested(124))), Reason::TooDeep);
    samples::decodes(&state(&format!(r#"["\\",{},"[["]"#, nested(123))));
}
