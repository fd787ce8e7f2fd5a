//! Commands of operators: one request to Core each, a table for people, JSON for programs.

mod deployment;
mod nodes;
mod table;
mod tokens;

use std::process::ExitCode;
use std::time::Duration;

use palisade_core::admin::client::{Call, Failed, Known, Method};
use serde::Serialize;

use crate::cli::{Operator, OperatorCommand};
use crate::key;

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

pub(crate) fn run(command: &OperatorCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            OperatorCommand::Deployment(command) => deployment::run(command).await,
            OperatorCommand::Nodes(command) => nodes::run(command).await,
            OperatorCommand::Tokens(command) => tokens::run(command).await,
        }
    })
}

/// A Core and the key to it.
struct Core {
    http: reqwest::Client,
    origin: String,
    key: String,
}

impl Core {
    fn of(options: &Operator) -> anyhow::Result<Self> {
        let http =
            reqwest::Client::builder().timeout(ANSWER_MAX).redirect(reqwest::redirect::Policy::none()).build()?;
        let origin = options.core_url.trim_end_matches('/').to_owned();
        Ok(Self { http, origin, key: key::read(&options.admin_key_file)? })
    }

    /// Sends a call exactly once.
    async fn ask<T>(&self, call: Call<T>) -> anyhow::Result<T> {
        let answer = match self.send(&call).await {
            Ok((status, body)) => call.handle_answer(status, &body),
            Err(error) => Err(Failed { message: self.unanswered(&error), ..call.handle_failure() }),
        };
        answer.map_err(|failed| explain(call.method, &failed))
    }

    async fn send<T>(&self, call: &Call<T>) -> reqwest::Result<(u16, bytes::Bytes)> {
        let method = reqwest::Method::from_bytes(call.method.name().as_bytes()).expect("a method of HTTP");
        let request = self.http.request(method, format!("{}{}", self.origin, call.path));
        let request = request.bearer_auth(&self.key).header("accept", "application/json");
        let request = match &call.body {
            Some(body) => request.header("content-type", "application/json").body(body.clone()),
            None => request,
        };
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.bytes().await?))
    }

    /// Where nobody answered, the innermost cause, and what to look at.
    fn unanswered(&self, error: &reqwest::Error) -> String {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        format!("core did not answer at {}: {cause}; is it running there, and is --core-url right?", self.origin)
    }
}

const UNKNOWN: &str = "; a change may or may not have been made: look before the next one";

/// What went wrong, where, and whether something may have changed.
fn explain(method: Method, failed: &Failed) -> anyhow::Error {
    let param = failed.param.iter().map(|param| format!("; member {param}"));
    let details = failed.details.iter();
    let details = details.map(|(name, value)| format!("; {name} {}", serde_json::to_string(value).unwrap_or_default()));
    let code = failed.code.iter().map(|code| format!(" ({code}, status {})", failed.status));
    let unknown = method != Method::Get && failed.known() == Known::Unknown;
    let unknown = unknown.then_some(UNKNOWN).map(str::to_owned);
    let text: String =
        [failed.message.clone()].into_iter().chain(param).chain(details).chain(code).chain(unknown).collect();
    anyhow::anyhow!(text)
}

/// One JSON object for programs, or the text for people.
fn show(json: bool, answer: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
    let shown = if json { serde_json::to_string(answer)? } else { text() };
    crate::print(format!("{}\n", shown.trim_end()).as_bytes())
}

#[cfg(test)]
mod tests {
    use palisade_core::admin::client::{Method, list_nodes, remove_node};
    use palisade_core::units::Id;

    use super::explain;

    #[test]
    fn a_refusal_is_told_with_its_member_bounds_and_code() {
        let body = br#"{"error":{"message":"too many","type":"t","code":"invalid_node_capacity","param":"max_active",
            "details":{"max":1000000,"min":1}}}"#;
        let failed = list_nodes().handle_answer(400, body).expect_err("a refusal");
        let told = "too many; member max_active; max 1000000; min 1 (invalid_node_capacity, status 400)";
        assert_eq!(explain(Method::Get, &failed).to_string(), told);
    }

    #[test]
    fn a_lost_answer_says_that_something_may_have_changed() {
        let failed = remove_node(Id::from_random([1; 16])).handle_failure();
        assert!(explain(Method::Delete, &failed).to_string().ends_with("look before the next one"));
        let read = list_nodes().handle_failure();
        assert_eq!(explain(Method::Get, &read).to_string(), "core did not answer", "a read changes nothing");
    }
}
