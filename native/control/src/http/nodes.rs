//! Nodes and their enrollment commands (deployment §1.6–§1.11).

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::error::Code;
use palisade_core::admin::node::{Allocation, Deleted, Enrollment, List, Node as View, NodeDetail, True, Updated};
use palisade_core::deployment::capacity::{EnrollmentRequest, NodeUpdate, initialised};
use palisade_core::deployment::history::Range;
use palisade_core::deployment::node::{Node, parse_id};
use palisade_core::deployment::{Deployment, view};
use palisade_core::units::{Digest, Id};

use super::{ApiResult, Path, Query, read_body};
use crate::Core;
use crate::limits::BODY_MAX_BYTES;
use crate::openapi::{Routes, delete, get, patch, post};
use crate::store::Tx;

const NODES: &str = "/core/v1/sandbox/nodes";
const NODE: &str = "/core/v1/sandbox/nodes/{node}";
const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";
const ALLOCATIONS: &str = "/core/v1/sandbox/nodes/{node}/allocations";

pub(super) fn routes() -> Routes {
    let issuing = post(TOKENS, "create_enrollment", "A token with which one node may enroll, shown once")
        .takes::<EnrollmentRequest>()
        .answers::<Enrollment>(StatusCode::CREATED)
        .refuses(&[
            Code::InvalidNodeCapacity,
            Code::SandboxResetInProgress,
            Code::SandboxDeploymentConflict,
            Code::RuntimeNodeUnavailable,
        ]);
    let updating = patch(NODE, "update_node", "Renames a node and approves its capacity")
        .takes::<NodeUpdate>()
        .answers::<Updated>(StatusCode::OK)
        .refuses(CHANGES)
        .refuses(&[Code::InvalidName, Code::InvalidNodeCapacity]);
    let removing = delete(NODE, "remove_node", "Removes a node that holds nothing; its identifier is never used again")
        .answers::<Deleted>(StatusCode::OK)
        .refuses(CHANGES)
        .refuses(&[Code::RuntimeNodeInUse]);
    let listing = get(NODES, "list_nodes", "Every node that is not removed").answers::<List<View>>(StatusCode::OK);
    let reading = get(NODE, "read_node", "A node, its host and its history")
        .query("range", false, "1h, 6h or 24h")
        .answers::<NodeDetail>(StatusCode::OK)
        .refuses(&[Code::NotFoundError]);
    let holding = get(ALLOCATIONS, "list_allocations", "What a node holds, oldest first")
        .answers::<List<Allocation>>(StatusCode::OK)
        .refuses(&[Code::NotFoundError]);
    Routes::new()
        .on(issuing, issue)
        .on(listing, list)
        .on(reading, detail)
        .on(updating, update)
        .on(removing, remove)
        .on(holding, allocations)
}

/// Why a node is neither changed nor removed.
const CHANGES: &[Code] = &[Code::NotFoundError, Code::SandboxResetInProgress, Code::RuntimeNodeUnavailable];

async fn issue(State(core): State<Core>, body: Body) -> ApiResult<(StatusCode, Json<Enrollment>)> {
    let request = EnrollmentRequest::parse(&read_body(body, BODY_MAX_BYTES).await?)?;
    let mut tx = core.store().write().await?;
    let deployment = tx.lock_deployment().await?;
    let approval = request.approve(&deployment)?;
    let installation = deployment.installation.ok_or(Code::RuntimeNodeUnavailable)?;
    let token = random_token();
    let enrollment_id = Id::from_random(rand::random());
    let expires_at = tx.issue_token(Digest::of(token.as_bytes()), enrollment_id, installation, approval).await?;
    tx.commit().await?;
    tracing::info!(%enrollment_id, "an enrollment token was issued");
    Ok((StatusCode::CREATED, Json(Enrollment { token, expires_at, enrollment_id })))
}

/// 32 random bytes in lower-case hexadecimal.
fn random_token() -> String {
    let [first, second]: [u128; 2] = rand::random();
    format!("{first:032x}{second:032x}")
}

async fn list(State(core): State<Core>) -> ApiResult<Json<List<View>>> {
    let mut tx = core.store().read().await?;
    let deployment = tx.deployment().await?;
    let Some(installation) = deployment.installation else { return Ok(Json(List { data: Vec::new() })) };
    let now = tx.now().await?;
    let nodes = tx.nodes(installation).await?;
    let data = nodes.iter().filter_map(|node| view::node(node, &deployment, now)).collect();
    Ok(Json(List { data }))
}

async fn detail(State(core): State<Core>, Path(node): Path<String>, query: Query) -> ApiResult<Json<NodeDetail>> {
    let range = range(&query).ok_or(Code::InvalidRequest)?;
    let id = parse_id(&node).ok_or(Code::InvalidRequest)?;
    let mut tx = core.store().read().await?;
    let deployment = tx.deployment().await?;
    let node = find(&mut tx, id, &deployment).await?;
    let now = tx.now().await?;
    let shown = view::node(&node, &deployment, now).ok_or(Code::NotFoundError)?;
    let samples = tx.host_samples(id, range.start(now)).await?;
    Ok(Json(NodeDetail { node: shown, host: view::host(&node.measured), history: range.history(&samples, now) }))
}

fn range(query: &Query) -> Option<Range> {
    if !query.only(&["range"]) {
        return None;
    }
    query.at_most_one("range").ok()?.map_or(Some(Range::Hour), Range::from_name)
}

async fn find(tx: &mut Tx, id: Id, deployment: &Deployment) -> ApiResult<Node> {
    let installation = deployment.installation.ok_or(Code::NotFoundError)?;
    Ok(tx.node(id, installation).await?.ok_or(Code::NotFoundError)?)
}

async fn update(State(core): State<Core>, Path(node): Path<String>, body: Body) -> ApiResult<Json<Updated>> {
    let update = NodeUpdate::parse(&read_body(body, BODY_MAX_BYTES).await?)?;
    let id = parse_id(&node).ok_or(Code::InvalidRequest)?;
    let mut tx = core.store().write().await?;
    let deployment = tx.lock_deployment().await?;
    let capacity = update.approve(&deployment)?;
    tx.lock_node(id).await?;
    find(&mut tx, id, &deployment).await?;
    refuse_during_reset(&deployment)?;
    tx.update_node(id, &update.name, capacity).await?;
    tx.commit().await?;
    core.wake_owner();
    Ok(Json(Updated { id, updated: True }))
}

async fn remove(State(core): State<Core>, Path(node): Path<String>) -> ApiResult<Json<Deleted>> {
    let id = parse_id(&node).ok_or(Code::InvalidRequest)?;
    let mut tx = core.store().write().await?;
    let deployment = tx.lock_deployment().await?;
    initialised(&deployment)?;
    tx.lock_node(id).await?;
    let counts = find(&mut tx, id, &deployment).await?.counts;
    refuse_during_reset(&deployment)?;
    if counts.retained != 0 || counts.cleanup_pending != 0 {
        return Err(Code::RuntimeNodeInUse.into());
    }
    let now = tx.now().await?;
    tx.remove_node(id, now).await?;
    tx.commit().await?;
    tracing::info!(node = %id, "a node was removed");
    core.hub().disconnect(id);
    core.wake_owner();
    Ok(Json(Deleted { id, deleted: True }))
}

/// A management write waits for the end of a reset (decision 20).
fn refuse_during_reset(deployment: &Deployment) -> ApiResult<()> {
    if deployment.reset.is_some() { Err(Code::SandboxResetInProgress.into()) } else { Ok(()) }
}

async fn allocations(State(core): State<Core>, Path(node): Path<String>) -> ApiResult<Json<List<Allocation>>> {
    let id = parse_id(&node).ok_or(Code::InvalidRequest)?;
    let mut tx = core.store().read().await?;
    let deployment = tx.deployment().await?;
    find(&mut tx, id, &deployment).await?;
    Ok(Json(List { data: tx.node_allocations(id).await? }))
}
