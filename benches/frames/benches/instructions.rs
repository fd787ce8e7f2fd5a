//! The gate of the frame path: how many instructions we take, beside what nobody can do without.
//!
//! Instructions are counted by valgrind's callgrind, so a busy machine does not matter. One run counts every pair and
//! every step, prints the tables, and fails above a ceiling. `cargo bench -p palisade-frame-benches --bench instructions`

use std::process::ExitCode;

use gungraun::Callgrind;
use palisade_frame_benches::counted;
use palisade_frame_benches::pair::{PAIRS, Work};
use palisade_frame_benches::step::STEPS;

/// Does it once, so that nothing of the first time is counted.
fn warm(mut work: Work) -> Work {
    work();
    work
}

/// The first time is nothing beside a large frame.
fn prepared(large: bool, work: Work) -> Work {
    if large { work } else { warm(work) }
}

fn prepare_ours(at: usize) -> Work {
    prepared(PAIRS[at].large, (PAIRS[at].ours)())
}

fn prepare_peer(at: usize) -> Work {
    prepared(PAIRS[at].large, (PAIRS[at].peer)())
}

fn prepare_step(at: usize) -> Work {
    warm((STEPS[at].work)())
}

#[allow(missing_docs, unreachable_pub, clippy::disallowed_methods, reason = "what the macros declare")]
mod counting {
    // What was prepared is given back, so that its end is not counted.

    use super::{Callgrind, PAIRS, STEPS, Work, prepare_ours, prepare_peer, prepare_step};
    use gungraun::prelude::*;

    #[library_benchmark]
    #[benches::at(iter = 0..PAIRS.len(), setup = prepare_ours)]
    fn ours(mut work: Work) -> Work {
        work();
        work
    }

    #[library_benchmark]
    #[benches::at(iter = 0..PAIRS.len(), setup = prepare_peer)]
    fn peer(mut work: Work) -> Work {
        work();
        work
    }

    #[library_benchmark]
    #[benches::at(iter = 0..STEPS.len(), setup = prepare_step)]
    fn step(mut work: Work) -> Work {
        work();
        work
    }

    library_benchmark_group!(name = counts, benchmarks = [ours, peer, step]);
    main!(
        config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"]));
        library_benchmark_groups = counts
    );

    /// Counts everything, or, under valgrind, does one of the things to count.
    pub(super) fn run() {
        main();
    }
}

fn main() -> ExitCode {
    counting::run();
    if std::env::args().any(|argument| argument == "--gungraun-run") {
        return ExitCode::SUCCESS;
    }
    counted::report()
}
