use std::io::Read as _;

use serde_json::{Value, json};

use super::*;
use crate::Image;
use crate::archive::{Archive, Meta};

const FILE: Meta = Meta { mode: 0o644, owner: 0 };

/// The files of a good archive, to be changed and packed again.
struct Parts(BTreeMap<String, Vec<u8>>);

impl Parts {
    fn good() -> Self {
        let image = Image::build(b"guest", b"busybox");
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(&image.archive[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            if entry.header().entry_type().is_file() {
                files.insert(path, bytes);
            }
        }
        Self(files)
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.0[path]).unwrap()
    }

    fn set(&mut self, path: &str, document: &Value) {
        self.0.insert(path.to_owned(), document.to_string().into_bytes());
    }

    /// Adds a blob and gives its descriptor.
    fn blob(&mut self, media_type: &str, document: &Value) -> Value {
        let bytes = document.to_string().into_bytes();
        let (digest, size) = (Digest::of(&bytes), bytes.len());
        self.0.insert(format!("blobs/sha256/{digest}"), bytes);
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size })
    }

    /// The path of the blob that a descriptor of `index.json` names, and its content.
    fn manifest(&self) -> (String, Value) {
        let digest = self.json("index.json")["manifests"][0]["digest"].as_str().unwrap().to_owned();
        let path = format!("blobs/sha256/{}", digest.trim_start_matches("sha256:"));
        let content = self.json(&path);
        (path, content)
    }

    fn prove(&self) -> Result<Identities, String> {
        let mut archive = Archive::new();
        for (path, bytes) in &self.0 {
            archive.file(path, FILE, bytes);
        }
        prove(&archive.finish()[..])
    }
}

/// E34. Both identities come from the bytes of the archive, and are what was built.
#[test]
fn both_identities_are_proven_from_the_archive() {
    let image = Image::build(b"guest", b"busybox");
    let proven = prove(&image.archive[..]).unwrap();
    assert_eq!((&proven.image_id, &proven.manifest_digest), (&image.image_id, &image.manifest_digest));
    assert_eq!(
        (proven.unpacked_sha256, proven.unpacked_size),
        (Digest::of(&image.archive), image.archive.len() as u64)
    );
    let repacked = Parts::good().prove().unwrap();
    assert_eq!((repacked.image_id, repacked.manifest_digest), (image.image_id, image.manifest_digest));
}

/// E34. An index that wraps the one image is what a containerd store calls it by.
#[test]
fn an_index_around_the_image_is_the_manifest_identity() {
    let mut parts = Parts::good();
    let image = parts.prove().unwrap();
    let wrapped = parts.json("index.json");
    let outer = parts.blob("application/vnd.oci.image.index.v1+json", &wrapped);
    parts.set("index.json", &json!({ "manifests": [outer] }));
    let proven = parts.prove().unwrap();
    assert_eq!(proven.image_id, image.image_id);
    assert_eq!(proven.manifest_digest, outer["digest"].as_str().unwrap());
    let twice = parts.blob("application/vnd.oci.image.index.v1+json", &json!({ "manifests": [outer, outer] }));
    parts.set("index.json", &json!({ "manifests": [twice] }));
    assert!(parts.prove().unwrap_err().contains("holds 2 images"));
}

/// E34. A changed byte in any blob, another platform, a second image or a missing blob proves nothing.
#[test]
fn an_archive_that_is_not_what_it_says_is_refused() {
    let good = Parts::good();
    for path in good.0.keys().filter(|path| path.starts_with("blobs/")) {
        let mut parts = Parts::good();
        let bytes = parts.0.get_mut(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        assert!(parts.prove().unwrap_err().contains("has other bytes"), "{path}");
        parts.0.remove(path);
        assert!(parts.prove().unwrap_err().contains("lacks the blob"), "{path}");
    }
    for path in ["index.json", "manifest.json"] {
        let mut parts = Parts::good();
        parts.0.remove(path);
        assert_eq!(parts.prove().unwrap_err(), format!("lacks {path}"));
    }
    let mut none = Parts::good();
    none.set("index.json", &json!({ "manifests": [] }));
    assert!(none.prove().unwrap_err().contains("holds 0 images"));
    assert!(prove(&b"no archive"[..]).is_err());
}

/// E34. The two ways in which engines read an archive must lead to one image.
#[test]
fn the_two_descriptions_of_the_image_must_agree() {
    let mut parts = Parts::good();
    let mut saved = parts.json("manifest.json");
    saved[0]["Config"] = json!("blobs/sha256/other");
    parts.set("manifest.json", &saved);
    assert!(parts.prove().unwrap_err().contains("names another image in manifest.json"));
    let mut two = Parts::good();
    let entry = two.json("manifest.json")[0].clone();
    two.set("manifest.json", &json!([entry, entry]));
    assert!(two.prove().unwrap_err().contains("more than one image"));
}

#[test]
fn another_platform_and_foreign_layers_are_refused() {
    for (pointer, value, problem) in [
        ("/architecture", json!("arm64"), "is for linux/arm64"),
        ("/os", json!("windows"), "is for windows/amd64"),
        ("/rootfs/diff_ids", json!([]), "not of its layers"),
        ("/rootfs/diff_ids/0", json!("sha256:00"), "not of its layers"),
    ] {
        let mut parts = Parts::good();
        let (_, mut manifest) = parts.manifest();
        let config = manifest["config"]["digest"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
        let mut settings = parts.json(&format!("blobs/sha256/{config}"));
        *settings.pointer_mut(pointer).unwrap() = value;
        manifest["config"] = parts.blob("application/vnd.oci.image.config.v1+json", &settings);
        let outer = parts.blob("application/vnd.oci.image.manifest.v1+json", &manifest);
        parts.set("index.json", &json!({ "manifests": [outer] }));
        assert!(parts.prove().unwrap_err().contains(problem), "{pointer}");
    }
}

#[test]
fn links_and_repeated_names_are_refused() {
    let mut archive = Archive::new();
    archive.link("index.json", "/etc/passwd");
    assert!(prove(&archive.finish()[..]).unwrap_err().contains("no regular file"));
    let mut archive = Archive::new();
    archive.file("index.json", FILE, b"{}");
    archive.file("index.json", FILE, b"{}");
    assert!(prove(&archive.finish()[..]).unwrap_err().contains("twice"));
}
