//! Networks that lose everything, one direction, or the order.

use std::time::Duration;

use crate::world::{Plan, World};

const SILENCE_MS: u64 = 35_000;

/// The last number of a line of the trace like "… closes after N ms of silence".
fn silence(line: &str) -> u64 {
    let words: Vec<_> = line.split(' ').collect();
    words[words.len() - 4].parse().unwrap()
}

/// E3. In a partition nobody hears of the other's end: both sides close after 35 s without a frame, and the node is back
/// soon after the network is.
#[test]
fn both_sides_of_a_partition_close_after_35_seconds() {
    let mut world = World::new(Plan::default());
    world.pass_secs(25);
    assert_eq!(world.trace.times("core connects node-0", Duration::ZERO).len(), 1);
    let cut = world.now();
    world.sim.partition("core", "host-0");
    world.pass_secs(60);
    for side in ["core to host-0 closes", "node-0 closes"] {
        let closed = world.trace.since(side, cut);
        assert_eq!(closed.len(), 1, "{closed:?}");
        assert_eq!(silence(&closed[0].1), SILENCE_MS, "{closed:?}");
    }
    let repaired = world.now();
    world.sim.repair("core", "host-0");
    world.pass_secs(40);
    assert_eq!(world.trace.times("core connects node-0", repaired).len(), 1, "{:?}", world.trace.all());
}
