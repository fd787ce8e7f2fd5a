//! Everything of the demo that exists outside this process, and its removal.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::engine::Engine;
use super::timeline::{Timeline, warn};
use crate::program::Program;

pub(crate) struct Stage {
    pub(crate) timeline: Timeline,
    pub(crate) engine: Engine,
    pub(crate) folder: TempDir,
    pub(crate) core: Option<Program>,
    pub(crate) node: Option<Program>,
    /// Processes of the demo and of its sandboxes that must be gone at the end, with their start times.
    witnessed: Vec<(u32, String)>,
}

impl Stage {
    pub(crate) async fn set(keep: bool) -> anyhow::Result<Self> {
        let engine = Engine::connect().await?;
        let mut folder = tempfile::Builder::new().prefix("palisade-demo-").tempdir()?;
        folder.disable_cleanup(keep);
        for private in ["node", "node/state"] {
            DirBuilder::new().mode(0o700).create(folder.path().join(private))?;
        }
        let (timeline, witnessed) = (Timeline::start(), Vec::new());
        Ok(Self { timeline, engine, folder, core: None, node: None, witnessed })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that only we can read.
    pub(crate) fn write(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(content.as_bytes())?;
        Ok(path)
    }

    /// Remembers a process that must be gone at the end.
    pub(crate) fn witness(&mut self, pid: u32) -> anyhow::Result<()> {
        let start =
            start_time(pid).with_context(|| format!("process {pid} is not visible: is the engine on this machine?"))?;
        self.witnessed.push((pid, start));
        Ok(())
    }

    /// Ends both programs, removes what is not a sandbox, and shows from engine and kernel that nothing is left.
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
        for program in [self.node.take(), self.core.take()].into_iter().flatten() {
            program.stop().await?;
        }
        self.timeline.step("stopped Core with SIGTERM; it ended cleanly");
        self.engine.docker.remove_network(&self.engine.network).await?;
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
        for name in ["core.log", "node.log"] {
            // A program that was not started yet has none.
            let Ok(text) = std::fs::read_to_string(self.path(name)) else { continue };
            let lines: Vec<_> = text.lines().collect();
            warn(format_args!("--- the end of {name}"));
            lines.iter().skip(lines.len().saturating_sub(LINES)).for_each(warn);
        }
    }

    /// Removes everything, whatever state it is in.
    pub(crate) async fn clear(&mut self) {
        for program in [self.node.take(), self.core.take()].into_iter().flatten() {
            if let Err(error) = program.kill().await {
                warn(format_args!("warning: {error:#}"));
            }
        }
        self.engine.clear().await;
        let folder: &Path = self.folder.path();
        if folder.exists()
            && let Err(error) = std::fs::remove_dir_all(folder)
        {
            warn(format_args!("warning: cannot remove {}: {error}", folder.display()));
        }
    }
}

/// When a process started, in the kernel's ticks; `None` when it is gone or only waits to be collected.
fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; the fields after it are the state (third) up to the start time (22nd).
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18).map(str::to_owned))?
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
