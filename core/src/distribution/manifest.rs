//! `manifest.json` of a release (node-host §5.2), the Runtime that a deployment selects from it, and what it must hold.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::address::is_release_folder;
use super::catalogue::{Catalogue, Declaration, FIRMWARE, IMAGE, MSB, Role};
use super::{Commit, catalogue};
use crate::deployment::contract::RuntimeMember;
use crate::deployment::specification::Specification;
use crate::limits::{ARTIFACT_MAX_BYTES, METADATA_MAX_BYTES};
use crate::strict::{self, Object};
use crate::units::Digest;

/// The only platform there is.
pub const PLATFORM: &str = "linux/amd64";
/// The microsandbox release that this version is made for.
pub const MICROSANDBOX_VERSION: &str = "0.7.2";
/// Name of the Runtime image in the manifest.
pub const RUNTIME_IMAGE: &str = "runtime";
/// A digest that no file has: what a release without microsandbox programs says of them.
pub const NOT_BUILT: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Everything that a release declares about itself. Members stand in sorted order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Versioned https folder with the same files; empty for a build that is used where it was made.
    pub artifact_base_url: String,
    /// Logical path → file.
    #[serde(deserialize_with = "unique")]
    pub artifacts: BTreeMap<String, Artifact>,
    /// Image name → manifest digest.
    #[serde(deserialize_with = "unique_texts")]
    pub image_manifest_digests: BTreeMap<String, String>,
    /// Image name → configuration digest.
    #[serde(deserialize_with = "unique_texts")]
    pub images: BTreeMap<String, String>,
    /// What microsandbox nodes verify.
    #[serde(deserialize_with = "strict::nested")]
    pub microsandbox: Microsandbox,
    /// `linux/amd64`.
    pub platform: String,
    /// `oac-runtime@` and a manifest digest.
    pub runtime_ref: String,
    /// Commit of the source.
    pub source_commit: Commit,
    /// Tree of the source.
    pub source_tree: Commit,
}

/// One file of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Name in the folder `artifacts`.
    pub filename: String,
    /// SHA-256 of the file.
    pub sha256: Digest,
    /// Bytes of the file, above 0.
    pub size: u64,
    /// SHA-256 of the uncompressed archive; only of the Runtime image.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    pub unpacked_sha256: Option<Digest>,
    /// Bytes of the uncompressed archive; only of the Runtime image.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    pub unpacked_size: Option<u64>,
}

/// Version and digests of the microsandbox programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Microsandbox {
    /// SHA-256 of the firmware; [`NOT_BUILT`] in a release without microsandbox.
    pub firmware_sha256: Digest,
    /// SHA-256 of the runtime; [`NOT_BUILT`] in a release without microsandbox.
    pub runtime_sha256: Digest,
    /// Release of microsandbox.
    pub version: String,
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

/// Why a manifest was refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidManifest {
    /// Above the limit of all metadata.
    #[error("expected at most 1 MiB")]
    Size,
    /// Not exactly the members, each of its JSON type.
    #[error("expected one release manifest: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A member whose value cannot be.
    #[error("{0}: expected {1}")]
    Member(String, &'static str),
    /// A file that a provider needs is not declared.
    #[error("{provider} nodes need {path}, which is not declared")]
    Missing {
        /// Whose nodes.
        provider: String,
        /// The logical path.
        path: String,
    },
}

impl Microsandbox {
    /// What a release without microsandbox says.
    #[must_use]
    pub fn not_built() -> Self {
        let none = Digest::parse(NOT_BUILT).expect("64 zeros are a digest");
        Self { firmware_sha256: none, runtime_sha256: none, version: MICROSANDBOX_VERSION.to_owned() }
    }
}

impl Manifest {
    /// Reads a manifest and judges every member. A release without microsandbox programs holds none of them.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidManifest> {
        if bytes.len() > METADATA_MAX_BYTES {
            return Err(InvalidManifest::Size);
        }
        let manifest: Self = strict::object(bytes)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// What [`Manifest::parse`] asks of the members, for a manifest that was put together.
    pub fn check(&self) -> Result<(), InvalidManifest> {
        let base = &self.artifact_base_url;
        require(self.platform == PLATFORM, "platform", "linux/amd64")?;
        require(
            base.is_empty() || is_release_folder(base, &self.source_commit),
            "artifact_base_url",
            "nothing, or an https folder whose path names build-<source_commit> or a version",
        )?;
        for (member, value) in [
            (RuntimeMember::ImageId, self.images.get(RUNTIME_IMAGE)),
            (RuntimeMember::ImageManifestDigest, self.image_manifest_digests.get(RUNTIME_IMAGE)),
            (RuntimeMember::MicrosandboxRef, Some(&self.runtime_ref)),
        ] {
            let good = value.is_some_and(|value| member.matches(value));
            require(good, member.name(), "a sha256 digest of the image runtime")?;
        }
        self.check_names()?;
        self.check_catalogue(&Catalogue::bundled())
    }

    /// Every declared file has a safe name of its own and a size.
    fn check_names(&self) -> Result<(), InvalidManifest> {
        let mut names = BTreeMap::new();
        for (path, artifact) in &self.artifacts {
            let fitting = is_filename(&artifact.filename) && artifact.filename.contains(self.source_commit.as_str());
            require(fitting, path, "a file name of letters, digits and ._- that holds the source commit")?;
            let fits = |size: u64| (1..=ARTIFACT_MAX_BYTES).contains(&size);
            require(fits(artifact.size), path, "a size of 1 byte to 8 GiB")?;
            require(names.insert(&artifact.filename, path).is_none(), path, "a file name of its own")?;
            let unpacked = artifact.unpacked_size.is_some_and(fits) && artifact.unpacked_sha256.is_some();
            let none = artifact.unpacked_size.is_none() && artifact.unpacked_sha256.is_none();
            let good = if path == IMAGE { unpacked } else { none };
            require(good, path, "the unpacked size and SHA-256 of the Runtime image, and of no other file")?;
        }
        Ok(())
    }

    /// Every file of a provider is there under its published name; all of the programs of microsandbox, or none.
    fn check_catalogue(&self, catalogue: &Catalogue<'_>) -> Result<(), InvalidManifest> {
        let all = catalogue.all();
        for (path, declared) in &all {
            if let Some(artifact) = self.artifacts.get(*path) {
                let published = filename(&self.source_commit, declared);
                require(artifact.filename == published, path, "its published file name")?;
            }
        }
        let built = all.values().any(|one| one.role == Role::Runtime && self.artifacts.contains_key(one.path));
        let provider = if built { "microsandbox" } else { "docker" };
        self.wanted(provider, catalogue)?;
        let none = Microsandbox::not_built();
        for (path, digest, unbuilt) in [
            (MSB, self.microsandbox.runtime_sha256, none.runtime_sha256),
            (FIRMWARE, self.microsandbox.firmware_sha256, none.firmware_sha256),
        ] {
            let expected = self.artifacts.get(path).map_or(unbuilt, |artifact| artifact.sha256);
            require(digest == expected, "microsandbox", "the SHA-256 of the declared files, or zeros without them")?;
        }
        Ok(())
    }

    /// The files that a provider's nodes need, in the catalogue's order.
    ///
    /// # Errors
    /// [`InvalidManifest::Missing`], also for a provider that runs on no node.
    pub fn wanted<'m, 'c>(
        &'m self,
        provider: &str,
        catalogue: &Catalogue<'c>,
    ) -> Result<Vec<(Declaration<'c>, &'m Artifact)>, InvalidManifest> {
        let missing = |path: &str| InvalidManifest::Missing { provider: provider.to_owned(), path: path.to_owned() };
        let declared = catalogue.of(provider).ok_or_else(|| missing(catalogue::NODE))?;
        let found = declared.iter().map(|declared| {
            let artifact = self.artifacts.get(declared.path).ok_or_else(|| missing(declared.path))?;
            Ok((*declared, artifact))
        });
        found.collect()
    }

    /// The catalogued file with this published name.
    #[must_use]
    pub fn published(&self, name: &str, catalogue: &Catalogue<'_>) -> Option<&Artifact> {
        let all = catalogue.all();
        self.artifacts
            .iter()
            .find(|(path, artifact)| artifact.filename == name && all.contains_key(path.as_str()))
            .map(|(_, artifact)| artifact)
    }

    /// Where else a file can be had: only when the release names a folder on the net.
    #[must_use]
    pub fn remote(&self, artifact: &Artifact) -> Option<String> {
        let base = self.artifact_base_url.strip_suffix('/').unwrap_or(&self.artifact_base_url);
        (!base.is_empty()).then(|| format!("{base}/{}", artifact.filename))
    }

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
            source_commit: self.source_commit.to_string(),
            image_id: self.images[RUNTIME_IMAGE].clone(),
            image_manifest_digest: self.image_manifest_digests[RUNTIME_IMAGE].clone(),
            microsandbox_ref: self.runtime_ref.clone(),
            runtime_sha256: self.microsandbox.runtime_sha256.to_string(),
            firmware_sha256: self.microsandbox.firmware_sha256.to_string(),
        }
    }

    /// The first member in which a specification selects another Runtime than this release.
    #[must_use]
    pub fn differs_from(&self, specification: &Specification) -> Option<RuntimeMember> {
        let own = self.runtime();
        RuntimeMember::ALL.into_iter().find(|member| specification.runtime(*member) != Some(own.member(*member)))
    }
}

impl Runtime {
    /// The value of one member.
    #[must_use]
    pub fn member(&self, member: RuntimeMember) -> &str {
        match member {
            RuntimeMember::SourceCommit => &self.source_commit,
            RuntimeMember::ImageId => &self.image_id,
            RuntimeMember::ImageManifestDigest => &self.image_manifest_digest,
            RuntimeMember::MicrosandboxRef => &self.microsandbox_ref,
            RuntimeMember::RuntimeSha256 => &self.runtime_sha256,
            RuntimeMember::FirmwareSha256 => &self.firmware_sha256,
        }
    }
}

/// The published name of a file.
#[must_use]
pub fn filename(commit: &Commit, declared: &Declaration<'_>) -> String {
    format!("oac-{commit}-linux-amd64-{}", declared.suffix)
}

/// `[A-Za-z0-9._-]+`, and not `.` or `..`.
#[must_use]
pub fn is_filename(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !matches!(text, "" | "." | "..") && text.len() <= 255 && text.bytes().all(plain)
}

fn require(good: bool, member: &str, expected: &'static str) -> Result<(), InvalidManifest> {
    if good { Ok(()) } else { Err(InvalidManifest::Member(member.to_owned(), expected)) }
}

fn unique<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error> {
    let objects: BTreeMap<String, Object<T>> = deserializer.deserialize_map(Unique(PhantomData))?;
    Ok(objects.into_iter().map(|(name, object)| (name, object.0)).collect())
}

fn unique_texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_map(Unique(PhantomData))
}

/// A map whose names stand in it once.
struct Unique<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Unique<T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, T>()? {
            if members.insert(name, value).is_some() {
                return Err(de::Error::custom("a member is repeated"));
            }
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests;
