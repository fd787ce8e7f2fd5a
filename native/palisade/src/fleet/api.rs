//! Core's HTTP routes that a fleet needs.

use std::time::Duration;

use anyhow::{anyhow, bail};
use reqwest::Method;
use serde_json::Value;

use crate::operator::http::{Answer, Http, Request};

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A Core and the key to it. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Api {
    http: Http,
    key: String,
}

impl Api {
    pub(crate) fn new(origin: &str, key: String) -> anyhow::Result<Self> {
        Ok(Self { http: Http::within(origin, ANSWER_MAX)?, key })
    }

    pub(crate) fn origin(&self) -> &str {
        self.http.origin()
    }

    /// An administrative route.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        self.send(method, path, &self.key, body).await
    }

    /// A route for whoever has `token`.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> anyhow::Result<Value> {
        let body = body.map(|body| body.to_string());
        let request =
            Request { method: method.as_str(), path, bearer: Some(token), headers: &[], body: body.as_deref() };
        let answer =
            self.http.send(request).await.map_err(|error| anyhow!("{path}: {}", self.http.unanswered(&error)))?;
        read(path, &answer)
    }
}

fn read(path: &str, answer: &Answer) -> anyhow::Result<Value> {
    let status = answer.status;
    let value: Option<Value> = serde_json::from_slice(&answer.body).ok();
    match value {
        Some(value) if (200..300).contains(&status) => Ok(value),
        Some(value) => bail!("{path} answered {status}: {}", value["error"]["message"].as_str().unwrap_or("no reason")),
        None => bail!("{path} answered {status} without JSON; is that address Core's?"),
    }
}
