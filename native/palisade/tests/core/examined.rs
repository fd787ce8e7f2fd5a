//! `palisade node doctor` on roots whose Core is a socket of the test: each finding, its next step and the exit code.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::units::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{out, run};

const INSTALLATION: &str = "0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f";
const NODE: &str = "11f2d3c4-b5a6-4798-8899-aabbccddeeff";
const CREDENTIAL: &str = "1f2e3d4c5b6a798897a6b5c4d3e2f1001f2e3d4c5b6a798897a6b5c4d3e2f100";
const PROXY: &str = "HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\n";
const CORE_REFUSES: &str = "HTTP/1.1 401 Unauthorized\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
const REFUSAL: &str =
    r#"{"error":{"message":"no","type":"invalid_request_error","code":"invalid_node_credential","param":null}}"#;

/// An enrolled node's root, and the socket that stands where its Core is.
struct Root {
    folder: TempDir,
    core: TcpListener,
    digest: Digest,
}

fn private(path: &Path, content: &str) {
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

impl Root {
    fn new() -> Self {
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

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn origin(&self) -> String {
        format!("http://{}", self.core.local_addr().unwrap())
    }

    fn configure(&self, engine: &str) {
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
    fn approval(&self, connected: bool) -> String {
        let approval = json!({
            "node_id": NODE, "installation_id": INSTALLATION, "provider": "docker", "deployment_generation": 3,
            "specification_digest": self.digest, "max_active": 2, "max_retained": 4, "connected": connected,
            "provider_ready": connected,
        });
        approval.to_string()
    }

    /// What the doctor says when its one question gets this answer; without one, nobody listens.
    fn examine(&self, head: &str, body: &str) -> Report {
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let (mut stream, _) = self.core.accept().unwrap();
                let (mut asked, mut part) = (Vec::new(), [0; 4096]);
                while !asked.ends_with(b"\r\n\r\n") {
                    let read = stream.read(&mut part).unwrap();
                    asked.extend_from_slice(&part[..read]);
                }
                let asked = String::from_utf8(asked).unwrap();
                assert!(asked.starts_with(&format!("GET /api/v1/sandbox-node/identity?node_id={NODE} ")), "{asked}");
                let length = body.len();
                write!(stream, "{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}").unwrap();
            });
            self.report()
        })
    }

    fn report(&self) -> Report {
        let before = self.everything();
        let output = run(["node", "doctor", "--json", "--root", self.folder.path().to_str().unwrap()]);
        let said = out(&output);
        assert!(!said.contains(CREDENTIAL));
        assert_eq!(self.everything(), before, "a doctor changes nothing");
        let report: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(output.status.code() == Some(0), report["problems"] == 0, "{report}");
        Report(report)
    }

    fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
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

struct Report(Value);

impl Report {
    /// State, finding and next step of a check.
    #[track_caller]
    fn of(&self, check: &str) -> [&str; 3] {
        let findings = self.0["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["check"] == check);
        let found = found.unwrap_or_else(|| panic!("no {check} in {}", self.0));
        let [state, said, next] = ["state", "found", "next"].map(|name| found[name].as_str().unwrap_or_default());
        assert_eq!(next.is_empty(), state == "ok", "every finding that is not ok has a next step: {found}");
        [state, said, next]
    }

    #[track_caller]
    fn is(&self, check: &str, state: &str, said: &str) {
        let [is, found, _] = self.of(check);
        assert!(is == state && found.contains(said), "{check}: expected {state}, {said}: {is}, {found}");
    }
}

/// E9. Core's word, a proxy's word, and nobody's word are told apart, with what answered.
#[test]
fn the_doctor_tells_core_from_what_is_between() {
    let root = Root::new();
    let known = root.examine("HTTP/1.1 200 OK\r\n", &root.approval(false));
    for check in ["root", "configuration", "engine", "records", "core", "connection"] {
        assert_eq!(known.of(check)[0], "ok", "{check}: {}", known.0);
    }
    known.is("engine", "ok", "at unix:///var/run/docker.sock: ");
    known.is("readiness", "problem", "generation 3: runtime_image_unavailable");
    known.is("identity", "warning", "no node runs on this host");
    assert_eq!(known.0["problems"], 1, "{}", known.0);

    let proxy = root.examine(PROXY, "<html>bad gateway</html>");
    proxy.is("core", "problem", "502 Bad Gateway from server \"nginx\"");
    assert!(proxy.of("core")[2].contains("that was not core"));
    let refused = root.examine(CORE_REFUSES, REFUSAL);
    refused.is("core", "problem", "401, code invalid_node_credential");
    assert!(refused.of("core")[2].starts_with("core itself answered"));
    refused.is("clock", "warning", "s ahead of core's");

    let Root { folder, core, digest } = root;
    let address = core.local_addr().unwrap();
    drop(core);
    let output = run(["node", "doctor", "--root", folder.path().to_str().unwrap()]);
    let said = out(&output);
    assert_eq!(output.status.code(), Some(1), "{digest}");
    assert!(said.contains(&format!("http://{address}: core is unreachable: no connection")), "{said}");
    assert!(said.starts_with("STATE    CHECK") && said.ends_with("problems found\n"), "{said}");
}

/// A copied state folder shows without a second connection: what Core has is compared with what runs here.
#[test]
fn the_doctor_finds_an_identity_that_is_in_use_elsewhere() {
    let root = Root::new();
    let ok = "HTTP/1.1 200 OK\r\n";
    let elsewhere = root.examine(ok, &root.approval(true));
    elsewhere.is("connection", "problem", "it does not run on this host");
    assert!(elsewhere.of("connection")[2].contains("copied to another host"));
    let lock = File::open(root.path("state/node/identity.lock")).unwrap();
    lock.lock().unwrap();
    let here = root.examine(ok, &root.approval(true));
    here.is("connection", "ok", "it runs on this host");
    here.is("identity", "ok", "in use by a node that runs on this host");
    let away = root.examine(ok, &root.approval(false));
    away.is("connection", "problem", "core has no connection of it");
    assert!(away.of("connection")[2].contains("409"));
}

/// What a node would refuse to start beside, and what it would start beside and never touch.
#[test]
fn the_doctor_names_damaged_files_and_their_next_step() {
    let root = Root::new();
    let ok = "HTTP/1.1 200 OK\r\n";
    root.configure("unix:///nowhere/docker.sock");
    let engine = root.examine(ok, &root.approval(false));
    engine.is("engine", "problem", "unix:///nowhere/docker.sock: the engine cannot be reached");

    std::fs::remove_file(root.path("state/node/generations/3.lease-identity")).unwrap();
    private(&root.path("state/node/generations/5.lease"), "");
    let leases = root.examine(ok, &root.approval(false));
    leases.is("records", "ok", "1 configured, 1 leased");
    leases.is("lease", "problem", "generation 3: ");
    private(&root.path("state/node/generations/5.dropped"), "{}");
    root.examine(ok, &root.approval(false)).is("records", "problem", "5.dropped");

    std::fs::set_permissions(root.path("provider.json"), Permissions::from_mode(0o666)).unwrap();
    let open = root.examine(ok, &root.approval(false));
    open.is("configuration", "problem", "provider.json");
    assert!(open.of("configuration")[2].contains("chmod 600"));

    std::fs::remove_file(root.path("state/node/identity.json")).unwrap();
    let unregistered = root.report();
    unregistered.is("identity", "problem", "has no identity");
    assert!(unregistered.of("identity")[2].contains("palisade node register"));
}
