//! The Runtime image without compression, for a provider that cannot read it compressed.

use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use palisade_core::distribution::catalogue::{IMAGE, IMAGE_UNPACKED};
use tokio_util::sync::CancellationToken;

use super::artifact::blocking;
use super::part::{Part, Place};
use super::{DownloadError, Wanted};
use crate::files::disk::System;
use crate::limits::COPY_BYTES;

/// Unpacks the verified archive below `root` into `images/runtime.tar`, verified as well.
///
/// What an interrupted call left is cleared first; the archive stays. A file that is there and differs is a conflict.
///
/// # Errors
/// [`DownloadError::Mismatch`] when the bytes are not those that the release declares; nothing is kept of them.
pub async fn expand(image: &Wanted, root: &Path, cancel: &CancellationToken) -> Result<(), DownloadError> {
    let (image, root, cancel) = (image.clone(), root.to_owned(), cancel.clone());
    blocking(move || expand_now(&image, &root, &cancel)).await
}

fn expand_now(image: &Wanted, root: &Path, cancel: &CancellationToken) -> Result<(), DownloadError> {
    let artifact = image.artifact();
    let (Some(size), Some(sha256)) = (artifact.unpacked_size, artifact.unpacked_sha256) else {
        return Err(DownloadError::Mismatch(image.path().to_owned()));
    };
    let (archive, place) = (Place::new(root, IMAGE), Place::new(root, IMAGE_UNPACKED));
    place.clear(&mut System)?;
    if place.holds(size, sha256)? {
        return Ok(());
    }
    let Some(packed) = archive.open_whole(artifact.size, artifact.sha256)? else {
        return Err(DownloadError::Disk { path: archive.target(), error: std::io::ErrorKind::NotFound.into() });
    };
    let mut unpacked = GzDecoder::new(std::io::BufReader::with_capacity(COPY_BYTES, packed)).take(size + 1);
    let mut part = Part::open(&place, 0)?;
    part.begin(None)?;
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        if cancel.is_cancelled() {
            return part.discard().and(Err(DownloadError::Cancelled));
        }
        match unpacked.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                if let Err(error) = part.append(&buffer[..read]) {
                    return Err(part.release(error));
                }
            }
            // The archive has the declared bytes, so it was packed wrongly.
            Err(_) => return part.discard().and(Err(DownloadError::Mismatch(IMAGE_UNPACKED.to_owned()))),
        }
    }
    if part.len() == size && part.digest() == sha256 {
        return part.publish();
    }
    part.discard().and(Err(DownloadError::Mismatch(IMAGE_UNPACKED.to_owned())))
}
