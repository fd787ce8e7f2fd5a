//! The host's side of microsandbox with real processes: scripts in the place of the helper and of `msb`.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "a test writes throw-away files")]

mod construction;
mod helper;
mod lab;
mod msb;
mod probe;
mod real;
