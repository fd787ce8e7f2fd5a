//! `palisade demo`: the whole system at work on one machine, with proofs that do not come from our own records.
//!
//! The story uses the public HTTP routes and this executable's own commands as separate processes. What it claims about
//! sandboxes it reads from the Docker engine, what it claims about processes from the kernel. Whatever happens, it ends
//! with nothing of its own left, unless it was asked to leave everything running.

mod acts;
mod api;
mod changes;
mod endings;
mod engine;
mod keep;
mod stage;
mod story;
mod timeline;

pub(crate) use timeline::warn;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Demo;
use stage::Stage;

/// Longest story, from the first line to the last proof.
const STORY_MAX: Duration = Duration::from_secs(90);

pub(crate) fn run(options: &Demo) -> anyhow::Result<ExitCode> {
    crate::serve::block_on(async {
        let mut stage = Stage::set(options.keep).await?;
        let outcome = play(options, &mut stage).await;
        match outcome {
            Ok(scene) if options.keep => keep::explain(stage, &scene)?,
            Ok(_) => stage.prove_empty().await?,
            Err(error) => {
                stage.show_logs();
                stage.clear().await;
                return Err(error);
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn play(options: &Demo, stage: &mut Stage) -> anyhow::Result<story::Scene> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        outcome = tokio::time::timeout(STORY_MAX, story::tell(options, stage)) => match outcome {
            Ok(outcome) => outcome,
            Err(_) => bail!("the story took longer than {} s", STORY_MAX.as_secs()),
        },
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}
