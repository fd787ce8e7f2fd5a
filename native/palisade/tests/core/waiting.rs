//! Waiting for what outlives Core.

use std::process::Stdio;

use serde_json::json;

use crate::support::{Home, KEY, palisade, run, selection, until};

/// `deployment reset --wait` goes on over a Core that is killed and comes back: the reset is stored.
#[test]
fn a_reset_is_waited_for_over_a_restart_of_core() {
    let home = Home::new();
    let core = home.serve();
    assert_eq!(core.post("/core/v1/sandbox/deployment", KEY, &selection(0)).status, 200);
    let project = core.post("/core/v1/projects", KEY, &json!({"name": "agents"})).json();
    let session = home.insert_session(project["id"].as_str().unwrap());
    home.hold(&session);
    let (origin, address) = (core.origin.clone(), core.address().to_owned());
    let operator = ["--core-url", &origin, "--admin-key-file", &home.text("key")].map(str::to_owned);
    let log = std::fs::File::create(home.path("waiting")).unwrap();
    let mut waiting = palisade()
        .args(["deployment", "reset", "--wait"])
        .args(&operator)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let told = |part: &str| {
        until(part, || std::fs::read_to_string(home.path("waiting")).unwrap().contains(part).then_some(()));
    };
    told("resetting (auto)");
    drop(core);
    told("core did not answer");
    let mut command = palisade();
    command.args(["core", "serve", "--listen", &address, "--admin-key-file"]).arg(home.path("key"));
    let core = home.serve_with(&mut command);
    let cancelled = run(["deployment", "reset", "--cancel"].map(str::to_owned).iter().chain(&operator));
    assert!(cancelled.status.success(), "{cancelled:?}");
    told("the reset was cancelled");
    assert_eq!(waiting.wait().unwrap().code(), Some(1));
    core.stop();
}
