//! The generations of this host: their records and leases, their preparation, repair and collection (node-host §1-4).
//!
//! The core decides each step from facts; what stands here looks, takes one step, and looks again. Whatever is changed on
//! disk is changed through [`crate::files::disk::Disk`].

mod collect;
mod content;
#[cfg(test)]
mod crashes;
mod layout;
mod lease;
mod originals;
mod outside;
mod prepare;
mod records;
mod run;
mod setup;
mod store;
#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
pub(crate) use layout::Layout;
pub use lease::{Helper, HelperLease, LeaseUnavailable};
pub(crate) use records::{GENERATIONS, Records, RecordsError};
