//! The deployment: view, first selection, change, discovery (deployment §1.1, §1.2, §1.5).

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::deployment::{Deployment as View, TemplateBuild};
use palisade_core::admin::discovery::Discovered;
use palisade_core::admin::error::{Code, Fault};
use palisade_core::deployment::Deployment;
use palisade_core::deployment::reset::remaining;
use palisade_core::deployment::selection::{ApiKey, Commit, Decision, Known, Selection, Verb};
use palisade_core::deployment::view;
use palisade_core::deployment::{discovery, selection};
use palisade_core::units::Id;

use super::{Administrator, ApiResult, Path, read_body};
use crate::Core;
use crate::Lease;
use crate::limits::{BODY_MAX_BYTES, CONFIRMATION_WAIT};
use crate::openapi::{Operation, Routes, get, post, put};
use crate::store::Tx;

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
        Some(installation) => tx.standings_of_target(installation, &deployment).await?,
        None => Vec::new(),
    };
    let now = tx.now().await?;
    if let (Some(_), Some(installation)) = (deployment.reset, deployment.installation) {
        let (held, nodes) = (tx.held_resources(&deployment).await?, tx.nodes(installation).await?);
        counted.remaining = remaining(&held, &nodes, &deployment, now);
    }
    Ok(view::deployment(&deployment, &counted, &nodes, now))
}

async fn initialise(State(core): State<Core>, who: Administrator, body: Body) -> ApiResult<Json<View>> {
    select(core, Verb::Initialise, &who, body).await
}

async fn change(State(core): State<Core>, who: Administrator, body: Body) -> ApiResult<Json<View>> {
    select(core, Verb::Change, &who, body).await
}

/// Judges under the deployment's lock, lets the provider confirm outside of it where it must, judges again and commits
/// in the same transaction; then answers the view after it.
async fn select(core: Core, verb: Verb, who: &Administrator, body: Body) -> ApiResult<Json<View>> {
    let selection = Selection::parse(&read_body(body, BODY_MAX_BYTES).await?).map_err(Fault::from)?;
    let lease = core.execution().lease().ok_or(Code::ExecutionUnavailable)?;
    let mut confirmed = None;
    loop {
        let mut tx = core.store().write().await?;
        let deployment = tx.fence(lease.epoch).await?;
        let judge = Judge { core: &core, selection: &selection, verb, lease };
        match judge.decide(&mut tx, &deployment, confirmed.as_ref()).await? {
            Decision::Unchanged => {}
            Decision::Confirm(candidate) => {
                drop(tx);
                let confirming = core.confirmation().confirm(verb, &candidate, CONFIRMATION_WAIT);
                confirmed = Some(confirming.await.map_err(Fault::from)?);
                continue;
            }
            Decision::Refresh(metadata) => {
                tx.record_metadata(&metadata).await?;
                tx.commit().await?;
            }
            Decision::Commit(commit) => {
                store(&core, &mut tx, &deployment, &commit, lease.installation, who).await?;
                tx.commit().await?;
                tracing::info!(generation = commit.generation.get(), "the deployment changed");
                core.wake_owner();
            }
            Decision::Open => return Err(Code::InternalError.into()),
        }
        return read(State(core)).await;
    }
}

/// A selection before a stored deployment.
struct Judge<'a> {
    core: &'a Core,
    selection: &'a Selection,
    verb: Verb,
    lease: Lease,
}

impl Judge<'_> {
    /// Opens the stored key when the decision needs it.
    async fn decide(
        &self,
        tx: &mut Tx,
        deployment: &Deployment,
        confirmed: Option<&TemplateBuild>,
    ) -> ApiResult<Decision> {
        let known = Known { confirmed, ..Known::new(self.lease.installation) };
        match self.selection.decide(self.verb, deployment, known).map_err(Fault::from)? {
            Decision::Open => {
                let key = self.open(tx, deployment).await?;
                let known = Known { stored_key: Some(&key), ..known };
                Ok(self.selection.decide(self.verb, deployment, known).map_err(Fault::from)?)
            }
            decision => Ok(decision),
        }
    }

    /// The stored key; what does not open is not available, and the log says why.
    async fn open(&self, tx: &mut Tx, deployment: &Deployment) -> ApiResult<ApiKey> {
        let seal = self.core.seal().ok_or(Code::CredentialStorageUnavailable)?;
        let sealed = tx.sealed_credential().await?.ok_or(Code::InternalError)?;
        let generation = deployment.target().ok_or(Code::InternalError)?;
        seal.open(&sealed, self.lease.installation, generation).map_err(|error| {
            tracing::error!(%error, "the stored credential cannot be used");
            Code::CredentialStorageUnavailable.into()
        })
    }
}

async fn store(
    core: &Core,
    tx: &mut Tx,
    previous: &Deployment,
    commit: &Commit,
    installation: Id,
    who: &Administrator,
) -> ApiResult<()> {
    let sealed = match &commit.key {
        Some(key) => {
            let seal = core.seal().ok_or(Code::CredentialStorageUnavailable)?;
            Some(seal.seal(key, installation, commit.generation))
        }
        None => None,
    };
    let now = tx.now().await?;
    tx.retain_current(previous, now).await?;
    tx.select(commit, installation, sealed).await?;
    tx.collect_generations(commit.generation.get()).await?;
    if let Some(audit) = commit.audit {
        tx.audit(audit.action(), "sandbox_deployment", installation, None, &who.source()).await?;
    }
    Ok(())
}

async fn discover(Path(provider): Path<String>, body: Body) -> ApiResult<Json<()>> {
    Err(discovery::refuse(&provider, &read_body(body, BODY_MAX_BYTES).await?).into())
}
