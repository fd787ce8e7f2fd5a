//! Events and Turns (deployment §11.2, decisions 22, 40, 41).

use axum::http::{Method, StatusCode};
use rstest::rstest;
use serde_json::{Value, json};

use crate::public::{Public, SESSIONS};
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::code;

const TRUE: &str = r#"{"type":"message","command":{"args":["true"]}}"#;

async fn session(database: Database) -> (Public, String) {
    let (public, _) = Public::with_node(database).await;
    let session = public.session().await;
    (public, format!("{SESSIONS}/{session}"))
}

fn ids(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap()).collect()
}

/// A message becomes a queued Turn; Turns are listed in their order and read one by one.
#[rstest]
#[tokio::test]
async fn a_message_becomes_a_turn(#[values(Sqlite, Postgres)] database: Database) {
    let (public, session) = session(database).await;
    let body =
        r#"{"type":"message","command":{"args":["cat","-"],"directory":"/tmp","stdin":"AP8="},"timeout_ms":5000}"#;
    let (status, turn) = public.post(&format!("{session}/events"), body).await;
    assert_eq!(status, StatusCode::CREATED, "{turn}");
    assert_eq!((&turn["status"], &turn["timeout_ms"]), (&json!("queued"), &json!(5000)));
    for absent in ["exit_code", "stdout", "stderr", "error"] {
        assert_eq!(turn.get(absent), None, "{absent}");
    }
    let stored = "SELECT COUNT(*) FROM turns JOIN turn_inputs ON turn_id = id \
         WHERE args = '[\"cat\",\"-\"]' AND directory = '\"/tmp\"' \
         AND length(stdin) = 2 AND position = 1 AND dispatched = 0";
    assert_eq!(public.fixture.count(stored).await, 1);
    let (_, second) = public.post(&format!("{session}/events"), TRUE).await;
    let (status, page) = public.get(&format!("{session}/turns")).await;
    assert_eq!((status, page), (StatusCode::OK, json!({"data": [turn, second], "has_more": false})));
    let read = public.get(&format!("{session}/turns/{}", second["id"].as_str().unwrap())).await;
    assert_eq!(read, (StatusCode::OK, second));
    assert_eq!(public.get(&session).await.1["status"], "in_progress");
}

/// A completed Turn shows what came of it, a nonzero exit code included; a failed one has a code and no exit code.
#[rstest]
#[tokio::test]
async fn an_ended_turn_shows_its_outcome(#[values(Sqlite, Postgres)] database: Database) {
    let (public, session) = session(database).await;
    for _ in 0..2 {
        public.post(&format!("{session}/events"), TRUE).await;
    }
    let mut tx = public.fixture.core.store().write().await.unwrap();
    sqlx::query("UPDATE turns SET status = 'completed', completed_at = 5, exit_code = 3, stdout = $1, stderr = $2 WHERE position = 1")
        .bind(b"a\0b".to_vec())
        .bind(b"\xff".to_vec())
        .execute(&mut *tx)
        .await
        .unwrap();
    sqlx::query(
        "UPDATE turns SET status = 'failed', completed_at = 6, error_code = 'command_unconfirmed' WHERE position = 2",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    let (_, page) = public.get(&format!("{session}/turns")).await;
    let (completed, failed) = (&page["data"][0], &page["data"][1]);
    assert_eq!((&completed["status"], &completed["exit_code"]), (&json!("completed"), &json!(3)));
    assert_eq!((&completed["stdout"], &completed["stderr"]), (&json!("a\0b"), &json!("\u{fffd}")));
    assert_eq!(completed.get("error"), None);
    assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!({"code": "command_unconfirmed"})));
    assert_eq!((failed.get("exit_code"), failed.get("stdout")), (None, None));
    assert_eq!(public.get(&session).await.1["status"], "idle");
}

/// A cancel ends what waits, asks what runs to end, and makes no Turn.
#[rstest]
#[tokio::test]
async fn a_cancel_ends_what_waits(#[values(Sqlite, Postgres)] database: Database) {
    let (public, session) = session(database).await;
    for _ in 0..3 {
        public.post(&format!("{session}/events"), TRUE).await;
    }
    public
        .fixture
        .execute("UPDATE turns SET status = 'in_progress', dispatched = 1, started_at = 1 WHERE position = 1")
        .await;
    let (status, shown) = public.post(&format!("{session}/events"), r#"{"type":"cancel"}"#).await;
    assert_eq!((status, &shown["status"]), (StatusCode::ACCEPTED, &json!("in_progress")));
    let (_, page) = public.get(&format!("{session}/turns")).await;
    let states: Vec<_> = page["data"].as_array().unwrap().iter().map(|turn| turn["status"].clone()).collect();
    assert_eq!(states, ["in_progress", "cancelled", "cancelled"]);
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM turns WHERE cancel_requested = 1").await, 1);
}

/// An event that is repeated with its key runs once; the key does not serve another event.
#[rstest]
#[tokio::test]
async fn a_repeated_event_runs_once(#[values(Sqlite, Postgres)] database: Database) {
    let (public, session) = session(database).await;
    let events = format!("{session}/events");
    let post = |body: &'static str| public.call(Method::POST, &events, &[("idempotency-key", "once")], body);
    let answers = tokio::join!(post(TRUE), post(TRUE), post(TRUE));
    let answers = [answers.0, answers.1, answers.2];
    assert_eq!(answers.iter().filter(|(status, _)| *status == StatusCode::CREATED).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|(status, _)| *status == StatusCode::OK).count(), 2, "{answers:?}");
    assert!(answers.iter().all(|(_, turn)| turn["id"] == answers[0].1["id"]));
    let (status, other) = post(r#"{"type":"message","command":{"args":["false"]}}"#).await;
    assert_eq!((status, code(&other)), (StatusCode::CONFLICT, "idempotency_conflict"));
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM turns").await, 1);
}

/// D 13. Malformed events and values out of bounds are refused and queue nothing (decision 40).
#[rstest]
#[tokio::test]
async fn a_refused_event_queues_nothing(#[values(Sqlite, Postgres)] database: Database) {
    let (public, session) = session(database).await;
    let events = format!("{session}/events");
    for (body, param) in [
        (r#"{"type":"message","command":{"args":["true"]},"timeout_ms":120001}"#, json!("timeout_ms")),
        (r#"{"type":"message","command":{"args":["true"]},"timeout_ms":0}"#, json!("timeout_ms")),
        (r#"{"type":"message","command":{"args":["true"]},"timeout_ms":1.5}"#, Value::Null),
        (r#"{"type":"message","command":{"args":["true"]},"timeout_ms":null}"#, Value::Null),
        (r#"{"type":"message","command":{"args":[]}}"#, json!("command.args")),
        (r#"{"type":"message","command":{"args":["true"],"stdin":"?"}}"#, json!("command.stdin")),
        (r#"{"type":"message","command":{"args":["true"],"shell":true}}"#, Value::Null),
        (r#"{"type":"tool_result"}"#, json!("type")),
        ("", Value::Null),
    ] {
        let (status, answer) = public.post(&events, body).await;
        assert_eq!((status, &answer["error"]["param"]), (StatusCode::BAD_REQUEST, &param), "{body}");
    }
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM turns").await, 0);
}

/// Standard input is taken up to the protocol's limit, byte for byte.
#[rstest]
#[tokio::test]
async fn the_largest_standard_input_is_stored(#[values(Sqlite, Postgres)] database: Database) {
    let (public, session) = session(database).await;
    let events = format!("{session}/events");
    let body = |bytes: usize| {
        let stdin = "AAAA".repeat(bytes / 3) + ["", "AA==", "AAA="][bytes % 3];
        format!(r#"{{"type":"message","command":{{"args":["cat"],"stdin":"{stdin}"}}}}"#)
    };
    let (status, turn) = public.call(Method::POST, &events, &[], body(52_428_832)).await;
    assert_eq!(status, StatusCode::CREATED, "{turn}");
    assert_eq!(public.fixture.count("SELECT CAST(length(stdin) AS BIGINT) FROM turn_inputs").await, 52_428_832);
    let (status, long) = public.call(Method::POST, &events, &[], body(52_428_833)).await;
    assert_eq!((status, &long["error"]["param"]), (StatusCode::BAD_REQUEST, &json!("command.stdin")));
}

/// Pages hold the newest Turns in their order, and lead to the older ones.
#[rstest]
#[tokio::test]
async fn pages_lead_to_older_turns(#[values(Sqlite, Postgres)] database: Database) {
    let (public, session) = session(database).await;
    let mut turns = Vec::new();
    for _ in 0..5 {
        let (_, turn) = public.post(&format!("{session}/events"), TRUE).await;
        turns.push(turn["id"].as_str().unwrap().to_owned());
    }
    let (_, page) = public.get(&format!("{session}/turns?limit=2")).await;
    assert_eq!((ids(&page), &page["has_more"]), (vec![turns[3].as_str(), &turns[4]], &json!(true)));
    let (_, page) = public.get(&format!("{session}/turns?limit=3&before={}", turns[3])).await;
    assert_eq!((ids(&page), &page["has_more"]), (vec![turns[0].as_str(), &turns[1], &turns[2]], &json!(false)));
    for query in ["limit=0", "limit=101", "limit=x", "limit=1&limit=2"] {
        let (status, answer) = public.get(&format!("{session}/turns?{query}")).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request_error"), "{query}");
    }
    let unknown = public.get(&format!("{session}/turns?before=94be54a1-138c-4f30-bc87-b13686272dbe")).await;
    assert_eq!(unknown.0, StatusCode::NOT_FOUND);
}

/// A session takes 64 unfinished Turns.
#[rstest]
#[tokio::test]
async fn a_full_queue_is_refused(#[values(Sqlite, Postgres)] database: Database) {
    let (public, session) = session(database).await;
    for _ in 0..64 {
        assert_eq!(public.post(&format!("{session}/events"), TRUE).await.0, StatusCode::CREATED);
    }
    let (status, answer) = public.post(&format!("{session}/events"), TRUE).await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "session_busy"));
    public.post(&format!("{session}/events"), r#"{"type":"cancel"}"#).await;
    assert_eq!(public.post(&format!("{session}/events"), TRUE).await.0, StatusCode::CREATED);
}
