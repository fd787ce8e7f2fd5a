//! A release folder, read back and verified.

use std::fs::{File as Handle, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use palisade_core::distribution::catalogue::{IMAGE, NODE, SECCOMP};
use palisade_core::distribution::manifest::{Artifact, Manifest, RUNTIME_IMAGE, Runtime};
use palisade_core::distribution::route::{ARTIFACTS, File};
use palisade_core::distribution::sums::Sums;
use palisade_core::limits::METADATA_MAX_BYTES;
use palisade_core::units::Digest;
use sha2::{Digest as _, Sha256};

use crate::{Error, proof};

/// A release folder whose metadata agree with each other.
#[derive(Debug, Clone)]
pub struct Release {
    folder: PathBuf,
    manifest: Manifest,
    sums: Sums,
}

impl Release {
    /// Opens a release folder and verifies its four fixed files against each other.
    ///
    /// # Errors
    /// A missing, malformed or changed file.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = |file: File<'_>| folder.join(&*file.path());
        let listed = read_small(&path(File::Sums))?;
        let sums = Sums::parse(&listed).map_err(|problem| Error::unusable(&path(File::Sums), &problem.to_string()))?;
        let bytes = read_small(&path(File::Manifest))?;
        let manifest = Manifest::parse(&bytes);
        let manifest = manifest.map_err(|problem| Error::unusable(&path(File::Manifest), &problem.to_string()))?;
        let profile = read_small(&path(File::Seccomp))?;
        let (size, installer) = measure(&mut open(&path(File::Installer))?).map_err(Error::file(folder))?;
        let declared = &manifest.artifacts[NODE];
        let agree =
            sums == Sums::new([
                (&*File::Manifest.path(), Digest::of(&bytes)),
                (&*File::Installer.path(), installer),
                (&*File::Seccomp.path(), Digest::of(&profile)),
            ]) && manifest.artifacts[SECCOMP].sha256 == Digest::of(&profile)
                && (declared.size, declared.sha256) == (size, installer);
        if !agree {
            return Err(Error::unusable(
                &path(File::Sums),
                "does not list the files beside it: build the release again",
            ));
        }
        Ok(Self { folder: folder.to_owned(), manifest, sums })
    }

    /// Verifies every declared file, and proves both identities of the image from its archive once more.
    ///
    /// # Errors
    /// The first file that is missing or differs.
    pub fn verify(&self) -> Result<(), Error> {
        for artifact in self.manifest.artifacts.values() {
            let path = self.artifact(artifact);
            let found = measure(&mut open(&path)?).map_err(Error::file(&path))?;
            if found != (artifact.size, artifact.sha256) {
                return Err(changed(&path));
            }
        }
        let image = &self.manifest.artifacts[IMAGE];
        let path = self.artifact(image);
        let archive = flate2::read::GzDecoder::new(std::io::BufReader::new(open(&path)?));
        let proven = proof::prove(archive).map_err(|problem| Error::unusable(&path, &problem))?;
        let agree = Some(&proven.image_id) == self.manifest.images.get(RUNTIME_IMAGE)
            && Some(&proven.manifest_digest) == self.manifest.image_manifest_digests.get(RUNTIME_IMAGE)
            && Some(proven.unpacked_sha256) == image.unpacked_sha256
            && Some(proven.unpacked_size) == image.unpacked_size;
        if agree { Ok(()) } else { Err(changed(&path)) }
    }

    /// What the release declares.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What a deployment selects to run this release.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        self.manifest.runtime()
    }

    /// The system-call filter that nodes give to sandboxes.
    #[must_use]
    pub fn seccomp(&self) -> PathBuf {
        self.folder.join(SECCOMP)
    }

    /// The compressed image archive, verified against the manifest.
    ///
    /// # Errors
    /// A missing or changed file.
    pub fn image_archive(&self) -> Result<Vec<u8>, Error> {
        let declared = &self.manifest.artifacts[IMAGE];
        let path = self.artifact(declared);
        let bytes = std::fs::read(&path).map_err(Error::file(&path))?;
        if bytes.len() as u64 != declared.size || Digest::of(&bytes) != declared.sha256 {
            return Err(changed(&path));
        }
        Ok(bytes)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What one of the fixed files must be.
    pub(crate) fn digest(&self, file: File<'_>) -> Digest {
        match file {
            File::Sums => Digest::of(&self.sums.to_bytes()),
            File::Manifest | File::Installer | File::Seccomp | File::Artifact(_) => {
                self.sums.of(&file.path()).expect("an opened release lists its fixed files")
            }
        }
    }

    fn artifact(&self, artifact: &Artifact) -> PathBuf {
        self.folder.join(ARTIFACTS).join(&artifact.filename)
    }
}

/// Permissions of a file of a release.
pub(crate) const fn mode(file: File<'_>) -> u32 {
    match file {
        File::Installer => 0o755,
        File::Manifest | File::Sums | File::Seccomp | File::Artifact(_) => 0o644,
    }
}

/// Opens a regular file, not by a link.
pub(crate) fn open(path: &Path) -> Result<Handle, Error> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(Error::file(path))?;
    if file.metadata().map_err(Error::file(path))?.is_file() {
        Ok(file)
    } else {
        Err(Error::unusable(path, "is no regular file"))
    }
}

/// Size and digest of everything that is left to read.
pub(crate) fn measure(from: &mut dyn Read) -> std::io::Result<(u64, Digest)> {
    const PIECE_BYTES: usize = 256 * 1024;
    let (mut hash, mut length, mut buffer) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok((length, Digest::from_bytes(hash.finalize().into())));
        }
        hash.update(&buffer[..read]);
        length += read as u64;
    }
}

fn read_small(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    open(path)?.take(METADATA_MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(Error::file(path))?;
    if bytes.len() > METADATA_MAX_BYTES { Err(Error::unusable(path, "is larger than 1 MiB")) } else { Ok(bytes) }
}

fn changed(path: &Path) -> Error {
    Error::unusable(path, "differs from the manifest: build the release again")
}
