//! The active selection (deployment §3.1).

use palisade_core::admin::deployment::{Clear, Configuration, Held, Metadata};
use palisade_core::deployment::contract::{Mode, Provider};
use palisade_core::deployment::selection::Commit;
use palisade_core::deployment::specification::Specification;
use palisade_core::deployment::view::Counted;
use palisade_core::deployment::{Deployment, Reset, Selected};
use palisade_core::strict;
use palisade_core::units::{Digest, Id, OwnerEpoch};
use sqlx::any::AnyRow;

use super::generations::signed;
use super::{Columns, Result, StoreError, Tx};

impl Tx {
    /// Reads the deployment without locking it.
    pub async fn deployment(&mut self) -> Result<Deployment> {
        self.read_deployment("").await
    }

    pub(super) async fn read_deployment(&mut self, locking: &'static str) -> Result<Deployment> {
        let query = format!(
            "SELECT installation_id, web_managed, provider_kind, generation, owner_epoch, specification, \
             provider_config, provider_metadata, \
             CASE WHEN provider_credential IS NULL THEN 0 ELSE 1 END AS credential_configured, \
             admission_paused, reset_clear, reset_requested_at, reset_deadline_at, reset_forced_at \
             FROM runtime_deployment WHERE singleton = 1{locking}"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(query)).fetch_one(&mut **self).await?;
        Ok(Deployment {
            installation: row.id_opt("installation_id")?,
            web_managed: row.flag("web_managed")?,
            generation: row.count("generation")?,
            owner_epoch: OwnerEpoch::new(row.count("owner_epoch")?),
            core_url: self.public_url().to_owned(),
            admission_paused: row.flag("admission_paused")?,
            reset: read_reset(&row)?,
            selected: read_selected(&row)?,
        })
    }

    /// Claims the installation for a new owner: takes `fresh` as its identity when it has none yet, and raises the
    /// epoch, which fences every earlier owner (deployment §3.6). Changes nothing in a row that another program
    /// manages.
    pub async fn claim(&mut self, fresh: Id) -> Result<Deployment> {
        sqlx::query(
            "UPDATE runtime_deployment SET owner_epoch = owner_epoch + 1, \
             installation_id = COALESCE(installation_id, $1) WHERE singleton = 1 AND web_managed = 1",
        )
        .bind(fresh.to_string())
        .execute(&mut **self)
        .await?;
        self.deployment().await
    }

    /// Stores a decided selection with its sealed credential, under the deployment's lock.
    pub async fn select(&mut self, commit: &Commit, installation: Id, credential: Option<Vec<u8>>) -> Result<()> {
        let rule = commit.specification.provider().rule();
        let suspension = rule.suspension.map_or((0, 0), |policy| (policy.idle_seconds, policy.retention_seconds));
        sqlx::query(
            "UPDATE runtime_deployment SET provider_kind = $1, mode = $2, backend_fingerprint = $3, generation = $4, \
             specification = $5, provider_config = $6, provider_metadata = $9, provider_credential = $10, \
             idle_seconds = $7, retention_seconds = $8 WHERE singleton = 1",
        )
        .bind(rule.name)
        .bind(mode_name(rule.mode))
        .bind(backend_fingerprint(commit.specification.provider(), installation).to_string())
        .bind(signed(commit.generation))
        .bind(commit.specification.stored())
        .bind(json(&commit.configuration))
        .bind(i64::try_from(suspension.0).unwrap_or(i64::MAX))
        .bind(i64::try_from(suspension.1).unwrap_or(i64::MAX))
        .bind(json(&commit.metadata))
        .bind(credential)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    /// Records what the provider said of the current selection, which stays.
    pub async fn record_metadata(&mut self, metadata: &Metadata) -> Result<()> {
        sqlx::query("UPDATE runtime_deployment SET provider_metadata = $1 WHERE singleton = 1")
            .bind(json(metadata))
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// The credential of the current selection, sealed for its generation.
    pub async fn sealed_credential(&mut self) -> Result<Option<Vec<u8>>> {
        let row = sqlx::query("SELECT provider_credential FROM runtime_deployment WHERE singleton = 1")
            .fetch_one(&mut **self)
            .await?;
        row.bytes_opt("provider_credential")
    }

    /// Counts what the Deployment view shows beside the row (deployment §3.5), except what a reset waits for.
    pub async fn counted(&mut self, deployment: &Deployment) -> Result<Counted> {
        let row = sqlx::query(
            "SELECT allocated.allocations, allocated.previous_allocations, \
             (SELECT COUNT(*) FROM environments e JOIN sessions s ON s.id = e.session_id \
               WHERE e.status = 'pending' AND s.deleted_at IS NULL AND s.environment_type = 'openai_hosted' \
               AND NOT EXISTS (SELECT 1 FROM runtime_allocations a WHERE a.environment_id = e.id)) AS pending, \
             (SELECT COUNT(*) FROM runtime_placements p WHERE p.released_at IS NULL AND p.deployment_generation <> $1 \
               AND NOT EXISTS (SELECT 1 FROM runtime_allocations a WHERE a.environment_id = p.environment_id)) \
               AS previous_placements \
             FROM (SELECT COUNT(*) AS allocations, \
               COUNT(*) FILTER (WHERE deployment_generation <> $1) AS previous_allocations \
               FROM runtime_allocations WHERE state <> 'released') allocated",
        )
        .bind(i64::try_from(deployment.generation).unwrap_or(i64::MAX))
        .fetch_one(&mut **self)
        .await?;
        Ok(Counted {
            held: Held { allocations: row.count("allocations")?, pending: row.count("pending")? },
            previous_generation_sandboxes: row.count("previous_allocations")? + row.count("previous_placements")?,
            ..Counted::default()
        })
    }
}

/// The namespace digest of a selection's backend (deployment §0).
#[must_use]
pub fn backend_fingerprint(provider: Provider, installation: Id) -> Digest {
    let rule = provider.rule();
    let namespace = match rule.mode {
        Mode::Nodes => mode_name(rule.mode),
        Mode::Direct => rule.name,
    };
    Digest::of(format!("{}\0{namespace}:{installation}", rule.name).as_bytes())
}

const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Nodes => "nodes",
        Mode::Direct => "direct",
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a struct of texts always serialises")
}

fn read_selected(row: &AnyRow) -> Result<Option<Selected>> {
    let name = row.text("provider_kind")?;
    if name.is_empty() {
        return Ok(None);
    }
    let provider = Provider::from_name(&name).ok_or(StoreError::Corrupt { column: "provider_kind" })?;
    let specification = Specification::parse(provider, row.text("specification")?.as_bytes()).ok();
    let configuration: Option<Configuration> = strict::object(row.text("provider_config")?.as_bytes()).ok();
    Ok(Some(Selected {
        provider,
        // What no longer decodes is one conflict, whichever part it is.
        specification: specification.filter(|_| configuration.is_some()),
        configuration: configuration.unwrap_or_default(),
        metadata: strict::object::<Metadata>(row.text("provider_metadata")?.as_bytes()).unwrap_or_default(),
        credential_configured: row.flag("credential_configured")?,
    }))
}

fn read_reset(row: &AnyRow) -> Result<Option<Reset>> {
    let Some(clear) = row.text_opt("reset_clear")? else { return Ok(None) };
    Ok(Some(Reset {
        clear: if clear == "force" { Clear::Force } else { Clear::Auto },
        requested_at: row.time("reset_requested_at")?,
        deadline_at: row.time_opt("reset_deadline_at")?,
        forced_at: row.time_opt("reset_forced_at")?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_the_documented_fingerprint() {
        let installation = Id::parse("94be54a1-138c-4f30-bc87-b13686272dbe").unwrap();
        for (provider, fingerprint) in [
            (Provider::Docker, "b5bb06f3dd578abae01195fe4b5da86b5fe27e72868c8f7fe1df158895370e34"),
            (Provider::Microsandbox, "cbdae4ca84701116bc2e1154adfa4324fc4895fe2871246fba8442b2404f35be"),
            (Provider::E2b, "ab11a98ed2dc680105b5145364f772bddd57f9d283b4c0fe155900cdb9e1c76b"),
        ] {
            assert_eq!(backend_fingerprint(provider, installation).to_string(), fingerprint);
        }
    }
}
