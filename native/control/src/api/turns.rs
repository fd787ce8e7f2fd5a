//! Turns of a session.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::error::{Code, Fault};
use palisade_core::hosted::view::{Page, Turn};
use palisade_core::units::Id;

use super::caller::Caller;
use super::public_id;
use crate::Core;
use crate::http::{ApiError, ApiResult, Path, Query};
use crate::limits::TURNS_LISTED_MAX;
use crate::openapi::{Operation, Routes, get};
use crate::store::Tx;

const TURNS: &str = "/v1/agents/sessions/{session}/turns";
const TURN: &str = "/v1/agents/sessions/{session}/turns/{turn}";

pub(super) fn routes(public: impl Fn(Operation) -> Operation) -> Routes {
    let listing = get(TURNS, "list_turns", "The newest Turns of a session, in their order")
        .query("before", false, "a Turn; asks for older ones")
        .query("limit", false, "1 to 100")
        .answers::<Page<Turn>>(StatusCode::OK);
    let reading = get(TURN, "read_turn", "A Turn").answers::<Turn>(StatusCode::OK);
    Routes::new()
        .on(public(listing).refuses(&[Code::NotFoundError]), list)
        .on(public(reading).refuses(&[Code::NotFoundError]), read)
}

/// The newest Turns in their order; `before` names a Turn and asks for older ones, `limit` for fewer.
pub(super) async fn list(
    State(core): State<Core>,
    caller: Caller,
    Path(session): Path<String>,
    query: Query,
) -> ApiResult<Json<Page<Turn>>> {
    let session = public_id(&session)?;
    let limit = limit(&query)?;
    let before = query.at_most_one("before").map_err(|_| invalid("before"))?;
    let mut tx = core.store().read().await?;
    tx.session(session, caller.owner.project).await?.ok_or(Code::NotFoundError)?;
    let before = match before {
        Some(turn) => Some(position(&mut tx, turn, session).await?),
        None => None,
    };
    Ok(Json(tx.turns(session, before, limit).await?))
}

pub(super) async fn read(
    State(core): State<Core>,
    caller: Caller,
    Path((session, turn)): Path<(String, String)>,
) -> ApiResult<Json<Turn>> {
    let (session, turn) = (public_id(&session)?, public_id(&turn)?);
    let mut tx = core.store().read().await?;
    tx.session(session, caller.owner.project).await?.ok_or(Code::NotFoundError)?;
    Ok(Json(tx.turn(turn, session).await?.ok_or(Code::NotFoundError)?))
}

async fn position(tx: &mut Tx, turn: &str, session: Id) -> ApiResult<i64> {
    tx.turn_position(public_id(turn)?, session).await?.ok_or(Code::NotFoundError.into())
}

fn limit(query: &Query) -> ApiResult<usize> {
    let Some(text) = query.at_most_one("limit").map_err(|_| invalid("limit"))? else { return Ok(TURNS_LISTED_MAX) };
    let limit = text.parse().ok().filter(|limit| (1..=TURNS_LISTED_MAX).contains(limit));
    limit.ok_or_else(|| invalid("limit"))
}

fn invalid(param: &'static str) -> ApiError {
    Fault::of(Code::InvalidRequestError, param).into()
}
