//! What happens, in order.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use palisade_release::{Inputs, Release, Source, engine};
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, text, until};
use super::engine::Container;
use super::stage::Stage;
use super::timeline::Timeline;
use super::{acts, changes, endings};
use crate::cli::Demo;
use crate::program::Program;

/// Longest wait for a node to become ready, or for a sandbox to start or to be removed.
pub(crate) const READY_MAX: Duration = Duration::from_secs(40);
/// What each sandbox gets.
const CPUS: u32 = 1;
const MEMORY_MIB: u32 = 512;

/// What the story has built.
pub(crate) struct Scene {
    pub(crate) api: Api,
    pub(crate) sandboxes: [Sandbox; 2],
    /// The Runtime release that both sandboxes run.
    pub(crate) runtime: Value,
}

pub(crate) struct Sandbox {
    pub(crate) session: String,
    pub(crate) container: Container,
}

pub(crate) async fn tell(options: &Demo, stage: &mut Stage) -> anyhow::Result<Scene> {
    let version = stage.engine.version().await?;
    stage.timeline.step(format_args!("found Docker {version}"));
    let (release, image) = release(options, stage).await?;
    let mut api = start_core(stage).await?;
    select_docker(stage, &api, &release, &image).await?;
    register(stage, &api).await?;
    start_node(stage, &api).await?;
    stage.timeline.step("started the node as a process of its own; Core counts it as ready");
    api.create_project().await?;
    let sandboxes = create_sandboxes(stage, &api).await?;
    let scene = Scene { api, sandboxes, runtime: serde_json::to_value(release.runtime())? };
    if !options.keep {
        changes::select_nowhere(stage, &scene).await?;
    }
    acts::commands(stage, &scene).await?;
    acts::measurements(stage, &scene).await?;
    endings::kill_node(stage, &scene).await?;
    endings::kill_core(stage, &scene).await?;
    if !options.keep {
        changes::refusal(stage, &scene).await?;
        let third = changes::capacity(stage, &scene).await?;
        endings::archive(stage, &scene).await?;
        changes::reset(stage, &scene, &third).await?;
    }
    Ok(scene)
}

async fn release(options: &Demo, stage: &mut Stage) -> anyhow::Result<(Release, String)> {
    // Outside a git checkout the release names no commit; nothing in the demo depends on it.
    let nowhere = "0".repeat(40);
    let source = Source::of(Path::new(".")).ok().or_else(|| Source::new(&nowhere, &nowhere));
    let inputs = Inputs {
        source: source.context("forty zeros are a valid identifier")?,
        guest: options.guest.clone(),
        busybox: options.busybox.clone(),
        node_program: std::env::current_exe()?,
        artifact_base_url: String::new(),
    };
    let folder = stage.path("release");
    // In place: an interrupt waits for the builder, which would else go on writing into a folder that is being removed.
    let release = tokio::task::block_in_place(|| palisade_release::build(&inputs, &folder))?;
    let image = engine::ensure(&stage.engine.docker, &release).await?;
    stage.timeline.step("built the Runtime release from files and loaded its image");
    Timeline::detail(format_args!("the engine calls it {image}"));
    Ok((release, image))
}

/// Starts Core with a new key and an empty embedded store.
async fn start_core(stage: &mut Stage) -> anyhow::Result<Api> {
    let key = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
    stage.write("core-key", &key)?;
    let address = launch_core(stage, "127.0.0.1:0").await?;
    stage.timeline.step(format_args!("started Core on {address} with an embedded store"));
    Api::new(format!("http://{address}"), key)
}

/// Starts the process of Core and waits until it says where it listens.
pub(crate) async fn launch_core(stage: &mut Stage, listen: &str) -> anyhow::Result<String> {
    let (data, keys) = (stage.path("core"), stage.path("core-key"));
    let arguments = [
        "core".as_ref(),
        "serve".as_ref(),
        "--listen".as_ref(),
        listen.as_ref(),
        "--data".as_ref(),
        data.as_os_str(),
        "--admin-key-file".as_ref(),
        keys.as_os_str(),
    ];
    let core = Program::start("Core", &arguments, &stage.path("core.log"))?;
    stage.witness(core.pid())?;
    let line = stage.core.insert(core).first_line().await?;
    let (_, address) = line.rsplit_once("http://").context("Core's ready line names its address")?;
    Ok(address.trim().to_owned())
}

/// Selects docker with this release, and writes what the node needs to know.
async fn select_docker(stage: &mut Stage, api: &Api, release: &Release, image: &str) -> anyhow::Result<()> {
    stage.engine.create_network().await?;
    let selection = selection(0, &serde_json::to_value(release.runtime())?);
    let view = api.core(Method::POST, "/core/v1/sandbox/deployment", Some(selection)).await?;
    let generation = view["generation"].as_u64().context("a selected deployment has a generation")?;
    stage.engine.installation = Some(text(&view, "/installation_id")?);
    let configuration = json!({
        "installation_id": view["installation_id"],
        "provider": "docker",
        "core_url": format!("{}/api/v1", api.origin),
        "specification": view["specification"],
        "generation": generation,
        "native": {
            "host": "unix:///var/run/docker.sock",
            "image": image,
            "network": stage.engine.network,
            "seccomp_file": release.seccomp(),
        },
    });
    stage.write("node/provider.json", &configuration.to_string())?;
    let digest = text(&view, "/specification_digest")?;
    stage.timeline.step(format_args!(
        "selected docker: {CPUS} CPU, {MEMORY_MIB} MiB, generation {generation}, digest {}…",
        &digest[..12]
    ));
    Ok(())
}

/// Docker with this Runtime, as the change of this generation.
pub(crate) fn selection(expected_generation: u64, runtime: &Value) -> Value {
    json!({
        "expected_generation": expected_generation,
        "provider": "docker",
        "resources": { "cpus": CPUS, "memory_mib": MEMORY_MIB },
        "runtime": runtime,
    })
}

async fn register(stage: &mut Stage, api: &Api) -> anyhow::Result<()> {
    let limits = json!({ "max_active": 4 });
    let issued = api.core(Method::POST, "/core/v1/sandbox/enrollment-tokens", Some(limits)).await?;
    let token = stage.write("token", &text(&issued, "/token")?)?;
    stage.timeline.step("issued an enrollment token");
    let (config, private) = node_paths(stage);
    let arguments = [
        "node".as_ref(),
        "register".as_ref(),
        "--config".as_ref(),
        config.as_os_str(),
        "--state-dir".as_ref(),
        private.as_os_str(),
        "--core-url".as_ref(),
        api.origin.as_ref(),
        "--name".as_ref(),
        "demo".as_ref(),
        "--enrollment-token-file".as_ref(),
        token.as_os_str(),
    ];
    let command = Program::start("the registration", &arguments, &stage.path("node.log"))?;
    let identity: Value =
        serde_json::from_str(&command.output().await?).context("the registration prints one JSON object")?;
    stage.timeline.step(format_args!("registered node {}", text(&identity, "/node_id")?));
    Ok(())
}

/// Starts the process of the node and waits until Core counts it as ready.
pub(crate) async fn start_node(stage: &mut Stage, api: &Api) -> anyhow::Result<()> {
    let (config, private) = node_paths(stage);
    let arguments = [
        "node".as_ref(),
        "run".as_ref(),
        "--config".as_ref(),
        config.as_os_str(),
        "--state-dir".as_ref(),
        private.as_os_str(),
    ];
    let node = Program::start("the node", &arguments, &stage.path("node.log"))?;
    stage.witness(node.pid())?;
    stage.node = Some(node);
    until_ready(api).await
}

pub(crate) async fn until_ready(api: &Api) -> anyhow::Result<()> {
    until("the node to be ready", READY_MAX, async || {
        let nodes = api.core(Method::GET, "/core/v1/sandbox/nodes", None).await?;
        Ok((nodes["data"][0]["provider_ready"] == true).then_some(()))
    })
    .await
}

fn node_paths(stage: &Stage) -> (std::path::PathBuf, std::path::PathBuf) {
    (stage.path("node/provider.json"), stage.path("node/state/node"))
}

async fn create_sandboxes(stage: &mut Stage, api: &Api) -> anyhow::Result<[Sandbox; 2]> {
    let sessions =
        [api.sessions(Method::POST, "", Some(hosted())).await?, api.sessions(Method::POST, "", Some(hosted())).await?];
    let mut sandboxes = Vec::new();
    for session in sessions {
        sandboxes.push(settle(stage, api, &session).await?);
    }
    stage.timeline.step("created two sandboxes through the public API; the engine runs both");
    for sandbox in &sandboxes {
        let short = &sandbox.container.id[..12];
        Timeline::detail(format_args!("session {} is container {short}", sandbox.session));
    }
    sandboxes.try_into().ok().context("two sessions give two sandboxes")
}

/// The body of every new session.
pub(crate) fn hosted() -> Value {
    json!({ "environment": { "type": "openai_hosted" } })
}

/// Waits until a new session's sandbox runs, and shows it in the engine and in the kernel.
pub(crate) async fn settle(stage: &mut Stage, api: &Api, session: &Value) -> anyhow::Result<Sandbox> {
    let (session, environment) = (text(session, "/id")?, text(session, "/environment/id")?);
    until_connected(api, &session).await?;
    let container = stage.engine.container_of(&environment).await?;
    ensure!(container.state == "running", "the engine says that the container is {}", container.state);
    stage.witness(u32::try_from(stage.engine.process(&container.id).await?)?)?;
    Ok(Sandbox { session, container })
}

pub(crate) async fn until_connected(api: &Api, session: &str) -> anyhow::Result<()> {
    until("the sandbox to be connected", READY_MAX, async || {
        let session = api.sessions(Method::GET, &format!("/{session}"), None).await?;
        let status = text(&session, "/environment/status")?;
        ensure!(matches!(status.as_str(), "pending" | "connected"), "the environment is {status}");
        Ok((status == "connected").then_some(()))
    })
    .await
}
