//! `palisade fleet` as an operator runs it: the real executable, a real Core, real sockets.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const KEY: &str = "core-key-of-the-fleet-tests";

fn palisade(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.args(arguments).env_clear().env("TMPDIR", folder).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A running process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Core with a deployment, and its origin.
async fn core(folder: &Path) -> (Running, String) {
    let (data, keys) = (folder.join("data"), folder.join("keys"));
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&keys).unwrap().write_all(KEY.as_bytes()).unwrap();
    let arguments = ["core", "serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let mut command = palisade(folder, &arguments);
    command.args(["--admin-key-file", keys.to_str().unwrap()]).stderr(Stdio::null());
    let mut core = Running(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(core.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let origin = line.trim().rsplit_once(" on ").unwrap().1.to_owned();
    let hex = |digit: &str, length| digit.repeat(length);
    let selection = json!({
        "expected_generation": 0, "provider": "docker", "resources": { "cpus": 1, "memory_mib": 512 },
        "runtime": {
            "source_commit": hex("a", 40), "image_id": format!("sha256:{}", hex("b", 64)),
            "image_manifest_digest": format!("sha256:{}", hex("c", 64)),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("d", 64)),
            "runtime_sha256": hex("e", 64), "firmware_sha256": hex("f", 64),
        },
    });
    let http = reqwest::Client::new();
    let request = http.post(format!("{origin}/core/v1/sandbox/deployment")).bearer_auth(KEY).json(&selection);
    assert!(request.send().await.unwrap().status().is_success());
    (core, origin)
}

async fn nodes(origin: &str) -> Vec<Value> {
    let request = reqwest::Client::new().get(format!("{origin}/core/v1/sandbox/nodes")).bearer_auth(KEY);
    let list: Value = request.send().await.unwrap().json().await.unwrap();
    list["data"].as_array().unwrap().clone()
}

#[test]
fn a_fleet_with_a_core_of_its_own_measures_it_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["fleet", "--core", "--nodes", "5", "--duration", "11", "--json"];
    let output = palisade(folder.path(), &arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["connections_open"], &report["interrupted"]), (&json!(5), &json!(false)), "{report}");
    assert!(report["heartbeats_sent"].as_u64().unwrap() >= 5, "{report}");
    assert_eq!(report["heartbeats_acknowledged"], report["heartbeats_sent"]);
    assert_eq!((&report["refused"], &report["closed"]), (&json!({}), &json!({})));
    assert!(report["core_cpu"]["user"].is_number() && report["core_memory"]["resident_bytes"].is_number(), "{report}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "everything is removed");
}

#[tokio::test]
async fn an_interrupted_fleet_removes_its_nodes_from_a_core_that_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (_core, origin) = core(folder.path()).await;
    let keys = folder.path().join("keys");
    let arguments = ["fleet", "--core-url", &origin, "--nodes", "4", "--duration", "3600", "--json"];
    let mut command = palisade(folder.path(), &arguments);
    command.args(["--admin-key-file", keys.to_str().unwrap()]).stderr(Stdio::piped());
    let mut fleet = Running(command.spawn().unwrap());
    let progress = BufReader::new(fleet.0.stderr.take().unwrap());
    let mut lines = progress.lines();
    assert!(lines.any(|line| line.unwrap().contains("connected 4 of 4 nodes; measuring")));
    let online = nodes(&origin).await;
    assert_eq!(online.iter().filter(|node| node["online"] == true && node["provider_ready"] == false).count(), 4);

    kill(Pid::from_raw(fleet.0.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(fleet.0.wait().unwrap().code(), Some(1), "{rest:?}");
    let report: Value = serde_json::from_reader(fleet.0.stdout.take().unwrap()).unwrap();
    assert_eq!((&report["connections_open"], &report["interrupted"]), (&json!(4), &json!(true)), "{report}");
    assert_eq!(nodes(&origin).await, Vec::<Value>::new());
}

#[test]
fn a_fleet_needs_one_core_and_a_key_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let code = |arguments: &[&str]| palisade(folder.path(), arguments).output().unwrap().status.code();
    assert_eq!(code(&["fleet"]), Some(2));
    assert_eq!(code(&["fleet", "--core", "--core-url", "http://127.0.0.1:1"]), Some(2));
    assert_eq!(code(&["fleet", "--core-url", "http://127.0.0.1:1"]), Some(2));
    assert_eq!(code(&["fleet", "--core", "--nodes", "20001"]), Some(2));
}
