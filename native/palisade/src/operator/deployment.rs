use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use palisade_core::admin::client::{
    Method, cancel_reset, initialise_deployment, read_deployment, start_reset, update_deployment,
};
use palisade_core::admin::deployment::{Clear, Deployment, Remaining, Reset};
use palisade_core::deployment::specification::Specification;
use palisade_core::strict::Object;
use serde_json::{Map, Value};

use super::{Core, explain, show};
use crate::cli::{Apply, DeploymentCommand, ResetOptions};

/// How often a reset that is waited for is looked at.
const POLL: Duration = Duration::from_secs(5);

pub(super) async fn run(command: &DeploymentCommand) -> anyhow::Result<ExitCode> {
    match command {
        DeploymentCommand::Show(options) => {
            let view = Core::of(options)?.ask(read_deployment()).await?;
            show(options.json, &view, || text(&view))
        }
        DeploymentCommand::Apply(options) => apply(options).await,
        DeploymentCommand::Reset(options) => reset(options).await,
    }
}

/// Sends the selection once, under the generation that was just read: a change by somebody else is refused as stale.
async fn apply(options: &Apply) -> anyhow::Result<ExitCode> {
    let mut selection = read_selection(options.file.as_deref())?;
    let core = Core::of(&options.operator)?;
    let current = core.ask(read_deployment()).await?;
    selection.entry("expected_generation").or_insert_with(|| current.generation.into());
    let body = Value::Object(selection).to_string();
    let call = if current.provider.is_none() { initialise_deployment(body) } else { update_deployment(body) };
    let view = core.ask(call).await?;
    show(options.operator.json, &view, || text(&view))
}

fn read_selection(file: Option<&Path>) -> anyhow::Result<Map<String, Value>> {
    let name = file.map_or_else(|| "standard input".to_owned(), |file| file.display().to_string());
    let text = file.map_or_else(|| std::io::read_to_string(std::io::stdin()), std::fs::read_to_string);
    let text = text.with_context(|| format!("cannot read {name}"))?;
    serde_json::from_str(&text).with_context(|| {
        format!("{name} holds no selection; expected {{\"provider\":…,\"resources\":…,\"runtime\":…}}")
    })
}

async fn reset(options: &ResetOptions) -> anyhow::Result<ExitCode> {
    let core = Core::of(&options.operator)?;
    let generation = core.ask(read_deployment()).await?.generation;
    let call = if options.cancel {
        cancel_reset(generation)
    } else {
        let clear = if options.force { Clear::Force } else { Clear::Auto };
        start_reset(generation, clear, options.deadline_seconds)
    };
    let mut view = core.ask(call).await?;
    if options.wait {
        view = wait(&core, view, generation).await?;
    }
    show(options.operator.json, &view, || text(&view))
}

/// Shows what remains until the reset of `generation` has ended, which may have been before its request was answered.
async fn wait(core: &Core, mut view: Deployment, generation: u64) -> anyhow::Result<Deployment> {
    while let Some(Object(reset)) = view.reset.as_ref().filter(|_| view.generation == generation) {
        eprintln!("{}", progress(reset));
        tokio::time::sleep(POLL).await;
        view = match core.attempt(&read_deployment()).await {
            Ok(view) => view,
            // A reset is durable: it goes on when Core, or what stands before it, is back.
            Err(failed) if failed.status == 0 || failed.status >= 500 => {
                eprintln!("{}; the reset is stored, and is looked at again", failed.message);
                continue;
            }
            Err(failed) => return Err(explain(Method::Get, &failed)),
        };
    }
    if view.generation == generation {
        bail!("the reset was cancelled; the deployment still has generation {generation}");
    }
    Ok(view)
}

fn progress(reset: &Reset) -> String {
    let clear = match reset.clear {
        Clear::Auto => "auto",
        Clear::Force => "force",
    };
    let Remaining { busy, idle, cleanup, on_offline_nodes, offline_nodes } = &reset.remaining;
    let mut line = format!("resetting ({clear}): {busy} busy, {idle} idle, {cleanup} being cleaned up");
    if *on_offline_nodes > 0 {
        let names: Vec<_> = offline_nodes.iter().map(|Object(node)| node.name.as_str()).collect();
        let _ = write!(line, "; {on_offline_nodes} of them on offline nodes, which it waits for: {}", names.join(", "));
    }
    line
}

fn text(view: &Deployment) -> String {
    let mut text = match view.provider {
        Some(provider) => format!("{} at generation {}\n", provider.name(), view.generation),
        None => format!("nothing is selected; generation {}\n", view.generation),
    };
    let checked = view.provider.zip(view.specification.as_ref());
    if let Some(specification) = checked.and_then(|(provider, draft)| Specification::check(provider, draft).ok()) {
        let (cpus, memory) = (specification.cpus(), specification.memory_mib());
        let _ = writeln!(text, "  each sandbox   {cpus} cpus, {memory} MiB");
    }
    if let Some(digest) = view.specification_digest {
        let _ = writeln!(text, "  digest         {digest}");
    }
    let held = view.resources;
    let _ = writeln!(text, "  sandboxes      {} allocated, {} pending", held.allocations, held.pending);
    let previous = view.rollout.previous_generation_sandboxes;
    if previous > 0 {
        let _ = writeln!(text, "                 {previous} of another generation");
    }
    if let Some(Object(nodes)) = view.rollout.nodes {
        let (ready, preparing) = (nodes.ready, nodes.preparing);
        let _ = writeln!(
            text,
            "  nodes          {ready} ready, {preparing} preparing, {} failed, {} unknown",
            nodes.failed, nodes.unknown
        );
    }
    let _ = writeln!(text, "  public URL     {}", view.core_url);
    if let Some(Object(reset)) = &view.reset {
        let _ = writeln!(text, "  {}", progress(reset));
        if let Some(deadline) = reset.deadline_at {
            let _ = writeln!(text, "  busy ones are archived as well from {deadline} on");
        }
    }
    text
}
