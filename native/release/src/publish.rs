//! Adding a release to a payload folder, which Core serves to nodes (node-host §5.8).
//!
//! - A file that is there is never written again. One that differs prevents every addition.
//! - The manifest comes last, and the pointer after it: until then nobody is told of the release.
//! - A publication that was interrupted anywhere is completed by the same command; one that is complete changes nothing.

use std::fs::{File as Handle, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag};
use palisade_core::distribution::Pointer;
use palisade_core::distribution::route::{ARTIFACTS, File, POINTER, RELEASES};
use palisade_core::units::Digest;

use crate::Error;
use crate::durable::{self, Names, Steps, Unbroken};
use crate::folder::{Release, measure, mode, open};

/// What goes into the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Everything.
    Complete,
    /// The four fixed files: nodes are sent to the release's folder on the net for the rest.
    Metadata,
}

/// What a publication did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The folder of the release.
    pub folder: PathBuf,
    /// Files that were added, below it.
    pub added: Vec<String>,
    /// Files that were there already, below it.
    pub kept: Vec<String>,
    /// Whether the payload offers the release since now, and not before.
    pub activated: bool,
}

/// Adds `release` to the payload folder, and offers it.
///
/// # Errors
/// [`Error::Conflict`] when a file that is there differs: nothing was added then. Otherwise a damaged release, a place that
/// cannot hold it, or a disk that fails; what was added by then is whole and stays.
pub fn publish(release: &Release, payload: &Path, contents: Contents) -> Result<Published, Error> {
    publish_with(&mut Unbroken, release, payload, contents)
}

fn publish_with(
    steps: &mut dyn Steps,
    release: &Release,
    payload: &Path,
    contents: Contents,
) -> Result<Published, Error> {
    check_source(release, contents)?;
    check_place(release, payload)?;
    durable::folder(steps, payload)?;
    let _lock = lock(payload)?;
    let commit = &release.manifest().source_commit;
    let folder = payload.join(RELEASES).join(commit.as_str());
    let items = items(release, contents);
    let (kept, missing) = compare(&items, &folder)?;

    for item in &missing {
        let (from, to) = (release.folder().join(&item.path), folder.join(&item.path));
        durable::folder(steps, to.parent().unwrap_or(&folder))?;
        durable::copy(steps, &to, item.mode, Names::New, &mut open(&from)?)?;
        item.verify(&to)?;
    }
    let activated = offer(steps, payload, &Pointer { source_commit: commit.clone() })?;
    let paths = |items: &[&Item]| items.iter().map(|item| item.path.clone()).collect();
    Ok(Published { folder, added: paths(&missing), kept: paths(&kept), activated })
}

/// One file of a release.
struct Item {
    /// Below the folder of the release.
    path: String,
    mode: u32,
    sha256: Digest,
}

impl Item {
    /// Whether the file is there with the right bytes; `None` when there is nothing.
    fn is_at(&self, path: &Path) -> Result<Option<bool>, Error> {
        let mut file = match open(path) {
            Ok(file) => file,
            Err(Error::File { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(Error::Unusable { .. }) => return Ok(Some(false)),
            Err(Error::File { error, .. }) if error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) => {
                return Ok(Some(false));
            }
            Err(error) => return Err(error),
        };
        let (_, found) = measure(&mut file).map_err(Error::file(path))?;
        Ok(Some(found == self.sha256))
    }

    /// The release may have been changed between its verification and its copy.
    fn verify(&self, path: &Path) -> Result<(), Error> {
        match self.is_at(path)? {
            Some(true) => Ok(()),
            Some(false) | None => {
                Err(Error::unusable(path, "was changed while it was published: remove it, and build the release again"))
            }
        }
    }
}

/// In the order in which they are added.
fn items(release: &Release, contents: Contents) -> Vec<Item> {
    let mut items = Vec::new();
    if contents == Contents::Complete {
        for (path, artifact) in &release.manifest().artifacts {
            let mode = if path.starts_with("native/") { 0o755 } else { 0o644 };
            let path = format!("{ARTIFACTS}/{}", artifact.filename);
            items.push(Item { path, mode, sha256: artifact.sha256 });
        }
    }
    let fixed = [File::Seccomp, File::Installer, File::Sums, File::Manifest];
    items.extend(fixed.map(|file| Item {
        path: file.path().into_owned(),
        mode: mode(file),
        sha256: release.digest(file),
    }));
    items
}

/// What is there and what is missing. Everything that is there is compared before anything is added, also artifacts that
/// are not to be added.
fn compare<'a>(items: &'a [Item], folder: &Path) -> Result<(Vec<&'a Item>, Vec<&'a Item>), Error> {
    let (mut kept, mut missing, mut conflicts) = (Vec::new(), Vec::new(), Vec::new());
    for item in items {
        let path = folder.join(&item.path);
        match item.is_at(&path)? {
            Some(true) => kept.push(item),
            Some(false) => conflicts.push(path),
            None => missing.push(item),
        }
    }
    if conflicts.is_empty() { Ok((kept, missing)) } else { Err(Error::Conflict { paths: conflicts }) }
}

fn check_source(release: &Release, contents: Contents) -> Result<(), Error> {
    match contents {
        Contents::Complete => release.verify(),
        Contents::Metadata if release.manifest().artifact_base_url.is_empty() => Err(Error::unusable(
            release.folder(),
            "names no folder on the net where nodes find the rest: build it with --artifact-base-url, or publish everything",
        )),
        Contents::Metadata => Ok(()),
    }
}

fn check_place(release: &Release, payload: &Path) -> Result<(), Error> {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (from, to) = (real(release.folder()), real(payload));
    if to.starts_with(&from) || from.starts_with(to.join(RELEASES)) {
        return Err(Error::unusable(payload, "is the folder of the release itself: name another payload folder"));
    }
    if payload.join(&*File::Manifest.path()).exists() {
        let problem = "holds a release directly: move its files to releases/<its source commit>/ first, or nodes that \
                       run it would not find them any more";
        return Err(Error::unusable(payload, problem));
    }
    Ok(())
}

/// Switches the pointer, unless it names the release already.
fn offer(steps: &mut dyn Steps, payload: &Path, pointer: &Pointer) -> Result<bool, Error> {
    let path = payload.join(POINTER);
    let bytes = pointer.to_bytes();
    if std::fs::read(&path).is_ok_and(|found| found == bytes) {
        return Ok(false);
    }
    durable::write(steps, &path, 0o644, Names::Replaced, &bytes)?;
    Ok(true)
}

/// One publication at a time; released when the process ends, however it ends.
fn lock(payload: &Path) -> Result<Flock<Handle>, Error> {
    let path = payload.join(".publish.lock");
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&path)
        .map_err(Error::file(&path))?;
    Flock::lock(opened, FlockArg::LockExclusiveNonblock)
        .map_err(|_| Error::unusable(payload, "is being published to by another command: wait for it and try again"))
}

#[cfg(test)]
mod tests;
