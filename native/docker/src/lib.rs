//! Sandboxes as Docker containers (node-host §7).
//!
//! A sandbox is one container and two volumes, found by a name that is derived from the sandbox's reference, and owned
//! by nobody but the reference on their labels. The provider
//!
//! - never touches a resource before it saw all four ownership labels on it, and then names it by the engine's identity;
//! - never replays a mutation, never cleans up by itself, and never adopts volumes without their container;
//! - never cancels a creation, and never calls one settled before it definitely ended (decision 34);
//! - never puts a credential into an argument, an environment variable, a label or anything that inspection shows;
//! - never reports a command as done without the end of its output, all of its input written, and its exit code.
//!
//! Every call to the engine has its own connection and its own deadline, so an engine that hangs holds up nothing but
//! the calls that wait for it.

#![forbid(unsafe_code)]

mod bootstrap;
mod command;
mod configuration;
mod container;
mod create;
mod engine;
mod installation;
mod limits;
mod name;
mod observe;
mod probe;
mod process;
mod provider;
mod settlement;
mod stop;

pub use configuration::{Configuration, Refused, Resources, fingerprint};
pub use installation::{About, Image, Installation, InstallationError};
pub use provider::DockerProvider;
