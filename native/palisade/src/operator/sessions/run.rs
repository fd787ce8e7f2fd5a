//! `palisade sessions run`: one command in a sandbox of its own.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use palisade_core::hosted::view::{Turn, TurnStatus};
use palisade_core::limits::STDIN_MAX_BYTES;
use palisade_core::units::Id;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::args::SessionsRun;
use super::project::{Project, Trouble};
use super::{NOT_RUN, UNKNOWN};
use crate::key;
use crate::operator::http::Http;

/// How often a command is looked at.
const POLL: Duration = Duration::from_millis(250);
/// How long Core is asked again when it does not answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a command may wait for its node (decision 40), with room for its end.
const WAIT_MAX: Duration = Duration::from_secs(6 * 60);
/// How long a cancelled command is waited for.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

/// What is known of the command in the end.
enum End {
    /// It ended, or certainly never ran.
    Known(Box<Turn>),
    /// Nobody can say, for this reason.
    Unknown(String),
}

pub(super) async fn run(options: &SessionsRun) -> anyhow::Result<ExitCode> {
    let key = key::read(&options.project_key_file)?;
    let project = Project { http: Http::new(&options.core_url)?, key, patience: PATIENCE };
    let message = message(options)?;
    let session = match project.create(Id::from_random(rand::random())).await {
        Ok(session) => session.id,
        Err(trouble) => return Ok(not_run(&format!("no session was made: {}", trouble.text()))),
    };
    let (end, code) = match project.command(session, Id::from_random(rand::random()), &message).await {
        Ok(turn) => {
            let end = follow(&project, session, turn, Duration::from_millis(options.timeout_ms)).await?;
            let code = tell(options, session, &end)?;
            (Some(end), code)
        }
        Err(Trouble::Refused(text)) => (None, not_run(&text)),
        Err(Trouble::Silence(text)) => (None, unknown(&text)),
    };
    // What may still run is left to be looked at, and what has ended needs its session no more.
    let settled = matches!(end, Some(End::Known(_))) || code == ExitCode::from(NOT_RUN);
    leave(&project, session, options.keep || !settled).await;
    Ok(code)
}

fn message(options: &SessionsRun) -> anyhow::Result<Value> {
    let mut command = json!({ "args": options.command });
    if options.stdin {
        let mut input = Vec::new();
        let limit = STDIN_MAX_BYTES as u64 + 1;
        std::io::stdin().take(limit).read_to_end(&mut input).context("cannot read standard input")?;
        anyhow::ensure!(input.len() as u64 != limit, "standard input is longer than {STDIN_MAX_BYTES} bytes");
        command["stdin"] = base64_simd::STANDARD.encode_to_string(&input).into();
    }
    if let Some(directory) = &options.directory {
        command["directory"] = directory.as_str().into();
    }
    Ok(json!({ "type": "message", "command": command, "timeout_ms": options.timeout_ms }))
}

/// Looks until the command has ended. An interrupt asks Core to give it up.
async fn follow(project: &Project, session: Id, mut turn: Turn, budget: Duration) -> anyhow::Result<End> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut until = Instant::now() + WAIT_MAX + budget;
    let mut silence = None;
    while !ended(&turn) {
        if Instant::now() >= until {
            let reason = silence.unwrap_or_else(|| "the command did not end in time".to_owned());
            return Ok(End::Unknown(reason));
        }
        if pause(&mut interrupt, &mut terminate).await {
            eprintln!("interrupted: core is asked to give the command up");
            // Whether it heard is seen at the next look.
            drop(project.cancel(session).await);
            until = until.min(Instant::now() + CANCEL_WAIT);
        }
        match project.turn(session, turn.id).await {
            Ok(seen) => turn = seen,
            Err(Trouble::Silence(text)) => silence = Some(text),
            Err(Trouble::Refused(text)) => return Ok(End::Unknown(text)),
        }
    }
    Ok(End::Known(Box::new(turn)))
}

/// Whether somebody interrupted.
async fn pause(interrupt: &mut Signal, terminate: &mut Signal) -> bool {
    tokio::select! {
        () = sleep(POLL) => false,
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
    }
}

fn ended(turn: &Turn) -> bool {
    match turn.status {
        TurnStatus::Queued | TurnStatus::InProgress | TurnStatus::Waiting => false,
        TurnStatus::Completed | TurnStatus::Failed | TurnStatus::Cancelled => true,
    }
}

/// Prints what came of the command, and gives the exit code that says so.
fn tell(options: &SessionsRun, session: Id, end: &End) -> anyhow::Result<ExitCode> {
    let turn = match end {
        End::Known(turn) => Some(turn.as_ref()),
        End::Unknown(_) => None,
    };
    if options.json {
        let told = json!({ "session_id": session, "turn": turn, "outcome": outcome(turn) });
        crate::print(format!("{told}\n").as_bytes())?;
    } else if let Some(turn) = turn {
        crate::print(turn.stdout.as_deref().unwrap_or_default().as_bytes())?;
        // Whoever reads this may be gone; the exit code still tells.
        let _ = std::io::stderr().write_all(turn.stderr.as_deref().unwrap_or_default().as_bytes());
    }
    Ok(match (end, outcome(turn)) {
        (End::Known(turn), "completed") => exit_code(turn.exit_code.unwrap_or(0)),
        (End::Known(turn), "not_run") => not_run(&reason(turn)),
        (End::Known(turn), _) => unknown(&reason(turn)),
        (End::Unknown(reason), _) => unknown(reason),
    })
}

/// `completed`, `not_run` or `unknown`.
fn outcome(turn: Option<&Turn>) -> &'static str {
    let Some(turn) = turn else { return "unknown" };
    let unconfirmed = turn.error.as_ref().is_some_and(|error| error.code.ends_with("unconfirmed"));
    match turn.status {
        TurnStatus::Completed => "completed",
        TurnStatus::Failed if !unconfirmed => "not_run",
        // One that was never handed over did not run.
        TurnStatus::Cancelled if turn.started_at.is_none() => "not_run",
        TurnStatus::Failed
        | TurnStatus::Cancelled
        | TurnStatus::Queued
        | TurnStatus::InProgress
        | TurnStatus::Waiting => "unknown",
    }
}

fn reason(turn: &Turn) -> String {
    turn.error.as_ref().map_or_else(|| "it was cancelled".to_owned(), |error| error.code.clone())
}

fn exit_code(code: i64) -> ExitCode {
    u8::try_from(code).map_or_else(
        |_| {
            eprintln!("note: the command ended with {code}, which is no exit code of this system; 255 stands for it");
            ExitCode::from(255)
        },
        ExitCode::from,
    )
}

fn not_run(reason: &str) -> ExitCode {
    eprintln!("error: the command did not run: {reason}");
    ExitCode::from(NOT_RUN)
}

fn unknown(reason: &str) -> ExitCode {
    eprintln!("error: nobody knows what came of the command, which may have run, once: {reason}");
    ExitCode::from(UNKNOWN)
}

/// Archives the session, or names it.
async fn leave(project: &Project, session: Id, keep: bool) {
    if keep {
        eprintln!("session {session} is kept");
    } else if let Err(trouble) = project.end(session).await {
        eprintln!("warning: session {session} is not archived: {}", trouble.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(status: &str, started: bool, code: Option<&str>) -> Turn {
        let mut turn = json!({
            "id": Id::from_random([1; 16]), "object": "agent.turn", "session_id": Id::from_random([2; 16]),
            "status": status, "created_at": "2026-01-01T00:00:00Z", "started_at": null, "completed_at": null,
            "timeout_ms": 1,
        });
        if started {
            turn["started_at"] = "2026-01-01T00:00:01Z".into();
        }
        if let Some(code) = code {
            turn["error"] = json!({ "code": code });
        }
        serde_json::from_value(turn).unwrap()
    }

    #[test]
    fn only_what_is_certain_is_said_to_be() {
        for (status, started, code, expected) in [
            ("completed", true, None, "completed"),
            ("failed", true, Some("command_unconfirmed"), "unknown"),
            ("failed", true, Some("unconfirmed"), "unknown"),
            ("failed", false, Some("node_unavailable"), "not_run"),
            ("cancelled", false, None, "not_run"),
            ("cancelled", true, None, "unknown"),
            ("in_progress", true, None, "unknown"),
        ] {
            assert_eq!(outcome(Some(&turn(status, started, code))), expected, "{status} {code:?}");
        }
        assert_eq!(outcome(None), "unknown");
    }
}
