//! Building a release folder from files (node-host §5.2).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use palisade_core::distribution::Commit;
use palisade_core::distribution::catalogue::{IMAGE, NODE, SECCOMP};
use palisade_core::distribution::manifest::{Artifact, Manifest, Microsandbox, PLATFORM, RUNTIME_IMAGE};
use palisade_core::distribution::route::{ARTIFACTS, File};
use palisade_core::distribution::sums::Sums;
use palisade_core::units::Digest;

use crate::archive::gzip;
use crate::durable::{self, Names, Unbroken};
use crate::elf::static_program;
use crate::folder::{Release, mode};
use crate::image::Image;
use crate::proof::{self, Identities};
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
    /// The node program, which is the installer as well: this executable.
    pub node_program: PathBuf,
    /// Versioned https folder where the same files will be; empty when they will be nowhere else.
    pub artifact_base_url: String,
}

/// Builds a release into `folder`, which is created and must not hold another release.
///
/// The same inputs give the same bytes and permissions in every file, whatever the clock, the folder and the umask. What an
/// interrupted build left is completed by the next one. Both identities of the image are proven from the finished archive.
///
/// # Errors
/// An input that cannot be read or is no static x86-64 program, or a folder that cannot be written.
pub fn build(inputs: &Inputs, folder: &Path) -> Result<Release, Error> {
    if folder.join(&*File::Manifest.path()).exists() {
        return Err(Error::unusable(folder, "holds a release already: name another folder, or remove this one"));
    }
    let image = Image::build(&static_program(&inputs.guest)?, &static_program(&inputs.busybox)?);
    let program = std::fs::read(&inputs.node_program).map_err(Error::file(&inputs.node_program))?;
    let packed = gzip(&image.archive);
    let proven = prove(&packed, &image, folder)?;

    let mut release = Assembly { folder, commit: inputs.source.commit(), artifacts: BTreeMap::new() };
    for subfolder in [ARTIFACTS, "runtime"] {
        durable::folder(&mut Unbroken, &folder.join(subfolder))?;
    }
    release.add(NODE, "sandbox-node", &program, None)?;
    release.add(SECCOMP, "seccomp.json", SECCOMP_PROFILE.as_bytes(), None)?;
    release.add(IMAGE, "runtime.tar.gz", &packed, Some(&proven))?;
    let manifest = manifest(inputs, release.artifacts, proven);
    manifest.check().map_err(|problem| Error::unusable(folder, &problem.to_string()))?;
    finish(folder, &manifest, &program)?;
    Release::open(folder)
}

fn manifest(inputs: &Inputs, artifacts: BTreeMap<String, Artifact>, proven: Identities) -> Manifest {
    Manifest {
        artifact_base_url: inputs.artifact_base_url.clone(),
        artifacts,
        runtime_ref: format!("oac-runtime@{}", proven.manifest_digest),
        image_manifest_digests: BTreeMap::from([(RUNTIME_IMAGE.to_owned(), proven.manifest_digest)]),
        images: BTreeMap::from([(RUNTIME_IMAGE.to_owned(), proven.image_id)]),
        microsandbox: Microsandbox::not_built(),
        platform: PLATFORM.to_owned(),
        source_commit: inputs.source.commit().clone(),
        source_tree: inputs.source.tree().clone(),
    }
}

/// The four files that every release has; the manifest last, because its presence says that the release is complete.
fn finish(folder: &Path, manifest: &Manifest, program: &[u8]) -> Result<(), Error> {
    let bytes = manifest.to_bytes();
    let profile = SECCOMP_PROFILE.as_bytes();
    let contents = [(File::Manifest, &bytes[..]), (File::Installer, program), (File::Seccomp, profile)];
    let paths = contents.map(|(file, bytes)| (file.path(), Digest::of(bytes)));
    let sums = Sums::new(paths.iter().map(|(path, digest)| (&**path, *digest)));

    let node = folder.join(ARTIFACTS).join(&manifest.artifacts[NODE].filename);
    durable::second_name(&mut Unbroken, &node, &folder.join(&*File::Installer.path()), mode(File::Installer))?;
    for (file, bytes) in [(File::Seccomp, profile), (File::Sums, &sums.to_bytes()[..]), (File::Manifest, &bytes[..])] {
        let path = folder.join(&*file.path());
        durable::write(&mut Unbroken, &path, mode(file), Names::Replaced, bytes)?;
    }
    Ok(())
}

/// Proves the archive as it will be loaded, and that it is the image that was built.
fn prove(packed: &[u8], image: &Image, folder: &Path) -> Result<Identities, Error> {
    let unproven = |problem: String| Error::unusable(folder, &format!("the image archive {problem}"));
    let proven = proof::prove(flate2::read::GzDecoder::new(packed)).map_err(unproven)?;
    let same = proven.image_id == image.image_id && proven.manifest_digest == image.manifest_digest;
    if same { Ok(proven) } else { Err(unproven("is not the image that was built".to_owned())) }
}

struct Assembly<'a> {
    folder: &'a Path,
    commit: &'a Commit,
    artifacts: BTreeMap<String, Artifact>,
}

impl Assembly<'_> {
    fn add(&mut self, path: &str, suffix: &str, bytes: &[u8], image: Option<&Identities>) -> Result<(), Error> {
        let filename = format!("oac-{}-linux-amd64-{suffix}", self.commit);
        let mode = if path.starts_with("native/") { 0o755 } else { 0o644 };
        let target = self.folder.join(ARTIFACTS).join(&filename);
        durable::write(&mut Unbroken, &target, mode, Names::Replaced, bytes)?;
        let artifact = Artifact {
            filename,
            sha256: Digest::of(bytes),
            size: bytes.len() as u64,
            unpacked_sha256: image.map(|image| image.unpacked_sha256),
            unpacked_size: image.map(|image| image.unpacked_size),
        };
        self.artifacts.insert(path.to_owned(), artifact);
        Ok(())
    }
}
