//! What Core checks before a request leaves it (wire §3.3).

use crate::operation::{Method, Support};
use crate::units::{Generation, Millis, OwnerEpoch};

/// Why nobody knows what came of a request (wire §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Cause {
    /// No peer, another epoch, generation not ready, 32 pending, or the connection was lost.
    #[error("the node is unavailable")]
    Unavailable,
    /// The caller's time ended.
    #[error("the caller's time ended")]
    Deadline,
    /// The caller stopped waiting.
    #[error("the caller stopped waiting")]
    Cancelled,
    /// The frame could not be written.
    #[error("the request could not be written")]
    Write,
    /// Core's own records could not be read in time.
    #[error("core's records could not be read")]
    Records,
}

/// An unknown outcome. It is never "not found", never proof of absence, never permission to send again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the outcome is unknown: {cause}")]
pub struct Uncertain {
    /// Why.
    pub cause: Cause,
    /// Whether any byte may have reached the node. `false` is a certainty (decision 35).
    pub sent: bool,
}

/// What is known when a caller asks; read in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The kind's registered decision for the method.
    pub support: Support,
    /// The durable placement, when it is well formed.
    pub generation: Option<Generation>,
    /// When the caller stops waiting.
    pub deadline: Millis,
    /// The owner epoch, when it could be read.
    pub owner_epoch: Option<OwnerEpoch>,
    /// The live connection of the placement's node, if any.
    pub peer: Option<Peer>,
    /// Whether the arguments pass the request's own rules.
    pub valid: bool,
}

/// The live connection of a node, as a request sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The epoch it was opened under.
    pub owner_epoch: OwnerEpoch,
    /// Whether the placement's generation is ready on it now.
    pub ready: bool,
}

/// Why a request was not handed to a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The node kind does not carry it out; no node was looked up.
    #[error("operation {method:?} is unsupported: {reason}")]
    Unsupported {
        /// Which method.
        method: Method,
        /// Reason code.
        reason: String,
    },
    /// The placement is malformed.
    #[error("the placement names no valid node and generation")]
    Ownership,
    /// Unknown to the caller, although nothing was sent.
    #[error(transparent)]
    Uncertain(Uncertain),
    /// No budget left; certainly nothing was sent.
    #[error("the time for the request is used up")]
    Deadline,
    /// The request is malformed; certainly nothing was sent.
    #[error("the request is invalid")]
    Invalid,
}

/// The generation to send to, or the first check of wire §3.3 that fails.
pub fn check(method: Method, needs_ready: bool, facts: &Facts, now: Millis) -> Result<Generation, Refusal> {
    let uncertain = |cause| Refusal::Uncertain(Uncertain { cause, sent: false });
    if let Support::Unsupported { reason } = &facts.support {
        return Err(Refusal::Unsupported { method, reason: reason.clone() });
    }
    let generation = facts.generation.ok_or(Refusal::Ownership)?;
    if now > facts.deadline {
        return Err(uncertain(Cause::Deadline));
    }
    let epoch = facts.owner_epoch.ok_or(uncertain(Cause::Records))?;
    let peer = facts.peer.filter(|peer| peer.owner_epoch == epoch).ok_or(uncertain(Cause::Unavailable))?;
    if needs_ready && !peer.ready {
        return Err(uncertain(Cause::Unavailable));
    }
    if facts.deadline.since(now) == 0 {
        return Err(Refusal::Deadline);
    }
    if facts.valid { Ok(generation) } else { Err(Refusal::Invalid) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::epoch;

    fn live() -> Facts {
        Facts {
            support: Support::Supported,
            generation: Some(Generation::FIRST),
            deadline: Millis(1_000),
            owner_epoch: Some(epoch(7)),
            peer: Some(Peer { owner_epoch: epoch(7), ready: true }),
            valid: true,
        }
    }

    fn unavailable() -> Result<Generation, Refusal> {
        Err(Refusal::Uncertain(Uncertain { cause: Cause::Unavailable, sent: false }))
    }

    #[test]
    fn complete_facts_are_dispatched() {
        assert_eq!(check(Method::Create, true, &live(), Millis(1)), Ok(Generation::FIRST));
    }

    /// W 107, W 108. An unsupported operation is refused before anything else is looked at.
    #[test]
    fn unsupported_operation_needs_no_node() {
        let support = Support::Unsupported { reason: "checkpoint_not_supported".into() };
        let facts = Facts { support, generation: None, owner_epoch: None, peer: None, valid: false, ..live() };
        let refused = check(Method::Suspend, false, &facts, Millis(9_999));
        assert!(matches!(refused, Err(Refusal::Unsupported { method: Method::Suspend, .. })));
    }

    /// W 121. Without a valid assignment nothing is routed.
    #[test]
    fn malformed_placement_is_an_ownership_error() {
        let facts = Facts { generation: None, peer: None, ..live() };
        assert_eq!(check(Method::Observe, false, &facts, Millis(1)), Err(Refusal::Ownership));
    }

    /// W 46, W 123. An offline node is unknown, never "not found".
    #[test]
    fn offline_node_is_uncertain_and_nothing_was_sent() {
        for method in [Method::GetInfo, Method::Observe, Method::Kill] {
            assert_eq!(check(method, false, &Facts { peer: None, ..live() }, Millis(1)), unavailable());
        }
    }

    /// W 38. A peer of another epoch is no peer.
    #[test]
    fn changed_epoch_finds_no_peer() {
        let facts = Facts { owner_epoch: Some(epoch(8)), ..live() };
        assert_eq!(check(Method::GetInfo, false, &facts, Millis(1)), unavailable());
        assert!(matches!(
            check(Method::GetInfo, false, &Facts { owner_epoch: None, ..live() }, Millis(1)),
            Err(Refusal::Uncertain(Uncertain { cause: Cause::Records, sent: false }))
        ));
    }

    /// W 70, W 122, W 195. Only a create and an effective resume need a ready generation.
    #[test]
    fn unready_generation_refuses_exactly_create_and_effective_resume() {
        let facts = Facts { peer: Some(Peer { owner_epoch: epoch(7), ready: false }), ..live() };
        for method in Method::ALL {
            let expected = if method.needs_ready() { unavailable() } else { Ok(Generation::FIRST) };
            assert_eq!(check(method, method.needs_ready(), &facts, Millis(1)), expected, "{method}");
        }
        assert!(check(Method::Resume, false, &facts, Millis(1)).is_ok(), "a resume that only observes");
    }

    /// W 28. A used-up budget is a plain deadline error, an oversized request a plain invalid one.
    #[test]
    fn certain_refusals_are_plain() {
        assert_eq!(check(Method::Kill, false, &live(), Millis(1_000)), Err(Refusal::Deadline));
        let invalid = Facts { valid: false, ..live() };
        assert_eq!(check(Method::RunCommand, false, &invalid, Millis(1)), Err(Refusal::Invalid));
    }
}
