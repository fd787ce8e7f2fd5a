//! The long-running roles, and what a node says about itself.

use std::process::ExitCode;

use palisade_control::store::Location;

use crate::cli::{Register, Run, Serve, Status};
use crate::print;

/// Serves Core until it is asked to stop.
pub(crate) fn core(options: Serve) -> anyhow::Result<ExitCode> {
    let store = match (options.data, options.database_url) {
        (Some(folder), _) => Location::Directory(folder),
        (None, Some(url)) => Location::Url(url),
        (None, None) => anyhow::bail!("name a store with --data or --database-url"),
    };
    let options = palisade_control::Options {
        listen: options.listen,
        store,
        public_url: options.public_url,
        admin_key_file: options.admin_key_file,
        admin_key_digests: options.admin_key_digests,
    };
    block_on(async { Ok(palisade_control::serve(options).await?) })?;
    Ok(ExitCode::SUCCESS)
}

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
    let status = block_on(async { Ok(palisade_node::run(options).await) })?;
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
