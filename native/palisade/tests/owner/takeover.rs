//! Two Cores on one database: one acts. And a database whose clock is set.

use nix::sys::signal::Signal;
use palisade_core::operation::Method;
use palisade_provider::testing::Fault;
use reqwest::{Method as Http, StatusCode};
use serde_json::{Value, json};

use crate::core::{Core, KEY, log};
use crate::home::Database::{Postgres, Sqlite};
use crate::world::{World, selection};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
const DAY_MS: i64 = 86_400_000;

/// Tries to change the selection, as only the owner can.
async fn put(core: &Core, expected_generation: u64) -> (StatusCode, Value) {
    let mut selection = selection(expected_generation, "docker");
    selection["resources"]["cpus"] = json!(1 + expected_generation);
    core.admin(Http::PUT, DEPLOYMENT, selection).await
}

/// D 22, E26. A Core that is paused and loses its place to another one is fenced off when it goes on: neither what it was
/// in the middle of nor anything new of it is written.
#[tokio::test]
async fn a_paused_core_that_was_replaced_changes_nothing() {
    let world = World::new(Postgres, "docker", (2, 2)).await;
    world.node.provider.script(Method::Create, Fault::Hang);
    let session = world.session().await;
    world.node.provider.dispatched().await;
    let standby = Core::start(&world.home, "standby", None, &[]).await;
    assert_eq!(put(&standby, 1).await.0, StatusCode::SERVICE_UNAVAILABLE, "one is the owner");

    world.core.signal(Signal::SIGSTOP);
    assert_eq!(put(&standby, 1).await.0, StatusCode::SERVICE_UNAVAILABLE, "a silent owner is an owner");
    world.home.cut_off("core").await;
    world.until("the standby takes over", async || (put(&standby, 1).await.0 == StatusCode::OK).then_some(())).await;

    world.node.provider.release();
    world.core.signal(Signal::SIGCONT);
    let (status, body) = put(&world.core, 2).await;
    assert_eq!((status, &body["error"]["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("execution_unavailable")));
    world
        .until("the first core knows that it lost", async || {
            log(&world.home, "core").contains("the execution lease is lost").then_some(())
        })
        .await;
    // The answer to its create came to a Core that owns nothing any more.
    assert_eq!(world.allocation_by(&standby, &session).await["state"], "creating");
    assert_eq!(put(&world.core, 2).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(put(&standby, 2).await.0, StatusCode::OK);
    let (_, view) = standby.admin(Http::GET, DEPLOYMENT, Value::Null).await;
    assert_eq!((&view["generation"], &view["owner_epoch"]), (&json!(3), &json!(2)));
}

/// D 22. The embedded store has one process, also while that is paused.
#[tokio::test]
async fn an_embedded_store_has_one_core_even_while_it_is_paused() {
    let world = World::new(Sqlite, "docker", (1, 1)).await;
    world.core.signal(Signal::SIGSTOP);
    assert!(!Core::ends(&world.home, "second").success());
    assert!(log(&world.home, "second").contains("is in use by another core process"));
    world.core.signal(Signal::SIGCONT);
    assert_eq!(put(&world.core, 1).await.0, StatusCode::OK);
}

/// E25. A clock that is set two days forward expires nothing early; after a restart the stored time alone decides.
#[tokio::test]
async fn a_clock_that_jumps_skips_no_retention() {
    let mut world = World::new(Postgres, "microsandbox", (3, 6)).await;
    world.policy(1, 86_400).await;
    let (first, second) = (world.running().await, world.running().await);
    for session in [&first, &second] {
        assert_eq!(world.run(session, "used").await, "used");
        world.phase(session, "suspended").await;
    }
    // Every look of the owner sees both before the jump.
    world.running().await;
    world.home.jump(2 * DAY_MS).await;
    // Heartbeats from before the jump are old for a while.
    world.node.ready(&world.core).await;
    world.running().await;
    assert_eq!(world.run(&first, "still there").await, "still there");
    assert_eq!(world.allocation(&second).await["compute_phase"], "suspended");
    world.restart().await;
    world.released(&second).await;
    world.status(&second, "expired").await;
}

/// D 59, E25. A clock that is set forward does not bring the deadline of a reset, one that is set back does not move it.
#[tokio::test]
async fn a_clock_that_jumps_moves_no_deadline_of_a_reset() {
    let world = World::new(Postgres, "docker", (3, 3)).await;
    let (busy, other) = (world.running().await, world.running().await);
    for session in [&busy, &other] {
        world.node.provider.script(Method::RunCommand, Fault::Hang);
        world.message(session, "at work").await;
        world.node.provider.dispatched().await;
    }
    world.running().await;
    let body = json!({"expected_generation": 1, "clear": "auto", "deadline_seconds": 300});
    let (status, view) = world.core.admin(Http::POST, "/core/v1/sandbox/deployment/reset", body).await;
    assert_eq!((status, &view["reset"]["remaining"]["busy"]), (StatusCode::OK, &json!(2)), "{view}");
    // The pass that archives what is idle has seen the deadline.
    world
        .until("what was idle is gone", async || {
            let (_, view) = world.core.ask(Http::GET, DEPLOYMENT, KEY, Value::Null).await.ok()?;
            (view["resources"]["allocations"] == 2).then_some(())
        })
        .await;
    world.home.jump(2 * DAY_MS).await;
    // One of the two ends its work: the pass that archives it is one after the jump.
    world.node.provider.release();
    world
        .until("what became idle is archived", async || {
            let (_, view) = world.core.ask(Http::GET, DEPLOYMENT, KEY, Value::Null).await.ok()?;
            (view["reset"]["remaining"]["busy"] == 1 && view["resources"]["allocations"] == 1).then_some(())
        })
        .await;
    let (_, view) = world.core.admin(Http::GET, DEPLOYMENT, Value::Null).await;
    assert_eq!((&view["reset"]["clear"], &view["reset"]["forced_at"]), (&json!("auto"), &Value::Null));
    world.node.provider.release();
    world
        .until("the reset ends", async || {
            let (_, view) = world.core.ask(Http::GET, DEPLOYMENT, KEY, Value::Null).await.ok()?;
            (view["generation"] == 2).then_some(())
        })
        .await;
}
