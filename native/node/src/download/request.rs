//! The requests of a download: anonymous, never following an answer by themselves.

use std::time::Duration;

use palisade_core::deployment::origin::is_loopback;
use palisade_core::distribution::address::is_redirect_target;
use reqwest::header::{self, HeaderMap, HeaderName};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response};

use super::{DownloadError, Source};
use crate::limits::{ADDRESS_MAX_BYTES, CONNECT_TIMEOUT_MS, METADATA_TIMEOUT_MS};

/// The clients of one downloader.
pub(super) struct Requests {
    /// For the origin; between two programs of one host no proxy is asked.
    origin: Client,
    /// For where an answer sends us.
    elsewhere: Client,
}

impl Requests {
    /// `adapt` is how a test adds the authority that signed its server.
    pub(super) fn new(source: &Source, adapt: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Self, DownloadError> {
        let local = match source {
            Source::Console(origin) => is_loopback(origin.as_str()),
            Source::Bundle(_) => false,
        };
        let plain = || {
            let builder = Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .connect_timeout(Duration::from_millis(CONNECT_TIMEOUT_MS));
            adapt(builder)
        };
        let made = |builder: ClientBuilder| builder.build().map_err(|error| DownloadError::Client(error.to_string()));
        let origin = if local { plain().no_proxy() } else { plain() };
        Ok(Self { origin: made(origin)?, elsewhere: made(plain())? })
    }

    /// Asks for a small file, with a bound for the whole answer.
    pub(super) async fn metadata(&self, address: &str) -> reqwest::Result<Response> {
        self.origin.get(address).timeout(Duration::from_millis(METADATA_TIMEOUT_MS)).send().await
    }

    /// Asks for an artifact from byte `from` on, in the version that `validator` names.
    pub(super) fn artifact(&self, address: &str, hop: usize, from: u64, validator: Option<&str>) -> RequestBuilder {
        let client = if hop == 0 { &self.origin } else { &self.elsewhere };
        let request = client.get(address).header(header::ACCEPT_ENCODING, "identity");
        match validator {
            Some(validator) if from > 0 => {
                request.header(header::RANGE, format!("bytes={from}-")).header(header::IF_RANGE, validator)
            }
            Some(_) | None => request,
        }
    }
}

/// One header as text, when it stands there once.
pub(super) fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// What names the version of an answer strongly enough to resume it: an `ETag` that is not weak, else the date.
pub(super) fn validator(headers: &HeaderMap) -> Option<&str> {
    let strong = text(headers, header::ETAG).filter(|tag| tag.starts_with('"') && tag.ends_with('"'));
    strong.or_else(|| text(headers, header::LAST_MODIFIED))
}

/// Where an answer may send a download: to https, with nothing hidden in the address.
pub(super) fn target(asked: &str, headers: &HeaderMap) -> Option<String> {
    let location = text(headers, header::LOCATION)?;
    let absolute = if location.starts_with('/') && !location.starts_with("//") {
        let authority = asked.strip_prefix("https://")?.split(['/', '?']).next()?;
        format!("https://{authority}{location}")
    } else {
        location.to_owned()
    };
    (absolute.len() <= ADDRESS_MAX_BYTES && is_redirect_target(&absolute)).then_some(absolute)
}

/// What failed, in words of ours: the error's own would quote addresses.
pub(super) fn describe(error: &reqwest::Error) -> &'static str {
    if error.is_connect() {
        "no connection could be made"
    } else if error.is_timeout() {
        "the source did not answer in time"
    } else {
        "the connection broke"
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn headers(entries: &[(HeaderName, &str)]) -> HeaderMap {
        let entries = entries.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        let mut headers = HeaderMap::new();
        for (name, value) in entries {
            headers.append(name, value);
        }
        headers
    }

    /// H 12, H 14. Only https is followed; a path alone stays where it came from, and only if that was https.
    #[test]
    fn an_answer_sends_only_to_https() {
        let sent = |asked: &str, location: &str| target(asked, &headers(&[(header::LOCATION, location)]));
        assert_eq!(
            sent("http://core.example/a", "https://files.example/b?c=d"),
            Some("https://files.example/b?c=d".into())
        );
        assert_eq!(sent("https://core.example:8443/a?x", "/b"), Some("https://core.example:8443/b".into()));
        for (asked, location) in [
            ("https://core.example/a", "http://files.example/b"),
            ("http://core.example/a", "/b"),
            ("https://core.example/a", "//files.example/b"),
            ("https://core.example/a", "b"),
            ("https://core.example/a", "https://user@files.example/b"),
            ("https://core.example/a", ""),
        ] {
            assert_eq!(sent(asked, location), None, "{asked} {location}");
        }
        assert_eq!(target("https://core.example/a", &headers(&[])), None);
        let twice = headers(&[(header::LOCATION, "https://a.example/"), (header::LOCATION, "https://b.example/")]);
        assert_eq!(target("https://core.example/a", &twice), None);
    }

    #[test]
    fn a_weak_name_of_a_version_cannot_resume_it() {
        let of = |entries| validator(&headers(entries)).map(str::to_owned);
        assert_eq!(of(&[(header::ETAG, "\"a\""), (header::LAST_MODIFIED, "x")]), Some("\"a\"".into()));
        assert_eq!(of(&[(header::ETAG, "W/\"a\""), (header::LAST_MODIFIED, "x")]), Some("x".into()));
        assert_eq!(of(&[(header::ETAG, "W/\"a\"")]), None);
        assert_eq!(of(&[]), None);
    }
}
