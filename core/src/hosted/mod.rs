//! Hosted sessions: what the public API accepts and shows (deployment §1.14, §8.3, §11.2; decisions 22, 37, 40, 41).
//!
//! A Session owns one sandbox environment. A Turn carries one argument vector that the owner runs in it.

pub mod archive;
pub mod observation;
pub mod observations;
pub mod request;
pub mod view;
