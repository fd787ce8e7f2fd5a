//! Stopping a command whose budget ended (field report E21).
//!
//! Closing the attachment does not stop the process, and no engine call does. The host's `/proc` shows every process of
//! the sandbox, so the command's are told from the others there ([`of_command`]), whatever sessions they made and
//! whoever their parent is by now. One more exec asks them to end, and after a while kills them; whether any is left is
//! again read from the host. Nothing is wrapped around the command itself. Whatever comes of it, the outcome stays
//! unknown and the sandbox has to be reclaimed.

use std::time::Instant;

use bollard::exec::{CreateExecOptions, StartExecResults};
use futures_util::StreamExt;
use tracing::{info, warn};

use crate::container::USER;
use crate::engine::{EngineError, Wait};
use crate::limits::{END_GRACE, EXIT_POLL_MAX, KILL_GRACE, STOP_BUDGET};
use crate::process::{self, Process, of_command};
use crate::provider::Docker;

/// A command that was started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started<'a> {
    pub(crate) container: &'a str,
    pub(crate) exec: &'a str,
    /// The host's ticks before it was started.
    pub(crate) ticks: u64,
}

/// Why a command may still run.
#[derive(Debug, thiserror::Error)]
enum NotStopped {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the host's processes cannot be read: {0}")]
    Host(#[from] std::io::Error),
    #[error("the host does not show the command's processes")]
    NotShown,
    #[error("{0} processes of it do not end")]
    Left(usize),
}

impl Docker {
    /// Ends the command as far as possible, and says in the log what came of it.
    pub(crate) async fn stop(&self, started: Started<'_>) {
        let Started { container, .. } = started;
        let deadline = Instant::now() + STOP_BUDGET;
        match self.try_stop(started, Wait::Until(deadline), deadline).await {
            Ok(()) => info!(container, "a command was stopped"),
            Err(error) => warn!(container, %error, "a command could not be stopped and may still run"),
        }
    }

    async fn try_stop(&self, started: Started<'_>, wait: Wait, deadline: Instant) -> Result<(), NotStopped> {
        let state = self.engine.exec(started.exec, wait).await?;
        let Some(leader) = state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0) else {
            return Ok(());
        };
        let mut left = look(started, leader).await?;
        if left.is_empty() && state.running == Some(true) {
            return Err(NotStopped::NotShown);
        }
        // Whoever is killed may have forked meanwhile, so that is done twice.
        for (signal, grace) in [("-TERM", END_GRACE), ("-KILL", KILL_GRACE), ("-KILL", KILL_GRACE)] {
            if left.is_empty() {
                return Ok(());
            }
            self.signal(started.container, signal, &left, deadline).await?;
            let patience = Instant::now() + grace;
            left = look(started, leader).await?;
            while !left.is_empty() && Instant::now() < patience.min(deadline) {
                tokio::time::sleep(EXIT_POLL_MAX).await;
                left = look(started, leader).await?;
            }
        }
        if left.is_empty() { Ok(()) } else { Err(NotStopped::Left(left.len())) }
    }

    /// Sends a signal from within the sandbox, as its account: nothing outside can be reached by mistake.
    async fn signal(
        &self,
        container: &str,
        signal: &str,
        processes: &[u32],
        deadline: Instant,
    ) -> Result<(), EngineError> {
        let wait = Wait::Until(deadline);
        let script = r#"kill "$@" 2>/dev/null"#;
        let mut command: Vec<String> = ["/bin/sh", "-c", script, "stop", signal].map(str::to_owned).into();
        command.extend(processes.iter().map(u32::to_string));
        let options = CreateExecOptions {
            cmd: Some(command),
            user: Some(USER.to_owned()),
            working_dir: Some("/".to_owned()),
            attach_stdout: Some(true),
            ..Default::default()
        };
        let exec = self.engine.create_exec(container, options, wait).await?;
        if let StartExecResults::Attached { mut output, input: _input } = self.engine.start_exec(&exec, wait).await? {
            let drained = async { while output.next().await.is_some_and(|part| part.is_ok()) {} };
            tokio::time::timeout_at(deadline.into(), drained).await.map_err(|_| EngineError::TimedOut)?;
        }
        Ok(())
    }
}

/// The numbers inside the sandbox of the command's processes that are alive.
async fn look(started: Started<'_>, leader: u32) -> Result<Vec<u32>, std::io::Error> {
    let (container, ticks) = (started.container.to_owned(), started.ticks);
    let search = tokio::task::spawn_blocking(move || {
        process::of_container(&container).map(|processes: Vec<Process>| of_command(&processes, leader, ticks))
    });
    search.await.map_err(std::io::Error::other)?
}
