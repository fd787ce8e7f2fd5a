//! `palisade core`: serving, and what an operator does to a Core on its own host.

mod args;
mod config;
mod doctor;
mod file;
mod keys;
mod settings;
mod show;
mod status;
mod store;

use std::process::ExitCode;

pub(crate) use args::CoreCommand;
use args::ServeArgs;
use config::Config;

use crate::logs::{self, Format};
use crate::serve::block_on;
use crate::watchdog::watched;

/// Runs one command. `format` is what the command line says of the logs.
pub(crate) fn run(command: &CoreCommand, format: Option<Format>) -> anyhow::Result<ExitCode> {
    if let CoreCommand::Serve(options) = command {
        return serve(&gather(options, format)?);
    }
    logs::start(&logs::wanted("warn"), logs::format(format)?);
    block_on(async {
        match command {
            CoreCommand::Serve(options) => serve(&gather(options, format)?),
            CoreCommand::Migrate(options) => store::bring_up_to_date(options).await,
            CoreCommand::Keys(command) => keys::run(command).await,
            CoreCommand::Status(options) => status::run(options).await,
            CoreCommand::Doctor(options) => doctor::run(&gather(&options.settings, format)?, options.json).await,
            CoreCommand::Backup(options) => store::back_up(options).await,
            CoreCommand::Restore(options) => store::restore_backup(options).await,
            CoreCommand::Config(options) => show::run(&gather(&options.settings, format)?, options.json),
        }
    })
}

fn gather(options: &ServeArgs, format: Option<Format>) -> anyhow::Result<Config> {
    let mut given = options.given();
    given.push(("log_format", format.map(|format| format.name().to_owned())));
    Config::gather(given, options.store.config.as_deref(), environment)
}

/// A variable that is no text counts as absent.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Serves until it is asked to stop.
fn serve(config: &Config) -> anyhow::Result<ExitCode> {
    logs::start(&config.text("log").unwrap_or_default(), config.log_format()?);
    let options = config.options()?;
    block_on(async { Ok(watched(palisade_control::serve(options)).await?) })?;
    Ok(ExitCode::SUCCESS)
}
