//! `palisade sim`: many histories of a simulated world, each from one seed.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use palisade_sim::{Campaign, Coverage};

use crate::cli::Sim;
use crate::print;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(2);

pub(crate) fn run(options: &Sim) -> anyhow::Result<ExitCode> {
    let stop = stop_on_interrupt()?;
    let campaign = simulate(options, &stop);
    let report = if options.json { json(options, &campaign) } else { text(options, &campaign) };
    print(report.as_bytes())?;
    Ok(if campaign.held() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn simulate(options: &Sim, stop: &AtomicBool) -> Campaign {
    let (started, mut shown) = (Instant::now(), Instant::now());
    let mut campaign = Campaign::default();
    for seed in options.seed..options.seed.saturating_add(options.histories) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        campaign.run(seed);
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            progress(options, &campaign, started.elapsed());
        }
    }
    campaign
}

fn progress(options: &Sim, campaign: &Campaign, elapsed: Duration) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let rate = campaign.histories / elapsed.as_secs().max(1);
    let (done, broken) = (campaign.histories, campaign.broken);
    // Whoever watches may be gone.
    let _ = writeln!(std::io::stderr(), "{done} of {} histories, {rate} a second, {broken} broken", options.histories);
}

/// An interrupt ends the run after the history that happens; what was done is reported.
fn stop_on_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot wait for signals")?;
    std::thread::spawn(move || {
        if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
            asked.store(true, Ordering::Relaxed);
        }
    });
    Ok(stop)
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
