//! How Core is asked: each request is sent once, no redirect is followed, and nobody's silence is a riddle.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, Url};

use crate::usage::Usage;

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A Core by its origin. Clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    origin: String,
    /// The variable whose proxy requests may go through.
    proxy: Option<&'static str>,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'r> {
    pub(crate) method: &'r str,
    pub(crate) path: &'r str,
    pub(crate) bearer: Option<&'r str>,
    pub(crate) headers: &'r [(&'static str, &'r str)],
    /// A JSON object.
    pub(crate) body: Option<&'r str>,
}

impl<'r> Request<'r> {
    /// A request that only reads and needs no key.
    pub(crate) const fn get(path: &'r str) -> Self {
        Self { method: "GET", path, bearer: None, headers: &[], body: None }
    }
}

/// What came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl Http {
    pub(crate) fn new(origin: &str) -> anyhow::Result<Self> {
        Self::within(origin, ANSWER_MAX)
    }

    /// [`Http::new`] with another longest wait for one answer. What names no Core is wrong usage, and not shown: it may
    /// hold a password.
    pub(crate) fn within(origin: &str, answer_max: Duration) -> anyhow::Result<Self> {
        if !names_a_core(origin) {
            let expected = "http:// or https:// and a host, without user or query, such as https://core.example";
            return Err(Usage(format!("core's url is not understood; expected {expected}")).into());
        }
        let client =
            reqwest::Client::builder().timeout(answer_max).redirect(reqwest::redirect::Policy::none()).build()?;
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let proxy = proxy_variables(origin).into_iter().find(|name| set(name));
        Ok(Self { client, origin: origin.trim_end_matches('/').to_owned(), proxy })
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) async fn send(&self, request: Request<'_>) -> reqwest::Result<Answer> {
        let method = Method::from_bytes(request.method.as_bytes()).expect("a method of HTTP");
        let mut sending = self.client.request(method, format!("{}{}", self.origin, request.path));
        sending = sending.header("accept", "application/json");
        if let Some(bearer) = request.bearer {
            sending = sending.bearer_auth(bearer);
        }
        for (name, value) in request.headers {
            sending = sending.header(*name, *value);
        }
        if let Some(body) = request.body {
            sending = sending.header("content-type", "application/json").body(body.to_owned());
        }
        let answer = sending.send().await?;
        Ok(Answer { status: answer.status().as_u16(), body: answer.bytes().await? })
    }

    /// Where nobody answered, the innermost cause, and what to look at.
    pub(crate) fn unanswered(&self, error: &reqwest::Error) -> String {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let proxy = self.proxy.map_or_else(String::new, |name| {
            format!("; {name} names a proxy, which may be what does not answer: no_proxy excepts addresses from it")
        });
        format!("core did not answer at {}: {cause}; is it running there, and is --core-url right?{proxy}", self.origin)
    }
}

/// The variables that name a proxy for an address, as the client looks at them.
fn proxy_variables(origin: &str) -> [&'static str; 4] {
    let secure = origin.starts_with("https");
    if secure {
        ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    } else {
        ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
    }
}

fn names_a_core(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        let anonymous = url.username().is_empty() && url.password().is_none();
        matches!(url.scheme(), "http" | "https") && anonymous && url.query().is_none() && url.fragment().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_core_is_wrong_usage_and_never_shown() {
        for origin in ["", "nonsense", "https://", "ftp://core", "http://user:hunter2@core", "http://core?hunter2"] {
            let refused = Http::new(origin).unwrap_err();
            assert!(refused.is::<Usage>(), "{origin}");
            assert!(!refused.to_string().contains("hunter2"), "{refused}");
        }
        assert_eq!(Http::new("https://core.example/").unwrap().origin(), "https://core.example");
    }
}
