//! The `palisade` executable: arguments in, exit code out. Everything it does is done by the crates below it.
//!
//! Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 78 rejected by Core for good (a service manager must not
//! restart).

#![forbid(unsafe_code)]

mod cli;
mod control;
mod demo;
mod examine;
mod findings;
mod fleet;
mod frame;
mod generation;
mod key;
mod logs;
mod operator;
mod program;
mod release;
mod serve;
mod sim;
mod spec;
mod usage;
mod watchdog;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Cli, Command, FrameCommand, NodeCommand, SpecCommand};
use crate::usage::Usage;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Whoever reads this may be gone; the exit code still tells.
            let _ = writeln!(std::io::stderr(), "error: {}", explain(&error));
            if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(Cli { command, log_format }: Cli) -> anyhow::Result<ExitCode> {
    // The logs of a Core are part of its configuration.
    if !matches!(command, Command::Core { .. }) {
        let default = if matches!(command, Command::Node { .. }) { "info" } else { "warn" };
        logs::start(&logs::wanted(default), logs::format(log_format)?);
    }
    match command {
        Command::Core { command } => control::run(&command, log_format),
        Command::Node { command } => node(command),
        Command::Generation { command } => Ok(generation::run(&command)),
        Command::Operator(command) => operator::run(&command),
        Command::Spec { command: SpecCommand::Digest(options) } => spec::digest(&options),
        Command::Frame { command: FrameCommand::Check(options) } => frame::check(&options),
        Command::Release { command } => release::run(&command),
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
        NodeCommand::Generations(options) => generation::list(&options),
        NodeCommand::Doctor(options) => examine::run(&options),
        NodeCommand::ProtocolVersion => print(format!("{}\n", palisade_core::limits::PROTOCOL_VERSION).as_bytes()),
    }
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
