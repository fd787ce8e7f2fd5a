//! The address of Core: a bare origin (wire §4.3, decision 10).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::units::Malformed;

/// An origin, kept exactly as it was written, because Core and node compare it as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    text: String,
    secure: bool,
    loopback: bool,
}

impl Origin {
    const EXPECTED: Malformed =
        Malformed("an http or https origin, such as https://core.example: no user, path, query or fragment");

    /// Reads `scheme://host[:port][/]`, scheme `http` or `https`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let (scheme, rest) = text.split_once("://").ok_or(Self::EXPECTED)?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(Self::EXPECTED),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let host = host(authority).ok_or(Self::EXPECTED)?;
        Ok(Self { text: text.to_owned(), secure, loopback: is_loopback(host) })
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the host is `localhost` or a loopback address; `host.localhost` is not.
    #[must_use]
    pub const fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// Whether the scheme is `https`.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.secure
    }

    /// Whether a node may send its credential there: over TLS, on this host, or because the operator opted in.
    #[must_use]
    pub const fn is_permitted(&self, allow_insecure: bool) -> bool {
        self.secure || self.loopback || allow_insecure
    }

    /// The address of a route; `path` begins with a slash.
    #[must_use]
    pub fn join(&self, path: &str) -> String {
        let base = self.text.strip_suffix('/').unwrap_or(&self.text);
        format!("{base}{path}")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The host of `host[:port]`, brackets included; `None` when either is malformed.
fn host(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    if !port.is_empty() {
        let digits = port.strip_prefix(':').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse::<u16>().ok().filter(|port| *port > 0)?;
    }
    let valid = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    valid.then_some(host)
}

fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    host.len() <= 253 && host.strip_suffix('.').unwrap_or(host).split('.').all(is_label)
}

fn is_loopback(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| address.to_canonical().is_loopback());
    }
    host.eq_ignore_ascii_case("localhost") || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://core.example")]
    #[case("https://core.example/")]
    #[case("https://core.example:8443")]
    #[case("HTTPS://Core.Example")]
    #[case("https://10.0.0.7:1")]
    #[case("https://[2001:db8::1]:65535")]
    #[case("http://localhost:8080")]
    #[case("http://LOCALHOST")]
    #[case("http://127.0.0.1:8080")]
    #[case("http://127.9.9.9")]
    #[case("http://[::1]:8080")]
    #[case("http://[::ffff:127.0.0.1]")]
    /// W 142, D 78. Origins over TLS anywhere, and plain ones on this host.
    fn an_origin_is_accepted(#[case] text: &str) {
        let origin = Origin::parse(text).unwrap();
        assert!(origin.is_permitted(false));
        assert_eq!(origin.to_string(), text);
    }

    #[rstest]
    #[case("core.example")]
    #[case("//core.example")]
    #[case("ftp://core.example")]
    #[case("ws://core.example")]
    #[case("wss://core.example")]
    #[case("unix:///run/core.sock")]
    #[case("https://")]
    #[case("https:///")]
    #[case("https://:8443")]
    #[case("https://core.example:")]
    #[case("https://core.example:0")]
    #[case("https://core.example:65536")]
    #[case("https://core.example:+1")]
    #[case("https://user@core.example")]
    #[case("https://user:secret@core.example")]
    #[case("https://core.example/api")]
    #[case("https://core.example//")]
    #[case("https://core.example?")]
    #[case("https://core.example/?a=b")]
    #[case("https://core.example#")]
    #[case("https://core.example/#a")]
    #[case("https://core example")]
    #[case(" https://core.example")]
    #[case("https://core.example\n")]
    #[case("https://[::1")]
    #[case("https://[core]")]
    #[case("https://::1")]
    #[case("https://core..example")]
    #[case("https://c\u{f6}re.example")]
    /// W 142, D 78. Anything but a bare origin.
    fn what_is_no_origin_is_refused(#[case] text: &str) {
        assert_eq!(Origin::parse(text), Err(Origin::EXPECTED));
    }

    #[rstest]
    #[case("http://core.example")]
    #[case("http://host.localhost")]
    #[case("http://10.0.0.7")]
    #[case("http://[2001:db8::1]")]
    #[case("http://0.0.0.0:8080")]
    /// W 143. Plain http to another host needs the operator's opt-in, which relaxes nothing else.
    fn plain_http_to_another_host_needs_the_opt_in(#[case] text: &str) {
        let origin = Origin::parse(text).unwrap();
        assert_eq!((origin.is_permitted(false), origin.is_permitted(true)), (false, true));
        assert!(Origin::parse(&format!("{text}/api")).is_err());
    }

    #[test]
    fn a_route_is_joined_with_one_slash() {
        for text in ["https://core.example", "https://core.example/"] {
            assert_eq!(Origin::parse(text).unwrap().join("/api/v1"), "https://core.example/api/v1");
        }
    }
}
