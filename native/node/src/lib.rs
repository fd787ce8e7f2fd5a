//! The node program: who this node is, what its host measures, and how it works for Core.
//!
//! - The identity is durable before anything is sent with it, and is never replaced: not when it is corrupt, not when it
//!   belongs to another backend.
//! - A start knows every generation of its host, or names the path of what it cannot believe.
//! - The state directory has one owner at a time, by a lock held for the whole life of the process.
//! - A measurement that failed is unknown, never zero and never an old value.
//! - Only Core's own 401 ends a node for good.
//!
//! [`run`] is the program on a real host. [`Connections`] is the same loop over any [`Host`], which is how it runs in a
//! simulated network.

#![forbid(unsafe_code)]

#[cfg(test)]
mod chapter;
mod clock;
mod configuration;
mod connection;
mod dial;
mod discovery;
pub mod doctor;
pub mod download;
mod enrollment;
mod files;
mod generations;
mod health;
mod host;
mod identity;
mod limits;
mod origin;
mod register;
mod run;
mod status;
#[cfg(test)]
mod testing;
mod worker;

pub use configuration::ConfigurationError;
pub use connection::{Connections, End};
pub use dial::{DialError, Dialer, Internet, Network, Refusal, Stream};
pub use discovery::DiscoveryError;
pub use enrollment::EnrollmentError;
pub use files::FileError;
pub use generations::RecordsError;
pub use generations::{
    Action, Assigned, GenerationLease, HeldGeneration, HelperLease, Unreadable, generations, perform,
};
pub use host::{Dial, Generations, Host, Sampler, Work};
pub use identity::{Identity, IdentityError};
pub use origin::Origin;
pub use register::{Register, RegisterError, register};
pub use run::{ExitStatus, Run, RunError, run};
pub use status::{Status, StatusError, status};
