//! Opening the database and bringing its schema up to date.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;

use sqlx::any::{Any, AnyConnectOptions};
use sqlx::{AnyPool, ConnectOptions as _, Connection as _, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};

use super::dialect::{Dialect, OwnerLock, lock_directory, private_file};
use super::file::DatabaseFile;
use super::heartbeats::Heartbeats;
use super::{OpenError, Result, Tx, guards};
use crate::limits::LARGE_WRITE_BYTES;
use crate::metrics::StoreTimes;

pub(super) static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Name of the SQLite database in the data directory.
pub(super) const FILE_NAME: &str = "palisade.db";

/// Where the store is.
#[derive(Clone)]
pub enum Location {
    /// SQLite in `palisade.db` below this directory, which is created when it is missing.
    Directory(PathBuf),
    /// PostgreSQL at this URL. It may carry a password and is never shown.
    Url(String),
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(path) => f.debug_tuple("Directory").field(path).finish(),
            Self::Url(_) => f.write_str("Url"),
        }
    }
}

/// A handle on the database; clones share it.
#[derive(Clone)]
pub struct Store {
    /// For transactions that write.
    pool: AnyPool,
    /// For transactions that only read; the same where the database is a server.
    readers: AnyPool,
    options: AnyConnectOptions,
    dialect: Dialect,
    /// The one writer of SQLite takes turns here, in order, instead of spinning on the file's lock.
    writer: Arc<Mutex<()>>,
    /// Whoever writes waits here first, without a connection: however many requests come at once, the others find a
    /// connection, and what must not wait has only a few of them before it.
    crowd: Arc<Semaphore>,
    /// Large writes take turns here first: nobody ever has more than one of them before him.
    large: Arc<Mutex<()>>,
    /// What connections ask, until there is a transaction for it.
    pub(super) heartbeats: Arc<Heartbeats>,
    public_url: Arc<str>,
    times: StoreTimes,
    /// The embedded database.
    file: Option<Arc<DatabaseFile>>,
    _directory: Option<Arc<File>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database for a Core. An empty one gets its schema; one with another schema than that of this version is
    /// refused, because an upgrade cannot be undone: [`super::migrate`] makes it.
    pub async fn open(location: &Location) -> Result<Self, OpenError> {
        let store = Self::reach(location).await?;
        store.schema().await?.usable()?;
        store.upgrade().await?;
        Ok(store)
    }

    /// Opens the database as the only process that works in it, whatever its schema is.
    pub(super) async fn reach(location: &Location) -> Result<Self, OpenError> {
        sqlx::any::install_default_drivers();
        match location {
            Location::Directory(directory) => {
                make_directory(directory)?;
                let lock = lock_directory(directory)?;
                private_file(directory, FILE_NAME)?;
                let file = directory.join(FILE_NAME);
                let url = format!("sqlite://{}?mode=rwc", encode_path(&file));
                let lock = Some(Arc::new(lock));
                let store = Self::connect(&url, Dialect::Sqlite).await.map_err(|error| error.of_file(&file))?;
                Ok(Self { _directory: lock, ..store.of_file(file) })
            }
            Location::Url(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Self::connect(url, Dialect::Postgres).await
            }
            Location::Url(_) => Err(OpenError::Url),
        }
    }

    /// The same store, read and written under this public URL (part of [`palisade_core::deployment::Deployment`]).
    #[must_use]
    pub fn under(self, public_url: &str) -> Self {
        Self { public_url: public_url.into(), ..self }
    }

    /// The same store, which is known to be this file.
    pub(super) fn of_file(self, file: PathBuf) -> Self {
        Self { file: Some(Arc::new(DatabaseFile::opened(file))), ..self }
    }

    pub(super) async fn connect(url: &str, dialect: Dialect) -> Result<Self, OpenError> {
        let options = AnyConnectOptions::from_str(url).map_err(|_| OpenError::Url)?.disable_statement_logging();
        dialect.check(&options).await?;
        let (pool, readers) = dialect.pools(&options).await?;
        Ok(Self {
            pool,
            readers,
            options,
            dialect,
            writer: Arc::default(),
            crowd: Arc::new(Semaphore::new(dialect.writers())),
            large: Arc::default(),
            heartbeats: Arc::default(),
            public_url: "".into(),
            times: StoreTimes::default(),
            file: None,
            _directory: None,
        })
    }

    /// Begins a transaction that may write, when its turn has come.
    pub async fn write(&self) -> Result<Tx> {
        let timed = self.times.steps.begin("write");
        let turn = Arc::clone(&self.crowd).acquire_owned().await.expect("the crowd is never closed");
        let begun = self.begin_write().await;
        timed.end_with(&begun);
        Ok(begun?.of_crowd(turn))
    }

    /// [`Store::write`] for what nodes report: it goes before the requests that wait, because a late heartbeat takes a node
    /// out of service.
    pub(super) async fn write_ahead(&self) -> Result<Tx> {
        let timed = self.times.steps.begin("write");
        let begun = self.begin_write().await;
        timed.end_with(&begun);
        begun
    }

    async fn begin_write(&self) -> Result<Tx> {
        let turn = match self.dialect {
            Dialect::Sqlite => Some(Arc::clone(&self.writer).lock_owned().await),
            Dialect::Postgres => None,
        };
        self.check_file()?;
        let inner = begin(&self.pool, self.dialect.begin_write()).await?;
        Ok(self.tx(inner, turn))
    }

    fn tx(&self, inner: Transaction<'static, Any>, turn: Option<OwnedMutexGuard<()>>) -> Tx {
        Tx::new(inner, self.dialect, Arc::clone(&self.public_url), turn, self.times.steps.clone())
            .in_file(self.file.clone())
    }

    /// Finds out whether a transaction can write; changes nothing. It waits for its turn: a writer that does not end shows.
    pub(crate) async fn try_write(&self) -> Result<()> {
        let mut tx = self.begin_write().await?;
        sqlx::query(self.dialect.try_write()).execute(&mut *tx).await?;
        tx.commit().await
    }

    fn check_file(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.check())
    }

    /// [`Store::write`] for a transaction that stores this many bytes. Of those from [`LARGE_WRITE_BYTES`] on, one runs at
    /// a time, on either database: a burst of them must not take the turns or the connections from heartbeats.
    pub async fn write_bytes(&self, bytes: usize) -> Result<Tx> {
        if bytes < LARGE_WRITE_BYTES {
            return self.write().await;
        }
        let turn = Arc::clone(&self.large).lock_owned().await;
        Ok(self.write().await?.holding(turn))
    }

    /// Begins a transaction that sees one snapshot and writes nothing. End it by dropping it.
    pub async fn read(&self) -> Result<Tx> {
        let timed = self.times.steps.begin("read");
        self.check_file()?;
        let inner = begin(&self.readers, self.dialect.begin_read()).await;
        timed.end_with(&inner);
        Ok(self.tx(inner?, None))
    }

    pub(super) const fn pool(&self) -> &AnyPool {
        &self.pool
    }

    pub(super) const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Applies what is missing of the schema, and sets its guards.
    pub(super) async fn upgrade(&self) -> Result<(), OpenError> {
        migrate(self.dialect, &self.options).await.map_err(|error| self.names_its_file(error))
    }

    /// The same error; what an embedded database says of itself names no file.
    pub(super) fn names_its_file(&self, error: OpenError) -> OpenError {
        match &self.file {
            Some(file) => error.of_file(file.path()),
            None => error,
        }
    }

    /// How long the store takes.
    pub(crate) const fn times(&self) -> &StoreTimes {
        &self.times
    }

    /// Open connections to the database, and how many of them nobody uses.
    pub(crate) fn connections(&self) -> (u32, usize) {
        let (open, idle) = (self.pool.size(), self.pool.num_idle());
        match self.dialect {
            Dialect::Sqlite => (open + self.readers.size(), idle + self.readers.num_idle()),
            Dialect::Postgres => (open, idle),
        }
    }

    /// Tries to become the one owner of the installation; `None` while another process is.
    pub async fn acquire_ownership(&self) -> Result<Option<OwnerLock>> {
        OwnerLock::acquire(self.dialect, &self.options).await
    }

    /// Closes every connection. Open transactions are rolled back.
    pub async fn close(&self) {
        tokio::join!(self.pool.close(), self.readers.close());
    }
}

/// Begins in a task of its own: a caller that goes away while it waits must not leave a transaction behind on a connection
/// that others get.
async fn begin(pool: &AnyPool, statement: &'static str) -> sqlx::Result<Transaction<'static, Any>> {
    let pool = pool.clone();
    tokio::spawn(async move { pool.begin_with(statement).await }).await.unwrap_or(Err(sqlx::Error::PoolClosed))
}

/// On a connection of its own: a migration of much data may take longer than any request.
async fn migrate(dialect: Dialect, options: &AnyConnectOptions) -> Result<(), OpenError> {
    let mut connection = options.connect().await?;
    MIGRATIONS.run(&mut connection).await?;
    guards::set(dialect, &mut connection).await?;
    Ok(connection.close().await?)
}

pub(super) fn make_directory(directory: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| OpenError::Directory { path: directory.to_owned(), source })
}

/// Escapes what would end the path of a URL.
pub(super) fn encode_path(path: &Path) -> String {
    let mut encoded = String::new();
    for character in path.to_string_lossy().chars() {
        match character {
            '%' => encoded.push_str("%25"),
            '?' => encoded.push_str("%3F"),
            '#' => encoded.push_str("%23"),
            _ => encoded.push(character),
        }
    }
    encoded
}
