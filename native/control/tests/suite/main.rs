//! Core on its real stores: every test of this suite runs on SQLite and on PostgreSQL.
//!
//! PostgreSQL is reached by `PALISADE_TEST_DATABASE_URL` (default `postgres://palisade:palisade@localhost:5432/postgres`),
//! whose role must be allowed to create schemas there. Every test makes its own schema and drops it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod admission;
mod catalogue;
mod contents;
#[path = "../contract/mod.rs"]
mod contract;
mod deployment;
mod document;
mod faults;
mod fences;
mod gate;
mod heartbeats;
mod inputs;
mod nodes;
mod observations;
mod operate;
mod presence;
mod providers;
mod public;
mod reset;
mod schema;
mod serve;
mod sessions;
mod store;
mod support;
mod switching;
mod turns;
