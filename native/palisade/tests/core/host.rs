//! The commands for a host, from the command line of an operator to a shell of a host: a real Core offers the installer, and
//! what it prints is run as it is.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use palisade_core::distribution::catalogue::{Catalogue, IMAGE};
use palisade_core::distribution::manifest::{Artifact, Manifest, Microsandbox, PLATFORM, filename};
use palisade_core::distribution::{Commit, Pointer};
use palisade_core::units::Digest;
use serde_json::{Value, json};

use crate::support::{Core, Home, KEY, err, out, palisade, run, selection};

const RELEASE: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    crate::support::write(path, text);
}

/// A release of small files, with this installer.
fn publish(home: &Home, installer: &str) {
    let release = home.path("payload/releases").join(RELEASE);
    let commit = Commit::parse(RELEASE).unwrap();
    let catalogue = Catalogue::bundled();
    let declared = catalogue.of("docker").unwrap().iter().map(|declared| {
        let (name, bytes) = (filename(&commit, declared), declared.path.as_bytes());
        write(&release.join("artifacts").join(&name), declared.path);
        let unpacked = declared.path == IMAGE;
        let artifact = Artifact {
            filename: name,
            sha256: Digest::of(bytes),
            size: bytes.len() as u64,
            unpacked_sha256: unpacked.then(|| Digest::of(b"unpacked")),
            unpacked_size: unpacked.then_some(8),
        };
        (declared.path.to_owned(), artifact)
    });
    let image = format!("sha256:{}", Digest::of(b"image"));
    let manifest = Manifest {
        artifact_base_url: String::new(),
        artifacts: declared.collect(),
        image_manifest_digests: [("runtime".to_owned(), image.clone())].into(),
        images: [("runtime".to_owned(), image.clone())].into(),
        microsandbox: Microsandbox::not_built(),
        platform: PLATFORM.to_owned(),
        runtime_ref: format!("oac-runtime@{image}"),
        source_commit: commit.clone(),
        source_tree: commit.clone(),
    };
    manifest.check().unwrap();
    write(&release.join("manifest.json"), &String::from_utf8(manifest.to_bytes()).unwrap());
    write(&release.join("node-install"), installer);
    let pointer = Pointer { source_commit: commit.clone() };
    write(&home.path("payload/active.json"), &String::from_utf8(pointer.to_bytes()).unwrap());
}

fn serve(home: &Home) -> Core {
    let mut command = palisade();
    command.args(["core", "serve", "--admin-key-file"]).arg(home.path("key"));
    home.serve_with(command.arg("--node-payload").arg(home.path("payload")))
}

fn nodes(home: &Home, core: &Core, command: &str) -> Output {
    run(["nodes", command, "--core-url", &core.origin, "--admin-key-file", &home.text("key")])
}

fn types(home: &Home, text: &str) -> Output {
    let mut shell = Command::new("dash");
    shell.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path("operator"));
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    shell.wait_with_output().unwrap()
}

/// H 32, H 38. What Core offers is in `/console/config`; the printed command spends a token of this Core on this host.
#[test]
fn the_printed_command_installs_what_core_offers() {
    let home = Home::new();
    std::fs::create_dir(home.path("operator")).unwrap();
    let core = serve(&home);
    let config = || core.get("/console/config", KEY).json();
    assert_eq!(config(), json!({"node_installer": false, "node_installer_sha256": null, "node_artifacts": []}));
    assert_eq!(core.get("/console/config", "no-key").status, 401);
    let refused = nodes(&home, &core, "install-command");
    assert!(err(&refused).contains("palisade release publish"), "{}", err(&refused));

    let started = home.path("started");
    let installer = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >{0}\ncat >>{0}\nexit 3\n", started.display());
    publish(&home, &installer);
    assert_eq!(config()["node_installer_sha256"], json!(Digest::of(installer.as_bytes())));
    assert_eq!(config()["node_artifacts"], json!(["docker"]), "the files of microsandbox are not there");
    let refused = nodes(&home, &core, "install-command");
    assert!(err(&refused).contains("palisade deployment apply"), "{}", err(&refused));
    assert_eq!(core.post("/core/v1/sandbox/deployment", KEY, &selection(0)).status, 200);

    let printed = nodes(&home, &core, "install-command");
    assert!(printed.status.success() && err(&printed).contains("for one host, until "), "{}", err(&printed));
    let ended = types(&home, &out(&printed));
    assert_eq!(ended.status.code(), Some(3), "{}", err(&ended));
    let told = std::fs::read_to_string(&started).unwrap();
    let (arguments, token) = told.trim_end().rsplit_once('\n').unwrap();
    let deployment = core.get("/core/v1/sandbox/deployment", KEY).json();
    let installation = deployment["installation_id"].as_str().unwrap();
    let origin = &core.origin;
    let expected = format!(
        "--installation-id\n{installation}\n--source-url\n{origin}\n--core-url\n{origin}\n--enrollment-token-stdin"
    );
    assert_eq!(arguments, expected);
    let asked = core.get("/api/v1/sandbox-node/configuration", token);
    assert_eq!(
        (asked.status, asked.json()["installation_id"].as_str()),
        (200, Some(installation)),
        "a token of this core"
    );

    let printed = nodes(&home, &core, "uninstall-command");
    assert_eq!(types(&home, &out(&printed)).status.code(), Some(3), "{}", err(&printed));
    let told = std::fs::read_to_string(&started).unwrap();
    assert_eq!(told, format!("--installation-id\n{installation}\n--uninstall\n"));
    let printed = nodes(&home, &core, "log-command");
    assert!(
        out(&printed).trim_end().ends_with(&format!("--unit='oac-node-{installation}.service'")),
        "{}",
        out(&printed)
    );
    core.stop();
}

/// H 38. Each of the three commands says whose word it is that no command is made of.
#[test]
fn no_command_is_made_of_a_public_url_that_no_host_would_take() {
    let home = Home::new();
    publish(&home, "#!/bin/sh\n");
    let mut command = palisade();
    command.args(["core", "serve", "--public-url", "http://core.example", "--admin-key-file"]).arg(home.path("key"));
    let core = home.serve_with(command.arg("--node-payload").arg(home.path("payload")));
    assert_eq!(core.post("/core/v1/sandbox/deployment", KEY, &selection(0)).status, 200);
    for command in ["install-command", "uninstall-command"] {
        let told = err(&nodes(&home, &core, command));
        assert!(told.contains("comes from --public-url") && told.contains("source_url: expected"), "{command}: {told}");
    }
    assert!(nodes(&home, &core, "log-command").status.success());
    core.stop();
}

/// H 32. What no host would take is not offered: an installer that is too large, or no file.
#[test]
fn an_installer_that_no_host_would_take_is_not_offered() {
    let home = Home::new();
    let core = serve(&home);
    let offered = || core.get("/console/config", KEY).json()["node_installer"].clone();
    publish(&home, &"x".repeat(1 << 20));
    assert_eq!(offered(), Value::Bool(true));
    publish(&home, &"x".repeat((1 << 20) + 1));
    assert_eq!(offered(), Value::Bool(false));
    let installer = home.path("payload/releases").join(RELEASE).join("node-install");
    std::fs::remove_file(&installer).unwrap();
    std::os::unix::fs::symlink(home.path("key"), &installer).unwrap();
    assert_eq!(offered(), Value::Bool(false));
    core.stop();
}
