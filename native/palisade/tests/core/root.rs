//! The root of an enrolled node, and the socket that stands where its Core is.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::units::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::until;

pub(crate) const INSTALLATION: &str = "0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f";
pub(crate) const NODE: &str = "11f2d3c4-b5a6-4798-8899-aabbccddeeff";
pub(crate) const CREDENTIAL: &str = "1f2e3d4c5b6a798897a6b5c4d3e2f1001f2e3d4c5b6a798897a6b5c4d3e2f100";
pub(crate) const PROXY: &str = "HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\n";
pub(crate) const CORE_REFUSES: &str = "HTTP/1.1 401 Unauthorized\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
pub(crate) const REFUSAL: &str =
    r#"{"error":{"message":"no","type":"invalid_request_error","code":"invalid_node_credential","param":null}}"#;

/// An enrolled node's root, and the socket that stands where its Core is.
pub(crate) struct Root {
    pub(crate) folder: TempDir,
    pub(crate) core: TcpListener,
    digest: Digest,
}

pub(crate) fn private(path: &Path, content: &str) {
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

impl Root {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        DirBuilder::new().mode(0o700).recursive(true).create(folder.path().join("state/node/generations")).unwrap();
        std::fs::create_dir(folder.path().join("runtime")).unwrap();
        let core = TcpListener::bind("127.0.0.1:0").unwrap();
        let specification = specification().to_string();
        let digest = Specification::parse(Provider::Docker, specification.as_bytes()).unwrap().digest();
        let root = Self { folder, core, digest };
        root.configure("unix:///var/run/docker.sock");
        private(&root.path("runtime/seccomp.json"), r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#);
        root.enroll();
        root
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.core.local_addr().unwrap())
    }

    pub(crate) fn configure(&self, engine: &str) {
        let configuration = json!({
            "installation_id": INSTALLATION, "provider": "docker", "core_url": format!("{}/api/v1", self.origin()),
            "generation": 3, "specification": specification(),
            "native": {
                "host": engine, "image": format!("sha256:{}", "b".repeat(64)),
                "network": format!("oac-node-{INSTALLATION}"), "seccomp_file": self.path("runtime/seccomp.json"),
            },
        });
        private(&self.path("provider.json"), &configuration.to_string());
    }

    /// What a registration leaves.
    fn enroll(&self) {
        let identity = json!({
            "identity": {
                "node_id": NODE, "installation_id": INSTALLATION, "provider": "docker",
                "backend_fingerprint": Digest::of(b"docker\0unix:///var/run/docker.sock"),
                "deployment_generation": 3, "specification_digest": self.digest, "max_active": 2, "max_retained": 4,
            },
            "credential": CREDENTIAL, "core_url": self.origin(), "owner_epoch": 4,
        });
        private(&self.path("state/node/identity.json"), &identity.to_string());
        private(&self.path("state/node/identity.lock"), "");
        private(&self.path("state/node/generations/3.lease"), "");
        let lease = std::fs::metadata(self.path("state/node/generations/3.lease")).unwrap();
        let record = json!({
            "installation_id": INSTALLATION, "generation": 3, "specification_digest": self.digest,
            "device": lease.dev(), "inode": lease.ino(),
        });
        private(&self.path("state/node/generations/3.lease-identity"), &record.to_string());
    }

    /// An answer of Core itself.
    pub(crate) fn approval(&self, connected: bool) -> String {
        let approval = json!({
            "node_id": NODE, "installation_id": INSTALLATION, "provider": "docker", "deployment_generation": 3,
            "specification_digest": self.digest, "max_active": 2, "max_retained": 4, "connected": connected,
            "provider_ready": connected,
        });
        approval.to_string()
    }

    /// Waits for a connection and reads the head of its request.
    pub(crate) fn request(&self) -> (TcpStream, String) {
        read(until("something must ask core", || self.accept()))
    }

    /// Runs a program to its end that asks for the identity once and gets this answer.
    ///
    /// # Panics
    /// When it ends before it asks, with what it said.
    pub(crate) fn identifying(&self, command: &mut Command, head: &str, body: &str) -> Output {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let asked = until("it must ask or end", || match self.accept() {
            Some(stream) => Some(Some(stream)),
            None => child.try_wait().unwrap().map(|_| None),
        });
        let answered = asked.map(|stream| Self::identified(read(stream), head, body));
        let output = child.wait_with_output().unwrap();
        assert!(answered.is_some(), "it ended before it asked who it is: {output:?}");
        output
    }

    /// A connection that somebody has made.
    fn accept(&self) -> Option<TcpStream> {
        self.core.set_nonblocking(true).unwrap();
        match self.core.accept() {
            Ok((stream, _)) => Some(stream),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Answers the question about the identity.
    pub(crate) fn identify(&self, head: &str, body: &str) {
        Self::identified(self.request(), head, body);
    }

    fn identified((stream, asked): (TcpStream, String), head: &str, body: &str) {
        assert!(asked.starts_with(&format!("GET /api/v1/sandbox-node/identity?node_id={NODE} ")), "{asked}");
        answer(stream, head, body);
    }

    /// Everything that the root holds.
    pub(crate) fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut folders, mut files) = (vec![self.folder.path().to_owned()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push((path.clone(), std::fs::read(path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }
}

/// The head of a request.
fn read(mut stream: TcpStream) -> (TcpStream, String) {
    let (mut asked, mut part) = (Vec::new(), [0; 4096]);
    while !asked.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "the connection ended within a request");
        asked.extend_from_slice(&part[..read]);
    }
    (stream, String::from_utf8(asked).unwrap())
}

/// One answer, and the end.
pub(crate) fn answer(mut stream: TcpStream, head: &str, body: &str) {
    let length = body.len();
    write!(stream, "{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}").unwrap();
}

fn specification() -> Value {
    let hex = |digit: &str, length| digit.repeat(length);
    json!({
        "resources": {"cpus": 1, "memory_mib": 512},
        "runtime": {
            "source_commit": hex("a", 40), "image_id": format!("sha256:{}", hex("b", 64)),
            "image_manifest_digest": format!("sha256:{}", hex("c", 64)),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("d", 64)),
            "runtime_sha256": hex("e", 64), "firmware_sha256": hex("f", 64),
        },
    })
}
