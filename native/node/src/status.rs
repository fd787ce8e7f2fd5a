//! `palisade node status`: what this host knows of its node, without asking anybody.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::identity::{self, Identity, IdentityError};

/// What the private state says. Holds no secret; serialises as the object of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Who the node is.
    pub identity: Identity,
    /// Core's origin.
    pub core_url: String,
    /// Highest epoch that was current; 0 before the first connection.
    pub owner_epoch: u64,
    /// Whether plain http to another host is allowed.
    pub allow_insecure_origin: bool,
    /// Whether Core has approved a capacity, that is, the enrollment was confirmed.
    pub enrolled: bool,
    /// Whether a process holds the state directory now.
    pub in_use: bool,
}

/// Why nothing can be said.
pub type StatusError = IdentityError;

/// Reads the private state in `state_dir`. Changes nothing.
///
/// # Errors
/// The directory holds no identity, or one that cannot be read.
pub fn status(state_dir: &Path) -> Result<Status, StatusError> {
    let stored = identity::peek(state_dir)?.ok_or_else(|| IdentityError::Unregistered(state_dir.to_owned()))?;
    Ok(Status {
        enrolled: stored.identity.is_approved(),
        core_url: stored.core_url.to_string(),
        owner_epoch: stored.owner_epoch.map_or(0, palisade_core::units::OwnerEpoch::get),
        allow_insecure_origin: stored.allow_insecure_origin,
        identity: stored.identity,
        in_use: identity::is_in_use(state_dir)?,
    })
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |value| if value { "yes" } else { "no" };
        let identity = &self.identity;
        writeln!(f, "node           {}", identity.node_id)?;
        writeln!(f, "installation   {}", identity.installation_id)?;
        writeln!(f, "core           {}", self.core_url)?;
        writeln!(f, "provider       {}", identity.provider)?;
        writeln!(f, "generation     {}", identity.deployment_generation)?;
        writeln!(f, "specification  {}", identity.specification_digest)?;
        writeln!(f, "enrolled       {}", yes(self.enrolled))?;
        writeln!(f, "capacity       {} active, {} retained", identity.max_active, identity.max_retained)?;
        writeln!(f, "owner epoch    {}", self.owner_epoch)?;
        writeln!(f, "plain http     {}", if self.allow_insecure_origin { "allowed" } else { "loopback only" })?;
        write!(f, "in use         {}", yes(self.in_use))
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::units::OwnerEpoch;

    use super::*;
    use crate::identity::State;
    use crate::origin::Origin;
    use crate::testing::{Host, files_below, fingerprint, parsed};

    #[test]
    fn the_status_says_what_is_known_and_no_secret() {
        let host = Host::new();
        assert!(matches!(status(&host.path("state")), Err(IdentityError::Unregistered(_))));
        let state = State::create(&host.path("state")).unwrap();
        let core_url = Origin::parse("https://core.example").unwrap();
        let mut stored = state.adopt_or_create(&parsed(), fingerprint(), &core_url, false).unwrap();
        state.record_epoch(&mut stored, OwnerEpoch::new(4).unwrap()).unwrap();
        let running = status(&host.path("state")).unwrap();
        assert_eq!((running.in_use, running.enrolled, running.owner_epoch), (true, false, 4));
        drop(state);
        let stopped = status(&host.path("state")).unwrap();
        assert!(!stopped.in_use);
        for text in [stopped.to_string(), serde_json::to_string(&stopped).unwrap()] {
            assert!(text.contains("https://core.example") && !text.contains(stored.credential.as_str()), "{text}");
        }
        assert_eq!(files_below(&host.path("state")), ["identity.json", "identity.lock"]);
    }
}
