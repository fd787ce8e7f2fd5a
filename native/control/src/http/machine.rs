//! What nodes ask over HTTP: configuration, enrollment, identity (deployment §1.13, wire §9).
//!
//! The credential is always judged before the deployment, the query's values and the body.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use palisade_core::admin::error::{Code, Fault};
use palisade_core::deployment::capacity::{Capacity, initialised};
use palisade_core::deployment::contract::Mode;
use palisade_core::deployment::node::{Measurements, valid_credential, valid_name};
use palisade_core::deployment::specification::Specification;
use palisade_core::deployment::{Deployment, contract::Provider};
use palisade_core::generation::assignment::Assignment;
use palisade_core::limits::ENROLLMENT_MAX_BYTES;
use palisade_core::strict;
use palisade_core::units::{Digest, Generation, Id};
use palisade_core::wire::payload::Identity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ApiError, ApiResult, Query, bearer, read_body};
use crate::Core;
use crate::hub;
use crate::openapi::{Operation, Routes, get, post};
use crate::store::enrollment::{NewNode, Token};
use crate::store::{Refused, StoreError, Tx};

/// Names the node that a configuration is read for.
const NODE_HEADER: &str = "x-oac-node-id";

const CONFIGURATION: &str = "/api/v1/sandbox-node/configuration";
const ENROLL: &str = "/api/v1/sandbox-node/enroll";
const IDENTITY: &str = "/api/v1/sandbox-node/identity";

pub(super) fn routes() -> Routes {
    let configuring = get(CONFIGURATION, "read_configuration", "What a node is to run")
        .header("X-OAC-Node-ID", false, "the node whose credential is sent; absent with an enrollment token")
        .query("generation", false, "a generation that the node must keep; absent for the current one")
        .answers::<Assignment>(StatusCode::OK)
        .refuses(&[
            Code::InvalidRequest,
            Code::SandboxResetInProgress,
            Code::SandboxDeploymentConflict,
            Code::SandboxSpecificationMismatch,
        ]);
    let enrolling = post(ENROLL, "enroll", "Makes the holder of an enrollment token a node")
        .takes::<Enroll>()
        .answers::<Enrolled>(StatusCode::CREATED)
        .refuses(&[
            Code::InvalidRequestError,
            Code::SandboxResetInProgress,
            Code::SandboxSpecificationMismatch,
            Code::SandboxNodeAddressMismatch,
            Code::IdempotencyConflict,
        ]);
    let recovering = get(IDENTITY, "read_identity", "What a registered node is")
        .query("node_id", true, "the node whose credential is sent")
        .answers::<Recovered<'_>>(StatusCode::OK)
        .refuses(&[Code::InvalidRequest, Code::SandboxSpecificationMismatch]);
    Routes::new()
        .on(configuring, configuration)
        .on(enrolling, enroll)
        .on(recovering, identity)
        .described(hub::routes(), [connecting(get, "connect"), connecting(post, "refuse_connect")])
}

/// The upgrade to the node protocol; the hub answers it, and refuses in the words of that protocol.
fn connecting(method: fn(&'static str, &'static str, &'static str) -> Operation, name: &'static str) -> Operation {
    method("/api/v1/sandbox-node/connect", name, "The node's WebSocket; a POST is always refused")
        .query("node_id", true, "the node whose credential is sent")
        .answers_empty(StatusCode::SWITCHING_PROTOCOLS)
        .refuses_unnamed(&[
            StatusCode::BAD_REQUEST,
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::CONFLICT,
            StatusCode::SERVICE_UNAVAILABLE,
        ])
}

/// Storage that fails while a machine asks is "not available now", never a rejection.
trait Available<T> {
    fn available(self) -> ApiResult<T>;
}

impl<T> Available<T> for Result<T, StoreError> {
    fn available(self) -> ApiResult<T> {
        self.map_err(|error| ApiError::unavailable(&error))
    }
}

impl<T> Available<T> for Result<T, Refused> {
    fn available(self) -> ApiResult<T> {
        self.map_err(ApiError::machine)
    }
}

fn credential(headers: &HeaderMap) -> ApiResult<Digest> {
    Ok(Digest::of(bearer(headers).ok_or(Code::InvalidNodeCredential)?.as_bytes()))
}

async fn configuration(State(core): State<Core>, headers: HeaderMap, query: Query) -> ApiResult<Json<Assignment>> {
    let credential = credential(&headers)?;
    let mut tx = core.store().read().await.available()?;
    let mut nodes = headers.get_all(NODE_HEADER).iter();
    let answer = match (nodes.next(), nodes.next()) {
        (None, _) => for_token(&mut tx, credential, &query).await?,
        (Some(node), None) => {
            let node = node.to_str().ok().and_then(|text| Id::parse(text).ok()).ok_or(Code::InvalidNodeCredential)?;
            for_node(&mut tx, node, credential, &query).await?
        }
        (Some(_), Some(_)) => return Err(Code::InvalidNodeCredential.into()),
    };
    Ok(Json(answer))
}

/// A new node reads what it is to enroll with. Never consumes the token.
async fn for_token(tx: &mut Tx, credential: Digest, query: &Query) -> ApiResult<Assignment> {
    if query.all("generation").next().is_some() {
        return Err(Code::InvalidNodeCredential.into());
    }
    let (token, deployment) = accept_token(tx, credential).await?;
    let provider = initialised(&deployment)?;
    refuse_during_reset(&deployment)?;
    require_nodes(provider)?;
    let specification = deployment.specification().cloned().ok_or(Code::SandboxSpecificationMismatch)?;
    if deployment.admission_paused {
        return Err(Code::SandboxDeploymentConflict.into());
    }
    let generation = deployment.target().ok_or(Code::SandboxSpecificationMismatch)?;
    compose(deployment, token.approval.shown(provider), generation, specification)
}

/// A registered node reads the target, or a generation that it must still keep. No reset blocks it.
async fn for_node(tx: &mut Tx, id: Id, credential: Digest, query: &Query) -> ApiResult<Assignment> {
    let enrolled = tx.enrolled(id, credential).await.available()?;
    let deployment = tx.deployment().await.available()?;
    if deployment.installation.is_some_and(|installation| installation != enrolled.installation) {
        return Err(Code::InvalidNodeCredential.into());
    }
    let requested = requested_generation(query)?;
    let provider = initialised(&deployment)?;
    require_nodes(provider)?;
    tx.check_identity(&deployment, &enrolled).await.available()?;
    let node = tx.node(id, enrolled.installation).await.available()?.ok_or(Code::InvalidNodeCredential)?;
    let generation = requested.or(deployment.target()).ok_or(Code::SandboxSpecificationMismatch)?;
    if !deployment.authority().needs(&node.standing, generation) {
        return Err(Code::SandboxSpecificationMismatch.into());
    }
    let specification = tx.specification(&deployment, generation).await.available()?;
    let specification = specification.ok_or(Code::SandboxSpecificationMismatch)?;
    let capacity = Capacity::reported(provider, node.max_active, node.max_retained);
    compose(deployment, capacity, generation, specification)
}

/// `generation` at most once, canonical decimal, 1 to 2^63 − 1.
fn requested_generation(query: &Query) -> ApiResult<Option<Generation>> {
    let Some(text) = query.at_most_one("generation").map_err(|_| Code::InvalidRequest)? else { return Ok(None) };
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let value = text.parse().ok().filter(|_| canonical).and_then(Generation::new);
    Ok(Some(value.ok_or(Code::InvalidRequest)?))
}

fn compose(
    deployment: Deployment,
    capacity: Capacity,
    generation: Generation,
    specification: Specification,
) -> ApiResult<Assignment> {
    Ok(Assignment {
        max_active: capacity.max_active,
        max_retained: capacity.max_retained,
        installation_id: deployment.installation.ok_or(Code::RuntimeNodeUnavailable)?,
        provider: specification.provider(),
        core_url: deployment.core_url,
        generation,
        specification_digest: specification.digest(),
        specification,
    })
}

fn refuse_during_reset(deployment: &Deployment) -> ApiResult<()> {
    if deployment.reset.is_some() { Err(Code::SandboxResetInProgress.into()) } else { Ok(()) }
}

fn require_nodes(provider: Provider) -> ApiResult<()> {
    match provider.rule().mode {
        Mode::Nodes => Ok(()),
        Mode::Direct => Err(Code::SandboxDeploymentConflict.into()),
    }
}

/// The token first, then the installation: another installation's token is good for nothing here.
async fn accept_token(tx: &mut Tx, credential: Digest) -> ApiResult<(Token, Deployment)> {
    let token = tx.token(credential).await.available()?.ok_or(Code::InvalidNodeCredential)?;
    let deployment = tx.deployment().await.available()?;
    if deployment.installation.is_some_and(|installation| installation != token.installation) {
        return Err(Code::InvalidNodeCredential.into());
    }
    Ok((token, deployment))
}

/// The body of an enrollment. It carries a credential and is therefore never shown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Enroll {
    node_id: String,
    credential: String,
    name: String,
    provider: String,
    backend_fingerprint: String,
    deployment_generation: u64,
    specification_digest: String,
    #[serde(default)]
    #[schemars(required)]
    core_url: Option<String>,
    #[serde(default, deserialize_with = "strict::present")]
    cpu_count: Option<u64>,
    #[serde(default, deserialize_with = "strict::present")]
    effective_cpu_cores: Option<f64>,
    #[serde(default, deserialize_with = "strict::present")]
    total_memory_bytes: Option<u64>,
    #[serde(default, deserialize_with = "strict::present")]
    available_disk_bytes: Option<u64>,
}

/// What a node may become, once its request has the right form.
struct Candidate {
    id: Id,
    credential: Digest,
    backend_fingerprint: Digest,
    core_url: String,
    measured: Measurements,
    body: Enroll,
}

impl Enroll {
    fn check(mut self) -> ApiResult<Candidate> {
        let core_url = self.core_url.take().filter(|url| !url.is_empty());
        let core_url = core_url.ok_or_else(|| Fault::of(Code::InvalidRequestError, "core_url"))?;
        let id = Id::parse(&self.node_id).map_err(|_| Code::InvalidRequest)?;
        let backend_fingerprint = Digest::parse(&self.backend_fingerprint).map_err(|_| Code::InvalidRequest)?;
        let measured = Measurements {
            cpu_count: self.cpu_count,
            effective_cpu_cores: self.effective_cpu_cores,
            total_memory_bytes: self.total_memory_bytes,
            available_disk_bytes: self.available_disk_bytes,
            ..Measurements::default()
        };
        if !valid_credential(&self.credential) || !valid_name(self.name.as_bytes()) || !measured.is_valid() {
            return Err(Code::InvalidRequest.into());
        }
        let credential = Digest::of(self.credential.as_bytes());
        Ok(Candidate { id, credential, backend_fingerprint, core_url, measured, body: self })
    }
}

impl Candidate {
    /// Checks 7 to 11 of wire §9.1. Returns the target's specification.
    fn judge<'d>(&self, deployment: &'d Deployment) -> ApiResult<(&'d Specification, Generation)> {
        let provider = initialised(deployment)?;
        refuse_during_reset(deployment)?;
        let accepted = provider.rule().mode == Mode::Nodes && provider.name() == self.body.provider;
        if !accepted || deployment.admission_paused {
            return Err(Code::InvalidRequest.into());
        }
        let specification = deployment.specification().ok_or(Code::SandboxSpecificationMismatch)?;
        let target = deployment.target().filter(|target| target.get() == self.body.deployment_generation);
        let target = target.ok_or(Code::SandboxSpecificationMismatch)?;
        if specification.digest().to_string() != self.body.specification_digest {
            return Err(Code::SandboxSpecificationMismatch.into());
        }
        if deployment.core_url != self.core_url {
            return Err(Code::SandboxNodeAddressMismatch.into());
        }
        Ok((specification, target))
    }
}

#[derive(Serialize, JsonSchema)]
struct Enrolled {
    specification_digest: Digest,
    deployment_generation: Generation,
    node_id: Id,
    installation_id: Id,
    provider: Provider,
    max_active: u32,
    max_retained: u32,
}

async fn enroll(State(core): State<Core>, headers: HeaderMap, body: Body) -> ApiResult<(StatusCode, Json<Enrolled>)> {
    let token = credential(&headers)?;
    let bytes = read_body(body, ENROLLMENT_MAX_BYTES).await?;
    let body: Enroll = strict::object(&bytes).map_err(|_| Code::InvalidRequest)?;
    let candidate = body.check()?;
    // A cheap look first: whoever has no good token takes no lock.
    accept_token(&mut core.store().read().await.available()?, token).await?;
    let enrolled = register(&core, token, &candidate).await?;
    tracing::info!(node = %enrolled.node_id, "a node enrolled");
    core.wake_owner();
    Ok((StatusCode::CREATED, Json(enrolled)))
}

/// One transaction: every refusal leaves the token unused.
async fn register(core: &Core, token: Digest, candidate: &Candidate) -> ApiResult<Enrolled> {
    let mut tx = core.store().write().await.available()?;
    tx.lock_deployment().await.available()?;
    let (Token { id, installation, approval }, deployment) = accept_token(&mut tx, token).await?;
    let (specification, generation) = candidate.judge(&deployment)?;
    let capacity = approval.derive(specification, &candidate.measured);
    let node = NewNode {
        id: candidate.id,
        installation,
        name: &candidate.body.name,
        backend_fingerprint: candidate.backend_fingerprint,
        credential: candidate.credential,
        capacity,
        specification_digest: specification.digest(),
        generation,
        core_url: &candidate.core_url,
        enrollment_id: id,
    };
    let now = tx.now().await.available()?;
    if !tx.insert_node(&node, now).await.available()? {
        return Err(Code::IdempotencyConflict.into());
    }
    if !tx.consume_token(token, candidate.id, now).await.available()? {
        return Err(Code::InvalidNodeCredential.into());
    }
    tx.commit().await.available()?;
    Ok(Enrolled {
        specification_digest: node.specification_digest,
        deployment_generation: generation,
        node_id: node.id,
        installation_id: installation,
        provider: specification.provider(),
        max_active: capacity.max_active,
        max_retained: capacity.max_retained,
    })
}

#[derive(Serialize, JsonSchema)]
struct Recovered<'a> {
    specification_digest: &'a str,
    deployment_generation: u64,
    node_id: &'a str,
    installation_id: &'a str,
    provider: &'a str,
    max_active: i64,
    max_retained: i64,
    connected: bool,
    provider_ready: bool,
}

async fn identity(State(core): State<Core>, headers: HeaderMap, query: Query) -> ApiResult<Json<serde_json::Value>> {
    let credential = credential(&headers)?;
    let id = query.at_most_one("node_id").ok().flatten().ok_or(Code::InvalidRequest)?;
    let id = Id::parse(id).map_err(|_| Code::InvalidNodeCredential)?;
    let known = core.store().authenticate_node(id, credential).await.available()?;
    let Identity {
        node_id,
        installation_id,
        provider,
        deployment_generation,
        specification_digest,
        max_active,
        max_retained,
        backend_fingerprint: _,
    } = &known.identity;
    let recovered = Recovered {
        specification_digest,
        deployment_generation: *deployment_generation,
        node_id,
        installation_id,
        provider,
        max_active: *max_active,
        max_retained: *max_retained,
        connected: known.node.is_online(&known.deployment, known.now),
        provider_ready: known.node.is_serving(&known.deployment, known.now),
    };
    Ok(Json(serde_json::to_value(recovered).expect("texts and numbers always serialise")))
}
