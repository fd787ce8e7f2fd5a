//! `palisade generation prepare|collect`, and `palisade node generations`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use palisade_core::units::{Digest, Generation, Id};
use palisade_node::{Action, Assigned};

#[derive(Debug, Subcommand)]
pub(crate) enum GenerationCommand {
    /// Bring a generation to this host, or repair it
    Prepare(Which),
    /// Take a generation from this host that Core does not need any more
    Collect(Which),
}

#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Root of the installation: the folder of its provider.json
    #[arg(long, value_name = "DIR", value_parser = crate::cli::absolute)]
    root: PathBuf,
    /// Installation that the node belongs to
    #[arg(long, value_name = "UUID", value_parser = installation)]
    installation: Id,
    /// Which generation
    #[arg(long, value_name = "N", value_parser = number)]
    generation: Generation,
    /// SHA-256 of its specification
    #[arg(long, value_name = "HEX", value_parser = digest)]
    specification_digest: Digest,
}

#[derive(Debug, Args)]
pub(crate) struct Held {
    /// Root of the installation: the folder of its provider.json
    #[arg(long, value_name = "DIR", value_parser = crate::cli::absolute)]
    root: PathBuf,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// What the host holds.
pub(crate) fn list(options: &Held) -> anyhow::Result<ExitCode> {
    let held = palisade_node::generations(&options.root)?;
    let text = if options.json {
        serde_json::to_string(&held)?
    } else {
        held.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    crate::print(format!("{text}\n").as_bytes())
}

pub(crate) fn run(command: &GenerationCommand) -> ExitCode {
    let (action, which) = match command {
        GenerationCommand::Prepare(which) => (Action::Prepare, which),
        GenerationCommand::Collect(which) => (Action::Collect, which),
    };
    ExitCode::from(palisade_node::perform(&Assigned {
        root: which.root.clone(),
        installation: which.installation,
        action,
        generation: which.generation,
        specification_digest: which.specification_digest,
    }))
}

fn installation(text: &str) -> Result<Id, String> {
    Id::parse(text).map_err(|_| "expected a lower-case UUID".to_owned())
}

fn number(text: &str) -> Result<Generation, String> {
    text.parse().ok().and_then(Generation::new).ok_or_else(|| "expected a whole number from 1 to 2^63 - 1".to_owned())
}

fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).map_err(|_| "expected 64 lower-case hexadecimal characters".to_owned())
}
