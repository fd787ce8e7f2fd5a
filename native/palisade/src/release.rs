//! `palisade release`: build and publish.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use palisade_release::{Contents, Inputs, Published, Release, Source, engine};

#[derive(Debug, Subcommand)]
pub(crate) enum ReleaseCommand {
    /// Build a complete release from files: node program, Runtime image, system-call filter, manifest, checksums
    ///
    /// The same files give the same bytes. This executable is the node program and the installer. With --load, the image is
    /// also loaded into the local Docker engine.
    Build(Build),
    /// Add a release to the folder from which Core serves it to nodes, and offer it
    ///
    /// A file that is there is never written again: when one differs, nothing is added. Run it again to complete a
    /// publication that was interrupted, or to offer an earlier release once more.
    Publish(Publish),
}

#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Static guest entry; scripts/build-guest builds it
    #[arg(long, value_name = "FILE")]
    guest: PathBuf,
    /// Static busybox
    #[arg(long, value_name = "FILE", default_value = palisade_release::checkout::BUSYBOX)]
    busybox: PathBuf,
    /// Folder to make; one that holds a release already is refused
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Commit of the source [default: what git says about the current folder]
    #[arg(long, value_name = "SHA1", requires = "source_tree")]
    source_commit: Option<String>,
    /// Tree of the source
    #[arg(long, value_name = "SHA1", requires = "source_commit")]
    source_tree: Option<String>,
    /// Https folder where the same artifacts will be; its path names build-COMMIT or a version such as v1.2.3
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    artifact_base_url: String,
    /// Load the image into the engine at /var/run/docker.sock and print the engine's identity of it
    #[arg(long)]
    load: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// Folder of the release
    #[arg(long, value_name = "DIR")]
    release: PathBuf,
    /// Folder that Core serves: its option --node-payload; made when it is missing
    #[arg(long, value_name = "DIR")]
    payload: PathBuf,
    /// Add the manifest, checksums, installer and filter only; nodes are sent to the release's https folder for the rest
    #[arg(long)]
    metadata_only: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &ReleaseCommand) -> anyhow::Result<ExitCode> {
    match command {
        ReleaseCommand::Build(options) => build(options),
        ReleaseCommand::Publish(options) => publish(options),
    }
}

fn build(options: &Build) -> anyhow::Result<ExitCode> {
    let source = match (&options.source_commit, &options.source_tree) {
        (Some(commit), Some(tree)) => Source::new(commit, tree)
            .context("--source-commit and --source-tree take 40 lower-case hexadecimal characters")?,
        _ => Source::of(Path::new("."))?,
    };
    if source.modified() {
        eprintln!(
            "warning: the source differs from commit {}: the release names a commit that it was not built from",
            source.commit()
        );
    }
    let node_program = std::env::current_exe().context("cannot find this executable")?;
    let inputs = Inputs {
        source,
        guest: options.guest.clone(),
        busybox: options.busybox.clone(),
        node_program,
        artifact_base_url: options.artifact_base_url.clone(),
    };
    let release = palisade_release::build(&inputs, &options.out)?;
    let loaded = options.load.then(|| load(&release)).transpose()?;
    crate::print(report(options, &release, loaded.as_deref())?.as_bytes())
}

fn load(release: &Release) -> anyhow::Result<String> {
    crate::serve::block_on(async {
        let docker = bollard::Docker::connect_with_unix_defaults()?.negotiate_version().await;
        let docker = docker.context("no Docker engine answers: start it with scripts/start-docker")?;
        Ok(engine::ensure(&docker, release).await?)
    })
}

fn report(options: &Build, release: &Release, loaded: Option<&str>) -> anyhow::Result<String> {
    let runtime = release.runtime();
    if options.json {
        let document = serde_json::json!({ "folder": options.out, "runtime": runtime, "engine_image": loaded });
        return Ok(format!("{document}\n"));
    }
    let mut lines = format!("release   {}\n", options.out.display());
    for (member, value) in serde_json::to_value(&runtime)?.as_object().context("a runtime is an object")? {
        writeln!(lines, "{member:<22} {}", value.as_str().unwrap_or_default())?;
    }
    if let Some(image) = loaded {
        writeln!(lines, "engine    {image}")?;
    }
    Ok(lines)
}

fn publish(options: &Publish) -> anyhow::Result<ExitCode> {
    let release = Release::open(&options.release)?;
    let contents = if options.metadata_only { Contents::Metadata } else { Contents::Complete };
    let published = palisade_release::publish(&release, &options.payload, contents)?;
    crate::print(said(&published, options.json).as_bytes())
}

fn said(published: &Published, json: bool) -> String {
    let Published { folder, added, kept, activated } = published;
    if json {
        let document =
            serde_json::json!({ "folder": folder, "added": added, "kept": kept.len(), "activated": activated });
        return format!("{document}\n");
    }
    let offered = if *activated { "offered now" } else { "offered before" };
    let whole = format!("release   {} ({} files were there, {offered})\n", folder.display(), kept.len());
    added.iter().map(|path| format!("added     {path}\n")).chain([whole]).collect()
}
