//! What a new sandbox is given before it starts (node-host §10.2).

use palisade_core::outcome::Failure;
use palisade_core::sandbox_io::{Resource, ResourceKind, SandboxIo};
use palisade_core::units::{Generation, Id};
use palisade_core::wire::payload::{Bootstrap, Reference};
use palisade_provider::flattened;

/// Where the guest finds its bootstrap.
pub(crate) const FILE: &str = "/home/runtime/sandbox-io-bootstrap.json";

const ACCOUNT: u64 = 1000;

/// Two archives, each with the directory it is unpacked into.
pub(crate) struct Files {
    pub(crate) home: Vec<u8>,
    pub(crate) environment: Vec<u8>,
}

impl Files {
    /// Checks the bootstrap and packs it.
    pub(crate) fn pack(reference: Reference, bootstrap: &Bootstrap<'_>) -> Result<Self, Failure> {
        let bytes = link(reference, bootstrap)?.encode().map_err(|_| Failure::Invalid)?;
        Ok(Self { home: home(&bytes), environment: environment() })
    }
}

fn link(reference: Reference, bootstrap: &Bootstrap<'_>) -> Result<SandboxIo, Failure> {
    let texts = flattened(reference);
    let same = bootstrap.tenant_id == texts.tenant_id
        && bootstrap.environment_id == texts.environment_id
        && bootstrap.allocation_id == texts.allocation_id;
    let known = Id::parse(&bootstrap.session_id).is_ok() && Id::parse(&bootstrap.device_id).is_ok();
    if !same || !known {
        return Err(Failure::Invalid);
    }
    Ok(SandboxIo {
        link_url: link_url(&bootstrap.core_url).ok_or(Failure::Invalid)?,
        credential: bootstrap.credential.0.clone().into_owned(),
        resource: Resource {
            tenant_id: reference.tenant,
            environment_id: reference.environment,
            kind: ResourceKind::Allocation,
            id: reference.allocation,
            generation: Generation::FIRST,
        },
    })
}

/// `https://host/api/v1` becomes `wss://host/api/v1/sandbox-io/connect`; [`SandboxIo`] judges the rest.
fn link_url(core_url: &str) -> Option<String> {
    let socket = match core_url.split_once("://")? {
        ("https", rest) => format!("wss://{rest}"),
        ("http", rest) => format!("ws://{rest}"),
        _ => return None,
    };
    Some(format!("{}/sandbox-io/connect", socket.trim_end_matches('/')))
}

fn home(bootstrap: &[u8]) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.directory("runtime/");
    archive.file("runtime/sandbox-io-bootstrap.json", bootstrap);
    archive.finish()
}

fn environment() -> Vec<u8> {
    let mut archive = Archive::default();
    for directory in ["workspace/", "initialization/", "packages/"] {
        archive.directory(directory);
    }
    archive.finish()
}

/// A tar archive in memory whose entries belong to the sandbox's account alone.
struct Archive(tar::Builder<Vec<u8>>);

impl Default for Archive {
    fn default() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }
}

impl Archive {
    fn directory(&mut self, path: &str) {
        self.entry(path, tar::EntryType::Directory, 0o700, &[]);
    }

    fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, tar::EntryType::Regular, 0o600, content);
    }

    fn entry(&mut self, path: &str, kind: tar::EntryType, mode: u32, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(ACCOUNT);
        header.set_gid(ACCOUNT);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        self.0.append_data(&mut header, path, content).expect("writing to memory with a short path cannot fail");
    }

    fn finish(self) -> Vec<u8> {
        self.0.into_inner().expect("writing to memory cannot fail")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use palisade_provider::testing::{CREDENTIAL, bootstrap, reference};

    fn entries(archive: &[u8]) -> Vec<(String, u32, u64, u64, String)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().display().to_string();
            (path, header.mode().unwrap(), header.uid().unwrap(), header.gid().unwrap(), content)
        });
        entries.collect()
    }

    /// H 186. Only the public input is delivered, with its mode and owner.
    #[test]
    fn only_the_public_input_is_delivered() {
        let files = Files::pack(reference(1), &bootstrap(reference(1))).unwrap();
        let home = entries(&files.home);
        let names: Vec<_> = home.iter().map(|(path, mode, uid, gid, _)| (path.as_str(), *mode, *uid, *gid)).collect();
        assert_eq!(names, [("runtime/", 0o700, 1000, 1000), ("runtime/sandbox-io-bootstrap.json", 0o600, 1000, 1000)]);
        let delivered = SandboxIo::decode(home[1].4.as_bytes()).unwrap();
        assert_eq!(delivered.link_url, "wss://core.example/api/v1/sandbox-io/connect");
        assert_eq!(delivered.credential, CREDENTIAL);
        assert_eq!(delivered.resource.id, reference(1).allocation);
        for (path, mode, uid, gid, content) in entries(&files.environment) {
            assert_eq!((mode, uid, gid, content.as_str()), (0o700, 1000, 1000, ""), "{path}");
        }
    }

    /// W 134. A bad bootstrap is invalid before anything native.
    #[test]
    fn bad_bootstrap_is_invalid() {
        type Change = fn(&mut Bootstrap<'static>);
        let changes: [Change; 8] = [
            |b| b.allocation_id = b.tenant_id.clone(),
            |b| b.session_id = "session".into(),
            |b| b.device_id = "".into(),
            |b| b.core_url = "http://core.example/api/v1".into(),
            |b| b.core_url = "ftp://core.example/api/v1".into(),
            |b| b.core_url = "https://user@core.example/api/v1".into(),
            |b| b.core_url = "https://core.example/api/v1?x=1".into(),
            |b| b.credential.0 = "two words".into(),
        ];
        for change in changes {
            let mut bad = bootstrap(reference(1));
            change(&mut bad);
            assert!(Files::pack(reference(1), &bad).is_err());
        }
        let mut loopback = bootstrap(reference(1));
        loopback.core_url = "http://127.0.0.1:8080/api/v1".into();
        assert!(Files::pack(reference(1), &loopback).is_ok());
    }
}
