//! Any bytes: a frame or a refusal, never a panic, and never more memory than the input can account for.

use palisade_core::wire::{Grade, check, decode, decode_text};

/// Bytes that one byte of input may cost at any moment: a vector of strings that grows holds its old place beside its new
/// one, and the shortest string in JSON takes three bytes.
const FACTOR: u64 = 64;
/// Bytes that any frame may cost.
const BASE: u64 = 16 * 1024;

/// Decodes `input` in every way there is; all of them agree.
pub fn run(input: &[u8]) {
    let mut decoded = None;
    let cost = allocation_counter::measure(|| decoded = Some(decode(input)));
    let bound = FACTOR * input.len() as u64 + BASE;
    assert!(cost.bytes_max <= bound, "{} bytes cost {}, more than {bound}", input.len(), cost.bytes_max);
    let decoded = decoded.expect("it was measured once");
    if let Ok(text) = std::str::from_utf8(input) {
        assert_eq!(decode_text(text), decoded);
    }
    let verdict = check(input);
    match verdict.grade() {
        Grade::Ok | Grade::InvalidRequest => assert_eq!(decoded.map(|frame| frame.kind()).ok(), verdict.kind()),
        Grade::InvalidFrame => {
            assert_eq!(decoded.map_err(|violation| Some(violation.reason)).err(), Some(verdict_reason(&verdict)))
        }
    }
}

fn verdict_reason(verdict: &palisade_core::wire::Verdict) -> Option<palisade_core::wire::Reason> {
    match verdict {
        palisade_core::wire::Verdict::InvalidFrame { violation, .. } => Some(violation.reason),
        palisade_core::wire::Verdict::Ok(_) | palisade_core::wire::Verdict::InvalidRequest(_) => None,
    }
}
