//! Two releases, one Core, two nodes with a sandbox each; and the selection that changes it all.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use palisade_core::distribution::catalogue::{IMAGE, IMAGE_UNPACKED, SECCOMP};
use palisade_core::units::Digest;
use palisade_release::{Contents, Inputs, Release, Source, engine};
use reqwest::Method;
use serde_json::{Value, json};

use super::super::acts::{expect, run, shell};
use super::super::changes::DEPLOYMENT;
use super::super::host::Host;
use super::super::link::{Link, Router};
use super::super::stage::Stage;
use super::super::story::{Sandbox, hosted, select_docker, selection, settle, source, start_core};
use super::super::timeline::Timeline;
use super::{Beats, EAST, Edition, Fleet, Node, WEST, proofs};
use crate::cli::Demo;

/// What makes the new guest program larger than the old one: enough that a download has a middle.
const LARGER_BYTES: usize = 6 * 1024 * 1024;

pub(super) async fn set_up(options: &Demo, stage: &mut Stage) -> anyhow::Result<Fleet> {
    let (old, new) = releases(options, stage)?;
    let image = engine::ensure(&stage.engine.docker, &old.release).await?;
    let runtime = new.release.runtime();
    stage.images = vec![runtime.image_id.clone(), runtime.image_manifest_digest.clone()];
    stage
        .timeline
        .step("built two Runtime releases, and published both for nodes; the engine has the image of the old one");

    let (router, payload) = (Router::open().await?, stage.path("payload"));
    let public_url = format!("http://{}", router.address);
    stage.core_options = ["--public-url", &public_url, "--node-payload"].map(OsString::from).into();
    stage.core_options.push(payload.into());
    let mut api = start_core(stage).await?;
    router.lead_to(api.origin.trim_start_matches("http://").parse().context("Core listens on an address")?);
    let view = select_docker(stage, &api, &old.release).await?;
    let (west, east) = (router.link().await?, router.link().await?);
    let mut ids = Vec::new();
    for (host, link) in [(WEST, &west), (EAST, &east)] {
        install(stage, host, &view, &image, &old.release)?;
        let source = json!({ "source_url": format!("http://{}", link.address) });
        stage.write(&format!("{}/preparation.json", host.name), source.to_string())?;
        let id = host.register(stage, &api, &public_url).await?;
        router.knows(&id, link);
        ids.push(id);
        host.start(stage)?;
    }
    let beats = Beats::listen(&api);
    for host in [WEST, EAST] {
        host.until_ready(&api).await?;
    }
    stage.timeline.step(format_args!(
        "registered and started nodes west and east; each reaches Core by a way of its own, which can fail"
    ));

    api.create_project().await?;
    let mut placed = Vec::new();
    for words in ["kept by the first", "kept by the second"] {
        let session = api.sessions(Method::POST, "", Some(hosted())).await?;
        let sandbox = settle(stage, &api, &session).await?;
        let turn = run(&api, &sandbox, shell(&format!("echo {words} > /workspace/kept"))).await?;
        expect(&turn, 0, "", "")?;
        let (node, generation) = proofs::place_of(&api, &ids, &sandbox).await?;
        ensure!(generation == 1, "a sandbox is of generation {generation}: expected 1");
        placed.push((node, stage.engine.process(&sandbox.container.id).await?, sandbox));
    }
    placed.sort_by_key(|(node, ..)| *node);
    let nodes: Vec<_> = placed.iter().map(|(node, ..)| *node).collect();
    ensure!(nodes == [0, 1], "two sandboxes are not on two nodes: {nodes:?}");
    stage.timeline.step("created a sandbox on each node, and left a file in both");
    for (host, (_, _, sandbox)) in [WEST, EAST].iter().zip(&placed) {
        Timeline::detail(format_args!("{} runs container {}", host.name, &sandbox.container.id[..12]));
    }
    let mut nodes = placed.into_iter().zip([(WEST, west), (EAST, east)]).zip(ids);
    let mut node = || nodes.next().map(|((placed, way), id)| joined(way, id, placed)).context("there are two nodes");
    Ok(Fleet { west: node()?, east: node()?, api, old, new, beats, _router: router })
}

fn joined((host, link): (Host, Link), id: String, (_, process, sandbox): (usize, i64, Sandbox)) -> Node {
    Node { host, id, link, sandbox, process }
}

/// The release of this checkout, and one whose guest program is another, as of another commit.
fn releases(options: &Demo, stage: &Stage) -> anyhow::Result<(Edition, Edition)> {
    let mut bytes =
        std::fs::read(&options.guest).with_context(|| format!("cannot read {}", options.guest.display()))?;
    let start = bytes.len();
    bytes.resize(start + LARGER_BYTES, 0);
    rand::fill(&mut bytes[start..]);
    let guest = stage.write("next-guest", &bytes)?;
    let commit = Digest::of(&bytes).to_string()[..40].to_owned();
    let next = Source::new(&commit, &commit).context("forty digits are a valid identifier")?;
    // In place: an interrupt waits for the builder.
    tokio::task::block_in_place(|| {
        Ok((
            edition(options, stage, "old-release", source()?, &options.guest)?,
            edition(options, stage, "new-release", next, &guest)?,
        ))
    })
}

fn edition(options: &Demo, stage: &Stage, name: &str, source: Source, guest: &Path) -> anyhow::Result<Edition> {
    let inputs = Inputs {
        source,
        guest: guest.to_owned(),
        busybox: options.busybox.clone(),
        // Nodes of this chapter have their program already; a small one makes the release quickly.
        node_program: options.guest.clone(),
        artifact_base_url: String::new(),
    };
    let release = palisade_release::build(&inputs, &stage.path(name))?;
    palisade_release::publish(&release, &stage.path("payload"), Contents::Complete)?;
    let size = release.manifest().artifacts[IMAGE].size;
    Ok(Edition { release, size })
}

/// What an installer leaves in a node's folder: the files of its first release, with a record of them.
fn install(stage: &Stage, host: Host, view: &Value, image: &str, release: &Release) -> anyhow::Result<()> {
    host.make(stage)?;
    let seccomp: PathBuf = host.root(stage).join(SECCOMP);
    stage.make_private(&format!("{}/runtime", host.name))?;
    let bytes = std::fs::read(release.seccomp())?;
    stage.write(&format!("{}/{SECCOMP}", host.name), &bytes)?;
    let archive = &release.manifest().artifacts[IMAGE];
    let record = json!({
        "installation_id": view["installation_id"],
        "source_commit": release.runtime().source_commit,
        "sha256": {
            SECCOMP: Digest::of(&bytes), IMAGE: archive.sha256, IMAGE_UNPACKED: archive.unpacked_sha256,
        },
    });
    stage.write(&format!("{}/runtime-artifacts.json", host.name), record.to_string())?;
    host.configure(stage, view, image, seccomp.to_str().context("a folder of ours is text")?)
}

/// Selects the new release. Both ways to Core become slow once half of its image has passed.
pub(super) async fn select(stage: &mut Stage, fleet: &Fleet) -> anyhow::Result<()> {
    for node in [&fleet.west, &fleet.east] {
        node.link.slow_after(Some(fleet.new.size / 2));
    }
    let selection = selection(1, &serde_json::to_value(fleet.new.release.runtime())?);
    let view = fleet.api.core(Method::PUT, DEPLOYMENT, Some(selection)).await?;
    ensure!(view["generation"] == 2, "the change of generation 1 is {}", view["generation"]);
    ensure!(view["rollout"]["previous_generation_sandboxes"] == 2, "the view misses sandboxes: {}", view["rollout"]);
    stage.timeline.step("selected the new release as generation 2; two sandboxes are of the previous one");
    Ok(())
}
