//! The real shells in a simulated network.

#![allow(clippy::unwrap_used, reason = "a test panics with what surprised it")]

mod partition;
mod records;
mod stream;
mod world;
