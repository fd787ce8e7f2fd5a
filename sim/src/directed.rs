//! Histories with a name: each shows one behaviour that users of comparable systems miss.

use palisade_core::lifecycle::TurnError;
use palisade_core::limits::IDLE_TIMEOUT_MS;
use palisade_core::session::backoff::Backoff;

use crate::clock::Time;
use crate::plan::{Direction, Event, Hostile, Plan, Shape, Weather};
use crate::random::Random;
use crate::world::World;
use crate::world::store::{Policy, TurnState};

/// Nothing that matters, late enough that everything before has had its time.
const LATER: (Time, Event) = (120_000, Event::PauseAdmission { ms: 1 });

/// A calm world in which exactly these events happen.
fn world(cores: usize, hosts: usize, events: &[(Time, Event)]) -> World {
    hosted(None, cores, hosts, events)
}

/// The same, with sandboxes that are suspended.
fn hosted(policy: Option<Policy>, cores: usize, hosts: usize, events: &[(Time, Event)]) -> World {
    let shape = Shape { cores, hosts, cloned: false, drift_ppm: 0, policy };
    let weather = Weather { latency_ms: 5, ..Weather::default() };
    World::new(Plan { seed: 7, shape, weather, events: events.to_vec() }, None, true)
}

const SUSPENDED: Option<Policy> = Some(Policy { idle_ms: 5_000, retention_ms: 120_000 });

/// A client that uses its sandbox at 15 s, and comes back at 60 s.
const USED_TWICE: [(Time, Event); 3] = [
    (14_000, Event::CreateSession),
    (15_000, Event::PostTurn { session: 0, timeout_ms: 30_000 }),
    (60_000, Event::PostTurn { session: 0, timeout_ms: 30_000 }),
];

/// Lets things happen until `seen`, and says when that was.
fn when(world: &mut World, seen: impl Fn(&World) -> bool) -> Option<Time> {
    while world.step() {
        if seen(world) {
            return Some(world.now);
        }
    }
    None
}

/// Lets the whole history happen, and requires that it keeps every promise.
fn finish(mut world: World) -> World {
    while world.step() {}
    if let Some(broken) = world.books.broken().cloned() {
        panic!("{broken}\n{}", world.take_trace().join("\n"));
    }
    world
}

/// E1. A host loses power: its socket stays open in Core, and says nothing. The dials of the node that came back get 409
/// for ever but not longer than until 35 s after the last frame; the node never ends on it, and is connected again.
#[test]
fn a_conflict_clears_35_s_after_the_old_socket_went_silent() {
    let mut world = world(1, 1, &[(20_000, Event::Reboot { host: 0 })]);
    let closed = when(&mut world, |world| world.cover.of("core closes: no frame for 35 s") == 1).expect("core closes");
    let silent_since = 20_000;
    assert!(closed <= silent_since + IDLE_TIMEOUT_MS + 100, "the old connection was in the way until {closed}");
    assert!(world.cover.of("core refuses a dial: 409") > 0, "{:?}", world.take_trace());
    let back = when(&mut world, |world| world.cover.of("event: connection live in core") == 2).expect("back again");
    assert!(back <= closed + 31_000, "one back-off of at most 30 s later, and it was {back}");
    finish(world);
}

/// E3. A connection dies without a word in both directions: both ends close it after 35 s of silence.
#[test]
fn both_ends_close_a_half_open_connection_after_35_s() {
    let event = Event::HalfOpen { host: 0, direction: Direction::Both };
    let mut world = world(1, 1, &[(25_000, event), LATER]);
    let core = when(&mut world, |world| world.cover.of("core closes: no frame for 35 s") == 1).expect("core closes");
    let node = when(&mut world, |world| world.cover.of("node closes: no frame for 35 s") == 1).unwrap_or(core);
    let latest = 25_000 + IDLE_TIMEOUT_MS + 100;
    assert!(core <= latest && node <= latest, "core at {core}, node at {node}");
    finish(world);
}

/// E3. The same when only one direction is dead: whoever hears nothing closes.
#[test]
fn a_connection_that_is_dead_one_way_is_closed_by_whoever_hears_nothing() {
    for (direction, name) in
        [(Direction::Up, "core closes: no frame for 35 s"), (Direction::Down, "node closes: no frame for 35 s")]
    {
        let mut world = world(1, 1, &[(25_000, Event::HalfOpen { host: 0, direction }), LATER]);
        let at = when(&mut world, |world| world.cover.of(name) == 1).expect(name);
        assert!(at <= 25_000 + IDLE_TIMEOUT_MS + 100, "{direction} at {at}");
        finish(world);
    }
}

/// E7. A thousand nodes lose Core in one moment and find it again, at once or after minutes: no tenth of a second sees three
/// times as many of them as the average one. After an outage of seconds the halves of the first delays (wire §4.7) still
/// overlap little, and five times as many is the bound. Ten such fleets are counted together, so that chance does not
/// decide.
#[test]
fn a_thousand_nodes_do_not_come_back_together() {
    const NODES: u32 = 10_000;
    for (back_at, most) in [(100, 3.0), (5_000, 5.0), (20_000, 5.0), (60_000, 3.0), (600_000, 3.0)] {
        let mut arrivals = std::collections::BTreeMap::<u64, u32>::new();
        for node in 0..NODES {
            let (mut backoff, mut random) = (Backoff::default(), Random::new(u64::from(node), 9));
            let (mut now, mut lived) = (0, 40_000);
            while now < back_at {
                now += backoff.next_delay_ms(lived, None, random.next());
                lived = 5;
            }
            *arrivals.entry(now / 100).or_default() += 1;
        }
        let (first, last) = (*arrivals.keys().next().expect("some"), *arrivals.keys().last().expect("some"));
        let mean = f64::from(NODES) / f64::from(u32::try_from(last - first + 1).expect("few"));
        let peak = f64::from(arrivals.values().copied().max().expect("some"));
        println!("core was back after {back_at} ms: peak / mean {:.2}", peak / mean);
        assert!(peak / mean < most, "core was back after {back_at} ms: peak {peak}, mean {mean}");
    }
}

/// E14. Core and a node with a running sandbox lose each other. Core never starts a second copy elsewhere, the sandbox runs
/// on, and after the return nothing is created, killed or run again.
#[test]
fn a_partition_neither_copies_nor_kills_a_sandbox() {
    let world = world(
        1,
        2,
        &[
            (14_000, Event::CreateSession),
            (25_000, Event::HalfOpen { host: 0, direction: Direction::Both }),
            (25_000, Event::HalfOpen { host: 1, direction: Direction::Both }),
            (40_000, Event::PostTurn { session: 0, timeout_ms: 30_000 }),
            (140_000, Event::PostTurn { session: 0, timeout_ms: 30_000 }),
        ],
    );
    let world = finish(world);
    assert_eq!((world.cover.of("executed: create"), world.cover.of("executed: kill")), (1, 0));
    let (lost, later) = (&world.store.sessions[0].turns[0].state, &world.store.sessions[0].turns[1].state);
    assert_eq!(
        *lost,
        TurnState::Failed(TurnError::Unconfirmed),
        "it was sent into the void, and nobody sends it again"
    );
    assert!(matches!(later, TurnState::Completed { .. }), "{later:?}");
    assert_eq!(world.cover.of("executed: command"), 1);
    assert_eq!(world.hosts.iter().map(|host| host.engine.sandboxes.len()).sum::<usize>(), 1);
}

/// E26. An owner that lost its lease and does not know it yet goes on: whatever it writes is refused by the epoch in the
/// transaction itself, and a turn that it had begun is not begun a second time.
#[test]
fn an_owner_that_lost_its_lease_writes_nothing() {
    let world = world(
        2,
        1,
        &[
            (14_000, Event::CreateSession),
            (20_000, Event::SuspendCore { core: 0, ms: 12_000 }),
            (20_001, Event::LoseLock),
            (20_500, Event::CreateSession),
            (26_000, Event::PostTurn { session: 0, timeout_ms: 5_000 }),
        ],
    );
    let world = finish(world);
    assert!(world.store.owner_epoch >= 2, "another core took over");
    assert!(world.cover.of("executed: command") <= 1);
}

/// E26. The same, over many timings: the fence is really reached.
#[test]
fn the_fence_of_a_lost_lease_is_reached() {
    let mut fenced = 0;
    for offset in 0..40 {
        let events = [
            (14_000, Event::CreateSession),
            (20_000, Event::PostTurn { session: 0, timeout_ms: 5_000 }),
            (20_001 + offset, Event::LoseLock),
            (21_500, Event::PostTurn { session: 0, timeout_ms: 5_000 }),
            (22_000, Event::CreateSession),
        ];
        fenced += finish(world(3, 1, &events)).cover.of("owner: a write is fenced");
    }
    assert!(fenced > 0, "no write of a deposed owner was ever tried");
}

/// W 208, promise 10. The first heartbeat is counted from when the connection is live: a host that is suspended while an
/// epoch is on its way to the disk owes it 10 s after the epoch is durable, and whoever was suspended in the middle of an
/// interval owes it at once.
#[test]
fn a_suspended_host_owes_its_heartbeat_from_when_it_is_live() {
    let mut unstored = 0;
    for at in (140..900).chain(20_000..20_040) {
        let mut world = world(1, 1, &[(at, Event::SuspendHost { host: 0, ms: 15_000 }), LATER]);
        let frozen = when(&mut world, |world| world.hosts[0].frozen_until > 0).expect("it is suspended");
        let storing = world.hosts[0].process.as_ref().is_some_and(|process| {
            process.machine.is_connected() && !process.machine.may_read() && process.machine.live().is_none()
        });
        assert_eq!(frozen, at);
        unstored += u32::from(storing);
        finish(world);
    }
    assert!(unstored > 0, "no host was suspended while its epoch was on the way to the disk");
}

/// Promise 9. A Core that is frozen closes nothing meanwhile, and has as much time left afterwards as it had before.
#[test]
fn a_frozen_core_has_its_time_left_to_close_a_connection() {
    let hostile = Event::Send { host: 0, hostile: Hostile::WrongEpochHeartbeat };
    for at in 20_000..20_020 {
        let mut world = world(2, 1, &[(20_000, hostile), (at, Event::SuspendCore { core: 0, ms: 40_000 }), LATER]);
        let closed = "core closes: another connection, epoch or sequence";
        when(&mut world, |world| world.cover.of(closed) == 1).expect("the connection is closed after all");
        finish(world);
    }
}

/// Promise 3. A welcome is lowered to the epoch of the owner before, which is as high as the node ever saw: whoever
/// sends requests of that epoch, in sequence, is Core to the node, and each is carried out once.
#[test]
fn every_request_in_the_name_of_the_owner_before_is_carried_out_once() {
    let send = |hostile| Event::Send { host: 0, hostile };
    let mut events = vec![(20_000, send(Hostile::LowerWelcome)), (22_000, Event::StopCore { core: 0 })];
    events.extend((25_000..60_000).step_by(500).map(|at| (at, send(Hostile::LowerEpoch))));
    let world = finish(world(2, 1, &events));
    assert_eq!(world.cover.of("hostile: welcome of a lower epoch"), 1);
    assert!(world.cover.of("executed: info") > 1, "two requests of one connection: {:?}", world.cover);
}

/// D 51. A sandbox that was used and is idle becomes a snapshot, and is restored when its client comes back; its source and
/// the snapshot go when the restored one runs.
#[test]
fn an_idle_sandbox_is_suspended_and_comes_back_with_its_content() {
    let mut world = hosted(SUSPENDED, 1, 1, &[&USED_TWICE[..], &[LATER]].concat());
    when(&mut world, |world| world.cover.of("compute is: suspended") == 1).expect("it is suspended");
    let world = finish(world);
    let turns = &world.store.sessions[0].turns;
    assert!(turns.iter().all(|turn| matches!(turn.state, TurnState::Completed { .. })), "{turns:?}");
    let executed = |what: &str| world.cover.of(&format!("executed: {what}"));
    assert_eq!((executed("create"), executed("command_compute")), (1, 2));
    assert!(executed("suspend") >= 1 && executed("resume") == 1, "{:?}", world.cover);
}

/// D 51, E25. Nobody comes back: what was kept for as long as promised is removed, and not earlier.
#[test]
fn what_nobody_comes_back_to_is_removed_when_its_time_is_over() {
    let mut world = hosted(SUSPENDED, 1, 1, &[USED_TWICE[0], USED_TWICE[1], (180_000, LATER.1)]);
    let left = when(&mut world, |world| world.cover.of("compute: suspend") == 1).expect("it is suspended");
    let expired = when(&mut world, |world| world.cover.of("compute: expire") == 1).expect("it expires");
    assert!((120_000 - 2_000..130_000).contains(&(expired - left)), "after {} ms", expired - left);
    assert_eq!(finish(world).cover.of("executed: delete_snapshot"), 1);
}

/// W 41, E14. A node that dies at any moment of a capture or of a restore: what was sent is looked at and never sent again,
/// nothing runs twice, and nothing is lost.
#[test]
fn a_capture_or_restore_that_was_interrupted_is_only_looked_at() {
    let mut looked = [0, 0];
    for at in (20_000..29_000).chain(60_000..63_000).step_by(50) {
        let mut events = [&USED_TWICE[..], &[(at, Event::CrashNode { host: 0 }), LATER]].concat();
        events.sort_by_key(|(at, _)| *at);
        let world = finish(hosted(SUSPENDED, 1, 1, &events));
        looked[0] += world.cover.of("compute: look what came of a suspend");
        looked[1] += world.cover.of("compute: look what came of a restore");
    }
    assert!(looked.iter().all(|looked| *looked > 0), "{looked:?}");
}

/// A Core that is asked to stop lets open requests end, and leaves no connection and no storage call behind.
#[test]
fn a_core_that_stops_lets_open_requests_end() {
    let ask = Event::Ask { session: 0, callers: 3, unsupported: false, patience_ms: 5_000 };
    let mut waited = 0;
    for later in 0..20 {
        let events =
            [(14_000, Event::CreateSession), (20_000, ask), (20_001 + later, Event::StopCore { core: 0 }), LATER];
        let world = finish(world(1, 1, &events));
        waited += world.cover.of("drain: open requests are waited for");
        assert_eq!(world.cover.of("caller told: unavailable, perhaps sent"), 0, "{later}");
        assert_eq!(world.cover.of("drain: every connection ended"), 1);
    }
    assert!(waited > 0, "no request was open when core stopped");
}
