//! Core's half of a connection over real sockets, with records that a test can hold, refuse or make late.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;
mod heartbeats;
mod opening;
mod requests;
mod rig;
