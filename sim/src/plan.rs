//! What a history is made of: a shape, a weather, and a list of events. A failing one is shrunk by leaving things out.

mod event;

use std::fmt;

pub(crate) use event::{Direction, Event, Hostile, Page, Party, Trap};

use crate::clock::Time;
use crate::random::Random;
use crate::world::store::Policy;

/// A whole history, before it happens.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    pub(crate) weather: Weather,
    /// In the order of their time.
    pub(crate) events: Vec<(Time, Event)>,
}

/// How many there are of what.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) cores: usize,
    pub(crate) hosts: usize,
    /// The last host runs a copy of the first one's identity.
    pub(crate) cloned: bool,
    /// Clocks gain or lose at most this many milliseconds in a million.
    pub(crate) drift_ppm: u64,
    /// When sandboxes are suspended, where the provider has checkpoints.
    pub(crate) policy: Option<Policy>,
}

/// What goes wrong all the time: shares of 1,000, or milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weather {
    pub(crate) latency_ms: u64,
    pub(crate) slow_store: u32,
    pub(crate) unsure_commit: u32,
    pub(crate) lost_dial: u32,
    pub(crate) fragments: u32,
    pub(crate) slow_engine: u32,
    pub(crate) failing_engine: u32,
    pub(crate) lost_answers: u32,
    pub(crate) failing_probe: u32,
    pub(crate) failing_preparation: u32,
    pub(crate) failing_disk: u32,
}

/// What a history is mostly about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Focus {
    Everything,
    Fencing,
    Network,
    Generations,
    Sandboxes,
    Hostile,
}

/// The stream that decides about checkpoints; chosen so that no seed of the older corpus has them.
const HOSTED: u64 = 13_790;
/// Nothing is asked before nodes had a chance to be ready.
const FIRST_EVENT: Time = 12_000;

impl Plan {
    /// The history of one seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let focus = random.pick(&[
            Focus::Everything,
            Focus::Fencing,
            Focus::Network,
            Focus::Generations,
            Focus::Sandboxes,
            Focus::Hostile,
        ]);
        let shape = Shape::of(focus, &mut random);
        let weather = Weather::of(focus, &mut random);
        let length = random.pick(&[40_000, 60_000, 90_000, 150_000]);
        let count = random.between(8, 36);
        let mut events: Vec<_> = (0..count)
            .map(|_| {
                let at = random.between(FIRST_EVENT, FIRST_EVENT + length);
                (at, event(focus, &shape, &mut random))
            })
            .collect();
        events.push((random.between(FIRST_EVENT, FIRST_EVENT + 4_000), Event::CreateSession));
        let policy = hosted(seed, shape.cloned, length, &mut events);
        events.sort_by_key(|(at, _)| *at);
        Self { seed, shape: Shape { policy, ..shape }, weather, events }
    }

    /// When the last planned event happens; from a little later on nothing goes wrong any more.
    pub(crate) fn ends(&self) -> Time {
        self.events.last().map_or(FIRST_EVENT, |(at, _)| *at)
    }
}

/// Compute that is suspended, in some histories, and what clients do with it. From a stream of its own: every other
/// history is what it was before there were checkpoints, those of the older corpus among them.
fn hosted(seed: u64, cloned: bool, length: u64, events: &mut Vec<(Time, Event)>) -> Option<Policy> {
    let mut random = Random::new(seed, HOSTED);
    if !random.chance(300) || cloned {
        return None;
    }
    let idle_ms = random.pick(&[1_000, 5_000, 20_000]);
    let retention_ms = random.pick(&[30_000, 120_000, 400_000]);
    for _ in 0..random.between(4, 16) {
        let at = random.between(FIRST_EVENT, FIRST_EVENT + length);
        events.push((at, event::hosted_client(&mut random)));
    }
    Some(Policy { idle_ms, retention_ms })
}

impl Shape {
    fn of(focus: Focus, random: &mut Random) -> Self {
        let cores = match focus {
            Focus::Fencing => 2 + random.below(2),
            Focus::Everything | Focus::Network | Focus::Generations | Focus::Sandboxes | Focus::Hostile => {
                1 + random.below(2)
            }
        };
        let cloned = focus == Focus::Network && random.chance(200);
        Self {
            cores: crate::random::index(cores),
            hosts: crate::random::index(random.between(1 + u64::from(cloned), 2)),
            cloned,
            drift_ppm: random.pick(&[0, 50, 500, 10_000]),
            policy: None,
        }
    }
}

impl Weather {
    /// The same with one kind of trouble less, for each kind there is.
    pub(crate) fn calmer(&self) -> Vec<Self> {
        let kinds: [fn(&mut Self) -> &mut u32; 10] = [
            |weather| &mut weather.slow_store,
            |weather| &mut weather.unsure_commit,
            |weather| &mut weather.lost_dial,
            |weather| &mut weather.fragments,
            |weather| &mut weather.slow_engine,
            |weather| &mut weather.failing_engine,
            |weather| &mut weather.lost_answers,
            |weather| &mut weather.failing_probe,
            |weather| &mut weather.failing_preparation,
            |weather| &mut weather.failing_disk,
        ];
        let without = |kind: fn(&mut Self) -> &mut u32| {
            let mut calmer = self.clone();
            (std::mem::take(kind(&mut calmer)) > 0).then_some(calmer)
        };
        kinds.into_iter().filter_map(without).collect()
    }

    fn of(focus: Focus, random: &mut Random) -> Self {
        if random.chance(150) {
            return Self { latency_ms: 5, ..Self::default() };
        }
        let mut share = |of: Focus, usual: u32| {
            let most = if focus == of || focus == Focus::Everything { usual * 3 } else { usual };
            u32::try_from(random.below(u64::from(most) + 1)).unwrap_or(most)
        };
        Self {
            slow_store: share(Focus::Fencing, 8),
            unsure_commit: share(Focus::Fencing, 8),
            lost_dial: share(Focus::Network, 60),
            fragments: share(Focus::Network, 60),
            slow_engine: share(Focus::Sandboxes, 60),
            failing_engine: share(Focus::Sandboxes, 60),
            lost_answers: share(Focus::Sandboxes, 20),
            failing_probe: share(Focus::Generations, 8),
            failing_preparation: share(Focus::Generations, 200),
            failing_disk: share(Focus::Generations, 60),
            latency_ms: random.pick(&[2, 20, 150, 600]),
        }
    }
}

fn event(focus: Focus, shape: &Shape, random: &mut Random) -> Event {
    let host = crate::random::index(random.below(shape.hosts as u64));
    let core = crate::random::index(random.below(shape.cores as u64));
    let party = if random.chance(500) { Party::Core(core) } else { Party::Node(host) };
    let weights: [u64; 6] = match focus {
        Focus::Everything => [30, 12, 14, 14, 18, 8],
        Focus::Fencing => [32, 6, 34, 10, 12, 2],
        Focus::Network => [28, 4, 8, 6, 50, 2],
        Focus::Generations => [26, 34, 10, 22, 8, 0],
        Focus::Sandboxes => [48, 4, 8, 28, 10, 0],
        Focus::Hostile => [34, 6, 4, 4, 6, 46],
    };
    let mut draw = random.below(weights.iter().sum());
    let kind = weights.iter().position(|weight| draw.checked_sub(*weight).map(|rest| draw = rest).is_none());
    match kind.unwrap_or(0) {
        0 => event::client(random),
        1 => event::operator(host, random),
        2 => event::core_fault(core, random),
        3 => event::host_fault(host, random),
        4 => event::network_fault(host, random),
        _ if random.chance(150) => Event::Arm(party, Trap::any(random), random.between(1, 6)),
        _ => event::hostile(host, random),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { cores, hosts, cloned, drift_ppm, policy } = &self.shape;
        let copy = if *cloned { ", the last host a copy of the first" } else { "" };
        writeln!(f, "  {cores} core(s), {hosts} host(s){copy}, clocks drift by at most {drift_ppm} ppm")?;
        if let Some(Policy { idle_ms, retention_ms }) = policy {
            writeln!(f, "  sandboxes are suspended after {idle_ms} ms and kept for {retention_ms} ms")?;
        }
        writeln!(f, "  weather: {:?}", self.weather)?;
        for (at, event) in &self.events {
            writeln!(f, "  at {at:>7} ms: {event}")?;
        }
        Ok(())
    }
}
