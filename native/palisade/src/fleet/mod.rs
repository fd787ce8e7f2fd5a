//! `palisade fleet`: many simulated nodes against one Core, and what that costs.
//!
//! Real frames on real sockets, driven by the machine that real nodes run. Bounded in count and time. Whatever happens,
//! Core is left without the nodes of the fleet.

mod api;
mod core;
mod descriptors;
mod enroll;
mod member;
mod process;
mod report;
mod tally;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use palisade_core::limits::HEARTBEAT_INTERVAL_MS;
use palisade_node::{Dialer, Internet};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::core::Target;
use crate::cli::Fleet;
use member::Member;
use report::Report;
use tally::Tally;

/// Dials under way at once.
const DIALS_MAX: usize = 256;
/// Longest wait for all connections, beyond the time over which their dials are spread.
const CONNECT_MAX: Duration = Duration::from_secs(180);
/// Longest wait for the last acknowledgements.
const LAST_ACK_MAX: Duration = Duration::from_secs(5);
/// Time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn run(options: &Fleet) -> anyhow::Result<ExitCode> {
    descriptors::reserve(options.nodes)?;
    crate::serve::block_on(async {
        let stop = stop_on_signal()?;
        let mut target = Target::open(options).await?;
        let outcome = measure(options, &mut target, &stop).await;
        if outcome.is_err() {
            target.show_log();
        }
        let closed = target.close().await;
        let report = outcome?;
        closed?;
        let text = if options.json { serde_json::to_string(&report)? } else { report.to_string() };
        let code = crate::print(format!("{}\n", text.trim_end()).as_bytes())?;
        Ok(if report.interrupted { ExitCode::FAILURE } else { code })
    })
}

async fn measure(options: &Fleet, target: &mut Target, stop: &CancellationToken) -> anyhow::Result<Report> {
    let members = enroll::all(target, options.nodes, stop).await?;
    if stop.is_cancelled() {
        bail!("interrupted before anything was measured");
    }
    let tally = Arc::new(Tally::default());
    let idle = target.memory()?;
    let fleet = Connected::start(members, target, &tally)?;
    fleet.connect(options.nodes, stop).await;
    let connect_rate = f64::from(tally.opened()) / fleet.since.elapsed().as_secs_f64();
    progress(format_args!("connected {} of {} nodes; measuring", tally.open(), options.nodes));

    let (began, cpu) = (Instant::now(), target.cpu()?);
    tally.count(true);
    fleet.wait(Duration::from_secs(options.duration), stop, "measuring").await;
    tally.count(false);
    let (lasted, used) = (began.elapsed(), target.cpu()?);
    let load = cpu.zip(used).map(|(before, after)| after.since(before, lasted));
    tally.settle(LAST_ACK_MAX).await;
    let memory = idle.zip(target.memory()?).map(|(before, after)| after.over(before, tally.open()));
    let report = Report::new(options, &tally, stop.is_cancelled(), lasted, connect_rate, load, memory);
    fleet.end().await;
    Ok(report)
}

/// The nodes while they are connected.
struct Connected {
    nodes: JoinSet<()>,
    over: CancellationToken,
    tally: Arc<Tally>,
    since: Instant,
}

impl Connected {
    /// Dials evenly over one heartbeat interval, so that heartbeats come evenly as well.
    fn start(members: Vec<Member>, target: &Target, tally: &Arc<Tally>) -> anyhow::Result<Self> {
        let (mut nodes, over) = (JoinSet::new(), CancellationToken::new());
        let dials = Arc::new(Semaphore::new(DIALS_MAX));
        let interval = Duration::from_millis(HEARTBEAT_INTERVAL_MS);
        let count = u32::try_from(members.len()).context("a fleet is bounded")?;
        for (number, member) in (0..count).zip(members) {
            let network = Internet::towards(target.origin());
            let dialer = Dialer::new(network, target.origin(), &member.identity.node_id, &member.credential)?;
            let delay = interval * number / count;
            let life = member.live(dialer, delay, Arc::clone(&dials), Arc::clone(tally));
            let over = over.clone();
            nodes.spawn(async move {
                over.run_until_cancelled(Box::pin(life)).await;
            });
        }
        Ok(Self { nodes, over, tally: Arc::clone(tally), since: Instant::now() })
    }

    /// Waits until all are connected, for a bounded time.
    async fn connect(&self, nodes: u32, stop: &CancellationToken) {
        let bound = CONNECT_MAX + Duration::from_millis(HEARTBEAT_INTERVAL_MS);
        let all = tokio::time::timeout(bound, self.tally.reached(nodes));
        let mut all = std::pin::pin!(all);
        loop {
            tokio::select! {
                _ = &mut all => return,
                () = stop.cancelled() => return,
                () = sleep(PROGRESS_EVERY) => progress(format_args!("connected {} of {nodes} nodes", self.tally.open())),
            }
        }
    }

    async fn wait(&self, duration: Duration, stop: &CancellationToken, what: &str) {
        let mut over = std::pin::pin!(sleep(duration));
        let began = Instant::now();
        loop {
            tokio::select! {
                () = &mut over => return,
                () = stop.cancelled() => return,
                () = sleep(2 * PROGRESS_EVERY) => {
                    let (left, open) = (duration.saturating_sub(began.elapsed()).as_secs(), self.tally.open());
                    progress(format_args!("{what}: {open} nodes connected, {left} s left"));
                }
            }
        }
    }

    /// Closes every connection.
    async fn end(mut self) {
        self.over.cancel();
        while self.nodes.join_next().await.is_some() {}
    }
}

/// One line for the person; standard output is for the result.
fn progress(line: impl std::fmt::Display) {
    crate::demo::warn(line);
}

fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        progress("stopping in order");
        asked.cancel();
    });
    Ok(stop)
}
