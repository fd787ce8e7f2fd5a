//! Observations of the sandboxes of every project, by page (deployment §1.12).

use axum::http::{Method, StatusCode};
use rstest::rstest;
use serde_json::{Value, json};

use crate::public::Public;
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{KEY, ask, code};

const PATH: &str = "/core/v1/sandbox/runtime-observations";

fn ids(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|row| row["observation"]["session_id"].as_str().unwrap()).collect()
}

/// Pages lead through the sessions of every project in either order, deleted ones left out; the edges are those of the
/// rows, and every row says why it has no values.
#[rstest]
#[tokio::test]
async fn pages_lead_through_every_session(#[values(Sqlite, Postgres)] database: Database) {
    let (mut public, _node) = Public::with_node(database).await;
    let (_, nothing) = public.core(Method::GET, PATH, "").await;
    let empty = json!({"object": "list", "data": [], "has_more": false, "first_id": null, "last_id": null});
    assert_eq!(nothing, empty);
    let first = public.session().await;
    let second_project = public.create_project("second").await;
    (public.project, public.key) = second_project;
    let second = public.session().await;
    // Ties are broken by the identifier.
    public.fixture.execute("UPDATE sessions SET created_at = 7").await;
    let mut ascending = [first.as_str(), second.as_str()];
    ascending.sort_unstable();
    let [low, high] = ascending;

    let (_, all) = public.core(Method::GET, &format!("{PATH}?order=asc&unknown=1&unknown=2"), "").await;
    assert_eq!((ids(&all), &all["has_more"]), (vec![low, high], &json!(false)));
    assert_eq!((&all["first_id"], &all["last_id"]), (&json!(low), &json!(high)));
    let projects: Vec<_> = all["data"].as_array().unwrap().iter().map(|row| row["project_id"].clone()).collect();
    assert_ne!(projects[0], projects[1]);
    assert_eq!(all["data"][0]["observation"]["reason"], "allocation_pending");

    let (_, page) = public.core(Method::GET, &format!("{PATH}?limit=1"), "").await;
    assert_eq!((ids(&page), &page["has_more"]), (vec![high], &json!(true)));
    let (_, rest) = public.core(Method::GET, &format!("{PATH}?limit=1&after={high}"), "").await;
    assert_eq!((ids(&rest), &rest["has_more"]), (vec![low], &json!(false)));
    let (_, end) = public.core(Method::GET, &format!("{PATH}?after={low}"), "").await;
    assert_eq!(end, empty);

    public.fixture.execute(&format!("UPDATE sessions SET deleted_at = 9 WHERE id = '{high}'")).await;
    let (_, left) = public.core(Method::GET, PATH, "").await;
    assert_eq!(ids(&left), [low]);
    let (_, behind) = public.core(Method::GET, &format!("{PATH}?after={high}"), "").await;
    assert_eq!(ids(&behind), [low], "one may still look behind a deleted session");
}

/// A malformed page is named, an unknown cursor is not found, nothing is kept by a cache, and the Core key is needed.
#[rstest]
#[tokio::test]
async fn a_page_that_is_none_is_refused(#[values(Sqlite, Postgres)] database: Database) {
    let public = Public::new(database).await;
    for (query, param) in [("limit=0", "limit"), ("limit=101", "limit"), ("order=up", "order"), ("after=x", "after")] {
        let (status, answer) = public.core(Method::GET, &format!("{PATH}?{query}"), "").await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request_error"), "{query}");
        assert_eq!(answer["error"]["param"], param);
    }
    let unknown = format!("{PATH}?after=94be54a1-138c-4f30-bc87-b13686272dbe");
    let (status, answer) = public.core(Method::GET, &unknown, "").await;
    assert_eq!((status, code(&answer)), (StatusCode::NOT_FOUND, "not_found_error"));
    let (status, _) = ask(&public.fixture.core, Method::GET, PATH, &[], "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let answer = public.raw(PATH, KEY).await;
    assert_eq!(answer.headers()["cache-control"], "no-store");
}
