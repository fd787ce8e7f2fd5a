//! Stopping a command whose budget ended (field report E21).
//!
//! Closing the attachment does not stop the process. An exec's process leads a session of its own, so its session is
//! the command's identity: the engine names it by its number on the host, also after the process itself ended, and the
//! host's `/proc` shows its members, and the session's number inside the sandbox. One more exec then asks every member
//! to end, waits, kills the rest, and reports whether any is left. Nothing is wrapped around the command itself. A
//! process that made a session of its own is not reached; whatever the report says, the outcome stays unknown and the
//! sandbox has to be reclaimed.

use std::time::Instant;

use bollard::exec::{CreateExecOptions, StartExecResults};
use futures_util::StreamExt;
use tracing::{info, warn};

use crate::container::USER;
use crate::engine::{EngineError, Wait};
use crate::limits::{EXIT_POLL_MAX, STOP_BUDGET};
use crate::provider::Docker;

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

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    /// Nobody is left of it.
    Gone,
    /// Its number inside the sandbox.
    Inside(u32),
}

impl Docker {
    /// Ends the command of `exec` as far as possible, and says in the log what came of it.
    pub(crate) async fn stop(&self, container: &str, exec: &str) {
        let wait = Wait::Until(Instant::now() + STOP_BUDGET);
        let ended = match self.session(container, exec, wait).await {
            Ok(Session::Gone) => Ok(Some(0)),
            Ok(Session::Inside(number)) => self.end_session(container, number, wait).await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(Some(0)) => info!(container, "a command was stopped"),
            Ok(code) => warn!(container, ?code, "a command could not be stopped and may still run"),
            Err(error) => warn!(container, %error, "a command could not be stopped and may still run"),
        }
    }

    async fn session(&self, container: &str, exec: &str, wait: Wait) -> Result<Session, EngineError> {
        let state = self.engine.exec(exec, wait).await?;
        let Some(leader) = state.pid.filter(|pid| *pid > 0) else {
            return Ok(Session::Gone);
        };
        let container = container.to_owned();
        let search = tokio::task::spawn_blocking(move || find_session(leader, &container));
        match search.await.map_err(std::io::Error::other).flatten() {
            Ok(Session::Gone) if state.running == Some(true) => {
                Err(EngineError::Lost("the host does not show the command's processes".to_owned()))
            }
            found => found.map_err(|error| EngineError::Lost(error.to_string())),
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

/// Looks through the host's processes for a member of the session in that container.
fn find_session(leader: i64, container: &str) -> std::io::Result<Session> {
    for process in std::fs::read_dir("/proc")? {
        let process = process?.path();
        let read = |name: &str| std::fs::read_to_string(process.join(name)).unwrap_or_default();
        // A number that the host gave to somebody else meanwhile is not in the container's control group.
        if let Some(number) = inner_session(leader, &read("status"))
            && read("cgroup").contains(container)
        {
            return Ok(Session::Inside(number));
        }
    }
    Ok(Session::Gone)
}

/// The session's number in the process's innermost namespace, if the process belongs to the host's session `leader`
/// and has a namespace of its own.
fn inner_session(leader: i64, status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSsid:"))?;
    let mut numbers = numbers.split_whitespace();
    let (host, inner) = (numbers.next()?, numbers.next_back()?);
    (host.parse() == Ok(leader)).then(|| inner.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_known_by_its_number_on_the_host() {
        assert_eq!(inner_session(4711, "Name:\tsh\nNSpid:\t5000\t13\nNSsid:\t4711\t12\n"), Some(12));
        assert_eq!(inner_session(4711, "NSsid:\t4711\t30\t12\n"), Some(12));
        assert_eq!(inner_session(4712, "NSsid:\t4711\t12\n"), None);
        assert_eq!(inner_session(4711, "NSsid:\t4711\n"), None, "a session of the host is never signalled");
        assert_eq!(inner_session(4711, "Name:\tsh\n"), None);
    }
}
