//! Commands: byte-exact output, all of the input, one exit code, or an unknown outcome (node-host §7.5).

use std::borrow::Cow;
use std::pin::Pin;
use std::time::Instant;

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::ExecInspectResponse;
use futures_util::{Stream, StreamExt};
use palisade_core::limits::{STDIN_MAX_BYTES, STREAM_MAX_BYTES};
use palisade_core::outcome::Failure;
use palisade_core::wire::payload::{Command, CommandResult};
use palisade_provider::Context;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tracing::warn;

use crate::container::{USER, is_running};
use crate::engine::{EngineError, Wait};
use crate::limits::{
    ARGUMENT_COST_BYTES, ARGUMENT_MAX_BYTES, ARGUMENTS_MAX_BYTES, EXIT_POLL_MAX, EXIT_POLL_MIN, INPUT_TAIL,
    STDIN_CHUNK_BYTES,
};
use crate::process;
use crate::provider::Docker;
use crate::stop::Started;

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;
type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// Both streams of a command, as far as they were read.
#[derive(Default)]
struct Streams {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Why a command's streams did not end well.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the output was cut off")]
    Cut,
    #[error("a stream of output is longer than {STREAM_MAX_BYTES} bytes")]
    TooLong,
    #[error("the command did not take all of its input")]
    Input,
    #[error("the budget is used up")]
    Deadline,
    #[error("the engine does not say how the command ended")]
    NoExit,
}

impl Docker {
    /// Runs a command in the sandbox, and stops it when its time is over or its output too long.
    ///
    /// # Errors
    /// `invalid` for a malformed command and for one that could not be started; `ownership`, and `not_found` when there
    /// is no container that runs, before anything ran; else `command_unconfirmed`.
    pub(crate) async fn run_command(
        &self,
        context: Context,
        command: Command<'static>,
    ) -> Result<CommandResult<'static>, Failure> {
        check(&command)?;
        let wait = Wait::Until(context.deadline);
        let container = self.owned_container(context.reference, wait).await?.filter(is_running);
        let container = container.ok_or(Failure::NotFound)?.id.unwrap_or_default();
        let Command { args, directory, stdin } = command;
        let options = CreateExecOptions {
            cmd: Some(args.into_iter().map(Cow::into_owned).collect()),
            user: Some(USER.to_owned()),
            working_dir: (!directory.is_empty()).then(|| directory.into_owned()),
            attach_stdin: Some(stdin.is_some()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..Default::default()
        };
        let exec = self.engine.create_exec(&container, options, wait).await.map_err(|error| match error {
            // The engine's words for a container that stopped or went away since the look at it.
            EngineError::Refused { code: 404 | 409, .. } => Failure::NotFound,
            other => {
                warn!(error = other.without_words(), "a command could not be prepared");
                Failure::Unconfirmed
            }
        })?;
        self.run_exec(context, &container, &exec, stdin).await
    }

    async fn run_exec(
        &self,
        context: Context,
        container: &str,
        exec: &str,
        stdin: Option<Cow<'static, [u8]>>,
    ) -> Result<CommandResult<'static>, Failure> {
        let this = Started { container, exec, ticks: process::ticks().unwrap_or(u64::MAX) };
        let started = self.engine.start_exec(exec, Wait::Until(context.deadline)).await;
        let (output, input) = match started {
            Ok(StartExecResults::Attached { output, input }) => (output, input),
            Ok(StartExecResults::Detached) => return Err(Failure::CommandUnconfirmed),
            Err(error) => return Err(self.not_started(exec, error, context.deadline).await),
        };
        let work = async {
            let streams = transfer(output, input, stdin).await?;
            Ok((streams, self.exit(exec, context.deadline).await?))
        };
        let ended = tokio::time::timeout_at(context.deadline.into(), work).await.unwrap_or(Err(Broken::Deadline));
        let broken = match ended {
            Ok((streams, exit)) => match settle(streams, &exit) {
                Ok(result) => return result,
                Err(broken) => broken,
            },
            Err(broken) => broken,
        };
        warn!(%broken, container, "a command's outcome is unknown");
        self.stop(this).await;
        Err(Failure::CommandUnconfirmed)
    }

    /// The engine reports the end of the output and the exit separately: asks until both are known.
    async fn exit(&self, exec: &str, deadline: Instant) -> Result<ExecInspectResponse, Broken> {
        let mut pause = EXIT_POLL_MIN;
        loop {
            let exec = self.engine.exec(exec, Wait::Until(deadline)).await.map_err(|error| {
                warn!(%error, "a command's exit could not be read");
                Broken::NoExit
            })?;
            if exec.running == Some(false) {
                return Ok(exec);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(EXIT_POLL_MAX);
        }
    }

    /// Tells a command that could not be started from one whose start was not answered.
    async fn not_started(&self, exec: &str, error: EngineError, deadline: Instant) -> Failure {
        warn!(error = error.without_words(), "a command was not attached");
        let refused = matches!(error, EngineError::Refused { .. });
        match self.engine.exec(exec, Wait::Until(deadline)).await {
            Ok(exec) if refused && never_ran(&exec) => Failure::Invalid,
            Ok(_) | Err(_) => Failure::CommandUnconfirmed,
        }
    }
}

fn check(command: &Command<'_>) -> Result<(), Failure> {
    let Command { args, directory, stdin } = command;
    let named = args.first().is_some_and(|program| !program.is_empty());
    let texts = args.iter().chain([directory]).all(|text| !text.contains('\0'));
    let placed = directory.is_empty() || directory.starts_with('/');
    let bounded = stdin.as_ref().is_none_or(|stdin| stdin.len() <= STDIN_MAX_BYTES);
    if named && texts && placed && bounded && kernel_takes(args) { Ok(()) } else { Err(Failure::Invalid) }
}

/// Whether the kernel starts a program with these arguments: it is certain now that a refused command never ran.
fn kernel_takes(args: &[Cow<'_, str>]) -> bool {
    args.iter().all(|text| text.len() <= ARGUMENT_MAX_BYTES)
        && args.iter().map(|text| text.len() + ARGUMENT_COST_BYTES).sum::<usize>() <= ARGUMENTS_MAX_BYTES
}

/// Writes all of the input and reads the output to its end, at the same time.
async fn transfer(output: Output, mut input: Input, stdin: Option<Cow<'static, [u8]>>) -> Result<Streams, Broken> {
    let write = async {
        if let Some(stdin) = stdin {
            for chunk in stdin.chunks(STDIN_CHUNK_BYTES) {
                input.write_all(chunk).await.map_err(|_| Broken::Input)?;
            }
        }
        // Half-closes, so that the command sees the end of its input while its output is still read.
        input.shutdown().await.map_err(|_| Broken::Input)
    };
    tokio::pin!(write);
    let read = read(output);
    tokio::pin!(read);
    let streams = tokio::select! {
        streams = &mut read => streams?,
        written = &mut write => {
            written?;
            return read.await;
        }
    };
    // The output ended first: what is left of the input is either on its way or will never be taken.
    tokio::time::timeout(INPUT_TAIL, write).await.unwrap_or(Err(Broken::Input))?;
    Ok(streams)
}

async fn read(mut output: Output) -> Result<Streams, Broken> {
    let mut streams = Streams::default();
    while let Some(part) = output.next().await {
        let (stream, part) = match part {
            Ok(LogOutput::StdOut { message }) => (&mut streams.stdout, message),
            Ok(LogOutput::StdErr { message }) => (&mut streams.stderr, message),
            Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. }) | Err(_) => return Err(Broken::Cut),
        };
        if stream.len() + part.len() > STREAM_MAX_BYTES {
            return Err(Broken::TooLong);
        }
        stream.extend_from_slice(&part);
    }
    Ok(streams)
}

/// The outcome of a command that ended; `Err` when it is unknown after all.
fn settle(streams: Streams, exec: &ExecInspectResponse) -> Result<Result<CommandResult<'static>, Failure>, Broken> {
    let exit_code = exec.exit_code.ok_or(Broken::NoExit)?;
    if never_ran(exec) {
        // The engine's own message stands where the output would; it is not the command's.
        return Ok(Err(Failure::Invalid));
    }
    Ok(Ok(CommandResult { stdout: text(streams.stdout)?, stderr: text(streams.stderr)?, exit_code }))
}

/// An exec that ended without ever having had a process: it could not be started, whatever its exit code says.
fn never_ran(exec: &ExecInspectResponse) -> bool {
    exec.running == Some(false) && exec.exit_code.is_some() && matches!(exec.pid, None | Some(0))
}

/// Replacing bytes that are no UTF-8 makes a text longer; the limit holds for what travels.
fn text(bytes: Vec<u8>) -> Result<Cow<'static, str>, Broken> {
    let text =
        String::from_utf8(bytes).unwrap_or_else(|invalid| String::from_utf8_lossy(invalid.as_bytes()).into_owned());
    if text.len() > STREAM_MAX_BYTES { Err(Broken::TooLong) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(args: &[&'static str], directory: &'static str, stdin: usize) -> Command<'static> {
        let args = args.iter().map(|text| Cow::Borrowed(*text)).collect();
        Command { args, directory: directory.into(), stdin: Some(vec![0; stdin].into()) }
    }

    #[test]
    fn malformed_commands_are_refused() {
        for (args, directory, stdin) in [
            (&[][..], "", 0),
            (&[""], "", 0),
            (&["a\0b"], "", 0),
            (&["a", "b\0"], "", 0),
            (&["a"], "relative", 0),
            (&["a"], "/\0", 0),
            (&["a"], "", STDIN_MAX_BYTES + 1),
        ] {
            assert_eq!(check(&command(args, directory, stdin)), Err(Failure::Invalid), "{args:?} {directory:?}");
        }
        assert_eq!(check(&command(&["a", ""], "/", STDIN_MAX_BYTES)), Ok(()));
    }

    fn exec(exit_code: Option<i64>, pid: i64) -> ExecInspectResponse {
        ExecInspectResponse { running: Some(false), exit_code, pid: Some(pid), ..Default::default() }
    }

    /// E19. Whether a command could be started does not depend on its exit code.
    #[test]
    fn command_that_could_not_be_started_is_told_from_one_that_exited() {
        for code in [0, 126, 127] {
            assert_eq!(settle(Streams::default(), &exec(Some(code), 0)).unwrap(), Err(Failure::Invalid));
            assert_eq!(settle(Streams::default(), &exec(Some(code), 7)).unwrap().unwrap().exit_code, code);
        }
        assert!(matches!(settle(Streams::default(), &exec(None, 7)), Err(Broken::NoExit)));
    }

    #[test]
    fn limit_holds_after_invalid_bytes_were_replaced() {
        assert_eq!(text(vec![0xff; 2]).unwrap(), "\u{fffd}\u{fffd}");
        assert!(text(vec![0xff; STREAM_MAX_BYTES / 3]).is_ok());
        assert!(matches!(text(vec![0xff; STREAM_MAX_BYTES / 3 + 1]), Err(Broken::TooLong)));
    }
}
