//! The lock of one allocation: two helpers never work with the same sandbox at once (node-host §8.4).

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use palisade_core::microsandbox::name::Names;

use crate::directory::{self, Unsafe};
use crate::limits::LOCK_INTERVAL;

/// The folder of the locks in a store.
const FOLDER: &str = "oac-locks";

/// An allocation, locked by this process. It stays locked beyond any deadline, until this is dropped: whoever holds it
/// drops it when the native call has settled, not when somebody stops waiting.
#[derive(Debug)]
pub struct AllocationLock {
    _file: File,
}

/// What came of waiting for a lock.
pub type Locked = Result<AllocationLock, NotLocked>;

/// Why an allocation was not locked.
#[derive(Debug, thiserror::Error)]
pub enum NotLocked {
    /// Somebody else still had it when the deadline came.
    #[error("another operation still works with the sandbox")]
    Busy,
    /// The folder of locks is not ours alone.
    #[error("the locks of the store cannot be used: {0}")]
    Folder(#[from] Unsafe),
    /// The lock file is not a private file of ours with one name.
    #[error("the lock {0} is not a private file with one name; it is left as it is")]
    File(String),
    /// The lock file could not be opened or locked.
    #[error("the lock {0} cannot be used: {1}")]
    System(String, io::Error),
}

impl AllocationLock {
    /// Waits for the lock of an allocation in a store until `deadline`. The file is made once and never removed.
    ///
    /// # Errors
    /// [`NotLocked::Busy`] after the deadline; everything that is not exactly as it must be, at once.
    pub async fn wait(store: &Path, names: &Names, deadline: Instant) -> Locked {
        let name = names.lock();
        let file = open(store, &name)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::Error(error)) => return Err(NotLocked::System(name, error)),
                Err(TryLockError::WouldBlock) => {}
            }
            let now = tokio::time::Instant::now();
            if now >= deadline.into() {
                return Err(NotLocked::Busy);
            }
            tokio::time::sleep_until((now + LOCK_INTERVAL).min(deadline.into())).await;
        }
    }
}

fn open(store: &Path, name: &str) -> Result<File, NotLocked> {
    directory::open(store)?;
    let folder = directory::ensure(&store.join(FOLDER))?;
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let failed = |error: io::Error| NotLocked::System(name.to_owned(), error);
    let opened = openat(&folder, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|error| failed(error.into()))?;
    let file = File::from(opened);
    let found = file.metadata().map_err(failed)?;
    let ours = found.is_file() && found.uid() == nix::unistd::geteuid().as_raw();
    if ours && found.mode() & 0o7777 == 0o600 && found.nlink() == 1 {
        Ok(file)
    } else {
        Err(NotLocked::File(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::Duration;

    use palisade_core::units::Id;
    use palisade_core::wire::payload::Reference;
    use rstest::rstest;
    use tempfile::TempDir;

    use super::*;

    fn names(allocation: u8) -> Names {
        let id = |byte| Id::from_random([byte; 16]);
        Names::of(id(1), Reference { tenant: id(2), environment: id(3), allocation: id(allocation) })
    }

    fn store() -> TempDir {
        let private = std::fs::Permissions::from_mode(0o700);
        tempfile::Builder::new().permissions(private).tempdir().unwrap()
    }

    async fn wait(store: &TempDir, allocation: u8, time: Duration) -> Locked {
        AllocationLock::wait(store.path(), &names(allocation), (tokio::time::Instant::now() + time).into_std()).await
    }

    /// H 180. Whoever holds the lock holds it beyond its own deadline and everybody else's, until it settles; then the
    /// next one has it within one interval.
    #[tokio::test(start_paused = true)]
    async fn a_lock_outlives_deadlines_until_it_is_settled() {
        let store = store();
        let held = wait(&store, 4, Duration::from_secs(1)).await.unwrap();
        let began = tokio::time::Instant::now();
        assert!(matches!(wait(&store, 4, Duration::from_secs(5)).await, Err(NotLocked::Busy)));
        assert!(began.elapsed() >= Duration::from_secs(5), "it was waited for until the deadline");
        assert!(matches!(wait(&store, 4, Duration::ZERO).await, Err(NotLocked::Busy)));
        assert!(wait(&store, 5, Duration::ZERO).await.is_ok(), "another sandbox has another lock");
        let (waiting, ()) = tokio::join!(wait(&store, 4, Duration::from_secs(60)), async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            drop(held);
        });
        assert!(waiting.is_ok());
        let left = store.path().join(FOLDER).join(names(4).lock());
        drop(waiting);
        assert_eq!(left.metadata().unwrap().mode() & 0o7777, 0o600, "the file stays");
    }

    /// H 181. A link in the place of the folder leads nowhere, and neither does one in the place of the store.
    #[tokio::test]
    async fn a_folder_of_locks_behind_a_link_is_refused() {
        let (store, elsewhere) = (store(), tempfile::tempdir().unwrap());
        symlink(elsewhere.path(), store.path().join(FOLDER)).unwrap();
        assert!(matches!(wait(&store, 4, Duration::ZERO).await, Err(NotLocked::Folder(_))));
        assert_eq!(elsewhere.path().read_dir().unwrap().count(), 0, "nothing was made behind the link");
        let link = elsewhere.path().join("store");
        std::fs::remove_file(store.path().join(FOLDER)).unwrap();
        symlink(store.path(), &link).unwrap();
        let linked = AllocationLock::wait(&link, &names(4), Instant::now()).await;
        assert!(matches!(linked, Err(NotLocked::Folder(_))));
        assert_eq!(store.path().read_dir().unwrap().count(), 0);
    }

    /// H 181. Folder and file must be private; what is not is refused and left as it is.
    #[rstest]
    #[case::folder_open_to_others("", 0o750)]
    #[case::file_open_to_others("file", 0o640)]
    #[tokio::test]
    async fn only_private_locks_are_used(#[case] part: &str, #[case] mode: u32) {
        let store = store();
        drop(wait(&store, 4, Duration::ZERO).await.unwrap());
        let folder = store.path().join(FOLDER);
        let path = if part.is_empty() { folder } else { folder.join(names(4).lock()) };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let refused = wait(&store, 4, Duration::ZERO).await.unwrap_err();
        assert!(matches!(refused, NotLocked::Folder(_) | NotLocked::File(_)), "{refused}");
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, mode);
    }

    /// H 181. A link, a second name or a pipe in the place of the file is no lock.
    #[tokio::test]
    async fn a_look_alike_of_a_lock_is_refused() {
        let store = store();
        drop(wait(&store, 4, Duration::ZERO).await.unwrap());
        let path = store.path().join(FOLDER).join(names(4).lock());
        let other = store.path().join("other");
        std::fs::hard_link(&path, &other).unwrap();
        assert!(matches!(wait(&store, 4, Duration::ZERO).await, Err(NotLocked::File(_))));
        std::fs::remove_file(&path).unwrap();
        symlink(&other, &path).unwrap();
        assert!(matches!(wait(&store, 4, Duration::ZERO).await, Err(NotLocked::System(..))));
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        assert!(matches!(wait(&store, 4, Duration::ZERO).await, Err(NotLocked::File(_))));
    }
}
