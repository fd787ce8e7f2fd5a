//! The command line of `palisade core`.

#![allow(clippy::doc_markdown, reason = "these comments are the help text, which shows no markup")]

use std::path::PathBuf;

use clap::{Args, Subcommand};

const CONFIGURATION: &str =
    "Configuration: an option wins over its variable, that over the file, that over the default.
`palisade core config` shows every setting, its value, and where that came from.";

#[derive(Debug, Subcommand)]
pub(crate) enum CoreCommand {
    /// Serve the HTTP API and the node connections until SIGINT or SIGTERM
    ///
    /// Prints one line with the address on standard output once it listens; a service manager is told as well. Logs go to
    /// standard error. At least one Core key is needed: `palisade core keys add` makes one. A new database gets its schema;
    /// one with an older schema is refused, because an upgrade cannot be undone: `palisade core migrate` makes it.
    /// The first signal lets open requests end, for at most 10 s; a second one cuts them off.
    #[command(after_help = CONFIGURATION)]
    Serve(ServeArgs),
    /// Bring the database to this version, and say what was done
    ///
    /// Refused while a Core works on it. Make a backup first: there is no way back.
    Migrate(StoreJson),
    /// Add, list and revoke Core keys; a running Core takes a change over within 2 s, without a restart
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Ask a running Core whether it serves
    ///
    /// Needs no key. Ends with 0 when it is ready or a standby, with 1 when it is unavailable or nobody answered.
    Status(StatusArgs),
    /// Check what Core needs on this host, and say the next step for each finding
    ///
    /// Changes nothing, and may run beside a Core. Ends with 1 when there is a problem; warnings end with 0.
    #[command(after_help = CONFIGURATION)]
    Doctor(CheckArgs),
    /// Copy the embedded database into a new file while Core runs
    ///
    /// The copy is what the database held at one moment, checked and on disk when the command ends. Nothing is overwritten.
    /// A PostgreSQL database is refused: use `pg_dump`.
    Backup(BackupArgs),
    /// Make a backup the database of a data folder that has none
    ///
    /// Its owner epoch is raised, because nodes refuse a lower one than they saw. What was decided after the backup is
    /// forgotten: look at the selection, the nodes and the sessions before anything else.
    Restore(RestoreArgs),
    /// Print the effective configuration, and where each value came from; secrets are masked
    #[command(after_help = CONFIGURATION)]
    Config(CheckArgs),
}

/// Where the database is.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct StoreArgs {
    /// TOML file with settings [env: OAC_CORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Folder of the embedded database; made when it is missing [env: OAC_CORE_DATA]
    #[arg(long, value_name = "DIR", conflicts_with = "database_url")]
    pub(crate) data: Option<String>,
    /// PostgreSQL database; arguments are visible to every process, so prefer the variable [env: OAC_DATABASE_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
}

/// Every setting of Core.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Address to listen on; port 0 takes a free one [env: OAC_CORE_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Origin under which nodes reach this Core [env: OAC_PUBLIC_URL] [default: http:// and the address listened on]
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// File with Core keys, one a line, each 16 to 256 printable ASCII characters without space [env: OAC_CORE_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_key_file: Option<String>,
    /// Address for /metrics, /healthz and /readyz without a key; keep it private [env: OAC_CORE_METRICS_LISTEN] [default:
    /// none]
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_listen: Option<String>,
    /// Bodies in flight on node connections, in MiB, at least 128 [env: OAC_CORE_BODY_BUDGET_MIB] [default: 512]
    #[arg(long, value_name = "MIB")]
    pub(crate) body_budget_mib: Option<String>,
    /// Folder with the files that nodes download, filled by `release publish` [env: OAC_CORE_NODE_PAYLOAD] [default: none]
    #[arg(long, value_name = "DIR")]
    pub(crate) node_payload: Option<String>,
    /// File with the key that provider credentials are sealed with, 64 hexadecimal characters [env:
    /// OAC_CORE_CREDENTIAL_KEY_FILE, or the key itself in OAC_CORE_CREDENTIAL_KEY] [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) credential_key_file: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) settings: ServeArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StoreJson {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key; only its digest is stored, and it is shown this once
    Add(KeyAdd),
    /// List the stored keys, revoked ones included; those of a key file are not stored
    List(StoreJson),
    /// Refuse a key from now on
    Revoke(KeyRevoke),
}

#[derive(Debug, Args)]
pub(crate) struct KeyAdd {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// What it is for, 1 to 128 bytes
    #[arg(long)]
    pub(crate) name: String,
    /// Write the key to this new file, mode 0600, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRevoke {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Which one, as `keys list` and the audit log name it
    pub(crate) id: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Core's origin
    #[arg(long, value_name = "URL", env = "OAC_PUBLIC_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) core_url: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The new file
    pub(crate) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The backup; it stays as it is
    pub(crate) file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl StoreArgs {
    /// What was given, by the key of its setting.
    pub(crate) fn given(&self) -> Vec<(&'static str, Option<String>)> {
        vec![("data", self.data.clone()), ("database_url", self.database_url.clone())]
    }
}

impl ServeArgs {
    /// What was given, by the key of its setting.
    pub(crate) fn given(&self) -> Vec<(&'static str, Option<String>)> {
        let mut given = self.store.given();
        given.extend([
            ("listen", self.listen.clone()),
            ("public_url", self.public_url.clone()),
            ("admin_key_file", self.admin_key_file.clone()),
            ("metrics_listen", self.metrics_listen.clone()),
            ("body_budget_mib", self.body_budget_mib.clone()),
            ("node_payload", self.node_payload.clone()),
            ("credential_key_file", self.credential_key_file.clone()),
        ]);
        given
    }
}
