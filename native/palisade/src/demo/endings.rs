//! What must survive, and what must not: killed programs, and archived sandboxes.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use super::acts::{expect, expect_unconfirmed, run, shell};
use super::api::{Api, until};
use super::engine::Container;
use super::stage::Stage;
use super::story::{NODE, READY_MAX, Scene, launch_core, until_connected};

/// Where the interrupted command says that it runs; read by the engine.
const RUNS: &str = "/environment/workspace/runs";
const KEPT: &str = "/environment/workspace/kept";
/// Budget of the command that is interrupted: long, so that it is the kill that ends the wait.
const INTERRUPTED_BUDGET_MS: u64 = 120_000;

pub(crate) async fn kill_node(stage: &mut Stage, scene: &Scene) -> anyhow::Result<()> {
    let sandbox = &scene.sandboxes[0];
    let command = shell("echo run >> /workspace/runs; sleep 600");
    let turn = scene.api.start(&sandbox.session, command, INTERRUPTED_BUDGET_MS).await?;
    until("the command to run", Duration::from_secs(15), async || {
        stage.engine.read(&sandbox.container.id, RUNS).await.map(|runs| runs.filter(|text| !text.is_empty()))
    })
    .await?;
    NODE.kill(stage).await?;
    stage.timeline.step("killed the node with SIGKILL while a command was running");

    NODE.start(stage)?;
    NODE.until_ready(&scene.api).await?;
    let ended = scene.api.ended(&sandbox.session, &turn).await?;
    let code = expect_unconfirmed(&ended)?;
    stage.timeline.step(format_args!("started the node again; the interrupted command is {code}"));
    survived(stage, scene).await?;
    // Once the new process has carried out something, nothing of the old one can still be on its way.
    let turn = run(&scene.api, &scene.sandboxes[1], shell("cat /workspace/kept")).await?;
    expect(&turn, 0, "kept by the second\n", "")?;
    run_once(stage, scene).await?;
    stage.timeline.step("the engine shows the same two containers, both files, and that the command ran once");
    Ok(())
}

pub(crate) async fn kill_core(stage: &mut Stage, scene: &Scene) -> anyhow::Result<()> {
    let before = outcomes(scene).await?;
    stage.core.take().context("core runs")?.kill().await?;
    stage.timeline.step("killed Core with SIGKILL");

    let address = scene.api.origin.trim_start_matches("http://");
    launch_core(stage, address).await?;
    NODE.until_ready(&scene.api).await?;
    for sandbox in &scene.sandboxes {
        until_connected(&scene.api, &sandbox.session).await?;
    }
    stage.timeline.step("started Core again on the same store; the node came back by itself");

    let after = outcomes(scene).await?;
    ensure!(before == after, "recorded outcomes changed:\nbefore {before}\nafter  {after}");
    survived(stage, scene).await?;
    run_once(stage, scene).await?;
    let count = after.as_array().into_iter().flatten().map(|turns| turns.as_array().map_or(0, Vec::len)).sum::<usize>();
    stage
        .timeline
        .step(format_args!("all {count} recorded outcomes are unchanged, both sandboxes and their files are there"));

    for (sandbox, text) in scene.sandboxes.iter().zip(["first", "second"]) {
        let turn = run(&scene.api, sandbox, shell("cat /workspace/kept")).await?;
        expect(&turn, 0, &format!("kept by the {text}\n"), "")?;
    }
    stage.timeline.step("both sandboxes go on working and read their files");
    Ok(())
}

pub(crate) async fn archive(stage: &mut Stage, scene: &Scene) -> anyhow::Result<()> {
    let path = |session: &str| format!("/core/v1/projects/{}/sessions/{session}/archive", scene.api.project);
    let generation = generation(&scene.api).await?;
    for sandbox in &scene.sandboxes {
        let body = json!({ "expected_generation": generation });
        scene.api.core(Method::POST, &path(&sandbox.session), Some(body)).await?;
    }
    for sandbox in &scene.sandboxes {
        until("a sandbox to be released", READY_MAX, async || {
            let archive = scene.api.core(Method::GET, &path(&sandbox.session), None).await?;
            Ok((archive["state"] == "released").then_some(()))
        })
        .await?;
    }
    let left = stage.engine.containers().await?;
    let ours = |container: &Container| scene.sandboxes.iter().any(|sandbox| sandbox.container.id == container.id);
    ensure!(!left.iter().any(ours), "the engine still has a container that was released: {left:?}");
    stage.timeline.step("archived both sandboxes; Core released them, and the engine has neither");
    Ok(())
}

/// The deployment's generation now.
pub(crate) async fn generation(api: &Api) -> anyhow::Result<u64> {
    let view = api.core(Method::GET, "/core/v1/sandbox/deployment", None).await?;
    view["generation"].as_u64().context("a deployment has a generation")
}

/// Every recorded outcome of both sandboxes.
async fn outcomes(scene: &Scene) -> anyhow::Result<Value> {
    let [first, second] = &scene.sandboxes;
    Ok(json!([scene.api.turns(&first.session).await?, scene.api.turns(&second.session).await?]))
}

/// The engine has the same two containers, running, with their files.
pub(crate) async fn survived(stage: &Stage, scene: &Scene) -> anyhow::Result<()> {
    let mut expected: Vec<_> = scene.sandboxes.iter().map(|sandbox| sandbox.container.clone()).collect();
    expected.sort();
    let found = stage.engine.containers().await?;
    ensure!(found == expected, "the engine has other containers:\nbefore {expected:?}\nnow    {found:?}");
    for (sandbox, text) in scene.sandboxes.iter().zip(["first", "second"]) {
        let kept = stage.engine.read(&sandbox.container.id, KEPT).await?;
        ensure!(kept.as_deref() == Some(&format!("kept by the {text}\n")), "a sandbox lost its file: found {kept:?}");
    }
    Ok(())
}

/// The interrupted command ran exactly once, as its file in the engine shows.
async fn run_once(stage: &Stage, scene: &Scene) -> anyhow::Result<()> {
    let runs = stage.engine.read(&scene.sandboxes[0].container.id, RUNS).await?;
    ensure!(runs.as_deref() == Some("run\n"), "the interrupted command ran again: its file holds {runs:?}");
    Ok(())
}
