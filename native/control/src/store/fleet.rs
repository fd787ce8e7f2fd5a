//! What decisions about the whole fleet look at, and no more (deployment §1.1.1, §5.1).
//!
//! A fleet has a thousand nodes and ten thousand sandboxes: each table is read once, in one statement, and only in the
//! columns that the decision needs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use palisade_core::deployment::Deployment;
use palisade_core::deployment::admission::Candidate;
use palisade_core::session::hub::presence::{Connected, Standing, Status};
use palisade_core::units::{Id, OwnerEpoch};
use palisade_core::wire::payload::{Observation, ObservedState};
use sqlx::any::AnyRow;

use super::nodes::{limit, read_standing};
use super::{Columns, Result, StoreError, Tx};

/// One row for each node that said nothing, or for each thing that it said of its pin and of the target `$2`.
const CANDIDATES: &str = "WITH placed AS (SELECT p.node_id, COUNT(*) AS retained, \
       COUNT(*) FILTER (WHERE a.id IS NULL OR a.compute_phase <> 'suspended') AS active \
       FROM runtime_placements p LEFT JOIN runtime_allocations a ON a.environment_id = p.environment_id \
       WHERE p.released_at IS NULL GROUP BY p.node_id) \
     SELECT n.id, n.core_url, n.max_active, n.max_retained, n.ready_generation, n.connection_id, n.connected_epoch, \
     n.last_seen_at, placed.retained, placed.active, s.generation, s.specification_digest, \
     s.connection_id AS said_on, s.owner_epoch, s.state FROM runtime_nodes n \
     LEFT JOIN placed ON placed.node_id = n.id \
     LEFT JOIN runtime_node_generation_status s ON s.node_id = n.id AND s.generation IN (n.ready_generation, $2) \
     WHERE n.installation_id = $1 AND n.removed_at IS NULL";

/// One row for each node, with what it said of the target `$2`.
const TARGETED: &str = "SELECT n.ready_generation, n.connection_id, n.connected_epoch, n.last_seen_at, \
     s.generation, s.specification_digest, s.connection_id AS said_on, s.owner_epoch, s.state FROM runtime_nodes n \
     LEFT JOIN runtime_node_generation_status s ON s.node_id = n.id AND s.generation = $2 \
     WHERE n.installation_id = $1 AND n.removed_at IS NULL";

impl Tx {
    /// What the choice among the nodes of an installation looks at. What they said comes without diagnostic and tokens.
    pub async fn candidates(&mut self, installation: Id, deployment: &Deployment) -> Result<Vec<Candidate>> {
        let rows = self.of_target(CANDIDATES, installation, deployment).await?;
        let mut candidates = BTreeMap::new();
        for row in &rows {
            let id = row.id("id")?;
            let candidate = match candidates.entry(id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(read_candidate(row, id, installation)?),
            };
            learn(&mut candidate.standing, row)?;
        }
        Ok(candidates.into_values().collect())
    }

    /// What the connections of each node of an installation recorded, with what it said of the target, in no order. What
    /// it said comes without diagnostic and tokens; what it holds is left out.
    pub async fn standings_of_target(&mut self, installation: Id, deployment: &Deployment) -> Result<Vec<Standing>> {
        let rows = self.of_target(TARGETED, installation, deployment).await?;
        let read = |row: &AnyRow| {
            let mut standing = read_standing(row, installation)?;
            learn(&mut standing, row)?;
            Ok(standing)
        };
        rows.iter().map(read).collect()
    }

    async fn of_target(
        &mut self,
        query: &'static str,
        installation: Id,
        deployment: &Deployment,
    ) -> Result<Vec<AnyRow>> {
        let query = sqlx::query(query).bind(installation.to_string());
        // Nobody says anything of generation 0.
        let query = query.bind(deployment.target().map_or(0, super::generations::signed));
        Ok(query.fetch_all(&mut **self).await?)
    }
}

fn read_candidate(row: &AnyRow, id: Id, installation: Id) -> Result<Candidate> {
    Ok(Candidate {
        id,
        core_url: row.text("core_url")?,
        max_active: limit(row, "max_active")?,
        max_retained: limit(row, "max_retained")?,
        active: row.count_opt("active")?.unwrap_or(0),
        retained: row.count_opt("retained")?.unwrap_or(0),
        standing: read_standing(row, installation)?,
    })
}

/// Adds what the node said, if the row has something of it.
fn learn(standing: &mut Standing, row: &AnyRow) -> Result<()> {
    let Some(generation) = row.generation_opt("generation")? else { return Ok(()) };
    let owner_epoch = OwnerEpoch::new(row.count("owner_epoch")?);
    let by = Connected {
        connection_id: row.id("said_on")?,
        owner_epoch: owner_epoch.ok_or(StoreError::Corrupt { column: "owner_epoch" })?,
    };
    let state = match row.text("state")?.as_str() {
        "ready" => ObservedState::Ready { checkpoint: None },
        "preparing" => ObservedState::Preparing { diagnostic: None },
        "failed" => ObservedState::Failed { diagnostic: None },
        _ => return Err(StoreError::Corrupt { column: "state" }),
    };
    let said = Observation { generation, specification_digest: row.digest("specification_digest")?, state };
    standing.statuses.insert(generation, Status { by, said });
    Ok(())
}
