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
    writeln!(out, "\n{:<71}{:>13}{:>16}", "allocations", "ours", "target")?;
    for (name, text) in &frames {
        let decoded = measure(|| drop(decode_text(text).expect("a valid frame"))).count_total;
        let frame = decode_text(text).expect("a valid frame");
        let mut buffer = Vec::with_capacity(text.len());
        let encoded = measure(|| encode_into(&frame, &mut buffer).expect("a valid frame")).count_total;
        writeln!(out, "{:<71}{decoded:>13}{OWNED_MAX:>16}", format!("decode a {name}"))?;
        writeln!(out, "{:<71}{encoded:>13}{:>16}", format!("encode a {name}"), 0)?;
    }
    Ok(())
}
