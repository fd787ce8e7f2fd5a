//! RFC 6455 against a peer that writes and reads bytes by hand, for both roles of the shell.
//!
//! Each case has a name by subject and number, and is run for the shell in Core's role and in the node's, with the
//! peer's bytes in one piece and one by one.

#![allow(clippy::unwrap_used, reason = "a test panics with what surprised it")]

mod closing;
mod frames;
mod pressure;
mod raw;
mod resets;
mod upgrade;
