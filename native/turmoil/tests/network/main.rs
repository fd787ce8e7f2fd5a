//! The real shells in a simulated network.

#![allow(clippy::unwrap_used, reason = "a test panics with what surprised it")]

mod conflict;
mod crash;
mod partition;
mod records;
mod stampede;
mod stream;
mod world;
