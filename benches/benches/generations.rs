//! A host with 257 generations: how long a node takes until it knows them all, and how long one more is prepared whose
//! bytes are there.
//!
//! Node, preparer and records are real, and so are the Docker engine and the disk of the temporary folder. Core answers
//! at once and does nothing else.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bollard::Docker;
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::catalogue::{IMAGE, IMAGE_UNPACKED, SECCOMP};
use palisade_core::generation::recovery::{FileKind, Owner, Status};
use palisade_core::units::{Digest, Generation, Id};
use palisade_node::{Action, Assigned, Register, Run};
use serde_json::{Value, json};

const SOCKET: &str = "/var/run/docker.sock";
/// Generations of the host beside those that are prepared here.
const GENERATIONS: u64 = 257;
/// Starts and preparations that count.
const TURNS: u64 = 5;
/// The most that either may take, in milliseconds.
const MAX_MS: f64 = 1_000.0;

fn main() -> anyhow::Result<()> {
    // Cargo passes `--bench`; a name that is not ours means that another benchmark is wanted.
    if std::env::args().skip(1).any(|argument| !argument.starts_with('-') && !"generations".contains(&argument)) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let site = runtime.block_on(Site::new())?;
    let alone = starts(&runtime, &site)?;
    for generation in 2..=GENERATIONS {
        site.record(generation)?;
    }
    let began = Instant::now();
    let listed = palisade_node::generations(&site.root()).map_err(|error| anyhow::anyhow!("{error}"))?.len();
    ensure!(listed as u64 == GENERATIONS, "{listed} generations are listed");
    let listed = milliseconds(began.elapsed());
    let started = starts(&runtime, &site)?;
    let prepared = preparations(&site)?;
    println!("a node with 1 generation asks core after {alone:.1} ms, a list of {GENERATIONS} takes {listed:.1} ms");
    println!("\n{:<44} {:>14} {:>14} {:>7} {:>9}", "median", "ours", "limit", "ratio", "target");
    row(&format!("start with {GENERATIONS} generations, until it asks"), started);
    row("preparation of a release that is there", prepared);
    Ok(())
}

fn row(what: &str, taken: f64) {
    let (ours, limit) = (format!("{taken:.1} ms"), format!("{MAX_MS} ms"));
    println!("{what:<44} {ours:>14} {limit:>14} {:>7.2} {:>9}", taken / MAX_MS, "<= 1");
}

/// From the start of a node to its first question, which it asks when it knows everything on its disk.
fn starts(runtime: &tokio::runtime::Runtime, site: &Site) -> anyhow::Result<f64> {
    let mut taken = Vec::new();
    for _ in 0..TURNS {
        while site.asked.try_recv().is_ok() {}
        let run = Run { config: site.root().join("provider.json"), state_dir: site.state(), core_url: None };
        let began = Instant::now();
        let node = runtime.spawn(palisade_node::run(run));
        let asked = site.asked.recv_timeout(Duration::from_secs(60)).context("the node does not start")?;
        taken.push(milliseconds(asked - began));
        node.abort();
        // Its lock ends with it.
        let _ = runtime.block_on(node);
    }
    Ok(median(taken))
}

/// What the node's preparer does for a new generation of the release that serves.
fn preparations(site: &Site) -> anyhow::Result<f64> {
    let mut taken = Vec::new();
    for number in GENERATIONS + 1..=GENERATIONS + TURNS {
        let generation = Generation::new(number).context("generations begin at 1")?;
        let assigned = Assigned {
            root: site.root(),
            installation: site.installation,
            action: Action::Prepare,
            generation,
            specification_digest: site.specification(number)?.digest(),
        };
        let began = Instant::now();
        let status = palisade_node::perform(&assigned);
        taken.push(milliseconds(began.elapsed()));
        ensure!(status == 0, "the preparation ended with {status}");
        ensure!(site.records().join(format!("{number}.json")).exists(), "generation {number} is not there");
    }
    Ok(median(taken))
}

/// An enrolled host, as an installer leaves it.
struct Site {
    folder: tempfile::TempDir,
    installation: Id,
    runtime: Value,
    image: String,
    origin: String,
    /// When Core was asked something.
    asked: Receiver<Instant>,
}

impl Site {
    async fn new() -> anyhow::Result<Self> {
        let docker = Docker::connect_with_unix(SOCKET, 120, bollard::API_DEFAULT_VERSION)?.negotiate_version().await;
        let docker =
            docker.with_context(|| format!("no Docker engine answers on {SOCKET}: run scripts/start-docker"))?;
        let (image, id) = palisade_release::checkout::image(&docker).await?;
        let runtime = json!({
            "source_commit": "0".repeat(40), "image_id": image.image_id, "image_manifest_digest": image.manifest_digest,
            "microsandbox_ref": format!("oac-runtime@sha256:{}", "0".repeat(64)),
            "runtime_sha256": "0".repeat(64), "firmware_sha256": "0".repeat(64),
        });
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let origin = format!("http://{}", listener.local_addr()?);
        let (folder, installation) = (tempfile::tempdir()?, Id::from_random(rand::random()));
        let core = Core { installation, origin: origin.clone(), runtime: runtime.clone() };
        let (sender, asked) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The other end is this program, and tells what went wrong.
                let _ = sender.send(Instant::now());
                let _ = core.answer(stream);
            }
        });
        let site = Self { folder, installation, runtime, image: id, origin, asked };
        site.install()?;
        site.register().await?;
        Ok(site)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn state(&self) -> PathBuf {
        self.root().join("state/node")
    }

    fn records(&self) -> PathBuf {
        self.state().join("generations")
    }

    fn specification(&self, generation: u64) -> anyhow::Result<Specification> {
        let text = specification(&self.runtime, generation).to_string();
        Ok(Specification::parse(Provider::Docker, text.as_bytes())?)
    }

    fn configuration(&self, generation: u64) -> Vec<u8> {
        let configuration = json!({
            "installation_id": self.installation, "provider": "docker", "core_url": format!("{}/api/v1", self.origin),
            "generation": generation, "specification": specification(&self.runtime, generation),
            "native": {
                "host": format!("unix://{SOCKET}"), "image": self.image, "network": "none",
                "seccomp_file": self.root().join(SECCOMP),
            },
        });
        configuration.to_string().into_bytes()
    }

    fn install(&self) -> anyhow::Result<()> {
        for folder in ["root", "root/runtime", "root/state"] {
            std::fs::DirBuilder::new().mode(0o700).create(self.folder.path().join(folder))?;
        }
        let profile = palisade_release::SECCOMP_PROFILE.as_bytes();
        write(&self.root().join(SECCOMP), profile)?;
        write(&self.root().join("provider.json"), &self.configuration(1))?;
        let nothing = Digest::of(b"");
        let record = json!({
            "installation_id": self.installation, "source_commit": "0".repeat(40),
            "sha256": {SECCOMP: Digest::of(profile), IMAGE: nothing, IMAGE_UNPACKED: nothing},
        });
        write(&self.root().join("runtime-artifacts.json"), record.to_string().as_bytes())?;
        write(&self.folder.path().join("token"), "1".repeat(64).as_bytes())
    }

    async fn register(&self) -> anyhow::Result<()> {
        let register = Register {
            config: self.root().join("provider.json"),
            state_dir: self.state(),
            core_url: self.origin.clone(),
            name: "bench".to_owned(),
            enrollment_token_file: self.folder.path().join("token"),
            allow_insecure_origin: false,
        };
        palisade_node::register(register).await.context("the node does not register")?;
        Ok(())
    }

    /// What a preparation leaves of a generation of the same release.
    fn record(&self, generation: u64) -> anyhow::Result<()> {
        let path = |suffix: &str| self.records().join(format!("{generation}.{suffix}"));
        write(&path("lease"), b"")?;
        let lease = path("lease").metadata()?;
        let status = Status {
            kind: FileKind::File,
            owned: true,
            mode: 0o600,
            links: 1,
            device: lease.dev(),
            inode: lease.ino(),
        };
        let owner = Owner {
            installation: self.installation,
            generation: Generation::new(generation).context("generations begin at 1")?,
            specification_digest: self.specification(generation)?.digest(),
        };
        write(&path("lease-identity"), &owner.lease_record(status))?;
        write(&path("json"), &self.configuration(generation))
    }
}

/// Every generation has another size.
fn specification(runtime: &Value, generation: u64) -> Value {
    json!({"resources": {"cpus": 1, "memory_mib": 512 + generation}, "runtime": runtime})
}

/// A Core that approves the node and knows every generation.
struct Core {
    installation: Id,
    origin: String,
    runtime: Value,
}

impl Core {
    fn answer(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        let (head, body) = read_request(&mut stream)?;
        let of = |name: &str| head.split_once(name).and_then(|(_, rest)| rest.split_whitespace().next());
        let answer = if let Some(generation) = of("generation=") {
            self.assignment(generation.parse()?)?
        } else {
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let node = of("node_id=").or(body["node_id"].as_str()).context("the node names itself")?;
            self.approval(node)?
        };
        let (answer, length) = (answer.to_string(), answer.to_string().len());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        Ok(stream.write_all((head + &answer).as_bytes())?)
    }

    fn approval(&self, node: &str) -> anyhow::Result<Value> {
        Ok(json!({
            "specification_digest": self.digest(1)?, "deployment_generation": 1, "node_id": node,
            "installation_id": self.installation, "provider": "docker", "max_active": 4, "max_retained": 8,
        }))
    }

    fn assignment(&self, generation: u64) -> anyhow::Result<Value> {
        Ok(json!({
            "max_active": 4, "max_retained": 8, "installation_id": self.installation, "provider": "docker",
            "core_url": self.origin, "generation": generation,
            "specification": specification(&self.runtime, generation), "specification_digest": self.digest(generation)?,
        }))
    }

    fn digest(&self, generation: u64) -> anyhow::Result<Digest> {
        let text = specification(&self.runtime, generation).to_string();
        Ok(Specification::parse(Provider::Docker, text.as_bytes())?.digest())
    }
}

fn read_request(stream: &mut TcpStream) -> anyhow::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head)?;
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let length = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, value)| value).next();
    let mut body = vec![0; length.map_or(Ok(0), str::parse)?];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    Ok(options.write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)?)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
