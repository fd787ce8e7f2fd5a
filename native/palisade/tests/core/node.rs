//! `palisade node`, `palisade generation` as processes: how they end, what they tell a service manager, and as whom they work.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::root::{CORE_REFUSES, INSTALLATION, PROXY, REFUSAL, Root, answer, private};
use crate::support::{Manager, err, palisade, run, until};

const OK: &str = "HTTP/1.1 200 OK\r\n";
/// 401, but not in Core's words.
const PROXY_REFUSES: &str = "HTTP/1.1 401 Unauthorized\r\nServer: nginx\r\n";

impl Root {
    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn node(&self) -> Command {
        let mut command = palisade();
        command.args(["node", "run", "--config", &self.text("provider.json")]);
        command.args(["--state-dir", &self.text("state/node")]).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// The status of a node that Core answers like this when it asks for its identity.
    fn status_after(&self, head: &str, body: &str) -> Option<i32> {
        self.identifying(&mut self.node(), head, body).status.code()
    }
}

/// A program that ends before it asks fails its test, with what it said.
#[test]
fn a_node_that_ends_early_is_not_waited_for() {
    let root = Root::new();
    let waiting = || root.identifying(Command::new("sh").args(["-c", "echo no such file >&2; exit 3"]), OK, "{}");
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(waiting)).unwrap_err();
    let told = told.downcast::<String>().unwrap();
    assert!(told.contains("no such file"), "{told}");
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

fn ended(child: &mut Child) -> ExitStatus {
    until("the node must end", || child.try_wait().unwrap())
}

/// H 156. 78, after which a service manager does not try again, is Core's own 401 to the credential and nothing else: when
/// the node asks for its identity, and when it dials.
#[test]
fn only_a_credential_that_core_rejects_ends_with_78() {
    let root = Root::new();
    assert_eq!(root.status_after(CORE_REFUSES, REFUSAL), Some(78));
    let mut node = root.node().spawn().unwrap();
    root.identify(OK, &root.approval(false));
    let (stream, asked) = root.request();
    assert!(asked.starts_with("GET /api/v1/sandbox-node/connect?"), "{asked}");
    answer(stream, CORE_REFUSES, REFUSAL);
    assert_eq!(ended(&mut node).code(), Some(78));
}

/// H 156. Everything else that ends a node before it serves ends it with 1: it is worth another try, or a person's look.
#[test]
fn every_other_end_of_a_node_is_1() {
    let root = Root::new();
    let forbidden = "HTTP/1.1 403 Forbidden\r\n";
    let busy = "HTTP/1.1 503 Service Unavailable\r\n";
    let foreign = root.approval(false).replace(INSTALLATION, "1b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f");
    for (head, body) in [
        (PROXY_REFUSES, "<html>who are you?</html>"),
        (forbidden, REFUSAL),
        (forbidden, "<html>no</html>"),
        (PROXY, "<html>bad gateway</html>"),
        (busy, REFUSAL),
        (OK, "<html>welcome</html>"),
        (OK, &foreign),
    ] {
        assert_eq!(root.status_after(head, body), Some(1), "{head}{body}");
    }

    let lock = std::fs::File::open(root.path("state/node/identity.lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(root.node().status().unwrap().code(), Some(1), "its identity is in use");
    drop(lock);
    let identity = std::fs::read_to_string(root.path("state/node/identity.json")).unwrap();
    private(&root.path("state/node/identity.json"), "{}");
    assert_eq!(root.node().status().unwrap().code(), Some(1), "a damaged identity");
    private(&root.path("state/node/identity.json"), &identity);
    private(&root.path("state/node/generations/7.json"), "{}");
    assert_eq!(root.node().status().unwrap().code(), Some(1), "a damaged record");
    std::fs::remove_file(root.path("state/node/generations/7.json")).unwrap();

    let Root { folder, core, .. } = root;
    drop(core);
    let file = |name: &str| folder.path().join(name);
    let mut nobody = palisade();
    nobody.args(["node", "run", "--config"]).arg(file("provider.json")).arg("--state-dir").arg(file("state/node"));
    assert_eq!(nobody.stderr(Stdio::null()).status().unwrap().code(), Some(1), "nobody answers");
}

/// H 156. What is not Core's word while the node dials is tried again; a stop ends it with 0.
#[test]
fn a_dial_that_something_else_answers_is_tried_again_until_a_stop() {
    for asked_to_stop in [Signal::SIGTERM, Signal::SIGINT] {
        let root = Root::new();
        let mut node = root.node().spawn().unwrap();
        root.identify(OK, &root.approval(false));
        for head in [PROXY_REFUSES, PROXY] {
            let (stream, asked) = root.request();
            assert!(asked.starts_with("GET /api/v1/sandbox-node/connect?"), "{asked}");
            answer(stream, head, "<html>no</html>");
        }
        signal(&node, asked_to_stop);
        assert_eq!(ended(&mut node).code(), Some(0));
    }
}

/// H 157. The version needs no folder, no engine, no network, no variable and no account of its own.
#[test]
fn the_protocol_version_needs_nothing() {
    // The executable may stand where that account may not look.
    let reachable = Path::new(env!("CARGO_BIN_EXE_palisade"));
    let copied =
        tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755)).tempdir().unwrap();
    let program = copied.path().join("palisade");
    std::fs::hard_link(reachable, &program).or_else(|_| std::fs::copy(reachable, &program).map(drop)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(&program);
    command.args(["node", "protocol-version"]).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    let output = command.output().unwrap();
    assert_eq!(
        (output.status.code(), &*output.stdout, &*output.stderr),
        (Some(0), &b"6\n"[..], &b""[..]),
        "{output:?}"
    );
    assert_eq!(run(["node", "protocol-version", "more"]).status.code(), Some(2));
}

/// A node tells the watchdog of its service manager that its tasks run, also while it waits for Core; without one, or for a
/// watchdog of another process, it tells nothing.
#[test]
fn a_node_tells_the_watchdog_that_it_runs() {
    let root = Root::new();
    let manager = Manager::at(&root.path("notify"));
    let mut node =
        root.node().env("NOTIFY_SOCKET", root.path("notify")).env("WATCHDOG_USEC", "200000").spawn().unwrap();
    for _ in 0..3 {
        assert_eq!(manager.told(), ["WATCHDOG=1"]);
    }
    signal(&node, Signal::SIGTERM);
    assert_eq!(ended(&mut node).code(), Some(0));
}

/// A preparer is the account that owns the installation, or nobody: root does not work in another account's folder, whatever
/// it might be allowed to there.
#[test]
fn a_preparer_of_root_touches_no_installation_of_another_account() {
    let root = Root::new();
    for entry in root
        .everything()
        .iter()
        .map(|(path, _)| path.clone())
        .chain(["state/node/generations", "state/node", "state", ""].map(|name| root.path(name)))
    {
        chown(entry, Some(65_534), Some(65_534)).unwrap();
    }
    let before = root.everything();
    for action in ["prepare", "collect"] {
        let digest = "ab".repeat(32);
        let output = run([
            "generation",
            action,
            "--root",
            root.folder.path().to_str().unwrap(),
            "--installation",
            INSTALLATION,
            "--generation",
            "4",
            "--specification-digest",
            &digest,
        ]);
        assert_eq!(output.status.code(), Some(1), "{action}");
        let told = err(&output);
        assert!(told.contains("expected a directory that belongs to the account of this process"), "{action}: {told}");
        assert_eq!(root.everything(), before, "{action}");
    }
}
