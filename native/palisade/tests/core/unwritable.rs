//! A Core whose disk or database file fails under it: it says so, and never that something was done which was not.

use std::io::Write as _;
use std::path::PathBuf;

use crate::support::{Core, Home, KEY, err, palisade, selection, until};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";

/// A Core whose data directory is a real disk of 2 MiB, in a mount namespace of its own.
struct Small {
    home: Home,
    core: Core,
}

impl Small {
    fn new() -> Self {
        let home = Home::new();
        std::fs::create_dir(home.path("data")).unwrap();
        let mut command = std::process::Command::new("unshare");
        let script = r#"mount -t tmpfs -o mode=0700,size=2m small "$0" && exec "$@""#;
        command.env_clear().env("PATH", "/usr/bin:/bin").args(["--mount", "sh", "-c", script]).arg(home.path("data"));
        command.arg(env!("CARGO_BIN_EXE_palisade")).args(["core", "serve", "--admin-key-file"]).arg(home.path("key"));
        let core = home.serve_with(&mut command);
        let small = Self { home, core };
        small.becomes(200, "ready");
        assert_eq!(small.core.post(DEPLOYMENT, KEY, &selection(0)).status, 200);
        small
    }

    /// A file of the data directory, seen from outside of the namespace.
    fn file(&self, name: &str) -> PathBuf {
        let data = self.home.path("data");
        PathBuf::from(format!("/proc/{}/root{}", self.core.pid(), data.display())).join(name)
    }

    fn readiness(&self) -> (u16, String) {
        let answer = self.core.send("GET", "/readyz", &[], None);
        (answer.status, answer.json()["status"].as_str().unwrap().to_owned())
    }

    fn becomes(&self, status: u16, word: &str) {
        until(word, || (self.readiness() == (status, word.to_owned())).then_some(()));
    }

    /// The status that an enrollment token, which must be recorded, is answered with.
    fn enrollment(&self) -> u16 {
        self.core.post(TOKENS, KEY, &serde_json::json!({})).status
    }
}

/// D 32. Room heals it.
#[test]
fn a_core_on_a_full_disk_is_not_ready_until_there_is_room() {
    let small = Small::new();
    let mut filler = std::fs::File::create(small.file("filler")).unwrap();
    while filler.write(&[0; 4096]).is_ok() {}
    small.becomes(503, "unavailable");
    assert_eq!(small.enrollment(), 500);
    assert!(small.home.log().contains("takes no writes: this core is not ready"), "{}", small.home.log());
    assert!(small.home.log().contains("database or disk is full"), "{}", small.home.log());
    assert_eq!(small.core.send("GET", "/healthz", &[], None).status, 200);
    drop(filler);
    std::fs::remove_file(small.file("filler")).unwrap();
    small.becomes(200, "ready");
    assert_eq!(small.enrollment(), 201);
}

/// D 32. What is written to a file without a name is lost: nothing is said to be done, until the file is back.
#[test]
fn a_core_whose_database_file_is_taken_away_does_nothing_and_names_it() {
    let small = Small::new();
    assert_eq!(small.enrollment(), 201);
    let (file, elsewhere) = (small.file("palisade.db"), small.file("elsewhere"));
    std::fs::rename(&file, &elsewhere).unwrap();
    assert_eq!(small.enrollment(), 500);
    small.becomes(503, "unavailable");
    let log = small.home.log();
    assert!(log.contains("palisade.db was removed or replaced while core had it open; stop core"), "{log}");

    // Another file under this name is none of ours, however alike it is.
    std::fs::copy(&elsewhere, &file).unwrap();
    assert_eq!((small.enrollment(), small.readiness()), (500, (503, "unavailable".to_owned())));
    std::fs::rename(&elsewhere, &file).unwrap();
    small.becomes(200, "ready");
    assert_eq!(small.enrollment(), 201);
}

/// A place that nobody may write to is refused at the start, by its name.
#[test]
fn a_core_does_not_start_on_a_read_only_disk() {
    let home = Home::new();
    assert!(home.core(&["migrate"]).status.success());
    let script = r#"mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@""#;
    let mut command = std::process::Command::new("unshare");
    command.env_clear().env("PATH", "/usr/bin:/bin").args(["--mount", "sh", "-c", script]).arg(home.path("data"));
    command.arg(palisade().get_program()).args(["core", "serve", "--data", &home.data(), "--admin-key-file"]);
    let output = command.arg(home.path("key")).output().unwrap();
    assert!(!output.status.success());
    assert!(err(&output).contains(&format!("cannot use the data directory {}", home.data())), "{}", err(&output));
    assert!(err(&output).contains("Read-only file system"), "{}", err(&output));
}
