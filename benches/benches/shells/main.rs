//! Both real shells beside a bare echo, and the memory that one large command costs a node.
//!
//! Four processes: Core's hub with a node that has a provider which answers at once, and a bare tokio-tungstenite server
//! and client that exchange the same bytes. Each pair takes turns at many round trips; what counts is the processor time
//! of both processes of a pair, not the time on the clock.

mod bare;
mod core;
mod node;
mod part;

use std::env;

use anyhow::bail;

use part::{Part, median};

/// Round trips in one turn, and turns of each pair.
const ROUND_TRIPS: u32 = 4_000;
const TURNS: usize = 7;
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

/// Every part runs as its production counterpart does: a task on a runtime with several threads.
fn run(part: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { tokio::spawn(part).await? })
}

fn measure() -> anyhow::Result<()> {
    let (mut core, address) = Part::start(&["as-core"])?;
    let (node, _) = Part::start(&["as-node", &format!("http://{address}")])?;
    core.expect("ready")?;
    let (server, address) = Part::start(&["as-server"])?;
    let (mut client, _) = Part::start(&["as-client", &address])?;

    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let shells = turn_of(&mut core, &node)?;
        let echo = turn_of(&mut client, &server)?;
        // The first turn warms everything up.
        if turn > 0 {
            ours.push(shells);
            bare.push(echo);
        }
    }
    let (ours, bare) = (median(ours), median(bare));
    println!("\n{:<44} {:>14} {:>14} {:>7} {:>9}", "name", "ours", "peer/limit", "ratio", "target");
    let each = |ms: f64| format!("{:.1} us", ms * 1e3 / f64::from(ROUND_TRIPS));
    row("round trip of info, processor time", &each(ours), &each(bare), ours / bare, ROUND_TRIP_RATIO_MAX);

    core.tell("large")?;
    core.expect("done")?;
    #[expect(clippy::cast_precision_loss, reason = "mebibytes")]
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (peak, frame) = (mib(node.peak_bytes()?), mib(FRAME_BYTES as u64));
    let shown = |mib: f64| format!("{mib:.1} MiB");
    row("peak of a node, one 64 MiB command", &shown(peak), &shown(frame), peak / frame, MEMORY_RATIO_MAX);
    for part in [core, node, client, server] {
        part.end()?;
    }
    Ok(())
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
