//! What callgrind counted, as two tables, and whether a ceiling was broken.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::pair::{PAIRS, Pair};
use crate::step::{STEPS, Step};

/// Prints both tables; fails when something took more instructions than its ceiling allows.
#[must_use]
pub fn report() -> ExitCode {
    match tables() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(broken) => {
            eprintln!("error: {broken} of the counts above are over their ceiling");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: the counts cannot be read: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How many ceilings were broken.
fn tables() -> io::Result<usize> {
    let mut out = io::stdout().lock();
    let mut broken = 0;
    writeln!(
        out,
        "\n{:<30}{:<28}{:>9}{:>13}{:>13}{:>8}{:>10}",
        "instructions", "against", "ceiling", "ours", "peer", "ratio", "target"
    )?;
    for (at, Pair { name, against, target, ceiling, .. }) in PAIRS.iter().enumerate() {
        let (ours, peer) = (counted("ours", at)?, counted("peer", at)?);
        // Counts are far below 2^53.
        #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let ratio = ours as f64 / peer as f64;
        let over = ratio > *ceiling;
        broken += usize::from(over);
        let (verdict, target) = (verdict(over, ratio > *target), format!("<= {target}"));
        writeln!(out, "{name:<30}{against:<28}{ceiling:>9.2}{ours:>13}{peer:>13}{ratio:>8.2}{target:>10}{verdict}")?;
    }
    writeln!(
        out,
        "\n{:<58}{:>13}{:>13}{:>8}{:>10}",
        "instructions of a step", "counted", "ceiling", "ratio", "target"
    )?;
    for (at, Step { name, ceiling, .. }) in STEPS.iter().enumerate() {
        let count = counted("step", at)?;
        let over = count > *ceiling;
        broken += usize::from(over);
        #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let ratio = count as f64 / *ceiling as f64;
        writeln!(out, "{name:<58}{count:>13}{ceiling:>13}{ratio:>8.2}{:>10}{}", "<= 1", verdict(over, false))?;
    }
    Ok(broken)
}

const fn verdict(over_ceiling: bool, over_target: bool) -> &'static str {
    match (over_ceiling, over_target) {
        (true, _) => "  OVER THE CEILING",
        (false, true) => "  above the target",
        (false, false) => "",
    }
}

/// The instructions of one measurement, from what callgrind wrote.
fn counted(function: &str, at: usize) -> io::Result<u64> {
    let name = format!("{function}.at_{at}");
    let file = home().join(&name).join(format!("callgrind.{name}.out"));
    let text = std::fs::read_to_string(&file)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
    let total = text.lines().find_map(|line| line.strip_prefix("summary: ")?.split_whitespace().next()?.parse().ok());
    total.ok_or_else(|| io::Error::other(format!("{} has no summary", file.display())))
}

/// Where gungraun keeps the counts of the benchmark `instructions`.
fn home() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    target.join("gungraun/palisade-frame-benches/instructions/counting/counts")
}
