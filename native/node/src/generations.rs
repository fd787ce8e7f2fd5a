//! The generations of this host: their records and leases, their preparation, repair and collection (node-host §1-4).
//!
//! The core decides each step from facts; what stands here looks, takes one step, and looks again. Whatever is changed on
//! disk is changed through [`crate::files::disk::Disk`].

mod collect;
mod content;
#[cfg(test)]
mod crashes;
mod engines;
mod enroll;
#[cfg(test)]
mod full;
mod host;
mod keeper;
mod layout;
mod lease;
#[cfg(test)]
mod lookalikes;
mod originals;
mod outside;
mod prepare;
mod preparer;
#[cfg(test)]
mod processes;
mod program;
mod records;
mod report;
mod run;
#[cfg(test)]
mod schedules;
mod setup;
mod store;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use enroll::enroll;
pub(crate) use keeper::{Build, Keeper};
pub(crate) use layout::Layout;
pub use lease::{GenerationLease, HelperLease};
pub(crate) use preparer::Preparer;
pub use program::{Action, Assigned, perform};
pub use records::RecordsError;
pub(crate) use records::{GENERATIONS, Records};
pub use report::{HeldGeneration, Unreadable, generations};
