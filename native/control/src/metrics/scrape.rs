//! What is looked up when somebody asks: connections, budgets, and what the store holds.

use palisade_core::admin::deployment::Deployment;
use palisade_core::strict::Object;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use super::PREFIX;
use crate::Core;
use crate::health::Status;
use crate::http::deployment_view;
use crate::limits::PROBE_WAIT;
use crate::store::{Columns as _, Result, Store};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

/// Everything that is seen now. What the store does not answer in time is left out; `palisade_up` tells.
pub(super) async fn registry(core: &Core) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    let status = core.status().await;
    one_of(&mut registry, "status", "How this Core is: one of them is 1", status);
    connections(&mut registry, core);
    if status != Status::Unavailable {
        let looks = async { (deployment_view(core).await.ok(), open_turns(core.store()).await.ok()) };
        let (view, turns) = timeout(PROBE_WAIT, looks).await.unwrap_or_default();
        if let Some(view) = view {
            deployment(&mut registry, &view);
        }
        if let Some(turns) = turns {
            states(&mut registry, "turns_open", "Commands that wait or run", turns);
        }
    }
    registry
}

fn one_of(registry: &mut Registry, name: &str, help: &str, status: Status) {
    let all = [Status::Ready, Status::Standby, Status::Unavailable];
    states(registry, name, help, all.map(|state| (state.name(), u64::from(state == status))));
}

fn connections(registry: &mut Registry, core: &Core) {
    let load = core.hub().load();
    gauge(registry, "node_connections", "Connections of nodes", load.connections);
    gauge(registry, "body_budget_bytes", "Bodies that may be in flight at once", load.budget_bytes);
    gauge(registry, "body_budget_free_bytes", "What is free of that", load.free_bytes);
    let (open, idle) = core.store().connections();
    gauge(registry, "store_connections", "Open connections to the database", u64::from(open));
    gauge(registry, "store_connections_idle", "Those that nobody uses", idle as u64);
    let epoch = core.execution().lease().map_or(0, |lease| lease.epoch.get());
    gauge(registry, "owner_epoch", "Epoch under which this process owns execution; 0 while it does not", epoch);
}

fn deployment(registry: &mut Registry, view: &Deployment) {
    gauge(
        registry,
        "deployment_generation",
        "Generation of the selection; it grows with each rollout",
        view.generation,
    );
    let previous = view.rollout.previous_generation_sandboxes;
    gauge(registry, "sandboxes_previous_generation", "Sandboxes of another generation than the selected one", previous);
    let held = view.resources;
    let sandboxes = [("allocated", held.allocations), ("pending", held.pending)];
    states(registry, "sandboxes", "Sandboxes that are held, and sessions that wait for one", sandboxes);
    if let Some(Object(nodes)) = view.rollout.nodes {
        let nodes = [
            ("ready", nodes.ready),
            ("preparing", nodes.preparing),
            ("failed", nodes.failed),
            ("update_required", nodes.update_required),
            ("unknown", nodes.unknown),
        ];
        states(registry, "nodes", "Nodes by how far they are with the selected generation", nodes);
    }
    gauge(registry, "reset_in_progress", "1 while a reset is under way", u64::from(view.reset.is_some()));
    if let Some(Object(reset)) = &view.reset {
        let left = &reset.remaining;
        let remaining = [("busy", left.busy), ("idle", left.idle), ("cleanup", left.cleanup)];
        states(registry, "reset_remaining", "What the reset waits for", remaining);
        let offline = left.on_offline_nodes;
        gauge(registry, "reset_remaining_offline", "How much of that is on nodes that are offline", offline);
    }
}

/// Turns that have not ended, by state.
async fn open_turns(store: &Store) -> Result<Vec<(&'static str, u64)>> {
    let query = "SELECT status, COUNT(*) AS count FROM turns WHERE completed_at IS NULL GROUP BY status";
    let rows = sqlx::query(query).fetch_all(&mut *store.read().await?).await?;
    let mut turns = vec![("queued", 0), ("in_progress", 0), ("waiting", 0)];
    for row in &rows {
        let (status, count) = (row.text("status")?, row.count("count")?);
        turns.iter_mut().filter(|(name, _)| *name == status).for_each(|turn| turn.1 = count);
    }
    Ok(turns)
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge: Gauge = Gauge::default();
    gauge.set(signed(value));
    registry.register(name, help, gauge);
}

fn states(registry: &mut Registry, name: &str, help: &str, values: impl IntoIterator<Item = (&'static str, u64)>) {
    let family = Family::<State, Gauge>::default();
    for (state, value) in values {
        family.get_or_create(&State { state }).set(signed(value));
    }
    registry.register(name, help, family);
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
