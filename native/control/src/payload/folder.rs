//! What a payload folder holds.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use palisade_core::distribution::catalogue::Catalogue;
use palisade_core::distribution::manifest::{Artifact, Manifest};
use palisade_core::distribution::route::{self, File as Fixed, Route};
use palisade_core::distribution::{Commit, Pointer};
use palisade_core::limits::{INSTALLER_MAX_BYTES, METADATA_MAX_BYTES, POINTER_MAX_BYTES};
use palisade_core::units::Digest;

/// A folder that `palisade release publish` fills; it need not exist yet.
#[derive(Debug, Clone)]
pub struct Payload(Arc<Path>);

/// What the folder offers now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The release.
    pub release: Commit,
    /// The installer, when there is one that a host would take.
    pub installer: Option<Digest>,
    /// Providers whose nodes find every file here or at the release's folder on the net, sorted.
    pub providers: Vec<&'static str>,
}

/// Where a file is.
pub(super) enum Found {
    Here(Stored),
    Elsewhere(String),
    Nowhere,
}

/// An open file of a release.
pub(super) struct Stored {
    pub(super) file: File,
    pub(super) size: u64,
    /// What names its version: the declared digest, while the size is the declared one.
    pub(super) sha256: Option<Digest>,
}

impl Payload {
    /// A payload in this folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into().into())
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// What it offers now; `None` without a release that can be served.
    pub async fn offer(&self) -> Option<Offer> {
        let this = self.clone();
        tokio::task::spawn_blocking(move || this.offer_now()).await.ok().flatten()
    }

    /// Says in the log what is offered, or that nothing is.
    pub(crate) async fn announce(&self) {
        let folder = self.0.display();
        if let Some(Offer { release, installer, providers }) = self.offer().await {
            tracing::info!(%folder, %release, installer = installer.is_some(), ?providers, "offers node files");
        } else {
            tracing::warn!(%folder, "offers no node files: palisade release publish puts a release there");
        }
    }

    pub(super) async fn find(&self, route: &Route<'_>) -> io::Result<Found> {
        let (this, release, path) = (self.clone(), route.release.clone(), route.file.path().into_owned());
        tokio::task::spawn_blocking(move || this.find_now(release.as_ref(), &path)).await?
    }

    fn offer_now(&self) -> Option<Offer> {
        let release = self.release(None).ok()??;
        let catalogue = Catalogue::bundled();
        let has_all = |provider: &&'static str| {
            let wanted = release.manifest.wanted(provider, &catalogue);
            wanted.is_ok_and(|wanted| wanted.into_iter().all(|(_, artifact)| release.has(artifact)))
        };
        let providers = catalogue.providers().filter(has_all).collect();
        let installer = release.installer();
        Some(Offer { release: release.manifest.source_commit, installer, providers })
    }

    fn find_now(&self, commit: Option<&Commit>, path: &str) -> io::Result<Found> {
        let Some(release) = self.release(commit)? else { return Ok(Found::Nowhere) };
        release.find(path)
    }

    /// The release of this commit, or the one that is offered now; `None` unless it says itself that it is that one.
    fn release(&self, commit: Option<&Commit>) -> io::Result<Option<Release>> {
        let retained = |commit: &Commit| self.0.join(route::RELEASES).join(commit.as_str());
        let (folder, commit) = match commit {
            Some(commit) => (retained(commit), Some(commit.clone())),
            None => match read(&self.0.join(route::POINTER), POINTER_MAX_BYTES)? {
                // Without a pointer the folder itself may be a release, as older ones are.
                Content::Absent => (self.0.to_path_buf(), None),
                Content::Unusable => return Ok(None),
                Content::Bytes(bytes) => match Pointer::parse(&bytes) {
                    Some(pointer) => (retained(&pointer.source_commit), Some(pointer.source_commit)),
                    None => return Ok(None),
                },
            },
        };
        let Content::Bytes(bytes) = read(&folder.join("manifest.json"), METADATA_MAX_BYTES)? else { return Ok(None) };
        let manifest = Manifest::parse(&bytes).ok();
        let own = manifest.filter(|manifest| commit.is_none_or(|commit| commit == manifest.source_commit));
        Ok(own.map(|manifest| Release { folder, manifest, manifest_sha256: Digest::of(&bytes) }))
    }
}

/// A release whose manifest is believed.
struct Release {
    folder: PathBuf,
    manifest: Manifest,
    manifest_sha256: Digest,
}

impl Release {
    fn find(&self, path: &str) -> io::Result<Found> {
        let name = path.strip_prefix(route::ARTIFACTS).and_then(|rest| rest.strip_prefix('/'));
        let declared = match name {
            Some(name) => match self.manifest.published(name, &Catalogue::bundled()) {
                Some(artifact) => Some(artifact),
                None => return Ok(Found::Nowhere),
            },
            None => self.manifest.artifacts.get(path),
        };
        match open(&self.folder.join(path))? {
            Opened::File(file, size) => {
                Ok(Found::Here(Stored { file, size, sha256: self.version(path, declared, size) }))
            }
            Opened::Absent if name.is_some() => {
                let remote = declared.and_then(|artifact| self.manifest.remote(artifact));
                Ok(remote.map_or(Found::Nowhere, Found::Elsewhere))
            }
            Opened::Absent | Opened::Unusable => Ok(Found::Nowhere),
        }
    }

    /// The name of a version is the digest that the release declares. Bytes that have been damaged keep it: whoever takes
    /// them compares the digest.
    fn version(&self, path: &str, declared: Option<&Artifact>, size: u64) -> Option<Digest> {
        if path == "manifest.json" {
            return Some(self.manifest_sha256);
        }
        declared.filter(|artifact| artifact.size == size).map(|artifact| artifact.sha256)
    }

    /// The digest of the installer; a host takes at most [`INSTALLER_MAX_BYTES`] of a regular file.
    fn installer(&self) -> Option<Digest> {
        match read(&self.folder.join(&*Fixed::Installer.path()), INSTALLER_MAX_BYTES) {
            Ok(Content::Bytes(bytes)) => Some(Digest::of(&bytes)),
            Ok(Content::Absent | Content::Unusable) | Err(_) => None,
        }
    }

    /// Whether nodes will find the file: here with its size, or elsewhere.
    fn has(&self, artifact: &Artifact) -> bool {
        match open(&self.folder.join(route::ARTIFACTS).join(&artifact.filename)) {
            Ok(Opened::File(_, size)) => size == artifact.size,
            Ok(Opened::Absent) => self.manifest.remote(artifact).is_some(),
            Ok(Opened::Unusable) | Err(_) => false,
        }
    }
}

enum Opened {
    File(File, u64),
    Absent,
    /// Something that is no regular file, or is reached by a link.
    Unusable,
}

fn open(path: &Path) -> io::Result<Opened> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    match opened {
        Ok(file) => {
            let metadata = file.metadata()?;
            Ok(if metadata.is_file() { Opened::File(file, metadata.len()) } else { Opened::Unusable })
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Opened::Absent)
        }
        Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => Ok(Opened::Unusable),
        Err(error) => Err(error),
    }
}

enum Content {
    Bytes(Vec<u8>),
    Absent,
    Unusable,
}

/// A small file; a larger one is not usable.
fn read(path: &Path, max: usize) -> io::Result<Content> {
    let file = match open(path)? {
        Opened::File(file, _) => file,
        Opened::Absent => return Ok(Content::Absent),
        Opened::Unusable => return Ok(Content::Unusable),
    };
    let mut bytes = Vec::new();
    file.take(max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() > max { Content::Unusable } else { Content::Bytes(bytes) })
}
