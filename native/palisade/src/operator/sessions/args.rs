//! The command line of `palisade sessions`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use palisade_core::limits::{BUDGET_MAX_MS, COMMAND_DIRECTORY_MAX_BYTES};
use palisade_core::units::Id;

use super::{NOT_RUN, UNKNOWN};
use crate::cli::{Operator, node_id};

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions of a project, or of all
    List(SessionsList),
    /// Run one command in a new session, with its output and its exit code
    ///
    /// The session is archived at the end unless --keep is given. Nothing is ever run twice: when Core or the network fails
    /// in between, the same command is asked for under the same key.
    #[command(after_help = exit_codes())]
    Run(SessionsRun),
    /// End a session, and free what it holds; there is no way back
    Archive(SessionsArchive),
}

#[derive(Debug, Args)]
pub(crate) struct SessionsList {
    #[command(flatten)]
    pub(crate) operator: Operator,
    /// Only those of this project
    #[arg(long, value_name = "ID", value_parser = node_id)]
    pub(crate) project: Option<Id>,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArchive {
    #[command(flatten)]
    pub(crate) operator: Operator,
    /// Its project [default: whichever has it]
    #[arg(long, value_name = "ID", value_parser = node_id)]
    pub(crate) project: Option<Id>,
    /// Wait until nothing is held any more
    #[arg(long)]
    pub(crate) wait: bool,
    /// Which session
    #[arg(value_parser = node_id)]
    pub(crate) session: Id,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsRun {
    /// Core's origin
    #[arg(long, value_name = "URL", env = "OAC_PUBLIC_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) core_url: String,
    /// File with a project key; its first line is used
    #[arg(long, value_name = "FILE", env = "OAC_PROJECT_KEY_FILE")]
    pub(crate) project_key_file: PathBuf,
    /// Send standard input to the command
    #[arg(short = 'i', long)]
    pub(crate) stdin: bool,
    /// Folder to run in, inside the sandbox
    #[arg(long, value_name = "DIR", value_parser = inside)]
    pub(crate) directory: Option<String>,
    /// Budget of the command, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = BUDGET_MAX_MS, value_parser = clap::value_parser!(u64).range(1..=BUDGET_MAX_MS))]
    pub(crate) timeout_ms: u64,
    /// Keep the session, and print its id on standard error
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print one JSON object instead of the command's output
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments; no shell reads them
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
}

/// A path in a sandbox, which need not be one here.
fn inside(text: &str) -> Result<String, String> {
    let expected =
        format!("expected an absolute path inside the sandbox, of at most {COMMAND_DIRECTORY_MAX_BYTES} bytes");
    let valid = text.starts_with('/') && text.len() <= COMMAND_DIRECTORY_MAX_BYTES;
    if valid { Ok(text.to_owned()) } else { Err(expected) }
}

fn exit_codes() -> String {
    format!(
        "Exit codes: that of the command; {NOT_RUN} when it certainly did not run, {UNKNOWN} when nobody knows what came \
         of it: it may have run, once."
    )
}
