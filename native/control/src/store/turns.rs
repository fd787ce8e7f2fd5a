//! Turns: what waits, runs and has ended in a session (deployment §11.2).

use palisade_core::hosted::request::Message;
use palisade_core::hosted::view::{Page, Turn, TurnError, TurnObject, TurnStatus};
use palisade_core::units::{Digest, Id};
use sqlx::any::AnyRow;

use super::{Columns, Result, StoreError, Timestamp, Tx};

/// The `Idempotency-Key` of a posted event, with the digest of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeatable {
    /// The key.
    pub key: String,
    /// The same key with another body is a conflict.
    pub body: Digest,
}

/// What was posted earlier under the same `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repeat {
    /// The same body: answer its Turn.
    Same(Box<Turn>),
    /// Another body.
    Other,
}

const TURNS: &str = "SELECT id, session_id, status, created_at, started_at, completed_at, timeout_ms, exit_code, \
     stdout, stderr, error_code FROM turns WHERE session_id = $1 AND (id = $2 OR ($2 = '' AND position < $3)) \
     ORDER BY position DESC LIMIT $4";

impl Tx {
    /// The newest Turns of a session, at most `limit`, in their order; `before` leaves out that Turn and later ones.
    pub async fn turns(&mut self, session: Id, before: Option<i64>, limit: usize) -> Result<Page<Turn>> {
        let wanted = i64::try_from(limit).unwrap_or(i64::MAX - 1);
        let rows = sqlx::query(TURNS)
            .bind(session.to_string())
            .bind("")
            .bind(before.unwrap_or(i64::MAX))
            .bind(wanted + 1)
            .fetch_all(&mut **self)
            .await?;
        let has_more = rows.len() > limit;
        let mut data = rows.iter().take(limit).map(read_turn).collect::<Result<Vec<_>>>()?;
        data.reverse();
        Ok(Page { data, has_more })
    }

    /// One Turn of a session.
    pub async fn turn(&mut self, id: Id, session: Id) -> Result<Option<Turn>> {
        let row = sqlx::query(TURNS)
            .bind(session.to_string())
            .bind(id.to_string())
            .bind(0_i64)
            .bind(1_i64)
            .fetch_optional(&mut **self)
            .await?;
        row.as_ref().map(read_turn).transpose()
    }

    /// The place of a Turn in its session.
    pub async fn turn_position(&mut self, id: Id, session: Id) -> Result<Option<i64>> {
        let row = sqlx::query("SELECT position FROM turns WHERE id = $1 AND session_id = $2")
            .bind(id.to_string())
            .bind(session.to_string())
            .fetch_optional(&mut **self)
            .await?;
        row.map(|row| row.int("position")).transpose()
    }

    /// What an event with this key made before.
    pub async fn repeated(&mut self, session: Id, event: &Repeatable) -> Result<Option<Repeat>> {
        let row = sqlx::query("SELECT id, request_sha256 FROM turns WHERE session_id = $1 AND idempotency_key = $2")
            .bind(session.to_string())
            .bind(&event.key)
            .fetch_optional(&mut **self)
            .await?;
        let Some(row) = row else { return Ok(None) };
        if row.digest("request_sha256")? != event.body {
            return Ok(Some(Repeat::Other));
        }
        Ok(self.turn(row.id("id")?, session).await?.map(|turn| Repeat::Same(Box::new(turn))))
    }

    /// Turns of a session that have not ended.
    pub async fn open_turns(&mut self, session: Id) -> Result<u64> {
        let row = sqlx::query("SELECT COUNT(*) AS open FROM turns WHERE session_id = $1 AND completed_at IS NULL")
            .bind(session.to_string())
            .fetch_one(&mut **self)
            .await?;
        row.count("open")
    }

    /// Queues a command as the last Turn of its session, under the session's lock.
    pub async fn create_turn(
        &mut self,
        session: Id,
        environment: Id,
        message: Message,
        event: Option<Repeatable>,
        now: Timestamp,
    ) -> Result<Option<Turn>> {
        let id = Id::from_random(rand::random());
        let (key, body) = event.map(|event| (event.key, event.body.to_string())).unzip();
        sqlx::query(
            "INSERT INTO turns (id, session_id, environment_id, position, status, args, directory, timeout_ms, \
             idempotency_key, request_sha256, created_at) VALUES ($1, $2, $3, \
             (SELECT COALESCE(MAX(position), 0) + 1 FROM turns WHERE session_id = $2), \
             'queued', $4, $5, $6, $7, $8, $9)",
        )
        .bind(id.to_string())
        .bind(session.to_string())
        .bind(environment.to_string())
        .bind(json(&message.args))
        .bind(json(&message.directory))
        .bind(i64::try_from(message.timeout_ms).unwrap_or(i64::MAX))
        .bind(key)
        .bind(body)
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        if let Some(stdin) = message.stdin {
            self.add_input(id, stdin).await?;
        }
        self.turn(id, session).await
    }

    /// Beside the Turn, whose row is rewritten with every change of its status.
    async fn add_input(&mut self, turn: Id, stdin: Vec<u8>) -> Result<()> {
        sqlx::query("INSERT INTO turn_inputs (turn_id, stdin) VALUES ($1, $2)")
            .bind(turn.to_string())
            .bind(stdin)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// Ends what waits and asks what runs to end, under the session's lock.
    pub async fn cancel_turns(&mut self, session: Id, now: Timestamp) -> Result<()> {
        sqlx::query(
            "DELETE FROM turn_inputs WHERE turn_id IN \
             (SELECT id FROM turns WHERE session_id = $1 AND status = 'queued')",
        )
        .bind(session.to_string())
        .execute(&mut **self)
        .await?;
        sqlx::query(
            "UPDATE turns SET status = 'cancelled', completed_at = $2 \
             WHERE session_id = $1 AND status = 'queued'",
        )
        .bind(session.to_string())
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        sqlx::query("UPDATE turns SET cancel_requested = 1 WHERE session_id = $1 AND completed_at IS NULL")
            .bind(session.to_string())
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("texts always serialise")
}

fn read_turn(row: &AnyRow) -> Result<Turn> {
    let status = match row.text("status")?.as_str() {
        "queued" => TurnStatus::Queued,
        "in_progress" => TurnStatus::InProgress,
        "waiting" => TurnStatus::Waiting,
        "completed" => TurnStatus::Completed,
        "failed" => TurnStatus::Failed,
        "cancelled" => TurnStatus::Cancelled,
        _ => return Err(StoreError::Corrupt { column: "status" }),
    };
    let exit_code = row.int_opt("exit_code")?;
    Ok(Turn {
        id: row.id("id")?,
        object: TurnObject::Turn,
        session_id: row.id("session_id")?,
        status,
        created_at: row.time("created_at")?,
        started_at: row.time_opt("started_at")?,
        completed_at: row.time_opt("completed_at")?,
        timeout_ms: row.count("timeout_ms")?,
        exit_code,
        stdout: exit_code.map(|_| stream(row, "stdout")).transpose()?,
        stderr: exit_code.map(|_| stream(row, "stderr")).transpose()?,
        error: row.text_opt("error_code")?.map(|code| TurnError { code }),
    })
}

fn stream(row: &AnyRow, column: &'static str) -> Result<String> {
    Ok(String::from_utf8_lossy(&row.bytes_opt(column)?.unwrap_or_default()).into_owned())
}
