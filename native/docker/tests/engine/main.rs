//! The Docker provider in front of a real engine, and of a scripted one for what a real engine cannot be made to show.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails there")]

mod commands;
mod fake;
mod lab;
mod lifecycle;
mod release;
mod scripted;
