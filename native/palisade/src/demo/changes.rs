//! What an operator changes while sandboxes run: a selection that no node can prepare, a node's capacity, and the end of it
//! all by a reset.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::Method;
use serde_json::json;

use super::acts::shell;
use super::api::{text, until};
use super::endings::{generation, survived};
use super::stage::Stage;
use super::story::{NODE, READY_MAX, Sandbox, Scene, hosted, selection, settle};

pub(crate) const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
const RESET: &str = "/core/v1/sandbox/deployment/reset";
const NODES: &str = "/core/v1/sandbox/nodes";
/// Budget of the command that runs when the reset begins: the sandbox goes when it is over.
const BUSY_BUDGET_MS: u64 = 4_000;
/// How a node ends whose credential is worth nothing any more.
const CREDENTIAL_REFUSED: i32 = 78;

/// Selects an image that no engine has. Nothing waits for it: what runs goes on.
pub(crate) async fn select_nowhere(stage: &mut Stage, scene: &Scene) -> anyhow::Result<()> {
    let mut nowhere = scene.runtime.clone();
    nowhere["image_id"] = format!("sha256:{}", "0".repeat(64)).into();
    let generation = generation(&scene.api).await?;
    scene.api.core(Method::PUT, DEPLOYMENT, Some(selection(generation, &nowhere))).await?;
    stage.timeline.step(format_args!("selected an image that nobody has as generation {}", generation + 1));
    Ok(())
}

/// The node has said that it cannot prepare it, and still serves the generation before.
pub(crate) async fn refusal(stage: &mut Stage, scene: &Scene) -> anyhow::Result<()> {
    let node = until("the node to refuse the selection", READY_MAX, async || {
        let node = NODE.seen_by(&scene.api).await?;
        Ok((node["rollout"]["state"] == "failed").then_some(node))
    })
    .await?;
    let view = scene.api.core(Method::GET, DEPLOYMENT, None).await?;
    ensure!(view["rollout"]["nodes"]["failed"] == 1, "the view counts another rollout: {}", view["rollout"]);
    ensure!(view["rollout"]["previous_generation_sandboxes"] == 2, "the view misses sandboxes: {}", view["rollout"]);
    let serves = node["provider_ready"] == true && node["rollout"]["ready_generation"] == 1;
    ensure!(serves, "the node does not serve its old generation any more: {node}");
    let why = text(&node, "/rollout/diagnostic")?;
    survived(stage, scene).await?;
    stage.timeline.step(format_args!("the node could not prepare generation 2 ({why}); both sandboxes of 1 go on"));
    Ok(())
}

/// Lowers the node's limit to what it holds: the next session is refused. Raised by one, it is created.
pub(crate) async fn capacity(stage: &mut Stage, scene: &Scene) -> anyhow::Result<Sandbox> {
    let held = scene.sandboxes.len();
    allow(scene, held).await?;
    let refused = scene.api.refused_session(hosted()).await?;
    ensure!(refused == (503, "runtime_node_unavailable".to_owned()), "a full node answered {refused:?}");
    let found = stage.engine.containers().await?.len();
    ensure!(found == held, "the engine has {found} containers after a refusal: expected {held}");
    stage
        .timeline
        .step(format_args!("allowed the node {held} sandboxes: the next session is refused and leaves nothing"));

    allow(scene, held + 1).await?;
    let session = scene.api.sessions(Method::POST, "", Some(hosted())).await?;
    let third = settle(stage, &scene.api, &session).await?;
    stage.timeline.step(format_args!("allowed it {}: the next session runs in the engine, on generation 1", held + 1));
    Ok(third)
}

async fn allow(scene: &Scene, sandboxes: usize) -> anyhow::Result<()> {
    let path = format!("{NODES}/{}", text(&NODE.seen_by(&scene.api).await?, "/id")?);
    let change = json!({ "name": NODE.name, "max_active": sandboxes, "max_retained": sandboxes });
    scene.api.core(Method::PATCH, &path, Some(change)).await.map(drop)
}

/// Resets the deployment while a sandbox is busy: everything goes, also the node's right to come back.
pub(crate) async fn reset(stage: &mut Stage, scene: &Scene, busy: &Sandbox) -> anyhow::Result<()> {
    scene.api.start(&busy.session, shell("sleep 600"), BUSY_BUDGET_MS).await?;
    let before = generation(&scene.api).await?;
    let body = json!({ "expected_generation": before, "clear": "force" });
    scene.api.core(Method::POST, RESET, Some(body)).await?;
    let view = until("the reset to end", READY_MAX, async || {
        let view = scene.api.core(Method::GET, DEPLOYMENT, None).await?;
        Ok((view["provider"] == "").then_some(view))
    })
    .await?;
    let held = json!({ "allocations": 0, "pending": 0 });
    ensure!(view["resources"] == held && view["generation"] == before + 1, "the reset left {view}");
    let nodes = scene.api.core(Method::GET, NODES, None).await?;
    ensure!(nodes["data"] == json!([]), "the reset left nodes: {nodes}");
    let (containers, volumes) = (stage.engine.containers().await?, stage.engine.volumes().await?);
    ensure!(containers.is_empty() && volumes.is_empty(), "the reset left {containers:?} and {volumes:?} in the engine");
    stage.timeline.step(format_args!(
        "reset the deployment with force: nothing is left in the engine; generation {}, nothing selected",
        before + 1
    ));
    let node = stage.nodes.remove(NODE.name).context("the node runs")?;
    let code = node.ended(Duration::from_secs(30)).await?;
    ensure!(code == Some(CREDENTIAL_REFUSED), "the retired node ended with {code:?}: expected {CREDENTIAL_REFUSED}");
    stage.timeline.step(format_args!("the retired node ended by itself with exit code {CREDENTIAL_REFUSED}"));
    Ok(())
}
