//! Sessions of projects: operators look at them and end them with the Core key; `run` takes a project key.

mod args;
mod project;
mod run;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use palisade_core::admin::archive::{Archive, ArchiveState};
use palisade_core::admin::client::{Method, archive, read_deployment};
use palisade_core::hosted::view::{EnvironmentStatus, Project, Session, SessionStatus};
use palisade_core::units::Id;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

pub(crate) use args::SessionsCommand;
use args::{SessionsArchive, SessionsList};

use super::http::Request;
use super::table::table;
use super::{Core, explain, show};

/// Exit code of `run` when nobody knows what came of the command.
const UNKNOWN: u8 = 124;
/// Exit code of `run` when the command certainly did not run.
const NOT_RUN: u8 = 125;
/// How often an archive that is waited for is looked at.
const POLL: Duration = Duration::from_secs(1);

pub(super) async fn run(command: &SessionsCommand) -> anyhow::Result<ExitCode> {
    match command {
        SessionsCommand::List(options) => list(options).await,
        SessionsCommand::Run(options) => run::run(options).await,
        SessionsCommand::Archive(options) => end(options).await,
    }
}

#[derive(Deserialize)]
struct List<T> {
    data: Vec<T>,
}

async fn list(options: &SessionsList) -> anyhow::Result<ExitCode> {
    let core = Core::of(&options.operator)?;
    let mut found = Vec::new();
    for project in projects(&core, options.project).await? {
        let sessions: List<Session> = core.read(&format!("/core/v1/projects/{project}/sessions")).await?;
        found.extend(sessions.data.into_iter().map(|session| (project, session)));
    }
    let data: Vec<_> =
        found.iter().map(|(project, session)| json!({"project_id": project, "session": session})).collect();
    show(options.operator.json, &json!({ "data": data }), || {
        let rows = found.iter().map(|(project, session)| {
            let created = session.created_at.to_string();
            [
                session.id.to_string(),
                status(session).to_owned(),
                environment(session).to_owned(),
                created,
                project.to_string(),
            ]
        });
        table(["SESSION", "STATUS", "ENVIRONMENT", "CREATED", "PROJECT"], rows)
    })
}

async fn projects(core: &Core, only: Option<Id>) -> anyhow::Result<Vec<Id>> {
    if let Some(project) = only {
        return Ok(vec![project]);
    }
    let all: List<Project> = core.read("/core/v1/projects").await?;
    Ok(all.data.into_iter().map(|project| project.id).collect())
}

/// Archives under the generation that was just read.
async fn end(options: &SessionsArchive) -> anyhow::Result<ExitCode> {
    let core = Core::of(&options.operator)?;
    let project = owner(&core, options).await?;
    let generation = core.ask(read_deployment()).await?.generation;
    let mut state = core.ask(archive(project, options.session, Some(generation))).await?;
    while options.wait && state.state != ArchiveState::Released {
        tokio::time::sleep(POLL).await;
        state = look(&core, project, options.session).await?.unwrap_or(state);
    }
    show(options.operator.json, &state, || match state.state {
        ArchiveState::Active => format!("session {} is not archived", state.session_id),
        ArchiveState::CleanupPending => {
            format!("session {} is archived, and its sandbox is being removed", state.session_id)
        }
        ArchiveState::Released => format!("session {} is archived, and nothing is held any more", state.session_id),
    })
}

/// How far an archive is; `None` while Core does not answer, because the archive is durable and goes on by itself.
async fn look(core: &Core, project: Id, session: Id) -> anyhow::Result<Option<Archive>> {
    match core.attempt(&archive(project, session, None)).await {
        Ok(state) => Ok(Some(state)),
        Err(failed) if failed.status == 0 || failed.status >= 500 => {
            eprintln!("{}; the archive is stored, and is looked at again", failed.message);
            Ok(None)
        }
        Err(failed) => Err(explain(Method::Get, &failed)),
    }
}

async fn owner(core: &Core, options: &SessionsArchive) -> anyhow::Result<Id> {
    if let Some(project) = options.project {
        return Ok(project);
    }
    for project in projects(core, None).await? {
        let sessions: List<Session> = core.read(&format!("/core/v1/projects/{project}/sessions")).await?;
        if sessions.data.iter().any(|session| session.id == options.session) {
            return Ok(project);
        }
    }
    Err(anyhow::anyhow!("no project lists the session {}; name its project with --project", options.session))
}

impl Core {
    /// A list that the typed client does not know.
    async fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let request = Request { bearer: Some(&self.key), ..Request::get(path) };
        let answer = self.http.send(request).await.map_err(|error| anyhow::anyhow!(self.http.unanswered(&error)))?;
        if !(200..300).contains(&answer.status) {
            let failed = read_deployment().handle_answer(answer.status, &answer.body).err();
            return Err(failed.map_or_else(|| anyhow::anyhow!("core refused"), |failed| explain(Method::Get, &failed)));
        }
        serde_json::from_slice(&answer.body).context("core's answer does not have the form that it must have")
    }
}

const fn status(session: &Session) -> &'static str {
    match session.status {
        SessionStatus::Idle => "idle",
        SessionStatus::InProgress => "in progress",
    }
}

const fn environment(session: &Session) -> &'static str {
    match session.environment.status {
        EnvironmentStatus::Pending => "pending",
        EnvironmentStatus::Connected => "connected",
        EnvironmentStatus::Disconnected => "disconnected",
        EnvironmentStatus::Failed => "failed",
        EnvironmentStatus::Expired => "expired",
    }
}
