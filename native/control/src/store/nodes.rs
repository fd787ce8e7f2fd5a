//! Nodes with what they hold and said (deployment §3.3, §3.5).

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::admin::node::{Allocation, AllocationDiagnostic, AllocationState, ComputePhase};
use palisade_core::deployment::capacity::Capacity;
use palisade_core::deployment::node::{Counts, Measurements, Node};
use palisade_core::session::hub::presence::{Connected, Standing, Status};
use palisade_core::units::{Id, OwnerEpoch};
use palisade_core::wire::payload::{Checkpoint, Diagnostic, Observation, ObservedState};
use serde::de::DeserializeOwned;
use sqlx::any::AnyRow;

use super::{Columns, Result, StoreError, Timestamp, Tx};
use crate::limits::ALLOCATIONS_LISTED_MAX;

/// Nodes with counts of what they hold. Each table is read once, however many nodes there are; allocations are counted
/// under the condition of their index.
fn nodes_query(of_node: &str, only: &str) -> String {
    format!(
        "WITH placed AS (SELECT p.node_id, COUNT(*) AS retained, COUNT(*) FILTER (WHERE a.id IS NULL) AS reserved, \
           COUNT(*) FILTER (WHERE a.id IS NULL OR a.compute_phase <> 'suspended') AS active \
           FROM runtime_placements p LEFT JOIN runtime_allocations a ON a.environment_id = p.environment_id \
           WHERE p.released_at IS NULL {of_node} GROUP BY p.node_id), \
         allocated AS (SELECT p.node_id, COUNT(*) FILTER (WHERE p.state = 'cleanup_pending') AS cleanup_pending, \
           COUNT(*) FILTER (WHERE p.state = 'running' AND p.compute_phase IN ('running', 'disabled')) AS running, \
           COUNT(*) FILTER (WHERE p.compute_snapshot = 1) AS snapshots \
           FROM runtime_allocations p WHERE p.state <> 'released' {of_node} GROUP BY p.node_id) \
         SELECT n.id, n.installation_id, n.name, n.core_url, n.enrollment_id, n.created_at, n.max_active, \
         n.max_retained, n.ready_generation, n.connection_id, n.connected_epoch, n.last_seen_at, n.health_observed_at, \
         n.cpu_count, n.effective_cpu_cores, n.cpu_utilization, n.total_memory_bytes, n.available_memory_bytes, \
         n.available_disk_bytes, placed.retained, placed.active, placed.reserved, allocated.cleanup_pending, \
         allocated.running, allocated.snapshots FROM runtime_nodes n LEFT JOIN placed ON placed.node_id = n.id \
         LEFT JOIN allocated ON allocated.node_id = n.id \
         WHERE n.installation_id = $1 AND n.removed_at IS NULL {only}"
    )
}

const STATUSES: &str = "SELECT node_id, generation, specification_digest, connection_id, owner_epoch, state, diagnostic, \
     artifact_domain, execution_class FROM runtime_node_generation_status";

/// Generations of unreleased placements and allocations on some nodes.
const HELD: &str = "SELECT node_id, deployment_generation FROM runtime_placements \
     WHERE released_at IS NULL AND node_id IN (IDS) \
     UNION SELECT node_id, deployment_generation FROM runtime_allocations \
     WHERE state <> 'released' AND node_id IN (IDS)";

impl Tx {
    /// The nodes of an installation that are not removed, in the order of their ids. Which generations they hold is left
    /// out: only what a node itself asks needs it, and that reads [`Tx::node`].
    pub async fn nodes(&mut self, installation: Id) -> Result<Vec<Node>> {
        let query = sqlx::query(sqlx::AssertSqlSafe(nodes_query("", "")));
        let rows = query.bind(installation.to_string()).fetch_all(&mut **self).await?;
        let statuses = sqlx::query(STATUSES).fetch_all(&mut **self).await?;
        compose(&rows, &statuses, &[])
    }

    /// One node of an installation, unless it is removed.
    pub async fn node(&mut self, id: Id, installation: Id) -> Result<Option<Node>> {
        let query = nodes_query("AND p.node_id = $2", "AND n.id = $2");
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(installation.to_string()).bind(id.to_string());
        let rows = query.fetch_all(&mut **self).await?;
        let only = BTreeSet::from([id]);
        let (statuses, held) = (self.statuses_of(&only).await?, self.held_by(&only).await?);
        Ok(compose(&rows, &statuses, &held)?.pop())
    }

    /// What the connections of one node recorded, whatever its installation; `None` when it is unknown or removed.
    pub async fn standing(&mut self, id: Id) -> Result<Option<Standing>> {
        Ok(self.standings(&BTreeSet::from([id]), "").await?.remove(&id))
    }

    /// [`Tx::standing`] of several nodes; `locking` ends the query that reads their rows.
    pub(super) async fn standings(&mut self, ids: &BTreeSet<Id>, locking: &str) -> Result<BTreeMap<Id, Standing>> {
        let mut standings = self.pins(ids, locking).await?;
        let (statuses, held) = (self.statuses_of(ids).await?, self.held_by(ids).await?);
        read_said(&statuses, &held, &mut standings.iter_mut().map(|(id, standing)| (*id, standing)).collect())?;
        Ok(standings)
    }

    /// [`Tx::standings`] without what the nodes said and hold.
    pub(super) async fn pins(&mut self, ids: &BTreeSet<Id>, locking: &str) -> Result<BTreeMap<Id, Standing>> {
        let query = "SELECT id, installation_id, ready_generation, connection_id, connected_epoch, last_seen_at \
             FROM runtime_nodes WHERE removed_at IS NULL AND id IN";
        let rows = self.rows_of(&format!("{query} (IDS){locking}"), ids).await?;
        rows.iter().map(|row| Ok((row.id("id")?, read_standing(row, row.id("installation_id")?)?))).collect()
    }

    async fn statuses_of(&mut self, ids: &BTreeSet<Id>) -> Result<Vec<AnyRow>> {
        self.rows_of(&format!("{STATUSES} WHERE node_id IN (IDS)"), ids).await
    }

    async fn held_by(&mut self, ids: &BTreeSet<Id>) -> Result<Vec<AnyRow>> {
        self.rows_of(HELD, ids).await
    }

    /// The rows of a query, in which `IDS` stands for these ids.
    pub(super) async fn rows_of(&mut self, query: &str, ids: &BTreeSet<Id>) -> Result<Vec<AnyRow>> {
        let Some(last) = ids.last() else { return Ok(Vec::new()) };
        // A few lengths only, so that the database keeps the statements it has prepared.
        let places = ids.len().next_power_of_two();
        let names: Vec<String> = (1..=places).map(|place| format!("${place}")).collect();
        let query = query.replace("IDS", &names.join(", "));
        let padded = ids.iter().chain(std::iter::repeat(last)).take(places);
        let query = padded.fold(sqlx::query(sqlx::AssertSqlSafe(query)), |query, id| query.bind(id.to_string()));
        Ok(query.fetch_all(&mut **self).await?)
    }

    /// Stores what an administrator changed. The node was read under the deployment's lock.
    pub async fn update_node(&mut self, id: Id, name: &str, capacity: Capacity) -> Result<()> {
        sqlx::query("UPDATE runtime_nodes SET name = $2, max_active = $3, max_retained = $4 WHERE id = $1")
            .bind(id.to_string())
            .bind(name)
            .bind(i64::from(capacity.max_active))
            .bind(i64::from(capacity.max_retained))
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// Marks a node removed: its credential is good for nothing any more, its pin and connection are gone, and its id
    /// stays taken.
    pub async fn remove_node(&mut self, id: Id, now: Timestamp) -> Result<()> {
        sqlx::query(
            "UPDATE runtime_nodes SET removed_at = $2, connection_id = NULL, connected_epoch = NULL, \
             ready_generation = NULL WHERE id = $1 AND removed_at IS NULL",
        )
        .bind(id.to_string())
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        sqlx::query("DELETE FROM runtime_node_generation_status WHERE node_id = $1")
            .bind(id.to_string())
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// The unreleased allocations of a node, oldest first (deployment §1.11).
    pub async fn node_allocations(&mut self, node: Id) -> Result<Vec<Allocation>> {
        let rows = sqlx::query(
            "SELECT a.id, a.node_id, a.deployment_generation, a.observation_error, a.state, a.compute_phase, \
             a.compute_phase_changed_at, a.created_at, a.environment_id, e.initialization, s.id AS session_id, \
             s.tenant_id FROM runtime_allocations a JOIN environments e ON e.id = a.environment_id \
             JOIN sessions s ON s.id = e.session_id WHERE a.node_id = $1 AND a.state <> 'released' \
             ORDER BY a.created_at, a.id LIMIT $2",
        )
        .bind(node.to_string())
        .bind(ALLOCATIONS_LISTED_MAX)
        .fetch_all(&mut **self)
        .await?;
        rows.iter().map(read_allocation).collect()
    }
}

/// Nodes in the order of their ids, from the rows of the three queries about them.
fn compose(rows: &[AnyRow], statuses: &[AnyRow], held: &[AnyRow]) -> Result<Vec<Node>> {
    let nodes = rows.iter().map(|row| Ok((row.id("id")?, read_node(row)?)));
    let mut nodes = nodes.collect::<Result<BTreeMap<_, _>>>()?;
    read_said(statuses, held, &mut nodes.iter_mut().map(|(id, node)| (*id, &mut node.standing)).collect())?;
    Ok(nodes.into_values().collect())
}

/// Adds what nodes said and what they hold.
fn read_said(statuses: &[AnyRow], held: &[AnyRow], nodes: &mut BTreeMap<Id, &mut Standing>) -> Result<()> {
    for row in statuses {
        if let Some(standing) = nodes.get_mut(&row.id("node_id")?) {
            let status = read_status(row)?;
            standing.statuses.insert(status.said.generation, status);
        }
    }
    for row in held {
        if let Some(standing) = nodes.get_mut(&row.id("node_id")?) {
            standing.held.insert(row.generation("deployment_generation")?);
        }
    }
    Ok(())
}

fn read_node(row: &AnyRow) -> Result<Node> {
    Ok(Node {
        id: row.id("id")?,
        name: row.text("name")?,
        core_url: row.text("core_url")?,
        enrollment_id: row.id_opt("enrollment_id")?,
        created_at: row.time("created_at")?,
        max_active: limit(row, "max_active")?,
        max_retained: limit(row, "max_retained")?,
        standing: read_standing(row, row.id("installation_id")?)?,
        counts: read_counts(row)?,
        measured: read_measurements(row)?,
    })
}

pub(super) fn limit(row: &AnyRow, column: &'static str) -> Result<u32> {
    row.int(column)?.try_into().map_err(|_| StoreError::Corrupt { column })
}

pub(super) fn read_standing(row: &AnyRow, installation: Id) -> Result<Standing> {
    Ok(Standing {
        connection: row.id_opt("connection_id")?,
        epoch: row.count_opt("connected_epoch")?.and_then(OwnerEpoch::new),
        last_seen_at: row.time_opt("last_seen_at")?,
        pin: row.generation_opt("ready_generation")?,
        ..Standing::enrolled(installation)
    })
}

/// A node that holds nothing has no counts.
fn read_counts(row: &AnyRow) -> Result<Counts> {
    Ok(Counts {
        running: row.count_opt("running")?.unwrap_or(0),
        snapshots: row.count_opt("snapshots")?.unwrap_or(0),
        active: row.count_opt("active")?.unwrap_or(0),
        reserved: row.count_opt("reserved")?.unwrap_or(0),
        retained: row.count_opt("retained")?.unwrap_or(0),
        cleanup_pending: row.count_opt("cleanup_pending")?.unwrap_or(0),
    })
}

fn read_measurements(row: &AnyRow) -> Result<Measurements> {
    Ok(Measurements {
        cpu_count: row.count_opt("cpu_count")?,
        effective_cpu_cores: row.float_opt("effective_cpu_cores")?,
        cpu_utilization: row.float_opt("cpu_utilization")?,
        total_memory_bytes: row.count_opt("total_memory_bytes")?,
        available_memory_bytes: row.count_opt("available_memory_bytes")?,
        available_disk_bytes: row.count_opt("available_disk_bytes")?,
        observed_at: row.time_opt("health_observed_at")?,
    })
}

fn read_status(row: &AnyRow) -> Result<Status> {
    let owner_epoch = OwnerEpoch::new(row.count("owner_epoch")?);
    let by = Connected {
        connection_id: row.id("connection_id")?,
        owner_epoch: owner_epoch.ok_or(StoreError::Corrupt { column: "owner_epoch" })?,
    };
    let diagnostic = Diagnostic::from_code(&row.text("diagnostic")?);
    let state = match row.text("state")?.as_str() {
        "ready" => ObservedState::Ready { checkpoint: read_checkpoint(row)? },
        "preparing" => ObservedState::Preparing { diagnostic },
        "failed" => ObservedState::Failed { diagnostic },
        _ => return Err(StoreError::Corrupt { column: "state" }),
    };
    let said = Observation {
        generation: row.generation("generation")?,
        specification_digest: row.digest("specification_digest")?,
        state,
    };
    Ok(Status { by, said })
}

fn read_checkpoint(row: &AnyRow) -> Result<Option<Checkpoint<'static>>> {
    let tokens = row.text_opt("artifact_domain")?.zip(row.text_opt("execution_class")?);
    Ok(tokens.map(|(domain, class)| Checkpoint { artifact_domain: domain.into(), execution_class: class.into() }))
}

fn read_allocation(row: &AnyRow) -> Result<Allocation> {
    Ok(Allocation {
        deployment_generation: row.generation("deployment_generation")?,
        diagnostic: named::<AllocationDiagnostic>(row, "observation_error")?,
        id: row.id("id")?,
        node_id: row.id("node_id")?,
        tenant_id: row.id("tenant_id")?,
        session_id: row.id("session_id")?,
        environment_id: row.id("environment_id")?,
        state: named::<AllocationState>(row, "state")?,
        compute_phase: named::<ComputePhase>(row, "compute_phase")?,
        compute_phase_changed_at: row.time_opt("compute_phase_changed_at")?,
        initialization: row.text("initialization")?,
        created_at: row.time("created_at")?,
    })
}

/// A value of an enumeration by the name that its answers use.
fn named<T: DeserializeOwned>(row: &AnyRow, column: &'static str) -> Result<T> {
    T::deserialize(serde::de::value::StringDeserializer::<serde::de::value::Error>::new(row.text(column)?))
        .map_err(|_| StoreError::Corrupt { column })
}
