//! Core's half of a connection over real sockets, with records that a test can hold, refuse or make late.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../contract/mod.rs"]
mod contract;
mod fake;
mod heartbeats;
mod opening;
mod owner;
mod requests;
mod rig;
#[path = "../suite/support.rs"]
#[allow(dead_code, reason = "the suite uses the rest of it")]
mod support;
mod upgrade;
