//! `palisade sim`: many histories of a simulated world, each from one seed.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use palisade_sim::{Campaign, Coverage, Seeds};

use crate::cli::Sim;
use crate::print;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(2);
/// How often the end is looked for meanwhile.
const GLANCE: Duration = Duration::from_millis(50);

pub(crate) fn run(options: &Sim) -> anyhow::Result<ExitCode> {
    let seeds = Arc::new(Seeds::new(options.seed..options.seed.saturating_add(options.histories)));
    stop_on_interrupt(&seeds)?;
    let campaign = simulate(options, &seeds);
    let report = if options.json { json(options, &campaign) } else { text(options, &campaign) };
    print(report.as_bytes())?;
    Ok(if campaign.held() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn simulate(options: &Sim, seeds: &Seeds) -> Campaign {
    let watched = std::io::stderr().is_terminal();
    thread::scope(|scope| {
        let campaign = scope.spawn(|| Campaign::of(seeds));
        let (started, mut shown) = (Instant::now(), Instant::now());
        while watched && !campaign.is_finished() {
            thread::sleep(GLANCE);
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                progress(options, seeds, started.elapsed());
            }
        }
        campaign.join().expect("a history panics only by a fault of the simulation")
    })
}

fn progress(options: &Sim, seeds: &Seeds, elapsed: Duration) {
    let (done, broken) = seeds.progress();
    let rate = done / elapsed.as_secs().max(1);
    // Whoever watches may be gone.
    let _ = writeln!(std::io::stderr(), "{done} of {} histories, {rate} a second, {broken} broken", options.histories);
}

/// An interrupt ends the run after the histories that happen; what was done is reported.
fn stop_on_interrupt(seeds: &Arc<Seeds>) -> anyhow::Result<()> {
    let seeds = Arc::clone(seeds);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot wait for signals")?;
    thread::spawn(move || {
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            seeds.stop();
        }
    });
    Ok(())
}

fn text(options: &Sim, campaign: &Campaign) -> String {
    let mut text = String::new();
    for failure in &campaign.failures {
        let _ = writeln!(text, "{failure}");
    }
    let Campaign { histories, coverage, broken, .. } = campaign;
    let _ = writeln!(text, "{coverage}");
    let last = options.seed.saturating_add(histories.saturating_sub(1));
    let _ = writeln!(text, "{histories} histories, seeds {} to {last}: {broken} broke a promise", options.seed);
    text
}

fn json(options: &Sim, campaign: &Campaign) -> String {
    let failures: Vec<_> = campaign
        .failures
        .iter()
        .map(|failure| {
            let (promise, what) = (failure.broken.promise, &failure.broken.text);
            serde_json::json!({"seed": failure.seed, "promise": promise, "what": what, "history": failure.to_string()})
        })
        .collect();
    let reached: serde_json::Map<_, _> =
        campaign.coverage.iter().map(|(name, count)| (name.to_owned(), count.into())).collect();
    let report = serde_json::json!({
        "seed": options.seed,
        "histories": campaign.histories,
        "broken": campaign.broken,
        "failures": failures,
        "reached": reached,
        "never_reached": Coverage::missing(&campaign.coverage),
    });
    format!("{report}\n")
}
