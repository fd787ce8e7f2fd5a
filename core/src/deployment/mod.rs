//! What an administrator selects and what follows from it (deployment §1–§6).
//!
//! Every function here is pure: it judges values or a snapshot that the caller read in one transaction, and returns
//! what is to be answered or done. No selection is ever accepted that has no digest, and no check contacts a provider.

pub mod contract;
pub mod specification;
