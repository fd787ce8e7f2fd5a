//! Core keys come and go while Core runs.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Home, err, out, palisade, run, texts, until};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

/// A running Core takes a new key over without a restart, and refuses a revoked one; only digests are stored.
#[test]
fn keys_are_rotated_without_a_restart() {
    let home = Home::new();
    assert!(home.core(&["migrate"]).status.success());
    let first = home.core_json(&["keys", "add", "--name", "first"]);
    let first = first["key"].as_str().unwrap().to_owned();
    let core = home.serve_with(palisade().args(["core", "serve"]));
    assert_eq!(core.get(DEPLOYMENT, &first).status, 200);

    let added = home.core(&["keys", "add", "--name", "second", "--out", &home.text("second")]);
    let second = std::fs::read_to_string(home.path("second")).unwrap();
    let second = second.trim();
    assert!(added.status.success() && !out(&added).contains(second) && !err(&added).contains(second));
    assert_eq!(std::fs::metadata(home.path("second")).unwrap().permissions().mode() & 0o777, 0o600);
    until("the new key must be accepted", || (core.get(DEPLOYMENT, second).status == 200).then_some(()));

    let listed = home.core_json(&["keys", "list"]);
    let id = listed["data"].as_array().unwrap().iter().find(|key| key["name"] == "first").unwrap()["id"].clone();
    let id = id.as_str().unwrap();
    assert!(!listed.to_string().contains(&first) && !listed.to_string().contains(second));
    assert!(home.core(&["keys", "revoke", id]).status.success());
    until("the revoked key must be refused", || (core.get(DEPLOYMENT, &first).status == 401).then_some(()));
    assert_eq!(core.get(DEPLOYMENT, second).status, 200);
    assert!(out(&home.core(&["keys", "list"])).contains("revoked 20"));

    let again = home.core(&["keys", "revoke", id]);
    assert!(again.status.success() && out(&again).contains("was revoked before"), "{}", out(&again));
    core.stop();
    let query =
        "SELECT action || ' ' || resource_type || ' ' || actor_label FROM admin_audit_log ORDER BY created_at, action";
    let audited = texts(&format!("sqlite://{}?mode=rw", home.text("data/palisade.db")), query);
    let told = |action: &str| format!("{action} core_key operator on the host");
    assert_eq!(audited, [told("create"), told("create"), told("revoke")], "a repeated revocation changes nothing");
    let query = "SELECT DISTINCT resource_id FROM admin_audit_log WHERE action = 'revoke'";
    assert_eq!(texts(&format!("sqlite://{}?mode=rw", home.text("data/palisade.db")), query), [id]);
    let stored = std::fs::read(home.path("data/palisade.db")).unwrap();
    for key in [&first, second] {
        assert!(!stored.windows(key.len()).any(|bytes| bytes == key.as_bytes()), "only the digest is stored");
    }
}

/// Nothing is half done: a file that is there, a name that is none, a key that nobody knows.
#[test]
fn refusals_of_the_key_commands_name_the_next_step() {
    let home = Home::new();
    let early = home.core(&["keys", "list"]);
    assert!(err(&early).contains("palisade core migrate"), "{}", err(&early));
    assert!(home.core(&["migrate"]).status.success());
    let there = home.core(&["keys", "add", "--name", "a", "--out", &home.text("key")]);
    assert!(!there.status.success() && err(&there).contains("name a new file"), "{}", err(&there));
    assert_eq!(home.core_json(&["keys", "list"])["data"], serde_json::json!([]), "nothing was stored");
    let nameless = home.core(&["keys", "add", "--name", " "]);
    assert_eq!(nameless.status.code(), Some(2));
    let unknown = home.core(&["keys", "revoke", "0123456789ab"]);
    assert!(err(&unknown).contains("keys list"), "{}", err(&unknown));
    let keyless = run(["core", "serve", "--listen", "127.0.0.1:0", "--data", &home.data()]);
    assert!(!keyless.status.success() && err(&keyless).contains("palisade core keys add"), "{}", err(&keyless));
}
