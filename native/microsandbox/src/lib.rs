//! The effects of the microsandbox provider (node-host §8): its helper processes, its `msb` program, its store and its
//! readiness. Every judgement about what these say is made in [`palisade_core::microsandbox`].
//!
//! - Never is a helper killed: it ends when its work has, and gives its generation's lease back by ending.
//! - Never does anybody else inherit that lease, and never is it unlocked.
//! - Never does a program of microsandbox get more of the node's environment than a list of names.
//! - Never is a program that does not answer waited for without end, except for a helper, which nobody need wait for.
//! - Never does a probe repair anything.
//!
//! Sandboxes themselves are not here yet: nothing in this crate is a provider.

#![forbid(unsafe_code)]

mod directory;
mod helper;
mod host;
mod limits;
mod lock;
mod msb;
mod probe;
mod programs;

pub use directory::Unsafe;
pub use helper::{Helper, Helpers, LeaseUnavailable, Leases};
pub use host::{Configuration, MicrosandboxHost, Refused};
pub use lock::{AllocationLock, Locked, NotLocked};
pub use msb::{Image, Msb, MsbError};
pub use probe::Machine;
