//! Values and servers that several tests of this crate share.

pub(crate) mod small_disk;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use palisade_core::units::{Digest, Generation};
use palisade_provider::testing::FaultProvider;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::configuration::{Backend, Configuration};
use crate::register::Register;

pub(crate) const INSTALLATION: &str = "0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f";
pub(crate) const DIGEST: &str = "1237a0d19e665b387922ad3d60143d5cd530864f0e3e4ee2c5ace57a1134aa38";
pub(crate) const TOKEN: &str = "1f2e3d4c5b6a798897a6b5c4d3e2f1001f2e3d4c5b6a798897a6b5c4d3e2f100";

/// A valid docker configuration of generation 3, whose digest is [`DIGEST`].
pub(crate) fn configuration() -> Value {
    let hex = |digit: &str, length| digit.repeat(length);
    json!({
        "installation_id": INSTALLATION,
        "provider": "docker",
        "core_url": "https://core.example/api/v1",
        "generation": 3,
        "specification": {
            "resources": {"cpus": 2, "memory_mib": 4096},
            "runtime": {
                "source_commit": hex("a", 40),
                "image_id": format!("sha256:{}", hex("b", 64)),
                "image_manifest_digest": format!("sha256:{}", hex("c", 64)),
                "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("d", 64)),
                "runtime_sha256": hex("e", 64),
                "firmware_sha256": hex("f", 64),
            },
        },
        "native": {
            "host": "unix:///var/run/docker.sock",
            "image": format!("sha256:{}", hex("b", 64)),
            "network": format!("oac-node-{INSTALLATION}"),
            "seccomp_file": "/etc/palisade/seccomp.json",
        },
    })
}

/// [`configuration`], read.
pub(crate) fn parsed() -> Configuration {
    Configuration::parse(configuration().to_string().as_bytes()).unwrap()
}

/// The fingerprint of a test's backend.
pub(crate) fn fingerprint() -> Digest {
    Digest::of(b"test backend")
}

/// A backend that is ready.
pub(crate) fn ready() -> Backend {
    let generation = Generation::new(3).unwrap();
    Backend { provider: Arc::new(FaultProvider::new(generation)), fingerprint: fingerprint() }
}

/// A folder with a configuration and a token file; the state directory does not exist yet.
pub(crate) struct Host {
    pub(crate) directory: TempDir,
}

impl Host {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = Self { directory };
        write(host.path("provider.json"), configuration().to_string());
        host.write_private("token", format!("{TOKEN}\n").as_bytes());
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write_private(&self, name: &str, contents: &[u8]) {
        crate::files::replace(self.directory.path(), name, ".partial", contents).unwrap();
    }

    pub(crate) fn options(&self, core_url: &str) -> Register {
        Register {
            config: self.path("provider.json"),
            state_dir: self.path("state"),
            core_url: core_url.to_owned(),
            name: "worker-1".to_owned(),
            enrollment_token_file: self.path("token"),
            allow_insecure_origin: false,
        }
    }

    /// The bytes of `identity.json`.
    pub(crate) fn identity(&self) -> Vec<u8> {
        std::fs::read(self.path("state/identity.json")).unwrap()
    }
}

/// One request that a [`Core`] got.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// `POST /path`.
    pub(crate) line: String,
    pub(crate) authorization: String,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What a [`Core`] does with a request.
pub(crate) enum Reply {
    /// Answers with status and body.
    Answer(u16, String),
    /// Answers with status, one more header and body.
    With(u16, &'static str, String),
    /// Takes the request and closes.
    Lost,
}

/// A server on loopback that answers as a test says and keeps what it got.
pub(crate) struct Core {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Core {
    pub(crate) async fn start(reply: impl Fn(&Received) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read_request(&mut stream).await;
                let reply = reply(&request);
                kept.lock().unwrap().push(request);
                let (status, header, body) = match reply {
                    Reply::Answer(status, body) => (status, "server: core", body),
                    Reply::With(status, header, body) => (status, header, body),
                    Reply::Lost => continue,
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status} Any\r\n{header}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, received }
    }

    /// The request lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.received().into_iter().map(|request| request.line).collect()
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut TcpStream) -> Received {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let header = |wanted: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.to_owned());
        let value = values.next().unwrap_or_default();
        assert_eq!(values.next(), None, "{wanted} is sent once");
        value
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).await.unwrap();
    let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    Received { line, authorization: header("authorization"), body }
}

/// The approval of the node that a request names, as the identity route gives it.
pub(crate) fn approval(node_id: &str, max_active: i64, max_retained: i64) -> Value {
    json!({
        "specification_digest": DIGEST, "deployment_generation": 3, "node_id": node_id,
        "installation_id": INSTALLATION, "provider": "docker",
        "max_active": max_active, "max_retained": max_retained,
    })
}

/// Core's error body.
pub(crate) fn refusal(code: &str) -> String {
    json!({"error": {"message": "refused", "type": "invalid_request_error", "code": code, "param": null}}).to_string()
}

/// The node that a request on the identity route asks about.
pub(crate) fn node_id(request: &Received) -> String {
    request.line.split_once("node_id=").unwrap().1.to_owned()
}

/// Writes a file that no restart reads.
#[expect(clippy::disallowed_methods, reason = "a test's throw-away file needs no durability")]
pub(crate) fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) {
    std::fs::write(path, contents).unwrap();
}

/// The names in a directory, sorted.
pub(crate) fn files_below(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
