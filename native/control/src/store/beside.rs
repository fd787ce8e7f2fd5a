//! Looking into the database of a Core that may be running.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::Serialize;
use sqlx::Row as _;

use super::dialect::{Dialect, LOCK_NAME};
use super::open::{FILE_NAME, encode_path};
use super::{Location, OpenError, Result, Store};

/// Who owns execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "by")]
pub enum Ownership {
    /// A running Core; how the system names it.
    Held(String),
    /// Nobody: no Core runs on this database.
    Free,
}

impl Store {
    /// Opens a database that exists, beside the Core that may work in it. Nothing is made, migrated or locked.
    pub async fn beside(location: &Location) -> Result<Self, OpenError> {
        sqlx::any::install_default_drivers();
        match location {
            Location::Directory(directory) => {
                let file = directory.join(FILE_NAME);
                match std::fs::metadata(&file) {
                    // An empty file is what a Core makes before it makes anything else.
                    Ok(file) if file.len() == 0 => return Err(OpenError::Missing { path: directory.clone() }),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        return Err(OpenError::Missing { path: directory.clone() });
                    }
                    Err(source) => return Err(OpenError::Directory { path: directory.clone(), source }),
                }
                let url = format!("sqlite://{}?mode=rw", encode_path(&file));
                let store = Self::connect(&url, Dialect::Sqlite).await.map_err(|error| error.of_file(&file))?;
                Ok(store.of_file(file))
            }
            Location::Url(_) => Self::reach(location).await,
        }
    }

    /// Who owns execution on this database, `directory` being where an embedded one is.
    pub async fn ownership(&self, location: &Location) -> Result<Ownership> {
        match location {
            Location::Directory(directory) => Ok(lock_holder(&directory.join(LOCK_NAME))),
            Location::Url(_) => self.advisory_holder().await,
        }
    }

    async fn advisory_holder(&self) -> Result<Ownership> {
        let query = "SELECT CAST(a.pid AS BIGINT) AS pid, COALESCE(host(a.client_addr), 'this host') AS host \
             FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted \
             AND l.classid = CAST($1 AS OID) AND l.objid = 'runtime_deployment'::regclass::oid";
        let row = sqlx::query(query).bind(super::dialect::OWNER_LOCK_CLASS).fetch_optional(self.pool()).await?;
        let Some(row) = row else { return Ok(Ownership::Free) };
        let (pid, host): (i64, String) = (row.try_get("pid")?, row.try_get("host")?);
        Ok(Ownership::Held(format!("the core that is connected from {host}, database process {pid}")))
    }
}

/// The kernel's list names the holder of a lock without taking it: a Core that starts just now must find it free.
fn lock_holder(lock: &Path) -> Ownership {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let inode = std::fs::metadata(lock).map(|file| file.ino()).ok();
    let holder = inode.and_then(|inode| locks.lines().find_map(|line| holder(line, inode)));
    holder.map_or(Ownership::Free, |pid| Ownership::Held(format!("process {pid} on this host")))
}

/// The process in a line such as `1: FLOCK  ADVISORY  WRITE 708 00:13:262 0 EOF`, when it is about this inode.
fn holder(line: &str, inode: u64) -> Option<&str> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, pid, file) = (words.next()?, words.nth(2)?, words.next()?);
    let own = file.rsplit(':').next()?.parse() == Ok(inode);
    (kind == "FLOCK" && own).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_kernels_list() {
        let line = "12: FLOCK  ADVISORY  WRITE 708 fd:01:1312345 0 EOF";
        assert_eq!(holder(line, 1_312_345), Some("708"));
        assert_eq!(holder(line, 12_345), None);
        assert_eq!(holder("12: POSIX  ADVISORY  WRITE 708 fd:01:1312345 0 EOF", 1_312_345), None);
        assert_eq!(holder("nonsense", 1), None);
    }

    /// A folder that cannot be entered is another finding than one without a database: the next step is not to make one.
    #[tokio::test]
    async fn a_folder_that_cannot_be_entered_is_told_from_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let told = |path: &Path| {
            let location = Location::Directory(path.to_owned());
            async move { Store::beside(&location).await.unwrap_err() }
        };
        assert!(matches!(told(folder.path()).await, OpenError::Missing { .. }));
        assert!(matches!(told(&folder.path().join("none")).await, OpenError::Missing { .. }));
        let file = tempfile::NamedTempFile::new_in(folder.path()).unwrap();
        assert!(matches!(told(file.path()).await, OpenError::Directory { .. }));
    }
}
