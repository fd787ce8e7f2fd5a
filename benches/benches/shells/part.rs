//! One process of a measurement: it is told what to do on its standard input and says when it is done.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, ensure};

/// A running part; killed when it is dropped.
pub(crate) struct Part {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Part {
    /// Starts this executable as something else; gives its first line.
    pub(crate) fn start(arguments: &[&str]) -> anyhow::Result<(Self, String)> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", arguments[0]))?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("standard output is a pipe")?);
        let mut part = Self { child, orders, answers };
        let line = part.line()?;
        Ok((part, line))
    }

    pub(crate) fn tell(&mut self, order: &str) -> anyhow::Result<()> {
        let orders = self.orders.as_mut().context("the part was not ended")?;
        Ok(writeln!(orders, "{order}")?)
    }

    pub(crate) fn expect(&mut self, answer: &str) -> anyhow::Result<()> {
        let line = self.line()?;
        ensure!(line == answer, "expected {answer:?}, got {line:?}");
        Ok(())
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "a part ended early: is its reason above?");
        Ok(line.trim_end().to_owned())
    }

    /// Processor time of all threads so far, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> anyhow::Result<f64> {
        let mut nanoseconds = 0.0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let ran = stat.split_ascii_whitespace().next().context("the kernel counts the time of threads")?;
            nanoseconds += ran.parse::<f64>()?;
        }
        Ok(nanoseconds / 1e6)
    }

    /// The most memory that was ever resident, in bytes.
    pub(crate) fn peak_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("the kernel counts the peak")?;
        Ok(kib.parse::<u64>()? * 1024)
    }

    /// The end of its standard input ends a part.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        drop(self.orders.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "a part ended with {status}");
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // After `end` there is nobody left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says one line to whoever started this part.
pub(crate) fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// The orders of whoever started this part, until there are no more.
pub(crate) fn orders() -> tokio::io::Lines<tokio::io::BufReader<tokio::io::Stdin>> {
    use tokio::io::AsyncBufReadExt as _;
    tokio::io::BufReader::new(tokio::io::stdin()).lines()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
