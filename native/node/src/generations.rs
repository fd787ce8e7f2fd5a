//! The generations of this host: their records and leases, their preparation, repair and collection (node-host §1-4).
//!
//! The core decides each step from facts; what stands here looks, takes one step, and looks again. Whatever is changed on
//! disk is changed through [`crate::files::disk::Disk`].

mod layout;
mod lease;
mod records;
#[cfg(test)]
pub(crate) mod testing;

pub use lease::{Helper, HelperLease, LeaseUnavailable};
pub(crate) use records::{GENERATIONS, Records, RecordsError};
