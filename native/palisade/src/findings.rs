//! What a doctor reports: findings, each with its state and what to do next. A doctor changes nothing.

use std::process::ExitCode;

use serde::Serialize;

use crate::operator::show;
use crate::operator::table::table;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// The program can run, and somebody should look.
    Warning,
    /// The program cannot run, or not for long.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    check: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::Ok, found: found.into(), next: None }
    }

    pub(crate) fn warning(check: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { check, state: State::Warning, found: found.into(), next: Some(next.into()) }
    }

    pub(crate) fn problem(check: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { check, state: State::Problem, found: found.into(), next: Some(next.into()) }
    }
}

/// Prints all of them; a problem ends with 1.
pub(crate) fn report(findings: &[Finding], json: bool) -> anyhow::Result<ExitCode> {
    let problems = findings.iter().filter(|finding| finding.state == State::Problem).count();
    let report = serde_json::json!({ "problems": problems, "findings": findings });
    let code = show(json, &report, || text(findings, problems))?;
    Ok(if problems == 0 { code } else { ExitCode::FAILURE })
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
