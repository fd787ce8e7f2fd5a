//! What files of a release hold: looked at without following links, and hashed once for as long as they do not change.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use palisade_core::generation::recovery::{Damage, FileKind, Status};
use palisade_core::units::Digest;
use palisade_provider::content;

use crate::files::look::{self, Folder};

/// What stands where a file of a release belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing.
    Absent,
    /// A private file with this SHA-256 and size.
    File(Digest, u64),
    /// Something that is not a private file of ours with one name, reached without a link.
    Damaged(Damage),
}

/// What was hashed, and what the file was then.
#[derive(Debug, Default)]
pub(super) struct Contents {
    known: BTreeMap<PathBuf, (Version, Digest)>,
}

/// Changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl Contents {
    /// Looks at a file, and hashes it unless that was done before.
    pub(super) fn of(&mut self, path: &Path) -> Content {
        match self.look(path) {
            Ok(content) => content,
            Err(Errno::ENOENT) => Content::Absent,
            Err(Errno::ELOOP) => Content::Damaged(Damage::Link),
            Err(_) => Content::Damaged(Damage::Unreadable),
        }
    }

    fn look(&mut self, path: &Path) -> Result<Content, Errno> {
        let Some((file, status)) = open(path)? else { return Ok(Content::Absent) };
        if let Some(damage) = damage(&status) {
            return Ok(Content::Damaged(damage));
        }
        let version = Version::of(&file).map_err(errno)?;
        let digest = match self.known.get(path) {
            Some((known, digest)) if *known == version => *digest,
            Some(_) | None => content::digest(&file).map_err(errno)?,
        };
        self.known.insert(path.to_owned(), (version, digest));
        Ok(Content::File(digest, version.size))
    }
}

/// Whether anything stands there, whatever it is.
pub(super) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn open(path: &Path) -> Result<Option<(File, Status)>, Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    let folder = Folder::open(parent)?;
    let file = folder.read_file(name)?;
    let status = look::status(&file).map_err(errno)?;
    Ok(Some((file, status)))
}

/// Why the file is none of a release's.
fn damage(status: &Status) -> Option<Damage> {
    if status.kind != FileKind::File {
        Some(Damage::Kind)
    } else if !status.owned || status.mode & 0o7077 != 0 {
        Some(Damage::Access)
    } else if status.links != 1 {
        Some(Damage::HardLink)
    } else {
        None
    }
}

impl Version {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function of a failed call")]
fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
