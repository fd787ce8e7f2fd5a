//! The Deployment and Node views of one snapshot (deployment §1.1.1–§1.1.3, §1.7.1).

use super::Deployment;
use super::capacity::Capacity;
use super::contract::Mode;
use super::node::{self, Measurements, Node};
use crate::admin;
use crate::admin::deployment::{Buckets, Held, Remaining, Rollout, RolloutState};
use crate::admin::node::NodeState;
use crate::admin::time::Timestamp;
use crate::session::hub::presence::Standing;
use crate::strict::Object;
use crate::units::OwnerEpoch;

/// What one statement counted beside the row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// `resources`.
    pub held: Held,
    /// Unreleased allocations, and pending placements without one, of other generations than the current.
    pub previous_generation_sandboxes: u64,
    /// What a reset waits for; ignored without one.
    pub remaining: Remaining,
}

/// The Deployment view; `nodes` is what the connections of each non-removed node of this installation recorded, with at
/// least what it said of the target.
#[must_use]
pub fn deployment<'a>(
    deployment: &Deployment,
    counted: &Counted,
    nodes: impl IntoIterator<Item = &'a Standing>,
    now: Timestamp,
) -> admin::deployment::Deployment {
    let selected = deployment.selected.as_ref();
    let specification = deployment.specification();
    let suspension = deployment.provider().and_then(|provider| provider.rule().suspension);
    admin::deployment::Deployment {
        rollout: rollout(deployment, counted, nodes, now),
        specification: specification.map(super::specification::Specification::draft),
        specification_digest: specification.map(super::specification::Specification::digest),
        generation: deployment.generation,
        mode: deployment.mode(),
        resources: counted.held,
        configuration: selected.map(|selected| selected.configuration.clone()),
        metadata: selected.map(|selected| selected.metadata.clone()),
        credential_configured: selected.is_some_and(|selected| selected.credential_configured),
        suspension: suspension.map(Object),
        installation_id: deployment.installation,
        provider: deployment.provider(),
        reset: deployment.reset.map(|reset| Object(shown_reset(reset, counted))),
        owner_epoch: deployment.owner_epoch.map_or(0, OwnerEpoch::get),
        core_url: deployment.core_url.clone(),
    }
}

fn rollout<'a>(
    deployment: &Deployment,
    counted: &Counted,
    nodes: impl IntoIterator<Item = &'a Standing>,
    now: Timestamp,
) -> Rollout {
    let buckets = buckets(deployment, nodes, now);
    Rollout {
        state: if buckets.preparing > 0 { RolloutState::Preparing } else { RolloutState::Settled },
        previous_generation_sandboxes: counted.previous_generation_sandboxes,
        nodes: (deployment.mode() == Some(Mode::Nodes)).then_some(Object(buckets)),
    }
}

/// Nodes per state of the current target; all zero outside node mode.
#[must_use]
pub fn buckets<'a>(deployment: &Deployment, nodes: impl IntoIterator<Item = &'a Standing>, now: Timestamp) -> Buckets {
    let mut buckets = Buckets::default();
    for node in nodes.into_iter().filter(|_| deployment.mode() == Some(Mode::Nodes)) {
        let bucket = match node::rollout(node, deployment, now).state {
            NodeState::Ready => &mut buckets.ready,
            NodeState::Preparing => &mut buckets.preparing,
            NodeState::Failed => &mut buckets.failed,
            NodeState::UpdateRequired => &mut buckets.update_required,
            NodeState::Unknown => &mut buckets.unknown,
        };
        *bucket += 1;
    }
    buckets
}

fn shown_reset(reset: super::Reset, counted: &Counted) -> admin::deployment::Reset {
    admin::deployment::Reset {
        clear: reset.clear,
        requested_at: reset.requested_at,
        deadline_at: reset.deadline_at,
        forced_at: reset.forced_at,
        remaining: counted.remaining.clone(),
    }
}

/// The Node view; `None` outside node mode, where no node is shown.
#[must_use]
pub fn node(node: &Node, deployment: &Deployment, now: Timestamp) -> Option<admin::node::Node> {
    let provider = deployment.provider().filter(|provider| provider.rule().mode == Mode::Nodes)?;
    let capacity = Capacity::reported(provider, node.max_active, node.max_retained);
    Some(admin::node::Node {
        rollout: node.rollout(deployment, now),
        diagnostic: None,
        provider_ready: node.is_serving(deployment, now),
        cpu_count: node.measured.cpu_count,
        available_memory_bytes: node.measured.available_memory_bytes,
        available_disk_bytes: node.measured.available_disk_bytes,
        running: node.counts.running,
        snapshots: node.counts.snapshots,
        active: node.counts.active,
        reserved: node.counts.reserved,
        retained: node.counts.retained,
        cleanup_pending: node.counts.cleanup_pending,
        id: node.id,
        name: node.name.clone(),
        provider,
        online: node.is_online(deployment, now),
        last_seen_at: node.standing.last_seen_at,
        max_active: capacity.max_active.into(),
        max_retained: capacity.max_retained.into(),
        created_at: node.created_at,
        core_url: node.core_url.clone(),
        enrollment_id: node.enrollment_id,
    })
}

/// `host` of the node detail: the last observation, kept for offline nodes with its original time.
#[must_use]
pub fn host(measured: &Measurements) -> admin::node::Host {
    admin::node::Host {
        effective_cpu_cores: measured.effective_cpu_cores,
        cpu_utilization: measured.cpu_utilization,
        total_memory_bytes: measured.total_memory_bytes,
        available_memory_bytes: measured.available_memory_bytes,
        available_disk_bytes: measured.available_disk_bytes,
        observed_at: measured.observed_at,
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::tests::{node as sample_node, say};
    use super::super::contract::Provider;
    use super::super::tests::{deployment as sample, resetting};
    use super::*;
    use crate::admin::Validate;
    use crate::wire::payload::ObservedState;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn members(view: &admin::deployment::Deployment) -> Vec<String> {
        let serde_json::Value::Object(members) = serde_json::to_value(view).unwrap() else { panic!("an object") };
        members.keys().cloned().collect()
    }

    fn counted(allocations: u64) -> Counted {
        Counted { held: Held { allocations, pending: 0 }, ..Counted::default() }
    }

    /// D 90. Each view that Core serialises passes the client's validator; unconfigured it has exactly eleven members.
    #[test]
    fn a_view_passes_its_own_validator() {
        let unconfigured = deployment(&sample(None), &counted(0), &[], NOW);
        assert_eq!(members(&unconfigured).len(), 11);
        for provider in [None, Some(Provider::Docker), Some(Provider::Microsandbox)] {
            let view = deployment(&sample(provider), &counted(1), [&sample_node(2).standing], NOW);
            let bytes = serde_json::to_vec(&view).unwrap();
            assert_eq!(admin::read::<admin::deployment::Deployment>(&bytes), Ok(view));
        }
        let configured = deployment(&sample(Some(Provider::Docker)), &counted(0), &[], NOW);
        assert_eq!(members(&configured).len(), 15);
    }

    /// D 98. `preparing` exactly while a node is, and the buckets count every node once.
    #[test]
    fn rollout_counts_every_node_once() {
        let mut preparing = sample_node(3);
        say(&mut preparing, 3, ObservedState::Preparing { diagnostic: None });
        let mut silent = sample_node(4);
        silent.standing.statuses.clear();
        let view = deployment(
            &sample(Some(Provider::Docker)),
            &counted(0),
            &[sample_node(2).standing, preparing.standing, silent.standing],
            NOW,
        );
        assert_eq!(view.rollout.state, RolloutState::Preparing);
        let buckets = Buckets { ready: 1, preparing: 1, unknown: 1, ..Buckets::default() };
        assert_eq!(view.rollout.nodes, Some(Object(buckets)));
        let direct = deployment(&sample(Some(Provider::E2b)), &counted(0), &[], NOW);
        assert_eq!(direct.rollout.nodes, None);
    }

    /// D 97. What a reset waits for adds up to what is held.
    #[test]
    fn the_remaining_work_of_a_reset_adds_up() {
        let resetting = resetting(Provider::Docker);
        let mut counted = counted(2);
        counted.remaining = Remaining { busy: 1, cleanup: 1, ..Remaining::default() };
        let view = deployment(&resetting, &counted, &[], NOW);
        assert_eq!(view.validate(), Ok(()));
        counted.remaining.idle = 1;
        assert_eq!(deployment(&resetting, &counted, &[], NOW).validate(), Err(admin::Invalid("D11")));
    }

    /// D 71. D 99. A node's view shows the retained limit as the active one, and serving apart from the target.
    #[test]
    fn a_node_view_keeps_serving_apart_from_the_target() {
        let deployment = sample(Some(Provider::Docker));
        let mut held = sample_node(2);
        held.max_retained = 9;
        held.standing.pin = crate::units::Generation::new(2);
        say(&mut held, 2, ObservedState::Ready { checkpoint: None });
        say(&mut held, 3, ObservedState::Failed { diagnostic: None });
        let view = node(&held, &deployment, NOW).unwrap();
        assert_eq!((view.max_active, view.max_retained), (2, 2));
        assert_eq!((view.provider_ready, view.rollout.state), (true, NodeState::Failed));
        let bytes = serde_json::to_vec(&view).unwrap();
        assert_eq!(admin::read::<admin::node::Node>(&bytes), Ok(view));
        say(&mut held, 2, ObservedState::Preparing { diagnostic: None });
        assert!(!node(&held, &deployment, NOW).unwrap().provider_ready);
        assert_eq!(node(&held, &sample(None), NOW), None);
    }

    /// D 99. The host shows exactly what was measured last, with the time of that measurement.
    #[test]
    fn a_host_shows_the_last_measurement() {
        let measured = Measurements {
            cpu_count: Some(8),
            effective_cpu_cores: Some(3.5),
            cpu_utilization: Some(0.25),
            total_memory_bytes: Some(7),
            available_memory_bytes: Some(5),
            available_disk_bytes: Some(3),
            observed_at: Some(NOW),
        };
        let expected = serde_json::json!({"effective_cpu_cores": 3.5, "cpu_utilization": 0.25, "total_memory_bytes": 7,
            "available_memory_bytes": 5, "available_disk_bytes": 3, "observed_at": NOW});
        assert_eq!(serde_json::to_value(host(&measured)).unwrap(), expected);
    }
}
