//! The bootstrap file of a sandbox: what a provider delivers and the guest checks (node-host §10).
//!
//! One type writes the file on the node and reads it in the sandbox, so that the two cannot drift apart. No error
//! and no `Debug` form ever holds a submitted value.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{LINK_CREDENTIAL_MAX_BYTES, SANDBOX_IO_MAX_BYTES};
use crate::units::{Generation, Id};

/// A checked bootstrap: where the sandbox's I/O service connects, and as what.
#[derive(Clone, PartialEq, Eq)]
pub struct SandboxIo {
    /// `wss://…`, or `ws://…` to a loopback host; no user, query or fragment.
    pub link_url: String,
    /// 1 … 4096 bytes without white space or NUL; the service's only authentication.
    pub credential: String,
    /// What the credential speaks for.
    pub resource: Resource,
}

/// The resource that a link serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Owner of the environment.
    pub tenant_id: Id,
    /// The environment.
    pub environment_id: Id,
    /// Whether `id` names an allocation or an enrollment.
    pub kind: ResourceKind,
    /// The allocation or the enrollment.
    pub id: Id,
    /// Incarnation of the resource, from 1.
    pub generation: Generation,
}

/// What [`Resource::id`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceKind {
    /// One sandbox of a node.
    Allocation,
    /// One environment that its owner hosts.
    Enrollment,
}

/// Why a bootstrap file was refused. Names the rule, never a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More than 16 KiB.
    #[error("the bootstrap is longer than {SANDBOX_IO_MAX_BYTES} bytes")]
    TooLong,
    /// Not exactly the declared members with values of their types.
    #[error("the bootstrap is not one JSON object with exactly the members version, link_url, credential and resource")]
    Shape,
    /// Another version than 1.
    #[error("the bootstrap has another version than 1: build the Runtime release and the node from one source")]
    Version,
    /// `link_url` breaks its rules.
    #[error("link_url is not wss, or ws to a loopback host, without user, query and fragment")]
    LinkUrl,
    /// `credential` breaks its rules.
    #[error("credential is not 1 to {LINK_CREDENTIAL_MAX_BYTES} bytes without white space and NUL")]
    Credential,
}

impl SandboxIo {
    /// Reads and checks a bootstrap file.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        if bytes.len() > SANDBOX_IO_MAX_BYTES {
            return Err(Refusal::TooLong);
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|_| Refusal::Shape)?;
        if document.version != VERSION {
            return Err(Refusal::Version);
        }
        let Document { version: _, link_url, credential, resource } = document;
        Self { link_url, credential, resource }.checked()
    }

    /// The bytes of the file, checked by the rules that the guest applies.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn encode(&self) -> Result<Vec<u8>, Refusal> {
        let Self { link_url, credential, resource } = self.clone().checked()?;
        let document = Document { version: VERSION, link_url, credential, resource };
        let bytes = serde_json::to_vec(&document).map_err(|_| Refusal::Shape)?;
        if bytes.len() > SANDBOX_IO_MAX_BYTES { Err(Refusal::TooLong) } else { Ok(bytes) }
    }

    fn checked(self) -> Result<Self, Refusal> {
        if !link_url_allowed(&self.link_url) {
            return Err(Refusal::LinkUrl);
        }
        let length = self.credential.len();
        if length == 0 || length > LINK_CREDENTIAL_MAX_BYTES {
            return Err(Refusal::Credential);
        }
        if self.credential.chars().any(|c| c.is_whitespace() || c == '\0') {
            return Err(Refusal::Credential);
        }
        Ok(self)
    }
}

impl fmt::Debug for SandboxIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxIo").field("resource", &self.resource).finish_non_exhaustive()
    }
}

const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u64,
    link_url: String,
    credential: String,
    resource: Resource,
}

fn link_url_allowed(url: &str) -> bool {
    if url.contains(['?', '#', '\\']) || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return false;
    }
    let (rest, loopback_only) = match (url.strip_prefix("wss://"), url.strip_prefix("ws://")) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => return false,
    };
    let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
    match host_of(authority) {
        Some(host) => !loopback_only || is_loopback(host),
        None => false,
    }
}

/// The host of `host`, `host:port`, `[v6]` or `[v6]:port`; `None` for a user, an empty host or a bad port.
fn host_of(authority: &str) -> Option<&str> {
    if authority.contains('@') {
        return None;
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port_is_good = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    (!host.is_empty() && port_is_good).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"version":1,"link_url":"wss://core.example/link","credential":"synthetic-secret",
        "resource":{"tenant_id":"21f2d3c4-b5a6-4798-8899-aabbccddeeff","environment_id":"31f2d3c4-b5a6-4798-8899-aabbccddeeff",
        "kind":"allocation","id":"41f2d3c4-b5a6-4798-8899-aabbccddeeff","generation":1}}"#;

    fn refusal(text: &str) -> Refusal {
        SandboxIo::decode(text.as_bytes()).expect_err("must be refused")
    }

    #[test]
    fn what_the_provider_writes_is_what_the_guest_reads() {
        let bootstrap = SandboxIo::decode(GOOD.as_bytes()).unwrap();
        assert_eq!(SandboxIo::decode(&bootstrap.encode().unwrap()).unwrap(), bootstrap);
    }

    #[test]
    fn member_set_and_types_are_exact() {
        for (from, to) in [
            (r#""version":1,"#, ""),
            (r#""version":1"#, r#""version":1,"version":1"#),
            (r#""version":1"#, r#""Version":1"#),
            (r#""version":1"#, r#""version":null"#),
            (r#""version":1"#, r#""version":1,"extra":1"#),
            (r#""kind":"allocation""#, r#""kind":"session""#),
            (r#""generation":1"#, r#""generation":0"#),
            (r#""generation":1"#, r#""generation":1,"note":1"#),
            ("21f2d3c4-b5a6", "21F2D3C4-b5a6"),
            ("21f2d3c4-b5a6-4798-8899-aabbccddeeff", "00000000-0000-0000-0000-000000000000"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            assert_eq!(refusal(&GOOD.replacen(from, to, 1)), Refusal::Shape, "{to}");
        }
        assert_eq!(refusal(&format!("{GOOD} {{}}")), Refusal::Shape);
        assert_eq!(refusal(&GOOD.replacen(r#""version":1"#, r#""version":2"#, 1)), Refusal::Version);
    }

    #[test]
    fn link_url_is_encrypted_or_local() {
        for allowed in
            ["wss://core.example", "wss://[::2]:8443/x", "ws://localhost:1/x", "ws://127.0.0.9/", "ws://[::1]:9"]
        {
            assert!(link_url_allowed(allowed), "{allowed}");
        }
        for refused in [
            "ws://core.example/",
            "https://core.example/",
            "wss://",
            "wss:///path",
            "wss://user@core.example/",
            "wss://core.example/?a=1",
            "wss://core.example/#a",
            "wss://core.example:0/",
            "wss://core.example:99999/",
            "ws://localhost.example/",
            "wss://[::1",
        ] {
            assert!(!link_url_allowed(refused), "{refused}");
            assert_eq!(refusal(&GOOD.replacen("wss://core.example/link", refused, 1)), Refusal::LinkUrl);
        }
    }

    #[test]
    fn credential_length_is_bounded_and_has_no_white_space() {
        let with = |credential: &str| SandboxIo::decode(GOOD.replacen("synthetic-secret", credential, 1).as_bytes());
        assert!(with(&"c".repeat(LINK_CREDENTIAL_MAX_BYTES)).is_ok());
        for refused in ["", "a b", "a\\u0000b", "a\\nb", &"c".repeat(LINK_CREDENTIAL_MAX_BYTES + 1)] {
            assert_eq!(with(refused), Err(Refusal::Credential));
        }
    }

    #[test]
    fn length_is_bounded() {
        let padded = |length: usize| format!("{GOOD}{}", " ".repeat(length - GOOD.len()));
        assert!(SandboxIo::decode(padded(SANDBOX_IO_MAX_BYTES).as_bytes()).is_ok());
        assert_eq!(refusal(&padded(SANDBOX_IO_MAX_BYTES + 1)), Refusal::TooLong);
    }

    #[test]
    fn nothing_shows_the_credential_or_the_address() {
        let bootstrap = SandboxIo::decode(GOOD.as_bytes()).unwrap();
        let shown = format!("{bootstrap:?}");
        assert!(!shown.contains("synthetic-secret") && !shown.contains("core.example"), "{shown}");
        assert!(shown.contains(&bootstrap.resource.id.to_string()), "{shown}");
    }

    /// What is written is as short as what is read: the file ends at its limit, to the byte.
    #[test]
    fn an_encoded_bootstrap_has_the_same_limit() {
        let mut bootstrap = SandboxIo::decode(GOOD.as_bytes()).unwrap();
        let spare = SANDBOX_IO_MAX_BYTES - bootstrap.encode().unwrap().len();
        bootstrap.link_url.push_str(&"x".repeat(spare));
        assert_eq!(bootstrap.encode().unwrap().len(), SANDBOX_IO_MAX_BYTES);
        bootstrap.link_url.push('x');
        assert_eq!(bootstrap.encode(), Err(Refusal::TooLong));
        bootstrap.link_url.push('x');
        assert_eq!(bootstrap.encode(), Err(Refusal::TooLong));
    }

    #[test]
    fn an_address_holds_no_white_space_and_no_control_character() {
        for refused in ["wss://core.example/a b", "wss://core.example/a\u{a0}b", "wss://core.example/a\u{7f}b"] {
            assert!(!link_url_allowed(refused), "{refused:?}");
        }
    }
}
