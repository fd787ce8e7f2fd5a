//! The Core under load: one that is named, or one of our own.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::{Context as _, bail, ensure};
use palisade_core::deployment::contract::{Mode, Provider};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::api::Api;
use super::process::{Cpu, Memory};
use super::progress;
use crate::cli::Fleet;
use crate::key;
use crate::program::Program;

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
/// How much of the log of our own Core is shown when something failed.
const LOG_LINES: usize = 25;

pub(crate) struct Target {
    pub(crate) api: Api,
    pub(crate) selection: Selection,
    /// Nodes that must be removed at the end.
    pub(crate) enrolled: Vec<String>,
    own: Option<Own>,
}

/// What nodes enroll for.
#[derive(Clone)]
pub(crate) struct Selection {
    pub(crate) provider: Provider,
    pub(crate) generation: u64,
    pub(crate) digest: String,
}

struct Own {
    program: Program,
    folder: TempDir,
}

impl Target {
    pub(crate) async fn open(options: &Fleet) -> anyhow::Result<Self> {
        let (api, own) = match (&options.core_url, &options.admin_key_file) {
            (Some(url), Some(file)) => (Api::new(url, key::read(file)?)?, None),
            (Some(_), None) => bail!("name a core key file with --admin-key-file"),
            (None, _) => {
                let (api, own) = Own::start().await?;
                (api, Some(own))
            }
        };
        let selection = Selection::read(&api.admin(Method::GET, DEPLOYMENT, None).await?)?;
        Ok(Self { api, selection, enrolled: Vec::new(), own })
    }

    pub(crate) fn origin(&self) -> &str {
        self.api.origin()
    }

    /// What Core has used so far; `None` for a Core that is not ours to look into.
    pub(crate) fn cpu(&self) -> anyhow::Result<Option<Cpu>> {
        self.own.as_ref().map(|own| Cpu::of(own.program.pid())).transpose()
    }

    /// What Core holds; `None` for a Core that is not ours to look into.
    pub(crate) fn memory(&self) -> anyhow::Result<Option<Memory>> {
        self.own.as_ref().map(|own| Memory::of(own.program.pid())).transpose()
    }

    /// The end of our own Core's log.
    pub(crate) fn show_log(&self) {
        let text = self.own.as_ref().and_then(|own| std::fs::read_to_string(own.folder.path().join("core.log")).ok());
        let text = text.unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).for_each(progress);
    }

    /// Removes the nodes from a Core that stays, or our own Core with everything it stored.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        let Some(own) = self.own else { return super::enroll::remove(&self.api, self.enrolled).await };
        own.program.stop().await?;
        Ok(own.folder.close()?)
    }
}

impl Own {
    async fn start() -> anyhow::Result<(Api, Self)> {
        let folder = tempfile::Builder::new().prefix("palisade-fleet-").tempdir()?;
        let key = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
        let (data, keys) = (folder.path().join("core"), folder.path().join("core-key"));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&keys)?.write_all(key.as_bytes())?;
        let arguments = [
            "core".as_ref(),
            "serve".as_ref(),
            "--listen".as_ref(),
            "127.0.0.1:0".as_ref(),
            "--data".as_ref(),
            data.as_os_str(),
            "--admin-key-file".as_ref(),
            keys.as_os_str(),
        ];
        let mut program = Program::start("Core", &arguments, &folder.path().join("core.log"))?;
        let line = program.first_line().await?;
        let (_, origin) = line.split_once(" on ").context("Core's ready line names its address")?;
        let api = Api::new(origin.trim(), key)?;
        api.admin(Method::POST, DEPLOYMENT, Some(selection())).await?;
        progress(format_args!("started a core of our own on {origin}, process {}", program.pid()));
        Ok((api, Self { program, folder }))
    }
}

/// A selection that no node can prepare, which is what the nodes of a fleet do.
fn selection() -> Value {
    let hex = |digit: &str, length| digit.repeat(length);
    json!({
        "expected_generation": 0,
        "provider": "docker",
        "resources": { "cpus": 1, "memory_mib": 512 },
        "runtime": {
            "source_commit": hex("a", 40),
            "image_id": format!("sha256:{}", hex("b", 64)),
            "image_manifest_digest": format!("sha256:{}", hex("c", 64)),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("d", 64)),
            "runtime_sha256": hex("e", 64),
            "firmware_sha256": hex("f", 64),
        },
    })
}

impl Selection {
    fn read(view: &Value) -> anyhow::Result<Self> {
        let provider = view["provider"].as_str().and_then(Provider::from_name);
        let provider = provider.context("core has no sandbox deployment yet; select one first")?;
        ensure!(provider.rule().mode == Mode::Nodes, "the provider {} has no nodes", provider.name());
        let generation = view["generation"].as_u64().context("a deployment has a generation")?;
        let digest = view["specification_digest"].as_str().context("a deployment has a digest")?.to_owned();
        Ok(Self { provider, generation, digest })
    }
}
