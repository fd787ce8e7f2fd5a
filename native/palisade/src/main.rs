//! The `palisade` executable: arguments in, exit code out. Everything it does is done by the crates below it.
//!
//! Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 78 rejected by Core for good (a service manager must not
//! restart).

#![forbid(unsafe_code)]

mod cli;
mod demo;
mod fleet;
mod frame;
mod key;
mod operator;
mod program;
mod release;
mod serve;
mod sim;
mod spec;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};
use tracing::Level;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{Cli, Command, CoreCommand, FrameCommand, NodeCommand, ReleaseCommand, SpecCommand};

fn main() -> ExitCode {
    let command = Cli::parse().command;
    log(&command);
    match run(command) {
        Ok(code) => code,
        Err(error) => {
            // Whoever reads this may be gone; the exit code still tells.
            let _ = writeln!(std::io::stderr(), "error: {}", explain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Core { command: CoreCommand::Serve(options) } => serve::core(options),
        Command::Node { command } => node(command),
        Command::Operator(command) => operator::run(&command),
        Command::Spec { command: SpecCommand::Digest(options) } => spec::digest(&options),
        Command::Frame { command: FrameCommand::Check(options) } => frame::check(&options),
        Command::Release { command: ReleaseCommand::Build(options) } => release::build(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Fleet(options) => fleet::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Completion { shell } => {
            // Into memory first: the generator would panic when its writer fails.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "palisade", &mut script);
            print(&script)
        }
    }
}

/// The whole chain of causes; one that a message already quotes is not said again.
fn explain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        said if said.contains(&cause) => said.to_owned(),
        said => format!("{said}: {cause}"),
    })
}

/// Writes the result of a command. What cannot be written is an error, never a panic.
pub(crate) fn print(result: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    out.write_all(result).and_then(|()| out.flush()).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn node(command: NodeCommand) -> anyhow::Result<ExitCode> {
    match command {
        NodeCommand::Register(options) => serve::register(options),
        NodeCommand::Run(options) => serve::node(options),
        NodeCommand::Status(options) => serve::status(&options),
        NodeCommand::ProtocolVersion => print(format!("{}\n", palisade_core::limits::PROTOCOL_VERSION).as_bytes()),
    }
}

/// Logs go to standard error, so that standard output stays readable by programs.
///
/// Other crates are heard from `info` up, whatever the operator asks for: below that, those for HTTP, WebSocket and the
/// Docker engine log what they carry, which is credentials, standard input and output.
fn log(command: &Command) {
    let quiet = !matches!(command, Command::Core { .. } | Command::Node { .. });
    let default = if quiet { "warn" } else { "info" };
    let wanted = std::env::var("PALISADE_LOG").unwrap_or_else(|_| default.to_owned());
    let filter = EnvFilter::try_new(&wanted).unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "warning: PALISADE_LOG is not understood, {default} is used: {error}");
        EnvFilter::new(default)
    });
    let discreet = filter_fn(|event| *event.level() <= Level::INFO || event.target().starts_with("palisade"));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(filter).with(lines.with_filter(discreet)).init();
}

#[cfg(test)]
mod tests {
    use super::explain;

    #[test]
    fn a_cause_that_is_quoted_already_is_said_once() {
        let error = anyhow::anyhow!("refused").context("cannot listen: refused").context("core ended");
        assert_eq!(explain(&error), "core ended: cannot listen: refused");
    }
}
