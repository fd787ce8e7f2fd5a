//! The command line as scripts see it: arguments in, output and exit code out.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn palisade(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments ends without reading.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn code(arguments: &[&str]) -> i32 {
    palisade(arguments, b"").status.code().unwrap()
}

const HEARTBEAT_ACK: &[u8] =
    br#"{"version":6,"type":"heartbeat_ack","connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e",
    "owner_epoch":12,"deployment":{"generation":4,"serving_generation":null,
    "specification_digest":"392b14a9cab7593ba1f7749134bd5b6d25344e4181f07ee9b8d0918a1649844f"}}"#;
const REQUEST: &[u8] = br#"{"version":6,"type":"request","request":{"deployment_generation":3,"sequence":1,
    "id":"11f2d3c4-b5a6-4798-8899-aabbccddeeff","connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e","owner_epoch":12,
    "operation":"info","timeout_ms":120001,"reference":{"TenantID":"21f2d3c4-b5a6-4798-8899-aabbccddeeff",
    "EnvironmentID":"31f2d3c4-b5a6-4798-8899-aabbccddeeff","AllocationID":"41f2d3c4-b5a6-4798-8899-aabbccddeeff"}}}"#;
const E2B: &[u8] = br#" { "resources": { "memory_mib": 512, "cpus": 1 } } "#;
const E2B_DIGEST: &str = "bfedd8252478cfeb7e927ccd9aab6e812e0a35405046db3cf023fe62a869de04";

#[test]
fn a_digest_is_printed_plain_as_json_and_with_its_canonical_bytes() {
    let plain = palisade(&["spec", "digest", "--provider", "e2b"], E2B);
    assert_eq!((plain.status.code(), text(&plain.stdout)), (Some(0), &*format!("{E2B_DIGEST}\n")));
    let json = palisade(&["spec", "digest", "--provider", "e2b", "--json"], E2B);
    assert_eq!(text(&json.stdout), format!("{{\"digest\":\"{E2B_DIGEST}\"}}\n"));
    let canonical = palisade(&["spec", "digest", "--provider", "e2b", "--canonical"], E2B);
    assert_eq!(text(&canonical.stdout), r#"{"provider":"e2b","resources":{"cpus":1,"memory_mib":512}}"#);
}

#[test]
fn a_refused_specification_ends_with_1_and_its_reason() {
    let refused = palisade(&["spec", "digest", "--provider", "e2b"], br#"{"resources":{"cpus":0,"memory_mib":512}}"#);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(text(&refused.stderr), "error: resources.cpus must be an integer from 1 to 255\n");
    assert_eq!(text(&refused.stdout), "");
    for nothing in ["", " \n"] {
        let empty = palisade(&["spec", "digest", "--provider", "docker"], nothing.as_bytes());
        assert_eq!((empty.status.code(), text(&empty.stdout)), (Some(1), ""));
        assert!(
            text(&empty.stderr).starts_with("error: the specification is empty, expected"),
            "{}",
            text(&empty.stderr)
        );
    }
}

#[test]
fn a_frame_is_judged_in_one_object() {
    let ok = palisade(&["frame", "check"], HEARTBEAT_ACK);
    assert_eq!(text(&ok.stdout), "{\"grade\":\"ok\",\"type\":\"heartbeat_ack\",\"reason\":null}\n");
    assert_eq!(ok.status.code(), Some(0));
    // It decodes and has every member, but asks for more time than there is.
    let greedy = palisade(&["frame", "check"], REQUEST);
    assert_eq!(
        text(&greedy.stdout).split_once(",\"reason\"").unwrap().0,
        r#"{"grade":"invalid_request","type":"request""#
    );
    assert_eq!(greedy.status.code(), Some(1));
    let wrong = palisade(&["frame", "check"], br#"{"version":5,"type":"heartbeat_ack"}"#);
    let verdict: Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert_eq!((wrong.status.code(), &verdict["grade"]), (Some(1), &Value::from("invalid_frame")));
    assert!(verdict["reason"].is_string(), "{verdict}");
    assert_eq!(verdict.as_object().unwrap().len(), 3);
}

#[test]
fn frames_on_lines_get_one_object_each() {
    // An empty frame, a text that is no base64, and JSON of another type.
    let output = palisade(&["frame", "check", "--base64-lines"], b"\nno base64!\ne30=\n");
    let verdicts: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(verdicts.len(), 3);
    assert!(verdicts.iter().all(|verdict| verdict["grade"] == "invalid_frame"), "{verdicts:?}");
    assert_eq!(verdicts[0]["reason"], "line 1 is empty, expected a frame in base64");
    assert_eq!(verdicts[1]["reason"], "line 2 is no canonical padded base64");
    let nothing = palisade(&["frame", "check", "--base64-lines"], b"");
    assert_eq!((nothing.status.code(), text(&nothing.stdout)), (Some(1), ""));
    let reason = "error: the input has no line, expected one frame in base64 on each line\n";
    assert_eq!(text(&nothing.stderr), reason);
}

#[test]
fn a_line_longer_than_any_frame_is_one_verdict_and_the_next_line_is_judged() {
    let mut lines = vec![b'A'; 100_663_300 + 8_192];
    lines.extend_from_slice(b"\ne30=\n");
    let output = palisade(&["frame", "check", "--base64-lines"], &lines);
    let verdicts: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let reasons: Vec<_> = verdicts.iter().map(|verdict| verdict["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["line 1 is longer than the longest frame", "not protocol version 6"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_reason_of_a_frame_names_the_place_and_no_content() {
    let unknown = palisade(&["frame", "check"], b"{\"version\":6,\"type\":\"welcome\",\n\"secret-member\":1}");
    let verdict: Value = serde_json::from_slice(&unknown.stdout).unwrap();
    assert_eq!(verdict["reason"], "unknown member, at line 2 column 15");
}

#[test]
fn a_folder_for_a_file_is_named() {
    for arguments in [&["frame", "check", "/"][..], &["spec", "digest", "--provider", "e2b", "/"]] {
        let refused = palisade(arguments, b"");
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), ""));
        assert!(text(&refused.stderr).starts_with("error: cannot read /: "), "{}", text(&refused.stderr));
    }
}

/// W 154.
#[test]
fn the_protocol_version_needs_nothing_and_takes_nothing() {
    let version = palisade(&["node", "protocol-version"], b"");
    assert_eq!((version.status.code(), text(&version.stdout)), (Some(0), "6\n"));
    assert_eq!(code(&["node", "protocol-version", "more"]), 2);
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [
        &["unknown"][..],
        &["core", "serve"],
        &["core", "serve", "--data", "a", "--database-url", "b"],
        &["core", "serve", "--data", "a", "--public-url", "ftp://core.example"],
        &["core", "serve", "--data", "a", "--public-url", "https://core.example/path"],
        &["sessions", "run", "--project-key-file", "k", "--directory", "relative", "true"],
        &["nodes", "install-command", "--admin-key-file", "k", "--max-active", "0"],
        &["node", "run"],
        &["node", "run", "--config", "relative", "--state-dir", "/absolute"],
        &["node", "register", "--config", "/c"],
        &["spec", "digest"],
        &["spec", "digest", "--provider", "other"],
        &["frame", "check", "--unknown"],
        &["release", "build"],
        &["completion", "other"],
    ] {
        assert_eq!(code(arguments), 2, "{arguments:?}");
    }
}

#[test]
fn a_wrong_value_is_named_by_its_option() {
    let told = palisade(&["core", "serve", "--data", "a", "--public-url", "ftp://hunter2"], b"");
    assert!(
        text(&told.stderr).contains("public_url is not understood (option --public-url)"),
        "{}",
        text(&told.stderr)
    );
    assert!(!text(&told.stderr).contains("hunter2"));
    let told = palisade(&["sessions", "run", "--project-key-file", "k", "--directory", "rel", "true"], b"");
    let told = text(&told.stderr);
    assert!(told.contains("--directory") && told.contains("absolute path inside the sandbox"), "{told}");
}

/// What stands between an operator and Core is told from Core, with what to look at.
#[test]
fn an_operator_behind_a_proxy_is_told_who_answered() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let mut file = std::fs::OpenOptions::new();
    file.write(true).create_new(true).mode(0o600).open(&key).unwrap().write_all(b"a-core-key-of-some-length").unwrap();
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap().to_string();
    let heads = [
        ("407 Proxy Authentication Required", "no_proxy"),
        ("302 Found", "sends callers elsewhere"),
        ("502 Bad Gateway", "does not reach core"),
        ("403 Forbidden", "the proxy variables"),
        ("200 OK", "does core answer there, or a proxy?"),
    ];
    let asked = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command.args(arguments).arg("--admin-key-file").arg(&key).env_clear().envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr).to_owned()
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for (head, _) in heads {
                let (mut stream, _) = proxy.accept().unwrap();
                let mut request = [0; 4096];
                assert!(std::io::Read::read(&mut stream, &mut request).unwrap() > 0);
                let body = "<html>hunter2</html>";
                write!(stream, "HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
                    .unwrap();
            }
        });
        for (head, expected) in heads {
            let told = asked(&["nodes", "list", "--core-url", "http://core.invalid"], &[("http_proxy", &address)]);
            assert!(told.contains(expected) && !told.contains("hunter2"), "{head}: {told}");
            let status = head.split(' ').next().unwrap();
            assert!(status == "200" || told.contains(&format!("answered with status {status}")), "{told}");
        }
    });
    drop(proxy);
    let told = asked(&["nodes", "list", "--core-url", "http://core.invalid"], &[("http_proxy", &address)]);
    assert!(told.contains("http_proxy names a proxy, which may be what does not answer"), "{told}");
    let told = asked(&["nodes", "list", "--core-url", &format!("http://{address}")], &[]);
    assert!(told.contains("core did not answer") && !told.contains("proxy"), "{told}");
}

#[test]
fn core_does_not_start_without_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let refused = palisade(&["core", "serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()], b"");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--admin-key-file"), "{}", text(&refused.stderr));
    assert!(!data.exists(), "nothing is made by a start that is refused");
}

#[test]
fn a_node_that_was_never_registered_has_no_status() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let refused = palisade(&["node", "status", "--state-dir", state.to_str().unwrap()], b"");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).starts_with("error: "), "{}", text(&refused.stderr));
    assert!(!state.exists());
}

/// Libraries log what they carry below `info`: command lines, credentials, standard input and output.
#[test]
fn no_library_is_heard_below_info_whatever_the_operator_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let image = format!("sha256:{}", "b".repeat(64));
    let configuration = serde_json::json!({
        "installation_id": "0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f", "provider": "docker", "generation": 1,
        "core_url": "http://127.0.0.1:9/api/v1",
        "specification": {"resources": {"cpus": 1, "memory_mib": 512}, "runtime": {
            "source_commit": "a".repeat(40), "image_id": image, "image_manifest_digest": image,
            "microsandbox_ref": format!("oac-runtime@{image}"),
            "runtime_sha256": "e".repeat(64), "firmware_sha256": "f".repeat(64)}},
        "native": {"host": format!("unix://{}", path("engine.sock")), "image": image, "network": "none",
            "seccomp_file": path("seccomp.json")},
    });
    for (name, content) in
        [("provider.json", &*configuration.to_string()), ("seccomp.json", "{}"), ("token", "enrollment-token")]
    {
        let mut file = std::fs::OpenOptions::new();
        file.write(true).create_new(true).mode(0o600).open(path(name)).unwrap().write_all(content.as_bytes()).unwrap();
    }
    let engine = std::os::unix::net::UnixListener::bind(path("engine.sock")).unwrap();
    std::thread::spawn(move || engine.incoming().for_each(drop));
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["node", "register", "--core-url", "http://127.0.0.1:9", "--config", &path("provider.json")])
        .args(["--state-dir", &path("state"), "--enrollment-token-file", &path("token")])
        .env("PALISADE_LOG", "trace")
        .output()
        .unwrap();
    let log = text(&output.stderr);
    assert!(log.contains("error: the provider is not ready"), "{log}");
    assert!(!log.contains("TRACE") && !log.contains("DEBUG"), "{log}");
}

#[test]
fn every_shell_gets_a_completion_and_every_command_a_help() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&palisade(&["completion", shell], b"").stdout).contains("palisade"));
    }
    for command in [
        &["core", "serve"][..],
        &["node", "register"],
        &["node", "run"],
        &["node", "status"],
        &["spec", "digest"],
        &["frame", "check"],
        &["release", "build"],
        &["demo"],
    ] {
        let help = palisade(&[command, &["--help"]].concat(), b"");
        assert_eq!(help.status.code(), Some(0));
        assert!(text(&help.stdout).contains("Usage: palisade"), "{command:?}");
    }
    assert!(text(&palisade(&["--version"], b"").stdout).starts_with("palisade "));
}

#[test]
fn a_result_that_cannot_be_written_ends_with_1_and_no_panic() {
    for arguments in [&["node", "protocol-version"][..], &["completion", "bash"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_palisade")).args(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).starts_with("error: cannot write to standard output: "), "{arguments:?}");
    }
}

#[test]
fn a_log_filter_that_is_not_understood_is_said() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    let output = command.args(["node", "protocol-version"]).env("PALISADE_LOG", "palisade=loud").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "6\n"));
    assert!(text(&output.stderr).starts_with("warning: PALISADE_LOG is not understood, info is used: "));
}
