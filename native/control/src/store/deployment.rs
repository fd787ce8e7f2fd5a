//! The active selection (deployment §3.1).

use palisade_core::deployment::contract::{Mode, Provider, Suspension};
use palisade_core::deployment::specification::Specification;
use palisade_core::units::{Digest, Generation, Id};
use sqlx::any::AnyRow;

use super::{Columns, Result, StoreError, Timestamp, Tx};

/// The one row of `runtime_deployment`, as it stands.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// `None` until an owner has claimed the installation.
    pub installation: Option<Id>,
    /// False only for a row that another program manages; Core then starts nothing.
    pub web_managed: bool,
    /// 0 before the first selection; never goes back.
    pub generation: u64,
    /// Fencing number of the owner, 0 before the first claim.
    pub owner_epoch: u64,
    /// What is selected; `None` while unconfigured.
    pub selection: Option<Selection>,
    /// No new Session is admitted. Equal to "a reset is active".
    pub admission_paused: bool,
    /// The active reset.
    pub reset: Option<Reset>,
}

/// A selection, as stored. The specification is checked when it is used, never trusted ([`Selection::specification`]).
#[derive(Debug, Clone)]
pub struct Selection {
    /// Which provider.
    pub provider: Provider,
    /// Where its sandboxes run.
    pub mode: Mode,
    /// Namespace digest of the backend.
    pub backend_fingerprint: Digest,
    /// Stored specification text.
    pub specification: String,
    /// Adapter-encoded configuration, a JSON object.
    pub configuration: String,
    /// Adapter-encoded metadata, a JSON object.
    pub metadata: String,
    /// Sealed credential.
    pub credential: Option<Vec<u8>>,
    /// Suspension policy.
    pub suspension: Option<Suspension>,
}

impl Selection {
    /// The stored specification, checked again; `None` when it no longer is one (409 `sandbox_deployment_conflict`).
    #[must_use]
    pub fn specification(&self) -> Option<Specification> {
        Specification::parse(self.provider, self.specification.as_bytes()).ok()
    }
}

/// An active reset (deployment §4.2).
#[derive(Debug, Clone)]
pub struct Reset {
    /// `force` archives busy Sessions too.
    pub force: bool,
    /// Identity of this reset.
    pub requested_at: Timestamp,
    /// When `auto` becomes `force`.
    pub deadline_at: Option<Timestamp>,
    /// When it became `force`.
    pub forced_at: Option<Timestamp>,
}

impl Deployment {
    /// The current target, when something is selected.
    #[must_use]
    pub fn target(&self) -> Option<Generation> {
        self.selection.as_ref().and_then(|_| Generation::new(self.generation))
    }

    fn read(row: &AnyRow) -> Result<Self> {
        Ok(Self {
            installation: row.id_opt("installation_id")?,
            web_managed: row.flag("web_managed")?,
            generation: row.count("generation")?,
            owner_epoch: row.count("owner_epoch")?,
            selection: Selection::read(row)?,
            admission_paused: row.flag("admission_paused")?,
            reset: Reset::read(row)?,
        })
    }
}

impl Selection {
    fn read(row: &AnyRow) -> Result<Option<Self>> {
        let name = row.text("provider_kind")?;
        if name.is_empty() {
            return Ok(None);
        }
        let provider = Provider::from_name(&name).ok_or(StoreError::Corrupt { column: "provider_kind" })?;
        Ok(Some(Self {
            provider,
            mode: provider.rule().mode,
            backend_fingerprint: row.digest("backend_fingerprint")?,
            specification: row.text("specification")?,
            configuration: row.text("provider_config")?,
            metadata: row.text("provider_metadata")?,
            credential: row.bytes_opt("provider_credential")?,
            suspension: read_suspension(row)?,
        }))
    }
}

fn read_suspension(row: &AnyRow) -> Result<Option<Suspension>> {
    let (idle_seconds, retention_seconds) = (row.count("idle_seconds")?, row.count("retention_seconds")?);
    Ok((idle_seconds > 0).then_some(Suspension { idle_seconds, retention_seconds }))
}

impl Reset {
    fn read(row: &AnyRow) -> Result<Option<Self>> {
        let Some(clear) = row.text_opt("reset_clear")? else { return Ok(None) };
        Ok(Some(Self {
            force: clear == "force",
            requested_at: row.time("reset_requested_at")?,
            deadline_at: row.time_opt("reset_deadline_at")?,
            forced_at: row.time_opt("reset_forced_at")?,
        }))
    }
}

impl Tx {
    /// Reads the deployment without locking it.
    pub async fn deployment(&mut self) -> Result<Deployment> {
        let row = sqlx::query(
            "SELECT installation_id, web_managed, provider_kind, backend_fingerprint, generation, owner_epoch, \
             specification, provider_config, provider_metadata, provider_credential, idle_seconds, \
             retention_seconds, admission_paused, reset_clear, reset_requested_at, reset_deadline_at, \
             reset_forced_at FROM runtime_deployment WHERE singleton = 1",
        )
        .fetch_one(&mut **self)
        .await?;
        Deployment::read(&row)
    }

    /// Claims the installation for a new owner: takes `fresh` as its identity when it has none yet, and raises the
    /// epoch, which fences every earlier owner (deployment §3.6).
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
}
