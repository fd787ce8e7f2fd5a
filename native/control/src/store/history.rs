//! Samples of the hosts (deployment §8.2).

use palisade_core::deployment::history::Sample;
use palisade_core::limits::ONLINE_AGE_MS;
use palisade_core::units::{Id, OwnerEpoch};

use sqlx::any::AnyRow;

use super::presence::epoch;
use super::{Columns, Result, Store, Timestamp, Tx};
use crate::limits::{HISTORY_KEPT_MS, HISTORY_PRUNED_MAX, HOSTS_SAMPLED_MAX};

const ONLINE_AGE: i64 = ONLINE_AGE_MS.cast_signed();

/// Sorts after every canonical UUID.
const ABOVE_IDS: &str = "g";

impl Store {
    /// The owner's regular work: samples the hosts, drops a few samples and generations that are not needed any more.
    ///
    /// Hosts are sampled a few at a time: heartbeats do not wait until all of a large fleet are copied.
    pub async fn keep_up(&self, owner: OwnerEpoch) -> Result<()> {
        let mut after = String::new();
        loop {
            let mut tx = self.write().await?;
            let deployment = tx.fence(owner).await?;
            let now = tx.now().await?;
            let last = tx.last_sampled(&after).await?;
            tx.sample_hosts(owner, now, &after, last.as_deref().unwrap_or(ABOVE_IDS)).await?;
            // As many as are added, so that the history of a fleet of any size stays bounded.
            tx.prune_hosts(now).await?;
            let Some(last) = last else {
                tx.collect_generations(deployment.generation).await?;
                return tx.commit().await;
            };
            tx.commit().await?;
            after = last;
        }
    }
}

impl Tx {
    /// The last node of the next few after one; `None` when fewer are left.
    async fn last_sampled(&mut self, after: &str) -> Result<Option<String>> {
        let row = sqlx::query("SELECT id FROM runtime_nodes WHERE id > $1 ORDER BY id LIMIT 1 OFFSET $2")
            .bind(after)
            .bind(HOSTS_SAMPLED_MAX - 1)
            .fetch_optional(&mut **self)
            .await?;
        row.map(|row| row.text("id")).transpose()
    }

    /// Copies the last observation of every online node in a range of ids, unless it is old.
    async fn sample_hosts(&mut self, owner: OwnerEpoch, now: Timestamp, after: &str, last: &str) -> Result<()> {
        sqlx::query(
            "INSERT INTO node_host_history_samples \
             (node_id, observed_at, cpu_utilization, memory_used_bytes, available_disk_bytes) \
             SELECT id, health_observed_at, cpu_utilization, \
             CASE WHEN total_memory_bytes >= available_memory_bytes \
               THEN total_memory_bytes - available_memory_bytes END, available_disk_bytes \
             FROM runtime_nodes WHERE removed_at IS NULL AND connection_id IS NOT NULL AND connected_epoch = $1 \
             AND last_seen_at > $2 AND health_observed_at > $2 AND health_observed_at <= $3 \
             AND id > $4 AND id <= $5 ON CONFLICT DO NOTHING",
        )
        .bind(epoch(owner))
        .bind(now.0 - ONLINE_AGE)
        .bind(now.0)
        .bind(after)
        .bind(last)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn prune_hosts(&mut self, now: Timestamp) -> Result<()> {
        sqlx::query(
            "DELETE FROM node_host_history_samples WHERE (node_id, observed_at) IN \
             (SELECT node_id, observed_at FROM node_host_history_samples WHERE observed_at < $1 \
              ORDER BY observed_at LIMIT $2)",
        )
        .bind(now.0 - HISTORY_KEPT_MS)
        .bind(HISTORY_PRUNED_MAX)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    /// The samples of a node from `start` on, oldest first.
    pub async fn host_samples(&mut self, node: Id, start: Timestamp) -> Result<Vec<Sample>> {
        let rows = sqlx::query(
            "SELECT observed_at, cpu_utilization, memory_used_bytes, available_disk_bytes \
             FROM node_host_history_samples WHERE node_id = $1 AND observed_at >= $2 ORDER BY observed_at",
        )
        .bind(node.to_string())
        .bind(start.0)
        .fetch_all(&mut **self)
        .await?;
        let sample = |row: &AnyRow| {
            Ok(Sample {
                observed_at: row.time("observed_at")?,
                cpu_utilization: row.float_opt("cpu_utilization")?,
                memory_used_bytes: row.count_opt("memory_used_bytes")?,
                available_disk_bytes: row.count_opt("available_disk_bytes")?,
            })
        };
        rows.iter().map(sample).collect()
    }
}
