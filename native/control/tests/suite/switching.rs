//! What a change of the selection does to what runs, and what stops or fails in the middle of one (deployment §1.2.3, §4.2).
//!
//! Nothing of the selection is loaded into a process: every request and every announcement reads the committed row. The
//! tests here show outwardly what a loaded provider would have to guarantee.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use rstest::rstest;
use serde_json::{Value, json};
use sqlx::Executor as _;
use tokio::time::{sleep, timeout};

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, NewNode, admin, code, core, selection};

const VIEW: &str = "/core/v1/sandbox/deployment";
const RESET: &str = "/core/v1/sandbox/deployment/reset";
const CANCEL: &str = "/core/v1/sandbox/deployment/reset?expected_generation=1";
const FORCE: &str = r#"{"expected_generation":1,"clear":"force"}"#;
/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sandbox that runs on a node of generation 1.
async fn holding(database: Database) -> (Fixture, NewNode) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    let node = fixture.enroll("one").await;
    fixture.run_sandbox(&node).await;
    (fixture, node)
}

async fn release(fixture: &Fixture) {
    fixture.execute("UPDATE runtime_allocations SET state = 'released', released_at = 2").await;
    fixture.execute("UPDATE runtime_placements SET released_at = 2").await;
}

/// D 28. A candidate that is refused leaves selection, epoch, sandboxes and audit log as they were.
#[rstest]
#[tokio::test]
async fn a_refused_candidate_changes_nothing_that_runs(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = holding(database).await;
    let before = fixture.view().await;
    let mut foreign: Value = serde_json::from_str(&selection(1, 2)).unwrap();
    foreign["provider"] = json!("microsandbox");
    foreign["resources"]["root_disk_mib"] = json!(1024);
    foreign["resources"]["environment_disk_mib"] = json!(1024);
    for candidate in [selection(7, 4), selection(1, 0), foreign.to_string(), "{".to_owned()] {
        let (status, _) = fixture.admin(Method::PUT, VIEW, &candidate).await;
        assert!(status.is_client_error(), "{candidate}");
        assert_eq!(fixture.view().await, before, "{candidate}");
    }
    assert_eq!(fixture.count("SELECT COUNT(*) FROM admin_audit_log").await, 0);
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_allocations WHERE state = 'running'").await, 1);
}

/// D 29. A candidate that waits to be judged holds up nobody: neither reads nor the end of whoever asked.
#[tokio::test]
async fn a_waiting_candidate_holds_up_nobody() {
    let (fixture, _) = holding(Postgres).await;
    let mut holder = fixture.core.store().write().await.unwrap();
    holder.execute("SELECT singleton FROM runtime_deployment FOR UPDATE").await.unwrap();
    let core = fixture.core.clone();
    let waiting = tokio::spawn(async move { admin(&core, Method::PUT, VIEW, &selection(1, 4)).await });
    let answered = timeout(PATIENCE, fixture.view()).await.expect("reads go on");
    assert_eq!(answered["generation"], 1);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(holder);
    assert_eq!(fixture.view().await["generation"], 1, "nothing was left behind");
    assert_eq!(fixture.admin(Method::PUT, VIEW, &selection(1, 4)).await.0, StatusCode::OK);
}

/// D 30. What was committed holds although whoever asked for it is gone before the answer, and this Core after it.
#[rstest]
#[tokio::test]
async fn a_committed_candidate_holds_although_nobody_waits_for_it(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = holding(database).await;
    let asking = fixture.core.clone();
    let put = tokio::spawn(async move { admin(&asking, Method::PUT, VIEW, &selection(1, 4)).await });
    fixture.until(|view| view["generation"] == 2).await;
    put.abort();
    drop(put.await);
    let committed = fixture.view().await;
    let (status, answer) = fixture.admin(Method::PUT, VIEW, &selection(1, 8)).await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_generation_stale"));
    let lease = fixture.usurp().await;
    let next = core(fixture.core.store().clone(), Some(lease));
    let (_, seen) = admin(&next, Method::GET, VIEW, "").await;
    assert_eq!((&seen["generation"], &seen["specification_digest"]), (&json!(2), &committed["specification_digest"]));
}

/// D 31. Under concurrency everybody reads the one selection that won; a Core that stopped executing refuses to select.
#[rstest]
#[tokio::test]
async fn everybody_reads_the_selection_that_won(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let asked = (0..8).map(|number| {
        let core = fixture.core.clone();
        tokio::spawn(async move { admin(&core, Method::POST, VIEW, &selection(0, 1 + number)).await.0 })
    });
    let mut won = 0;
    for answer in asked.collect::<Vec<_>>() {
        won += usize::from(answer.await.unwrap() == StatusCode::OK);
    }
    assert_eq!(won, 1);
    let first = fixture.view().await;
    for _ in 0..4 {
        assert_eq!(fixture.view().await["specification_digest"], first["specification_digest"]);
    }
    let (status, answer) = admin(&fixture.standby(), Method::PUT, VIEW, &selection(1, 16)).await;
    assert_eq!((status, code(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "execution_unavailable"));
}

/// D 33. Switching to another provider waits until everything that ran is confirmed to be gone, admits nothing new
/// meanwhile, and works at once afterwards.
#[rstest]
#[tokio::test]
async fn a_switch_waits_for_what_runs_and_admits_nothing(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = holding(database).await;
    let _owner = fixture.own();
    fixture.admin(Method::POST, RESET, FORCE).await;
    fixture.until(|view| view["reset"]["remaining"]["cleanup"] == 1).await;
    for (method, body) in [(Method::POST, selection(1, 2)), (Method::PUT, selection(1, 4))] {
        let (status, answer) = fixture.admin(method, VIEW, &body).await;
        assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_reset_in_progress"));
    }
    let (status, answer) = fixture.admin(Method::POST, "/core/v1/sandbox/enrollment-tokens", "{}").await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_reset_in_progress"));
    release(&fixture).await;
    fixture.until(|view| view["generation"] == 2).await;
    assert_eq!(fixture.admin(Method::POST, VIEW, &selection(2, 2)).await.0, StatusCode::OK);
}

/// D 34. A reset whose end fails stays a reset, and admission stays closed; a cancellation that was given up reopens
/// nothing, and nothing goes around what is still held.
#[rstest]
#[tokio::test]
async fn a_reset_that_cannot_end_stays_closed(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = holding(database).await;
    let owner = fixture.own();
    fixture.admin(Method::POST, RESET, FORCE).await;
    fixture.until(|view| view["reset"]["remaining"]["cleanup"] == 1).await;
    drop(owner);
    // The audit of the end cannot be written, and so nothing of the end is.
    fixture.execute("ALTER TABLE admin_audit_log RENAME TO hidden").await;
    let (status, _) = fixture.admin(Method::DELETE, CANCEL, "").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    release(&fixture).await;
    let _owner = fixture.own();
    // Not to be right: only so that an end that were possible would come.
    sleep(Duration::from_secs(2)).await;
    let stays = fixture.view().await;
    assert_eq!((&stays["generation"], &stays["reset"]["clear"]), (&json!(1), &json!("force")));
    let (status, answer) = fixture.admin(Method::PUT, VIEW, &selection(1, 4)).await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_reset_in_progress"));
    fixture.execute("ALTER TABLE hidden RENAME TO admin_audit_log").await;
    fixture.until(|view| view["generation"] == 2 && view["reset"].is_null()).await;
}

/// D 64. Pages of a reset begin after a session and end empty, and what a node of another public address holds counts.
#[rstest]
#[tokio::test]
async fn pages_of_a_reset_end_and_nothing_held_is_forgotten(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = holding(database).await;
    let mut tx = fixture.core.store().read().await.unwrap();
    let all = tx.reset_candidates(None).await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(tx.reset_candidates(Some(all[0].session)).await.unwrap(), []);
    drop(tx);
    fixture.execute("UPDATE runtime_nodes SET core_url = 'https://elsewhere.example'").await;
    let _owner = fixture.own();
    fixture.admin(Method::POST, RESET, FORCE).await;
    let held = fixture.until(|view| view["reset"]["remaining"]["cleanup"] == 1).await;
    assert_eq!(held["reset"]["remaining"]["on_offline_nodes"], 1);
    release(&fixture).await;
    fixture.until(|view| view["generation"] == 2).await;
}

/// D 65. A pass that takes too long gives up; the selection and the reset are what they were, and a later pass ends it.
#[tokio::test]
async fn a_pass_that_hangs_loses_nothing() {
    let fixture = Fixture::new(Postgres).await;
    fixture.select().await;
    fixture.admin(Method::POST, RESET, FORCE).await;
    let mut holder = fixture.core.store().write().await.unwrap();
    holder.execute("SELECT singleton FROM runtime_deployment FOR UPDATE").await.unwrap();
    let _owner = fixture.own();
    // Longer than a pass may take.
    sleep(Duration::from_secs(7)).await;
    let during = fixture.view().await;
    assert_eq!((&during["provider"], &during["reset"]["clear"]), (&json!("docker"), &json!("force")));
    drop(holder);
    fixture.until(|view| view["generation"] == 2).await;
}
