//! The shapes of Core's administrative answers (deployment §1, §9.2).
//!
//! One type serialises in Core and is read strictly by a client, so that the two cannot drift: unknown, repeated and
//! absent members are refused at every depth, and [`deployment::Deployment::validate`] and its siblings check what a
//! JSON type cannot say.

pub mod archive;
pub mod client;
pub mod console;
pub mod deployment;
pub mod discovery;
pub mod error;
mod expected;
pub mod node;
pub mod time;

use serde::Deserialize;

use crate::strict;

/// An answer that is not what Core may send. Its text never holds response content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer breaks a rule: {0}")]
pub struct Invalid(pub &'static str);

/// Checks what a type alone cannot say.
pub trait Validate {
    /// The first broken rule.
    fn validate(&self) -> Result<(), Invalid>;
}

/// Reads an answer strictly and checks its rules.
pub fn read<'de, T: Deserialize<'de> + Validate>(bytes: &'de [u8]) -> Result<T, Invalid> {
    let value: T = strict::object(bytes).map_err(|_| Invalid("members and JSON types"))?;
    value.validate()?;
    Ok(value)
}

/// `Err` with the rule's name unless it holds.
pub(crate) fn rule(holds: bool, name: &'static str) -> Result<(), Invalid> {
    if holds { Ok(()) } else { Err(Invalid(name)) }
}
