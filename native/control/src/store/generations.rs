//! Selections by generation: the current one, and those that something still uses (deployment §3.2, §4.6).

use std::collections::BTreeSet;

use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::deployment::{Deployment, retention};
use palisade_core::units::Generation;
use sqlx::Row as _;

use super::{Columns, Result, StoreError, Timestamp, Tx};

impl Tx {
    /// The specification of a generation, current or superseded; `None` when it is not stored (any more) or is none.
    pub async fn specification(
        &mut self,
        deployment: &Deployment,
        generation: Generation,
    ) -> Result<Option<Specification>> {
        if deployment.target() == Some(generation) {
            return Ok(deployment.specification().cloned());
        }
        let row = sqlx::query(
            "SELECT provider_kind, specification FROM runtime_deployment_generations WHERE generation = $1",
        )
        .bind(signed(generation))
        .fetch_optional(&mut **self)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let provider = Provider::from_name(&row.text("provider_kind")?);
        let provider = provider.ok_or(StoreError::Corrupt { column: "provider_kind" })?;
        Ok(Specification::parse(provider, row.text("specification")?.as_bytes()).ok())
    }

    /// Generations that an unreleased placement or allocation, or a node's pin, refers to.
    pub async fn referenced_generations(&mut self) -> Result<BTreeSet<u64>> {
        self.generation_set(
            "SELECT deployment_generation FROM runtime_placements WHERE released_at IS NULL \
             UNION SELECT deployment_generation FROM runtime_allocations WHERE state <> 'released' \
             UNION SELECT ready_generation FROM runtime_nodes \
             WHERE removed_at IS NULL AND ready_generation IS NOT NULL",
        )
        .await
    }

    async fn generation_set(&mut self, query: &'static str) -> Result<BTreeSet<u64>> {
        let rows = sqlx::query(query).fetch_all(&mut **self).await?;
        let generations = rows.iter().map(|row| {
            u64::try_from(row.try_get::<i64, _>(0)?).map_err(|_| StoreError::Corrupt { column: "generation" })
        });
        generations.collect()
    }

    /// Copies the current selection to the superseded ones when something refers to it. Call it before the next one is
    /// stored, under the deployment's lock.
    pub async fn retain_current(&mut self, deployment: &Deployment, now: Timestamp) -> Result<()> {
        if !retention::is_retained(deployment.generation, &self.referenced_generations().await?) {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO runtime_deployment_generations \
             (generation, provider_kind, specification, provider_config, provider_metadata, created_at) \
             SELECT generation, provider_kind, specification, provider_config, provider_metadata, $1 \
             FROM runtime_deployment WHERE singleton = 1",
        )
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    /// Deletes superseded selections that nothing refers to any more, lowest first, a few at a time. Returns how many.
    pub async fn collect_generations(&mut self, current: u64) -> Result<usize> {
        let retained = self.generation_set("SELECT generation FROM runtime_deployment_generations").await?;
        if retained.is_empty() {
            return Ok(0);
        }
        let referenced = self.referenced_generations().await?;
        let collectable = retention::collectable(current, &retained, &referenced);
        for generation in &collectable {
            sqlx::query("DELETE FROM runtime_deployment_generations WHERE generation = $1")
                .bind(i64::try_from(*generation).unwrap_or(i64::MAX))
                .execute(&mut **self)
                .await?;
        }
        Ok(collectable.len())
    }
}

/// A generation as the schema holds it.
#[must_use]
pub(crate) fn signed(generation: Generation) -> i64 {
    i64::try_from(generation.get()).expect("a generation is at most 2^63 - 1")
}
