//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use palisade_core::units::Id;

use crate::control::CoreCommand;
use crate::logs::Format;
use crate::operator::SessionsCommand;

const AFTER_HELP: &str = "Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 78 rejected by Core for good.
Logs go to standard error; PALISADE_LOG sets what is logged (error, warn, info, debug; default: info \
for core and node, else warn).";

/// Run sandboxes for AI agents on many Linux hosts from one control plane.
#[derive(Debug, Parser)]
#[command(name = "palisade", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How log lines look [env: PALISADE_LOG_FORMAT] [default: text]
    #[allow(clippy::doc_markdown, reason = "the help text shows no markup")]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<Format>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the control plane, and look after it
    Core {
        #[command(subcommand)]
        command: CoreCommand,
    },
    /// Run a node, and manage what it is
    Node {
        #[command(subcommand)]
        command: NodeCommand,
    },
    /// Prepare or collect a generation: the program that a node starts for it
    ///
    /// It asks Core with the node's own credential, and needs nobody to run it by hand; doing so is harmless. Ends with 65
    /// when a transfer, a checksum or the provenance of a release failed.
    Generation {
        #[command(subcommand)]
        command: crate::generation::GenerationCommand,
    },
    #[command(flatten)]
    Operator(OperatorCommand),
    /// Work with deployment specifications
    Spec {
        #[command(subcommand)]
        command: SpecCommand,
    },
    /// Work with frames of the node protocol
    Frame {
        #[command(subcommand)]
        command: FrameCommand,
    },
    /// Build releases, and publish them to nodes
    Release {
        #[command(subcommand)]
        command: crate::release::ReleaseCommand,
    },
    /// Show the whole system at work on this machine, prove what it promises, and leave nothing behind
    Demo(Demo),
    /// Load a Core with simulated nodes, and measure it
    ///
    /// The nodes enroll like any other, speak the real protocol over real sockets, and send a heartbeat every 10 s. They
    /// never become ready, so that no sandbox is placed on one. At the end, and on SIGINT or SIGTERM, they are removed
    /// again; the measurement goes to standard output, the progress to standard error.
    Fleet(Fleet),
    /// Search for broken promises in simulated histories of Cores, nodes, network, clocks, disks and crashes
    ///
    /// One seed is one history, and the same one each time. A history that breaks a promise is printed as small as it gets.
    /// Ends with 1 when a promise was broken, or when 20,000 histories or more did not reach everything that they should.
    /// An interrupt reports what was done so far.
    Sim(Sim),
    /// Print a completion script for a shell
    Completion {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Enroll this host as a node; prints the node's public identity as one JSON object
    ///
    /// Ends with 78 when Core itself rejected the token or the credential; a rerun takes up what an earlier one began.
    Register(Register),
    /// Serve Core until SIGINT or SIGTERM
    ///
    /// Ends with 78 when Core itself rejected the node's credential: a restart cannot help then.
    Run(Run),
    /// Print the version of the node protocol
    ProtocolVersion,
    /// Print what this host knows of its node, without asking anybody
    Status(Status),
    /// Print which generations this host holds, in which state, and what would have to happen before each may go
    Generations(crate::generation::Held),
    /// Look for what keeps this host's node from working, and say what to do about it; changes nothing
    ///
    /// Looks at the engine, the disk, what is recorded of the generations, the configuration, the identity, and asks Core
    /// once. Ends with 1 when there is a problem.
    Doctor(crate::examine::Doctor),
}

#[derive(Debug, Args)]
pub(crate) struct Register {
    /// Provider configuration, a JSON file; the README shows one
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    pub(crate) config: PathBuf,
    /// Private folder of the node, made with mode 0700; its parent must exist
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    pub(crate) state_dir: PathBuf,
    /// Core's origin, exactly as Core names its public URL
    #[arg(long, value_name = "URL")]
    pub(crate) core_url: String,
    /// Display name, 1 to 128 bytes
    #[arg(long, default_value = "sandbox-node")]
    pub(crate) name: String,
    /// File with one enrollment token, mode 0600
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    pub(crate) enrollment_token_file: PathBuf,
    /// Allow plain http to another host; stored with the identity
    #[arg(long)]
    pub(crate) allow_insecure_origin: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Provider configuration, a JSON file; the README shows one
    #[arg(long, value_name = "FILE", value_parser = absolute)]
    pub(crate) config: PathBuf,
    /// Private folder of the registered node
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    pub(crate) state_dir: PathBuf,
    /// Core's origin, only to be compared with the stored one
    #[arg(long, value_name = "URL")]
    pub(crate) core_url: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Private folder of the registered node
    #[arg(long, value_name = "DIR", value_parser = absolute)]
    pub(crate) state_dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpecCommand {
    /// Print the digest of a deployment specification
    Digest(Digest),
}

#[derive(Debug, Args)]
pub(crate) struct Digest {
    /// Provider that the specification is for
    #[arg(long, value_parser = ["docker", "microsandbox", "e2b"])]
    pub(crate) provider: String,
    /// Print the exact bytes that are hashed, without a line end
    #[arg(long, conflicts_with = "json")]
    pub(crate) canonical: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// File with {"resources":…,"runtime":…} [default: standard input]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FrameCommand {
    /// Judge a frame as its receiver does; prints one JSON object
    ///
    /// Ends with 0 only when every frame is `ok`. `invalid_frame` closes a connection; `invalid_request` is a request that
    /// decodes and is answered `invalid`.
    Check(Check),
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Read many frames, one base64 text a line, and print one object a line
    #[arg(long)]
    pub(crate) base64_lines: bool,
    /// File to read [default: standard input]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Static guest entry; scripts/build-guest builds it
    #[arg(long, value_name = "FILE")]
    pub(crate) guest: PathBuf,
    /// Static busybox
    #[arg(long, value_name = "FILE", default_value = palisade_release::checkout::BUSYBOX)]
    pub(crate) busybox: PathBuf,
    /// Leave everything running, and print how to use and how to stop it; the rollout is not shown then
    #[arg(long, conflicts_with = "chapter")]
    pub(crate) keep: bool,
    /// Show one chapter only
    #[arg(long, value_name = "CHAPTER")]
    pub(crate) chapter: Option<Chapter>,
}

/// A part of the demo that stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Chapter {
    /// One node; it and Core are killed
    Accidents,
    /// Another Runtime is rolled out to two nodes
    Rollout,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("target").required(true).args(["core", "core_url"])))]
pub(crate) struct Fleet {
    /// Start a Core of its own with an empty embedded store, measure that process too, and leave nothing behind
    #[arg(long)]
    pub(crate) core: bool,
    /// Core's origin, exactly as Core names its public URL
    #[arg(long, value_name = "URL", requires = "admin_key_file")]
    pub(crate) core_url: Option<String>,
    /// File with a Core key; its first line is used
    #[arg(long, value_name = "FILE", env = "OAC_CORE_KEY_FILE")]
    pub(crate) admin_key_file: Option<PathBuf>,
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) nodes: u32,
    /// How long to measure once all nodes are connected, in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) duration: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What operators ask of a running Core.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Look at what Core has selected, change it, or reset it
    #[command(subcommand)]
    Deployment(DeploymentCommand),
    /// Look at Core's nodes, and change or remove one
    #[command(subcommand)]
    Nodes(NodesCommand),
    /// Look at sessions, end one, or run a command in a new one
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Issue enrollment tokens
    #[command(subcommand)]
    Tokens(TokensCommand),
}

/// Which Core is asked, and how it answers.
#[derive(Debug, Args)]
pub(crate) struct Operator {
    /// Core's origin
    #[arg(long, value_name = "URL", env = "OAC_PUBLIC_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) core_url: String,
    /// File with a Core key; its first line is used
    #[arg(long, value_name = "FILE", env = "OAC_CORE_KEY_FILE")]
    pub(crate) admin_key_file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeploymentCommand {
    /// Print what is selected and how far the nodes are
    Show(Operator),
    /// Select, or change the selection; refused when somebody else changed it meanwhile
    Apply(Apply),
    /// Archive every sandbox and deselect the provider; every node must enroll again afterwards
    ///
    /// Sandboxes that work are spared until the deadline, an hour by default; with --force they are not. What an offline
    /// node holds is waited for in any case. A repeated call keeps the first deadline.
    Reset(ResetOptions),
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) operator: Operator,
    /// File with {"provider":…,"resources":…,"runtime":…} [default: standard input]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ResetOptions {
    #[command(flatten)]
    pub(crate) operator: Operator,
    /// Archive sandboxes that work as well
    #[arg(long)]
    pub(crate) force: bool,
    /// When sandboxes that work are archived as well, in seconds from now
    #[arg(long, value_name = "S", conflicts_with_all = ["force", "cancel"], value_parser = clap::value_parser!(u32).range(300..=86_400))]
    pub(crate) deadline_seconds: Option<u32>,
    /// Cancel the reset under way; what is archived stays archived
    #[arg(long, conflicts_with_all = ["force", "wait"])]
    pub(crate) cancel: bool,
    /// Wait for the end, and show on standard error what remains
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodesCommand {
    /// List the nodes
    List(Operator),
    /// Print one node
    Show(OneNode),
    /// List what a node holds
    Allocations(OneNode),
    /// Change a node's name or approved capacity; what is not given stays
    Set(NodeSet),
    /// Remove a node that holds nothing; its id and credential are never accepted again
    Remove(OneNode),
    /// Issue a token, and print the command that makes a host a node with it, within 10 minutes
    ///
    /// The command downloads the installer from Core, checks it, and gives it the token on its standard input alone.
    InstallCommand(crate::operator::host::InstallCommand),
    /// Print the command that makes a node's host a plain one again
    UninstallCommand(Operator),
    /// Print the command that shows a node's log on its host
    LogCommand(Operator),
}

#[derive(Debug, Args)]
pub(crate) struct OneNode {
    #[command(flatten)]
    pub(crate) operator: Operator,
    /// Which node
    #[arg(value_parser = node_id)]
    pub(crate) node: Id,
}

#[derive(Debug, Args)]
pub(crate) struct NodeSet {
    #[command(flatten)]
    pub(crate) operator: Operator,
    /// Which node
    #[arg(value_parser = node_id)]
    pub(crate) node: Id,
    /// Display name, 1 to 128 bytes
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Approved sandboxes at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_active: Option<u32>,
    /// Approved sandboxes with the suspended ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_retained: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Issue a token that enrolls one node within 10 minutes
    Create(TokenCreate),
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreate {
    #[command(flatten)]
    pub(crate) operator: Operator,
    /// Write the token to this new file, mode 0600, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Approved sandboxes at once [default: from what the node measures]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_active: Option<u32>,
    /// Approved sandboxes with the suspended ones [default: from what the node measures]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_retained: Option<u32>,
}

pub(crate) fn node_id(text: &str) -> Result<Id, String> {
    palisade_core::deployment::node::parse_id(text).ok_or_else(|| "expected a UUID".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// First seed; the following histories have the following ones
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many histories
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) histories: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("expected an absolute path".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
