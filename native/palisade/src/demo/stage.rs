//! Everything of the demo that exists outside this process, and its removal.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::api::until;
use super::engine::Engine;
use super::timeline::{Timeline, warn};
use crate::program::Program;

/// Longest wait for the end of what a killed program had started.
const CHILDREN_MAX: Duration = Duration::from_secs(10);
/// Fields of a process, counted as proc(5) does.
const PARENT: usize = 4;
const START_TIME: usize = 22;

pub(crate) struct Stage {
    pub(crate) timeline: Timeline,
    pub(crate) engine: Engine,
    pub(crate) folder: TempDir,
    pub(crate) core: Option<Program>,
    /// What Core is started with beside its data, its key and its address.
    pub(crate) core_options: Vec<OsString>,
    /// The nodes that run, by name.
    pub(crate) nodes: BTreeMap<&'static str, Program>,
    /// What the engine may call images that only this demo has a use for.
    pub(crate) images: Vec<String>,
    /// Processes of the demo and of its sandboxes that must be gone at the end, with their start times.
    witnessed: Vec<(u32, String)>,
}

impl Stage {
    pub(crate) async fn set(keep: bool) -> anyhow::Result<Self> {
        let engine = Engine::connect().await?;
        let mut folder = tempfile::Builder::new().prefix("palisade-demo-").tempdir()?;
        folder.disable_cleanup(keep);
        Ok(Self {
            timeline: Timeline::start(),
            engine,
            folder,
            core: None,
            core_options: Vec::new(),
            nodes: BTreeMap::new(),
            images: Vec::new(),
            witnessed: Vec::new(),
        })
    }

    /// Makes a folder that only we can enter.
    pub(crate) fn make_private(&self, name: &str) -> anyhow::Result<()> {
        Ok(DirBuilder::new().mode(0o700).recursive(true).create(self.path(name))?)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that only we can read.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(content.as_ref())?;
        Ok(path)
    }

    /// Remembers a process that must be gone at the end.
    pub(crate) fn witness(&mut self, pid: u32) -> anyhow::Result<()> {
        let start =
            start_time(pid).with_context(|| format!("process {pid} is not visible: is the engine on this machine?"))?;
        self.witnessed.push((pid, start));
        Ok(())
    }

    /// Passes on what a chapter came to. When it failed, its logs are shown and everything of it is removed.
    pub(crate) async fn judge<T>(&mut self, told: anyhow::Result<T>) -> anyhow::Result<T> {
        if told.is_err() {
            self.show_logs();
            self.clear().await;
        }
        told
    }

    /// Ends all programs, removes what is not a sandbox, and shows from engine and kernel that nothing is left.
    ///
    /// Sandboxes are not removed here: when the story ended well, there are none.
    pub(crate) async fn prove_empty(mut self) -> anyhow::Result<()> {
        let outcome = self.try_prove_empty().await;
        if outcome.is_err() {
            self.show_logs();
            self.clear().await;
        }
        outcome
    }

    async fn try_prove_empty(&mut self) -> anyhow::Result<()> {
        let nodes = std::mem::take(&mut self.nodes);
        let what = if nodes.is_empty() { "Core with SIGTERM; it" } else { "the nodes and Core with SIGTERM; each" };
        for program in nodes.into_values().chain(self.core.take()) {
            program.stop().await?;
        }
        self.timeline.step(format_args!("stopped {what} ended cleanly"));
        self.engine.docker.remove_network(&self.engine.network).await?;
        for image in std::mem::take(&mut self.images) {
            if self.engine.has_image(&image).await? {
                self.engine.remove_image(&image).await?;
                self.timeline.step("removed the image that only this demo had a use for");
            }
        }
        let folder = self.folder.path().to_owned();
        std::fs::remove_dir_all(&folder)?;

        ensure!(self.engine.containers().await?.is_empty(), "the engine still has containers of the demo");
        ensure!(self.engine.volumes().await?.is_empty(), "the engine still has volumes of the demo");
        ensure!(!self.engine.has_network().await?, "the engine still has the demo's network");
        for (pid, start) in &self.witnessed {
            ensure!(start_time(*pid).as_ref() != Some(start), "process {pid} of the demo is still there");
        }
        ensure!(!folder.exists(), "{} is still there", folder.display());
        self.timeline.step(format_args!(
            "proved: no container, volume or network in the engine, {} processes gone, no file left",
            self.witnessed.len()
        ));
        Ok(())
    }

    /// The end of both logs, for a story that failed.
    pub(crate) fn show_logs(&self) {
        const LINES: usize = 25;
        let entries = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        let mut logs: Vec<_> = entries.map(|entry| entry.path()).collect();
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        for path in logs {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let lines: Vec<_> = text.lines().collect();
            warn(format_args!("--- the end of {}", path.display()));
            lines.iter().skip(lines.len().saturating_sub(LINES)).for_each(warn);
        }
    }

    /// Removes everything, whatever state it is in.
    pub(crate) async fn clear(&mut self) {
        for program in std::mem::take(&mut self.nodes).into_values().chain(self.core.take()) {
            if let Err(error) = kill(program).await {
                warn(format_args!("warning: {error:#}"));
            }
        }
        self.engine.clear().await;
        for image in std::mem::take(&mut self.images) {
            // One that was not loaded yet is no loss.
            if self.engine.has_image(&image).await.unwrap_or(false)
                && let Err(error) = self.engine.remove_image(&image).await
            {
                warn(format_args!("warning: {error:#}"));
            }
        }
        let folder: &Path = self.folder.path();
        if folder.exists()
            && let Err(error) = std::fs::remove_dir_all(folder)
        {
            warn(format_args!("warning: cannot remove {}: {error}", folder.display()));
        }
    }
}

/// Kills a program, and waits for the end of the processes that it had started. Gives those.
pub(crate) async fn kill(program: Program) -> anyhow::Result<Vec<u32>> {
    let started = children(program.pid());
    program.kill().await?;
    until("the end of what a killed program had started", CHILDREN_MAX, async || {
        Ok(started.iter().all(|pid| start_time(*pid).is_none()).then_some(()))
    })
    .await?;
    Ok(started)
}

/// The processes that this one has started and that are there.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter(|pid| field(*pid, PARENT).is_some_and(|found| found.parse() == Ok(parent))).collect()
}

/// When a process started, in the kernel's ticks; `None` when it is gone or only waits to be collected.
fn start_time(pid: u32) -> Option<String> {
    field(pid, START_TIME)
}

/// One field of what the kernel says about a process; `None` when it is gone or only waits to be collected.
fn field(pid: u32, number: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; the fields after it begin with the state, the third.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(number - 4).map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_is_known_by_its_start_time_until_it_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = super::start_time(child.id());
        assert!(start.as_ref().is_some_and(|ticks| ticks.parse::<u64>().is_ok()), "{start:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(super::start_time(child.id()), None);
    }
}
