//! The program as a process: what it accepts, says and does on signals.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const GOOD: &str = r#"{"version":1,"link_url":"ws://127.0.0.1:9/link","credential":"synthetic-secret","resource":{
    "tenant_id":"21f2d3c4-b5a6-4798-8899-aabbccddeeff","environment_id":"31f2d3c4-b5a6-4798-8899-aabbccddeeff",
    "kind":"allocation","id":"41f2d3c4-b5a6-4798-8899-aabbccddeeff","generation":1}}"#;

fn guest() -> Command {
    Command::new(env!("CARGO_BIN_EXE_oac-sandbox-io"))
}

fn run(path: &Path) -> Output {
    guest().arg("--bootstrap-file").arg(path).output().unwrap()
}

fn bootstrap(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

/// Waits until the process waits for signals, as the kernel reports it: system call 128 is `rt_sigtimedwait`.
fn until_it_waits(child: &Child) {
    let path = format!("/proc/{}/syscall", child.id());
    while !std::fs::read_to_string(&path).unwrap().starts_with("128 ") {
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_ends_it_with_success_and_the_file_stays() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let file = bootstrap(GOOD);
        let mut child = guest().arg("--bootstrap-file").arg(file.path()).stderr(Stdio::piped()).spawn().unwrap();
        until_it_waits(&child);
        assert_eq!(child.try_wait().unwrap(), None, "stays until stopped");
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), GOOD);
    }
}

#[test]
fn a_refused_file_is_named_and_its_values_are_not() {
    let file = bootstrap(&GOOD.replacen("ws://127.0.0.1:9", "ws://core.example", 1));
    let output = run(file.path());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("link_url is not wss"), "{text}");
    assert!(!text.contains("core.example") && !text.contains("synthetic-secret"), "{text}");
}

#[test]
fn a_link_a_directory_and_a_missing_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = bootstrap(GOOD);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(file.path(), &link).unwrap();
    for refused in [link.as_path(), folder.path(), &folder.path().join("absent")] {
        assert_eq!(run(refused).status.code(), Some(1), "{}", refused.display());
    }
}

#[test]
fn other_arguments_are_a_usage_error() {
    let file = bootstrap(GOOD);
    let path = file.path().to_str().unwrap();
    for arguments in [vec![], vec!["--bootstrap-file"], vec!["--file", path], vec!["--bootstrap-file", path, "more"]] {
        assert_eq!(guest().args(arguments).output().unwrap().status.code(), Some(2));
    }
}
