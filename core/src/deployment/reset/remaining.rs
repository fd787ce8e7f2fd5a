use std::collections::BTreeMap;

use crate::admin::deployment::{OfflineNode, Remaining};
use crate::admin::time::Timestamp;
use crate::deployment::Deployment;
use crate::deployment::node::Node;
use crate::limits::NODELESS_LEASE_MS;
use crate::strict::Object;
use crate::units::Id;

/// One sandbox that is held: an allocation that is not released, or a pending environment without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// Where it is; `None` in direct mode, and where none was chosen.
    pub node: Option<Id>,
    /// The provider needs no node.
    pub direct: bool,
    /// The allocation is being cleaned up, its session was deleted, or its environment failed or expired.
    pub ended: bool,
    /// Until when suspended compute is kept, for a phase other than `disabled` and `running`.
    pub retained_until: Option<Timestamp>,
    /// When the allocation was confirmed last; `None` without an allocation.
    pub kept_at: Option<Timestamp>,
    /// A Turn runs or waits for its client, or a file is being written.
    pub busy: bool,
}

/// What a reset waits for at one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// Its release.
    Cleanup,
    /// The end of its work.
    Busy,
    /// Its archive.
    Idle,
}

impl Resource {
    /// The category, first rule first.
    #[must_use]
    pub fn category(&self, now: Timestamp) -> Category {
        let retention_passed = self.retained_until.is_some_and(|until| until <= now);
        let unplaced = self.node.is_none() && !self.direct;
        let lease_passed = unplaced && self.kept_at.is_some_and(|kept| now.since(kept) > NODELESS_LEASE_MS);
        if self.ended || retention_passed || lease_passed {
            Category::Cleanup
        } else if self.busy {
            Category::Busy
        } else {
            Category::Idle
        }
    }
}

/// What a reset still waits for. Every resource stands in exactly one category; those on nodes that are not online are
/// counted once more by node, because they block the end of the reset until their cleanup is confirmed.
#[must_use]
pub fn remaining(resources: &[Resource], nodes: &[Node], deployment: &Deployment, now: Timestamp) -> Remaining {
    let mut remaining = Remaining::default();
    let mut held = BTreeMap::<Id, u64>::new();
    for resource in resources {
        *match resource.category(now) {
            Category::Cleanup => &mut remaining.cleanup,
            Category::Busy => &mut remaining.busy,
            Category::Idle => &mut remaining.idle,
        } += 1;
        if let Some(node) = resource.node {
            *held.entry(node).or_default() += 1;
        }
    }
    let offline = nodes.iter().filter(|node| !node.is_online(deployment, now));
    let offline = offline.filter_map(|node| Some((node.id, &node.name, held.get(&node.id)?)));
    let mut offline: Vec<_> = offline
        .map(|(node_id, name, &resources)| Object(OfflineNode { node_id, name: name.clone(), resources }))
        .collect();
    offline.sort_by_key(|node| node.0.node_id);
    remaining.on_offline_nodes = offline.iter().map(|node| node.0.resources).sum();
    remaining.offline_nodes = offline;
    remaining
}
