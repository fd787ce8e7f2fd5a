//! Core: the HTTP API, the hub sockets, the store and the owner loop.
//!
//! # Invariants
//!
//! - Core never stores a key, a token or a credential, only SHA-256 digests of them.
//! - A lifecycle write never commits under another owner epoch than the one it was decided under
//!   ([`store::Tx::fence`]).
//! - Locks are never taken in another order than Session row, deployment row, node rows.
//! - No answer is given before the transaction it speaks of has committed.
//!
//! # How the parts meet
//!
//! [`Core`] is the one value every route, socket and loop shares: the [`store::Store`], the Core keys, the public
//! URL, the current [`Execution`] lease, the [`hub::Hub`], and [`Core::wake_owner`], which tells the owner loop that
//! there is something to do. [`http::router`] puts the routes together; [`serve()`] runs everything. [`requests`] names
//! each request, [`health`] and [`metrics`] tell watchers how the process is, and [`CoreKeys`] follows the stored keys.

#![forbid(unsafe_code)]

pub mod api;
mod confirm;
mod core;
mod execution;
pub mod health;
pub mod http;
pub mod hub;
mod keys;
pub mod limits;
pub mod metrics;
pub mod openapi;
pub mod owner;
pub mod payload;
pub mod requests;
mod seal;
mod serve;
mod service;
pub mod store;

pub use self::core::Core;
pub use confirm::{Confirm, Confirmation};
pub use execution::{Execution, Lease};
pub use keys::{CoreKeys, KeysError, credential_id};
pub use seal::{InvalidSealKey, SealKey, Unopenable};
pub use serve::{Options, ServeError, Server, serve};
