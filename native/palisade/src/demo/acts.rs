//! What sandboxes are for: commands, and what they cost.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use palisade_core::units::Digest;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, text, until};
use super::stage::Stage;
use super::story::{Sandbox, Scene};
use super::timeline::Timeline;

/// The command that is fed on standard input gets this much.
const INPUT_BYTES: usize = 4 * 1024 * 1024;
/// Budget of every command that is expected to end.
pub(crate) const BUDGET_MS: u64 = 30_000;
/// Budget of the command that is expected to outlive it.
const SHORT_BUDGET_MS: u64 = 1_500;
/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

pub(crate) async fn commands(stage: &mut Stage, scene: &Scene) -> anyhow::Result<()> {
    let [first, second] = &scene.sandboxes;

    let mut input = vec![0_u8; INPUT_BYTES];
    rand::fill(&mut input[..]);
    let fed = json!({ "args": ["sha256sum"], "stdin": base64_simd::STANDARD.encode_to_string(&input) });
    let turn = run(&scene.api, first, fed).await?;
    expect(&turn, 0, &format!("{}  -\n", Digest::of(&input)), "")?;
    stage.timeline.step("fed a command 4 MiB on standard input; its SHA-256 is the one computed here");

    let turn = run(&scene.api, second, shell("echo to the output; echo to the errors >&2")).await?;
    expect(&turn, 0, "to the output\n", "to the errors\n")?;
    stage.timeline.step("ran a command that writes to both streams; they arrived apart");

    let turn = run(&scene.api, second, shell("exit 3")).await?;
    expect(&turn, 3, "", "")?;
    stage.timeline.step("ran a command that exits 3: completed, with exit code 3");

    let id = scene.api.start(&second.session, shell("sleep 600"), SHORT_BUDGET_MS).await?;
    let turn = scene.api.ended(&second.session, &id).await?;
    let code = expect_unconfirmed(&turn)?;
    stage
        .timeline
        .step(format_args!("ran a command that outlives its {SHORT_BUDGET_MS} ms: failed, {code}, no exit code"));

    for (sandbox, text) in scene.sandboxes.iter().zip(["first", "second"]) {
        let turn = run(&scene.api, sandbox, shell(&format!("echo kept by the {text} > /workspace/kept"))).await?;
        expect(&turn, 0, "", "")?;
    }
    stage.timeline.step("left a file in each sandbox");
    Ok(())
}

pub(crate) async fn measurements(stage: &mut Stage, scene: &Scene) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for sandbox in &scene.sandboxes {
        let path = format!("/core/v1/projects/{}/sessions/{}/runtime-observation", scene.api.project, sandbox.session);
        let observed = until("a measurement", Duration::from_secs(15), async || {
            let observation = scene.api.core(Method::GET, &path, None).await?;
            Ok((observation["status"] == "observed").then_some(observation))
        })
        .await?;
        let cpu = observed["cpu"]["usage_seconds_total"].as_f64().context("docker measures CPU seconds")?;
        let memory = observed["memory"]["usage_bytes"].as_f64().context("docker measures memory")?;
        let limit = observed["memory"]["limit_bytes"].as_f64().context("docker limits memory")?;
        ensure!(cpu > 0.0 && memory > 0.0 && memory <= limit, "the measurement is implausible: {observed}");
        lines.push(format!("{cpu:.3} CPU seconds, {:.1} of {:.0} MiB memory", memory / MIB, limit / MIB));
    }
    stage.timeline.step("measured both sandboxes");
    for line in lines {
        Timeline::detail(line);
    }
    Ok(())
}

/// A shell script as a command.
pub(crate) fn shell(script: &str) -> Value {
    json!({ "args": ["sh", "-c", script] })
}

/// Runs a command to its end.
pub(crate) async fn run(api: &Api, sandbox: &Sandbox, command: Value) -> anyhow::Result<Value> {
    let turn = api.start(&sandbox.session, command, BUDGET_MS).await?;
    api.ended(&sandbox.session, &turn).await
}

/// The Turn completed with exactly this.
pub(crate) fn expect(turn: &Value, exit_code: i64, stdout: &str, stderr: &str) -> anyhow::Result<()> {
    let expected = turn["status"] == "completed"
        && turn["exit_code"] == exit_code
        && turn["stdout"] == stdout
        && turn["stderr"] == stderr;
    ensure!(expected, "expected exit code {exit_code}, output {stdout:?} and errors {stderr:?}, got {turn}");
    Ok(())
}

/// The Turn failed with an unknown outcome. Gives the code.
pub(crate) fn expect_unconfirmed(turn: &Value) -> anyhow::Result<String> {
    ensure!(turn["status"] == "failed", "expected a failed command, got {turn}");
    ensure!(turn["exit_code"].is_null(), "an unknown outcome has no exit code, got {turn}");
    let code = text(turn, "/error/code")?;
    ensure!(code.ends_with("unconfirmed"), "expected an unconfirmed outcome, got {code}");
    Ok(code)
}
