//! `palisade release build`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use palisade_release::{Inputs, Release, Source, engine};

use crate::cli::Build;

pub(crate) fn build(options: &Build) -> anyhow::Result<ExitCode> {
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
    let inputs = Inputs { source, guest: options.guest.clone(), busybox: options.busybox.clone(), node_program };
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
