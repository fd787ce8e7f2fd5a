//! Writing a release folder, and reading one back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use palisade_core::units::Digest;

use crate::archive::gzip;
use crate::image::Image;
use crate::manifest::{Artifact, IMAGE_PATH, ImageArtifact, Manifest, Microsandbox, PLATFORM, RUNTIME_IMAGE, Runtime};
use crate::source::Source;
use crate::{Error, SECCOMP_PROFILE};

/// The files and facts that a release is a function of.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// What the files were built from.
    pub source: Source,
    /// The static guest entry.
    pub guest: PathBuf,
    /// A static busybox.
    pub busybox: PathBuf,
    /// The node program: this executable.
    pub node_program: PathBuf,
}

/// A release folder.
#[derive(Debug, Clone)]
pub struct Release {
    folder: PathBuf,
    manifest: Manifest,
}

/// Builds a release into `folder`, which is created and must not hold another release.
///
/// The same inputs give the same bytes in every file.
///
/// # Errors
/// An input that cannot be read or is no static x86-64 program, or a folder that cannot be written.
pub fn build(inputs: &Inputs, folder: &Path) -> Result<Release, Error> {
    if folder.join(MANIFEST).exists() {
        let problem = "holds a release already: name another folder, or remove this one".to_owned();
        return Err(Error::Unusable { path: folder.to_owned(), problem });
    }
    let image = Image::build(&static_program(&inputs.guest)?, &static_program(&inputs.busybox)?);
    let commit = inputs.source.commit();
    let mut writer = Writer { folder, commit, artifacts: BTreeMap::new() };
    for subfolder in ["artifacts", "runtime"] {
        let path = folder.join(subfolder);
        fs::create_dir_all(&path).map_err(Error::file(&path))?;
    }
    writer.copy("native/bin/oac-node", "sandbox-node", &inputs.node_program)?;
    writer.file("runtime/seccomp.json", "seccomp.json", SECCOMP_PROFILE.as_bytes(), None)?;
    let unpacked = ImageArtifact {
        unpacked_sha256: Digest::of(&image.archive).to_string(),
        unpacked_size: image.archive.len() as u64,
    };
    writer.file(IMAGE_PATH, "runtime.tar.gz", &gzip(&image.archive), Some(unpacked))?;

    let manifest = Manifest {
        artifact_base_url: String::new(),
        artifacts: writer.artifacts,
        runtime_ref: format!("oac-runtime@{}", image.manifest_digest),
        image_manifest_digests: BTreeMap::from([(RUNTIME_IMAGE.to_owned(), image.manifest_digest)]),
        images: BTreeMap::from([(RUNTIME_IMAGE.to_owned(), image.image_id)]),
        microsandbox: Microsandbox::not_built(),
        platform: PLATFORM.to_owned(),
        source_commit: commit.to_owned(),
        source_tree: inputs.source.tree().to_owned(),
    };
    let bytes = manifest.to_bytes();
    write(&folder.join(SECCOMP), SECCOMP_PROFILE.as_bytes())?;
    write(&folder.join(SUMS), sums(&[(MANIFEST, &bytes), (SECCOMP, SECCOMP_PROFILE.as_bytes())]).as_bytes())?;
    // Last, because its presence says that the release is complete.
    write(&folder.join(MANIFEST), &bytes)?;
    Ok(Release { folder: folder.to_owned(), manifest })
}

const MANIFEST: &str = "manifest.json";
const SUMS: &str = "SHA256SUMS";
const SECCOMP: &str = "runtime/seccomp.json";

impl Release {
    /// Opens a release folder and verifies its manifest and profile against `SHA256SUMS`.
    ///
    /// # Errors
    /// A missing, malformed or changed file.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let listed = read(&folder.join(SUMS))?;
        let manifest = read(&folder.join(MANIFEST))?;
        let seccomp = read(&folder.join(SECCOMP))?;
        if listed != sums(&[(MANIFEST, &manifest), (SECCOMP, &seccomp)]).as_bytes() {
            return Err(unusable(&folder.join(SUMS), "does not list the files beside it: build the release again"));
        }
        let path = folder.join(MANIFEST);
        let manifest = Manifest::read(&manifest).map_err(|problem| unusable(&path, &problem))?;
        Ok(Self { folder: folder.to_owned(), manifest })
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
        let declared = &self.manifest.artifacts[IMAGE_PATH];
        let path = self.folder.join("artifacts").join(&declared.filename);
        let bytes = read(&path)?;
        if bytes.len() as u64 != declared.size || Digest::of(&bytes).to_string() != declared.sha256 {
            return Err(unusable(&path, "differs from the manifest: build the release again"));
        }
        Ok(bytes)
    }
}

struct Writer<'a> {
    folder: &'a Path,
    commit: &'a str,
    artifacts: BTreeMap<String, Artifact>,
}

impl Writer<'_> {
    fn copy(&mut self, logical: &str, suffix: &str, from: &Path) -> Result<(), Error> {
        self.file(logical, suffix, &read(from)?, None)
    }

    fn file(&mut self, logical: &str, suffix: &str, bytes: &[u8], image: Option<ImageArtifact>) -> Result<(), Error> {
        let filename = format!("oac-{}-linux-amd64-{suffix}", self.commit);
        write(&self.folder.join("artifacts").join(&filename), bytes)?;
        let artifact = Artifact { filename, sha256: Digest::of(bytes).to_string(), size: bytes.len() as u64, image };
        self.artifacts.insert(logical.to_owned(), artifact);
        Ok(())
    }
}

/// One line per file, sorted by name.
fn sums(files: &[(&str, &[u8])]) -> String {
    let mut lines: Vec<_> = files.iter().map(|(name, bytes)| (*name, Digest::of(bytes))).collect();
    lines.sort_unstable_by_key(|(name, _)| *name);
    let lines: Vec<_> = lines.into_iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect();
    lines.concat()
}

/// The bytes of a program that needs no loader and no library, which the image does not hold.
fn static_program(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = read(path)?;
    match elf_interpreter(&bytes) {
        Some(false) => Ok(bytes),
        Some(true) => Err(unusable(path, "is linked dynamically: a static x86-64 program is needed")),
        None => Err(unusable(path, "is no x86-64 program: a static x86-64 program is needed")),
    }
}

/// Whether an x86-64 ELF program asks for an interpreter; `None` when it is no such program.
fn elf_interpreter(bytes: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, length: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(length)?)?;
        Some(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let is_x86_64 = bytes.starts_with(b"\x7fELF\x02\x01") && number(18, 2)? == 62;
    if !is_x86_64 {
        return None;
    }
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = usize::try_from(table.checked_add(index * entry)?).ok()?;
        if number(at, 4)? == u64::from(INTERPRETER) {
            return Some(true);
        }
    }
    Some(false)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::file(path))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a release folder is no record that a restart reads; it can be built again"
)]
fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes).map_err(Error::file(path))
}

fn unusable(path: &Path, problem: &str) -> Error {
    Error::Unusable { path: path.to_owned(), problem: problem.to_owned() }
}
