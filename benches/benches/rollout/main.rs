//! What a rollout asks of a node: to download as fast as anybody, and to be heard from meanwhile.
//!
//! Core, the node and its preparers are processes of their own, as they are in production, and their engine is that of this
//! machine. What has a peer is beside it in the same run; the other limits are those of the product.

mod between;
mod core;
mod download;
mod heartbeats;
mod site;

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use palisade_core::units::{Digest, Generation, Id};
use palisade_node::{Action, Assigned, Run};

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["as-core", payload, data, url] => runtime.block_on(core::serve(Path::new(payload), Path::new(data), url))?,
        ["as-node", root] => {
            let state_dir = Path::new(root).join("state/node");
            let run = Run { config: Path::new(root).join("provider.json"), state_dir, core_url: None };
            return Ok(runtime.block_on(palisade_node::run(run)).code().into());
        }
        // A node starts its preparers from its own executable.
        ["generation", action, ref options @ ..] => return prepare(action, options),
        // Cargo passes `--bench`; a name that is not ours means that another benchmark is wanted.
        ref other if other.iter().any(|word| !word.starts_with('-') && !"rollout".contains(word)) => {}
        _ => runtime.block_on(measure())?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure() -> anyhow::Result<()> {
    println!("\n{:<44} {:>14} {:>14} {:>7} {:>9}", "name", "ours", "peer/limit", "ratio", "target");
    download::measure().await?.print();
    heartbeats::measure().await?.print();
    Ok(())
}

/// A line of the table.
struct Row {
    name: &'static str,
    ours: String,
    peer: String,
    ratio: f64,
    target: String,
}

impl Row {
    /// A time beside the longest that is allowed.
    fn limit(name: &'static str, ours: Duration, most: Duration) -> Self {
        let shown = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
        let ratio = ours.as_secs_f64() / most.as_secs_f64();
        Self { name, ours: shown(ours), peer: shown(most), ratio, target: "<= 1".to_owned() }
    }

    fn print(&self) {
        let Self { name, ours, peer, ratio, target } = self;
        println!("{name:<44} {ours:>14} {peer:>14} {ratio:>7.2} {target:>9}");
    }
}

/// `generation prepare|collect`, with the words that a node gives.
fn prepare(action: &str, options: &[&str]) -> anyhow::Result<ExitCode> {
    let action = if action == Action::Prepare.name() { Action::Prepare } else { Action::Collect };
    let ["--root", root, "--installation", installation, "--generation", number, "--specification-digest", digest] =
        options
    else {
        anyhow::bail!("a node names root, installation, generation and digest")
    };
    let assigned = Assigned {
        root: root.into(),
        installation: Id::parse(installation)?,
        action,
        generation: Generation::new(number.parse()?).context("generations begin at 1")?,
        specification_digest: Digest::parse(digest)?,
    };
    Ok(palisade_node::perform(&assigned).into())
}
