//! One commit of a compute phase, checked before any storage is asked (deployment §4.4).

use serde::Deserialize;

use crate::admin::node::ComputePhase as Phase;
use crate::admin::time::Timestamp;
use crate::strict;

/// Whatever an object holds.
#[derive(Deserialize)]
struct Members {}

/// What a transaction is about to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// The phase that the writer read, at the revision that it read.
    pub from: Phase,
    /// The phase to store.
    pub to: Phase,
    /// The state to store, a JSON object.
    pub state: &'a str,
    /// Until when it is kept; needed in every phase but `running`.
    pub retained_until: Option<Timestamp>,
    /// The policy's idle time in seconds, 0 where there is none.
    pub idle_seconds: u64,
}

/// Why it must not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No commit leads from the one to the other.
    #[error("compute never goes from {from:?} to {to:?}")]
    Jump {
        /// The phase that was read.
        from: Phase,
        /// The phase that was asked for.
        to: Phase,
    },
    /// The state is no JSON object.
    #[error("the state of compute must be a json object")]
    State,
    /// It would be kept for ever.
    #[error("compute that does not run must be kept until a time")]
    Retention,
    /// The policy does not suspend.
    #[error("compute without an idle time never quiesces")]
    IdleTime,
}

impl Change<'_> {
    /// The checks that need no row.
    ///
    /// # Errors
    /// The first that fails.
    pub fn check(&self) -> Result<(), Refused> {
        if !self.from.may_become(self.to) {
            return Err(Refused::Jump { from: self.from, to: self.to });
        }
        if strict::object::<Members>(self.state.as_bytes()).is_err() {
            return Err(Refused::State);
        }
        if self.to != Phase::Running && self.retained_until.is_none_or(|until| until.0 <= 0) {
            return Err(Refused::Retention);
        }
        let quiesces = self.from == Phase::Running && self.to == Phase::Quiescing;
        if quiesces && self.idle_seconds == 0 { Err(Refused::IdleTime) } else { Ok(()) }
    }
}
