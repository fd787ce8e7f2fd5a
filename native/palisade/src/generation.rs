//! `palisade generation prepare|collect`, and `palisade node generations`.
//!
//! A preparer is the account that owns the root of the installation, and nobody else: every file it looks at must belong to
//! its own account, so that root started by mistake in the installation of another account is refused before its first
//! step. Node-host §3.1 goes further and forbids root altogether. That rule belongs to the installer, which makes the
//! account, gives it the root of the installation and starts the node as it; a node that an operator starts as root by hand
//! has nothing else to be: its folder is root's with mode 0700, and the engine's socket is open to root and the socket's
//! group alone, so that a preparer of another account could neither read its plan nor load an image. Refusing root here
//! would refuse every installation that was set up by hand as the README shows, the demo among them. Such a node says so
//! when it starts, and `palisade node doctor` says so as long as it runs.

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
