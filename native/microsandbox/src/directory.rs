//! Directories that nobody else can use, reached without a link.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// Something stands where a private directory must be.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}; it is left as it is", .path.display())]
pub struct Unsafe {
    /// Where.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Opens a real directory of ours of mode exactly 0700 that no link leads to.
pub(crate) fn open(path: &Path) -> Result<File, Unsafe> {
    let refused = |reason: String| Unsafe { path: path.to_owned(), reason };
    let failed = |error: io::Error| refused(error.to_string());
    if path.canonicalize().map_err(failed)? != path {
        return Err(refused("expected a path without links".to_owned()));
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(refused("expected a directory of this process's account".to_owned()));
    }
    if metadata.mode() & 0o7777 != 0o700 {
        return Err(refused(format!("expected mode 0700, found {:04o}", metadata.mode() & 0o7777)));
    }
    Ok(opened)
}

/// Makes the directory when nothing has its name, and opens it as [`open`] does.
pub(crate) fn ensure(path: &Path) -> Result<File, Unsafe> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            let made = File::open(path.parent().unwrap_or(Path::new("/"))).and_then(|parent| parent.sync_all());
            made.map_err(|error| Unsafe { path: path.to_owned(), reason: error.to_string() })?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Unsafe { path: path.to_owned(), reason: error.to_string() }),
    }
    open(path)
}
