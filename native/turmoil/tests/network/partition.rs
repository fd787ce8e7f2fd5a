//! Networks that lose everything, lose one direction, stand still, or are slow and out of order.

use std::time::Duration;

use rstest::rstest;

use crate::world::{Plan, World};

const SILENCE_MS: u64 = 35_000;

/// How long nothing had come, of a line of the trace like "… closes after N ms of silence".
fn silence(line: &str) -> u64 {
    let words: Vec<_> = line.split(' ').collect();
    words[words.len() - 4].parse().unwrap()
}

/// A node that was live for a while.
fn live(plan: Plan) -> World<'static> {
    let mut world = World::new(plan);
    world.pass_secs(25);
    assert_eq!(world.trace.times("core connects node-0", Duration::ZERO).len(), 1);
    world
}

/// E3. In a partition nobody hears of the other's end: both sides close after 35 s without a frame, and the node is back
/// soon after the network is.
#[test]
fn both_sides_of_a_partition_close_after_35_seconds() {
    let mut world = live(Plan::default());
    let cut = world.now();
    world.sim.partition("core", "host-0");
    world.pass_secs(60);
    for side in ["core to host-0 closes", "node-0 closes"] {
        let closed = world.trace.since(side, cut);
        assert_eq!(closed.len(), 1, "{closed:?}");
        assert_eq!(silence(&closed[0].1), SILENCE_MS, "{closed:?}");
    }
    assert!(world.trace.times("node-0 reaches nobody", cut).len() >= 3, "it tries on");
    let repaired = world.now();
    world.sim.repair("core", "host-0");
    world.pass_secs(31);
    assert_eq!(world.trace.times("core connects node-0", repaired).len(), 1);
}

/// E3. What only one side cannot hear ends the connection for both: that side after 35 s, the other one because it is told.
#[rstest]
#[case("core", "host-0", "node-0 closes", "core to host-0 closes")]
#[case("host-0", "core", "core to host-0 closes", "node-0 closes")]
fn loss_in_one_direction_ends_the_connection_after_35_seconds(
    #[case] from: &str,
    #[case] to: &str,
    #[case] deaf: &str,
    #[case] told: &str,
) {
    let mut world = live(Plan::default());
    let cut = world.now();
    world.sim.partition_oneway(from, to);
    world.pass_secs(90);
    let (deaf, told) = (world.trace.since(deaf, cut), world.trace.since(told, cut));
    assert_eq!(silence(&deaf[0].1), SILENCE_MS, "{deaf:?}");
    assert!(silence(&told[0].1) < SILENCE_MS && told[0].0 - deaf[0].0 < 100, "{deaf:?} {told:?}");
    assert_eq!(world.trace.times("core hears node-0", cut + Duration::from_millis(SILENCE_MS)).len(), 0);
    let repaired = world.now();
    world.sim.repair_oneway(from, to);
    // A dial under way may still have to end, after 10 s, and so may the silent connection that it left in Core.
    world.pass_secs(60);
    assert_eq!(world.trace.times("core connects node-0", repaired).len(), 1, "{:?}", world.trace.since("", repaired));
    assert!(world.trace.times("core hears node-0", repaired).len() >= 2);
}

/// A network that stands still for 20 s and then delivers everything has lost nothing, so no connection ends.
#[test]
fn a_stall_shorter_than_the_deadline_ends_nothing() {
    let mut world = live(Plan::default());
    let held = world.now();
    world.sim.hold("core", "host-0");
    world.pass_secs(20);
    world.sim.release("core", "host-0");
    world.pass_secs(120);
    assert_eq!(world.trace.since("core to host-0 closes", held), []);
    assert_eq!(world.trace.since("node-0 closes", held), []);
    assert!(world.trace.times("core hears node-0", held).len() >= 12);
}

/// Segments that take from 1 ms to 4 s each, and overtake each other on the way, end nothing in ten minutes.
#[rstest]
fn latency_and_reordering_end_nothing(#[values(1, 2, 3)] seed: u64) {
    let mut world = World::new(Plan { seed, latency_ms: (1, 4_000), nodes: 5, tick_ms: 20, ..Plan::default() });
    world.pass_secs(60);
    let settled = world.now();
    world.pass_secs(600);
    for node in 0..5 {
        assert_eq!(world.trace.since(&format!("node-{node} closes"), settled), []);
        let heard = world.trace.times(&format!("core hears node-{node}"), settled).len();
        assert!((58..=61).contains(&heard), "{heard} heartbeats in 600 s");
    }
}

/// A seed gives one history, to the millisecond; another seed gives another one.
#[test]
fn a_seed_gives_one_history() {
    let history = |seed| {
        let mut world = World::new(Plan { seed, hosts: 3, nodes: 4, ..Plan::default() });
        world.pass_secs(20);
        world.sim.partition("core", "host-0");
        world.sim.partition_oneway("core", "host-1");
        world.pass_secs(20);
        // Without a network, because a crash drops what a host holds in any order.
        world.sim.partition("core", "host-2");
        world.crash("host-2");
        world.sim.repair("core", "host-2");
        world.sim.bounce("host-2");
        world.pass_secs(20);
        world.stop_core();
        world.pass_secs(10);
        world.start_core();
        world.sim.repair("core", "host-0");
        world.sim.repair_oneway("core", "host-1");
        world.pass_secs(90);
        world.trace.all()
    };
    let first = history(7);
    assert!(first.len() > 200, "{} events", first.len());
    let again = history(7);
    let differs = first.iter().zip(&again).position(|(one, other)| one != other);
    assert_eq!(differs.map(|at| (&first[at], &again[at])), None, "the first difference");
    assert_eq!(first.len(), again.len());
    assert_ne!(first, history(8));
}
