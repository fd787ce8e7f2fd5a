//! `palisade node doctor` on roots whose Core is a socket of the test: each finding, its next step and the exit code.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::root::{CORE_REFUSES, CREDENTIAL, PROXY, REFUSAL, Root, private};
use crate::support::{err, out, palisade, run};

const OK: &str = "HTTP/1.1 200 OK\r\n";

impl Root {
    /// What the doctor says when its one question gets this answer.
    fn examine(&self, head: &str, body: &str) -> Report {
        self.judged(|doctor| self.identifying(doctor, head, body))
    }

    fn report(&self) -> Report {
        self.judged(|doctor| doctor.output().unwrap())
    }

    fn judged(&self, run: impl FnOnce(&mut Command) -> Output) -> Report {
        let (before, mut doctor) = (self.everything(), palisade());
        doctor.args(["node", "doctor", "--json", "--root"]).arg(self.folder.path()).stdin(Stdio::null());
        let output = run(&mut doctor);
        let said = out(&output);
        assert!(!said.contains(CREDENTIAL));
        assert_eq!(self.everything(), before, "a doctor changes nothing");
        let report: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(output.status.code() == Some(0), report["problems"] == 0, "{report}");
        Report(report)
    }
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
    let known = root.examine(OK, &root.approval(false));
    // As root, so that this very test is what it warns of.
    known.is("root", "warning", "the node runs as root");
    for check in ["configuration", "engine", "records", "core", "connection"] {
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

    let Root { folder, core, .. } = root;
    let address = core.local_addr().unwrap();
    drop(core);
    let output = run(["node", "doctor", "--root", folder.path().to_str().unwrap()]);
    let said = out(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains(&format!("http://{address}: core is unreachable: no connection")), "{said}");
    assert!(said.starts_with("STATE    CHECK") && said.ends_with("problems found\n"), "{said}");
}

/// A copied state folder shows without a second connection: what Core has is compared with what runs here.
#[test]
fn the_doctor_finds_an_identity_that_is_in_use_elsewhere() {
    let root = Root::new();
    let elsewhere = root.examine(OK, &root.approval(true));
    elsewhere.is("connection", "problem", "it does not run on this host");
    assert!(elsewhere.of("connection")[2].contains("copied to another host"));
    let lock = File::open(root.path("state/node/identity.lock")).unwrap();
    lock.lock().unwrap();
    let here = root.examine(OK, &root.approval(true));
    here.is("connection", "ok", "it runs on this host");
    here.is("identity", "ok", "in use by a node that runs on this host");
    let away = root.examine(OK, &root.approval(false));
    away.is("connection", "problem", "core has no connection of it");
    assert!(away.of("connection")[2].contains("409"));
}

/// What a node would refuse to start beside, and what it would start beside and never touch.
#[test]
fn the_doctor_names_damaged_files_and_their_next_step() {
    let root = Root::new();
    root.configure("unix:///nowhere/docker.sock");
    let engine = root.examine(OK, &root.approval(false));
    engine.is("engine", "problem", "unix:///nowhere/docker.sock: the engine cannot be reached");

    std::fs::remove_file(root.path("state/node/generations/3.lease-identity")).unwrap();
    private(&root.path("state/node/generations/5.lease"), "");
    let leases = root.examine(OK, &root.approval(false));
    leases.is("records", "ok", "1 configured, 1 leased");
    leases.is("lease", "problem", "generation 3: ");
    let listed = run(["node", "generations", "--root", root.folder.path().to_str().unwrap()]);
    assert!(listed.status.success() && out(&listed).contains("generation 5  leased"), "{}", out(&listed));
    assert!(out(&listed).contains("next           its lease has no record"), "{}", out(&listed));
    private(&root.path("state/node/generations/5.dropped"), "{}");
    let listed = run(["node", "generations", "--json", "--root", root.folder.path().to_str().unwrap()]);
    assert!(listed.status.code() == Some(1) && err(&listed).contains("5.dropped"), "{}", err(&listed));
    root.examine(OK, &root.approval(false)).is("records", "problem", "5.dropped");

    std::fs::set_permissions(root.path("provider.json"), Permissions::from_mode(0o666)).unwrap();
    let open = root.examine(OK, &root.approval(false));
    open.is("configuration", "problem", "provider.json");
    assert!(open.of("configuration")[2].contains("chmod 600"));

    std::fs::remove_file(root.path("state/node/identity.json")).unwrap();
    let unregistered = root.report();
    unregistered.is("identity", "problem", "has no identity");
    assert!(unregistered.of("identity")[2].contains("palisade node register"));
}

/// Runs the doctor in a mount namespace in which something small is mounted over a folder.
fn on_a_small_disk(options: &str) -> Report {
    let root = Root::new();
    let place = root.path("state");
    let script = r#"cp -a "$0" /dev/shm/$$ && mount -t tmpfs -o "$1" small "$0" && cp -a /dev/shm/$$/. "$0"; rm -r /dev/shm/$$
        shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command.env_clear().env("PATH", "/usr/bin:/bin").args(["--mount", "sh", "-c", script]).arg(root.folder.path());
    command.arg(options).arg(env!("CARGO_BIN_EXE_palisade")).args(["node", "doctor", "--json", "--root"]);
    let output = root.identifying(command.arg(root.folder.path()), OK, &root.approval(false));
    assert!(place.exists());
    Report(serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}")))
}

/// Bytes and inodes are two limits, and each says what to do.
#[test]
fn the_doctor_measures_bytes_and_inodes() {
    let bytes = on_a_small_disk("mode=0700,size=64m,nr_inodes=100k");
    bytes.is("disk", "problem", "free below");
    assert!(bytes.of("disk")[2].contains("palisade node generations"));
    bytes.is("inodes", "ok", "free below");
    let inodes = on_a_small_disk("mode=0700,size=1g,nr_inodes=300");
    inodes.is("inodes", "problem", "free below");
    assert!(inodes.of("inodes")[2].contains("df -i"));
    inodes.is("disk", "warning", "free below");
}

/// An engine that cannot limit, or is too small, is told from one that does not answer.
#[test]
fn the_doctor_names_an_engine_that_cannot_limit() {
    for (cpus, memory_limit, told) in [(2, false, "docker_limits_unsupported"), (0, true, "capacity_insufficient")] {
        let root = Root::new();
        let socket = root.folder.path().with_extension("sock");
        let engine = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let info = serde_json::json!({
            "MemoryLimit": memory_limit, "CpuCfsQuota": true, "CpuCfsPeriod": true, "PidsLimit": true, "NCPU": cpus,
            "MemTotal": 8_u64 << 30, "ServerVersion": "1.2.3", "OSType": "linux", "Architecture": "x86_64",
        });
        std::thread::spawn(move || engine.incoming().flatten().for_each(|stream| engine_answers(stream, &info)));
        root.configure(&format!("unix://{}", socket.display()));
        let report = root.examine(OK, &root.approval(false));
        report.is("readiness", "problem", told);
        assert!(report.of("readiness")[2].contains("another host"));
        std::fs::remove_file(socket).unwrap();
    }
}

/// `/version`, `/info`, and nothing else.
fn engine_answers(stream: std::os::unix::net::UnixStream, info: &Value) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match reader.read_line(&mut head) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        let version = serde_json::json!({"Version": "1.2.3", "ApiVersion": "1.41", "MinAPIVersion": "1.12", "Os": "linux",
            "Arch": "amd64"});
        let (status, body) = match path.rsplit('/').next() {
            Some("version") => ("200 OK", version.to_string()),
            Some("info") => ("200 OK", info.to_string()),
            Some("_ping") => ("200 OK", "OK".to_owned()),
            _ => ("404 Not Found", serde_json::json!({"message": "no such thing"}).to_string()),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
