//! What to do after a crash, from the facts found on disk (node-host §2, §3).
//!
//! A run of the preparer **looks**, is told one step or a refusal, takes the step, and looks again. A crash between any
//! two of these loses nothing: the next run looks at what is there and continues, or refuses and names what it found.
//!
//! ```text
//!  prepare   LockInstallation ► [CreateDirectory ► CreateLease ► RecordLease | LockLease] ► AskCore
//!              ► WritePlan ► Fetch… ► WriteManifest ► MakeHome ► StartImport ► Import ► Publish ► ClearJournal ► Load
//!  collect   LockInstallation ► LockLease ► Begin ► RemoveImage ► CompleteNative ► RemoveRelease ► RemoveOriginals
//!              ► WriteDropped ► Done
//!  start     discover ► Skip | Enter(recovery or collecting) | Construct
//! ```
//!
//! - Never is a generation prepared that has a drop record, or whose collection began
//!   (`no_facts_lead_to_a_preparation_that_must_not_be`, `a_dropped_generation_is_never_prepared_again_at_any_crash_point`).
//! - Never does anything damaged, foreign or unreadable lead to a deletion; it leads to a refusal that names it
//!   (`no_facts_lead_to_a_deletion_that_must_not_be`).
//! - Never is a lease without its record adopted, and never is a lost one made again
//!   (`no_facts_admit_a_helper_that_must_not_be`, `a_lost_lease_is_not_made_again`).
//! - Never does a start begin empty: without a sound `provider.json` there is no start
//!   (`no_facts_start_a_node_that_is_empty_or_damaged`).
//!
//! Reading is as strict as deciding: [`Look`] turns file status and bytes into an [`Entry`], and [`Owner`] and [`Plan`]
//! write what is read.

mod claim;
mod collection;
mod discovery;
mod facts;
mod look;
mod name;
mod preparation;
mod records;
mod refusal;
mod sharing;
#[cfg(test)]
mod tests;

pub use claim::admit_helper;
pub use collection::{CollectStep, collect};
pub use discovery::{Construction, Local, Refused, Root, Start, discover, local};
pub use facts::{
    Authority, Claim, Collecting, Collection, Damage, Difference, Entry, Executable, Files, Home, Image, Inventory,
    Journals, Lease, Lock, Native, Originals, Preparation, Preparing, Release, Sandboxes, Surroundings,
};
pub use look::{FileKind, Look, Status};
pub use name::{IllegalName, Name};
pub use preparation::{PrepareStep, prepare};
pub use records::{Expected, Looks, Owner, Plan, Recorded};
pub use refusal::{Cause, Object, Refusal, Remedy};
pub use sharing::{Retained, Shared, reusable, shared};
