//! Archiving a session (deployment §1.14).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Validate};
use crate::units::Id;

/// Answer of the archive routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Archive {
    /// The session of the path.
    pub session_id: Id,
    /// Its environment.
    pub environment_id: Id,
    /// How far its resources are.
    pub state: ArchiveState,
}

impl Validate for Archive {
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// How far a session's resources are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveState {
    /// Not archived.
    Active,
    /// Being cleaned up.
    CleanupPending,
    /// Nothing is held any more.
    Released,
}
