//! Both identities of an image, proven from its archive alone (node-host §5.2, field report E34).
//!
//! Every blob that counts is hashed: the archive's word for a digest is never taken. An engine with a classic store calls
//! the image by the digest of its configuration, one with a containerd store by the descriptor in `index.json`.

use std::collections::BTreeMap;
use std::io::Read;

use palisade_core::units::Digest;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// What engines of either kind call the image, and what the archive weighs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identities {
    /// `sha256:…` of the configuration.
    pub image_id: String,
    /// `sha256:…` of the manifest, or of the index that wraps it.
    pub manifest_digest: String,
    /// SHA-256 of the uncompressed archive.
    pub unpacked_sha256: Digest,
    /// Bytes of the uncompressed archive.
    pub unpacked_size: u64,
}

/// Most entries of an archive.
const ENTRIES_MAX: usize = 1024;
/// Largest document that is read as JSON.
const DOCUMENT_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Proves an uncompressed archive that holds exactly one image for linux/amd64.
///
/// # Errors
/// What is wrong with the archive.
pub fn prove(archive: impl Read) -> Result<Identities, String> {
    let mut hashed = Hashed { inner: archive, hash: Sha256::new(), length: 0 };
    let files = files(&mut hashed)?;
    let (image_id, manifest_digest) = identities(&files)?;
    std::io::copy(&mut hashed, &mut std::io::sink()).map_err(|error| format!("cannot be read: {error}"))?;
    let unpacked_sha256 = Digest::from_bytes(hashed.hash.finalize().into());
    Ok(Identities { image_id, manifest_digest, unpacked_sha256, unpacked_size: hashed.length })
}

/// One file of the archive.
struct File {
    digest: Digest,
    size: u64,
    /// Its bytes, when they are few enough for a document.
    document: Option<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Config {
    architecture: String,
    os: String,
    rootfs: Rootfs,
}

#[derive(Deserialize)]
struct Rootfs {
    diff_ids: Vec<String>,
}

/// An entry of `manifest.json`, which engines without OCI read instead.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

fn files(archive: &mut impl Read) -> Result<BTreeMap<String, File>, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let mut files = BTreeMap::new();
    for (number, entry) in tar::Archive::new(archive).entries().map_err(unreadable)?.enumerate() {
        let mut entry = entry.map_err(unreadable)?;
        let path = String::from_utf8(entry.path_bytes().into_owned()).map_err(|_| "holds a path that is no text")?;
        if number >= ENTRIES_MAX {
            return Err(format!("holds more than {ENTRIES_MAX} entries"));
        }
        match entry.header().entry_type() {
            tar::EntryType::Directory => continue,
            tar::EntryType::Regular => {}
            _ => return Err(format!("holds {path}, which is no regular file")),
        }
        let file = file(&mut entry).map_err(unreadable)?;
        if files.insert(path.clone(), file).is_some() {
            return Err(format!("holds {path} twice"));
        }
    }
    Ok(files)
}

fn file(entry: &mut tar::Entry<'_, impl Read>) -> std::io::Result<File> {
    let small = entry.size() <= DOCUMENT_MAX_BYTES;
    let mut hashed = Hashed { inner: entry, hash: Sha256::new(), length: 0 };
    let mut document = Vec::new();
    if small {
        hashed.read_to_end(&mut document)?;
    } else {
        std::io::copy(&mut hashed, &mut std::io::sink())?;
    }
    let digest = Digest::from_bytes(hashed.hash.finalize().into());
    Ok(File { digest, size: hashed.length, document: small.then_some(document) })
}

fn identities(files: &BTreeMap<String, File>) -> Result<(String, String), String> {
    let index: Index = document(files, "index.json")?;
    let outer = only(&index)?;
    let mut manifest = blob(files, outer)?;
    if is_index(&outer.media_type) {
        manifest = blob(files, only(&document(files, manifest)?)?)?;
    }
    let Manifest { config, layers } = document(files, manifest)?;
    let settings: Config = document(files, blob(files, &config)?)?;
    if (settings.os.as_str(), settings.architecture.as_str()) != ("linux", "amd64") {
        return Err(format!("is for {}/{}, not for linux/amd64", settings.os, settings.architecture));
    }
    let paths = layers.iter().map(|layer| blob(files, layer)).collect::<Result<Vec<_>, _>>()?;
    check_layers(&layers, &settings.rootfs.diff_ids)?;
    let saved: Vec<Saved> = document(files, "manifest.json")?;
    let [saved] = &saved[..] else { return Err("names more than one image in manifest.json".to_owned()) };
    if saved.config != blob(files, &config)? || saved.layers != paths {
        return Err("names another image in manifest.json than in index.json".to_owned());
    }
    Ok((config.digest.clone(), outer.digest.clone()))
}

/// Layers that are not compressed are their own content.
fn check_layers(layers: &[Descriptor], contents: &[String]) -> Result<(), String> {
    let plain = |layer: &Descriptor| layer.media_type.rsplit_once('.').is_some_and(|(_, form)| form == "tar");
    let own = |(layer, content): (&Descriptor, &String)| !plain(layer) || layer.digest == *content;
    if layers.is_empty() || layers.len() != contents.len() || !layers.iter().zip(contents).all(own) {
        return Err("has a configuration that is not of its layers".to_owned());
    }
    Ok(())
}

fn only(index: &Index) -> Result<&Descriptor, String> {
    let [one] = &index.manifests[..] else {
        return Err(format!("holds {} images, not one", index.manifests.len()));
    };
    Ok(one)
}

fn is_index(media_type: &str) -> bool {
    matches!(
        media_type,
        "application/vnd.oci.image.index.v1+json" | "application/vnd.docker.distribution.manifest.list.v2+json"
    )
}

/// The path of the blob that a descriptor names, when size and bytes are what it says.
fn blob<'a>(files: &'a BTreeMap<String, File>, descriptor: &Descriptor) -> Result<&'a str, String> {
    let name = &descriptor.digest;
    let hex = name.strip_prefix("sha256:").ok_or_else(|| format!("names a blob by {name}, which is no SHA-256"))?;
    let found = files.get_key_value(&format!("blobs/sha256/{hex}"));
    let (path, file) = found.ok_or_else(|| format!("lacks the blob {name}"))?;
    if file.digest.to_string() != hex || file.size != descriptor.size {
        return Err(format!("has other bytes in the blob {name} than its name says"));
    }
    Ok(path)
}

fn document<'a, T: Deserialize<'a>>(files: &'a BTreeMap<String, File>, path: &str) -> Result<T, String> {
    let file = files.get(path).ok_or_else(|| format!("lacks {path}"))?;
    let bytes = file.document.as_ref().ok_or_else(|| format!("has a {path} that is too large"))?;
    serde_json::from_slice(bytes).map_err(|error| format!("has a {path} that is not understood: {error}"))
}

/// Hashes what is read through it.
struct Hashed<R> {
    inner: R,
    hash: Sha256,
    length: u64,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.length += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
