//! The checks before the upgrade and their answers (wire §5.1, steps 1–8).

use super::reservations::Refused;
use crate::units::Id;

/// A dial that named a node and one bearer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dial<'a> {
    /// The query's `node_id`.
    pub node: Id,
    /// The credential, unchecked.
    pub bearer: &'a str,
}

/// Why a dial is answered instead of upgraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No GET, no epoch, no storage, or Core is closing: 503.
    Unavailable,
    /// Malformed, unknown, revoked or foreign credential: 401.
    Credential,
    /// The identity is in use: 409.
    InUse,
    /// A page dialled: 403.
    Origin,
    /// No WebSocket request: 400.
    NotWebSocket,
}

impl Refusal {
    /// HTTP status.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Unavailable => 503,
            Self::Credential => 401,
            Self::InUse => 409,
            Self::Origin => 403,
            Self::NotWebSocket => 400,
        }
    }

    /// `error.type`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Credential | Self::Origin | Self::NotWebSocket => "invalid_request_error",
            Self::InUse => "conflict_error",
            Self::Unavailable => "server_error",
        }
    }

    /// `error.message`; failed upgrades use the standard status text.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Unavailable => "the node connection is unavailable",
            Self::Credential => "the node credential was rejected",
            Self::InUse => "identity in use: another connection of this node is open or still closing",
            Self::Origin => "Forbidden",
            Self::NotWebSocket => "Bad Request",
        }
    }

    /// Whether the answer carries `Sec-WebSocket-Version: 13`.
    #[must_use]
    pub const fn names_version(self) -> bool {
        matches!(self, Self::Origin | Self::NotWebSocket)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Conflict(_) => Self::InUse,
            Refused::Closing => Self::Unavailable,
        }
    }
}

/// Step 2: one `node_id` that is a UUID and one `Authorization` header `Bearer <credential>`.
pub fn dial<'a>(node_ids: &[&str], authorizations: &[&'a str]) -> Result<Dial<'a>, Refusal> {
    let ([node], [authorization]) = (node_ids, authorizations) else { return Err(Refusal::Credential) };
    let node = Id::parse(node).map_err(|_| Refusal::Credential)?;
    let mut parts = authorization.split_ascii_whitespace();
    match (parts.next(), parts.next(), parts.next()) {
        (Some("Bearer"), Some(bearer), None) => Ok(Dial { node, bearer }),
        (_, _, _) => Err(Refusal::Credential),
    }
}

/// Step 8, after the reservation: what the handshake's headers say.
pub fn handshake(has_origin: bool, is_websocket: bool) -> Result<(), Refusal> {
    if !is_websocket {
        Err(Refusal::NotWebSocket)
    } else if has_origin {
        Err(Refusal::Origin)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NODE: &str = "6f1c2b1e-5f0a-4a55-9d0e-0a1b2c3d4e5f";

    /// W 174. Every malformed authority is a 401, whatever else is right.
    #[rstest]
    #[case(&[], &["Bearer c"])]
    #[case(&[NODE, NODE], &["Bearer c"])]
    #[case(&["nobody"], &["Bearer c"])]
    #[case(&[NODE], &[])]
    #[case(&[NODE], &["Bearer c", "Bearer c"])]
    #[case(&[NODE], &["bearer c"])]
    #[case(&[NODE], &["Bearer"])]
    #[case(&[NODE], &["Bearer c d"])]
    fn malformed_dial_is_a_credential_error(#[case] nodes: &[&str], #[case] authorizations: &[&str]) {
        assert_eq!(dial(nodes, authorizations).err(), Some(Refusal::Credential));
    }

    #[test]
    fn one_identity_and_one_bearer_are_a_dial() {
        let dial = dial(&[NODE], &["Bearer secret"]).unwrap_or_else(|_| panic!("well formed"));
        assert_eq!((dial.node.to_string().as_str(), dial.bearer), (NODE, "secret"));
    }

    /// W 175, W 176. A request without upgrade is 400, a page's is 403; both name the version.
    #[test]
    fn failed_upgrades_have_their_own_answers() {
        assert_eq!(handshake(false, false), Err(Refusal::NotWebSocket));
        assert_eq!(handshake(true, true), Err(Refusal::Origin));
        assert_eq!(handshake(false, true), Ok(()));
        assert!(Refusal::NotWebSocket.names_version() && Refusal::Origin.names_version());
        assert!(!Refusal::Credential.names_version());
    }

    /// E2. The answer to a cloned identity names the cause.
    #[test]
    fn conflict_names_the_cause() {
        assert_eq!(Refusal::InUse.status(), 409);
        assert!(Refusal::InUse.message().starts_with("identity in use"));
    }

    #[test]
    fn every_refusal_says_who_is_at_fault() {
        let kinds = [
            (Refusal::Credential, "invalid_request_error"),
            (Refusal::Origin, "invalid_request_error"),
            (Refusal::NotWebSocket, "invalid_request_error"),
            (Refusal::InUse, "conflict_error"),
            (Refusal::Unavailable, "server_error"),
        ];
        for (refusal, kind) in kinds {
            assert_eq!(refusal.kind(), kind);
        }
    }
}
