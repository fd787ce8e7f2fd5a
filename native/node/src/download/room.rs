//! Whether the disk has room: bytes and inodes, before the first byte and while bytes come (field report E33).

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::DownloadError;
use crate::limits::{DISK_RESERVE_BYTES, DISK_RESERVE_INODES};

/// What an unprivileged process may still use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) bytes: u64,
    /// `u64::MAX` on a file system that does not count them.
    pub(crate) inodes: u64,
}

/// Asks a file system for its room.
pub(crate) trait Disk: Send + Sync {
    fn free(&self, folder: &Path) -> io::Result<Free>;
}

/// The real file system.
pub(crate) struct Statvfs;

impl Disk for Statvfs {
    fn free(&self, folder: &Path) -> io::Result<Free> {
        let stat = statvfs(folder)?;
        let bytes = stat.blocks_available().saturating_mul(stat.fragment_size());
        let inodes = if stat.files() == 0 { u64::MAX } else { stat.files_available() };
        Ok(Free { bytes, inodes })
    }
}

/// What one file will still take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Need {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// Refuses unless all needs together leave the reserve free. No need is no question.
pub(crate) fn require(
    disk: &dyn Disk,
    folder: &Path,
    needs: impl IntoIterator<Item = Need>,
) -> Result<(), DownloadError> {
    let needs = needs.into_iter().reduce(|sum, need| Need {
        bytes: sum.bytes.saturating_add(need.bytes),
        inodes: sum.inodes.saturating_add(need.inodes),
    });
    let Some(need) = needs else { return Ok(()) };
    let free = disk.free(folder).map_err(DownloadError::disk(folder))?;
    let needed_bytes = need.bytes.saturating_add(DISK_RESERVE_BYTES);
    let needed_inodes = need.inodes.saturating_add(DISK_RESERVE_INODES);
    if free.bytes >= needed_bytes && free.inodes >= needed_inodes {
        return Ok(());
    }
    Err(DownloadError::NoRoom {
        path: folder.to_owned(),
        needed_bytes,
        free_bytes: free.bytes,
        needed_inodes,
        free_inodes: free.inodes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Free);

    impl Disk for Fixed {
        fn free(&self, _: &Path) -> io::Result<Free> {
            Ok(self.0)
        }
    }

    /// E33. One byte or one inode too few is refused, and the message has all four numbers.
    #[test]
    fn room_is_exact_in_bytes_and_inodes() {
        let needs = [Need { bytes: 10, inodes: 2 }, Need { bytes: 20, inodes: 2 }];
        let exact = Free { bytes: 30 + DISK_RESERVE_BYTES, inodes: 4 + DISK_RESERVE_INODES };
        let check = |free| require(&Fixed(free), Path::new("/data"), needs);
        check(exact).unwrap();
        check(Free { inodes: u64::MAX, ..exact }).unwrap();
        for short in [Free { bytes: exact.bytes - 1, ..exact }, Free { inodes: exact.inodes - 1, ..exact }] {
            let refused = check(short).unwrap_err();
            let text = refused.to_string();
            for number in [exact.bytes, exact.inodes, short.bytes, short.inodes] {
                assert!(text.contains(&number.to_string()), "{text}");
            }
            assert!(!refused.is_transfer());
        }
        require(&Fixed(Free { bytes: 0, inodes: 0 }), Path::new("/data"), []).unwrap();
    }

    #[test]
    fn a_real_file_system_says_what_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let free = Statvfs.free(folder.path()).unwrap();
        assert!(free.bytes > 0 && free.inodes > 0);
        assert!(Statvfs.free(&folder.path().join("absent")).is_err());
    }
}
