//! The files below ROOT that the enrolled release brought (node-host §3.7).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use palisade_core::deployment::contract::{Provider as Kind, RuntimeMember};
use palisade_core::distribution::catalogue::{FIRMWARE, IMAGE, IMAGE_UNPACKED, MSB, SECCOMP};
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::Originals;
use palisade_core::strict;
use palisade_core::units::{Digest, Id};
use serde::Deserialize;

use super::content::{Content, Contents, exists};
use super::layout::Layout;
use super::setup::{self, Setup};
use crate::files::look::look;
use crate::files::mounts;
use crate::limits::ARTIFACTS_MAX_BYTES;

/// What the installer fetched for the enrolled release, with its content.
const RECORD: &str = "runtime-artifacts.json";
/// Kept as long as one file of the provider is in use.
const AUXILIARY: [&str; 3] = [SECCOMP, IMAGE, IMAGE_UNPACKED];

/// `runtime-artifacts.json` (node-host §1.9 I3).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recorded {
    installation_id: Id,
    source_commit: String,
    sha256: BTreeMap<String, Digest>,
}

impl Recorded {
    pub(super) fn digest(&self, path: &str) -> Option<Digest> {
        self.sha256.get(path).copied()
    }
}

/// The record, when it says exactly what the enrolled release must have.
pub(super) fn recorded(layout: &Layout, base: &Configuration) -> Option<Recorded> {
    let seen = look(&layout.root().join(RECORD), ARTIFACTS_MAX_BYTES);
    let recorded: Recorded = strict::object(seen.borrow().private(ARTIFACTS_MAX_BYTES).ours()?).ok()?;
    let specification = &base.envelope.specification;
    let names: BTreeSet<_> = recorded.sha256.keys().map(String::as_str).collect();
    let programs = [(MSB, RuntimeMember::RuntimeSha256), (FIRMWARE, RuntimeMember::FirmwareSha256)];
    let same = |(path, member): &(&str, RuntimeMember)| {
        recorded.digest(path).is_none_or(|digest| specification.runtime(*member) == Some(&digest.to_string()))
    };
    let sound = recorded.installation_id == base.envelope.installation
        && recorded.source_commit == setup::source(specification)
        && names == candidates(base.envelope.provider())
        && programs.iter().all(same);
    sound.then_some(recorded)
}

/// Every file that the enrolled release may have brought.
fn candidates(kind: Kind) -> BTreeSet<&'static str> {
    let setup = palisade_core::distribution::catalogue::Catalogue::bundled();
    let declared = setup.of(kind.name()).unwrap_or_default();
    let node = palisade_core::distribution::catalogue::NODE;
    declared.iter().map(|one| one.path).filter(|path| *path != node).chain([IMAGE_UNPACKED]).collect()
}

/// The files that a configuration names itself.
fn named(setup: &Setup) -> BTreeSet<&'static str> {
    match setup.kind {
        Kind::Docker => BTreeSet::from([SECCOMP]),
        Kind::Microsandbox => {
            setup.files().iter().map(|one| one.path).filter(|path| !AUXILIARY.contains(path)).collect()
        }
        Kind::E2b => BTreeSet::new(),
    }
}

/// What a collection of a generation below ROOT may remove, verified together: nothing that another one names, and the
/// profile and the archives only when nothing of its provider is named any more.
pub(super) fn look_at<'a>(
    layout: &Layout,
    base: &Configuration,
    leaving: &Setup,
    others: impl Iterator<Item = &'a Setup>,
    contents: &mut Contents,
) -> (Originals, Vec<PathBuf>) {
    let used: BTreeSet<_> = others.filter(|other| other.is_original(layout)).flat_map(named).collect();
    let shares = named(leaving).intersection(&used).next().is_some();
    let kept = |path: &str| used.contains(path) || (shares && AUXILIARY.contains(&path));
    let names = candidates(leaving.kind).into_iter().filter(|path| !kept(path));
    let there: Vec<_> = names.filter(|path| exists(&layout.root().join(path))).collect();
    if there.is_empty() {
        return (Originals::Gone, Vec::new());
    }
    let Some(recorded) = recorded(layout, base) else { return (Originals::Unrecorded, Vec::new()) };
    let same = |path: &&str| {
        let file = layout.root().join(path);
        match contents.of(&file) {
            Content::File(digest, _) => {
                recorded.digest(path) == Some(digest) && mounts::at_or_below(&file).is_ok_and(|mounted| !mounted)
            }
            Content::Absent | Content::Damaged(_) => false,
        }
    };
    if !there.iter().all(same) {
        return (Originals::Conflict, Vec::new());
    }
    (Originals::Verified, there.into_iter().map(|path| layout.root().join(path)).collect())
}
