//! The owner as it runs: the real executable as Core, real stores, and real node sessions over real sockets in front of a
//! provider that fails on demand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod core;
mod home;
mod node;
mod reset;
mod suspension;
mod takeover;
mod world;
