//! Core's public URL: its form, and whether only this machine can reach it (deployment §5.1, wire §4.3).

use std::net::{IpAddr, Ipv6Addr};

/// An origin: scheme, host and perhaps a port, with no user, query, fragment, and no path but `/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// `https`, otherwise `http`.
    pub secure: bool,
    /// Host without brackets.
    pub host: &'a str,
}

impl<'a> Origin<'a> {
    /// Reads `http(s)://host[:port][/]`; scheme and host in lower case.
    #[must_use]
    pub fn parse(url: &'a str) -> Option<Self> {
        let (secure, rest) = match url.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix("http://")?),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        split(authority).map(|host| Self { secure, host })
    }

    /// `localhost` or a loopback address; `host.localhost` is not.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(loopback_address)
    }
}

/// Whether the URL is an origin that Core may be reached at: `https`, or `http` on a loopback host (decision 10).
#[must_use]
pub fn valid_core_url(url: &str) -> bool {
    Origin::parse(url).is_some_and(|origin| origin.secure || origin.is_loopback())
}

/// Whether only this machine can reach the URL.
#[must_use]
pub fn is_loopback(url: &str) -> bool {
    Origin::parse(url).is_some_and(|origin| origin.is_loopback())
}

fn loopback_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.to_ipv4_mapped().map_or(address.is_loopback(), |mapped| mapped.is_loopback()),
    }
}

/// The host of `host[:port]`, when both are well formed.
fn split(authority: &str) -> Option<&str> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return valid_port(port).then_some(host);
    }
    let (host, port) = authority.find(':').map_or((authority, ""), |at| authority.split_at(at));
    let valid = host.len() <= 253
        && host.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
        && host.split('.').all(|label| (1..=63).contains(&label.len()));
    (valid && valid_port(port)).then_some(host)
}

/// Nothing, or a colon and a canonical port number.
fn valid_port(text: &str) -> bool {
    let Some(digits) = text.strip_prefix(':') else { return text.is_empty() };
    let canonical = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    canonical && digits.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D 50. `localhost` and loopback literals are loopback, nothing else is.
    #[test]
    fn loopback_hosts_are_told_apart() {
        for url in [
            "http://localhost",
            "https://localhost:8443",
            "http://127.0.0.1:8080",
            "http://127.9.9.9",
            "http://[::1]",
            "https://[::1]:9/",
            "http://[::ffff:127.0.0.1]",
        ] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "https://host.localhost",
            "https://core.example",
            "http://10.0.0.1",
            "https://[2001:db8::1]",
            "http://0.0.0.0",
            "https://localhost.example",
            "localhost",
            "",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }

    /// D 78. The scheme, port, case and trailing parts of a Core URL.
    #[test]
    fn a_core_url_is_an_origin() {
        for url in [
            "https://core.example",
            "https://core.example/",
            "https://core.example:8443",
            "http://localhost:1",
            "http://[::1]:65535",
            "https://10.0.0.1",
        ] {
            assert!(valid_core_url(url), "{url}");
        }
        for url in [
            "http://core.example",
            "ftp://core.example",
            "HTTPS://core.example",
            "https://Core.example",
            "https://core.example:0",
            "https://core.example:65536",
            "https://core.example:",
            "https://core.example:080",
            "https://core.example//",
            "https://core.example/api",
            "https://core.example?",
            "https://core.example#",
            "https://user@core.example",
            "https://",
            "https:///",
            " https://core.example",
            "https://core..example",
            "https://[::1",
            "https://[zz]",
            "core.example",
            "",
        ] {
            assert!(!valid_core_url(url), "{url}");
        }
    }
}
