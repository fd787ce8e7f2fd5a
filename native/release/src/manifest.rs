//! `manifest.json` of a release (node-host §5.2) and the Runtime that a deployment selects from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The only platform there is.
pub(crate) const PLATFORM: &str = "linux/amd64";
/// The microsandbox release that this version is made for.
const MICROSANDBOX_VERSION: &str = "0.7.2";
/// A digest that no file has: the release holds no microsandbox programs yet, and a node that wanted them would find
/// that nothing matches. Docker nodes never look at it.
pub(crate) const NOT_BUILT: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Everything that a release declares about itself. Members stand in sorted order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Versioned download folder; empty for a build that is used where it was made.
    pub artifact_base_url: String,
    /// Logical path → file.
    pub artifacts: BTreeMap<String, Artifact>,
    /// Image name → manifest digest.
    pub image_manifest_digests: BTreeMap<String, String>,
    /// Image name → configuration digest.
    pub images: BTreeMap<String, String>,
    /// What microsandbox nodes verify.
    pub microsandbox: Microsandbox,
    /// `linux/amd64`.
    pub platform: String,
    /// `oac-runtime@` and the manifest digest.
    pub runtime_ref: String,
    /// Commit of the source.
    pub source_commit: String,
    /// Tree of the source.
    pub source_tree: String,
}

/// One file of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Name in the folder `artifacts`, or `runtime/seccomp.json`'s published name.
    pub filename: String,
    /// SHA-256 of the file, 64 lower-case hexadecimal characters.
    pub sha256: String,
    /// Bytes of the file, above 0.
    pub size: u64,
    /// The same for the uncompressed archive; only for the Runtime image.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageArtifact>,
}

/// What only the Runtime image archive declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageArtifact {
    /// SHA-256 of the uncompressed archive.
    pub unpacked_sha256: String,
    /// Bytes of the uncompressed archive.
    pub unpacked_size: u64,
}

/// Version and digests of the microsandbox programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Microsandbox {
    /// SHA-256 of the firmware; 64 zeros in a release without microsandbox.
    pub firmware_sha256: String,
    /// SHA-256 of the runtime; 64 zeros in a release without microsandbox.
    pub runtime_sha256: String,
    /// Release of microsandbox.
    pub version: String,
}

impl Microsandbox {
    pub(crate) fn not_built() -> Self {
        Self {
            firmware_sha256: NOT_BUILT.to_owned(),
            runtime_sha256: NOT_BUILT.to_owned(),
            version: MICROSANDBOX_VERSION.to_owned(),
        }
    }
}

/// The six members of `specification.runtime` (decision 3), in declaration order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// Commit of the source.
    pub source_commit: String,
    /// Configuration digest.
    pub image_id: String,
    /// Manifest digest.
    pub image_manifest_digest: String,
    /// What microsandbox calls the image.
    pub microsandbox_ref: String,
    /// SHA-256 of microsandbox's runtime.
    pub runtime_sha256: String,
    /// SHA-256 of microsandbox's firmware.
    pub firmware_sha256: String,
}

impl Manifest {
    /// The bytes of `manifest.json`: two spaces, sorted members, a line end.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // By way of a value, whose members are sorted at every depth.
        let value = serde_json::to_value(self).expect("a manifest holds only strings and numbers");
        let mut bytes = serde_json::to_vec_pretty(&value).expect("a value can always be written");
        bytes.push(b'\n');
        bytes
    }

    /// What a deployment selects to run this release.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        Runtime {
            source_commit: self.source_commit.clone(),
            image_id: self.images[RUNTIME_IMAGE].clone(),
            image_manifest_digest: self.image_manifest_digests[RUNTIME_IMAGE].clone(),
            microsandbox_ref: self.runtime_ref.clone(),
            runtime_sha256: self.microsandbox.runtime_sha256.clone(),
            firmware_sha256: self.microsandbox.firmware_sha256.clone(),
        }
    }

    /// Reads a manifest and checks that it declares a Runtime image for this platform.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("is no release manifest: {error}"))?;
        if manifest.platform != PLATFORM {
            return Err(format!("is for another platform: expected {PLATFORM}"));
        }
        let named =
            |names: &BTreeMap<String, String>| names.get(RUNTIME_IMAGE).is_some_and(|name| is_image_digest(name));
        if !named(&manifest.images) || !named(&manifest.image_manifest_digests) {
            return Err("lacks the two digests of the image runtime".to_owned());
        }
        if !manifest.artifacts.contains_key(IMAGE_PATH) {
            return Err(format!("lacks the artifact {IMAGE_PATH}"));
        }
        Ok(manifest)
    }
}

/// Name of the Runtime image in the manifest.
pub(crate) const RUNTIME_IMAGE: &str = "runtime";
/// Logical path of the Runtime image.
pub(crate) const IMAGE_PATH: &str = "images/runtime.tar.gz";

fn is_image_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| palisade_core::units::Digest::parse(hex).is_ok())
}
