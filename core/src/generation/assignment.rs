//! Core's word on what a node is to run: how it is asked for, and what may be believed of the answer (wire §9.4,
//! node-host §6.8).
//!
//! - Never is the enrollment token sent together with a node's identifier, nor a node's credential without it
//!   (`a_retained_identity_authenticates_itself`, `only_a_node_asks_for_a_generation`).
//! - Never is the token tried again for a node whose registration is complete
//!   (`a_rejected_credential_falls_back_to_the_token_once`).
//! - Never is an answer taken that is not exactly one assignment, for this installation, Core and provider
//!   (`an_inconsistent_answer_is_refused`, `every_member_is_required_once_and_nothing_follows`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::configuration::API;
use super::recovery::Difference;
use crate::admin::error::Envelope;
use crate::deployment::contract::{Mode, Provider};
use crate::deployment::specification::{Draft, Specification};
use crate::limits::{CAPACITY_MAX, ENROLLMENT_MAX_BYTES};
use crate::strict;
use crate::units::{Digest, Generation, Id};

/// What Core answers. The same type is written by Core.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub struct Assignment {
    /// Approved sandboxes at once.
    pub max_active: u32,
    /// Approved sandboxes with the suspended ones.
    pub max_retained: u32,
    /// Whose installation.
    pub installation_id: Id,
    /// A provider that runs on nodes.
    pub provider: Provider,
    /// Core's public URL.
    pub core_url: String,
    /// The deployment generation.
    pub generation: Generation,
    /// Sizes and Runtime release.
    #[schemars(with = "Draft")]
    pub specification: Specification,
    /// The digest of the specification.
    pub specification_digest: Digest,
}

/// Why an answer is no assignment. The text repeats nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidAssignment {
    /// Longer than an answer may be.
    #[error("core's configuration is longer than 16384 bytes")]
    Size,
    /// Not exactly the eight members, each of its JSON type.
    #[error("core's configuration does not hold exactly its members")]
    Members,
    /// A provider without nodes, or none at all.
    #[error("core's configuration names no provider of nodes")]
    Provider,
    /// Not 1 ≤ active ≤ retained ≤ 1 000 000.
    #[error("core's configuration has capacities outside 1 to 1000000, or fewer retained than active")]
    Capacity,
    /// The specification is not valid for the provider.
    #[error("core's configuration holds an invalid specification")]
    Specification,
    /// The digest is not that of the specification.
    #[error("core's configuration holds another digest than its specification has")]
    Digest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    max_active: u32,
    max_retained: u32,
    installation_id: Id,
    provider: String,
    core_url: String,
    generation: Generation,
    #[serde(deserialize_with = "strict::nested")]
    specification: Draft,
    specification_digest: Digest,
}

impl Assignment {
    /// Reads exactly one assignment that is consistent in itself.
    pub fn read(body: &[u8]) -> Result<Self, InvalidAssignment> {
        if body.len() > ENROLLMENT_MAX_BYTES {
            return Err(InvalidAssignment::Size);
        }
        let members: Members = strict::object(body).map_err(|_| InvalidAssignment::Members)?;
        let provider = Provider::from_name(&members.provider).filter(|provider| provider.rule().mode == Mode::Nodes);
        let provider = provider.ok_or(InvalidAssignment::Provider)?;
        let (active, retained) = (members.max_active, members.max_retained);
        if !(1 <= active && active <= retained && retained <= CAPACITY_MAX) {
            return Err(InvalidAssignment::Capacity);
        }
        let specification = Specification::check(provider, &members.specification);
        let specification = specification.map_err(|_| InvalidAssignment::Specification)?;
        if specification.digest() != members.specification_digest {
            return Err(InvalidAssignment::Digest);
        }
        Ok(Self {
            max_active: active,
            max_retained: retained,
            installation_id: members.installation_id,
            provider,
            core_url: members.core_url,
            generation: members.generation,
            specification,
            specification_digest: members.specification_digest,
        })
    }

    /// The first thing in which the assignment is not the one that was asked for.
    #[must_use]
    pub fn difference(&self, expected: &Expected<'_>) -> Option<Difference> {
        let retained = expected.retained.filter(|_| !expected.may_change);
        let generation = expected.requested.or(retained.map(|retained| retained.generation));
        if self.core_url != expected.core_url {
            Some(Difference::Core)
        } else if self.installation_id != expected.installation {
            Some(Difference::Installation)
        } else if expected.provider.is_some_and(|provider| provider != self.provider) {
            Some(Difference::Provider)
        } else if generation.is_some_and(|generation| generation != self.generation) {
            Some(Difference::Generation)
        } else if retained.is_some_and(|retained| retained.specification_digest != self.specification_digest) {
            Some(Difference::Specification)
        } else {
            None
        }
    }
}

/// What the asking side knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expected<'a> {
    /// Its installation.
    pub installation: Id,
    /// Core's URL as the operator's command names it.
    pub core_url: &'a str,
    /// The provider that the operator asserts or that the retained identity has.
    pub provider: Option<Provider>,
    /// The generation that was asked for.
    pub requested: Option<Generation>,
    /// What the retained identity was enrolled with.
    pub retained: Option<Retained>,
    /// Whether the selection may have changed since: a preparation may, a registration may not. The provider never does.
    pub may_change: bool,
}

/// What a retained identity was enrolled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retained {
    /// The enrolled generation.
    pub generation: Generation,
    /// The enrolled digest.
    pub specification_digest: Digest,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ask {
    /// With the enrollment token as bearer, without `X-OAC-Node-ID` and without a generation.
    WithToken,
    /// With the node's credential as bearer and its identifier in `X-OAC-Node-ID`.
    AsNode {
        /// The generation to ask for; the target without it.
        generation: Option<Generation>,
    },
}

impl Ask {
    /// Path and query below Core's origin.
    #[must_use]
    pub fn path(self) -> String {
        let path = format!("{API}/sandbox-node/configuration");
        match self {
            Self::WithToken | Self::AsNode { generation: None } => path,
            Self::AsNode { generation: Some(generation) } => format!("{path}?generation={generation}"),
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Question<'a> {
    /// What must be answered.
    pub expected: Expected<'a>,
    /// Whether an enrollment token was given.
    pub has_token: bool,
    /// Whether this installation was registered with success before.
    pub registered: bool,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reply<'a> {
    /// Nothing.
    Unreachable,
    /// An HTTP answer; `body` is read one byte beyond its limit.
    Answered {
        /// Its status.
        status: u16,
        /// Its body.
        body: &'a [u8],
    },
}

/// What to do when the reply is no assignment that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Next {
    /// The credential is not known to Core, and the first registration is still open: ask with the token, once.
    #[error("core does not know the node's credential; the enrollment token is tried")]
    Ask(Ask),
    /// There is neither a credential nor a token.
    #[error("there is no enrollment token; generate a new command in the console")]
    NoSecret,
    /// A registered node is not known any more.
    #[error("core does not know this node any more; uninstall it, then use a new command from the console")]
    NodeRemoved,
    /// Core refused.
    #[error("core refused with status {0}; generate a new command in the console")]
    Rejected(u16),
    /// Nothing there serves machines.
    #[error("the address serves no machine routes; check core's url")]
    NotRouted,
    /// A reset is under way, or the deployment has no place for this node.
    #[error("core is being reset or its deployment has no nodes of this kind; try again later")]
    ResetOrConflict,
    /// Something else than Core answered (decision 36).
    #[error("something between us answered with status {0}; check proxies on the way to core")]
    Between(u16),
    /// No answer.
    #[error("core is unreachable; try again later")]
    Unreachable,
    /// Not an assignment.
    #[error("{0}")]
    Invalid(InvalidAssignment),
    /// Core has another public URL than the command.
    #[error("core's public url has changed; generate a new command in the console")]
    UrlChanged,
    /// An assignment for something else.
    #[error("core's configuration is not the one of this node; nothing was changed")]
    Differs(Difference),
}

impl Question<'_> {
    /// The first request: a retained identity authenticates itself and never needs the token again.
    pub const fn first(&self) -> Result<Ask, Next> {
        match (self.expected.retained, self.has_token) {
            (Some(_), _) => Ok(Ask::AsNode { generation: self.expected.requested }),
            (None, true) => Ok(Ask::WithToken),
            (None, false) => Err(Next::NoSecret),
        }
    }

    /// Judges the reply to `asked`.
    pub fn judge(&self, asked: Ask, reply: Reply<'_>) -> Result<Assignment, Next> {
        let (status, body) = match reply {
            Reply::Unreachable => return Err(Next::Unreachable),
            Reply::Answered { status, body } => (status, body),
        };
        if status != 200 {
            return Err(self.refused(asked, status, body));
        }
        let assignment = Assignment::read(body).map_err(Next::Invalid)?;
        match assignment.difference(&self.expected) {
            None => Ok(assignment),
            Some(Difference::Core) => Err(Next::UrlChanged),
            Some(difference) => Err(Next::Differs(difference)),
        }
    }

    fn refused(&self, asked: Ask, status: u16, body: &[u8]) -> Next {
        let from_core = strict::object::<Envelope>(body).is_ok();
        match (status, asked) {
            (404, _) => Next::NotRouted,
            (_, _) if !from_core => Next::Between(status),
            (401, Ask::AsNode { .. }) if self.registered => Next::NodeRemoved,
            (401, Ask::AsNode { .. }) if self.has_token => Next::Ask(Ask::WithToken),
            (409, _) => Next::ResetOrConflict,
            (_, Ask::WithToken | Ask::AsNode { .. }) => Next::Rejected(status),
        }
    }
}

#[cfg(test)]
mod tests;
