//! A rollout and what follows: heartbeats meanwhile, preparations without a download, and the start of a node that holds as
//! many generations as a node may.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use palisade_core::limits::HEARTBEAT_INTERVAL_MS;
use serde_json::Value;

use crate::site::{Site, private};
use crate::{Row, median};

/// By how much the image of the second release is larger: half a minute of download, through what lies between.
const MORE_BYTES: usize = 128 << 20;
const HEARTBEAT_JITTER_MAX: Duration = Duration::from_secs(1);
const PREPARATION_MAX: Duration = Duration::from_secs(1);
const START_MAX: Duration = Duration::from_secs(1);
/// Generations of a host, with the enrolled one.
const GENERATIONS: u64 = 257;
/// Preparations and starts of which the median counts.
const TURNS: u64 = 5;

pub(crate) async fn measure() -> anyhow::Result<Vec<Row>> {
    let mut site = Site::new().await?;
    let measured = all(&mut site).await;
    site.clear().await;
    measured
}

async fn all(site: &mut Site) -> anyhow::Result<Vec<Row>> {
    // What each run makes anew nobody else can have loaded.
    let (old, new) = tokio::task::block_in_place(|| {
        anyhow::Ok((site.release(&"a".repeat(40), 32)?, site.release(&"b".repeat(40), MORE_BYTES)?))
    })?;
    let view = site.select(0, &old, 512).await?;
    site.install(&view, &old).await?;
    let node = site.node()?;
    site.until("the node's readiness", async || site.is_ready(1).await).await?;
    let heartbeats = heartbeats(site, async || {
        site.select(1, &new, 512).await?;
        site.until("the rollout", async || site.is_ready(2).await).await?;
        let dropped = site.records().join("1.dropped");
        site.until("the collection", async || Ok(dropped.exists())).await
    })
    .await?;
    drop(node);
    let mut preparations = Vec::new();
    for generation in 3..3 + TURNS {
        let view = site.select(generation - 1, &new, 512 + generation).await?;
        preparations.push(prepare(site, &view)?);
    }
    fill(site, 3)?;
    let mut starts = Vec::new();
    for _ in 0..TURNS {
        let started = Instant::now();
        let node = site.node()?;
        starts.push(site.between.dialled().await? - started);
        drop(node);
    }
    Ok(vec![
        heartbeats,
        Row::limit("preparation without a download".to_owned(), median(preparations), PREPARATION_MAX),
        Row::limit(format!("start with {GENERATIONS} generations, to the dial"), median(starts), START_MAX),
    ])
}

/// How far from its time the worst heartbeat comes while something is done.
async fn heartbeats(site: &Site, done: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<Row> {
    let began = Instant::now();
    let mut seen = Vec::new();
    let watching = async {
        loop {
            let last = site.last_seen().await?;
            if let Some(last) = last.filter(|last| seen.last() != Some(last)) {
                seen.push(last);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let done: anyhow::Result<()> = tokio::select! { done = done() => done, watched = watching => watched };
    done?;
    ensure!(seen.len() > 3, "{} heartbeats are too few to judge", seen.len());
    let interval = Duration::from_millis(HEARTBEAT_INTERVAL_MS);
    let worst = seen.windows(2).map(|two| Duration::from_millis(two[1].since(two[0])).abs_diff(interval)).max();
    let worst = worst.context("two heartbeats")?;
    println!("{} heartbeats in {:.0} s of rollout and collection", seen.len(), began.elapsed().as_secs_f64());
    Ok(Row::limit("heartbeats in a rollout, furthest from 10 s".to_owned(), worst, HEARTBEAT_JITTER_MAX))
}

/// One preparation as the node starts it, in a process of its own.
fn prepare(site: &Site, view: &Value) -> anyhow::Result<Duration> {
    let generation = view["generation"].as_u64().context("a selection")?.to_string();
    let digest = view["specification_digest"].as_str().context("a selection")?;
    let (root, installation) = (site.root(), site.installation()?.to_string());
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["generation", "prepare", "--root"]).arg(root).args(["--installation", &installation]);
    command.args(["--generation", &generation, "--specification-digest", digest]);
    let started = Instant::now();
    let status = command.status()?;
    let took = started.elapsed();
    ensure!(status.success(), "the preparation of generation {generation} ended with {status}");
    ensure!(site.records().join(format!("{generation}.json")).exists(), "generation {generation} is configured");
    Ok(took)
}

/// Writes what a node keeps of a generation, until there are as many as a node may hold.
fn fill(site: &Site, like: u64) -> anyhow::Result<()> {
    let records = site.records();
    let configuration: Value = serde_json::from_slice(&std::fs::read(records.join(format!("{like}.json")))?)?;
    let lease: Value = serde_json::from_slice(&std::fs::read(records.join(format!("{like}.lease-identity")))?)?;
    for generation in 3 + TURNS..=GENERATIONS {
        for (suffix, mut record) in [("json", configuration.clone()), ("lease-identity", lease.clone())] {
            record["generation"] = generation.into();
            private(&records.join(format!("{generation}.{suffix}")), record.to_string().as_bytes())?;
        }
        private(&records.join(format!("{generation}.lease")), b"")?;
    }
    Ok(())
}
