//! `palisade frame check`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::ExitCode;

use palisade_core::limits::CALL_FRAME_MAX_BYTES;
use palisade_core::wire::{self, Grade};
use serde::Serialize;

use crate::cli::Check;
use crate::spec::input;

pub(crate) fn check(options: &Check) -> anyhow::Result<ExitCode> {
    let input = input(options.file.as_deref())?;
    let mut out = std::io::stdout().lock();
    let all_ok = if options.base64_lines {
        lines(BufReader::new(input), &mut out)?
    } else {
        let mut message = Vec::new();
        // One byte more than the longest frame is enough to see that it is too long.
        input.take(CALL_FRAME_MAX_BYTES as u64 + 1).read_to_end(&mut message)?;
        report(&mut out, &judge(&message))?
    };
    Ok(if all_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Serialize)]
struct Report {
    grade: &'static str,
    r#type: Option<&'static str>,
    reason: Option<&'static str>,
}

fn lines(mut input: impl BufRead, out: &mut impl Write) -> anyhow::Result<bool> {
    // Padded base64 of a frame that is one byte too long, and the line end.
    const LINE_MAX_BYTES: u64 = (CALL_FRAME_MAX_BYTES as u64 + 1).div_ceil(3) * 4 + 2;
    let (mut all_ok, mut number, mut line) = (true, 0_u64, Vec::new());
    loop {
        line.clear();
        number += 1;
        if (&mut input).take(LINE_MAX_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(all_ok);
        }
        anyhow::ensure!(
            line.ends_with(b"\n") || (line.len() as u64) < LINE_MAX_BYTES,
            "line {number} is longer than the longest frame"
        );
        let text = line.trim_ascii_end();
        let verdict = match base64_simd::STANDARD.decode_to_vec(text) {
            Ok(message) => judge(&message),
            Err(_) => Report { grade: Grade::InvalidFrame.name(), r#type: None, reason: Some("the line is no base64") },
        };
        all_ok &= report(out, &verdict)?;
    }
}

fn judge(message: &[u8]) -> Report {
    let verdict = wire::check(message);
    Report { grade: verdict.grade().name(), r#type: verdict.kind().map(wire::Kind::name), reason: verdict.reason() }
}

fn report(out: &mut impl Write, report: &Report) -> anyhow::Result<bool> {
    serde_json::to_writer(&mut *out, report)?;
    out.write_all(b"\n")?;
    Ok(report.grade == Grade::Ok.name())
}
