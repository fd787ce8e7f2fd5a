//! Files from a folder on this host: the same checks, and no request.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;
use palisade_core::distribution::manifest::Artifact;
use tokio_util::sync::CancellationToken;

use super::DownloadError;
use super::part::{Part, Place};
use crate::files::FileError;
use crate::limits::COPY_BYTES;

/// Opens a regular file that is reached without any link.
pub(super) fn open(path: &Path) -> Result<File, DownloadError> {
    let unlinked = || FileError::expected(path, "a regular file, and no link on the way to it");
    if std::fs::canonicalize(path).map_err(DownloadError::disk(path))? != path {
        return Err(unlinked().into());
    }
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(DownloadError::disk(path))?;
    if file.metadata().map_err(DownloadError::disk(path))?.is_file() { Ok(file) } else { Err(unlinked().into()) }
}

/// Copies one file to its place, verified before it gets its name.
pub(super) fn copy(
    from: &Path,
    place: &Place,
    artifact: &Artifact,
    cancel: &CancellationToken,
) -> Result<(), DownloadError> {
    let mut source = open(from)?.take(artifact.size + 1);
    let mut part = Part::open(place, 0)?;
    part.begin(None)?;
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let read = source.read(&mut buffer).map_err(DownloadError::disk(from))?;
        if cancel.is_cancelled() {
            return part.discard().and(Err(DownloadError::Cancelled));
        }
        if read == 0 {
            break;
        }
        if let Err(error) = part.append(&buffer[..read]) {
            return Err(part.release(error));
        }
    }
    if part.len() == artifact.size && part.digest() == artifact.sha256 {
        return part.publish();
    }
    part.discard().and(Err(DownloadError::Mismatch(artifact.filename.clone())))
}
