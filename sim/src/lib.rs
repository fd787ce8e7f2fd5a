//! Deterministic simulation of Palisade: Cores, nodes, hosts, disks, engines, clocks and the network between them.
//!
//! One seed is one history. The machines of `palisade-core` are driven as the shells drive them, and their frames travel
//! as bytes; everything around them goes wrong in every way that the plan of the history says. After every event the
//! [promises](Broken) are checked against books that are kept from what crossed the boundaries, and share no code with
//! the machines. When the faults stop, everything must settle within a bounded time.

#![forbid(unsafe_code)]

mod books;
mod campaign;
mod clock;
mod coverage;
#[cfg(test)]
mod directed;
mod history;
mod plan;
mod queue;
mod random;
mod sabotage;
mod world;

pub use books::Broken;
pub use campaign::{Campaign, Seeds};
pub use coverage::Coverage;
pub use history::{Failure, History};
pub use sabotage::Sabotage;
