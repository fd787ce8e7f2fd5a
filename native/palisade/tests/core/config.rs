//! Where values come from, and what is said of them.

use crate::support::{Home, err, out, palisade, run, write};

/// Every value is shown with its source, the strongest one wins, and nothing secret is shown.
#[test]
fn the_effective_configuration_is_shown_with_its_sources_and_without_secrets() {
    let home = Home::new();
    write(
        &home.path("core.toml"),
        "listen = \"127.0.0.1:9001\"\npublic_url = \"https://core.example\"\nbody_budget_mib = 256\n\
         database_url = \"postgres://palisade:hunter2@db/palisade\"\n",
    );
    let config = |json: &[&str]| {
        let mut command = palisade();
        command.args(["core", "config", "--config"]).arg(home.path("core.toml"));
        command.args(["--listen", "127.0.0.1:9003"]).args(json);
        command.env("OAC_PUBLIC_URL", "https://other.example").env("OAC_CORE_KEY_SHA256S", "[\"0123hunter2\"]");
        command.output().unwrap()
    };
    let shown = config(&[]);
    let text = out(&shown);
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(row("listen").contains("127.0.0.1:9003") && row("listen").contains("option --listen"), "{text}");
    assert!(
        row("public_url").contains("https://other.example") && row("public_url").contains("variable OAC_PUBLIC_URL")
    );
    assert!(row("body_budget_mib").contains("256") && row("body_budget_mib").contains("core.toml line 3"), "{text}");
    assert!(row("log ").contains("info") && row("log ").contains("default"), "{text}");
    assert!(row("database_url").contains("***") && row("admin_key_sha256s").contains("***"), "{text}");
    assert!(shown.status.success() && !text.contains("hunter2") && !err(&shown).contains("hunter2"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&config(&["--json"]).stdout).unwrap();
    let settings = json["settings"].as_array().unwrap();
    let url = settings.iter().find(|setting| setting["setting"] == "database_url").unwrap();
    assert_eq!((&url["value"], &url["masked"]), (&"***".into(), &true.into()));
}

/// A refusal says where, what is wrong and what is expected, and ends with 2.
#[test]
fn a_configuration_that_is_not_understood_is_refused_with_its_place() {
    let home = Home::new();
    let refused = |text: &str| {
        write(&home.path("core.toml"), text);
        let output = run(["core", "serve", "--config", &home.text("core.toml"), "--data", &home.data()]);
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        err(&output)
    };
    let told = refused("listen = \"127.0.0.1:0\"\nlisten_on = 1\n");
    assert!(
        told.contains("core.toml") && told.contains("line 2: unknown member `listen_on`; expected one of"),
        "{told}"
    );
    assert!(refused("listen = 8080").contains("line 1: listen must be a text in quotes"));
    assert!(refused("body_budget_mib = 127").contains("expected an integer from 128 to 1048576"));
    assert!(refused("log_format = \"xml\"").contains("expected text or json"));
    assert!(refused("database_url = \"postgres://u:hunter2@h/d").contains("line 1: it is no TOML"));
    assert!(!refused("admin_key_sha256s = \"hunter2\"").contains("hunter2"));
    let missing = run(["core", "config", "--config", "/nowhere/core.toml", "--data", "d"]);
    assert!(err(&missing).contains("cannot read the configuration file /nowhere/core.toml"), "{}", err(&missing));
}

/// Core runs from a file alone.
#[test]
fn core_serves_what_the_file_says() {
    let home = Home::new();
    write(
        &home.path("core.toml"),
        &format!(
            "listen = \"127.0.0.1:0\"\npublic_url = \"https://core.example\"\nadmin_key_file = \"{}\"\nlog_format = \"json\"\n",
            home.text("key")
        ),
    );
    let core = home.serve_with(palisade().args(["core", "serve"]).env("OAC_CORE_CONFIG", home.path("core.toml")));
    assert!(!core.origin.ends_with(":8080"));
    let view = core.get("/core/v1/sandbox/deployment", crate::support::KEY).json();
    assert_eq!(view["core_url"], "https://core.example");
    core.stop();
    assert!(home.log().lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{}", home.log());
}

/// Every command has a help that names its options.
#[test]
fn every_command_has_a_help() {
    for command in [
        &["core"][..],
        &["core", "serve"],
        &["core", "migrate"],
        &["core", "keys", "add"],
        &["core", "keys", "list"],
        &["core", "keys", "revoke"],
        &["core", "status"],
        &["core", "doctor"],
        &["core", "backup"],
        &["core", "config"],
        &["sessions", "list"],
        &["sessions", "run"],
        &["sessions", "archive"],
    ] {
        let help = run(command.iter().copied().chain(["--help"]));
        assert!(help.status.success() && out(&help).contains("Usage: palisade"), "{command:?}");
        assert!(out(&help).lines().next().is_some_and(|line| line.len() > 20), "{command:?} says what it is for");
    }
}
