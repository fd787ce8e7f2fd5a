//! The heartbeats of a node while it downloads from a slow network, imports, and collects what it does not need any more.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use palisade_core::limits::HEARTBEAT_INTERVAL_MS;

use crate::Row;
use crate::site::Site;

/// By how much the image of the second release is larger: half a minute of download, through what lies between.
const MORE_BYTES: usize = 128 << 20;
/// How far from its time a heartbeat may come.
const JITTER_MAX: Duration = Duration::from_secs(1);

pub(crate) async fn measure() -> anyhow::Result<Row> {
    let mut site = Site::new().await?;
    let measured = roll_out(&mut site).await;
    site.clear().await;
    measured
}

async fn roll_out(site: &mut Site) -> anyhow::Result<Row> {
    // What each run makes anew nobody else can have loaded.
    let (old, new) = tokio::task::block_in_place(|| {
        anyhow::Ok((site.release(&"a".repeat(40), 32)?, site.release(&"b".repeat(40), MORE_BYTES)?))
    })?;
    let view = site.select(0, &old).await?;
    site.install(&view, &old).await?;
    let _node = site.node()?;
    site.until("the node's readiness", async || site.is_ready(1).await).await?;
    watch(site, async || {
        site.select(1, &new).await?;
        site.until("the rollout", async || site.is_ready(2).await).await?;
        let dropped = site.records().join("1.dropped");
        site.until("the collection", async || Ok(dropped.exists())).await
    })
    .await
}

/// How far from its time the worst heartbeat comes while something is done.
async fn watch(site: &Site, work: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<Row> {
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
    let done: anyhow::Result<()> = tokio::select! { done = work() => done, watched = watching => watched };
    done?;
    ensure!(seen.len() > 3, "{} heartbeats are too few to judge", seen.len());
    let interval = Duration::from_millis(HEARTBEAT_INTERVAL_MS);
    let worst = seen.windows(2).map(|two| Duration::from_millis(two[1].since(two[0])).abs_diff(interval)).max();
    println!("{} heartbeats in {:.0} s of rollout and collection", seen.len(), began.elapsed().as_secs_f64());
    Ok(Row::limit("heartbeats in a rollout, furthest from 10 s", worst.context("two heartbeats")?, JITTER_MAX))
}
