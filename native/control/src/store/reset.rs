//! The reset of the deployment (deployment §3.1, §4.2).

use palisade_core::admin::deployment::Clear;
use palisade_core::deployment::contract::Mode;
use palisade_core::deployment::reset::{Completed, Resource};
use palisade_core::deployment::{Deployment, Reset};
use palisade_core::hosted::request::HOSTED;
use palisade_core::limits::RESET_PAGE_MAX;
use palisade_core::units::Id;
use sqlx::any::AnyRow;

use super::generations::signed;
use super::{Columns, Result, Source, StoreError, Timestamp, Tx};

/// A Turn that runs or waits for its client makes its session busy (deployment §4.2).
const BUSY: &str = "CASE WHEN EXISTS (SELECT 1 FROM turns t WHERE t.environment_id = e.id AND t.completed_at IS NULL \
     AND t.status IN ('in_progress', 'waiting')) THEN 1 ELSE 0 END AS busy";

/// A session that a reset may archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which session.
    pub session: Id,
    /// Whose.
    pub project: Id,
}

impl Tx {
    /// Starts a reset: admission pauses in the same statement, and `source` answers for what the owner does later.
    pub async fn start_reset(&mut self, reset: Reset, source: &Source) -> Result<()> {
        sqlx::query(
            "UPDATE runtime_deployment SET admission_paused = 1, reset_clear = $1, reset_requested_at = $2, \
             reset_deadline_at = $3, reset_forced_at = $4, reset_audit = $5 WHERE singleton = 1",
        )
        .bind(clear_name(reset.clear))
        .bind(reset.requested_at.0)
        .bind(reset.deadline_at.map(|at| at.0))
        .bind(reset.forced_at.map(|at| at.0))
        .bind(source.stored())
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    /// Stores that the reset takes every session from here on; its identity and source stay.
    pub async fn escalate_reset(&mut self, reset: Reset) -> Result<()> {
        sqlx::query("UPDATE runtime_deployment SET reset_clear = $1, reset_forced_at = $2 WHERE singleton = 1")
            .bind(clear_name(reset.clear))
            .bind(reset.forced_at.map(|at| at.0))
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// Ends the reset without its work, and reopens admission.
    pub async fn cancel_reset(&mut self) -> Result<()> {
        sqlx::query(
            "UPDATE runtime_deployment SET admission_paused = 0, reset_clear = NULL, reset_requested_at = NULL, \
             reset_deadline_at = NULL, reset_forced_at = NULL, reset_audit = NULL WHERE singleton = 1",
        )
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    /// Who started the reset under way.
    pub async fn reset_source(&mut self) -> Result<Source> {
        let row = sqlx::query("SELECT reset_audit FROM runtime_deployment WHERE singleton = 1")
            .fetch_one(&mut **self)
            .await?;
        Source::read(&row.text("reset_audit")?).ok_or(StoreError::Corrupt { column: "reset_audit" })
    }

    /// The next sessions after `cursor`, in the order of their ids. Whether one is busy is judged under its lock.
    pub async fn reset_candidates(&mut self, cursor: Option<Id>) -> Result<Vec<Candidate>> {
        let rows = sqlx::query(
            "SELECT s.id, s.project_id FROM sessions s JOIN environments e ON e.session_id = s.id \
             LEFT JOIN runtime_allocations a ON a.environment_id = e.id \
             WHERE s.id > $1 AND s.deleted_at IS NULL AND s.environment_type = $2 \
             AND e.status NOT IN ('failed', 'expired') \
             AND (a.state IN ('creating', 'running') OR (a.id IS NULL AND e.status = 'pending')) \
             ORDER BY s.id LIMIT $3",
        )
        .bind(cursor.map(|id| id.to_string()).unwrap_or_default())
        .bind(HOSTED)
        .bind(i64::try_from(RESET_PAGE_MAX).expect("a small number"))
        .fetch_all(&mut **self)
        .await?;
        rows.iter().map(|row| Ok(Candidate { session: row.id("id")?, project: row.id("project_id")? })).collect()
    }

    /// Whether a session has a Turn that runs or waits for its client; `None` when the session was deleted.
    pub async fn is_busy(&mut self, session: Id) -> Result<Option<bool>> {
        let query = format!(
            "SELECT {BUSY} FROM environments e JOIN sessions s ON s.id = e.session_id \
             WHERE s.id = $1 AND s.deleted_at IS NULL"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(session.to_string());
        query.fetch_optional(&mut **self).await?.map(|row| row.flag("busy")).transpose()
    }

    /// Everything that a reset waits for: as many as [`Tx::counted`] counts as held.
    pub async fn held_resources(&mut self, deployment: &Deployment) -> Result<Vec<Resource>> {
        let query = format!(
            "SELECT a.node_id, a.kept_at, a.compute_phase, a.compute_retained_until, a.state, s.deleted_at, e.status, \
             {BUSY} FROM runtime_allocations a JOIN environments e ON e.id = a.environment_id \
             JOIN sessions s ON s.id = e.session_id WHERE a.state <> 'released' \
             UNION ALL \
             SELECT p.node_id, NULL, 'disabled', NULL, 'pending', s.deleted_at, e.status, {BUSY} \
             FROM environments e JOIN sessions s ON s.id = e.session_id \
             LEFT JOIN runtime_placements p ON p.environment_id = e.id AND p.released_at IS NULL \
             WHERE e.status = 'pending' AND s.deleted_at IS NULL AND s.environment_type = 'openai_hosted' \
             AND NOT EXISTS (SELECT 1 FROM runtime_allocations a WHERE a.environment_id = e.id)"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(query)).fetch_all(&mut **self).await?;
        let direct = deployment.mode() == Some(Mode::Direct);
        rows.iter().map(|row| read_resource(row, direct)).collect()
    }

    /// Ends a reset: nothing is selected, every node and unused token is retired, every superseded selection is gone,
    /// generation and epoch have risen. Installation and history stay.
    pub async fn complete_reset(&mut self, completed: Completed, now: Timestamp) -> Result<()> {
        sqlx::query(
            "UPDATE runtime_deployment SET provider_kind = '', mode = '', backend_fingerprint = '', generation = $1, \
             owner_epoch = $2, specification = '{}', provider_config = '{}', provider_metadata = '{}', \
             provider_credential = NULL, idle_seconds = 0, retention_seconds = 0, admission_paused = 0, \
             reset_clear = NULL, reset_requested_at = NULL, reset_deadline_at = NULL, reset_forced_at = NULL, \
             reset_audit = NULL WHERE singleton = 1",
        )
        .bind(signed(completed.generation))
        .bind(i64::try_from(completed.owner_epoch.get()).unwrap_or(i64::MAX))
        .execute(&mut **self)
        .await?;
        for statement in [
            "UPDATE runtime_nodes SET removed_at = $1, connection_id = NULL, connected_epoch = NULL, \
             ready_generation = NULL WHERE removed_at IS NULL",
            "UPDATE runtime_node_enrollments SET expires_at = $1 WHERE consumed_at IS NULL AND expires_at > $1",
        ] {
            sqlx::query(statement).bind(now.0).execute(&mut **self).await?;
        }
        sqlx::query("DELETE FROM runtime_node_generation_status").execute(&mut **self).await?;
        sqlx::query("DELETE FROM runtime_deployment_generations").execute(&mut **self).await?;
        Ok(())
    }
}

const fn clear_name(clear: Clear) -> &'static str {
    match clear {
        Clear::Auto => "auto",
        Clear::Force => "force",
    }
}

fn read_resource(row: &AnyRow, direct: bool) -> Result<Resource> {
    let ended = row.text("state")? == "cleanup_pending"
        || row.time_opt("deleted_at")?.is_some()
        || matches!(row.text("status")?.as_str(), "failed" | "expired");
    let runs = matches!(row.text("compute_phase")?.as_str(), "disabled" | "running");
    Ok(Resource {
        node: row.id_opt("node_id")?,
        direct,
        ended,
        retained_until: row.time_opt("compute_retained_until")?.filter(|_| !runs),
        kept_at: row.time_opt("kept_at")?,
        busy: row.flag("busy")?,
    })
}
