//! Starting and cancelling a reset of the deployment (deployment §1.3, §1.4).

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::deployment::Deployment as View;
use palisade_core::admin::error::Code;
use palisade_core::deployment::reset::{self, Audit, Change, Request, cancel, cancel_generation};

use super::{Administrator, ApiResult, Query, deployment, read_body};
use crate::Core;
use crate::limits::RESET_BODY_MAX_BYTES;
use crate::openapi::{Routes, delete, post};

const RESET: &str = "/core/v1/sandbox/deployment/reset";

/// Why a reset is neither started nor cancelled.
const REFUSALS: &[Code] = &[
    Code::InvalidRequestError,
    Code::SandboxGenerationStale,
    Code::SandboxDeploymentConflict,
    Code::ExecutionUnavailable,
];

pub(super) fn routes() -> Routes {
    let starting = post(RESET, "start_reset", "Ends every sandbox, then the selection");
    let cancelling = delete(RESET, "cancel_reset", "Goes on with the selection; what was archived stays so");
    Routes::new()
        .on(
            starting
                .takes::<reset::Body>()
                .answers::<View>(StatusCode::OK)
                .refuses(REFUSALS)
                .refuses(&[Code::SandboxNotConfigured, Code::SandboxResetInProgress]),
            start,
        )
        .on(
            cancelling
                .query("expected_generation", true, "the generation that the administrator saw")
                .answers::<View>(StatusCode::OK)
                .refuses(REFUSALS),
            end,
        )
}

async fn start(State(core): State<Core>, who: Administrator, body: Body) -> ApiResult<Json<View>> {
    let request = Request::parse(&read_body(body, RESET_BODY_MAX_BYTES).await?)?;
    let lease = core.execution().lease().ok_or(Code::ExecutionUnavailable)?;
    let mut tx = core.store().write().await?;
    let deployment = tx.fence(lease.epoch).await?;
    let now = tx.now().await?;
    let source = who.source();
    let audit = match request.decide(&deployment, lease.installation, now)? {
        Change::Repeated => return deployment::read(State(core)).await,
        Change::Started(reset) => {
            tx.start_reset(reset, &source).await?;
            Audit::Start
        }
        Change::Escalated(reset) => {
            tx.escalate_reset(reset).await?;
            Audit::Force
        }
    };
    tx.audit(audit.action(), "sandbox_deployment", lease.installation, None, &source).await?;
    tx.commit().await?;
    tracing::info!(generation = deployment.generation, clear = ?request.clear, "the deployment is being reset");
    core.wake_owner();
    deployment::read(State(core)).await
}

async fn end(State(core): State<Core>, who: Administrator, query: Query) -> ApiResult<Json<View>> {
    let expected_generation = cancel_generation(query.pairs())?;
    let lease = core.execution().lease().ok_or(Code::ExecutionUnavailable)?;
    let mut tx = core.store().write().await?;
    let deployment = tx.fence(lease.epoch).await?;
    if cancel(expected_generation, &deployment, lease.installation)? {
        tx.cancel_reset().await?;
        tx.audit(Audit::Cancel.action(), "sandbox_deployment", lease.installation, None, &who.source()).await?;
        tx.commit().await?;
        tracing::info!(generation = deployment.generation, "the reset of the deployment is cancelled");
    } else {
        drop(tx);
    }
    deployment::read(State(core)).await
}
