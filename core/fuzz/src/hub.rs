//! Any history of Core's half: frames, callers, storage and time in any order that a driver may bring about.

mod events;
mod rig;

use arbitrary::{Arbitrary as _, Unstructured};

use events::Event;
use rig::Rig;

/// Longest history.
const EVENTS_MAX: usize = 256;

/// One history; the promises are checked after every event.
pub fn run(input: &[u8]) {
    let mut source = Unstructured::new(input);
    let mut rig = Rig::new();
    for _ in 0..EVENTS_MAX {
        if source.is_empty() {
            break;
        }
        let Ok(event) = Event::arbitrary(&mut source) else { break };
        rig.handle(&event);
    }
    rig.end();
}
