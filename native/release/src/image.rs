//! The Runtime image as an archive that `docker load` reads, with both identities that engines give it.

use palisade_core::units::Digest;
use serde_json::json;

use crate::archive::{Archive, Meta};
use crate::rootfs;

/// User and group of every sandbox.
pub const RUNTIME_UID: u32 = 1000;

/// An image archive and what it is called by engines of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The archive, uncompressed: OCI layout and `docker save` form in one.
    pub archive: Vec<u8>,
    /// `sha256:…` of the configuration: the identity in a classic image store.
    pub image_id: String,
    /// `sha256:…` of the manifest: the identity in a containerd image store.
    pub manifest_digest: String,
}

impl Image {
    /// Builds the image from the two programs it holds.
    #[must_use]
    pub fn build(guest: &[u8], busybox: &[u8]) -> Self {
        let layer = Blob::new(rootfs::layer(guest, busybox));
        let config = Blob::new(config(&layer));
        let manifest = Blob::new(manifest(&config, &layer));
        let tag = format!("oac-runtime:{}", &config.digest.to_string()[..12]);
        let archive = archive(&tag, &config, &manifest, &layer);
        Self { archive, image_id: config.name(), manifest_digest: manifest.name() }
    }
}

struct Blob {
    bytes: Vec<u8>,
    digest: Digest,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), bytes }
    }

    fn name(&self) -> String {
        format!("sha256:{}", self.digest)
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: &str) -> serde_json::Value {
        json!({ "mediaType": media_type, "digest": self.name(), "size": self.bytes.len() })
    }
}

fn config(layer: &Blob) -> Vec<u8> {
    const CREATED: &str = "1970-01-01T00:00:00Z";
    let document = json!({
        "architecture": "amd64",
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": format!("{RUNTIME_UID}:{RUNTIME_UID}"),
            "WorkingDir": "/environment/workspace",
            "Entrypoint": [format!("/{}", rootfs::GUEST), "--bootstrap-file", "/home/runtime/sandbox-io-bootstrap.json"],
        },
        "history": [{ "created": CREATED, "created_by": "palisade release build" }],
        "rootfs": { "type": "layers", "diff_ids": [layer.name()] },
    });
    document.to_string().into_bytes()
}

fn manifest(config: &Blob, layer: &Blob) -> Vec<u8> {
    let document = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar")],
    });
    document.to_string().into_bytes()
}

/// The tag is derived from the image itself: it keeps `docker image prune` away, never moves, and finds nothing.
fn archive(tag: &str, config: &Blob, manifest: &Blob, layer: &Blob) -> Vec<u8> {
    const FOLDER: Meta = Meta { mode: 0o755, owner: 0 };
    const FILE: Meta = Meta { mode: 0o644, owner: 0 };
    let mut descriptor = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
    descriptor["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    descriptor["annotations"] = json!({ "io.containerd.image.name": format!("docker.io/library/{tag}") });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor],
    });
    let saved = json!([{ "Config": config.path(), "RepoTags": [tag], "Layers": [layer.path()] }]);

    let mut blobs = [config, manifest, layer];
    blobs.sort_by_key(|blob| blob.digest);
    let mut archive = Archive::new();
    archive.folder("blobs", FOLDER);
    archive.folder("blobs/sha256", FOLDER);
    for blob in blobs {
        archive.file(&blob.path(), FILE, &blob.bytes);
    }
    archive.file("index.json", FILE, index.to_string().as_bytes());
    archive.file("manifest.json", FILE, saved.to_string().as_bytes());
    archive.file("oci-layout", FILE, br#"{"imageLayoutVersion":"1.0.0"}"#);
    archive.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_depend_on_the_programs_and_on_nothing_else() {
        let image = Image::build(b"guest", b"busybox");
        assert_eq!(image, Image::build(b"guest", b"busybox"));
        let other = Image::build(b"guest 2", b"busybox");
        assert_ne!(image.image_id, other.image_id);
        assert_ne!(image.manifest_digest, other.manifest_digest);
        assert_ne!(image.image_id, image.manifest_digest);
    }
}
