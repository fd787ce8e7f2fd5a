//! One identity, and more than one connection that wants it.

use std::time::Duration;

use crate::world::{Plan, World};

fn live() -> World<'static> {
    let mut world = World::new(Plan::default());
    world.pass_secs(25);
    world
}

/// E1. A host that loses its power says nothing more. Its node is back at once, and refused with 409 until the old
/// connection was silent for 35 s; the first dial after that is let in. It never gives up on the way.
#[test]
fn a_conflict_clears_35_seconds_after_the_old_connection_fell_silent() {
    let mut world = live();
    let heard = *world.trace.times("core hears node-0", Duration::ZERO).last().unwrap();
    world.sim.partition("core", "host-0");
    world.crash("host-0");
    world.pass_secs(1);
    world.sim.repair("core", "host-0");
    world.sim.bounce("host-0");
    let back = world.now();
    world.pass_secs(70);
    let closed = world.trace.times("core to host-0 closes after 35000 ms", back);
    assert_eq!(closed.len(), 1, "{:?}", world.trace.since("", back));
    assert!(closed[0] <= heard + 35_000 + 10, "{closed:?} after {heard}");
    let refused = world.trace.since("node-0 is refused", back);
    assert!(refused.len() >= 3 && refused.iter().all(|(_, line)| line.contains("409")), "{refused:?}");
    assert!(refused.iter().all(|(at, _)| *at <= closed[0] + 50), "{refused:?} although it was free at {closed:?}");
    let connected = world.trace.times("core connects node-0", back);
    assert_eq!(connected.len(), 1);
    assert!(connected[0] <= closed[0] + 31_000, "{connected:?}");
}

/// Promise 1. A node that comes back while its old connection is still being closed gets 409, and is let in once the
/// old one is really over: the late end of the old one does not disturb the new one.
#[test]
fn a_node_that_reconnects_while_its_old_connection_closes_waits_for_its_end() {
    let mut world = live();
    world.records.slow_down_disconnects(Duration::from_secs(3));
    world.sim.bounce("host-0");
    let back = world.now();
    world.pass_secs(90);
    let refused = world.trace.since("node-0 is refused", back);
    assert!(!refused.is_empty() && refused.iter().all(|(_, line)| line.contains("409")), "{refused:?}");
    let (forgotten, connected) =
        (world.trace.times("core forgets node-0", back), world.trace.times("core connects node-0", back));
    assert_eq!((forgotten.len(), connected.len()), (1, 1));
    assert!(forgotten[0] < connected[0] && forgotten[0] >= 3_000, "{forgotten:?} {connected:?}");
    let live = Duration::from_millis(connected[0]);
    assert_eq!(world.trace.since("node-0 closes", live), []);
    assert!(world.trace.times("core hears node-0", live).len() >= 7);
}

/// Promise 1, E2. A copied identity gets 409 for as long as the first one lives, with jitter and without end; the first
/// one's heartbeats keep their time. Once the first one is gone, the copy is let in.
#[test]
fn a_copied_identity_never_disturbs_the_first() {
    let mut world = World::new(Plan::default());
    world.pass_secs(25);
    let since = world.now();
    world.add_clone(Plan::default(), 0);
    world.pass_secs(600);
    assert_eq!(world.trace.since("clone-0 is let in", since), []);
    let refused = world.trace.since("clone-0 is refused", since);
    assert!((20..=45).contains(&refused.len()), "{} refusals in ten minutes", refused.len());
    assert!(refused.iter().all(|(_, line)| line.contains("409")), "{refused:?}");
    let heard = world.trace.times("core hears node-0", since);
    assert!(heard.windows(2).all(|beats| beats[1].abs_diff(beats[0]).abs_diff(10_000) <= 100), "{heard:?}");
    assert_eq!(world.trace.since("node-0 closes", since), []);
    world.crash("host-0");
    let gone = world.now();
    world.pass_secs(31);
    assert_eq!(world.trace.times("clone-0 is let in", gone).len(), 1);
}
