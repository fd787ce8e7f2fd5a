//! Why a download ended.

use std::path::PathBuf;

use palisade_core::deployment::contract::RuntimeMember;
use palisade_core::distribution::Commit;
use palisade_core::distribution::manifest::InvalidManifest;

use crate::files::FileError;

/// Why a file or a release could not be had. Texts hold no address, no answer of a server and no proxy.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// No HTTP client could be made on this host.
    #[error("no http client could be made: {0}")]
    Client(String),
    /// The server could not be asked, three times.
    #[error("{file}: {what}; check the network and proxies on the way to the source, then try again")]
    Unreachable {
        /// Which file.
        file: String,
        /// Which part failed.
        what: &'static str,
    },
    /// The server answered with a failure.
    #[error("{file}: the source answered with status {status}{}", hint(*status))]
    Status {
        /// Which file.
        file: String,
        /// The HTTP status.
        status: u16,
    },
    /// An answer that sends elsewhere, where nothing may.
    #[error("{file}: the source sends elsewhere, which {allowed}; check what answers between us")]
    Redirect {
        /// Which file.
        file: String,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// The transfer ended early, three times. The part is kept.
    #[error("{file}: interrupted after {kept} bytes, which are kept; try again to go on from there")]
    Interrupted {
        /// Which file.
        file: String,
        /// Bytes that are kept.
        kept: u64,
    },
    /// Hardly anything came for a minute. The part is kept.
    #[error("{file}: stalled after {kept} bytes, which are kept; try again when the network is better")]
    Stalled {
        /// Which file.
        file: String,
        /// Bytes that are kept.
        kept: u64,
    },
    /// More bytes than the manifest declares, or than metadata may have. Nothing is kept.
    #[error("{0}: the source sends more bytes than the file has; publish the release again")]
    TooLong(String),
    /// All bytes, and another SHA-256. Nothing is kept.
    #[error("{0}: the bytes are not those that the release declares; publish the release again")]
    Mismatch(String),
    /// A list of checksums or a manifest that cannot be believed.
    #[error("{file}: {problem}; publish the release again")]
    Metadata {
        /// Which file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The source has another release than the one that is selected.
    #[error("the source offers release {found}, not {asked}; publish release {asked} there")]
    OtherRelease {
        /// The selected one.
        asked: Commit,
        /// The one that is there.
        found: Commit,
    },
    /// The release is not the selected Runtime.
    #[error("the release differs from the selected Runtime in {}", .0.name())]
    OtherRuntime(RuntimeMember),
    /// The release does not declare what a node needs.
    #[error(transparent)]
    Incomplete(#[from] InvalidManifest),
    /// A file that is there is another one. It is not touched.
    #[error("{}: exists and differs from the release; it is not overwritten: inspect it, then move it away", .0.display())]
    Conflict(PathBuf),
    /// A path that cannot be used as it is.
    #[error(transparent)]
    File(#[from] FileError),
    /// The disk could not be read or written.
    #[error("{}: {error}", .path.display())]
    Disk {
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// Too little room, before or while bytes came. What the stopped file held is released.
    #[error(
        "{}: no room: {needed_bytes} bytes and {needed_inodes} inodes are needed, {free_bytes} and {free_inodes} are free; \
         free some and try again",
        .path.display()
    )]
    NoRoom {
        /// On which file system.
        path: PathBuf,
        /// Bytes that are still needed, with the reserve.
        needed_bytes: u64,
        /// Bytes that this account may still write.
        free_bytes: u64,
        /// Inodes that are still needed, with the reserve.
        needed_inodes: u64,
        /// Inodes that this account may still use.
        free_inodes: u64,
    },
    /// Nobody listens to the progress any more.
    #[error("the progress could not be reported: {0}")]
    Unwatched(std::io::Error),
    /// The caller wants nothing any more. The part is kept.
    #[error("the download was cancelled")]
    Cancelled,
}

impl DownloadError {
    /// Whether transfer, checksum or provenance failed: what a preparer ends with 65 for (node-host §3.1). Everything
    /// else lies on this host.
    #[must_use]
    pub const fn is_transfer(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Status { .. }
            | Self::Redirect { .. }
            | Self::Interrupted { .. }
            | Self::Stalled { .. }
            | Self::TooLong(_)
            | Self::Mismatch(_)
            | Self::Metadata { .. }
            | Self::OtherRelease { .. }
            | Self::OtherRuntime(_)
            | Self::Incomplete(_)
            | Self::Conflict(_) => true,
            Self::Client(_)
            | Self::File(_)
            | Self::Disk { .. }
            | Self::NoRoom { .. }
            | Self::Unwatched(_)
            | Self::Cancelled => false,
        }
    }

    /// Whether the part that was there is worth nothing any more, or must make room.
    pub(super) const fn spoils_the_part(&self) -> bool {
        matches!(self, Self::TooLong(_) | Self::Mismatch(_) | Self::NoRoom { .. } | Self::Disk { .. } | Self::File(_))
    }

    pub(super) fn disk(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Disk { path, error }
    }
}

const fn hint(status: u16) -> &'static str {
    match status {
        401 | 403 | 407 => "; something on the way asks for a sign-in, and releases need none",
        404 => "; publish the release there",
        _ => "",
    }
}
