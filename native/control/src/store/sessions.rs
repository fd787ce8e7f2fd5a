//! Sessions with their environments, and how their resources end (deployment §3.6, §1.14).

use palisade_core::admin::archive::Archive;
use palisade_core::deployment::admission::Placement;
use palisade_core::hosted::archive::{Archiving, Ending, Resources, Stage};
use palisade_core::hosted::observation::Subject;
use palisade_core::hosted::request::HOSTED;
use palisade_core::hosted::view::{Environment, EnvironmentStatus, Session, SessionObject, SessionStatus};
use palisade_core::limits::ONLINE_AGE_MS;
use palisade_core::units::{Generation, Id};
use sqlx::any::AnyRow;

use super::projects::Owner;
use super::{Columns, Result, StoreError, Timestamp, Tx};
use crate::limits::SESSIONS_LISTED_MAX;

/// A session row; a deleted one stays until its resources are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What is shown of it.
    pub view: Session,
    /// It was deleted.
    pub deleted: bool,
}

/// What a new session consists of.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    /// Chosen by Core.
    pub id: Id,
    /// Who asked.
    pub owner: Owner,
    /// Under which `Idempotency-Key`.
    pub idempotency_key: Option<&'a str>,
    /// `None` in direct mode.
    pub placement: Option<Placement>,
}

/// An allocation that runs, as the observation of it needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Whose.
    pub tenant: Id,
    /// Which installation created it.
    pub installation: Id,
    /// Where it is; `None` in direct mode.
    pub node: Option<Id>,
    /// Which generation carries out its operations.
    pub generation: Generation,
    /// Name of its compute phase.
    pub compute_phase: String,
    /// Opaque JSON text of the provider.
    pub compute_state: String,
}

/// A sandbox that runs where nobody can reach it is `disconnected`; that proves nothing about it. `$4` is the earliest
/// heartbeat of a node that is online.
const SESSIONS: &str = "SELECT s.id, s.created_at, s.deleted_at, s.environment_type, e.id AS environment_id, \
     CASE WHEN a.state = 'running' AND e.status IN ('pending', 'connected', 'disconnected') THEN \
       CASE WHEN a.node_id IS NULL OR EXISTS (SELECT 1 FROM runtime_nodes n JOIN runtime_deployment d \
         ON d.singleton = 1 AND d.owner_epoch = n.connected_epoch WHERE n.id = a.node_id \
         AND n.connection_id IS NOT NULL AND n.last_seen_at > $4) THEN 'connected' ELSE 'disconnected' END \
       ELSE e.status END AS status, \
     (SELECT COUNT(*) FROM turns t WHERE t.session_id = s.id AND t.completed_at IS NULL) AS open_turns \
     FROM sessions s JOIN environments e ON e.session_id = s.id \
     LEFT JOIN runtime_allocations a ON a.environment_id = e.id \
     WHERE s.project_id = $1 AND (s.id = $2 OR ($2 = '' AND s.deleted_at IS NULL)) \
     ORDER BY s.created_at DESC, s.id LIMIT $3";

impl Tx {
    /// The newest sessions of a project that are not deleted.
    pub async fn sessions(&mut self, project: Id) -> Result<Vec<Session>> {
        let stored = self.read_sessions(project, String::new()).await?;
        Ok(stored.into_iter().map(|stored| stored.view).collect())
    }

    /// A session of a project that is not deleted.
    pub async fn session(&mut self, id: Id, project: Id) -> Result<Option<Session>> {
        let stored = self.read_sessions(project, id.to_string()).await?.pop();
        Ok(stored.filter(|stored| !stored.deleted).map(|stored| stored.view))
    }

    /// The session that a project created under this key, deleted or not.
    pub async fn session_of_key(&mut self, project: Id, idempotency_key: &str) -> Result<Option<Session>> {
        let row = sqlx::query("SELECT id FROM sessions WHERE project_id = $1 AND idempotency_key = $2")
            .bind(project.to_string())
            .bind(idempotency_key)
            .fetch_optional(&mut **self)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let stored = self.read_sessions(project, row.text("id")?).await?.pop();
        Ok(stored.map(|stored| stored.view))
    }

    async fn read_sessions(&mut self, project: Id, only: String) -> Result<Vec<Stored>> {
        let online_since = self.now().await?.0 - i64::try_from(ONLINE_AGE_MS).expect("a small number");
        let rows = sqlx::query(SESSIONS)
            .bind(project.to_string())
            .bind(only)
            .bind(SESSIONS_LISTED_MAX)
            .bind(online_since)
            .fetch_all(&mut **self)
            .await?;
        rows.iter().map(read_session).collect()
    }

    /// Creates session, environment and placement, under the deployment's lock, and shows what it created.
    pub async fn create_session(&mut self, new: NewSession<'_>, now: Timestamp) -> Result<Session> {
        let environment = Id::from_random(rand::random());
        sqlx::query(
            "INSERT INTO sessions (id, project_id, tenant_id, environment_type, idempotency_key, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(new.id.to_string())
        .bind(new.owner.project.to_string())
        .bind(new.owner.tenant.to_string())
        .bind(HOSTED)
        .bind(new.idempotency_key.map(str::to_owned))
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        sqlx::query(
            "INSERT INTO environments (id, session_id, status, created_at, changed_at) VALUES ($1, $2, $3, $4, $4)",
        )
        .bind(environment.to_string())
        .bind(new.id.to_string())
        .bind("pending")
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        if let Some(placement) = new.placement {
            self.create_placement(environment, placement, now).await?;
        }
        let status = EnvironmentStatus::Pending;
        Ok(Session {
            id: new.id,
            object: SessionObject::Session,
            status: SessionStatus::Idle,
            created_at: now,
            environment: Environment { id: environment, r#type: HOSTED.to_owned(), status },
        })
    }

    async fn create_placement(&mut self, environment: Id, placement: Placement, now: Timestamp) -> Result<()> {
        let generation = i64::try_from(placement.generation.get()).expect("a generation is at most 2^63 - 1");
        sqlx::query(
            "INSERT INTO runtime_placements (environment_id, node_id, deployment_generation, reserved_at) \
             VALUES ($1, $2, $3, $4)",
        )
        .bind(environment.to_string())
        .bind(placement.node.to_string())
        .bind(generation)
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    /// Marks a session deleted and ends its resources, under the locks of session and deployment.
    pub async fn delete_session(&mut self, id: Id, now: Timestamp) -> Result<()> {
        let (environment, resources) = self.resources(id).await?;
        sqlx::query("UPDATE sessions SET deleted_at = $2 WHERE id = $1")
            .bind(id.to_string())
            .bind(now.0)
            .execute(&mut **self)
            .await?;
        self.end(environment, resources.ending(), now).await
    }

    /// Archives a session with its environment, under the locks of session and deployment.
    pub async fn archive_session(
        &mut self,
        id: Id,
        environment: Id,
        archiving: Archiving,
        now: Timestamp,
    ) -> Result<()> {
        if archiving.expire {
            sqlx::query("UPDATE environments SET status = 'expired', changed_at = $2 WHERE id = $1")
                .bind(environment.to_string())
                .bind(now.0)
                .execute(&mut **self)
                .await?;
            self.cancel_turns(id, now).await?;
        }
        self.end(environment, archiving.ending, now).await
    }

    /// What the archive routes answer.
    pub async fn archive_state(&mut self, session: Id) -> Result<Archive> {
        let (environment_id, resources) = self.resources(session).await?;
        Ok(Archive { session_id: session, environment_id, state: resources.state() })
    }

    /// The environment of an existing session, with what it holds.
    pub async fn resources(&mut self, session: Id) -> Result<(Id, Resources)> {
        let row = sqlx::query(
            "SELECT e.id, e.status, s.environment_type, a.provider_key, a.state FROM sessions s \
             JOIN environments e ON e.session_id = s.id LEFT JOIN runtime_allocations a ON a.environment_id = e.id \
             WHERE s.id = $1",
        )
        .bind(session.to_string())
        .fetch_one(&mut **self)
        .await?;
        let allocation = match (row.id_opt("provider_key")?, row.text_opt("state")?.as_deref()) {
            (Some(owner), Some("creating" | "running")) => Some((owner, Stage::Live)),
            (Some(owner), Some("cleanup_pending")) => Some((owner, Stage::CleanupPending)),
            (Some(owner), Some("released")) => Some((owner, Stage::Released)),
            (None, None) => None,
            _ => return Err(StoreError::Corrupt { column: "state" }),
        };
        let ended = matches!(row.text("status")?.as_str(), "failed" | "expired");
        let hosted = row.text("environment_type")? == HOSTED;
        Ok((row.id("id")?, Resources { hosted, ended, allocation }))
    }

    async fn end(&mut self, environment: Id, ending: Ending, now: Timestamp) -> Result<()> {
        let statement = match ending {
            Ending::Keep => return Ok(()),
            Ending::Cleanup => {
                "UPDATE runtime_allocations SET state = 'cleanup_pending', cleanup_requested_at = $2, \
                 device_revoked_at = COALESCE(device_revoked_at, $2) \
                 WHERE environment_id = $1 AND state IN ('creating', 'running')"
            }
            Ending::ReleasePlacement => {
                "UPDATE runtime_placements SET released_at = $2 WHERE environment_id = $1 AND released_at IS NULL"
            }
        };
        sqlx::query(statement).bind(environment.to_string()).bind(now.0).execute(&mut **self).await?;
        Ok(())
    }

    /// What an observation of an existing session looks at; the second is there while the allocation runs.
    pub async fn observed(&mut self, session: Id) -> Result<(Subject, Option<Running>)> {
        let provider = self.deployment().await?.provider();
        let row = sqlx::query(
            "SELECT e.id AS environment_id, s.tenant_id, a.id AS allocation_id, a.device_id, a.created_at, a.state, \
             a.provider_key, a.node_id, a.deployment_generation, a.compute_phase, a.compute_state FROM sessions s \
             JOIN environments e ON e.session_id = s.id LEFT JOIN runtime_allocations a ON a.environment_id = e.id \
             WHERE s.id = $1",
        )
        .bind(session.to_string())
        .fetch_one(&mut **self)
        .await?;
        let environment = row.id("environment_id")?;
        let Some(allocation) = row.id_opt("allocation_id")? else {
            return Ok((Subject { session, environment, provider, allocation: None }, None));
        };
        let allocation = Some((allocation, row.id("device_id")?, row.time("created_at")?));
        let running = if row.text("state")? == "running" { Some(read_running(&row)?) } else { None };
        Ok((Subject { session, environment, provider, allocation }, running))
    }
}

fn read_session(row: &AnyRow) -> Result<Stored> {
    let status = match row.text("status")?.as_str() {
        "pending" => EnvironmentStatus::Pending,
        "connected" => EnvironmentStatus::Connected,
        "disconnected" => EnvironmentStatus::Disconnected,
        "failed" => EnvironmentStatus::Failed,
        "expired" => EnvironmentStatus::Expired,
        _ => return Err(StoreError::Corrupt { column: "status" }),
    };
    let idle = row.count("open_turns")? == 0;
    let view = Session {
        id: row.id("id")?,
        object: SessionObject::Session,
        status: if idle { SessionStatus::Idle } else { SessionStatus::InProgress },
        created_at: row.time("created_at")?,
        environment: Environment { id: row.id("environment_id")?, r#type: row.text("environment_type")?, status },
    };
    Ok(Stored { view, deleted: row.time_opt("deleted_at")?.is_some() })
}

fn read_running(row: &AnyRow) -> Result<Running> {
    Ok(Running {
        tenant: row.id("tenant_id")?,
        installation: row.id("provider_key")?,
        node: row.id_opt("node_id")?,
        generation: row.generation("deployment_generation")?,
        compute_phase: row.text("compute_phase")?,
        compute_state: row.text("compute_state")?,
    })
}
