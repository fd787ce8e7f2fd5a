//! The file of an embedded database, which nobody may take away while Core runs.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Result, StoreError};

/// The file that was opened. What is written to a file that has lost its name is lost with the process, and SQLite does
/// not notice.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    opened: Option<(u64, u64)>,
}

impl DatabaseFile {
    /// The file at `path`, which is open by now.
    pub(super) fn opened(path: PathBuf) -> Self {
        Self { opened: identity(&path), path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file that was opened still has its name.
    ///
    /// # Errors
    /// [`StoreError::Replaced`] when another file has it, or none.
    pub(super) fn check(&self) -> Result<()> {
        if self.opened.is_some() && identity(&self.path) == self.opened {
            return Ok(());
        }
        Err(StoreError::Replaced { path: self.path.clone() })
    }
}

/// Device and inode.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}
