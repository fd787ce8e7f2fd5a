//! The long-running roles, and what a node says about itself.

use std::process::ExitCode;

use nix::unistd::geteuid;

use crate::cli::{Register, Run, Status};
use crate::print;
use crate::watchdog::watched;

/// Registers this host; the identity is the only output.
pub(crate) fn register(options: Register) -> anyhow::Result<ExitCode> {
    let options = palisade_node::Register {
        config: options.config,
        state_dir: options.state_dir,
        core_url: options.core_url,
        name: options.name,
        enrollment_token_file: options.enrollment_token_file,
        allow_insecure_origin: options.allow_insecure_origin,
    };
    match block_on(async { Ok(palisade_node::register(options).await) })? {
        Ok(identity) => print(format!("{}\n", serde_json::to_string(&identity)?).as_bytes()),
        Err(error) => {
            eprintln!("error: {error}");
            Ok(ExitCode::from(error.exit_code()))
        }
    }
}

/// Serves Core as a node until it is asked to stop.
pub(crate) fn node(options: Run) -> anyhow::Result<ExitCode> {
    let options =
        palisade_node::Run { config: options.config, state_dir: options.state_dir, core_url: options.core_url };
    if geteuid().is_root() {
        tracing::warn!(
            "this node runs as root, and so do its preparers: give it an account of its own, which owns the root of its \
             installation and may use the engine"
        );
    }
    let status = block_on(async { Ok(watched(palisade_node::run(options)).await) })?;
    Ok(ExitCode::from(status.code()))
}

/// Prints what the private state says, without its secret.
pub(crate) fn status(options: &Status) -> anyhow::Result<ExitCode> {
    let status = palisade_node::status(&options.state_dir)?;
    let text = if options.json { serde_json::to_string(&status)? } else { status.to_string() };
    print(format!("{text}\n").as_bytes())
}

/// Runs one future to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}
