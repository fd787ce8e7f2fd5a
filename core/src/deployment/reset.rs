//! Resetting the deployment: every sandbox is archived, then nothing is selected any more (deployment §1.3, §1.4, §4.2).
//!
//! ```text
//!                  start(auto)            deadline, or start(force)
//!  configured(g) ─────────────▶ auto(g) ─────────────────────────────▶ force(g)
//!       ▲  │                      │ cancel                    cancel │     ▲
//!       │  └──────────────────────┼──────── start(force) ────────────┼─────┘
//!       └─────────────────────────┴──────────────────────────────────┘
//!                                 │ nothing is held                  │
//!                                 └────────▶ unconfigured(g+1) ◀─────┘    owner epoch + 1
//! ```
//!
//! - Never does a repeated request or a restart move the deadline (`a_start_stores_an_absolute_deadline`,
//!   `a_reset_escalates_and_never_goes_back`).
//! - Never does `force` become `auto` again (`a_reset_escalates_and_never_goes_back`).
//! - Never does a candidate of one reset count for its successor: `requested_at` is the identity
//!   (`a_candidate_counts_for_its_own_reset_only`).
//! - Never does a reset end while something is held, on an online node or not (`a_reset_ends_when_nothing_is_held`).

mod remaining;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;

pub use remaining::{Category, Resource, remaining};

use super::{Deployment, Reset};
use crate::admin::deployment::{Clear, Held};
use crate::admin::error::{Code, Fault};
use crate::admin::time::Timestamp;
use crate::limits::{RESET_DEADLINE_DEFAULT_S, RESET_DEADLINE_MAX_S, RESET_DEADLINE_MIN_S};
use crate::strict;
use crate::units::{Generation, Id, OwnerEpoch};

const EXPECTED_GENERATION: &str = "expected_generation";
const CLEAR: &str = "clear";
const DEADLINE_SECONDS: &str = "deadline_seconds";

/// Body of `POST /core/v1/sandbox/deployment/reset`, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The generation that the administrator saw.
    pub expected_generation: u64,
    /// Which sessions are archived.
    pub clear: Clear,
    /// Only with `auto`, 300 to 86 400.
    pub deadline_seconds: Option<u32>,
}

/// A reset as it is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ResetRequest")]
pub struct Body {
    /// The generation that the administrator saw.
    #[serde(default)]
    #[schemars(required)]
    expected_generation: Option<u64>,
    /// Which sessions are archived.
    #[serde(default)]
    #[schemars(required, with = "Clear")]
    clear: Option<String>,
    /// Only with `auto`.
    #[serde(default, deserialize_with = "strict::present")]
    #[schemars(with = "u32", range(min = 300, max = 86_400))]
    #[allow(clippy::option_option, reason = "absent, null and a number are three cases")]
    deadline_seconds: Option<Option<strict::Integer>>,
}

/// What a request changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing: this reset is under way already.
    Repeated,
    /// Admission is paused and this is stored, with the requester as the source of what the owner does later.
    Started(Reset),
    /// The reset under way takes every session from here on.
    Escalated(Reset),
}

/// What the audit log records of a reset (deployment §3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the values are those of deployment §3.7")]
pub enum Audit {
    Start,
    Force,
    Cancel,
    Deadline,
    Complete,
}

impl Audit {
    /// The stored action.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::Start => "reset_start",
            Self::Force => "reset_force",
            Self::Cancel => "reset_cancel",
            Self::Deadline => "reset_deadline",
            Self::Complete => "reset_complete",
        }
    }
}

impl Request {
    /// Checks 1 to 4 of deployment §1.3.
    ///
    /// # Errors
    /// 400 `invalid_request_error` with the member, where one is at fault.
    pub fn parse(body: &[u8]) -> Result<Self, Fault> {
        let body: Body = strict::object(body).map_err(|_| Code::InvalidRequestError)?;
        let expected_generation =
            body.expected_generation.ok_or(Fault::of(Code::InvalidRequestError, EXPECTED_GENERATION))?;
        let clear = match body.clear.as_deref() {
            Some("auto") => Clear::Auto,
            Some("force") => Clear::Force,
            Some(_) | None => return Err(Fault::of(Code::InvalidRequestError, CLEAR)),
        };
        let deadline_seconds = match body.deadline_seconds {
            None => None,
            Some(None) => return Err(Fault::of(Code::InvalidRequestError, DEADLINE_SECONDS)),
            Some(Some(strict::Integer(seconds))) => Some(deadline(clear, seconds)?),
        };
        Ok(Self { expected_generation, clear, deadline_seconds })
    }

    /// Checks 6 to 9 of deployment §1.3, and what follows. `now` is the database's clock.
    ///
    /// # Errors
    /// 409 with the reason.
    pub fn decide(&self, deployment: &Deployment, installation: Id, now: Timestamp) -> Result<Change, Fault> {
        check(self.expected_generation, deployment, installation)?;
        if deployment.selected.is_none() {
            return Err(Code::SandboxNotConfigured.into());
        }
        match (deployment.reset, self.clear) {
            (None, clear) => Ok(Change::Started(self.start(clear, now))),
            (Some(Reset { clear: Clear::Force, .. }), Clear::Auto) => Err(Code::SandboxResetInProgress.into()),
            (Some(reset @ Reset { clear: Clear::Auto, .. }), Clear::Force) => {
                Ok(Change::Escalated(escalated(reset, now)))
            }
            (Some(Reset { clear: Clear::Auto, .. }), Clear::Auto)
            | (Some(Reset { clear: Clear::Force, .. }), Clear::Force) => Ok(Change::Repeated),
        }
    }

    fn start(&self, clear: Clear, now: Timestamp) -> Reset {
        let seconds = self.deadline_seconds.unwrap_or(RESET_DEADLINE_DEFAULT_S);
        let deadline = Timestamp(now.0.saturating_add(i64::from(seconds) * 1000));
        match clear {
            Clear::Auto => Reset { clear, requested_at: now, deadline_at: Some(deadline), forced_at: None },
            Clear::Force => Reset { clear, requested_at: now, deadline_at: None, forced_at: Some(now) },
        }
    }
}

fn deadline(clear: Clear, seconds: i64) -> Result<u32, Fault> {
    let within = u32::try_from(seconds).ok().filter(|s| (RESET_DEADLINE_MIN_S..=RESET_DEADLINE_MAX_S).contains(s));
    within.filter(|_| clear == Clear::Auto).ok_or_else(|| {
        Fault::of(Code::InvalidRequestError, DEADLINE_SECONDS)
            .detail("min", u64::from(RESET_DEADLINE_MIN_S))
            .detail("max", u64::from(RESET_DEADLINE_MAX_S))
    })
}

/// The reset that takes every session from now on; its identity and its deadline stay.
#[must_use]
pub fn escalated(reset: Reset, now: Timestamp) -> Reset {
    Reset { clear: Clear::Force, forced_at: Some(now), ..reset }
}

fn check(expected_generation: u64, deployment: &Deployment, installation: Id) -> Result<(), Fault> {
    let current = deployment.generation;
    if expected_generation != current {
        return Err(Fault::from(Code::SandboxGenerationStale).detail("current_generation", current));
    }
    let ours = deployment.web_managed && deployment.installation == Some(installation);
    if ours { Ok(()) } else { Err(Code::SandboxDeploymentConflict.into()) }
}

/// `expected_generation` of the cancellation: the only pair of the query, once.
///
/// # Errors
/// 400 `invalid_request_error` with the member.
pub fn cancel_generation<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<u64, Fault> {
    let mut pairs = pairs.into_iter();
    let value = match (pairs.next(), pairs.next()) {
        (Some((EXPECTED_GENERATION, value)), None) => digits(value),
        _ => None,
    };
    value.ok_or(Fault::of(Code::InvalidRequestError, EXPECTED_GENERATION))
}

/// Decimal digits only: no sign, which `parse` would take.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Whether there is a reset to cancel (deployment §1.4).
///
/// # Errors
/// 409 when the generation is stale or the row is not ours.
pub fn cancel(expected_generation: u64, deployment: &Deployment, installation: Id) -> Result<bool, Fault> {
    check(expected_generation, deployment, installation)?;
    Ok(deployment.reset.is_some())
}

/// The reset after its deadline passed, to be stored; `None` while it has not. The deadline is durable and absolute: a
/// restart neither extends nor skips it.
#[must_use]
pub fn overdue(reset: Reset, now: Timestamp) -> Option<Reset> {
    deadline_of(reset).filter(|deadline| *deadline <= now).map(|_| escalated(reset, now))
}

/// When a reset takes every session; `None` when it does so already. Whoever watches it on a clock of its own escalates
/// with [`escalated`], after it found the very same reset under the lock.
#[must_use]
pub fn deadline_of(reset: Reset) -> Option<Timestamp> {
    reset.deadline_at.filter(|_| reset.clear == Clear::Auto)
}

/// Names one reset: what the owner collected for it counts for no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Of the deployment.
    pub generation: u64,
    /// When it was asked for.
    pub requested_at: Timestamp,
}

impl Identity {
    /// The reset under way.
    #[must_use]
    pub fn of(deployment: &Deployment) -> Option<Self> {
        let requested_at = deployment.reset?.requested_at;
        Some(Self { generation: deployment.generation, requested_at })
    }
}

/// What becomes of one candidate, under its session's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// Another reset, or none, is under way by now: nothing more is archived for this one.
    Superseded,
    /// It works, and `auto` waits for it.
    Busy,
    /// Archive it.
    Archive,
}

/// Judges a candidate again, under its session's and the deployment's lock.
#[must_use]
pub fn candidate(of: Identity, deployment: &Deployment, busy: bool) -> Candidate {
    match deployment.reset {
        Some(reset) if Identity::of(deployment) == Some(of) => match (reset.clear, busy) {
            (Clear::Auto, true) => Candidate::Busy,
            (Clear::Auto, false) | (Clear::Force, _) => Candidate::Archive,
        },
        Some(_) | None => Candidate::Superseded,
    }
}

/// What the deployment becomes when a reset ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// The current one plus 1, with nothing selected.
    pub generation: Generation,
    /// The current one plus 1: every connection of a node is fenced off.
    pub owner_epoch: OwnerEpoch,
}

/// Why a reset cannot end now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// It was cancelled, or another one started since.
    #[error("this reset is not under way any more")]
    Superseded,
    /// Generation or epoch cannot rise any more.
    #[error("the generation or the owner epoch is exhausted")]
    Exhausted,
    /// Something is still held.
    #[error("{} allocations and {} pending sandboxes remain", .0.allocations, .0.pending)]
    Remaining(Held),
}

/// Decides the end of a reset, under the deployment's lock and with what was counted under it.
///
/// # Errors
/// Why it goes on.
pub fn complete(of: Identity, deployment: &Deployment, held: Held) -> Result<Completed, Incomplete> {
    if Identity::of(deployment) != Some(of) {
        return Err(Incomplete::Superseded);
    }
    if held != Held::default() {
        return Err(Incomplete::Remaining(held));
    }
    let generation = deployment.generation.checked_add(1).and_then(Generation::new);
    let owner_epoch = deployment.owner_epoch.map_or(Some(OwnerEpoch::FIRST), OwnerEpoch::next);
    let completed = generation.zip(owner_epoch);
    completed.map(|(generation, owner_epoch)| Completed { generation, owner_epoch }).ok_or(Incomplete::Exhausted)
}
