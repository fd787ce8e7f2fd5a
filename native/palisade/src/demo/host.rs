//! A node of the demo: a folder where another machine would have its disk, and a process.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, text, until};
use super::stage::{self, Stage};
use super::story::READY_MAX;
use crate::program::Program;

/// One node. Its folder below the stage's has its name, and so has its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
}

impl Host {
    /// Makes the private folders of an installation.
    pub(crate) fn make(self, stage: &Stage) -> anyhow::Result<()> {
        stage.make_private(self.name)?;
        stage.make_private(&format!("{}/state", self.name))
    }

    pub(crate) fn root(self, stage: &Stage) -> PathBuf {
        stage.path(self.name)
    }

    /// Writes what the node needs to know: the deployment, and what only the host knows of docker.
    pub(crate) fn configure(self, stage: &Stage, view: &Value, image: &str, seccomp: &str) -> anyhow::Result<()> {
        let configuration = json!({
            "installation_id": view["installation_id"],
            "provider": "docker",
            "core_url": format!("{}/api/v1", text(view, "/core_url")?),
            "specification": view["specification"],
            "generation": view["generation"],
            "native": {
                "host": "unix:///var/run/docker.sock",
                "image": image,
                "network": stage.engine.network,
                "seccomp_file": seccomp,
            },
        });
        stage.write(&format!("{}/provider.json", self.name), configuration.to_string()).map(drop)
    }

    /// Enrolls the node with Core at its public URL; gives the node's id.
    pub(crate) async fn register(self, stage: &Stage, api: &Api, core_url: &str) -> anyhow::Result<String> {
        let issued =
            api.core(Method::POST, "/core/v1/sandbox/enrollment-tokens", Some(json!({ "max_active": 4 }))).await?;
        let token = stage.write(&format!("{}-token", self.name), &text(&issued, "/token")?)?;
        let mut arguments = self.arguments(stage, "register");
        arguments.extend(["--core-url", core_url, "--name", self.name, "--enrollment-token-file"].map(OsString::from));
        arguments.push(token.into());
        let command = Program::start("the registration", &arguments, &self.log(stage))?;
        let identity: Value =
            serde_json::from_str(&command.output().await?).context("the registration prints one JSON object")?;
        text(&identity, "/node_id")
    }

    /// Starts the node's process.
    pub(crate) fn start(self, stage: &mut Stage) -> anyhow::Result<()> {
        let node = Program::start(self.name, &self.arguments(stage, "run"), &self.log(stage))?;
        stage.witness(node.pid())?;
        stage.nodes.insert(self.name, node);
        Ok(())
    }

    /// Kills the node's process with SIGKILL. What it had started ends by itself; gives those processes.
    pub(crate) async fn kill(self, stage: &mut Stage) -> anyhow::Result<Vec<u32>> {
        stage::kill(stage.nodes.remove(self.name).context("the node runs")?).await
    }

    /// Waits until Core counts the node as ready.
    pub(crate) async fn until_ready(self, api: &Api) -> anyhow::Result<()> {
        until(&format!("{} to be ready", self.name), READY_MAX, async || {
            Ok((self.seen_by(api).await?["provider_ready"] == true).then_some(()))
        })
        .await
    }

    /// The node as Core lists it.
    pub(crate) async fn seen_by(self, api: &Api) -> anyhow::Result<Value> {
        let mut nodes = api.core(Method::GET, "/core/v1/sandbox/nodes", None).await?;
        let found = nodes["data"].as_array_mut().into_iter().flatten().find(|node| node["name"] == self.name);
        Ok(found.context("Core lists no node of this name")?.take())
    }

    fn arguments(self, stage: &Stage, command: &str) -> Vec<OsString> {
        let root = self.root(stage);
        let (config, private) = (root.join("provider.json"), root.join("state/node"));
        ["node".into(), command.into(), "--config".into(), config.into(), "--state-dir".into(), private.into()].into()
    }

    fn log(self, stage: &Stage) -> PathBuf {
        stage.path(&format!("{}.log", self.name))
    }
}
