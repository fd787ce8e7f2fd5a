//! Every rule of Palisade, and no I/O.
//!
//! The crate holds the frame grammar, the provider outcomes, both halves of a connection, the node's
//! generation table, the deployment rules and the owner's lifecycle as pure step functions. It has no
//! socket, file, clock, thread, random number, environment variable or async runtime: time and random
//! identifiers come in as values, effects go out as values.
//!
//! # Driving a machine
//!
//! Every machine obeys one loop: **one mutation, then drain**.
//!
//! ```text
//! loop {
//!     machine.handle_*(now, input);                    // exactly one
//!     while let Some(action) = machine.poll_action() { perform(action) }
//!     wait for the next input, or until machine.poll_timeout()
//! }
//! ```

#![forbid(unsafe_code)]

pub mod admin;
pub mod deployment;
pub mod generation;
pub mod hosted;
pub mod lifecycle;
pub mod limits;
pub mod operation;
pub mod outcome;
pub mod sandbox_io;
pub mod session;
pub mod strict;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod units;
pub mod wire;
