use std::process::ExitCode;

use palisade_core::admin::client::{list_allocations, list_nodes, read_node, remove_node, update_node};
use palisade_core::admin::node::{List, Node, NodeDetail, NodeState};
use palisade_core::deployment::history::Range;
use palisade_core::strict::Object;

use super::table::{bytes, table};
use super::{Core, host, show};
use crate::cli::{NodeSet, NodesCommand};

pub(super) async fn run(command: &NodesCommand) -> anyhow::Result<ExitCode> {
    match command {
        NodesCommand::List(options) => {
            let nodes = Core::of(options)?.ask(list_nodes()).await?;
            show(options.json, &nodes, || list(&nodes))
        }
        NodesCommand::Show(options) => {
            let detail = Core::of(&options.operator)?.ask(read_node(options.node, Range::Hour)).await?;
            show(options.operator.json, &detail, || text(&detail))
        }
        NodesCommand::Allocations(options) => {
            let held = Core::of(&options.operator)?.ask(list_allocations(options.node)).await?;
            show(options.operator.json, &held, || {
                let rows = held.data.iter().map(|Object(held)| {
                    [
                        held.id.to_string(),
                        name(&held.state),
                        held.deployment_generation.to_string(),
                        held.session_id.to_string(),
                    ]
                });
                table(["ALLOCATION", "STATE", "GENERATION", "SESSION"], rows)
            })
        }
        NodesCommand::Set(options) => set(options).await,
        NodesCommand::InstallCommand(options) => host::install(options).await,
        NodesCommand::UninstallCommand(options) => host::uninstall(options).await,
        NodesCommand::LogCommand(options) => host::log(options).await,
        NodesCommand::Remove(options) => {
            let removed = Core::of(&options.operator)?.ask(remove_node(options.node)).await?;
            show(options.operator.json, &removed, || format!("node {} is removed", removed.id))
        }
    }
}

/// Reads what is not given, so that it stays as it is.
async fn set(options: &NodeSet) -> anyhow::Result<ExitCode> {
    let core = Core::of(&options.operator)?;
    let current = core.ask(read_node(options.node, Range::Hour)).await?.node;
    let max_active = options.max_active.unwrap_or_else(|| approved(current.max_active));
    let max_retained = retained(options.max_retained, approved(current.max_retained), max_active);
    let name = options.name.as_deref().unwrap_or(&current.name);
    let updated = core.ask(update_node(options.node, name, max_active, max_retained)).await?;
    show(options.operator.json, &updated, || format!("node {} is changed", updated.id))
}

fn approved(limit: u64) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// What was named is Core's to judge; what was not stays, unless the other limit would exceed it.
fn retained(named: Option<u32>, current: u32, max_active: u32) -> u32 {
    named.unwrap_or_else(|| current.max(max_active))
}

fn list(nodes: &List<Object<Node>>) -> String {
    let rows = nodes.data.iter().map(|Object(node)| {
        [
            node.id.to_string(),
            node.name.clone(),
            if node.online { "online" } else { "offline" }.to_owned(),
            state(node),
            format!("{}/{}", node.active, node.max_active),
            format!("{}/{}", node.retained, node.max_retained),
            bytes(node.available_memory_bytes),
            bytes(node.available_disk_bytes),
        ]
    });
    table(["NODE", "NAME", "LINK", "TARGET", "ACTIVE", "RETAINED", "MEMORY FREE", "DISK FREE"], rows)
}

fn state(node: &Node) -> String {
    let state = match node.rollout.state {
        NodeState::Ready => "ready",
        NodeState::Preparing => "preparing",
        NodeState::Failed => "failed",
        NodeState::UpdateRequired => "update required",
        NodeState::Unknown => "unknown",
    };
    match node.rollout.diagnostic {
        Some(class) => format!("{state}: {}", class.0.code()),
        None => state.to_owned(),
    }
}

fn text(detail: &NodeDetail) -> String {
    let node = &detail.node;
    let seen = node.last_seen_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
    let serving = node.rollout.ready_generation.map_or_else(|| "none".to_owned(), |generation| generation.to_string());
    let rows = [
        ["name".to_owned(), node.name.clone()],
        ["link".to_owned(), format!("{}, last heartbeat {seen}", if node.online { "online" } else { "offline" })],
        ["target".to_owned(), state(node)],
        ["serves".to_owned(), format!("generation {serving}{}", if node.provider_ready { ", ready" } else { "" })],
        ["sandboxes".to_owned(), format!("{} running, {} being cleaned up", node.running, node.cleanup_pending)],
        ["active".to_owned(), format!("{} of {}", node.active, node.max_active)],
        ["retained".to_owned(), format!("{} of {}", node.retained, node.max_retained)],
        [
            "memory free".to_owned(),
            format!("{} of {}", bytes(detail.host.available_memory_bytes), bytes(detail.host.total_memory_bytes)),
        ],
        ["disk free".to_owned(), bytes(detail.host.available_disk_bytes)],
    ];
    table(["NODE", &node.id.to_string()], rows)
}

/// The name that answers use.
fn name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::retained;

    #[test]
    fn a_named_limit_is_sent_as_it_is_even_when_core_will_refuse_it() {
        assert_eq!(retained(Some(1), 8, 4), 1, "not turned into something that nobody asked for");
        assert_eq!(retained(None, 8, 4), 8);
        assert_eq!(retained(None, 8, 10), 10);
    }
}
