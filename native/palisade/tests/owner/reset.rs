//! A reset with fifty sandboxes, and a Core that is killed at each of its commits (deployment §4.2).

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use palisade_core::operation::Method;
use palisade_core::wire::payload::Reference;
use palisade_provider::testing::Fault;
use reqwest::Method as Http;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tokio::time::{sleep, timeout};

use crate::core::{Core, log};
use crate::home::Database::{self, Postgres, Sqlite};
use crate::world::{PATIENCE, World};

const SESSIONS: usize = 50;
const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
const RESET: &str = "/core/v1/sandbox/deployment/reset";

/// Fifty sandboxes, three of them at work, and a reset whose deadline has passed while no Core ran.
struct Prepared {
    world: World,
    sandboxes: Vec<Reference>,
}

impl Prepared {
    async fn new(database: Database) -> Self {
        let mut world = World::new(database, "docker", (60, 60)).await;
        let sessions = join_all((0..SESSIONS).map(|_| world.running())).await;
        for session in &sessions[..3] {
            world.node.provider.script(Method::RunCommand, Fault::Hang);
            world.message(session, "at work").await;
            world.node.provider.dispatched().await;
        }
        let body = json!({"expected_generation": 1, "clear": "auto", "deadline_seconds": 300});
        // Nothing is archived before the world stands still: the owner finds everything again after the start.
        world.core.kill();
        (0..3).for_each(|_| world.node.provider.release());
        world.node.disconnect().await;
        let sandboxes = world.node.provider.sandboxes();
        assert_eq!(sandboxes.len(), SESSIONS);
        start_reset(&world, &body).await;
        Self { world, sandboxes }
    }

    /// Copies the embedded store, as it was prepared.
    fn keep(&self) {
        copy(&self.world.home.data(), &self.world.home.folder().join("pristine"));
    }

    /// The embedded store, node and sandboxes as they were prepared.
    fn restore(&self) {
        std::fs::remove_dir_all(self.world.home.data()).unwrap();
        copy(&self.world.home.folder().join("pristine"), &self.world.home.data());
        for sandbox in &self.sandboxes {
            self.world.node.provider.set_native_state(*sandbox, Some("running"));
        }
    }

    /// Waits until Core was killed, or the reset has ended without that.
    async fn dies(&mut self) -> Option<()> {
        while !self.world.core.has_ended() {
            if is_complete(&self.world).await {
                return None;
            }
            sleep(Duration::from_millis(25)).await;
        }
        Some(())
    }

    /// Runs the reset to its end with one kill; gives what is stored then, or `None` when the commit never came.
    async fn run(&mut self, kill: &str) -> (Option<()>, Vec<String>) {
        let origin = self.world.core.origin().to_owned();
        let before = self.world.node.provider.count(Method::Create);
        let environment = [("PALISADE_TEST_KILL_AT", kill)];
        self.world.core = Core::start(&self.world.home, "core", Some(&origin), &environment).await;
        self.world.node.connect();
        let died = timeout(PATIENCE, self.dies()).await;
        let died = died.unwrap_or_else(|_| panic!("{kill}: {}", log(&self.world.home, "core")));
        if died.is_some() {
            self.world.core = Core::start(&self.world.home, "core", Some(&origin), &[]).await;
            completed(&self.world).await;
        }
        self.world.core.kill();
        self.world.node.disconnect().await;
        assert_eq!(self.world.node.provider.sandboxes(), [], "{kill}: nothing is left on the node");
        assert_eq!(self.world.node.provider.count(Method::Create), before, "{kill}: nothing is created");
        (died, ends(&self.world).await)
    }
}

/// Asks for the reset while no owner works on it: with the request alone, in the rows that its route writes.
async fn start_reset(world: &World, body: &Value) {
    let origin = world.core.origin().to_owned();
    // Killed right after the commit that starts the reset.
    let environment = [("PALISADE_TEST_KILL_AT", "after:1")];
    world
        .home
        .execute("UPDATE turns SET status = 'queued', dispatched = 0, started_at = NULL WHERE status = 'in_progress'")
        .await;
    world.home.execute("UPDATE sessions SET environment_type = 'held' WHERE environment_type = 'openai_hosted'").await;
    let mut core = Core::start(&world.home, "core", Some(&origin), &environment).await;
    let lost = core.ask(Http::POST, RESET, crate::core::KEY, body.clone()).await;
    assert!(lost.is_err(), "killed before it could answer: {lost:?}");
    core.ended().await;
    world.home.execute("UPDATE sessions SET environment_type = 'openai_hosted' WHERE environment_type = 'held'").await;
    let at_work =
        "UPDATE turns SET status = 'in_progress', dispatched = 1, started_at = created_at WHERE status = 'queued'";
    world.home.execute(at_work).await;
    world.home.execute("UPDATE runtime_deployment SET reset_deadline_at = reset_requested_at").await;
}

async fn completed(world: &World) {
    world.until("the reset ends", async || is_complete(world).await.then_some(())).await;
}

async fn is_complete(world: &World) -> bool {
    let answer = world.core.ask(Http::GET, DEPLOYMENT, crate::core::KEY, Value::Null).await;
    answer.is_ok_and(|(_, view)| view["generation"] == 2 && view["reset"].is_null())
}

/// Everything that a reset ends, without what differs between two runs for good reason: times, identifiers, epochs.
async fn ends(world: &World) -> Vec<String> {
    let mut connection = world.home.connect().await;
    let mut seen = Vec::new();
    for query in [
        "SELECT generation || provider_kind || admission_paused || specification FROM runtime_deployment",
        "SELECT COALESCE(reset_clear, 'none') FROM runtime_deployment",
        "SELECT status || COALESCE(failure_code, '') FROM environments ORDER BY 1",
        "SELECT status || COALESCE(error_code, '') FROM turns ORDER BY 1",
        "SELECT state || create_settled FROM runtime_allocations ORDER BY 1",
        "SELECT CASE WHEN released_at IS NULL THEN 'held' ELSE 'free' END FROM runtime_placements ORDER BY 1",
        "SELECT CASE WHEN device_revoked_at IS NULL THEN 'valid' ELSE 'revoked' END FROM runtime_allocations ORDER BY 1",
        "SELECT CASE WHEN removed_at IS NULL THEN 'a node' ELSE 'removed' END FROM runtime_nodes ORDER BY 1",
        "SELECT action || actor_label || resource_type FROM admin_audit_log ORDER BY 1",
        "SELECT 'live token' FROM runtime_node_enrollments WHERE consumed_at IS NULL AND expires_at > 9999999999999",
        "SELECT 'superseded' FROM runtime_deployment_generations",
        "SELECT 'status' FROM runtime_node_generation_status",
    ] {
        let rows = sqlx::query(AssertSqlSafe(query.to_owned())).fetch_all(&mut connection).await.unwrap();
        seen.extend(rows.iter().map(|row| row.get::<String, _>(0)));
    }
    connection.close().await.unwrap();
    seen
}

#[expect(clippy::disallowed_methods, reason = "files of a test that no restart needs")]
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::write(to.join(entry.file_name()), std::fs::read(entry.path()).unwrap()).unwrap();
    }
}

fn check_end(kill: &str, ended: &[String]) {
    let count = |wanted: &str| ended.iter().filter(|row| *row == wanted).count();
    assert_eq!((count("expired"), count("released1"), count("revoked"), count("free")), (50, 50, 50, 50), "{kill}");
    assert_eq!((count("failedcommand_unconfirmed"), count("removed"), count("none")), (3, 1, 1), "{kill}: {ended:?}");
    let audits = ended.iter().filter(|row| row.contains("reset_") || row.starts_with("archive")).count();
    assert_eq!(audits, 3 + SESSIONS, "{kill}: start, deadline, end and every archive once");
}

/// Which commits: a sample that reaches every kind of them, or all, with `PALISADE_RESET_COMMITS=all`.
fn chosen() -> Box<dyn Iterator<Item = String>> {
    if std::env::var("PALISADE_RESET_COMMITS").is_ok_and(|which| which == "all") {
        return Box::new((1..).flat_map(|number| [format!("before:{number}"), format!("after:{number}")]));
    }
    let sample = ["after:1", "before:5", "after:40", "before:80", "after:104", "before:105", "after:105", "after:999"];
    Box::new(sample.into_iter().map(str::to_owned))
}

/// D 60, D 61, D 69. Wherever a Core is killed in a reset with fifty sandboxes, another one ends it the same: nothing is
/// created, nothing is left on the node, nothing is archived or recorded twice, and the deadline counts once.
#[tokio::test]
async fn a_reset_ends_the_same_wherever_core_is_killed() {
    let mut prepared = Prepared::new(Sqlite).await;
    prepared.keep();
    let mut undisturbed = None;
    let mut kills = 0;
    for kill in chosen() {
        prepared.restore();
        let (died, ended) = prepared.run(&kill).await;
        check_end(&kill, &ended);
        assert_eq!(undisturbed.get_or_insert_with(|| ended.clone()), &ended, "{kill}");
        kills += usize::from(died.is_some());
        if died.is_none() {
            break;
        }
    }
    println!("a core was killed at {kills} moments of a reset");
    assert!(kills >= 6, "{kills}: the sample reaches the last commit");
}

/// The same with PostgreSQL, whose commits are the same.
#[tokio::test]
async fn a_killed_reset_ends_the_same_on_a_server() {
    for kill in ["after:20", "before:105"] {
        let mut prepared = Prepared::new(Postgres).await;
        let (_, ended) = prepared.run(kill).await;
        check_end(kill, &ended);
    }
}

/// Deployment §0. The command of an archived session may still end by itself, and its result is kept; its sandbox is
/// removed after that, and not before.
#[tokio::test]
async fn a_command_may_end_while_its_session_is_archived() {
    let world = World::new(Sqlite, "docker", (2, 2)).await;
    let session = world.running().await;
    world.node.provider.script(Method::RunCommand, Fault::Hang);
    let turn = world.message(&session, "the last word").await;
    world.node.provider.dispatched().await;
    world.archive(&session).await;
    world.status(&session, "expired").await;
    // The owner has seen the archive when it has seen what came after it.
    world.running().await;
    assert_eq!(world.node.provider.count(Method::Kill), 0);
    world.node.provider.release();
    let turn = world.turn(&session, &turn, "completed").await;
    assert_eq!(turn["stdout"], "the last word");
    world.released(&session).await;
}

/// Deployment §0. After twenty seconds from the archive nobody waits for the command any more; that time is stored.
#[tokio::test]
async fn a_command_is_not_waited_for_longer_than_twenty_seconds() {
    let world = World::new(Sqlite, "docker", (3, 3)).await;
    let session = world.running().await;
    world.node.provider.script(Method::RunCommand, Fault::Hang);
    let turn = world.message(&session, "never").await;
    world.node.provider.dispatched().await;
    world.archive(&session).await;
    world
        .home
        .execute(
            "UPDATE runtime_allocations SET cleanup_requested_at = cleanup_requested_at - 20000 \
         WHERE state = 'cleanup_pending'",
        )
        .await;
    // Somebody wakes the owner, which looks at what is stored.
    world.running().await;
    world.turn(&session, &turn, "cancelled").await;
    world.node.provider.release();
    world.released(&session).await;
}

/// Deployment §4.2. A Core that was started since has no command to wait for: it removes at once.
#[tokio::test]
async fn a_new_core_does_not_wait_for_a_command_of_the_old_one() {
    let mut world = World::new(Sqlite, "docker", (2, 2)).await;
    let session = world.running().await;
    world.node.provider.script(Method::RunCommand, Fault::Hang);
    let turn = world.message(&session, "lost").await;
    world.node.provider.dispatched().await;
    world.archive(&session).await;
    world.restart().await;
    let failed = world.turn(&session, &turn, "failed").await;
    assert_eq!(failed["error"]["code"], "command_unconfirmed");
    world.node.provider.release();
    world.released(&session).await;
}
