//! Core's HTTP routes, as any client uses them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::timeline::Timeline;

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Time between two looks at something that is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time after which a person hears what is awaited.
const TELL_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Api {
    http: reqwest::Client,
    pub(crate) origin: String,
    core_key: String,
    pub(crate) project: String,
    pub(crate) project_key: String,
}

impl Api {
    pub(crate) fn new(origin: String, core_key: String) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_MAX).build()?;
        Ok(Self { http, origin, core_key, project: String::new(), project_key: String::new() })
    }

    /// An administrative route.
    pub(crate) async fn core(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        self.send(self.request(method, path, &self.core_key), path, body).await
    }

    /// A public route, below `/v1/agents/sessions`.
    pub(crate) async fn sessions(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let path = format!("/v1/agents/sessions{path}");
        let request = self.request(method, &path, &self.project_key).header("OpenAI-Beta", "agents=v1");
        self.send(request, &path, body).await
    }

    /// Asks for a session that must be refused; gives status and code.
    pub(crate) async fn refused_session(&self, body: Value) -> anyhow::Result<(u16, String)> {
        let request = self.request(Method::POST, "/v1/agents/sessions", &self.project_key);
        let answer = request.header("OpenAI-Beta", "agents=v1").json(&body).send().await?;
        let status = answer.status();
        let told: Value = answer.json().await.context("a refusal is JSON")?;
        if status.is_success() {
            bail!("a session was created that had to be refused: {told}");
        }
        Ok((status.as_u16(), text(&told, "/error/code")?))
    }

    /// Creates the project that owns the sandboxes, and its key.
    pub(crate) async fn create_project(&mut self) -> anyhow::Result<()> {
        let project = self.core(Method::POST, "/core/v1/projects", Some(json!({ "name": "demo" }))).await?;
        self.project = text(&project, "/id")?;
        let path = format!("/core/v1/projects/{}/keys", self.project);
        let key = self.core(Method::POST, &path, Some(json!({ "name": "demo" }))).await?;
        self.project_key = text(&key, "/key")?;
        Ok(())
    }

    /// Starts a command and gives the Turn's id.
    pub(crate) async fn start(&self, session: &str, command: Value, timeout_ms: u64) -> anyhow::Result<String> {
        let body = json!({ "type": "message", "command": command, "timeout_ms": timeout_ms });
        let turn = self.sessions(Method::POST, &format!("/{session}/events"), Some(body)).await?;
        text(&turn, "/id")
    }

    /// Waits until a Turn has ended.
    pub(crate) async fn ended(&self, session: &str, turn: &str) -> anyhow::Result<Value> {
        until("the command to end", Duration::from_secs(45), async || {
            let turns = self.turns(session).await?;
            let found = turns.as_array().into_iter().flatten().find(|candidate| candidate["id"] == turn);
            let found = found.context("a Turn that was created is listed")?;
            Ok(matches!(found["status"].as_str(), Some("completed" | "failed" | "cancelled")).then(|| found.clone()))
        })
        .await
    }

    /// All Turns of a Session.
    pub(crate) async fn turns(&self, session: &str) -> anyhow::Result<Value> {
        let mut list = self.sessions(Method::GET, &format!("/{session}/turns"), None).await?;
        Ok(list["data"].take())
    }

    fn request(&self, method: Method, path: &str, key: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.origin)).bearer_auth(key)
    }

    async fn send(&self, request: RequestBuilder, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let answer = request.send().await.with_context(|| format!("no answer from {path}"))?;
        let status = answer.status();
        let bytes = answer.bytes().await?;
        if !status.is_success() {
            bail!("{path} answered {status}: {}", String::from_utf8_lossy(&bytes));
        }
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).with_context(|| format!("{path} answered no JSON"))
    }
}

/// Looks again and again until there is something, or the time is over. A person who waits is told for what.
pub(crate) async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let wait = async {
        let (began, mut told) = (Instant::now(), Duration::ZERO);
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            let waited = began.elapsed();
            if waited >= told + TELL_EVERY {
                told = waited;
                Timeline::detail(format_args!("… waits for {what}, {} s so far", waited.as_secs()));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    match tokio::time::timeout(limit, wait).await {
        Ok(found) => found,
        Err(_) => bail!("waited {} s for {what}", limit.as_secs()),
    }
}

/// A text in an answer.
pub(crate) fn text(answer: &Value, pointer: &str) -> anyhow::Result<String> {
    let found = answer.pointer(pointer).and_then(Value::as_str);
    Ok(found.with_context(|| format!("the answer has no text at {pointer}"))?.to_owned())
}
