//! A node that is killed again and again, while its sandboxes run on a real engine.
//!
//! `PALISADE_NODE_KILLS=100 cargo test -p palisade --test rollout kills -- --nocapture` kills it a hundred times; without the variable
//! it is ten times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::in_a_world;
use super::world::{Program, Sandbox, World};

/// How many kills a quick run has.
const KILLS: usize = 10;
/// A node starts, finds its sandboxes and is connected within this time, or hardly later.
const MOMENT_MAX_MS: u64 = 1000;
/// Sandboxes that live through all of it.
const STANDING: usize = 2;

/// What happens when the node is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum During {
    /// It has just started, and looks at what is on the host.
    Start,
    /// A command is on its way in a sandbox.
    Command,
    /// A sandbox is being created.
    Creation,
    /// A sandbox is being removed.
    Removal,
}

/// One after the other. Before a sandbox is created, Core must have heard that the node is ready again, which takes a
/// heartbeat; and a creation whose answer was lost ends only with its budget. A quick run has none.
const KINDS: [During; 20] = {
    const S: During = During::Start;
    const C: During = During::Command;
    [
        S,
        C,
        S,
        C,
        During::Removal,
        S,
        C,
        C,
        S,
        C,
        S,
        C,
        During::Creation,
        S,
        C,
        During::Removal,
        C,
        During::Creation,
        S,
        C,
    ]
};

/// E27. Promise 16. SIGKILL at random moments: while the node starts, while a command runs, while a sandbox is created or
/// removed. After every kill the same containers run, with the same start and process; none is lost, none is doubled, the next
/// node adopts them and they work; in the end nothing is left that nobody accounts for.
#[tokio::test(flavor = "multi_thread")]
async fn every_sandbox_outlives_every_kill_of_its_node() {
    let kills = std::env::var("PALISADE_NODE_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    in_a_world(async |world| outlive(world, kills).await).await;
}

async fn outlive(world: &World, kills: usize) {
    let release = world.release(&"a".repeat(40), b"");
    let view = world.select(0, &release).await;
    world.install(&view, &release).await;
    world.register().await;
    let mut node = world.node();
    world.ready(1).await;
    let (project, key) = world.project().await;
    let mut standing = Vec::new();
    for _ in 0..STANDING {
        standing.push(world.session(&key).await);
    }
    let sandboxes = world.sandboxes().await;
    assert_eq!(sandboxes.len(), STANDING);
    assert!(sandboxes.values().all(|sandbox| sandbox.running == Some(true)), "{sandboxes:?}");

    let began = Instant::now();
    let killing = Killing { world, project: &project, key: &key, standing: &standing, sandboxes: &sandboxes, began };
    let (passing, leaving) = killing.kill(&mut node, kills).await;
    for session in &standing {
        world.run(&key, session).await;
    }
    for session in &passing {
        // A creation whose answer was lost is never repeated: it may have come to nothing.
        let status = world.settled(&key, session).await;
        println!("{:>7.2} {session} is {status}", began.elapsed().as_secs_f64());
        if status == "connected" {
            world.run(&key, session).await;
        }
        world.begin_archive(&project, session).await;
    }
    // Where nothing is seen of a lost creation, it takes five minutes until Core may be sure that nothing comes after it.
    for session in leaving.iter().chain(&passing) {
        world.archived(&project, session).await;
    }
    require(&sandboxes, &world.sandboxes().await, 0);
    println!("{:>7.2} {kills} kills, and the same {STANDING} sandboxes", began.elapsed().as_secs_f64());
    for session in &standing {
        world.archive(&project, session).await;
    }
    assert!(world.sandboxes().await.is_empty());
    let volumes = world.volumes(view["installation_id"].as_str().unwrap()).await;
    assert!(volumes.is_empty(), "nobody accounts for {volumes:?}");
    drop(node);
}

/// A node that is killed again and again, and what must live through it.
struct Killing<'a> {
    world: &'a World,
    project: &'a str,
    key: &'a str,
    standing: &'a [String],
    sandboxes: &'a BTreeMap<String, Sandbox>,
    began: Instant,
}

impl Killing<'_> {
    /// Gives the sessions that were being created and those that were being removed at a kill.
    async fn kill(&self, node: &mut Program, kills: usize) -> (Vec<String>, Vec<String>) {
        let Self { world, project, key, .. } = *self;
        let (mut passing, mut leaving) = (Vec::new(), Vec::new());
        for during in KINDS.into_iter().cycle().take(kills) {
            if during != During::Start {
                for session in self.standing {
                    world.run(key, session).await;
                }
            }
            match during {
                During::Start => {}
                During::Command => drop(world.message(key, &self.standing[0]).await),
                During::Creation => {
                    world.ready(1).await;
                    passing.push(world.new_session(key).await);
                }
                During::Removal => {
                    world.ready(1).await;
                    let session = world.session(key).await;
                    world.begin_archive(project, &session).await;
                    leaving.push(session);
                }
            }
            tokio::time::sleep(Duration::from_millis(rand::random::<u64>() % MOMENT_MAX_MS)).await;
            node.kill();
            println!("{:>7.2} killed: {during:?}", self.began.elapsed().as_secs_f64());
            require(self.sandboxes, &world.sandboxes().await, passing.len() + leaving.len());
            *node = world.node();
        }
        (passing, leaving)
    }
}

/// Whether these sandboxes are as they were, with at most so many others, and none that has two containers.
fn require(standing: &BTreeMap<String, Sandbox>, found: &BTreeMap<String, Sandbox>, others: usize) {
    for (id, sandbox) in standing {
        assert_eq!(found.get(id), Some(sandbox), "{id} is another one");
    }
    assert!(found.len() <= standing.len() + others, "{found:?}");
    let allocations: BTreeSet<_> = found.values().map(|sandbox| &sandbox.allocation).collect();
    assert_eq!(allocations.len(), found.len(), "a sandbox has two containers: {found:?}");
}
