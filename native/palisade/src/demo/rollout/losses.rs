//! What goes wrong in the middle of the rollout, and what comes of it.

use anyhow::{Context as _, ensure};
use reqwest::Method;

use super::super::acts::{expect, run, shell};
use super::super::api::until;
use super::super::changes::DEPLOYMENT;
use super::super::stage::{Stage, children};
use super::super::timeline::Timeline;
use super::proofs::{self, WAIT_MAX};
use super::{Fleet, Node};

/// What a resumed download may bring a second time: what was on its way when the first one ended.
const ON_THE_WAY_BYTES: u64 = 512 * 1024;

/// Both nodes prepare, and everything else goes on.
pub(super) async fn serve_meanwhile(stage: &mut Stage, fleet: &Fleet) -> anyhow::Result<()> {
    let nodes = [&fleet.west, &fleet.east];
    until("half of the new image on both nodes", WAIT_MAX, async || {
        let half = |node: &&Node| proofs::part(stage, fleet, node).is_some_and(|part| part >= fleet.new.size / 2);
        Ok(nodes.iter().all(half).then_some(()))
    })
    .await?;
    let heard = nodes.map(|node| fleet.beats.count(node.host.name));
    let preparers = nodes.map(|node| preparers(stage, node));
    ensure!(preparers.iter().all(|found| found.len() == 1), "not one preparer on each node: {preparers:?}");
    stage
        .timeline
        .step("both nodes download the new image in a process of their own; half of it is there, and the rest is slow");

    for (node, sandbox) in nodes.map(|node| (node, &node.sandbox)) {
        let turn = run(&fleet.api, sandbox, shell("cat /workspace/kept")).await?;
        expect(&turn, 0, &proofs::kept(stage, node).await?, "")?;
    }
    until("a heartbeat of both nodes", WAIT_MAX, async || {
        Ok(nodes.iter().zip(heard).all(|(node, before)| fleet.beats.count(node.host.name) > before).then_some(()))
    })
    .await?;
    let view = fleet.api.core(Method::GET, DEPLOYMENT, None).await?;
    ensure!(view["rollout"]["nodes"]["preparing"] == 2, "the view counts {}", view["rollout"]);
    for (node, before) in nodes.iter().zip(preparers) {
        ensure!(self::preparers(stage, node) == before, "{} did not prepare all the time", node.host.name);
        proofs::holds(stage, node, &[(1, "configured"), (2, "unfinished")]).await?;
    }
    stage
        .timeline
        .step("meanwhile a command ran in each sandbox, and Core heard both nodes; it counts two as preparing");
    Ok(())
}

fn preparers(stage: &Stage, node: &Node) -> Vec<u32> {
    stage.nodes.get(node.host.name).map(|program| children(program.pid())).unwrap_or_default()
}

/// Kills east, and starts it again on a way that is fast again.
pub(super) async fn kill_east(stage: &mut Stage, fleet: &Fleet) -> anyhow::Result<()> {
    let east = &fleet.east;
    let ended = east.host.kill(stage).await?;
    ensure!(ended.len() == 1, "the killed node had started {ended:?}: expected its preparer");
    let part = proofs::part(stage, fleet, east).context("a part of the image is on the disk")?;
    stage.timeline.step(format_args!(
        "killed east with SIGKILL; its preparer ended by itself, and left {part} of {} bytes",
        fleet.new.size
    ));
    east.link.slow_after(None);
    east.host.start(stage)?;
    prepared(fleet, east, part).await?;
    proofs::one_copy(stage, fleet, east)?;
    proofs::untouched(stage, east).await?;
    proofs::holds(stage, east, &[(1, "configured"), (2, "configured")]).await?;
    stage.timeline.step(format_args!("started east again: it went on from byte {part}, and is ready for generation 2"));
    Ok(())
}

/// Waits until the node is ready for the new generation, having brought no byte of its image twice.
async fn prepared(fleet: &Fleet, node: &Node, part: u64) -> anyhow::Result<()> {
    until(&format!("{} to be ready for generation 2", node.host.name), WAIT_MAX, async || {
        let rollout = node.host.seen_by(&fleet.api).await?["rollout"].take();
        Ok((rollout["state"] == "ready" && rollout["ready_generation"] == 2).then_some(()))
    })
    .await?;
    let asked = node.link.asked("-runtime.tar.gz");
    // One that found the network silent for a whole minute gave up in between, and asked once more.
    let [first, .., last] = &asked[..] else { anyhow::bail!("the image was asked for only once: {asked:?}") };
    let resumed = first.from.is_none() && last.from == Some(part);
    ensure!(resumed, "the download did not go on from byte {part}: {asked:?}");
    let passed: u64 = asked.iter().map(|asked| asked.passed).sum();
    ensure!(passed <= fleet.new.size + ON_THE_WAY_BYTES, "{passed} bytes passed for a file of {}", fleet.new.size);
    Ok(())
}

/// Core has not heard west for too long. Its sandbox knows nothing of that.
pub(super) async fn west_is_unknown(stage: &mut Stage, fleet: &Fleet) -> anyhow::Result<()> {
    let west = &fleet.west;
    until("Core to miss west", WAIT_MAX, async || {
        let view = fleet.api.core(Method::GET, DEPLOYMENT, None).await?;
        Ok((view["rollout"]["nodes"]["unknown"] == 1).then_some(()))
    })
    .await?;
    ensure!(west.host.seen_by(&fleet.api).await?["online"] == false, "Core counts a silent node as online");
    proofs::untouched(stage, west).await?;
    ensure!(preparers(stage, west).len() <= 1, "the silent node has several preparers");
    let archive = proofs::archive(fleet, &west.sandbox).await?;
    ensure!(archive == "cleanup_pending", "the archived sandbox of a silent node is {archive}");
    stage.timeline.step("Core counts west as unknown; its sandbox runs on, and stays when it is archived now");
    Ok(())
}

/// West's network is back, and has forgotten every connection.
pub(super) async fn west_comes_back(stage: &mut Stage, fleet: &Fleet) -> anyhow::Result<()> {
    let west = &fleet.west;
    let part = proofs::part(stage, fleet, west).context("a part of the image is on the disk")?;
    let archive = proofs::archived(fleet, &west.sandbox).await?;
    ensure!(archive == "cleanup_pending", "the sandbox of a silent node became {archive}");
    proofs::untouched(stage, west).await?;
    west.link.slow_after(None);
    west.link.come_back();
    stage.timeline.step("west's network is back, and has forgotten every connection");
    Timeline::detail(format_args!("{part} of {} bytes are on its disk", fleet.new.size));
    prepared(fleet, west, part).await?;
    proofs::one_copy(stage, fleet, west)?;
    stage.timeline.step(format_args!("west went on from byte {part} by itself, and is ready for generation 2"));
    Ok(())
}
