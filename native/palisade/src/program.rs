//! Our own commands as separate processes.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// How long a process may take to end after it was asked to.
const STOP_MAX: Duration = Duration::from_secs(15);

pub(crate) struct Program {
    name: &'static str,
    child: Child,
    pid: u32,
}

impl Program {
    /// Starts `palisade` with arguments; its log is appended to a file.
    ///
    /// The process has a group of its own, so that Ctrl-C reaches only us, who then end it in order.
    pub(crate) fn start<A: AsRef<OsStr>>(name: &'static str, arguments: &[A], log: &Path) -> anyhow::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().context("a process that was not waited for has an id")?;
        Ok(Self { name, child, pid })
    }

    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// The first line on standard output.
    pub(crate) async fn first_line(&mut self) -> anyhow::Result<String> {
        let out = self.child.stdout.take().context("standard output is read once")?;
        let line = BufReader::new(out).lines().next_line().await?;
        line.with_context(|| format!("{} ended without a word", self.name))
    }

    /// Waits for the end of a short command and gives its output.
    pub(crate) async fn output(self) -> anyhow::Result<String> {
        let (name, output) = (self.name, self.child.wait_with_output().await?);
        ensure!(output.status.success(), "{name} failed: {}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// SIGKILL: the process gets no chance to do anything.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.name))
    }

    /// Waits for an end that the process comes to by itself; gives its exit code.
    pub(crate) async fn ended(mut self, limit: Duration) -> anyhow::Result<Option<i32>> {
        let Ok(status) = tokio::time::timeout(limit, self.child.wait()).await else {
            self.child.kill().await?;
            bail!("{} did not end by itself within {} s", self.name, limit.as_secs());
        };
        Ok(status?.code())
    }

    /// SIGTERM, and a clean end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid)?);
        kill(pid, Signal::SIGTERM).with_context(|| format!("cannot stop {}", self.name))?;
        let Ok(status) = tokio::time::timeout(STOP_MAX, self.child.wait()).await else {
            self.child.kill().await?;
            bail!("{} did not end within {} s after SIGTERM", self.name, STOP_MAX.as_secs());
        };
        let status: ExitStatus = status?;
        ensure!(status.success(), "{} ended with {status} after SIGTERM: expected success", self.name);
        Ok(())
    }
}
