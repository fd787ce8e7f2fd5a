//! What is true, as Core, a node's own command, its disk and the engine say it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use palisade_core::distribution::catalogue::SECCOMP;
use reqwest::Method;
use serde_json::{Value, json};

use super::super::api::{Api, text};
use super::super::stage::Stage;
use super::super::story::Sandbox;
use super::{Fleet, Node};
use crate::program::Program;

/// Longest wait for one step of a node.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(120);

/// The folder of the new release on the node's disk.
pub(super) fn release(stage: &Stage, fleet: &Fleet, node: &Node) -> PathBuf {
    node.host.root(stage).join("releases").join(fleet.new.release.manifest().source_commit.as_str())
}

/// Bytes of the new image's unfinished archive on the node's disk.
pub(super) fn part(stage: &Stage, fleet: &Fleet, node: &Node) -> Option<u64> {
    let partial = release(stage, fleet, node).join("images/.runtime.tar.gz.partial");
    partial.metadata().ok().map(|found| found.len())
}

/// The disk holds the new release once, and nothing that was needed only on the way.
pub(super) fn one_copy(stage: &Stage, fleet: &Fleet, node: &Node) -> anyhow::Result<()> {
    let releases = node.host.root(stage).join("releases");
    let mut found = BTreeSet::new();
    files(&releases, &mut found)?;
    let release = release(stage, fleet, node);
    let expected = ["manifest.json", SECCOMP].map(|name| release.join(name)).into();
    ensure!(found == expected, "{} holds {found:?}: expected {expected:?}", node.host.name);
    Ok(())
}

fn files(folder: &Path, found: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files(&entry.path(), found)?;
        } else {
            found.insert(entry.path());
        }
    }
    Ok(())
}

/// `palisade node generations` tells exactly these generations, in these states.
pub(super) async fn holds(stage: &Stage, node: &Node, expected: &[(u64, &str)]) -> anyhow::Result<()> {
    let (root, log) = (node.host.root(stage), stage.path("generations.log"));
    let arguments = ["node".as_ref(), "generations".as_ref(), "--json".as_ref(), "--root".as_ref(), root.as_os_str()];
    let told = Program::start("node generations", &arguments, &log)?.output().await?;
    let told: Value = serde_json::from_str(&told).context("it prints one JSON array")?;
    let states: Vec<_> =
        told.as_array().into_iter().flatten().map(|held| (&held["generation"], &held["state"])).collect();
    let same = states.len() == expected.len()
        && states.iter().zip(expected).all(|(found, held)| *found.0 == held.0 && *found.1 == held.1);
    ensure!(same, "{} holds {told}: expected {expected:?}", node.host.name);
    Ok(())
}

/// The node's old sandbox is the same container and the same process as ever, with its file.
pub(super) async fn untouched(stage: &Stage, node: &Node) -> anyhow::Result<()> {
    let before = &node.sandbox.container;
    let now = stage.engine.container_of(&before.environment).await?;
    ensure!(now == *before, "the sandbox of {} changed:\nbefore {before:?}\nnow    {now:?}", node.host.name);
    let process = stage.engine.process(&before.id).await?;
    ensure!(process == node.process, "the sandbox of {} was started again", node.host.name);
    kept(stage, node).await.map(drop)
}

/// What the node's old sandbox keeps, as the engine reads it.
pub(super) async fn kept(stage: &Stage, node: &Node) -> anyhow::Result<String> {
    let kept = stage.engine.read(&node.sandbox.container.id, "/environment/workspace/kept").await?;
    kept.filter(|kept| kept.starts_with("kept by the "))
        .with_context(|| format!("the sandbox of {} lost its file", node.host.name))
}

/// On which of these nodes Core has a sandbox, and of which generation.
pub(super) async fn place_of(api: &Api, nodes: &[String], sandbox: &Sandbox) -> anyhow::Result<(usize, u64)> {
    for (index, node) in nodes.iter().enumerate() {
        let held = api.core(Method::GET, &format!("/core/v1/sandbox/nodes/{node}/allocations"), None).await?;
        let found = held["data"].as_array().into_iter().flatten().find(|held| held["session_id"] == sandbox.session);
        if let Some(found) = found {
            let generation = found["deployment_generation"].as_u64().context("an allocation has a generation")?;
            return Ok((index, generation));
        }
    }
    anyhow::bail!("Core has session {} on no node", sandbox.session)
}

/// Archives a session; gives the state.
pub(super) async fn archive(fleet: &Fleet, sandbox: &Sandbox) -> anyhow::Result<String> {
    let body = json!({ "expected_generation": 2 });
    text(&fleet.api.core(Method::POST, &archive_of(fleet, sandbox), Some(body)).await?, "/state")
}

/// How far the archiving of a session is.
pub(super) async fn archived(fleet: &Fleet, sandbox: &Sandbox) -> anyhow::Result<String> {
    text(&fleet.api.core(Method::GET, &archive_of(fleet, sandbox), None).await?, "/state")
}

fn archive_of(fleet: &Fleet, sandbox: &Sandbox) -> String {
    format!("/core/v1/projects/{}/sessions/{}/archive", fleet.api.project, sandbox.session)
}
