//! New sandboxes come to the new generation, old ones end on the old one, and then that goes.

use anyhow::{Context as _, ensure};
use palisade_core::distribution::catalogue::SECCOMP;
use reqwest::Method;

use super::super::acts::{expect, run, shell};
use super::super::api::until;
use super::super::changes::DEPLOYMENT;
use super::super::stage::Stage;
use super::super::story::{Sandbox, hosted, settle};
use super::super::timeline::Timeline;
use super::proofs::{self, WAIT_MAX};
use super::{EAST, Edition, Fleet, Node, WEST};

/// The next session's sandbox is placed on this node, on the new generation, and has the new image.
pub(super) async fn place(stage: &mut Stage, fleet: &Fleet, node: &Node) -> anyhow::Result<Sandbox> {
    let session = fleet.api.sessions(Method::POST, "", Some(hosted())).await?;
    let sandbox = settle(stage, &fleet.api, &session).await?;
    let (_, generation) = proofs::place_of(&fleet.api, std::slice::from_ref(&node.id), &sandbox).await?;
    ensure!(generation == 2, "a new sandbox is of generation {generation}: expected 2");
    let image = &sandbox.container.image;
    ensure!(is_of(image, &fleet.new), "a new sandbox has image {image}: expected the new release's");
    let turn = run(&fleet.api, &sandbox, shell("echo new")).await?;
    expect(&turn, 0, "new\n", "")?;
    let name = node.host.name;
    stage
        .timeline
        .step(format_args!("the next session is on {name}, of generation 2; the engine runs it from the new image"));
    Ok(sandbox)
}

fn is_of(image: &str, edition: &Edition) -> bool {
    let runtime = edition.release.runtime();
    image == runtime.image_id || image == runtime.image_manifest_digest
}

/// Archives the node's old sandbox and waits until it is released.
pub(super) async fn drain(stage: &mut Stage, fleet: &Fleet, node: &Node) -> anyhow::Result<()> {
    proofs::archive(fleet, &node.sandbox).await?;
    released(stage, fleet, node).await
}

/// Waits until the node's old sandbox, which is archived, is released.
pub(super) async fn released(stage: &mut Stage, fleet: &Fleet, node: &Node) -> anyhow::Result<()> {
    let name = node.host.name;
    until(&format!("the sandbox of {name} to be released"), WAIT_MAX, async || {
        Ok((proofs::archived(fleet, &node.sandbox).await? == "released").then_some(()))
    })
    .await?;
    let left = stage.engine.containers().await?;
    ensure!(!left.iter().any(|found| found.id == node.sandbox.container.id), "the engine still has what was released");
    let view = fleet.api.core(Method::GET, DEPLOYMENT, None).await?;
    let previous = &view["rollout"]["previous_generation_sandboxes"];
    stage.timeline.step(format_args!(
        "{name}'s old sandbox was archived and is released; {previous} of the previous generation remain"
    ));
    Ok(())
}

/// Waits until the node has collected the old generation, with Core's leave.
pub(super) async fn collected(stage: &mut Stage, fleet: &Fleet, node: &Node) -> anyhow::Result<()> {
    let (name, root) = (node.host.name, node.host.root(stage));
    let dropped = root.join("state/node/generations/1.dropped");
    until(&format!("{name} to collect generation 1"), WAIT_MAX, async || Ok(dropped.exists().then_some(()))).await?;
    proofs::holds(stage, node, &[(1, "dropped"), (2, "configured")]).await?;
    ensure!(!root.join(SECCOMP).exists(), "{name} still has the files of the old release");
    ensure!(root.join("provider.json").exists(), "{name} has lost its configuration");
    proofs::one_copy(stage, fleet, node)?;
    let old = fleet.old.release.runtime();
    ensure!(
        stage.engine.has_image(&old.image_id).await? || stage.engine.has_image(&old.image_manifest_digest).await?,
        "somebody removed the old image from the engine"
    );
    stage.timeline.step(format_args!(
        "Core granted it, and {name} collected generation 1: its files are gone, those of generation 2 and both images are there"
    ));
    Ok(())
}

/// Everybody agrees that the rollout is over; then its sandboxes go as well.
pub(super) async fn settled(stage: &mut Stage, fleet: &Fleet, sandboxes: [Sandbox; 2]) -> anyhow::Result<()> {
    let view = fleet.api.core(Method::GET, DEPLOYMENT, None).await?;
    let rollout = &view["rollout"];
    let over = rollout["state"] == "settled"
        && rollout["nodes"]["ready"] == 2
        && rollout["previous_generation_sandboxes"] == 0;
    ensure!(over, "the rollout is not over: {rollout}");
    let mut expected: Vec<_> = sandboxes.iter().map(|sandbox| sandbox.container.clone()).collect();
    expected.sort();
    let found = stage.engine.containers().await?;
    ensure!(found == expected, "the engine has other containers: expected {expected:?}, found {found:?}");
    for sandbox in &sandboxes {
        let turn = run(&fleet.api, sandbox, shell("echo still here")).await?;
        expect(&turn, 0, "still here\n", "")?;
    }
    stage.timeline.step(
        "the rollout is settled: two nodes ready, no sandbox of the previous generation; both new sandboxes work",
    );
    for host in [WEST, EAST] {
        let (beats, pause) = (fleet.beats.count(host.name), fleet.beats.longest_pause(host.name));
        Timeline::detail(format_args!(
            "Core heard {} {beats} times, at most {:.1} s apart{}",
            host.name,
            pause.as_secs_f64(),
            if host == WEST { ", its silence included" } else { ", while it downloaded, imported and collected" }
        ));
    }
    for sandbox in &sandboxes {
        proofs::archive(fleet, sandbox).await?;
    }
    for sandbox in &sandboxes {
        until("a sandbox to be released", WAIT_MAX, async || {
            Ok((proofs::archived(fleet, sandbox).await? == "released").then_some(()))
        })
        .await?;
    }
    let left = stage.engine.containers().await.context("the engine lists containers")?;
    ensure!(left.is_empty(), "the engine still has {left:?}");
    stage.timeline.step("archived both; the engine has neither");
    Ok(())
}
