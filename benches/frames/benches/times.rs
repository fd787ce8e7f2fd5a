//! How long each pair takes: the median of ours beside the median of its peer.
//!
//! The two take turns, so that a slow moment of the machine hits both.
//! `cargo bench -p palisade-frame-benches --bench times`

use std::hint::black_box;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use palisade_frame_benches::pair::{PAIRS, Pair, Work};

/// Turns of the two ways.
const TURNS: usize = 200;
/// Turns of a pair whose frame is large.
const TURNS_LARGE: usize = 15;
/// How often a small piece of work is done in one turn, so that the clock's own cost is nothing.
const REPEATED: u32 = 500;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "\n{:<30}{:<28}{:>13}{:>13}{:>8}{:>10}", "time", "against", "ours", "peer", "ratio", "target")?;
    for Pair { name, against, ours, peer, target, large, .. } in &PAIRS {
        let (turns, repeated) = if *large { (TURNS_LARGE, 1) } else { (TURNS, REPEATED) };
        let [ours, peer] = medians([ours(), peer()], turns, repeated);
        let ratio = ours.as_secs_f64() / peer.as_secs_f64();
        let (ours, peer, target) = (format!("{ours:.2?}"), format!("{peer:.2?}"), format!("<= {target}"));
        writeln!(out, "{name:<30}{against:<28}{ours:>13}{peer:>13}{ratio:>8.2}{target:>10}")?;
    }
    Ok(())
}

fn medians(mut ways: [Work; 2], turns: usize, repeated: u32) -> [Duration; 2] {
    let mut taken = [Vec::new(), Vec::new()];
    for work in &mut ways {
        work();
    }
    for _ in 0..turns {
        for (work, taken) in ways.iter_mut().zip(&mut taken) {
            let start = Instant::now();
            for _ in 0..repeated {
                black_box(&mut *work)();
            }
            taken.push(start.elapsed() / repeated);
        }
    }
    taken.map(|mut taken| {
        taken.sort_unstable();
        taken[taken.len() / 2]
    })
}
