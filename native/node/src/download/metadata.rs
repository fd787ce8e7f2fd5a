//! The small files of a release, each believed only when the one before it says so (node-host §5.3).

use std::io::Read as _;
use std::path::Path;

use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::Commit;
use palisade_core::distribution::answer::{Asked, Head, Verdict, judge};
use palisade_core::distribution::catalogue::{Catalogue, Role};
use palisade_core::distribution::manifest::{Artifact, Manifest};
use palisade_core::distribution::route::{File, Route};
use palisade_core::distribution::sums::Sums;
use palisade_core::limits::METADATA_MAX_BYTES;
use palisade_core::units::Digest;

use super::request::describe;
use super::{DownloadError, Downloader, Source};

/// The verified metadata of one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    manifest: Manifest,
}

/// One file that a node needs, and where it will stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The release it is of.
    pub(super) commit: Commit,
    /// The logical path, below the root of the release on this host.
    pub(super) path: String,
    pub(super) role: Role,
    pub(super) artifact: Artifact,
    /// Room that an import of it takes besides.
    pub(super) import_bytes: u64,
}

impl Release {
    /// What the release declares.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The files of these roles that a provider's nodes need.
    ///
    /// # Errors
    /// [`DownloadError::Incomplete`] when the release was built without the provider, or the provider has no nodes.
    pub fn wanted(&self, provider: &str, roles: &[Role]) -> Result<Vec<Wanted>, DownloadError> {
        let found = self.manifest.wanted(provider, &Catalogue::bundled())?;
        let of_role = found.into_iter().filter(|(declared, _)| roles.contains(&declared.role));
        Ok(of_role
            .map(|(declared, artifact)| Wanted {
                commit: self.manifest.source_commit.clone(),
                path: declared.path.to_owned(),
                role: declared.role,
                artifact: artifact.clone(),
                import_bytes: import_bytes(provider, artifact),
            })
            .collect())
    }

    /// Refuses a release that is not exactly the Runtime that the specification selects.
    pub fn require(&self, specification: &Specification) -> Result<(), DownloadError> {
        self.manifest.differs_from(specification).map_or(Ok(()), |member| Err(DownloadError::OtherRuntime(member)))
    }
}

impl Wanted {
    /// The logical path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its declared bytes.
    #[must_use]
    pub const fn artifact(&self) -> &Artifact {
        &self.artifact
    }

    /// The file as the server and a bundle know it.
    pub(super) fn file(&self) -> File<'_> {
        match self.role {
            Role::Policy => File::Seccomp,
            Role::Node | Role::Runtime | Role::Image => File::Artifact(&self.artifact.filename),
        }
    }

    /// Where it is served, whatever release is offered now.
    pub(super) fn route(&self) -> Route<'_> {
        Route { release: Some(self.commit.clone()), file: self.file() }
    }
}

/// The unpacked image; once more for a store on the same disk.
fn import_bytes(provider: &str, artifact: &Artifact) -> u64 {
    let unpacked = artifact.unpacked_size.unwrap_or(0);
    if provider == "microsandbox" { unpacked.saturating_mul(2) } else { unpacked }
}

/// `SHA256SUMS`, then a manifest that it lists, then what the manifest says of itself.
pub(super) async fn release(downloader: &Downloader, commit: Option<&Commit>) -> Result<Release, DownloadError> {
    let commit = match (commit, &downloader.source) {
        (Some(commit), _) => Some(commit.clone()),
        // What is offered now may change between two requests; after the first one it is a name like any other.
        (None, Source::Console(_)) => Some(manifest(&get(downloader, None, File::Manifest).await?)?.source_commit),
        (None, Source::Bundle(_)) => None,
    };
    let sums = get(downloader, commit.as_ref(), File::Sums).await?;
    let sums = Sums::parse(&sums).map_err(|problem| unusable(File::Sums, problem))?;
    let bytes = get(downloader, commit.as_ref(), File::Manifest).await?;
    if sums.of(&File::Manifest.path()) != Some(Digest::of(&bytes)) {
        return Err(DownloadError::Mismatch(Downloader::name(File::Manifest)));
    }
    let manifest = manifest(&bytes)?;
    if let Some(asked) = commit.filter(|asked| *asked != manifest.source_commit) {
        return Err(DownloadError::OtherRelease { asked, found: manifest.source_commit });
    }
    let policy = manifest.artifacts.get(&*File::Seccomp.path()).map(|artifact| artifact.sha256);
    if policy.is_none() || policy != sums.of(&File::Seccomp.path()) {
        return Err(DownloadError::Mismatch(Downloader::name(File::Seccomp)));
    }
    Ok(Release { manifest })
}

/// The bytes of a policy file, which is as small as metadata and fetched like it.
pub(super) async fn policy(downloader: &Downloader, wanted: &Wanted) -> Result<Vec<u8>, DownloadError> {
    let bytes = get(downloader, Some(&wanted.commit), wanted.file()).await?;
    let same = bytes.len() as u64 == wanted.artifact.size && Digest::of(&bytes) == wanted.artifact.sha256;
    if same { Ok(bytes) } else { Err(DownloadError::Mismatch(wanted.path.clone())) }
}

fn manifest(bytes: &[u8]) -> Result<Manifest, DownloadError> {
    Manifest::parse(bytes).map_err(|problem| unusable(File::Manifest, problem))
}

fn unusable(file: File<'_>, problem: impl std::fmt::Display) -> DownloadError {
    DownloadError::Metadata { file: Downloader::name(file), problem: problem.to_string() }
}

async fn get(downloader: &Downloader, release: Option<&Commit>, file: File<'_>) -> Result<Vec<u8>, DownloadError> {
    let origin = match &downloader.source {
        Source::Bundle(folder) => return read(folder, file),
        Source::Console(origin) => origin,
    };
    let address = origin.join(&Route { release: release.cloned(), file }.to_string());
    let mut pauses = downloader.pace.pauses.iter();
    loop {
        let failed = match once(downloader, &address, file).await? {
            Ok(bytes) => return Ok(bytes),
            Err(failed) => failed,
        };
        let Some(pause) = pauses.next() else { return Err(failed) };
        tokio::time::sleep(*pause).await;
    }
}

/// One request. The inner error is one that time may mend.
async fn once(
    downloader: &Downloader,
    address: &str,
    file: File<'_>,
) -> Result<Result<Vec<u8>, DownloadError>, DownloadError> {
    let name = || Downloader::name(file);
    let unreachable = |error: &reqwest::Error| DownloadError::Unreachable { file: name(), what: describe(error) };
    let mut response = match downloader.requests.metadata(address).await {
        Ok(response) => response,
        Err(error) => return Ok(Err(unreachable(&error))),
    };
    let status = response.status().as_u16();
    let head = Head { status, length: response.content_length(), range: None };
    match judge(Asked { from: 0, size: METADATA_MAX_BYTES as u64 }, head) {
        Verdict::Restart => {}
        Verdict::Retry => return Ok(Err(DownloadError::Status { file: name(), status })),
        Verdict::Follow => return Err(DownloadError::Redirect { file: name(), allowed: "is never allowed for it" }),
        Verdict::Foreign => return Err(DownloadError::TooLong(name())),
        Verdict::Continue | Verdict::Discard | Verdict::Refused => {
            return Err(DownloadError::Status { file: name(), status });
        }
    }
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(piece)) if bytes.len() + piece.len() <= METADATA_MAX_BYTES => bytes.extend_from_slice(&piece),
            Ok(Some(_)) => return Err(DownloadError::TooLong(name())),
            Ok(None) => return Ok(Ok(bytes)),
            Err(error) => return Ok(Err(unreachable(&error))),
        }
    }
}

/// A small file of a bundle.
fn read(folder: &Path, file: File<'_>) -> Result<Vec<u8>, DownloadError> {
    let path = folder.join(file.path().as_ref());
    let mut bytes = Vec::new();
    let opened = super::bundle::open(&path)?;
    opened.take(METADATA_MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(DownloadError::disk(&path))?;
    if bytes.len() > METADATA_MAX_BYTES { Err(DownloadError::TooLong(Downloader::name(file))) } else { Ok(bytes) }
}
