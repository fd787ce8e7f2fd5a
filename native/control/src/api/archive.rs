//! Archiving a session (deployment §1.14).

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::archive::Archive;
use palisade_core::admin::error::Code;
use palisade_core::hosted::archive::archive;
use palisade_core::hosted::request::{ArchiveRequest, archive_generation};

use super::core_id;
use crate::Core;
use crate::http::{Administrator, ApiResult, Path, read_body};
use crate::limits::RESET_BODY_MAX_BYTES;
use crate::openapi::{Routes, get, post};

const ARCHIVE: &str = "/core/v1/projects/{project}/sessions/{session}/archive";

pub(super) fn routes() -> Routes {
    let archiving = post(ARCHIVE, "archive_session", "Ends a session's environment and what it holds")
        .takes::<ArchiveRequest>()
        .answers::<Archive>(StatusCode::OK)
        .refuses(&[
            Code::NotFoundError,
            Code::SandboxGenerationStale,
            Code::SandboxDeploymentConflict,
            Code::SandboxNotConfigured,
            Code::ExecutionUnavailable,
        ]);
    let reading =
        get(ARCHIVE, "read_archive", "How far the archive of a session is").answers::<Archive>(StatusCode::OK);
    Routes::new().on(archiving, create).on(reading.refuses(&[Code::NotFoundError]), read)
}

/// Ends the session's environment and requests the cleanup of what it holds.
pub(super) async fn create(
    State(core): State<Core>,
    administrator: Administrator,
    Path((project, session)): Path<(String, String)>,
    body: Body,
) -> ApiResult<Json<Archive>> {
    let expected_generation = archive_generation(&read_body(body, RESET_BODY_MAX_BYTES).await?)?;
    let (project, session) = (core_id(&project)?, core_id(&session)?);
    let lease = core.execution().lease().ok_or(Code::ExecutionUnavailable)?;
    let mut tx = core.store().write().await?;
    tx.lock_session(session).await?;
    tx.session(session, project).await?.ok_or(Code::NotFoundError)?;
    let deployment = tx.fence(lease.epoch).await?;
    let (environment, resources) = tx.resources(session).await?;
    let archiving = archive(&resources, expected_generation, &deployment)?;
    let now = tx.now().await?;
    tx.archive_session(session, environment, archiving, now).await?;
    if archiving.expire {
        tx.audit("archive", "session", session, Some(project), &administrator.source()).await?;
    }
    let state = tx.archive_state(session).await?;
    tx.commit().await?;
    core.wake_owner();
    Ok(Json(state))
}

/// How far the session's resources are.
pub(super) async fn read(
    State(core): State<Core>,
    Path((project, session)): Path<(String, String)>,
) -> ApiResult<Json<Archive>> {
    let (project, session) = (core_id(&project)?, core_id(&session)?);
    let mut tx = core.store().read().await?;
    tx.session(session, project).await?.ok_or(Code::NotFoundError)?;
    Ok(Json(tx.archive_state(session).await?))
}
