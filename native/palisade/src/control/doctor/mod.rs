//! `palisade core doctor`: what is there, what is not, and what to do about it. It changes nothing.

mod database;
mod host;
mod network;

use std::process::ExitCode;

use palisade_control::store::{Location, Ownership};

use super::config::Config;
use crate::findings::{Finding, report};

pub(super) async fn run(config: &Config, json: bool) -> anyhow::Result<ExitCode> {
    report(&look(config).await, json)
}

async fn look(config: &Config) -> Vec<Finding> {
    let mut findings = vec![host::configuration(config)];
    let mut running = false;
    match config.store() {
        Err(error) => findings.push(Finding::problem("database", error.to_string(), "set data or database_url")),
        Ok(location) => {
            if let Location::Directory(folder) = &location {
                findings.extend([host::folder(folder), host::disk(folder)]);
            }
            let (seen, owner, stored_keys) = database::look(&location).await;
            findings.extend(seen);
            findings.push(host::keys(config, stored_keys));
            running = matches!(owner, Some(Ownership::Held(_)));
        }
    }
    findings.push(network::listen(config, running).await);
    findings.extend(network::metrics(config));
    findings.push(network::public_url(config, running).await);
    findings
}
