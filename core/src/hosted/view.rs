//! What the public API shows of sessions and Turns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::time::Timestamp;
use crate::units::Id;

/// A session with its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Which one.
    pub id: Id,
    /// `agent.session`.
    pub object: SessionObject,
    /// Whether it has unfinished Turns.
    pub status: SessionStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its environment.
    pub environment: Environment,
}

/// The literal `agent.session`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SessionObject {
    /// See the type.
    #[serde(rename = "agent.session")]
    Session,
}

/// Whether a session has work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// Every Turn has ended.
    Idle,
    /// A Turn waits or runs.
    InProgress,
}

/// The environment of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SessionEnvironment")]
pub struct Environment {
    /// Which one.
    pub id: Id,
    /// `openai_hosted`.
    pub r#type: String,
    /// `connected` while the allocation runs.
    pub status: EnvironmentStatus,
}

/// Status of an environment (deployment §3.4).
///
/// `connected` says that the allocation is `running`, and nothing of the node's connection: a node that is away proves
/// nothing about its sandboxes, and one that merely stopped is kept. Nothing here sets `disconnected`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the values are those of deployment §3.4")]
pub enum EnvironmentStatus {
    Pending,
    Connected,
    Disconnected,
    Failed,
    Expired,
}

/// One command of a session and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// Which one.
    pub id: Id,
    /// `agent.turn`.
    pub object: TurnObject,
    /// Whose.
    pub session_id: Id,
    /// How far it is.
    pub status: TurnStatus,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its command was handed over.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// The budget of its command.
    pub timeout_ms: u64,
    /// Only of a completed Turn; nonzero is completed as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Only of a completed Turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Only of a completed Turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Only of a failed Turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
}

/// The literal `agent.turn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TurnObject {
    /// See the type.
    #[serde(rename = "agent.turn")]
    Turn,
}

/// State of a Turn (deployment §11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the values are those of deployment §11.2")]
pub enum TurnStatus {
    Queued,
    InProgress,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

/// Why a Turn failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnError {
    /// Ends in `unconfirmed` exactly when nobody knows what came of the command.
    pub code: String,
}

/// A project, owner of one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Project {
    /// Which one.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was archived.
    pub archived_at: Option<Timestamp>,
    /// Keys that are not revoked.
    pub active_key_count: u64,
}

/// A page that has no cursor of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct Page<T> {
    /// The entries.
    pub data: Vec<T>,
    /// There are older entries than these.
    pub has_more: bool,
}
