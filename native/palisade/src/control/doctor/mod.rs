//! `palisade core doctor`: what is there, what is not, and what to do about it. It changes nothing.

mod database;
mod host;
mod network;

use std::process::ExitCode;

use palisade_control::store::{Location, Ownership};
use serde::Serialize;

use super::config::Config;
use crate::operator::show;
use crate::operator::table::table;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// Core can run, and somebody should look.
    Warning,
    /// Core cannot run, or not for long.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::Ok, found: found.into(), next: None }
    }

    fn warning(check: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { check, state: State::Warning, found: found.into(), next: Some(next.into()) }
    }

    fn problem(check: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { check, state: State::Problem, found: found.into(), next: Some(next.into()) }
    }
}

pub(super) async fn run(config: &Config, json: bool) -> anyhow::Result<ExitCode> {
    let findings = look(config).await;
    let problems = findings.iter().filter(|finding| finding.state == State::Problem).count();
    let report = serde_json::json!({ "problems": problems, "findings": findings });
    let code = show(json, &report, || text(&findings, problems))?;
    Ok(if problems == 0 { code } else { ExitCode::FAILURE })
}

async fn look(config: &Config) -> Vec<Finding> {
    let mut findings = vec![host::configuration(config)];
    let mut running = false;
    match config.store() {
        Err(error) => findings.push(Finding::problem("database", error.to_string(), "set data or database_url")),
        Ok(location) => {
            if let Location::Directory(folder) = &location {
                findings.extend([host::folder(folder), host::disk(folder)]);
            }
            let (seen, owner, stored_keys) = database::look(&location).await;
            findings.extend(seen);
            findings.push(host::keys(config, stored_keys));
            running = matches!(owner, Some(Ownership::Held(_)));
        }
    }
    findings.push(network::listen(config, running).await);
    findings.extend(network::metrics(config));
    findings.push(network::public_url(config, running).await);
    findings
}

fn text(findings: &[Finding], problems: usize) -> String {
    let rows = findings.iter().map(|finding| {
        let state = match finding.state {
            State::Ok => "ok",
            State::Warning => "WARNING",
            State::Problem => "PROBLEM",
        };
        [state.to_owned(), finding.check.to_owned(), finding.found.clone()]
    });
    let mut text = table(["STATE", "CHECK", "FOUND"], rows);
    for finding in findings {
        if let Some(next) = &finding.next {
            text.extend(["\n", finding.check, ": ", next]);
        }
    }
    text + &match problems {
        0 => "\nno problem found".to_owned(),
        1 => "\n1 problem found".to_owned(),
        many => format!("\n{many} problems found"),
    }
}
