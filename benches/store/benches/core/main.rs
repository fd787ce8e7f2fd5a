//! Core's work on its store beside the bare queries that it needs, on SQLite and on PostgreSQL.
//!
//! Each pair takes turns in one process, over the same fleet of 1,000 nodes with 10,000 sandboxes; what counts is the
//! median. Ours is the whole way of a request through the router: credential, decision, queries, answer. A bare turn only
//! sends its statements, on one connection of the same driver, and does not look at what they give.
//!
//! `PALISADE_TEST_DATABASE_URL` names the PostgreSQL.

mod bare;
mod world;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::http::Method;
use bare::Bare;
use palisade_control::owner::Resetting;
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::Id;
use palisade_core::wire::payload::Health;
use world::World;

const NODES: usize = 1000;
const SANDBOXES: usize = 10;
/// Heartbeats that come at once.
const CROWD: usize = 200;
/// Sessions in one pass of a reset.
const PAGE: usize = 32;
const TURNS: usize = 25;
const RATIO_MAX: f64 = 1.5;
const VIEW_MAX: Duration = Duration::from_millis(50);
const HEARTBEATS_PER_SECOND: f64 = 1000.0;

fn main() -> anyhow::Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if asked.iter().any(|word| !"store".contains(word.as_str()) && !["sqlite", "postgres"].contains(&word.as_str())) {
        return Ok(());
    }
    let server =
        std::env::var("PALISADE_TEST_DATABASE_URL").context("PALISADE_TEST_DATABASE_URL names no PostgreSQL")?;
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|word| word == name || word == "store");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("{:<10} {:<40} {:>11} {:>11} {:>7} {:>9}", "store", "work", "ours", "bare", "ratio", "target");
    runtime.block_on(async {
        if wanted("sqlite") {
            measure("sqlite", None).await?;
        }
        if wanted("postgres") {
            measure("postgres", Some(&server)).await?;
        }
        Ok(())
    })
}

async fn measure(name: &str, server: Option<&str>) -> anyhow::Result<()> {
    let small = views(name, server, NODES / 4).await?;
    let world = World::new(server, NODES, SANDBOXES).await?;
    let mut bare = Bare::of(&world).await?;
    create(name, &world, &mut bare).await?;
    heartbeats(name, &world, &mut bare).await?;
    let large = view(name, &world, &mut bare, NODES).await?;
    println!(
        "{name:<10} {:<40} {:>11} {:>11} {:>7.2} {:>9}",
        "view, four times the fleet",
        shown(large),
        shown(small),
        large.as_secs_f64() / small.as_secs_f64(),
        "<= 4"
    );
    limit(name, "view", large, VIEW_MAX);
    let list = pair(&world, &mut bare, async |world| world.read("/core/v1/sandbox/nodes").await.map(drop), Bare::list);
    let (ours, theirs) = list.await?;
    row(name, "list of 1,000 nodes", ours, theirs);
    reset(name, &world, &mut bare).await?;
    throughput(name, &world).await?;
    world.end().await
}

async fn views(name: &str, server: Option<&str>, nodes: usize) -> anyhow::Result<Duration> {
    let world = World::new(server, nodes, SANDBOXES).await?;
    let mut bare = Bare::of(&world).await?;
    let took = view(name, &world, &mut bare, nodes).await?;
    world.end().await?;
    Ok(took)
}

async fn view(name: &str, world: &World, bare: &mut Bare, nodes: usize) -> anyhow::Result<Duration> {
    let view = async |world: &World| world.read("/core/v1/sandbox/deployment").await.map(drop);
    let (ours, theirs) = pair(world, bare, view, Bare::view).await?;
    row(name, &format!("deployment view, {nodes} nodes"), ours, theirs);
    Ok(ours)
}

async fn create(name: &str, world: &World, bare: &mut Bare) -> anyhow::Result<()> {
    let create = async |world: &World| {
        let body = r#"{"environment":{"type":"openai_hosted"}}"#;
        world.ask(Method::POST, "/v1/agents/sessions", &world.project_key, body).await.map(drop)
    };
    let (ours, theirs) = pair(world, bare, create, Bare::create).await?;
    row(name, "session creation", ours, theirs);
    Ok(())
}

/// What a turn of many at once costs each.
async fn heartbeats(name: &str, world: &World, bare: &mut Bare) -> anyhow::Result<()> {
    let nodes = &world.nodes[..CROWD];
    let beat = async |world: &World| crowd(world, nodes).await;
    let (ours, theirs) = pair(world, bare, beat, async |bare: &mut Bare| bare.heartbeats(nodes).await).await?;
    let each = |all: Duration| all / u32::try_from(CROWD).unwrap_or(1);
    row(name, &format!("heartbeat, {CROWD} at once"), each(ours), each(theirs));
    Ok(())
}

async fn crowd(world: &World, nodes: &[Id]) -> anyhow::Result<()> {
    let epoch = world.lease.epoch;
    let mut beats = tokio::task::JoinSet::new();
    for node in nodes {
        let (store, node) = (world.core.store().clone(), *node);
        let by = Connected { connection_id: node, owner_epoch: epoch };
        beats.spawn(async move { store.record_health(node, by, &health()).await });
    }
    for kept in beats.join_all().await {
        kept.map_err(|refused| anyhow::anyhow!("{refused}"))?;
    }
    Ok(())
}

fn health() -> Health<'static> {
    Health {
        observed_at: jiff::Timestamp::now().to_string().into(),
        active_operations: 3,
        cpu_utilization: Some(0.5),
        total_memory_bytes: Some(1 << 36),
        effective_cpu_cores: Some(16.0),
        cpu_count: Some(16),
        available_memory_bytes: Some(1 << 35),
        available_disk_bytes: Some(1 << 40),
        generations: Vec::new(),
    }
}

/// A pass over 32 sessions, as the owner of a Core makes it; the bare turn takes other sessions.
async fn reset(name: &str, world: &World, bare: &mut Bare) -> anyhow::Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..=5 {
        let sessions = open_sessions(world, PAGE).await?;
        let start = Instant::now();
        bare.reset_pass(&sessions).await?;
        let bare_took = start.elapsed();
        let body = r#"{"expected_generation":1,"clear":"auto"}"#;
        world.admin(Method::POST, "/core/v1/sandbox/deployment/reset", body).await?;
        let before = expired(world).await?;
        let mut owner = Resetting::new(world.core.clone(), world.lease);
        let start = Instant::now();
        let under_way = owner.pass().await?;
        let took = start.elapsed();
        anyhow::ensure!(under_way && expired(world).await? == before + i64::try_from(PAGE)?, "the pass took a page");
        // The first turn warms everything up.
        if turn > 0 {
            ours.push(took);
            theirs.push(bare_took);
        }
        world.admin(Method::DELETE, "/core/v1/sandbox/deployment/reset?expected_generation=1", "").await?;
    }
    row(name, &format!("reset pass of {PAGE}"), median(ours), median(theirs));
    Ok(())
}

async fn open_sessions(world: &World, count: usize) -> anyhow::Result<Vec<String>> {
    let mut tx = world.core.store().read().await?;
    let query = "SELECT s.id FROM sessions s JOIN environments e ON e.session_id = s.id \
         JOIN runtime_allocations a ON a.environment_id = e.id WHERE a.state = 'running' AND e.status = 'connected' \
         ORDER BY s.id DESC LIMIT $1";
    Ok(sqlx::query_scalar(query).bind(i64::try_from(count)?).fetch_all(&mut *tx).await?)
}

async fn expired(world: &World) -> anyhow::Result<i64> {
    world.count("SELECT COUNT(*) FROM environments WHERE status = 'expired'").await
}

/// Heartbeats of the whole fleet as fast as they are committed, for some seconds.
async fn throughput(name: &str, world: &World) -> anyhow::Result<()> {
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < Duration::from_secs(3) {
        crowd(world, &world.nodes).await?;
        count += u32::try_from(NODES)?;
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    let (needed, work) = (HEARTBEATS_PER_SECOND, "heartbeats committed a second");
    let ratio = rate / needed;
    println!("{name:<10} {work:<40} {rate:>11.0} {needed:>11} {ratio:>7.2} {:>9}", ">= 1");
    Ok(())
}

/// Medians of interleaved turns: ours, theirs.
async fn pair(
    world: &World,
    bare: &mut Bare,
    ours: impl AsyncFn(&World) -> anyhow::Result<()>,
    theirs: impl AsyncFn(&mut Bare) -> anyhow::Result<()>,
) -> anyhow::Result<(Duration, Duration)> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    world.freshen().await?;
    for turn in 0..=TURNS {
        world.stir().await?;
        let start = Instant::now();
        ours(world).await?;
        let middle = Instant::now();
        theirs(bare).await?;
        // The first turn warms everything up.
        if turn > 0 {
            first.push(middle - start);
            second.push(middle.elapsed());
        }
    }
    Ok((median(first), median(second)))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn row(store: &str, work: &str, ours: Duration, bare: Duration) {
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!(
        "{store:<10} {work:<40} {:>11} {:>11} {ratio:>7.2} {:>9}",
        shown(ours),
        shown(bare),
        format!("<= {RATIO_MAX}")
    );
}

fn limit(store: &str, work: &str, ours: Duration, most: Duration) {
    let ratio = ours.as_secs_f64() / most.as_secs_f64();
    println!("{store:<10} {work:<40} {:>11} {:>11} {ratio:>7.2} {:>9}", shown(ours), shown(most), "<= 1");
}

fn shown(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
