//! The provider's own part of a configuration, as far as it names files of this host (node-host §1.6, §1.9 I2, §3.5).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use palisade_core::deployment::contract::{Provider as Kind, RuntimeMember};
use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::catalogue::{Catalogue, Declaration, FIRMWARE, MSB, Role, SECCOMP};
use palisade_core::generation::configuration::{Configuration, Envelope};
use palisade_core::generation::store;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::layout::Layout;

/// The program that a node runs for each operation of microsandbox.
const HELPER: &str = "native/bin/oac-microsandbox-provider";

/// Where the files of a generation are. Whatever is not exactly where it belongs has no setup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setup {
    /// ROOT for the enrolled release, `ROOT/releases/<source>` for another.
    pub(super) release: PathBuf,
    /// What the files are for.
    pub(super) kind: Kind,
    /// The network of docker, the store of microsandbox.
    pub(super) home: Home,
    /// Docker: what the image is called, by the release or by the engine.
    pub(super) image: Option<String>,
    /// Where the engine of docker listens.
    pub(super) host: Option<String>,
}

/// What is made once for many sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Home {
    Network(String),
    Store(PathBuf),
}

/// The configuration names files elsewhere than where the installation keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the configuration names files outside of the installation, or another image than the release's")]
pub(crate) struct Drifted;

/// Exactly the members of docker's part.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Docker {
    host: String,
    image: String,
    network: String,
    seccomp_file: PathBuf,
}

/// Exactly the members of microsandbox's part.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Microsandbox {
    firmware_path: PathBuf,
    helper_path: PathBuf,
    network: Box<RawValue>,
    runtime_home: PathBuf,
    runtime_path: PathBuf,
}

impl Setup {
    /// Reads where the files of a configuration or plan are, beside the enrolled configuration.
    pub(super) fn of(layout: &Layout, base: &Configuration, configuration: &Configuration) -> Result<Self, Drifted> {
        let specification = &configuration.envelope.specification;
        match configuration.envelope.provider() {
            Kind::Docker => docker(layout, configuration),
            Kind::Microsandbox => microsandbox(layout, base, configuration),
            Kind::E2b => Err(Drifted),
        }
        .and_then(|setup| {
            let releases = [layout.root().to_owned(), layout.release(source(specification))];
            if releases.contains(&setup.release) { Ok(setup) } else { Err(Drifted) }
        })
    }

    /// Whether the files stand below ROOT itself: the release that the node was enrolled with.
    pub(super) fn is_original(&self, layout: &Layout) -> bool {
        self.release == layout.root()
    }

    /// Whether both ask the same engine, or the same program about the same store, for images.
    pub(super) fn keeps_images_with(&self, other: &Self) -> bool {
        let store = |setup: &Self| match &setup.home {
            Home::Store(path) => Some(path.clone()),
            Home::Network(_) => None,
        };
        self.kind == other.kind
            && self.host == other.host
            && self.release == other.release
            && store(self) == store(other)
    }

    /// The files of the release that a generation needs, without the node program.
    pub(super) fn files(&self) -> Vec<Declaration<'static>> {
        let all = Catalogue::bundled().of(self.kind.name()).unwrap_or_default();
        all.iter().copied().filter(|declared| declared.role != Role::Node).collect()
    }

    /// The folders that these files are in, from the release's own downwards.
    pub(super) fn folders(&self) -> BTreeSet<PathBuf> {
        let above = |declared: &Declaration<'static>| Path::new(declared.path).ancestors().skip(1);
        self.files().iter().flat_map(above).map(|folder| self.release.join(folder)).collect()
    }
}

fn docker(layout: &Layout, configuration: &Configuration) -> Result<Setup, Drifted> {
    let native: Docker = serde_json::from_str(configuration.native.get()).map_err(|_| Drifted)?;
    let specification = &configuration.envelope.specification;
    let identities = [RuntimeMember::ImageId, RuntimeMember::ImageManifestDigest];
    if !identities.into_iter().any(|member| specification.runtime(member) == Some(&native.image)) {
        return Err(Drifted);
    }
    let releases = [layout.root().to_owned(), layout.release(source(specification))];
    let release = releases.into_iter().find(|release| native.seccomp_file == release.join(SECCOMP)).ok_or(Drifted)?;
    let (home, image) = (Home::Network(native.network), Some(native.image));
    Ok(Setup { release, kind: Kind::Docker, home, image, host: Some(native.host) })
}

fn microsandbox(layout: &Layout, base: &Configuration, configuration: &Configuration) -> Result<Setup, Drifted> {
    let native: Microsandbox = serde_json::from_str(configuration.native.get()).map_err(|_| Drifted)?;
    if native.runtime_home != store_of(base, &configuration.envelope.specification)? {
        return Err(Drifted);
    }
    let releases = [layout.root().to_owned(), layout.release(source(&configuration.envelope.specification))];
    let stands = |release: &PathBuf| {
        native.helper_path == release.join(HELPER)
            && native.runtime_path == release.join(MSB)
            && native.firmware_path == release.join(FIRMWARE)
    };
    let release = releases.into_iter().find(stands).ok_or(Drifted)?;
    let home = Home::Store(native.runtime_home);
    Ok(Setup { release, kind: Kind::Microsandbox, home, image: None, host: None })
}

/// The store of a generation, in the same home as the enrolled generation's.
fn store_of(base: &Configuration, wanted: &Specification) -> Result<PathBuf, Drifted> {
    let enrolled: Microsandbox = serde_json::from_str(base.native.get()).map_err(|_| Drifted)?;
    let home = enrolled.runtime_home.ancestors().nth(3).and_then(Path::to_str).ok_or(Drifted)?;
    let envelope = &base.envelope;
    let path = store::path(home, envelope.installation, &envelope.specification, wanted).map_err(|_| Drifted)?;
    Ok(PathBuf::from(path))
}

/// The commit that a specification's release was built from.
pub(super) fn source(specification: &Specification) -> &str {
    specification.runtime(RuntimeMember::SourceCommit).unwrap_or_default()
}

/// A configuration with the same provider setup as `other` has (node-host §3.2 step 8).
pub(super) fn taken_over(envelope: Envelope, other: &Configuration) -> Configuration {
    Configuration { envelope, native: other.native.clone() }
}

/// A configuration whose files will be in the folder of their own release (node-host §3.2 step 11).
pub(super) fn planned(layout: &Layout, base: &Configuration, envelope: Envelope) -> Result<Configuration, Drifted> {
    let release = layout.release(source(&envelope.specification));
    let native = match envelope.provider() {
        Kind::Docker => {
            let enrolled: Docker = serde_json::from_str(base.native.get()).map_err(|_| Drifted)?;
            let image = envelope.specification.runtime(RuntimeMember::ImageId).ok_or(Drifted)?.to_owned();
            to_raw_value(&Docker { image, seccomp_file: release.join(SECCOMP), ..enrolled })
        }
        Kind::Microsandbox => {
            let enrolled: Microsandbox = serde_json::from_str(base.native.get()).map_err(|_| Drifted)?;
            to_raw_value(&Microsandbox {
                helper_path: release.join(HELPER),
                runtime_path: release.join(MSB),
                firmware_path: release.join(FIRMWARE),
                runtime_home: store_of(base, &envelope.specification)?,
                network: enrolled.network,
            })
        }
        Kind::E2b => return Err(Drifted),
    };
    Ok(Configuration { envelope, native: native.expect("texts and paths serialise") })
}

/// The same configuration with what the engine calls its image (node-host §3.2 step 17).
pub(super) fn resolved(plan: &Configuration, image: Option<&str>) -> Configuration {
    let native: Option<Docker> = serde_json::from_str(plan.native.get()).ok();
    match (native, image) {
        (Some(native), Some(image)) => {
            let native =
                to_raw_value(&Docker { image: image.to_owned(), ..native }).expect("texts and paths serialise");
            Configuration { envelope: plan.envelope.clone(), native }
        }
        (Some(_) | None, Some(_) | None) => plan.clone(),
    }
}
