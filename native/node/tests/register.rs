//! Registration with the real docker provider: what a person is told when this host is not ready.

#![allow(clippy::unwrap_used, reason = "a test panics with what surprised it")]

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use palisade_node::{Register, RegisterError};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const INSTALLATION: &str = "0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f";

fn write(path: &Path, contents: &str) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path).unwrap().write_all(contents.as_bytes()).unwrap();
}

/// A configuration whose image no engine has.
fn configuration(directory: &Path, socket: &str) -> Value {
    let image = format!("sha256:{}", "b".repeat(64));
    json!({
        "installation_id": INSTALLATION, "provider": "docker", "core_url": "https://core.example/api/v1",
        "generation": 1,
        "specification": {
            "resources": {"cpus": 1, "memory_mib": 512},
            "runtime": {
                "source_commit": "a".repeat(40), "image_id": image,
                "image_manifest_digest": format!("sha256:{}", "c".repeat(64)),
                "microsandbox_ref": format!("oac-runtime@sha256:{}", "d".repeat(64)),
                "runtime_sha256": "e".repeat(64), "firmware_sha256": "f".repeat(64),
            },
        },
        "native": {
            "host": socket, "image": image, "network": "bridge",
            "seccomp_file": directory.join("seccomp.json"),
        },
    })
}

/// Registers with this engine; nothing may have been sent to Core.
async fn refused(socket: &str) -> RegisterError {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    write(&path("seccomp.json"), r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#);
    write(&path("provider.json"), &configuration(directory.path(), socket).to_string());
    write(&path("token"), &"1".repeat(64));
    let core = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Register {
        config: path("provider.json"),
        state_dir: path("state"),
        core_url: format!("http://{}", core.local_addr().unwrap()),
        name: "worker-1".to_owned(),
        enrollment_token_file: path("token"),
        allow_insecure_origin: false,
    };
    let error = tokio::select! {
        biased;
        _ = core.accept() => panic!("something was sent before the provider was ready"),
        registered = palisade_node::register(options) => registered.unwrap_err(),
    };
    assert_eq!(error.exit_code(), 1);
    assert!(path("state/identity.json").is_file(), "the identity comes first");
    error
}

#[tokio::test]
async fn a_dead_engine_is_named_and_nothing_is_enrolled() {
    let error = refused("unix:///run/palisade-no-such-engine.sock").await.to_string();
    assert!(error.contains("docker_unavailable"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_never_answers_is_named_and_nothing_is_enrolled() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine.sock");
    let _engine = tokio::net::UnixListener::bind(&socket).unwrap();
    let error = refused(&format!("unix://{}", socket.display())).await.to_string();
    assert!(error.contains("docker_unavailable"), "{error}");
}

#[tokio::test]
async fn a_missing_image_is_named_and_nothing_is_enrolled() {
    let error = refused("unix:///var/run/docker.sock").await.to_string();
    assert!(error.contains("runtime_image_unavailable"), "expected a Docker engine without the image: {error}");
}
