//! A consistent copy of an embedded database while Core works in it, and the way back.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::dialect::lock_directory;
use super::open::{FILE_NAME, make_directory};
use super::{Location, OpenError, Store};

/// A finished backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Backup {
    /// The file.
    pub path: PathBuf,
    /// Its size, in bytes.
    pub bytes: u64,
    /// The schema version of what is in it.
    pub schema: i64,
}

/// Why there is no backup. Nothing is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// PostgreSQL has its own program for this.
    #[error(
        "a PostgreSQL database is backed up with its own program: pg_dump --format=custom --file=FILE, and the database url \
         in the variable PGDATABASE"
    )]
    Postgres,
    /// A backup never replaces anything.
    #[error("{path} exists already; name a new file")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// What shall be restored is none.
    #[error("{path} is no backup of a core, or a damaged one; name a file that core backup made")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A restored backup never replaces a database, nor joins what is left of one.
    #[error("{path} is there already; move it away, or name another data folder")]
    Occupied {
        /// The database, or one of its files.
        path: PathBuf,
    },
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file cannot be made.
    #[error("cannot write the backup {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The database could not be copied.
    #[error("cannot copy the database: {0}; look whether there is room for it")]
    Copy(#[from] sqlx::Error),
    /// The copy does not hold together.
    #[error("the copy failed its check: {0}; the database itself may be damaged, so keep older backups")]
    Damaged(String),
}

/// Writes what the database holds at one moment into the new file `target`, mode 0600: checked, and durable when this
/// returns. A running Core goes on meanwhile.
pub async fn backup(location: &Location, target: &Path) -> Result<Backup, BackupError> {
    let Location::Directory(directory) = location else { return Err(BackupError::Postgres) };
    let failed = |source| BackupError::Write { path: target.to_owned(), source };
    if target.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { path: target.to_owned() });
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let schema = schema(location).await?;
    // A file without a name that anybody expects, until it is complete.
    let copy = tempfile::Builder::new().prefix(".palisade-backup-").tempfile_in(folder).map_err(failed)?;
    write(&directory.join(FILE_NAME), copy.path()).await?;
    check(copy.path()).await?;
    copy.as_file().sync_all().map_err(failed)?;
    let bytes = copy.as_file().metadata().map_err(failed)?.len();
    copy.persist_noclobber(target).map_err(|error| match error.error.kind() {
        std::io::ErrorKind::AlreadyExists => BackupError::Exists { path: target.to_owned() },
        _ => failed(error.error),
    })?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    Ok(Backup { path: target.to_owned(), bytes, schema })
}

async fn schema(location: &Location) -> Result<i64, BackupError> {
    let store = Store::beside(location).await?;
    let schema = store.schema().await?;
    store.close().await;
    Ok(schema.found)
}

/// Makes the copy `source` the database of `location`, which must not have one yet.
///
/// Nodes refuse an owner epoch below the highest that they saw, and Cores may have counted on after the copy was made: the
/// epoch is raised to the seconds since 1970, which grow faster than any Core claims epochs.
pub async fn restore(location: &Location, source: &Path) -> Result<Backup, BackupError> {
    let Location::Directory(directory) = location else { return Err(BackupError::Postgres) };
    let database = directory.join(FILE_NAME);
    let failed = |path: &Path, source| BackupError::Write { path: path.to_owned(), source };
    check(source).await.map_err(|_| BackupError::Foreign { path: source.to_owned() })?;
    make_directory(directory)?;
    let _lock = lock_directory(directory)?;
    // A log of changes that outlived its database would be applied to the next one.
    for end in ["", "-wal", "-shm", "-journal"] {
        let path = directory.join(format!("{FILE_NAME}{end}"));
        if path.symlink_metadata().is_ok() {
            return Err(BackupError::Occupied { path });
        }
    }
    let copy = tempfile::Builder::new().prefix(".palisade-restore-").tempfile_in(directory);
    let copy = copy.map_err(|error| failed(directory, error))?;
    std::fs::copy(source, copy.path()).map_err(|error| failed(copy.path(), error))?;
    raise_epoch(copy.path()).await?;
    copy.as_file().sync_all().map_err(|error| failed(copy.path(), error))?;
    let bytes = copy.as_file().metadata().map_err(|error| failed(copy.path(), error))?.len();
    copy.persist_noclobber(&database).map_err(|error| failed(&database, error.error))?;
    File::open(directory).and_then(|folder| folder.sync_all()).map_err(|error| failed(directory, error))?;
    Ok(Backup { schema: schema(location).await?, path: database, bytes })
}

async fn raise_epoch(copy: &Path) -> Result<(), BackupError> {
    let mut copy = open(copy, false).await?;
    sqlx::query("UPDATE runtime_deployment SET owner_epoch = max(owner_epoch, unixepoch())").execute(&mut copy).await?;
    Ok(copy.close().await?)
}

/// One read transaction sees one moment, and holds up no writer.
async fn write(database: &Path, copy: &Path) -> Result<(), BackupError> {
    let mut source = open(database, false).await?;
    let copy = copy.to_str().ok_or_else(|| BackupError::Damaged("its path is no text".to_owned()))?;
    sqlx::query("VACUUM INTO $1").bind(copy).execute(&mut source).await?;
    Ok(source.close().await?)
}

async fn check(copy: &Path) -> Result<(), BackupError> {
    let mut copy = open(copy, true).await?;
    let told: String = sqlx::query_scalar("PRAGMA integrity_check(1)").fetch_one(&mut copy).await?;
    if told != "ok" {
        return Err(BackupError::Damaged(told));
    }
    let orphan = sqlx::query("PRAGMA foreign_key_check").fetch_optional(&mut copy).await?;
    copy.close().await?;
    orphan.map_or(Ok(()), |_| Err(BackupError::Damaged("a row refers to one that is missing".to_owned())))
}

async fn open(file: &Path, read_only: bool) -> sqlx::Result<SqliteConnection> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(false).read_only(read_only);
    options.busy_timeout(crate::limits::BUSY_WAIT).disable_statement_logging().connect().await
}
