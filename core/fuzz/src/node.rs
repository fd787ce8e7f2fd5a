//! Any history of the node's half: frames, right and wrong, between everything else that may happen to a node.

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
    let Ok(start) = events::Start::arbitrary(&mut source) else { return };
    let mut rig = Rig::new(&start);
    for _ in 0..EVENTS_MAX {
        if source.is_empty() {
            break;
        }
        let Ok(event) = Event::arbitrary(&mut source) else { break };
        rig.handle(&event);
    }
}
