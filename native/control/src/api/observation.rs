//! What a session's sandbox uses, measured on request (deployment §8.3).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use palisade_core::admin::error::Code;
use palisade_core::hosted::observation::{Observation, Reason, Subject};
use palisade_core::hosted::observations::{Observations, Observed, Page};
use palisade_core::hosted::request::HOSTED;
use palisade_core::limits::OBSERVATION_BUDGET_MS;
use palisade_core::operation::Operation;
use palisade_core::units::Id;
use palisade_core::wire::payload::{Instance, ObservationTarget, Reference};

use super::core_id;
use crate::Core;
use crate::http::{ApiError, ApiResult, Path, Query};
use crate::hub::Placement;
use crate::limits::OBSERVED_AT_ONCE;
use crate::openapi::{Routes, get};
use crate::store::Timestamp;
use crate::store::sessions::Running;

const OBSERVATIONS: &str = "/core/v1/sandbox/runtime-observations";
const OBSERVATION: &str = "/core/v1/projects/{project}/sessions/{session}/runtime-observation";

pub(super) fn routes() -> Routes {
    let reading = get(OBSERVATION, "read_runtime_observation", "What a session's sandbox uses now");
    let listing = get(OBSERVATIONS, "list_runtime_observations", "What the sandboxes of every project use now")
        .query("after", false, "the last one of the page before")
        .query("limit", false, "1 to 100, 20 without it")
        .query("order", false, "asc or desc by the sessions' creation, desc without it")
        .answers::<Observations>(StatusCode::OK)
        .refuses(&[Code::InvalidRequestError, Code::NotFoundError]);
    Routes::new()
        .on(reading.answers::<Observation>(StatusCode::OK).refuses(&[Code::NotFoundError]), read)
        .on(listing, list)
}

/// A page of observations, sampled during this request, a few at a time.
pub(super) async fn list(State(core): State<Core>, query: Query) -> ApiResult<impl IntoResponse> {
    let page = Page::parse(query.pairs())?;
    let found = core.store().read().await?.session_page(page).await?;
    let (sessions, has_more) = found.ok_or(Code::NotFoundError)?;
    let observing = stream::iter(sessions).map(|(session, project_id)| {
        let core = core.clone();
        async move { Ok::<_, ApiError>(Observed { project_id, observation: observe(&core, session).await? }) }
    });
    let data = observing.buffered(OBSERVED_AT_ONCE).try_collect().await?;
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(Observations::new(data, has_more))))
}

/// The bare observation, sampled during this request.
pub(super) async fn read(
    State(core): State<Core>,
    Path((project, session)): Path<(String, String)>,
) -> ApiResult<impl IntoResponse> {
    let (project, session) = (core_id(&project)?, core_id(&session)?);
    core.store().read().await?.session(session, project).await?.ok_or(Code::NotFoundError)?;
    let observation = observe(&core, session).await?;
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(observation)))
}

/// The observation of an existing session.
async fn observe(core: &Core, session: Id) -> ApiResult<Observation> {
    let mut tx = core.store().read().await?;
    let (subject, running) = tx.observed(session).await?;
    let now = tx.now().await?;
    drop(tx);
    let Some(running) = running else {
        let reason = if subject.allocation.is_some() { Reason::RuntimeNotRunning } else { Reason::AllocationPending };
        return Ok(subject.unavailable(reason, now));
    };
    let (Some(provider), Some(node)) = (subject.provider, running.node) else {
        return Ok(subject.unavailable(Reason::SourceNotConfigured, now));
    };
    let Some((allocation, _, created_at)) = subject.allocation else { return Err(Code::InternalError.into()) };
    let reference = Reference { tenant: running.tenant, environment: subject.environment, allocation };
    let placement = Placement { provider, node, generation: running.generation };
    let operation = Operation::Observe(Box::new(target(&subject, reference, running, created_at)));
    let budget = Duration::from_millis(OBSERVATION_BUDGET_MS);
    let outcome = core.hub().call(placement, reference, operation, budget).await;
    subject.resolve(&outcome, now).map_err(|error| {
        tracing::error!(%session, %error, "an observation was refused");
        Code::InternalError.into()
    })
}

fn target(
    subject: &Subject,
    reference: Reference,
    running: Running,
    created_at: Timestamp,
) -> ObservationTarget<'static> {
    ObservationTarget {
        tenant_id: reference.tenant.to_string().into(),
        session_id: subject.session.to_string().into(),
        environment_id: reference.environment.to_string().into(),
        mode: HOSTED.into(),
        instance: Instance {
            allocation_id: reference.allocation.to_string().into(),
            provider_key: running.installation.to_string().into(),
            connection_generation: "".into(),
            allocation_state: "running".into(),
            allocation_created_at: created_at.to_string().into(),
            compute_phase: running.compute_phase.into(),
            provider_state: running.compute_state.into(),
        },
        token_usage_present: false,
    }
}
