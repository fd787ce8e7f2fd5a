//! What the owner does with a Turn: one command, at most once (deployment §11.2).

use palisade_core::lifecycle::{Turn, TurnState};
use palisade_core::limits::DRAIN_MAX_MS;
use palisade_core::units::{Id, OwnerEpoch};
use palisade_core::wire::payload::Command;

use super::work::Work;
use super::{Columns, Result, Store, StoreError, Timestamp, Tx};

/// The command of a Turn whose start was recorded.
#[derive(Debug)]
pub struct Started {
    /// What to run.
    pub command: Command<'static>,
    /// Its whole budget.
    pub timeout_ms: u64,
}

/// The result of a command.
#[derive(Debug, Clone, Copy)]
pub struct Outputs<'a> {
    /// Standard output.
    pub stdout: &'a str,
    /// Standard error.
    pub stderr: &'a str,
    /// Exit code.
    pub exit_code: i64,
}

impl Store {
    /// Length of the standard input of a Turn; `None` when the Turn is not in line any more.
    pub async fn queued_stdin_bytes(&self, turn: Id) -> Result<Option<u64>> {
        let mut tx = self.read().await?;
        let row = sqlx::query(
            "SELECT CAST(COALESCE(LENGTH(i.stdin), 0) AS BIGINT) AS bytes \
             FROM turns t LEFT JOIN turn_inputs i ON i.turn_id = t.id WHERE t.id = $1 AND t.status = 'queued'",
        )
        .bind(turn.to_string())
        .fetch_optional(&mut *tx)
        .await?;
        row.map(|row| row.count("bytes")).transpose()
    }

    /// Records the start of a Turn, in the commit before its command is handed over; from here on it is never sent
    /// again unless [`palisade_core::lifecycle::Change::TurnRequeued`] takes it back. `None`: it is no longer in line.
    pub async fn start_turn(&self, epoch: OwnerEpoch, work: &Work, turn: Id) -> Result<Option<Started>> {
        // It never changes while its Turn is in line, and everybody waits for a transaction that writes.
        let stdin = self.read().await?.turn_input(turn).await?;
        let mut tx = self.write().await?;
        tx.lock_session(work.session).await?;
        tx.fence(epoch).await?;
        let now = tx.now().await?;
        let row = sqlx::query(
            "UPDATE turns SET status = 'in_progress', dispatched = 1, started_at = $2 WHERE id = $1 \
             AND status = 'queued' AND cancel_requested = 0 AND EXISTS (SELECT 1 FROM runtime_allocations a \
             WHERE a.environment_id = turns.environment_id AND a.state = 'running' \
             AND a.compute_phase IN ('disabled', 'running')) \
             RETURNING args, directory, timeout_ms",
        )
        .bind(turn.to_string())
        .bind(now.0)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let args: Vec<String> = json(&row.text("args")?, "args")?;
        let directory: String = json(&row.text("directory")?, "directory")?;
        let command = Command {
            args: args.into_iter().map(Into::into).collect(),
            directory: directory.into(),
            stdin: stdin.map(Into::into),
        };
        let started = Started { command, timeout_ms: row.count("timeout_ms")? };
        tx.commit().await?;
        Ok(Some(started))
    }

    /// For how long the owner still waits for a Turn that was sent: `None` for as long as it takes, 0 when nobody wants
    /// it any more. When its sandbox is to go it may end by itself for a while, counted from the first request.
    pub async fn turn_is_wanted_ms(&self, turn: Id) -> Result<Option<u64>> {
        let mut tx = self.read().await?;
        let row = sqlx::query(
            "SELECT t.cancel_requested, a.state, a.cleanup_requested_at FROM turns t \
             LEFT JOIN runtime_allocations a ON a.environment_id = t.environment_id \
             WHERE t.id = $1 AND t.status = 'in_progress'",
        )
        .bind(turn.to_string())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = row else { return Ok(Some(0)) };
        match (row.text_opt("state")?.as_deref(), row.time_opt("cleanup_requested_at")?) {
            (Some("running"), _) if !row.flag("cancel_requested")? => Ok(None),
            (Some("cleanup_pending"), Some(requested)) => {
                Ok(Some(DRAIN_MAX_MS.saturating_sub(tx.now().await?.since(requested))))
            }
            _ => Ok(Some(0)),
        }
    }

    /// Ends a Turn whose caller no longer wants it. A cancelled one has no outcome; one whose sandbox goes is unconfirmed.
    pub async fn abandon_turn(&self, epoch: OwnerEpoch, work: &Work, turn: Id, code: &str) -> Result<()> {
        let mut tx = self.write().await?;
        tx.lock_session(work.session).await?;
        tx.fence(epoch).await?;
        let now = tx.now().await?;
        sqlx::query(
            "UPDATE turns SET status = 'cancelled', completed_at = $2 \
             WHERE id = $1 AND completed_at IS NULL AND cancel_requested = 1",
        )
        .bind(turn.to_string())
        .bind(now.0)
        .execute(&mut *tx)
        .await?;
        tx.fail_turn(turn, code, now).await?;
        tx.commit().await
    }
}

impl Tx {
    async fn turn_input(&mut self, turn: Id) -> Result<Option<Vec<u8>>> {
        let row = sqlx::query("SELECT stdin FROM turn_inputs WHERE turn_id = $1")
            .bind(turn.to_string())
            .fetch_optional(&mut **self)
            .await?;
        Ok(row.map(|row| row.bytes_opt("stdin")).transpose()?.flatten())
    }

    /// Removes what only a Turn that has not ended needs.
    async fn drop_input(&mut self, turn: Id) -> Result<()> {
        sqlx::query("DELETE FROM turn_inputs WHERE turn_id = $1").bind(turn.to_string()).execute(&mut **self).await?;
        Ok(())
    }

    /// The Turn in progress, else the oldest one in line.
    pub(super) async fn next_turn(&mut self, environment: Id, now: Timestamp) -> Result<Option<Turn>> {
        let row = sqlx::query(
            "SELECT id, status, created_at FROM turns WHERE environment_id = $1 AND completed_at IS NULL \
             ORDER BY CASE status WHEN 'in_progress' THEN 0 ELSE 1 END, position LIMIT 1",
        )
        .bind(environment.to_string())
        .fetch_optional(&mut **self)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let state = match row.text("status")?.as_str() {
            "queued" => TurnState::Queued { waited_ms: now.since(row.time("created_at")?) },
            "in_progress" | "waiting" => TurnState::InProgress,
            _ => return Err(StoreError::Corrupt { column: "status" }),
        };
        Ok(Some(Turn { id: row.id("id")?, state }))
    }

    pub(super) async fn complete_turn(
        &mut self,
        turn: Id,
        outputs: Option<&Outputs<'_>>,
        now: Timestamp,
    ) -> Result<()> {
        let Some(outputs) = outputs else { return Ok(()) };
        sqlx::query(
            "UPDATE turns SET status = 'completed', stdout = $2, stderr = $3, exit_code = $4, completed_at = $5 \
             WHERE id = $1 AND completed_at IS NULL",
        )
        .bind(turn.to_string())
        .bind(outputs.stdout.as_bytes().to_vec())
        .bind(outputs.stderr.as_bytes().to_vec())
        .bind(outputs.exit_code)
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        self.record_use(turn, true, now).await?;
        self.drop_input(turn).await
    }

    /// Idle time begins with the end of a Turn; a sandbox that never completed one is not suspended (deployment §4.4).
    async fn record_use(&mut self, turn: Id, completed: bool, now: Timestamp) -> Result<()> {
        sqlx::query(
            "UPDATE runtime_allocations SET compute_activity_at = $2 WHERE compute_phase <> 'disabled' \
             AND environment_id = (SELECT environment_id FROM turns WHERE id = $1) \
             AND (compute_activity_at IS NOT NULL OR $3 = 1)",
        )
        .bind(turn.to_string())
        .bind(now.0)
        .bind(i64::from(completed))
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    pub(super) async fn fail_turn(&mut self, turn: Id, code: &str, now: Timestamp) -> Result<()> {
        sqlx::query(
            "UPDATE turns SET status = 'failed', error_code = $2, completed_at = $3 \
             WHERE id = $1 AND completed_at IS NULL",
        )
        .bind(turn.to_string())
        .bind(code)
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        self.record_use(turn, false, now).await?;
        self.drop_input(turn).await
    }

    pub(super) async fn requeue_turn(&mut self, turn: Id, now: Timestamp) -> Result<()> {
        // Nobody takes a cancelled Turn from the line again.
        let cancelled = sqlx::query(
            "UPDATE turns SET status = 'cancelled', completed_at = $2 \
             WHERE id = $1 AND status = 'in_progress' AND cancel_requested = 1",
        )
        .bind(turn.to_string())
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        if cancelled.rows_affected() > 0 {
            return self.drop_input(turn).await;
        }
        sqlx::query(
            "UPDATE turns SET status = 'queued', dispatched = 0, started_at = NULL \
             WHERE id = $1 AND status = 'in_progress'",
        )
        .bind(turn.to_string())
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}

fn json<T: serde::de::DeserializeOwned>(text: &str, column: &'static str) -> Result<T> {
    serde_json::from_str(text).map_err(|_| StoreError::Corrupt { column })
}
