//! The deployment: view, first selection, change, discovery (deployment §1.1, §1.2, §1.5).

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::deployment::Deployment as View;
use palisade_core::admin::discovery::Discovered;
use palisade_core::admin::error::{Code, Fault};
use palisade_core::deployment::reset::remaining;
use palisade_core::deployment::selection::{Commit, Decision, Selection, Verb};
use palisade_core::deployment::view;
use palisade_core::deployment::{discovery, selection};
use palisade_core::units::Id;

use super::{Administrator, ApiResult, Path, read_body};
use crate::Core;
use crate::limits::BODY_MAX_BYTES;
use crate::openapi::{Operation, Routes, get, post, put};
use crate::store::{StoreError, Tx};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
const DISCOVERY: &str = "/core/v1/sandbox/providers/{provider}/discovery";

/// Why a selection is refused, POST and PUT alike (deployment §1.2.2).
const REFUSALS: &[Code] = &[
    Code::InvalidSandboxConfiguration,
    Code::SandboxCredentialInvalid,
    Code::SandboxConfigurationInvalid,
    Code::SandboxGenerationStale,
    Code::SandboxDeploymentConflict,
    Code::SandboxResetInProgress,
    Code::SandboxResetRequired,
    Code::SandboxConfigurationError,
    Code::SandboxCredentialOwnership,
    Code::ExecutionUnavailable,
    Code::SandboxVerificationUnconfirmed,
    Code::CredentialStorageUnavailable,
];

pub(super) fn routes() -> Routes {
    let selecting = |operation: Operation| {
        operation.takes::<selection::Body<'_>>().answers::<View>(StatusCode::OK).refuses(REFUSALS)
    };
    let reading = get(DEPLOYMENT, "read_deployment", "The selection, its rollout and its reset");
    let initialising = selecting(post(DEPLOYMENT, "initialise_deployment", "Selects for the first time"));
    let changing = selecting(put(DEPLOYMENT, "update_deployment", "Changes the selection"));
    let discovering = post(DISCOVERY, "discover", "What can be selected with a key").takes::<discovery::Body<'_>>();
    Routes::new()
        .on(reading.answers::<View>(StatusCode::OK).refuses(&[Code::SandboxDeploymentConflict]), read)
        .on(initialising, initialise)
        .on(changing.refuses(&[Code::SandboxNotConfigured]), change)
        .on(
            discovering.answers::<Discovered>(StatusCode::OK).refuses(&[
                Code::InvalidSandboxConfiguration,
                Code::SandboxOperationUnsupported,
                Code::SandboxConfigurationInvalid,
                Code::SandboxVerificationUnconfirmed,
            ]),
            discover,
        )
}

pub(super) async fn read(State(core): State<Core>) -> ApiResult<Json<View>> {
    view(&core).await.map(Json)
}

pub(crate) async fn view(core: &Core) -> ApiResult<View> {
    let mut tx = core.store().read().await?;
    let deployment = tx.deployment().await?;
    if deployment.selected.is_some() && deployment.specification().is_none() {
        return Err(Code::SandboxDeploymentConflict.into());
    }
    let mut counted = tx.counted(&deployment).await?;
    let nodes = match deployment.installation {
        Some(installation) => tx.nodes(installation).await?,
        None => Vec::new(),
    };
    let now = tx.now().await?;
    if deployment.reset.is_some() {
        counted.remaining = remaining(&tx.held_resources(&deployment).await?, &nodes, &deployment, now);
    }
    Ok(view::deployment(&deployment, &counted, &nodes, now))
}

async fn initialise(State(core): State<Core>, who: Administrator, body: Body) -> ApiResult<Json<View>> {
    select(core, Verb::Initialise, &who, body).await
}

async fn change(State(core): State<Core>, who: Administrator, body: Body) -> ApiResult<Json<View>> {
    select(core, Verb::Change, &who, body).await
}

/// Judges and commits in one transaction under the deployment's lock, then answers the view after it.
async fn select(core: Core, verb: Verb, who: &Administrator, body: Body) -> ApiResult<Json<View>> {
    let selection = Selection::parse(&read_body(body, BODY_MAX_BYTES).await?).map_err(Fault::from)?;
    let lease = core.execution().lease().ok_or(Code::ExecutionUnavailable)?;
    let mut tx = core.store().write().await?;
    let deployment = tx.fence(lease.epoch).await?;
    let decision = selection.decide(verb, &deployment, lease.installation, true).map_err(Fault::from)?;
    match decision {
        Decision::Unchanged => drop(tx),
        Decision::Commit(commit) => {
            store(&mut tx, &deployment, &commit, lease.installation, who).await?;
            tx.commit().await?;
            tracing::info!(generation = commit.generation.get(), "the deployment changed");
            core.wake_owner();
        }
    }
    read(State(core)).await
}

async fn store(
    tx: &mut Tx,
    previous: &palisade_core::deployment::Deployment,
    commit: &Commit,
    installation: Id,
    who: &Administrator,
) -> Result<(), StoreError> {
    let now = tx.now().await?;
    tx.retain_current(previous, now).await?;
    tx.select(commit, installation).await?;
    tx.collect_generations(commit.generation.get()).await?;
    if let Some(audit) = commit.audit {
        tx.audit(audit.action(), "sandbox_deployment", installation, None, &who.source()).await?;
    }
    Ok(())
}

async fn discover(Path(provider): Path<String>, body: Body) -> ApiResult<Json<()>> {
    Err(discovery::refuse(&provider, &read_body(body, BODY_MAX_BYTES).await?).into())
}
