//! Both real shells beside a bare echo, and the memory that one large command costs a node.
//!
//! Four processes: Core's hub with a node that has a provider which answers at once, and a bare tokio-tungstenite server
//! and client that exchange the same bytes. What counts is the processor time of both processes of a pair, not the time on
//! the clock. The pairs take turns in short rounds, so that whatever else the machine does hits both of two neighbours, and
//! each round gives one ratio; the result is the median of these, over several starts, because where a process happens to
//! have its memory stays with it until it ends.
//!
//! For the round trips all four run on one processor. To wake a process on another, idle one costs more than everything that is compared here,
//! and whether it must be done is a whim of the scheduler, which treats the two pairs differently from one second to the
//! next.

mod bare;
mod core;
mod node;
mod part;

use std::env;

use anyhow::{Context as _, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use part::{Part, median};

/// Round trips of each pair in one round, rounds of one start, and starts.
const ROUND_TRIPS: u32 = 2_000;
const ROUNDS: usize = 24;
const STARTS: usize = 5;
/// Characters of base64 in the large command: 64 MiB, from 48 MiB of standard input.
const FRAME_BYTES: usize = 64 << 20;

const ROUND_TRIP_RATIO_MAX: f64 = 1.5;
const MEMORY_RATIO_MAX: f64 = 2.5;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["as-core"] => run(core::run()),
        ["as-node", origin] => run(node::run(origin.to_owned())),
        ["as-server"] => run(bare::serve()),
        ["as-client", address] => run(bare::call(address.to_owned())),
        // Cargo passes `--bench`; a name that is not ours means that another benchmark is wanted.
        ref other if other.iter().any(|word| !word.starts_with('-') && !"shells".contains(word)) => Ok(()),
        _ => measure(),
    }
}

/// Every part runs as its production counterpart does: a task on a runtime that has a thread for each processor.
fn run(part: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { tokio::spawn(part).await? })
}

/// The first one that this process may use; the processes that it starts later stay there too.
fn stay_on_one_processor() -> anyhow::Result<()> {
    let allowed = sched_getaffinity(Pid::this())?;
    let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu) == Ok(true)).context("a processor")?;
    let mut only = CpuSet::new();
    only.set(first)?;
    Ok(sched_setaffinity(Pid::this(), &only)?)
}

fn measure() -> anyhow::Result<()> {
    let peaks = (0..STARTS).map(|_| peak()).collect::<anyhow::Result<Vec<_>>>()?;
    stay_on_one_processor()?;
    let mut rounds = Vec::new();
    for _ in 0..STARTS {
        start(&mut rounds)?;
    }
    println!("\n{:<44} {:>14} {:>14} {:>7} {:>9}", "name", "ours", "peer/limit", "ratio", "target");
    let each = |side: fn(&Round) -> f64| median(rounds.iter().map(side).collect());
    let shown = |ms: f64| format!("{:.1} us", ms * 1e3 / f64::from(ROUND_TRIPS));
    let mut ratios: Vec<f64> = rounds.iter().map(Round::ratio).collect();
    let (ours, bare, ratio) = (each(|round| round.ours), each(|round| round.bare), median(ratios.clone()));
    row("round trip of info, processor time", &shown(ours), &shown(bare), ratio, ROUND_TRIP_RATIO_MAX);

    #[expect(clippy::cast_precision_loss, reason = "mebibytes")]
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let peak = peaks.into_iter().max().map_or(0.0, mib);
    let (frame, shown) = (mib(FRAME_BYTES as u64), |mib: f64| format!("{mib:.1} MiB"));
    row("peak of a node, one 64 MiB command", &shown(peak), &shown(frame), peak / frame, MEMORY_RATIO_MAX);

    ratios.sort_by(f64::total_cmp);
    let at = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4];
    println!(
        "\nround trips: {} ratios, least {:.2}, quartiles {:.2} and {:.2}, largest {:.2}",
        ratios.len(),
        at(0),
        at(1),
        at(3),
        at(4)
    );
    Ok(())
}

/// Processor time of both processes of each pair, in milliseconds.
struct Round {
    ours: f64,
    bare: f64,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.ours / self.bare
    }
}

/// Core and a node that is connected.
fn shells() -> anyhow::Result<[Part; 2]> {
    let (mut core, address) = Part::start(&["as-core"])?;
    let (node, _) = Part::start(&["as-node", &format!("http://{address}")])?;
    core.expect("ready")?;
    Ok([core, node])
}

/// The peak of a fresh node after one large command, in bytes.
fn peak() -> anyhow::Result<u64> {
    let [mut core, node] = shells()?;
    core.tell("large")?;
    core.expect("done")?;
    let peak = node.peak_bytes()?;
    core.end()?;
    node.end()?;
    Ok(peak)
}

/// The rounds of four fresh processes.
fn start(rounds: &mut Vec<Round>) -> anyhow::Result<()> {
    let [mut core, node] = shells()?;
    let (server, address) = Part::start(&["as-server"])?;
    let (mut client, _) = Part::start(&["as-client", &address])?;
    for round in 0..=ROUNDS {
        let ours = turn_of(&mut core, &node)?;
        let bare = turn_of(&mut client, &server)?;
        // The first one warms everything up.
        if round > 0 {
            rounds.push(Round { ours, bare });
        }
    }
    [core, node, client, server].into_iter().try_for_each(Part::end)
}

/// Processor time of one turn, both processes, in milliseconds.
fn turn_of(driver: &mut Part, other: &Part) -> anyhow::Result<f64> {
    let before = driver.cpu_ms()? + other.cpu_ms()?;
    driver.tell("go")?;
    driver.expect("done")?;
    let used = driver.cpu_ms()? + other.cpu_ms()? - before;
    if used <= 0.0 {
        bail!("no processor time was counted");
    }
    Ok(used)
}

fn row(name: &str, ours: &str, peer: &str, ratio: f64, target: f64) {
    println!("{name:<44} {ours:>14} {peer:>14} {ratio:>7.2} {:>9}", format!("<= {target}"));
}
