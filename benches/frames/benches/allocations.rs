//! How often a frame asks for memory, beside what it may. The tests of this crate hold these numbers; this prints them.

use std::io::{self, Write as _};

use allocation_counter::measure;
use palisade_core::wire::{decode_text, encode_into};
use palisade_frame_benches::sample;

/// What a frame may ask for, for what must be owned. Nothing is asked for the frame itself, nor for writing one into a
/// buffer with room.
const OWNED_MAX: u64 = 4;

fn main() -> io::Result<()> {
    let frames = [
        ("heartbeat of eight", sample::heartbeat()),
        ("small request", sample::small_request()),
        ("small response", sample::small_response()),
    ];
    let mut out = io::stdout().lock();
    writeln!(out, "\n{:<58}{:>13}{:>13}{:>8}{:>10}", "allocations", "ours", "limit", "ours", "target")?;
    for (name, text) in &frames {
        let decoded = measure(|| drop(decode_text(text).expect("a valid frame"))).count_total;
        let frame = decode_text(text).expect("a valid frame");
        let mut buffer = Vec::with_capacity(text.len());
        let encoded = measure(|| encode_into(&frame, &mut buffer).expect("a valid frame")).count_total;
        for (work, counted, limit) in [("decode", decoded, OWNED_MAX), ("encode", encoded, 0)] {
            let (work, target) = (format!("{work} a {name}"), format!("<= {limit}"));
            writeln!(out, "{work:<58}{counted:>13}{limit:>13}{counted:>8}{target:>10}")?;
        }
    }
    Ok(())
}
