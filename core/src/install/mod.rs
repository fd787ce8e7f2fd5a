//! What an operator types on a host to make it a node, to see what its node does, and to make it none again
//! (node-host §6.3).
//!
//! The console and the command line show the same text, because both take it from here.

mod command;
mod quote;

pub use command::{Install, Refused, Uninstall, install, log, uninstall};
