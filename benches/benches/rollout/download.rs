//! The node's downloader beside a plain HTTP client, for the same file from the same Core, both hashing while bytes come.
//!
//! Both ways take turns, so that a slow minute of the machine hits both. The plain client trusts whatever it gets: it has
//! no part to resume, no room to look at, no stall to notice and nothing to make durable.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use palisade_core::distribution::catalogue::{NODE, Role};
use palisade_core::distribution::route::{File, Route};
use palisade_core::units::Digest;
use palisade_node::download::{Downloader, Silent, Source};
use palisade_release::{Contents, Inputs, build, publish};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::Row;
use crate::core::Process;

/// Bytes of the file.
const FILE_BYTES: usize = 256 << 20;
/// Turns of each way that count.
const TURNS: usize = 5;
/// Rate of the downloader over that of the plain client.
const RATE_RATIO_MIN: f64 = 0.8;

pub(crate) async fn measure() -> anyhow::Result<Row> {
    let home = tempfile::tempdir()?;
    let payload = home.path().join("payload");
    tokio::task::block_in_place(|| release(home.path(), &payload))?;
    let (_core, origin) = Process::core(&payload, &home.path().join("data"), "")?;

    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let (one, other) = (download(&origin, home.path()).await?, get(&origin, home.path()).await?);
        // The first turn warms everything up.
        if turn > 0 {
            ours.push(one);
            plain.push(other);
        }
    }
    let (ours, plain) = (median(ours), median(plain));
    #[expect(clippy::cast_precision_loss, reason = "mebibytes per second")]
    let rate = |time: Duration| (FILE_BYTES >> 20) as f64 / time.as_secs_f64();
    let ratio = rate(ours) / rate(plain);
    let shown = |time| format!("{:.0} MiB/s", rate(time));
    let (name, target) = ("download of 256 MiB, rate", format!(">= {RATE_RATIO_MIN}"));
    Ok(Row { name, ours: shown(ours), peer: shown(plain), ratio, target })
}

/// A published release whose node program is large.
fn release(home: &Path, payload: &Path) -> anyhow::Result<()> {
    let program = home.join("program");
    let mut bytes = vec![0; FILE_BYTES];
    rand::fill(&mut bytes[..]);
    let mut static_program = vec![0; 128];
    static_program[..6].copy_from_slice(b"\x7fELF\x02\x01");
    static_program[18] = 62;
    let small = home.join("static");
    std::fs::File::create(&program)?.write_all(&bytes)?;
    std::fs::File::create(&small)?.write_all(&static_program)?;
    let inputs = Inputs {
        source: palisade_release::Source::new(&"ab".repeat(20), &"cd".repeat(20)).context("two identifiers")?,
        guest: small.clone(),
        busybox: small,
        node_program: program,
        artifact_base_url: String::new(),
    };
    publish(&build(&inputs, &home.join("release"))?, payload, Contents::Complete)?;
    Ok(())
}

/// Through the downloader, into an empty folder.
async fn download(origin: &str, home: &Path) -> anyhow::Result<Duration> {
    let root = home.join("root");
    std::fs::create_dir(&root)?;
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o700))?;
    let cancel = CancellationToken::new();
    let downloader = Downloader::new(Source::console(origin)?)?;
    let release = downloader.release(None, &cancel).await?;
    let wanted = release.wanted("docker", &[Role::Node])?;
    let started = Instant::now();
    downloader.fetch(&wanted, &root, &cancel, &mut Silent).await?;
    let time = started.elapsed();
    ensure!(root.join(NODE).metadata()?.len() == FILE_BYTES as u64, "the whole file came");
    std::fs::remove_dir_all(&root)?;
    Ok(time)
}

/// With a client and a loop.
async fn get(origin: &str, home: &Path) -> anyhow::Result<Duration> {
    let downloader = Downloader::new(Source::console(origin)?)?;
    let release = downloader.release(None, &CancellationToken::new()).await?;
    let declared = &release.manifest().artifacts[NODE];
    let client = reqwest::Client::builder().no_proxy().build()?;
    let route = Route { release: None, file: File::Artifact(&declared.filename) };
    let path = home.join("plain");
    let started = Instant::now();
    let mut response = client.get(format!("{origin}{route}")).send().await?.error_for_status()?;
    let (mut hash, mut file) = (Sha256::new(), std::fs::File::create(&path)?);
    while let Some(piece) = response.chunk().await? {
        hash.update(&piece);
        file.write_all(&piece)?;
    }
    let same = Digest::from_bytes(hash.finalize().into()) == declared.sha256;
    let time = started.elapsed();
    ensure!(same, "the plain client got another file");
    std::fs::remove_file(&path)?;
    Ok(time)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
