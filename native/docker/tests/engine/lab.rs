//! A real engine, a Runtime image made of Debian's static busybox, and nothing left behind.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    CreateImageOptions, ListContainersOptions, ListVolumesOptions, RemoveContainerOptionsBuilder, RemoveImageOptions,
    RemoveVolumeOptions,
};
use bollard::{Docker, body_full};
use futures_util::StreamExt;
use palisade_core::operation::Operation;
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::units::{Generation, Id};
use palisade_core::wire::payload::{Command, CommandResult, Info, Reference};
use palisade_docker::{Configuration, DockerProvider, Resources};
use palisade_provider::testing::{bootstrap, context, reference};
use palisade_provider::{Context, dispatch};

pub(crate) const SOCKET: &str = "/var/run/docker.sock";
pub(crate) const AMPLE: Duration = Duration::from_secs(60);

/// One test's installation: an image, a profile, and everything that carries its label.
pub(crate) struct Lab {
    pub(crate) installation: Id,
    pub(crate) docker: Docker,
    pub(crate) image: String,
    pub(crate) provider: DockerProvider,
    profile: tempfile::NamedTempFile,
    /// Whether the image is this test's own.
    imported: bool,
}

impl Lab {
    /// Fails with the reason when the engine cannot be reached or busybox is missing.
    pub(crate) async fn new() -> Self {
        let docker = connect().await;
        let image = import_image(&docker).await;
        Self::with(docker, image, r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#, true)
    }

    /// The Runtime release of this source tree, with its own guest and system-call filter.
    pub(crate) async fn of_release() -> Self {
        let docker = connect().await;
        let (_, image) = palisade_release::checkout::image(&docker).await.unwrap_or_else(|error| panic!("{error}"));
        Self::with(docker, image, palisade_release::SECCOMP_PROFILE, false)
    }

    fn with(docker: Docker, image: String, profile: &str, imported: bool) -> Self {
        let installation = Id::from_random(*uuid::Uuid::from_u128(fresh()).as_bytes());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(profile.as_bytes()).unwrap();
        let provider = provider(installation, &image, file.path(), SMALL);
        Self { installation, docker, image, provider, profile: file, imported }
    }

    /// Another provider of the same installation, as after a restart of the node.
    pub(crate) fn provider_with(&self, resources: Option<Resources>) -> DockerProvider {
        provider(self.installation, &self.image, self.profile.path(), resources)
    }

    pub(crate) async fn call(&self, reference: Reference, operation: Operation<'static>) -> Outcome {
        self.call_within(context(reference, AMPLE), operation).await
    }

    pub(crate) async fn call_within(&self, context: Context, operation: Operation<'static>) -> Outcome {
        dispatch(&self.provider, context, operation).await
    }

    pub(crate) async fn create(&self, seed: u64) -> (Reference, Info<'static>) {
        let reference = reference(seed);
        match self.call(reference, Operation::Create(Box::new(bootstrap(reference)))).await {
            Ok(Answer::Info(info)) => (reference, info),
            other => panic!("a sandbox could not be created: {other:?}"),
        }
    }

    pub(crate) async fn run(&self, reference: Reference, args: &[&str]) -> Result<CommandResult<'static>, Failure> {
        self.run_command(context(reference, AMPLE), command(args)).await
    }

    pub(crate) async fn run_command(
        &self,
        context: Context,
        command: Command<'static>,
    ) -> Result<CommandResult<'static>, Failure> {
        match self.call_within(context, Operation::RunCommand(command)).await {
            Ok(Answer::Command(result)) => Ok(result),
            Ok(other) => panic!("a command answered {other:?}"),
            Err(failed) => Err(failed.failure),
        }
    }

    pub(crate) async fn inspect(&self, info: &Info<'_>) -> ContainerInspectResponse {
        self.docker.inspect_container(&info.provider_id, None).await.unwrap()
    }

    /// Names of the containers and volumes of this installation, read from the engine.
    pub(crate) async fn leftovers(&self) -> Vec<String> {
        leftovers(&self.docker, self.installation).await
    }
}

pub(crate) type Outcome = Result<Answer<'static>, Failed<'static>>;

const SMALL: Option<Resources> = Some(Resources { cpus: 1, memory_mib: 512 });

/// A profile that allows everything: what it forbids is not under test here.
pub(crate) fn profile_in(directory: &std::path::Path) -> tempfile::NamedTempFile {
    let mut profile = tempfile::NamedTempFile::new_in(directory).unwrap();
    profile.write_all(br#"{"defaultAction":"SCMP_ACT_ALLOW"}"#).unwrap();
    profile
}

pub(crate) fn command(args: &[&str]) -> Command<'static> {
    let args = args.iter().map(|text| (*text).to_owned().into()).collect();
    Command { args, directory: "".into(), stdin: None }
}

pub(crate) fn provider(
    installation: Id,
    image: &str,
    profile: &std::path::Path,
    resources: Option<Resources>,
) -> DockerProvider {
    provider_at(SOCKET, installation, image, profile, resources)
}

pub(crate) fn provider_at(
    socket: &str,
    installation: Id,
    image: &str,
    profile: &std::path::Path,
    resources: Option<Resources>,
) -> DockerProvider {
    let native = serde_json::json!({
        "host": format!("unix://{socket}"),
        "image": image,
        "network": "none",
        "seccomp_file": profile,
    });
    let manifest = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    DockerProvider::new(Configuration {
        installation,
        generation: Generation::FIRST,
        resources,
        image_identities: [image, manifest],
        native: &native.to_string(),
    })
    .unwrap()
}

async fn connect() -> Docker {
    let docker = Docker::connect_with_unix(SOCKET, 120, bollard::API_DEFAULT_VERSION)
        .unwrap_or_else(|error| panic!("the tests need a Docker engine at {SOCKET}: {error}"));
    docker.ping().await.unwrap_or_else(|error| panic!("the Docker engine at {SOCKET} does not answer: {error}"));
    docker
}

fn fresh() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}

async fn import_image(docker: &Docker) -> String {
    let options = CreateImageOptions { from_src: Some("-".to_owned()), ..Default::default() };
    let mut progress = Box::pin(docker.create_image(Some(options), Some(body_full(root().into())), None));
    let mut id = None;
    while let Some(step) = progress.next().await {
        id = step.expect("the engine imports the test image").status.or(id);
    }
    id.filter(|id| id.starts_with("sha256:")).expect("the engine names the imported image")
}

/// A root file system: busybox, an entry that stays, and the links that a sandbox needs.
fn root() -> Vec<u8> {
    let busybox = std::fs::read("/bin/busybox").expect("the tests need Debian's busybox-static");
    let mut archive = tar::Builder::new(Vec::new());
    for directory in ["bin/", "etc/", "proc/", "dev/", "sys/", "home/", "environment/", "usr/local/bin/"] {
        entry(&mut archive, directory, tar::EntryType::Directory, 0o755, b"");
    }
    // The mount over it takes its mode.
    entry(&mut archive, "tmp/", tar::EntryType::Directory, 0o1777, b"");
    entry(&mut archive, "bin/busybox", tar::EntryType::Regular, 0o755, &busybox);
    for applet in [
        "sh",
        "cat",
        "sleep",
        "head",
        "sha256sum",
        "id",
        "env",
        "ps",
        "wc",
        "ls",
        "stat",
        "tr",
        "dd",
        "setsid",
        "seq",
        "true",
    ] {
        link(&mut archive, &format!("bin/{applet}"), "/bin/busybox");
    }
    link(&mut archive, "workspace", "/environment/workspace");
    entry(&mut archive, "etc/passwd", tar::EntryType::Regular, 0o644, b"runtime:x:1000:1000::/home/runtime:/bin/sh\n");
    let guest = b"#!/bin/sh\n[ \"$1\" = --bootstrap-file ] && [ -r \"$2\" ] || exit 1\nwhile :; do sleep 3600; done\n";
    entry(&mut archive, "usr/local/bin/oac-sandbox-io", tar::EntryType::Regular, 0o755, guest);
    archive.into_inner().unwrap()
}

fn entry(archive: &mut tar::Builder<Vec<u8>>, path: &str, kind: tar::EntryType, mode: u32, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, path, content).unwrap();
}

fn link(archive: &mut tar::Builder<Vec<u8>>, path: &str, target: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    archive.append_link(&mut header, path, target).unwrap();
}

fn by_label(installation: Id) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_owned(), vec![format!("io.oac.installation={installation}")])])
}

async fn leftovers(docker: &Docker, installation: Id) -> Vec<String> {
    let filters = Some(by_label(installation));
    let containers = ListContainersOptions { all: true, filters: filters.clone(), ..Default::default() };
    let containers = docker.list_containers(Some(containers)).await.unwrap();
    let volumes = docker.list_volumes(Some(ListVolumesOptions { filters })).await.unwrap();
    let mut names: Vec<String> = containers.into_iter().filter_map(|container| container.id).collect();
    names.extend(volumes.volumes.into_iter().flatten().map(|volume| volume.name));
    names
}

async fn remove_everything(docker: Docker, installation: Id, image: Option<String>) {
    for name in leftovers(&docker, installation).await {
        if name.starts_with("oac-runtime-") {
            let _ = docker.remove_volume(&name, None::<RemoveVolumeOptions>).await;
        } else {
            let force = RemoveContainerOptionsBuilder::default().force(true).build();
            let _ = docker.remove_container(&name, Some(force)).await;
        }
    }
    if let Some(image) = image {
        let _ = docker.remove_image(&image, None::<RemoveImageOptions>, None).await;
    }
}

impl Drop for Lab {
    /// Also after a panic, and without the runtime of the test, which may be going down.
    fn drop(&mut self) {
        let (docker, installation) = (self.docker.clone(), self.installation);
        let image = self.imported.then(|| self.image.clone());
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(remove_everything(docker, installation, image));
        });
        let _ = removal.join();
    }
}
