//! Core's HTTP routes that a fleet needs.

use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Method, Response};
use serde_json::Value;

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A Core and the key to it. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Api {
    http: reqwest::Client,
    origin: String,
    key: String,
}

impl Api {
    pub(crate) fn new(origin: String, key: String) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().timeout(ANSWER_MAX).redirect(reqwest::redirect::Policy::none());
        Ok(Self { http: http.build()?, origin, key })
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
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
        let request = self.http.request(method, format!("{}{path}", self.origin)).bearer_auth(token);
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let answer = request.send().await.with_context(|| format!("no answer from {path}"))?;
        read(path, answer).await
    }
}

async fn read(path: &str, answer: Response) -> anyhow::Result<Value> {
    let status = answer.status();
    let bytes = answer.bytes().await?;
    let value: Option<Value> = serde_json::from_slice(&bytes).ok();
    match value {
        Some(value) if status.is_success() => Ok(value),
        Some(value) => bail!("{path} answered {status}: {}", value["error"]["message"].as_str().unwrap_or("no reason")),
        None => bail!("{path} answered {status} without JSON; is that address Core's?"),
    }
}
