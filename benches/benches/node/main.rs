//! The node beside the bare engine: the same sandboxes and the same commands, in turn.
//!
//! The node program runs as in production, with its own runtime threads and a connection to a Core that does nothing
//! but ask. Everything else is the Docker engine of this machine. Three ways take turns, so that a slow minute of the
//! machine hits all of them: through the node, the contract's calls made directly, and the fewest calls that have the
//! same effect.

mod direct;
mod peer;

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bollard::Docker;
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::operation::Operation;
use palisade_core::units::{Generation, Id};
use palisade_core::wire::payload::{Command, Deployment, Reference};
use palisade_node::{Register, Run};
use palisade_provider::testing::{bootstrap, reference};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use direct::{Calls, Template};
use peer::Peer;

const SOCKET: &str = "/var/run/docker.sock";
/// Sandboxes and commands of each way.
const CREATIONS: u64 = 15;
const COMMANDS: usize = 60;
/// What the node may cost: times a creation, and more milliseconds for a command.
const CREATION_RATIO_MAX: f64 = 1.1;
const COMMAND_MORE_MAX_MS: f64 = 10.0;

const COMMAND: [&str; 3] = ["sh", "-c", "echo done"];

fn main() -> anyhow::Result<()> {
    // Cargo passes `--bench`; a name that is not ours means that another benchmark is wanted.
    if std::env::args().skip(1).any(|argument| !argument.starts_with('-') && !"node".contains(&argument)) {
        return Ok(());
    }
    // Why a node ended is in its log.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure())
}

async fn measure() -> anyhow::Result<()> {
    let docker = Docker::connect_with_unix(SOCKET, 120, bollard::API_DEFAULT_VERSION)?
        .negotiate_version()
        .await
        .with_context(|| format!("no Docker engine answers on {SOCKET}: run scripts/start-docker"))?;
    let (image, id) = palisade_release::checkout::image(&docker).await?;
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()?;
    let installation = Id::from_random(rand::random());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let specification = specification(&image);
    configure(folder.path(), &origin, &specification, installation, &id)?;
    let digest = Specification::parse(Provider::Docker, specification.to_string().as_bytes())?.digest();
    let deployment = Deployment {
        generation: Generation::FIRST,
        specification_digest: digest,
        serving_generation: Some(Generation::FIRST),
    };
    let node_ended = start_node(folder.path().to_owned(), origin);
    let measured = async {
        let mut peer = Peer::accept(&listener, deployment, installation).await?;
        println!("measuring {CREATIONS} creations and {COMMANDS} commands in each of three ways");
        compare(&mut peer, docker).await
    };
    tokio::select! {
        measured = measured => measured,
        _ = node_ended => bail!("the node ended: is its reason above?"),
    }
}

/// The node in threads of its own, until this process ends. The receiver learns when it ends early.
fn start_node(folder: PathBuf, core_url: String) -> oneshot::Receiver<()> {
    let (ended, node_ended) = oneshot::channel();
    std::thread::spawn(move || {
        if let Err(error) = serve(&folder, core_url) {
            eprintln!("error: {error:#}");
        }
        // Nobody listens any more when the measurement is done.
        let _ = ended.send(());
    });
    node_ended
}

fn serve(folder: &Path, core_url: String) -> anyhow::Result<()> {
    let (config, state_dir) = (folder.join("provider.json"), folder.join("state/node"));
    let register = Register {
        config: config.clone(),
        state_dir: state_dir.clone(),
        core_url,
        name: "bench".to_owned(),
        enrollment_token_file: folder.join("token"),
        allow_insecure_origin: false,
    };
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        palisade_node::register(register).await.context("the node does not register")?;
        let status = palisade_node::run(Run { config, state_dir, core_url: None }).await;
        bail!("the node ended with {}", status.code())
    })
}

/// What each way took, in milliseconds.
#[derive(Default)]
struct Taken {
    node: Vec<f64>,
    direct: Vec<f64>,
    fewest: Vec<f64>,
}

async fn compare(peer: &mut Peer, docker: Docker) -> anyhow::Result<()> {
    let seed = u64::from(std::process::id()) << 32;
    let kept = reference(seed);
    let (_, container) = create(peer, kept).await?;
    let template = Template::of(docker, &container).await?;
    let measured = async {
        let creations = creations(peer, &template, seed).await?;
        let commands = commands(peer, &template, kept, &container).await?;
        anyhow::Ok((creations, commands))
    }
    .await;
    kill(peer, kept).await?;
    let (creations, commands) = measured?;
    report(&creations, &commands);
    Ok(())
}

async fn creations(peer: &mut Peer, template: &Template, seed: u64) -> anyhow::Result<Taken> {
    let mut taken = Taken::default();
    for round in 0..CREATIONS {
        for way in turns(round) {
            match way {
                0 => {
                    let sandbox = reference(seed + 1 + round);
                    let (elapsed, _) = create(peer, sandbox).await?;
                    taken.node.push(milliseconds(elapsed));
                    kill(peer, sandbox).await?;
                }
                way => {
                    let (calls, list) = direct(way, &mut taken);
                    let (elapsed, container) = template.create(calls).await?;
                    list.push(milliseconds(elapsed));
                    template.remove(&container).await?;
                }
            }
        }
    }
    Ok(taken)
}

async fn commands(peer: &mut Peer, template: &Template, sandbox: Reference, container: &str) -> anyhow::Result<Taken> {
    let mut taken = Taken::default();
    for round in 0..COMMANDS {
        for way in turns(round as u64) {
            match way {
                0 => taken.node.push(milliseconds(run(peer, sandbox).await?)),
                way => {
                    let (calls, list) = direct(way, &mut taken);
                    list.push(milliseconds(template.run(container, &COMMAND, calls).await?));
                }
            }
        }
    }
    Ok(taken)
}

/// Each way once, another one first every time.
fn turns(round: u64) -> impl Iterator<Item = u64> {
    (0..3).map(move |turn| (round + turn) % 3)
}

fn direct(way: u64, taken: &mut Taken) -> (Calls, &mut Vec<f64>) {
    if way == 1 { (Calls::All, &mut taken.direct) } else { (Calls::Fewest, &mut taken.fewest) }
}

async fn create(peer: &mut Peer, sandbox: Reference) -> anyhow::Result<(Duration, String)> {
    let (elapsed, response) = peer.ask(sandbox, Operation::Create(Box::new(bootstrap(sandbox)))).await?;
    let info = response.info.filter(|info| info.bootstrap_complete);
    let info = info.with_context(|| format!("the node made no sandbox: {:?}", response.error_code))?;
    Ok((elapsed, info.provider_id.into_owned()))
}

async fn kill(peer: &mut Peer, sandbox: Reference) -> anyhow::Result<()> {
    let (_, response) = peer.ask(sandbox, Operation::Kill).await?;
    ensure!(response.error_code.is_none(), "the node removed no sandbox: {:?}", response.error_code);
    Ok(())
}

async fn run(peer: &mut Peer, sandbox: Reference) -> anyhow::Result<Duration> {
    let args = COMMAND.iter().map(|&text| text.into()).collect();
    let command = Command { args, directory: "".into(), stdin: None };
    let (elapsed, response) = peer.ask(sandbox, Operation::RunCommand(command)).await?;
    match response.command {
        Some(result) if result.exit_code == 0 && result.stdout == "done\n" => Ok(elapsed),
        other => bail!("the command did not end well: {other:?}, {:?}", response.error_code),
    }
}

fn report(creations: &Taken, commands: &Taken) {
    println!("\n{:<28}{:>12}{:>12}{:>12}", "median, milliseconds", "node", "same calls", "fewest");
    let creation = creations.medians();
    let command = commands.medians();
    for (name, [node, direct, fewest]) in [("creation of a sandbox", creation), ("short command", command)] {
        println!("{name:<28}{node:>12.1}{direct:>12.1}{fewest:>12.1}");
    }
    let ratio = creations.paired(|node, direct| node / direct);
    let more = commands.paired(|node, direct| node - direct);
    println!("\n{:<44} {:>14} {:>14} {:>7} {:>9}", "median of the pairs", "node", "same calls", "value", "target");
    row("creation of a sandbox", creation, ratio, CREATION_RATIO_MAX);
    row("short command, milliseconds more", command, more, COMMAND_MORE_MAX_MS);
}

fn row(what: &str, [node, direct, _]: [f64; 3], value: f64, target: f64) {
    let (node, direct) = (format!("{node:.1} ms"), format!("{direct:.1} ms"));
    println!("{what:<44} {node:>14} {direct:>14} {value:>7.2} {:>9}", format!("<= {target}"));
}

impl Taken {
    fn medians(&self) -> [f64; 3] {
        [self.node.clone(), self.direct.clone(), self.fewest.clone()].map(median)
    }

    fn paired(&self, compare: impl Fn(f64, f64) -> f64) -> f64 {
        median(self.node.iter().zip(&self.direct).map(|(node, direct)| compare(*node, *direct)).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// One CPU and 512 MiB of the Runtime release of this source tree.
fn specification(image: &palisade_release::Image) -> Value {
    json!({
        "resources": {"cpus": 1, "memory_mib": 512},
        "runtime": {
            "source_commit": "0".repeat(40),
            "image_id": image.image_id,
            "image_manifest_digest": image.manifest_digest,
            "microsandbox_ref": format!("oac-runtime@sha256:{}", "0".repeat(64)),
            "runtime_sha256": "0".repeat(64),
            "firmware_sha256": "0".repeat(64),
        },
    })
}

fn configure(folder: &Path, origin: &str, specification: &Value, installation: Id, image: &str) -> anyhow::Result<()> {
    let configuration = json!({
        "installation_id": installation, "provider": "docker", "core_url": format!("{origin}/api/v1"),
        "generation": 1, "specification": specification,
        "native": {
            "host": format!("unix://{SOCKET}"), "image": image, "network": "none",
            "seccomp_file": folder.join("seccomp.json"),
        },
    });
    write(&folder.join("seccomp.json"), palisade_release::SECCOMP_PROFILE)?;
    write(&folder.join("provider.json"), &configuration.to_string())?;
    write(&folder.join("token"), &"1".repeat(64))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    Ok(options.write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())?)
}
