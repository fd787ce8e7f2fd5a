//! Commands of operators: one request to Core each, a table for people, JSON for programs.

mod deployment;
pub(crate) mod host;
pub(crate) mod http;
mod nodes;
mod sessions;
pub(crate) mod table;
mod tokens;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use palisade_core::admin::client::{Call, Failed, Known, Method};
use serde::Serialize;

use crate::cli::{Operator, OperatorCommand};
use crate::key;
use http::{Http, Request};
pub(crate) use sessions::SessionsCommand;

pub(crate) fn run(command: &OperatorCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            OperatorCommand::Deployment(command) => deployment::run(command).await,
            OperatorCommand::Nodes(command) => nodes::run(command).await,
            OperatorCommand::Sessions(command) => sessions::run(command).await,
            OperatorCommand::Tokens(command) => tokens::run(command).await,
        }
    })
}

/// A Core and the key to it.
struct Core {
    http: Http,
    key: String,
}

impl Core {
    fn of(options: &Operator) -> anyhow::Result<Self> {
        Ok(Self { http: Http::new(&options.core_url)?, key: key::read(&options.admin_key_file)? })
    }

    /// Sends a call exactly once.
    async fn ask<T>(&self, call: Call<T>) -> anyhow::Result<T> {
        self.attempt(&call).await.map_err(|failed| explain(call.method, &failed))
    }

    /// [`Core::ask`] for a caller that tells a refusal from silence.
    async fn attempt<T>(&self, call: &Call<T>) -> Result<T, Failed> {
        let request = Request {
            method: call.method.name(),
            path: &call.path,
            bearer: Some(&self.key),
            headers: &[],
            body: call.body.as_deref(),
        };
        match self.http.send(request).await {
            Ok(answer) => call.handle_answer(answer.status, &answer.body),
            Err(error) => Err(Failed { message: self.http.unanswered(&error), ..call.handle_failure() }),
        }
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
pub(crate) fn show(json: bool, answer: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<ExitCode> {
    let shown = if json { serde_json::to_string(answer)? } else { text() };
    crate::print(format!("{}\n", shown.trim_end()).as_bytes())
}

/// A new file that only its owner reads.
pub(crate) fn new_private_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
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
