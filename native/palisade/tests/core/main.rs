//! `palisade core` and its clients, with the real executable.

#![allow(clippy::unwrap_used, reason = "a test")]

mod config;
mod database;
mod examined;
mod host;
mod keys;
mod node;
mod root;
mod running;
mod secrets;
mod sessions;
mod support;
mod unwritable;
mod waiting;
