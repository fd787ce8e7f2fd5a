//! `palisade demo`: the whole system at work on one machine, with proofs that do not come from our own records.
//!
//! The story uses the public HTTP routes and this executable's own commands as separate processes. What it claims about
//! sandboxes it reads from the Docker engine, what it claims about processes from the kernel. Whatever happens, it ends
//! with nothing of its own left, unless it was asked to leave everything running.
//!
//! It has two chapters, each with a Core of its own: one node that is killed, as Core is; and a rollout to two nodes.

mod acts;
mod api;
mod changes;
mod endings;
mod engine;
mod host;
mod keep;
mod link;
mod rollout;
mod stage;
mod story;
mod timeline;

pub(crate) use timeline::warn;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{Chapter, Demo};
use stage::Stage;
use timeline::say;

/// Longest chapter, from the first line to the last proof.
const CHAPTER_MAX: Duration = Duration::from_secs(300);

pub(crate) fn run(options: &Demo) -> anyhow::Result<ExitCode> {
    crate::serve::block_on(async {
        let mut asked = Asked::listen()?;
        let first = options.chapter != Some(Chapter::Rollout);
        if first {
            let mut stage = Stage::set(options.keep).await?;
            let told = asked.unless(story::tell(options, &mut stage)).await;
            let scene = stage.judge(told).await?;
            if options.keep {
                keep::explain(&stage, &scene)?;
                return Ok(ExitCode::SUCCESS);
            }
            stage.prove_empty().await?;
        }
        if options.chapter != Some(Chapter::Accidents) {
            if first {
                say("\nA rollout to two nodes, each of which has an accident in the middle of it:");
            }
            let mut stage = Stage::set(false).await?;
            let told = asked.unless(rollout::tell(options, &mut stage)).await;
            stage.judge(told).await?;
            stage.prove_empty().await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What ends a chapter before its end.
struct Asked {
    interrupt: Signal,
    terminate: Signal,
}

impl Asked {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn unless<T>(&mut self, chapter: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            outcome = tokio::time::timeout(CHAPTER_MAX, chapter) => match outcome {
                Ok(outcome) => outcome,
                Err(_) => bail!("the chapter took longer than {} s", CHAPTER_MAX.as_secs()),
            },
            _ = self.interrupt.recv() => bail!("interrupted"),
            _ = self.terminate.recv() => bail!("terminated"),
        }
    }
}
