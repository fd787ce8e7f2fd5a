//! What happens, in order.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use palisade_release::{Inputs, Release, Source, engine};
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, text, until};
use super::engine::Container;
use super::host::Host;
use super::stage::Stage;
use super::timeline::Timeline;
use super::{acts, changes, endings};
use crate::cli::Demo;
use crate::program::Program;

/// The node of this chapter.
pub(crate) const NODE: Host = Host { name: "node" };
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
    NODE.make(stage)?;
    let view = select_docker(stage, &api, &release).await?;
    NODE.configure(stage, &view, &image, release.seccomp().to_str().context("a folder of ours is text")?)?;
    let id = NODE.register(stage, &api, &api.origin).await?;
    stage.timeline.step(format_args!("issued an enrollment token, and registered node {id} with it"));
    NODE.start(stage)?;
    NODE.until_ready(&api).await?;
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
    let inputs = Inputs {
        source: source()?,
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

/// Where the checkout, or whatever the demo runs in, is of.
pub(crate) fn source() -> anyhow::Result<Source> {
    // Outside a git checkout the release names no commit; nothing in the demo depends on it.
    let nowhere = "0".repeat(40);
    let source = Source::of(Path::new(".")).ok().or_else(|| Source::new(&nowhere, &nowhere));
    source.context("forty zeros are a valid identifier")
}

/// Starts Core with a new key and an empty embedded store.
pub(crate) async fn start_core(stage: &mut Stage) -> anyhow::Result<Api> {
    let key = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
    stage.write("core-key", &key)?;
    let address = launch_core(stage, "127.0.0.1:0").await?;
    stage.timeline.step(format_args!("started Core on {address} with an embedded store"));
    Api::new(format!("http://{address}"), key)
}

/// Starts the process of Core and waits until it says where it listens.
pub(crate) async fn launch_core(stage: &mut Stage, listen: &str) -> anyhow::Result<String> {
    let (data, keys) = (stage.path("core"), stage.path("core-key"));
    let mut arguments = vec![
        "core".as_ref(),
        "serve".as_ref(),
        "--listen".as_ref(),
        listen.as_ref(),
        "--data".as_ref(),
        data.as_os_str(),
        "--admin-key-file".as_ref(),
        keys.as_os_str(),
    ];
    arguments.extend(stage.core_options.iter().map(OsString::as_os_str));
    let core = Program::start("Core", &arguments, &stage.path("core.log"))?;
    stage.witness(core.pid())?;
    let line = stage.core.insert(core).first_line().await?;
    let (_, address) = line.rsplit_once("http://").context("Core's ready line names its address")?;
    Ok(address.trim().to_owned())
}

/// Selects docker with this release, and makes the network of its sandboxes.
pub(crate) async fn select_docker(stage: &mut Stage, api: &Api, release: &Release) -> anyhow::Result<Value> {
    stage.engine.create_network().await?;
    let selection = selection(0, &serde_json::to_value(release.runtime())?);
    let view = api.core(Method::POST, "/core/v1/sandbox/deployment", Some(selection)).await?;
    stage.engine.installation = Some(text(&view, "/installation_id")?);
    let digest = text(&view, "/specification_digest")?;
    stage.timeline.step(format_args!(
        "selected docker: {CPUS} CPU, {MEMORY_MIB} MiB, generation {}, digest {}…",
        view["generation"],
        &digest[..12]
    ));
    Ok(view)
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
