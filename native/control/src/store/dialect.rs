//! The whole difference between the two databases.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyConnection, AnyPool, ConnectOptions as _, Connection as _, Executor as _};

use super::{OpenError, StoreError};
use crate::limits::{
    BUSY_WAIT, CONNECTION_PROOF_WAIT, CONNECTION_WAIT, CONNECTIONS_MAX, LOCK_WAIT, OWNER_SILENCE_MAX,
    SQLITE_CHECKPOINT_PAGES, SQLITE_READERS_MAX, STATEMENT_WAIT, TRANSACTION_SILENCE_MAX, WRITERS_MAX,
};

/// Which database serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// One file; one writer at a time.
    Sqlite,
    /// A server; rows are locked one by one.
    Postgres,
}

/// Rows that are locked by their id: the Session before the deployment, the node after it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lockable {
    Session,
    Node,
}

/// Name of the file whose lock says that a Core works in a data directory.
pub(super) const LOCK_NAME: &str = "palisade.lock";
/// Class of the advisory lock of an installation's one owner: "pali" in ASCII.
pub(super) const OWNER_LOCK_CLASS: i32 = 0x7061_6c69;

impl Dialect {
    /// Transactions of requests and of the owner that write at a time. Most of them lock the row of the deployment, so that
    /// more would only wait for each other.
    pub(super) const fn writers(self) -> usize {
        match self {
            Self::Sqlite => 1,
            Self::Postgres => WRITERS_MAX,
        }
    }

    /// Begins a transaction that will write.
    pub(super) const fn begin_write(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN IMMEDIATE",
            Self::Postgres => "BEGIN",
        }
    }

    /// Begins a transaction that sees one snapshot and writes nothing.
    pub(super) const fn begin_read(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN DEFERRED",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Locks one row until the transaction ends; `None` where `BEGIN` has locked everything.
    pub(super) const fn lock(self, row: Lockable) -> Option<&'static str> {
        match (self, row) {
            (Self::Sqlite, Lockable::Session | Lockable::Node) => None,
            (Self::Postgres, Lockable::Session) => Some("SELECT id FROM sessions WHERE id = $1 FOR UPDATE"),
            (Self::Postgres, Lockable::Node) => Some("SELECT id FROM runtime_nodes WHERE id = $1 FOR UPDATE"),
        }
    }

    /// Ends a query that locks the row it reads: one round trip, because everybody else waits for this row.
    pub(super) const fn locking(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// [`Dialect::locking`] for many rows, always in the same order. A row that somebody else holds is left out.
    pub(super) const fn locking_free_ones(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " ORDER BY id FOR UPDATE SKIP LOCKED",
        }
    }

    /// Milliseconds since the epoch at this moment, not at the transaction's begin.
    pub(super) const fn now(self) -> &'static str {
        match self {
            Self::Sqlite => "SELECT CAST(unixepoch('subsec') * 1000 AS BIGINT)",
            Self::Postgres => "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// Changes nothing, and fails with the reason where nothing can be changed.
    pub(super) const fn try_write(self) -> &'static str {
        match self {
            // The page of the header is written again as it is: no schema of ours gives this number another value.
            Self::Sqlite => "PRAGMA user_version = 0",
            // A server without room ends by itself; one that follows another, or was told to refuse writes, answers.
            Self::Postgres => "UPDATE runtime_deployment SET owner_epoch = owner_epoch WHERE FALSE",
        }
    }

    /// Finds the record of the migrations, if there is one.
    pub(super) const fn has_history(self) -> &'static str {
        match self {
            Self::Sqlite => "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '_sqlx_migrations'",
            Self::Postgres => "SELECT 1 WHERE to_regclass('_sqlx_migrations') IS NOT NULL",
        }
    }

    /// Opens one connection and closes it: a pool would try again and again, and hide the reason.
    pub(super) async fn check(self, options: &AnyConnectOptions) -> sqlx::Result<()> {
        let check = async {
            let mut connection = options.connect().await?;
            match self {
                Self::Sqlite => prepare_sqlite(&mut connection).await?,
                Self::Postgres => {}
            }
            connection.close().await
        };
        tokio::time::timeout(CONNECTION_WAIT, check).await.unwrap_or_else(|_| Err(silent()))
    }

    /// Connections of one process: those that write, and those that only read.
    ///
    /// SQLite has one writer at a time, and only a connection that writes alone keeps what it read: every other one reads
    /// its pages again after each commit.
    pub(super) async fn pools(self, options: &AnyConnectOptions) -> sqlx::Result<(AnyPool, AnyPool)> {
        match self {
            Self::Postgres => {
                let pool = self.pool(CONNECTIONS_MAX).connect_with(options.clone()).await?;
                Ok((pool.clone(), pool))
            }
            Self::Sqlite => {
                let writer = self.pool(1).connect_with(options.clone()).await?;
                Ok((writer, self.pool(SQLITE_READERS_MAX).connect_lazy_with(options.clone())))
            }
        }
    }

    fn pool(self, connections: u32) -> AnyPoolOptions {
        let pool = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(CONNECTION_WAIT)
            .test_before_acquire(false)
            .before_acquire(|connection, _| Box::pin(usable(connection)));
        match self {
            // A request that was given up in the middle may leave a connection that never answers again: without an end
            // of the wait its place in the pool would be lost.
            Self::Postgres => pool
                .after_connect(|connection, _| Box::pin(prepare_postgres(connection)))
                .after_release(|connection, _| Box::pin(answers(connection))),
            Self::Sqlite => pool.after_connect(|connection, _| Box::pin(prepare_sqlite(connection))),
        }
    }
}

/// Whether an idle connection may serve once more; an error when it is dead. One that hangs must not use up the time of
/// whoever waits, because others of the pool, or a new one, may answer.
async fn usable(connection: &mut AnyConnection) -> sqlx::Result<bool> {
    let answered = tokio::time::timeout(CONNECTION_PROOF_WAIT, connection.ping()).await;
    answered.map_err(|_| silent())??;
    // SQLite ends a transaction by itself when the disk is full, and the driver does not notice: such a connection
    // would refuse to begin another one for ever.
    Ok(!connection.is_in_transaction())
}

fn silent() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database did not answer"))
}

/// Whether a connection that comes back still answers.
async fn answers(connection: &mut AnyConnection) -> sqlx::Result<bool> {
    tokio::time::timeout(CONNECTION_WAIT, connection.ping()).await.map_err(|_| silent())?.map(|()| true)
}

/// Nobody waits for ever: not for a statement, not for a lock, and not for the end of a transaction whose process is gone
/// without a word, which would hold its locks against the next owner until the operating system gives it up.
async fn prepare_postgres(connection: &mut AnyConnection) -> sqlx::Result<()> {
    let limits = format!(
        "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}",
        STATEMENT_WAIT.as_millis(),
        LOCK_WAIT.as_millis(),
        TRANSACTION_SILENCE_MAX.as_millis(),
    );
    connection.execute(sqlx::AssertSqlSafe(limits)).await.map(drop)
}

async fn prepare_sqlite(connection: &mut AnyConnection) -> sqlx::Result<()> {
    let wait = BUSY_WAIT.as_millis();
    // WAL lets readers go on beside the writer; FULL makes every commit survive a power cut.
    let pragmas = format!(
        "PRAGMA busy_timeout = {wait}; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
         PRAGMA wal_autocheckpoint = {SQLITE_CHECKPOINT_PAGES}"
    );
    connection.execute(sqlx::AssertSqlSafe(pragmas)).await.map(drop)
}

/// The proof that this process is the one owner. Dropping it gives ownership up.
#[derive(Debug)]
pub enum OwnerLock {
    /// The data directory's lock file, held since the store was opened.
    Directory,
    /// A connection that holds the advisory lock for as long as it lives.
    Connection(Box<AnyConnection>),
}

impl OwnerLock {
    /// Tries to become the owner; `None` while somebody else is.
    pub(super) async fn acquire(dialect: Dialect, options: &AnyConnectOptions) -> Result<Option<Self>, StoreError> {
        match dialect {
            Dialect::Sqlite => Ok(Some(Self::Directory)),
            Dialect::Postgres => {
                let mut connection = options.clone().disable_statement_logging().connect().await?;
                // The table names the installation: another schema of the same database holds another one.
                let held: bool = sqlx::query_scalar(
                    "SELECT pg_try_advisory_lock($1, CAST('runtime_deployment'::regclass::oid AS INT))",
                )
                .bind(OWNER_LOCK_CLASS)
                .fetch_one(&mut connection)
                .await?;
                // An owner that cannot be heard any more is none, also where no packet tells that it is gone.
                let silence = i64::try_from(OWNER_SILENCE_MAX.as_millis()).unwrap_or(i64::MAX).to_string();
                let bounded = "SELECT set_config(name, $1, false) FROM pg_settings WHERE name = 'idle_session_timeout'";
                sqlx::query(bounded).bind(silence).fetch_optional(&mut connection).await?;
                Ok(held.then(|| Self::Connection(Box::new(connection))))
            }
        }
    }

    /// Proves that the lock is still held. An error means that it is lost for good.
    pub async fn prove(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Directory => Ok(()),
            Self::Connection(connection) => Ok(connection.ping().await?),
        }
    }
}

/// Takes the data directory for this process, until the returned file is closed.
///
/// What Core keeps is for its own user only, also in a directory that others may read: SQLite gives its other files
/// the mode of the database.
pub(super) fn lock_directory(directory: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Directory { path: directory.to_owned(), source };
    let file = private_file(directory, LOCK_NAME)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse { path: directory.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Opens a file of the data directory, made when it is missing.
pub(super) fn private_file(directory: &Path, name: &str) -> Result<File, OpenError> {
    let mut options = File::options();
    options.create(true).write(true).truncate(false).mode(0o600);
    options.open(directory.join(name)).map_err(|source| OpenError::Directory { path: directory.to_owned(), source })
}
