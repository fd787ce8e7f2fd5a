//! The Runtime image in a real Docker engine.

#![allow(clippy::unwrap_used, reason = "a test")]

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use futures_util::StreamExt;
use palisade_release::{SECCOMP_PROFILE, checkout, engine};

const BOOTSTRAP: &str = r#"{"version":1,"link_url":"ws://127.0.0.1:9/link","credential":"synthetic-secret","resource":{
    "tenant_id":"21f2d3c4-b5a6-4798-8899-aabbccddeeff","environment_id":"31f2d3c4-b5a6-4798-8899-aabbccddeeff",
    "kind":"allocation","id":"41f2d3c4-b5a6-4798-8899-aabbccddeeff","generation":1}}"#;

async fn docker() -> Docker {
    let docker = Docker::connect_with_unix_defaults().unwrap().negotiate_version().await;
    docker.expect("no Docker engine answers on /var/run/docker.sock: run scripts/start-docker")
}

/// A started container of the image, as the provider would confine it.
struct Sandbox<'a> {
    docker: &'a Docker,
    name: String,
}

impl<'a> Sandbox<'a> {
    async fn start(docker: &'a Docker, name: &str) -> Self {
        let (_, image) = checkout::image(docker).await.unwrap();
        let sandbox = Self { docker, name: format!("palisade-release-test-{name}-{}", std::process::id()) };
        let host = HostConfig {
            cap_drop: Some(vec!["ALL".into()]),
            network_mode: Some("none".into()),
            security_opt: Some(vec!["no-new-privileges".into(), format!("seccomp={SECCOMP_PROFILE}")]),
            ..HostConfig::default()
        };
        let body =
            ContainerCreateBody { image: Some(image), host_config: Some(host), ..ContainerCreateBody::default() };
        let options = CreateContainerOptionsBuilder::new().name(&sandbox.name).build();
        docker.create_container(Some(options), body).await.unwrap();
        let options = UploadToContainerOptionsBuilder::new().path("/home/runtime").build();
        docker.upload_to_container(&sandbox.name, Some(options), bollard::body_full(bootstrap().into())).await.unwrap();
        docker.start_container(&sandbox.name, None).await.unwrap();
        sandbox
    }

    async fn run(&self, script: &str) -> (String, i64) {
        let options = CreateExecOptions {
            cmd: Some(vec!["sh", "-c", script]),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..CreateExecOptions::default()
        };
        let exec = self.docker.create_exec(&self.name, options).await.unwrap();
        let StartExecResults::Attached { mut output, .. } = self.docker.start_exec(&exec.id, None).await.unwrap()
        else {
            panic!("an attached exec is not detached");
        };
        let mut text = String::new();
        while let Some(chunk) = output.next().await {
            if let LogOutput::StdOut { message } | LogOutput::StdErr { message } = chunk.unwrap() {
                text.push_str(&String::from_utf8_lossy(&message));
            }
        }
        let code = self.docker.inspect_exec(&exec.id).await.unwrap().exit_code.unwrap();
        (text, code)
    }

    async fn remove(self) {
        let options = RemoveContainerOptionsBuilder::new().force(true).build();
        self.docker.remove_container(&self.name, Some(options)).await.unwrap();
    }
}

fn bootstrap() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o600);
    header.set_uid(1000);
    header.set_gid(1000);
    header.set_size(BOOTSTRAP.len() as u64);
    archive.append_data(&mut header, "sandbox-io-bootstrap.json", BOOTSTRAP.as_bytes()).unwrap();
    archive.into_inner().unwrap()
}

/// H 16.
#[tokio::test]
async fn the_engine_knows_the_image_by_a_digest_of_the_release() {
    let docker = docker().await;
    let (image, id) = checkout::image(&docker).await.unwrap();
    assert!(id == image.image_id || id == image.manifest_digest, "{id}");
    let found = engine::resolve(&docker, &image.image_id, &image.manifest_digest).await.unwrap();
    assert_eq!(found.as_deref(), Some(&*id));
    let nothing = format!("sha256:{}", "0".repeat(64));
    assert_eq!(engine::resolve(&docker, &nothing, &nothing).await.unwrap(), None);
}

/// H 17.
#[tokio::test]
async fn an_image_that_is_not_the_releases_is_refused() {
    let docker = docker().await;
    let (image, id) = checkout::image(&docker).await.unwrap();
    // The engine accepts a shortened digest, and then answers with another name than the one that was asked for.
    let refused = engine::resolve(&docker, &id[..20], &image.archive.len().to_string()).await.unwrap_err();
    assert!(matches!(refused, palisade_release::Error::ForeignImage { .. }), "{refused}");
}

#[tokio::test]
async fn a_sandbox_has_the_userland_and_its_folders() {
    let docker = docker().await;
    let sandbox = Sandbox::start(&docker, "userland").await;
    let (tools, code) =
        sandbox.run("for t in sh cat sleep head sha256sum id env ps; do command -v $t || exit 9; done").await;
    let (identity, _) = sandbox.run("id -un; id -g; pwd; readlink /workspace; echo $HOME").await;
    let (written, _) = sandbox.run("printf x > /workspace/f && cat /environment/workspace/f").await;
    let (digest, _) = sandbox.run("printf abc | sha256sum").await;
    sandbox.remove().await;
    assert_eq!(code, 0, "{tools}");
    assert_eq!(identity, "runtime\n1000\n/environment/workspace\n/environment/workspace\n/home/runtime\n");
    assert_eq!(written, "x");
    assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  -\n");
}

#[tokio::test]
async fn dangerous_system_calls_are_refused() {
    let docker = docker().await;
    let sandbox = Sandbox::start(&docker, "seccomp").await;
    let (mode, _) = sandbox.run("grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/1/status").await;
    let (busybox, code) = sandbox.run("busybox unshare -U true").await;
    sandbox.remove().await;
    assert!(mode.contains("Seccomp:\t2") && mode.contains("CapEff:\t0000000000000000"), "{mode}");
    assert_ne!(code, 0, "a new user namespace must not be possible");
    assert!(busybox.contains("Operation not permitted"), "{busybox}");
}

#[tokio::test]
async fn process_1_collects_orphans_and_stops_when_asked() {
    let docker = docker().await;
    let sandbox = Sandbox::start(&docker, "orphans").await;
    // The orphan's process is gone from the table only after process 1 has collected it.
    let script = "(sh -c 'echo $$ > /tmp/orphan' &) ; while ! test -s /tmp/orphan; do :; done; \
                  read -r orphan < /tmp/orphan; while test -d /proc/$orphan; do :; done; echo collected";
    let (collected, code) = sandbox.run(script).await;
    let options = StopContainerOptionsBuilder::new().t(30).build();
    docker.stop_container(&sandbox.name, Some(options)).await.unwrap();
    let state = docker.inspect_container(&sandbox.name, None).await.unwrap().state.unwrap();
    sandbox.remove().await;
    assert_eq!((collected.as_str(), code), ("collected\n", 0));
    assert_eq!(state.exit_code, Some(0), "the guest ends by itself on SIGTERM, not by SIGKILL");
}
