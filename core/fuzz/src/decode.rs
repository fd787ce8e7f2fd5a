//! Any bytes: a frame or a refusal, never a panic, and never more memory than the input can account for.

use palisade_core::wire::{Verdict, check, decode, decode_text};

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
    match (decoded, check(input)) {
        (Ok(frame), verdict @ (Verdict::Ok(_) | Verdict::InvalidRequest(_))) => {
            assert_eq!(verdict.kind(), Some(frame.kind()));
        }
        (Err(refused), Verdict::InvalidFrame { violation, .. }) => assert_eq!(refused.reason, violation.reason),
        (decoded, verdict) => panic!("{decoded:?} is called {verdict:?}"),
    }
}
