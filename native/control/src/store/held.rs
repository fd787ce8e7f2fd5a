//! The compute of an allocation as one transaction reads it (deployment §3.6).

use palisade_core::admin::node::ComputePhase;
use palisade_core::lifecycle::compute::{Facts, State};
use serde::Deserialize as _;
use sqlx::any::AnyRow;

use super::{Columns, Result, StoreError, Timestamp};

/// The compute of an allocation as one transaction read it.
#[derive(Debug, Clone)]
pub struct Held {
    /// Which commit wrote it.
    pub revision: i64,
    /// What it is.
    pub state: State,
    /// Until when it is kept; `None` while it runs.
    pub retained_until: Option<Timestamp>,
    pub(super) since_ms: u64,
    pub(super) handed_ms: Option<u64>,
    pub(super) idle: bool,
    pub(super) room: bool,
    pub(super) policy: Policy,
}

/// The policy of the selection, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) idle: u64,
    pub(super) retention: u64,
}

impl Held {
    /// What the lifecycle decides by; `expired` is what the owner's clock says of [`Held::retained_until`].
    #[must_use]
    pub fn facts(&self, expired: bool) -> Facts {
        Facts {
            phase: self.state.phase(),
            handed_ms: self.handed_ms,
            captured: matches!(self.state, State::Suspending { snapshot: Some(_), .. }),
            leftovers: !self.state.leftovers().is_empty(),
            since_ms: self.since_ms,
            idle: self.idle,
            expired,
            room: self.room,
        }
    }

    /// Reads the columns that [`Store::work`] selects.
    pub(super) fn read(row: &AnyRow, now: Timestamp) -> Result<Option<Self>> {
        let policy = Policy { idle: row.count("idle_seconds")?, retention: row.count("retention_seconds")? };
        if policy.idle == 0 {
            return Ok(None);
        }
        let phase = named(&row.text("compute_phase")?)?;
        let state = State::decode(phase, &row.text("compute_state")?);
        let state = state.ok_or(StoreError::Corrupt { column: "compute_state" })?;
        let changed = row.time_opt("compute_phase_changed_at")?.unwrap_or(row.time("created_at")?);
        let used = row.time_opt("compute_activity_at")?;
        let idle = used.is_some_and(|used| now.since(used.max(changed)) >= policy.idle.saturating_mul(1000));
        Ok(Some(Self {
            revision: row.int("compute_revision")?,
            handed_ms: state.handed_at().map(|at| now.since(Timestamp(at))),
            state,
            retained_until: row.time_opt("compute_retained_until")?,
            since_ms: now.since(changed),
            idle,
            room: row.count("active")? < row.count_opt("max_active")?.unwrap_or(0),
            policy,
        }))
    }
}

fn named(text: &str) -> Result<ComputePhase> {
    let value = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text);
    ComputePhase::deserialize(value).map_err(|_| StoreError::Corrupt { column: "compute_phase" })
}
