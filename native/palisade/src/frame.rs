//! `palisade frame check`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use palisade_core::limits::CALL_FRAME_MAX_BYTES;
use palisade_core::wire::{self, Grade};
use serde::Serialize;

use crate::cli::Check;
use crate::spec::{input, source};

pub(crate) fn check(options: &Check) -> anyhow::Result<ExitCode> {
    let input = input(options.file.as_deref())?;
    let unread = || source(options.file.as_deref());
    let mut out = std::io::stdout().lock();
    let all_ok = if options.base64_lines {
        let verdict = lines(BufReader::new(input), &mut out).with_context(unread)?;
        verdict.context("the input has no line, expected one frame in base64 on each line")?
    } else {
        let mut message = Vec::new();
        // One byte more than the longest frame is enough to see that it is too long.
        input.take(CALL_FRAME_MAX_BYTES as u64 + 1).read_to_end(&mut message).with_context(unread)?;
        report(&mut out, &judge(&message))?
    };
    Ok(if all_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Serialize)]
struct Report {
    grade: &'static str,
    r#type: Option<&'static str>,
    reason: Option<String>,
}

/// Whether every line is a frame; `None` without a line, which says nothing about any frame.
fn lines(mut input: impl BufRead, out: &mut impl Write) -> anyhow::Result<Option<bool>> {
    // Padded base64 of a frame that is one byte too long, which is enough to see it, and the line end.
    const LINE_MAX_BYTES: u64 = (CALL_FRAME_MAX_BYTES as u64 + 1).div_ceil(3) * 4 + 2;
    let (mut all_ok, mut number, mut line) = (true, 0_u64, Vec::new());
    loop {
        line.clear();
        number += 1;
        if (&mut input).take(LINE_MAX_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok((number > 1).then_some(all_ok));
        }
        let whole = line.ends_with(b"\n") || (line.len() as u64) < LINE_MAX_BYTES;
        let verdict = if whole {
            judge_line(number, line.trim_ascii_end())
        } else {
            input.skip_until(b'\n')?;
            unreadable(format!("line {number} is longer than the longest frame"))
        };
        all_ok &= report(out, &verdict)?;
    }
}

fn judge_line(number: u64, text: &[u8]) -> Report {
    if text.is_empty() {
        return unreadable(format!("line {number} is empty, expected a frame in base64"));
    }
    match base64_simd::STANDARD.decode_to_vec(text) {
        Ok(message) => judge(&message),
        Err(_) => unreadable(format!("line {number} is no canonical padded base64")),
    }
}

/// A line that holds no message.
fn unreadable(reason: String) -> Report {
    Report { grade: Grade::InvalidFrame.name(), r#type: None, reason: Some(reason) }
}

fn judge(message: &[u8]) -> Report {
    let verdict = wire::check(message);
    Report {
        grade: verdict.grade().name(),
        r#type: verdict.kind().map(wire::Kind::name),
        reason: verdict.explanation(),
    }
}

fn report(out: &mut impl Write, report: &Report) -> anyhow::Result<bool> {
    serde_json::to_writer(&mut *out, report)?;
    out.write_all(b"\n")?;
    Ok(report.grade == Grade::Ok.name())
}
