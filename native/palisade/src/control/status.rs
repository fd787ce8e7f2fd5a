//! `palisade core status`: what a running Core says of itself.

use std::process::ExitCode;

use anyhow::bail;
use palisade_control::health::{Health, Status};
use serde::Serialize;

use super::args::StatusArgs;
use crate::operator::http::{Http, Request};
use crate::operator::show;

#[derive(Serialize)]
struct Told<'t> {
    core_url: &'t str,
    status: Status,
}

pub(super) async fn run(options: &StatusArgs) -> anyhow::Result<ExitCode> {
    let http = Http::new(&options.core_url)?;
    let status = ask(&http).await?;
    let told = Told { core_url: http.origin(), status };
    let code = show(options.json, &told, || format!("{}: {}", http.origin(), meaning(status)))?;
    Ok(if status == Status::Unavailable { ExitCode::FAILURE } else { code })
}

/// Whether the Core at this origin serves; an error when nobody, or something else, answers there.
pub(super) async fn ask(http: &Http) -> anyhow::Result<Status> {
    let answer = match http.send(Request::get("/readyz")).await {
        Ok(answer) => answer,
        Err(error) => bail!(http.unanswered(&error)),
    };
    match serde_json::from_slice::<Health>(&answer.body) {
        Ok(health) => Ok(health.status),
        Err(_) => bail!(
            "something else than core answered at {} with status {}; is --core-url right, and does a proxy stand between?",
            http.origin(),
            answer.status
        ),
    }
}

const fn meaning(status: Status) -> &'static str {
    match status {
        Status::Live => "live",
        Status::Ready => "ready",
        Status::Standby => "standby: another core owns execution; this one takes over when it ends",
        Status::Unavailable => "unavailable: its database does not answer; core's log has the cause",
    }
}
