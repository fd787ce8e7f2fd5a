//! Where Core keeps everything: SQLite in a directory, or PostgreSQL by URL.
//!
//! One set of queries and one migration history serve both. Everything that differs stands in `dialect`: how a
//! database is opened, how a transaction begins, how a row is locked, how the database's clock is read, and how the
//! one owner is told apart.
//!
//! # Use
//!
//! ```text
//! let mut tx = store.write().await?;          // or store.read(): a snapshot that changes nothing
//! tx.lock_session(session).await?;            // locks in this order, each only where it is needed
//! let deployment = tx.fence(epoch).await?;    // lock_deployment() where no lease is needed
//! tx.lock_node(node).await?;
//! let now = tx.now().await?;                  // the database's clock, after the locks
//! sqlx::query("…").bind(…).execute(&mut *tx).await?;
//! tx.commit().await?;                         // dropped without it: rolled back
//! ```
//!
//! `write` waits for its turn, in order and without a connection: a few write transactions of a process run at a time, on
//! SQLite one. A task that holds one must therefore never ask for a second, and must do no network work while it holds
//! one. What nodes report has a way of its own and goes before the requests that wait.

pub mod allocations;
mod audit;
mod backup;
mod beside;
pub mod commands;
pub mod compute;
pub mod core_keys;
mod crash;
pub mod deployment;
mod dialect;
pub mod enrollment;
mod error;
mod file;
mod fleet;
mod gather;
mod generations;
mod guards;
mod heartbeats;
pub mod held;
mod history;
mod nodes;
mod open;
mod pages;
mod presence;
pub mod projects;
pub mod reset;
mod row;
mod schema;
pub mod sessions;
pub mod turns;
mod tx;
pub mod work;

pub use audit::Source;
pub use backup::{Backup, BackupError, backup, restore};
pub use beside::Ownership;
pub use dialect::OwnerLock;
pub use error::{OpenError, StoreError};
pub use open::{Location, Store};
pub use palisade_core::admin::time::Timestamp;
pub use presence::{Authenticated, Refused};
pub use row::Columns;
pub use schema::{Migrated, Schema, Step, migrate};
pub use tx::Tx;

/// Result of everything the store does.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;
