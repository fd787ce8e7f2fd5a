//! The table of ratios at the end of a benchmark, from the medians that criterion keeps.

use std::path::PathBuf;

use serde_json::Value;

/// Prints one line for each frame: our decoding and encoding beside the same without our rules, beside a copy of the
/// bytes, and decoding beside the work that its large string cannot do without, where it has one.
pub fn frames(groups: &[(&str, Option<&str>)]) {
    println!(
        "\nmedians as ratios, ours to the other; `floor` is base64 decoding or the check and scan of the text alone"
    );
    println!("{:<20}{:>14}{:>10}{:>10}{:>14}{:>10}", "", "decode/plain", "/copy", "/floor", "encode/plain", "/copy");
    for (group, floor) in groups {
        let ratio = |ours: &str, other: &str| ratio(group, ours, other);
        let floor = floor.map_or_else(String::new, |floor| ratio("decode", floor));
        println!(
            "{group:<20}{:>14}{:>10}{floor:>10}{:>14}{:>10}",
            ratio("decode", "decode_plain"),
            ratio("decode", "copy"),
            ratio("encode", "encode_plain"),
            ratio("encode", "copy"),
        );
    }
}

/// The ratio of two measurements of a group; `-` when one of them was not made.
#[must_use]
pub fn ratio(group: &str, ours: &str, other: &str) -> String {
    match (median(group, ours), median(group, other)) {
        (Some(ours), Some(other)) => format!("{:.2}", ours / other),
        (None, _) | (_, None) => "-".to_owned(),
    }
}

/// Nanoseconds.
fn median(group: &str, name: &str) -> Option<f64> {
    let file = home().join(group).join(name).join("new/estimates.json");
    let estimates: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    estimates["median"]["point_estimate"].as_f64()
}

/// Where criterion keeps its estimates.
fn home() -> PathBuf {
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    named("CRITERION_HOME").unwrap_or_else(|| {
        let target = named("CARGO_TARGET_DIR");
        target.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target"))).join("criterion")
    })
}
