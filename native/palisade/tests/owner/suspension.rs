//! Suspending what is idle and restoring it on its own node (deployment §4.4), under faults.

use std::time::Duration;

use palisade_core::operation::Method;
use palisade_core::outcome::Failure;
use palisade_provider::testing::Fault;
use reqwest::StatusCode;
use rstest::rstest;
use serde_json::json;

use crate::home::Database::{self, Postgres, Sqlite};
use crate::world::World;

const MANY_SECONDS: u64 = 86_400;

/// A world in which a sandbox is idle at once.
async fn idle(database: Database, capacity: (u32, u32)) -> World {
    let world = World::new(database, "microsandbox", capacity).await;
    world.policy(1, MANY_SECONDS).await;
    world
}

/// A sandbox that was used, and is suspended.
async fn suspended(world: &World) -> String {
    let session = world.running().await;
    assert_eq!(world.run(&session, "used").await, "used");
    world.phase(&session, "suspended").await;
    session
}

/// D 51. A sandbox that was used and is idle becomes a snapshot, frees its place, and is restored on its own node when a
/// command comes; the snapshot goes when the restored one runs. An archive leaves nothing.
#[rstest]
#[tokio::test]
async fn an_idle_sandbox_is_suspended_and_wakes_on_input(#[values(Sqlite, Postgres)] database: Database) {
    let world = idle(database, (1, 2)).await;
    let session = suspended(&world).await;
    let sandbox = world.reference(&session).await;
    assert_eq!(world.node.provider.incarnations(sandbox), [(0, "stopped".to_owned())]);
    assert_eq!(world.node.provider.snapshots(sandbox), 1);
    let allocation = world.allocation(&session).await;
    assert!(allocation["compute_phase_changed_at"].is_string(), "{allocation}");

    assert_eq!(world.run(&session, "again").await, "again");
    world
        .until("only the restored incarnation is left", async || {
            let left = world.node.provider.incarnations(sandbox);
            (left == [(1, "running".to_owned())] && world.node.provider.snapshots(sandbox) == 0).then_some(())
        })
        .await;
    assert_eq!(world.node.provider.count(Method::Create), 1);
    world.phase(&session, "suspended").await;
    assert_eq!(world.run(&session, "third").await, "third");
    world.archive(&session).await;
    world.released(&session).await;
    assert_eq!(world.node.provider.sandboxes(), []);
}

/// A sandbox that never completed a command is not suspended, however long it is idle (deployment §4.4).
#[tokio::test]
async fn what_was_never_used_is_not_suspended() {
    let world = idle(Sqlite, (2, 4)).await;
    let (unused, used) = (world.running().await, suspended(&world).await);
    assert_eq!(world.allocation(&unused).await["compute_phase"], "running");
    world.archive(&used).await;
    world.released(&used).await;
}

/// A suspended sandbox frees its place; it waits for a place on its own node and takes nobody's.
#[tokio::test]
async fn a_restore_waits_for_room_on_its_own_node() {
    let world = idle(Sqlite, (1, 2)).await;
    let asleep = suspended(&world).await;
    world.policy(MANY_SECONDS, MANY_SECONDS).await;
    let other = world.running().await;
    let turn = world.message(&asleep, "later").await;
    assert_eq!(world.run(&other, "meanwhile").await, "meanwhile");
    world.turn(&asleep, &turn, "queued").await;
    assert_eq!(world.allocation(&asleep).await["compute_phase"], "suspended");
    world.archive(&other).await;
    world.turn(&asleep, &turn, "completed").await;
}

/// E25. What was kept for as long as promised is removed with its snapshot, also by a Core that was started since; its
/// environment is expired.
#[rstest]
#[tokio::test]
async fn what_was_kept_long_enough_is_removed(#[values(Sqlite, Postgres)] database: Database) {
    let mut world = idle(database, (1, 2)).await;
    let session = suspended(&world).await;
    let statement = "UPDATE runtime_allocations SET compute_retained_until = compute_phase_changed_at + 1";
    world.home.execute(statement).await;
    world.restart().await;
    world.released(&session).await;
    world.status(&session, "expired").await;
    assert_eq!(world.node.provider.sandboxes(), []);
    let message = json!({"type": "message", "command": {"args": ["x"]}, "timeout_ms": 1});
    let (status, _) = world.public(reqwest::Method::POST, &format!("/{session}/events"), message).await;
    assert_eq!(status, StatusCode::CONFLICT);
}

/// W 41, E14. A suspend or resume whose answer is lost is looked at, never sent again; the same operation goes on.
#[rstest]
#[case::suspend(Method::Suspend)]
#[case::resume(Method::Resume)]
#[tokio::test]
async fn a_capture_whose_answer_is_lost_is_only_looked_at(#[case] method: Method) {
    let world = idle(Sqlite, (1, 2)).await;
    world.node.provider.script(method, Fault::LostAnswer);
    let session = suspended(&world).await;
    assert_eq!(world.run(&session, "back").await, "back");
    let sandbox = world.reference(&session).await;
    let calls = world.node.provider.calls();
    let count = |method| calls.iter().filter(|(called, of)| (*called, *of) == (method, sandbox)).count();
    assert_eq!(count(method), 2, "once in effect, once to look");
    assert_eq!(world.node.provider.incarnations(sandbox).iter().filter(|(_, state)| state == "running").count(), 1);
}

/// E14. A Core that dies while a sandbox is suspended or restored goes on from what is stored, with the same operation.
#[rstest]
#[tokio::test]
async fn a_core_that_dies_meanwhile_goes_on(
    #[values(Sqlite, Postgres)] database: Database,
    #[values(Method::Suspend, Method::Resume)] method: Method,
) {
    let mut world = idle(database, (1, 2)).await;
    if method == Method::Resume {
        let session = suspended(&world).await;
        world.node.provider.script(method, Fault::Slow(Duration::from_secs(2)));
        let turn = world.message(&session, "back").await;
        world.phase(&session, "restoring").await;
        world.restart().await;
        assert_eq!(world.turn(&session, &turn, "completed").await["stdout"], "back");
        return;
    }
    let session = world.running().await;
    world.node.provider.script(method, Fault::Slow(Duration::from_secs(2)));
    assert_eq!(world.run(&session, "used").await, "used");
    world.phase(&session, "suspending").await;
    world.restart().await;
    world.phase(&session, "suspended").await;
    assert_eq!(world.run(&session, "back").await, "back");
}

/// A suspend that had no effect leaves the source where it was: it wakes and is used on.
#[tokio::test]
async fn a_suspend_without_effect_wakes_the_same_incarnation() {
    let world = idle(Sqlite, (1, 2)).await;
    world.node.provider.script(Method::Suspend, Fault::Fail(Failure::Unconfirmed));
    let session = world.running().await;
    assert_eq!(world.run(&session, "one").await, "one");
    world
        .until("the source was looked at", async || {
            (world.node.provider.count(Method::ResumeCompute) == 1).then_some(())
        })
        .await;
    assert_eq!(world.run(&session, "two").await, "two");
    let sandbox = world.reference(&session).await;
    assert_eq!(world.node.provider.incarnations(sandbox)[0].0, 0);
}

/// W 198. A snapshot that cannot be restored ends its environment; what there is of it is removed.
#[tokio::test]
async fn a_snapshot_that_cannot_be_restored_ends_the_environment() {
    let world = idle(Sqlite, (1, 2)).await;
    let session = suspended(&world).await;
    world.node.provider.script(Method::Resume, Fault::Fail(Failure::CheckpointUnusable));
    let turn = world.message(&session, "never").await;
    let failed = world.turn(&session, &turn, "failed").await;
    assert_eq!(failed["error"]["code"], "environment_unavailable");
    world.released(&session).await;
    world.status(&session, "failed").await;
    assert_eq!(world.node.provider.sandboxes(), []);
    assert_eq!(world.node.provider.count(Method::RunCommandCompute), 1);
}

/// E22. Every phase can be destroyed, and leaves nothing on its node, whatever did not answer before.
#[rstest]
#[case::suspended(None)]
#[case::suspending(Some(Method::Suspend))]
#[case::restoring(Some(Method::Resume))]
#[case::waking(Some(Method::ResumeCompute))]
#[tokio::test]
async fn every_phase_can_be_destroyed(#[case] lost: Option<Method>) {
    let world = idle(Sqlite, (1, 2)).await;
    let session = if lost == Some(Method::Suspend) {
        world.node.provider.script(Method::Suspend, Fault::LostAnswer);
        for _ in 0..3 {
            world.node.provider.script(Method::Suspend, Fault::Fail(Failure::Unconfirmed));
        }
        let session = world.running().await;
        world.run(&session, "used").await;
        world.phase(&session, "suspending").await;
        session
    } else {
        suspended(&world).await
    };
    if let Some(method @ (Method::Resume | Method::ResumeCompute)) = lost {
        world.node.provider.script(method, Fault::LostAnswer);
        for _ in 0..6 {
            world.node.provider.script(method, Fault::Fail(Failure::Unconfirmed));
        }
        world.message(&session, "x").await;
        world.phase(&session, if method == Method::Resume { "restoring" } else { "waking" }).await;
    }
    world.archive(&session).await;
    world.released(&session).await;
    assert_eq!(world.node.provider.sandboxes(), []);
}

/// Deployment §11.2. A sandbox on a node that is away is disconnected, which proves nothing about it.
#[tokio::test]
async fn a_sandbox_on_an_absent_node_is_disconnected() {
    let mut world = idle(Sqlite, (1, 2)).await;
    let session = world.running().await;
    world.node.disconnect().await;
    world.status(&session, "disconnected").await;
    world.node.connect();
    world.status(&session, "connected").await;
    assert_eq!(world.run(&session, "same").await, "same");
    assert_eq!(world.node.provider.count(Method::Create), 1);
}

/// Promise 16. A sandbox that disappears from outside is missed although nobody uses it; that is said, and proves nothing.
#[tokio::test]
async fn a_sandbox_that_disappears_is_missed() {
    let world = World::new(Sqlite, "docker", (1, 1)).await;
    let session = world.running().await;
    let sandbox = world.reference(&session).await;
    world.node.provider.set_native_state(sandbox, None);
    world.home.execute("UPDATE runtime_allocations SET kept_at = 0").await;
    let said = async |wanted: &str| {
        world
            .until(&format!("the sandbox is {wanted:?}"), async || {
                (world.allocation(&session).await["diagnostic"] == wanted).then_some(())
            })
            .await;
    };
    said("resource_missing").await;
    assert_eq!(world.allocation(&session).await["state"], "running", "nothing is given up");
    world.node.provider.set_native_state(sandbox, Some("running"));
    world.home.execute("UPDATE runtime_allocations SET kept_at = 0").await;
    said("").await;
}
