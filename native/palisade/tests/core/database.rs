//! Migrating, backing up, and looking after a database.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Home, KEY, err, out, run, selection};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

/// `migrate` makes a database, says what it did, and has nothing to do twice; a running Core is not migrated under.
#[test]
fn migrate_says_what_it_did() {
    let home = Home::new();
    let made = home.core_json(&["migrate"]);
    assert_eq!(made["from"], 0);
    assert_eq!(made["applied"][0], serde_json::json!({"version": 1, "name": "initial"}));
    assert_eq!(made["to"], made["applied"].as_array().unwrap().last().unwrap()["version"]);
    assert!(out(&home.core(&["migrate"])).starts_with("nothing to do"));
    let core = home.serve();
    let refused = home.core(&["migrate"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("in use by another core process; stop that one first"), "{}", err(&refused));
    core.stop();
}

/// A backup of a running Core is a database that another Core serves from.
#[test]
fn a_backup_of_a_running_core_serves() {
    let home = Home::new();
    let core = home.serve();
    assert_eq!(core.post(DEPLOYMENT, KEY, &selection(0)).status, 200);
    let made = home.core_json(&["backup", &home.text("copy")]);
    assert!(made["bytes"].as_u64().unwrap() > 0);
    assert_eq!(std::fs::metadata(home.path("copy")).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(home.path("copy")).unwrap();
    let again = home.core(&["backup", &home.text("copy")]);
    assert_eq!(again.status.code(), Some(1));
    assert!(err(&again).contains("exists already; name a new file"), "{}", err(&again));
    assert_eq!(std::fs::read(home.path("copy")).unwrap(), before, "it is not touched");
    core.stop();

    let other = Home::new();
    let restored = other.core_json(&["restore", &home.text("copy")]);
    assert_eq!(restored["schema"], made["schema"]);
    assert_eq!(std::fs::read(home.path("copy")).unwrap(), before, "the backup stays as it is");
    let again = other.core(&["restore", &home.text("copy")]);
    assert!(err(&again).contains("is there already; move it away"), "{}", err(&again));
    let core = other.serve();
    let view = core.get(DEPLOYMENT, KEY).json();
    assert_eq!(view["generation"], 1);
    // Whatever epoch a Core had reached after the backup: nodes that saw it refuse a lower one.
    assert!(view["owner_epoch"].as_u64().unwrap() > 1_700_000_000, "{view}");
    core.stop();
}

/// What is left of a database that was taken away does not flow into the restored one, and nothing is restored under a
/// running Core.
#[test]
fn a_backup_is_not_restored_beside_the_log_of_another_database() {
    let home = Home::new();
    let core = home.serve();
    assert_eq!(core.post(DEPLOYMENT, KEY, &selection(0)).status, 200);
    home.core_json(&["backup", &home.text("copy")]);
    std::fs::rename(home.path("data/palisade.db"), home.path("taken.db")).unwrap();
    let restore = || home.core(&["restore", &home.text("copy")]);
    assert!(err(&restore()).contains("in use by another core process"), "{}", err(&restore()));
    core.stop();
    let log = home.path("data/palisade.db-wal");
    assert!(log.exists(), "SQLite leaves it where its database has lost its name");
    let refused = restore();
    assert!(err(&refused).contains("palisade.db-wal is there already; move it away"), "{}", err(&refused));
    assert!(!home.path("data/palisade.db").exists());
    for end in ["-wal", "-shm"] {
        std::fs::rename(home.path(&format!("data/palisade.db{end}")), home.path(&format!("taken.db{end}"))).unwrap();
    }
    assert!(restore().status.success(), "{}", err(&restore()));
    let core = home.serve();
    assert_eq!(core.get(DEPLOYMENT, KEY).json()["generation"], 1);
    core.stop();
}

/// What is no backup does not become a database.
#[test]
fn a_file_that_is_no_backup_is_not_restored() {
    let home = Home::new();
    let refused = home.core(&["restore", "/etc/hostname"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("/etc/hostname is no backup"), "{}", err(&refused));
    assert!(!home.path("data/palisade.db").exists());
}

/// What cannot be backed up is refused with the next step, and leaves nothing behind.
#[test]
fn a_backup_that_is_refused_leaves_nothing_behind() {
    let home = Home::new();
    let missing = home.core(&["backup", &home.text("copy")]);
    assert!(err(&missing).contains("there is no database in"), "{}", err(&missing));
    let postgres = run(["core", "backup", "--database-url", "postgres://u:hunter2@h/d", &home.text("copy")]);
    assert!(err(&postgres).contains("pg_dump") && !err(&postgres).contains("hunter2"), "{}", err(&postgres));
    assert!(home.core(&["migrate"]).status.success());
    let nowhere = home.core(&["backup", "/nowhere/copy"]);
    assert!(err(&nowhere).contains("cannot write the backup /nowhere/copy"), "{}", err(&nowhere));
    let mut left: Vec<_> = std::fs::read_dir(home.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["data", "key"]);
}

/// The doctor finds what is wrong before Core does, and says what to do; beside a running Core it names the owner.
#[test]
fn the_doctor_names_each_finding_with_its_next_step() {
    let home = Home::new();
    let finding = |report: &serde_json::Value, check: &str| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).cloned().unwrap_or_default()
    };
    let report = |arguments: &[&str]| -> (i32, serde_json::Value) {
        let output = home.core(&[&["doctor", "--json", "--listen", "127.0.0.1:0"], arguments].concat());
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
    };
    let (status, empty) = report(&[]);
    assert_eq!((status, &empty["problems"]), (1, &1.into()));
    assert!(finding(&empty, "core keys")["next"].as_str().unwrap().contains("palisade core keys add"));
    assert!(!home.path("data").exists(), "it changes nothing");

    std::fs::set_permissions(home.path("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let core = home.serve();
    let said = home.core(&["doctor", "--json", "--listen", core.address(), "--admin-key-file", &home.text("key")]);
    let running: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let owner = format!("owned by process {} on this host", core.pid());
    assert_eq!(finding(&running, "execution")["found"], owner);
    assert_eq!(finding(&running, "schema")["state"], "ok");
    assert!(finding(&running, "listen")["found"].as_str().unwrap().ends_with("ready"), "{running}");
    assert_eq!(finding(&running, "core keys")["next"].as_str().unwrap().split(' ').next(), Some("chmod"));
    let taken = report(&["--admin-key-file", &home.text("key"), "--public-url", "https://core.example/path"]).1;
    assert_eq!(finding(&taken, "public url")["state"], "problem");
    core.stop();
    for plain in [["--public-url", "http://core.example"], ["--listen", "0.0.0.0:0"]] {
        let said = home.core(&["doctor", "--json", plain[0], plain[1]]);
        let told = finding(&serde_json::from_slice(&said.stdout).unwrap(), "public url");
        assert_eq!(told["state"], "problem", "{told}");
        assert!(told["found"].as_str().unwrap().contains("every session fails"), "{told}");
        assert!(told["next"].as_str().unwrap().contains("--public-url"), "{told}");
    }

    std::fs::set_permissions(home.path("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let (healed, healthy) = report(&["--admin-key-file", &home.text("key")]);
    assert_eq!((healed, &healthy["problems"]), (0, &0.into()), "{healthy}");
    assert!(finding(&healthy, "execution")["found"].as_str().unwrap().contains("nobody"));
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let occupied = home.core(&["doctor", "--listen", &other.local_addr().unwrap().to_string()]);
    assert!(out(&occupied).contains("cannot listen on"), "{}", out(&occupied));
}

/// A database that does not answer is a problem, and its password is not repeated.
#[test]
fn the_doctor_survives_a_database_that_does_not_answer() {
    let output = run(["core", "doctor", "--database-url", "postgres://palisade:hunter2@127.0.0.1:1/palisade"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("PROBLEM  database"), "{}", out(&output));
    assert!(!out(&output).contains("hunter2") && !err(&output).contains("hunter2"));
}
