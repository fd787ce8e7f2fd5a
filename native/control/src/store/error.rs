//! What can go wrong in the store.

use std::path::{Path, PathBuf};

/// Why the store could not be opened. Never holds the database URL, which may carry a password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be made or entered.
    #[error("cannot use the data directory {path}: {source}; name a directory this user may write")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another Core process works in the data directory.
    #[error(
        "the data directory {path} is in use by another core process; stop that one first or name another directory"
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// There is no database yet.
    #[error("there is no database in {path}; `palisade core migrate` makes one")]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// The database has an older schema.
    #[error(
        "the database has schema version {found}, and this version of core needs {needed}; stop every core that works on \
         it, make a backup, and run `palisade core migrate`"
    )]
    Older {
        /// Its version.
        found: i64,
        /// The one that is needed.
        needed: i64,
    },
    /// A newer version of Core wrote the database.
    #[error(
        "the database has schema version {found}, and this version of core knows {needed} at most; run the version of \
         core that wrote it, or restore a backup"
    )]
    Newer {
        /// Its version.
        found: i64,
        /// The newest one that is known.
        needed: i64,
    },
    /// Another process owns execution on this database.
    #[error("a running core owns this database; stop every core that works on it first")]
    Owned,
    /// Nobody can say who owns the database.
    #[error("cannot find out who owns this database: {0}")]
    Ownership(StoreError),
    /// The URL names neither PostgreSQL nor anything else that is served.
    #[error("the database url is not understood; expected postgres://user:password@host/database")]
    Url,
    /// What stands where the embedded database should be is none, or cannot be read or written.
    #[error(
        "cannot open the database {path}: {source}; if it is damaged, move it away and restore a backup with \
         `palisade core restore`"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// What the database said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database did not answer, or refused.
    #[error("cannot open the database: {0}")]
    Database(#[from] sqlx::Error),
    /// The schema could not be brought up to date.
    #[error("cannot bring the database schema up to date: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
}

impl OpenError {
    /// The same, of an embedded database: what it says of itself names no file.
    pub(super) fn of_file(self, path: &Path) -> Self {
        let path = path.to_owned();
        match self {
            Self::Database(source) => Self::File { path, source: source.into() },
            Self::Migration(source) => Self::File { path, source: source.into() },
            other => other,
        }
    }
}

/// Why a read or write of the store did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database failed, and nothing was changed.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
    /// The database failed while it committed: what was to be changed may have been changed.
    #[error("the database did not confirm a commit: {0}")]
    Unconfirmed(#[source] sqlx::Error),
    /// The file of the embedded database was taken away under this process: nothing was changed.
    #[error(
        "the database file {path} was removed or replaced while core had it open; stop core, put that file back or \
         restore a backup with `palisade core restore`, and start core again"
    )]
    Replaced {
        /// Where it was.
        path: PathBuf,
    },
    /// The caller is no longer the owner: nothing was changed.
    #[error("the execution lease is lost")]
    Fenced,
    /// A stored value breaks an invariant of the schema.
    #[error("column {column} holds a value that was never written by core")]
    Corrupt {
        /// Which column.
        column: &'static str,
    },
}
