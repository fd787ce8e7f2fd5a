//! An operator's day against a real Core: look, select, issue a token, reset.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "throw-away files of a test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

const KEY: &str = "core-key-of-an-operator";

/// A Core with an empty store, and its key in a file.
struct Core {
    child: Child,
    origin: String,
    folder: TempDir,
}

impl Core {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), KEY).unwrap();
        let mut child = palisade()
            .args(["core", "serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"))
            .arg("--admin-key-file")
            .arg(folder.path().join("key"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let line = BufReader::new(child.stdout.as_mut().unwrap()).lines().next().unwrap().unwrap();
        let origin = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { child, origin, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        self.ask_with(arguments, &self.path("key"), "")
    }

    fn ask_with(&self, arguments: &[&str], key: &Path, input: &str) -> Output {
        let mut child = palisade()
            .args(arguments)
            .args(["--core-url", &self.origin, "--admin-key-file"])
            .arg(key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.ask(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn palisade() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.env_clear();
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn selection(cpus: u32) -> String {
    json!({
        "provider": "docker",
        "resources": {"cpus": cpus, "memory_mib": 4096},
        "runtime": {
            "source_commit": "a".repeat(40),
            "image_id": format!("sha256:{}", "b".repeat(64)),
            "image_manifest_digest": format!("sha256:{}", "c".repeat(64)),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", "d".repeat(64)),
            "runtime_sha256": "e".repeat(64),
            "firmware_sha256": "f".repeat(64),
        },
    })
    .to_string()
}

/// Select, change, issue a token into a private file, reset and wait: each is one command, for people and for programs.
#[test]
fn an_operator_selects_issues_a_token_and_resets() {
    let core = Core::start();
    assert!(text(&core.ask(&["deployment", "show"]).stdout).starts_with("nothing is selected; generation 0\n"));
    let applied = core.ask_with(&["deployment", "apply"], &core.path("key"), &selection(2));
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    assert!(text(&applied.stdout).starts_with("docker at generation 1\n"), "{}", text(&applied.stdout));
    std::fs::write(core.path("selection"), selection(4)).unwrap();
    let changed = core.json(&["deployment", "apply", core.path("selection").to_str().unwrap()]);
    assert_eq!((&changed["generation"], &changed["specification"]["resources"]["cpus"]), (&json!(2), &json!(4)));
    assert_eq!(core.json(&["nodes", "list"]), json!({"data": []}));

    let file = core.path("token");
    let issued = core.ask(&["tokens", "create", "--out", file.to_str().unwrap(), "--max-active", "3"]);
    assert!(issued.status.success(), "{}", text(&issued.stderr));
    let token = std::fs::read_to_string(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(token.trim().len(), 64);
    assert!(!text(&issued.stdout).contains(token.trim()) && !text(&issued.stderr).contains(token.trim()));
    let again = core.ask(&["tokens", "create", "--out", file.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(1), "an existing file is not overwritten");

    let reset = core.json(&["deployment", "reset", "--wait"]);
    assert_eq!((&reset["generation"], &reset["provider"], &reset["reset"]), (&json!(3), &json!(""), &Value::Null));
}

/// Refusals end with 1 and say what was wrong and what is expected; the key is never shown.
#[test]
fn refusals_are_told_and_the_key_is_not() {
    let core = Core::start();
    let refused = core.ask(&["deployment", "reset"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("sandbox_not_configured"), "{}", text(&refused.stderr));
    let invalid = core.ask_with(&["deployment", "apply"], &core.path("key"), &selection(0));
    let told = text(&invalid.stderr);
    assert!(told.contains("resources.cpus") && told.contains("min 1") && told.contains("max 255"), "{told}");
    let malformed = core.ask_with(&["deployment", "apply"], &core.path("key"), "[]");
    assert!(text(&malformed.stderr).contains("standard input holds no selection"), "{}", text(&malformed.stderr));
    let unknown = core.ask(&["nodes", "show", "94be54a1-138c-4f30-bc87-b13686272dbe"]);
    assert!(text(&unknown.stderr).contains("not_found_error"), "{}", text(&unknown.stderr));
    assert_eq!(core.ask(&["nodes", "show", "one"]).status.code(), Some(2));
    std::fs::write(core.path("foreign"), "another-key-of-somebody").unwrap();
    let foreign = core.ask_with(&["nodes", "list"], &core.path("foreign"), "");
    let told = text(&foreign.stderr);
    assert!(told.contains("invalid_admin_key") && !told.contains("another-key"), "{told}");
    let nobody = palisade()
        .args(["deployment", "show", "--core-url", "http://127.0.0.1:1", "--admin-key-file"])
        .arg(core.path("key"))
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    let told = text(&nobody.stderr);
    assert!(
        told.contains("core did not answer at http://127.0.0.1:1: ") && told.contains("is it running there"),
        "{told}"
    );
    assert!(!told.contains("may have been made") && !told.contains(KEY), "{told}");
}
