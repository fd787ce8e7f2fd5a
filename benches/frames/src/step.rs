//! One step of a session: a frame goes in, the actions come out.
//!
//! The machines are the ones that the node and Core run; what the shells do around them is not counted.

mod hub;
mod node;

use palisade_core::units::{Digest, Generation, Id, Millis, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, Health, Identity, Observation};
use palisade_core::wire::{Frame, decode_text};

use crate::pair::Work;
use crate::sample;

/// A step and the most instructions that it may take.
pub struct Step {
    /// What happens.
    pub name: &'static str,
    /// Prepares a session for two such steps: one to warm up, one to count.
    pub work: fn() -> Work,
    /// Instructions above which the gate closes: about a tenth above what was measured last.
    pub ceiling: u64,
}

/// Every step, in the order of the table.
pub const STEPS: [Step; 7] = [
    Step { name: "node: request in, execution out", work: node::request, ceiling: 11_600 },
    Step { name: "node: result in, response out", work: node::result, ceiling: 11_800 },
    Step { name: "node: measurement in, heartbeat of eight out", work: node::measurement, ceiling: 26_200 },
    Step { name: "node: acknowledgement in", work: node::acknowledgement, ceiling: 6_400 },
    Step { name: "core: heartbeat of eight in, acknowledgement out", work: hub::heartbeat, ceiling: 35_800 },
    Step { name: "core: call in, request out", work: hub::request, ceiling: 9_600 },
    Step { name: "core: response in, delivery out", work: hub::response, ceiling: 6_800 },
];

const NOW: Millis = Millis(1_000_000);
const OBSERVED: std::ops::RangeInclusive<u64> = 1..=8;

fn connection() -> Id {
    Id::parse(sample::CONNECTION).expect("a UUID")
}

fn epoch() -> OwnerEpoch {
    OwnerEpoch::new(sample::OWNER_EPOCH).expect("positive")
}

fn generation(number: u64) -> Generation {
    Generation::new(number).expect("positive")
}

fn digest() -> Digest {
    Digest::parse(sample::DIGEST).expect("a digest")
}

fn deployment() -> Deployment {
    Deployment { generation: generation(8), specification_digest: digest(), serving_generation: Some(generation(3)) }
}

fn identity() -> Identity<'static> {
    Identity {
        node_id: "6f1c2b1e-5f0a-4a55-9d0e-0a1b2c3d4e5f".into(),
        installation_id: "0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f".into(),
        provider: "docker".into(),
        backend_fingerprint: "11".repeat(32).into(),
        deployment_generation: 3,
        specification_digest: sample::DIGEST.into(),
        max_active: 2,
        max_retained: 8,
    }
}

/// What the sample heartbeat reports.
fn health() -> Health<'static> {
    match decode_text(sample::heartbeat().leak()) {
        Ok(Frame::Heartbeat { health, .. }) => health,
        other => unreachable!("the sample is a heartbeat, not {other:?}"),
    }
}

fn observed() -> Vec<Generation> {
    health().generations.iter().map(|observation: &Observation<'_>| observation.generation).collect()
}

/// The small request or response with another identifier.
fn named(text: &str, id: Id) -> String {
    text.replace(sample::REQUEST_ID, &id.to_string())
}

/// Two things to do, one at a time.
fn two<T: 'static>(things: [T; 2], mut step: impl FnMut(T) + 'static) -> Work {
    let mut things = things.into_iter();
    Box::new(move || step(things.next().expect("a session is prepared for two steps")))
}
