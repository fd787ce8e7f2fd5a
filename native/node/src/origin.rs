//! The address of Core as a node keeps it (wire §4.3, decision 10). The grammar is that of the core.

use std::fmt;

use palisade_core::deployment::origin;
use palisade_core::units::Malformed;

/// An origin, kept exactly as it was written, because Core and node compare it as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    text: String,
    /// Over TLS, or on this host.
    private: bool,
}

impl Origin {
    const EXPECTED: Malformed =
        Malformed("a lower-case http or https origin, such as https://core.example: no user, path, query or fragment");

    /// Reads `scheme://host[:port][/]`, scheme `http` or `https`.
    pub(crate) fn parse(text: &str) -> Result<Self, Malformed> {
        let origin = origin::Origin::parse(text).ok_or(Self::EXPECTED)?;
        Ok(Self { text: text.to_owned(), private: origin.secure || origin.is_loopback() })
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a node may send its credential there: over TLS, on this host, or because the operator opted in.
    pub(crate) const fn is_permitted(&self, allow_insecure: bool) -> bool {
        self.private || allow_insecure
    }

    /// The address of a route; `path` begins with a slash.
    pub(crate) fn join(&self, path: &str) -> String {
        let base = self.text.strip_suffix('/').unwrap_or(&self.text);
        format!("{base}{path}")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://core.example")]
    #[case("https://core.example/")]
    #[case("https://core.example:8443")]
    #[case("https://[2001:db8::1]:65535")]
    #[case("http://localhost:8080")]
    #[case("http://127.0.0.1:8080")]
    #[case("http://[::1]:8080")]
    /// W 142. Origins over TLS anywhere, and plain ones on this host.
    fn an_origin_is_accepted(#[case] text: &str) {
        let origin = Origin::parse(text).unwrap();
        assert!(origin.is_permitted(false));
        assert_eq!(origin.to_string(), text);
    }

    #[rstest]
    #[case("core.example")]
    #[case("ftp://core.example")]
    #[case("wss://core.example")]
    #[case("https://user@core.example")]
    #[case("https://user:secret@core.example")]
    #[case("https://core.example/api")]
    #[case("https://core.example/?a=b")]
    #[case("https://core.example/#a")]
    #[case("https://core.example\n")]
    /// W 142. Anything but a bare origin.
    fn what_is_no_origin_is_refused(#[case] text: &str) {
        assert_eq!(Origin::parse(text), Err(Origin::EXPECTED));
    }

    #[rstest]
    #[case("http://core.example")]
    #[case("http://host.localhost")]
    #[case("http://10.0.0.7")]
    /// W 143. Plain http to another host needs the operator's opt-in, which relaxes nothing else.
    fn plain_http_to_another_host_needs_the_opt_in(#[case] text: &str) {
        let origin = Origin::parse(text).unwrap();
        assert_eq!((origin.is_permitted(false), origin.is_permitted(true)), (false, true));
        Origin::parse(&format!("{text}/api")).unwrap_err();
    }

    #[test]
    fn a_route_is_joined_with_one_slash() {
        for text in ["https://core.example", "https://core.example/"] {
            assert_eq!(Origin::parse(text).unwrap().join("/api/v1"), "https://core.example/api/v1");
        }
    }
}
