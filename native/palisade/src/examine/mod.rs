//! `palisade node doctor`: what keeps a host's node from working, and what to do about it. It changes nothing.

mod core;
mod host;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use palisade_node::doctor::Examination;

use crate::findings::{Finding, report};
use crate::serve::block_on;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Root of the installation: the folder of its provider.json
    #[arg(long, value_name = "DIR", value_parser = crate::cli::absolute)]
    root: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Doctor) -> anyhow::Result<ExitCode> {
    let findings = block_on(async { Ok(look(options).await) })?;
    report(&findings, options.json)
}

async fn look(options: &Doctor) -> Vec<Finding> {
    let (root, examination) = (&options.root, Examination::new(&options.root));
    let mut findings = vec![host::root(&examination), host::disk(root), host::inodes(root)];
    let (finding, configured) = host::configuration(&examination);
    findings.push(finding);
    if let Some(configured) = configured {
        findings.extend(host::engine(&configured).await);
        findings.extend(host::readiness(&examination).await);
        findings.extend(host::generations(root));
    }
    findings.extend(core::look(&examination).await);
    findings
}
