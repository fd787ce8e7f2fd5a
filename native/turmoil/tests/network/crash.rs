//! Crashes in the middle of a message, and providers that hang.

use std::borrow::Cow;
use std::time::Duration;

use palisade_control::hub::Outcome;
use palisade_core::lifecycle::CallError;
use palisade_core::operation::{Method, Operation};
use palisade_core::wire::payload::Command;
use palisade_provider::testing::{Fault, bootstrap, reference};
use rstest::rstest;

use crate::world::{Plan, World};

const MIB: usize = 1 << 20;

fn command(stdin: usize) -> Operation<'static> {
    let stdin = (stdin > 0).then(|| Cow::Owned(vec![b'x'; stdin]));
    Operation::RunCommand(Command { args: vec!["/bin/true".into()], directory: "".into(), stdin })
}

/// A live node with a sandbox, on a slow network.
fn with_sandbox() -> World<'static> {
    // Four segments at a time, so that a large message takes many round trips.
    let mut world = World::new(Plan { latency_ms: (1, 100), segments: 4, ..Plan::default() });
    world.pass_secs(25);
    let created = world.call(0, Operation::Create(Box::new(bootstrap(reference(0)))), Duration::from_secs(30));
    world.pass_secs(5);
    assert!(matches!(&*created.lock().unwrap(), Some(Ok(_))));
    world
}

fn is_uncertain(outcome: Option<&Outcome>) -> bool {
    matches!(outcome, Some(Err(CallError::Uncertain(_))))
}

/// Promise 4. A request of 8 MiB that is cut in the middle by the end of its host, noticed at once or not at all: its
/// outcome is unknown, nothing of it is carried out, nothing is sent again, and the next connection works.
#[rstest]
fn a_request_cut_by_a_crash_of_the_node_is_never_carried_out(#[values(true, false)] noticed: bool) {
    let mut world = with_sandbox();
    let outcome = world.call(0, command(8 * MIB), Duration::from_secs(60));
    world.pass(Duration::from_millis(300));
    assert!(outcome.lock().unwrap().is_none());
    if !noticed {
        world.sim.partition("core", "host-0");
    }
    world.crash("host-0");
    world.pass_secs(1);
    world.sim.repair("core", "host-0");
    world.sim.bounce("host-0");
    let back = world.now();
    world.pass_secs(80);
    assert!(is_uncertain(outcome.lock().unwrap().as_ref()), "{:?}", outcome.lock().unwrap());
    assert_eq!(world.trace.times("core connects node-0", back).len(), 1);
    assert_eq!(world.provider(0).count(Method::RunCommand), 0);
    works(&mut world);
}

/// Promises 2 and 4. Core crashes in the middle of a request: the node carries out nothing of it, and serves the next
/// Core under its higher epoch.
#[test]
fn a_request_cut_by_a_crash_of_core_is_never_carried_out() {
    let mut world = with_sandbox();
    let outcome = world.call(0, command(8 * MIB), Duration::from_secs(60));
    world.pass(Duration::from_millis(300));
    world.crash("core");
    world.pass_secs(3);
    world.sim.bounce("core");
    let back = world.now();
    world.pass_secs(30);
    assert!(outcome.lock().unwrap().is_none(), "nobody is left to know");
    assert_eq!(world.trace.times("core connects node-0", back).len(), 1);
    assert_eq!(world.provider(0).count(Method::RunCommand), 0);
    works(&mut world);
}

/// A large request and its answer, over the connection that is there now.
fn works(world: &mut World<'_>) {
    world.pass_secs(12);
    let outcome = world.call(0, command(MIB), Duration::from_secs(60));
    world.pass_secs(30);
    assert!(matches!(&*outcome.lock().unwrap(), Some(Ok(_))), "{:?}", outcome.lock().unwrap());
    assert_eq!(world.provider(0).count(Method::RunCommand), 1);
}

/// Promise 10, E5. With 32 commands that hang for their whole budget, heartbeats arrive on time for five minutes, and the
/// node serves again afterwards.
#[test]
fn heartbeats_arrive_on_time_while_a_provider_hangs() {
    let mut world = World::new(Plan::default());
    world.pass_secs(25);
    let created = world.call(0, Operation::Create(Box::new(bootstrap(reference(0)))), Duration::from_secs(30));
    world.pass_secs(1);
    assert!(matches!(&*created.lock().unwrap(), Some(Ok(_))));
    let since = world.now();
    let outcomes: Vec<_> = (0..32)
        .map(|_| {
            world.provider(0).script(Method::RunCommand, Fault::Hang);
            world.call(0, command(0), Duration::from_secs(120))
        })
        .collect();
    world.pass_secs(300);
    let heard = world.trace.times("core hears node-0", since);
    assert!(heard.len() >= 29, "{heard:?}");
    assert!(heard.windows(2).all(|beats| (9_000..=11_000).contains(&(beats[1] - beats[0]))), "{heard:?}");
    assert_eq!(world.trace.since("node-0 closes", since), []);
    assert!(outcomes.iter().all(|outcome| matches!(&*outcome.lock().unwrap(), Some(Err(_)))));
    let next = world.call(0, Operation::GetInfo, Duration::from_secs(10));
    world.pass_secs(5);
    assert!(matches!(&*next.lock().unwrap(), Some(Ok(_))));
}
