//! Stopping a command whose budget ended (field report E21).
//!
//! Closing the attachment does not stop the process. An exec's process leads a session of its own, so its session is
//! its identity inside the sandbox: the engine names the process by its number on the host, and the host's `/proc`
//! says which number that is inside. One more exec then asks every member of the session to end, waits, kills the
//! rest, and reports whether any is left. Nothing is wrapped around the command itself. A process that made a session
//! of its own is not reached; whatever the report says, the outcome stays unknown and the sandbox has to be reclaimed.

use std::time::Instant;

use bollard::exec::{CreateExecOptions, StartExecResults};
use futures_util::StreamExt;
use tracing::{info, warn};

use crate::container::USER;
use crate::engine::{Engine, EngineError, Wait};
use crate::limits::{EXIT_POLL_MAX, STOP_BUDGET};
use crate::provider::Docker;

/// A command's session, as its number inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session(u32);

/// Prints the members of session `$1` that are alive; then ends them, and exits 0 when none is left.
const SCRIPT: &str = r#"
session=$1
members() {
    for stat in /proc/[0-9]*/stat; do
        read -r line 2>/dev/null <"$stat" || continue
        set -- ${line##*) }
        [ "$4" = "$session" ] && [ "$1" != Z ] && [ "$1" != X ] || continue
        pid=${stat#/proc/}
        echo "${pid%/stat}"
    done
}
signal() {
    found=$(members)
    [ -n "$found" ] || exit 0
    kill "-$1" $found 2>/dev/null
    tries=$2
    while [ "$tries" -gt 0 ]; do
        [ -n "$(members)" ] || exit 0
        sleep 0.1 2>/dev/null || sleep 1
        tries=$((tries - 1))
    done
}
signal TERM 20
signal KILL 20
exit 1
"#;

/// Looks up where the exec runs; `None` when it does not, or when the host does not show it.
pub(crate) async fn locate(engine: &Engine, exec: &str, wait: Wait) -> Option<Session> {
    let pid = engine.exec(exec, wait).await.ok()?.pid.filter(|pid| *pid > 0)?;
    let status = tokio::fs::read_to_string(format!("/proc/{pid}/status")).await.ok()?;
    inner_pid(&status)
}

/// The process's number in its innermost namespace; `None` unless it is in one of its own.
fn inner_pid(status: &str) -> Option<Session> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut numbers = numbers.split_whitespace();
    let (_host, inner) = (numbers.next()?, numbers.next_back()?);
    inner.parse().ok().map(Session)
}

impl Docker {
    /// Ends the command of `exec` as far as possible, and says in the log what came of it.
    pub(crate) async fn stop(&self, container: &str, exec: &str, session: Option<Session>) {
        let wait = Wait::Until(Instant::now() + STOP_BUDGET);
        let session = match session {
            Some(session) => Some(session),
            None => locate(&self.engine, exec, wait).await,
        };
        let Some(Session(number)) = session else {
            warn!(container, "a command could not be located and may still run");
            return;
        };
        match self.end_session(container, number, wait).await {
            Ok(Some(0)) => info!(container, "a command was stopped"),
            Ok(code) => warn!(container, ?code, "a command could not be stopped and may still run"),
            Err(error) => warn!(container, %error, "a command could not be stopped and may still run"),
        }
    }

    async fn end_session(&self, container: &str, session: u32, wait: Wait) -> Result<Option<i64>, EngineError> {
        let options = CreateExecOptions {
            cmd: Some(vec!["/bin/sh".into(), "-c".into(), SCRIPT.into(), "stop".into(), session.to_string()]),
            user: Some(USER.to_owned()),
            working_dir: Some("/".to_owned()),
            attach_stdout: Some(true),
            ..Default::default()
        };
        let exec = self.engine.create_exec(container, options, wait).await?;
        let Wait::Until(deadline) = wait else { return Ok(None) };
        if let StartExecResults::Attached { mut output, input: _input } = self.engine.start_exec(&exec, wait).await? {
            let drained = async { while output.next().await.is_some_and(|part| part.is_ok()) {} };
            tokio::time::timeout_at(deadline.into(), drained).await.map_err(|_| EngineError::TimedOut)?;
        }
        loop {
            let ended = self.engine.exec(&exec, wait).await?;
            if ended.running == Some(false) {
                return Ok(ended.exit_code);
            }
            tokio::time::sleep(EXIT_POLL_MAX).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_inside_is_the_innermost_one() {
        assert_eq!(inner_pid("Name:\tsh\nNSpid:\t4711\t12\nNSsid:\t1\t2\n"), Some(Session(12)));
        assert_eq!(inner_pid("NSpid:\t4711\t30\t12\n"), Some(Session(12)));
        assert_eq!(inner_pid("NSpid:\t4711\n"), None, "a process of the host is never signalled by its number");
        assert_eq!(inner_pid("Name:\tsh\n"), None);
    }
}
