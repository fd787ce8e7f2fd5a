//! What is on the host itself.

use std::path::Path;

use nix::sys::statvfs::{Statvfs, statvfs};
use nix::unistd::geteuid;
use palisade_node::HeldGeneration;
use palisade_node::doctor::{self, Configured, Examination};

use crate::findings::Finding;
use crate::operator::table::bytes;

/// Free bytes below which no release can be prepared, and below which it is worth a look: a download leaves 256 MiB free
/// for everybody else, and a release is a few hundred megabytes.
const DISK_PROBLEM_BYTES: u64 = 512 << 20;
const DISK_WARNING_BYTES: u64 = 4 << 30;
/// The same for inodes: a download leaves 256 free.
const INODES_PROBLEM: u64 = 512;
const INODES_WARNING: u64 = 10_000;

/// Whether the node's user alone may enter the root.
pub(super) fn root(examination: &Examination) -> Finding {
    const CHECK: &str = "root";
    match examination.root() {
        Ok(()) if geteuid().is_root() => {
            let next = "give the node an account of its own, which owns this folder and may use the engine: what it prepares \
                        and collects runs as root otherwise";
            Finding::warning(CHECK, "a private folder of root, so that the node runs as root", next)
        }
        Ok(()) => Finding::ok(CHECK, "a private folder of this user"),
        Err(error) => {
            let next = "run the doctor as the node's user, who owns the folder with mode 0700, and name it with --root";
            Finding::problem(CHECK, error.to_string(), next)
        }
    }
}

/// Room for releases, records and the engine's answers.
pub(super) fn disk(root: &Path) -> Finding {
    const CHECK: &str = "disk";
    let disk = match measure(CHECK, root) {
        Ok(disk) => disk,
        Err(finding) => return finding,
    };
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    let found = format!("{} free below {}", bytes(Some(free)), root.display());
    let next = "make room: `palisade node generations` shows which generations hold files here";
    match free {
        ..DISK_PROBLEM_BYTES => Finding::problem(CHECK, found, next),
        DISK_PROBLEM_BYTES..DISK_WARNING_BYTES => Finding::warning(CHECK, found, next),
        DISK_WARNING_BYTES.. => Finding::ok(CHECK, found),
    }
}

/// A file system can be full of small files with most of its bytes free.
pub(super) fn inodes(root: &Path) -> Finding {
    const CHECK: &str = "inodes";
    let disk = match measure(CHECK, root) {
        Ok(disk) => disk,
        Err(finding) => return finding,
    };
    if disk.files() == 0 {
        return Finding::ok(CHECK, "this file system does not count them");
    }
    let found = format!("{} free below {}", disk.files_available(), root.display());
    let next = "remove small files nobody needs: `df -i` shows the file system, `du --inodes` where they are";
    match disk.files_available() {
        ..INODES_PROBLEM => Finding::problem(CHECK, found, next),
        INODES_PROBLEM..INODES_WARNING => Finding::warning(CHECK, found, next),
        INODES_WARNING.. => Finding::ok(CHECK, found),
    }
}

fn measure(check: &'static str, root: &Path) -> Result<Statvfs, Finding> {
    let next = "name the root of an installation with --root";
    statvfs(root)
        .map_err(|error| Finding::problem(check, format!("cannot measure {}: {}", root.display(), error.desc()), next))
}

/// Owner, mode and content of provider.json.
pub(super) fn configuration(examination: &Examination) -> (Finding, Option<Configured>) {
    const CHECK: &str = "configuration";
    match examination.configuration() {
        Ok(configured) => {
            let (file, provider) = (configured.file.display(), configured.provider);
            let found = format!("{file} is understood: {provider}, generation {}", configured.generation);
            (Finding::ok(CHECK, found), Some(configured))
        }
        Err(error) => {
            let next = "the file belongs to the node's user, nobody else may write it (chmod 600), and it is never edited: \
                        bring back the one that the node was enrolled with";
            (Finding::problem(CHECK, error.to_string(), next), None)
        }
    }
}

/// Who answers where the configuration says.
pub(super) async fn engine(configured: &Configured) -> Option<Finding> {
    const CHECK: &str = "engine";
    let host = configured.engine.as_deref()?;
    Some(match doctor::engine(host).await {
        Ok(about) => {
            let (version, cpus, memory) = (about.version, about.cpus, bytes(Some(about.memory_bytes)));
            Finding::ok(CHECK, format!("version {version} at {host}: {cpus} CPUs, {memory} of memory"))
        }
        Err(error) => {
            let next = "start it, and let the node's user use its socket: `docker -H ADDRESS version` asks it the same";
            Finding::problem(CHECK, format!("{host}: {error}"), next)
        }
    })
}

/// Whether sandboxes of each generation could be created now: limits, image and files.
pub(super) async fn readiness(examination: &Examination) -> Vec<Finding> {
    const CHECK: &str = "readiness";
    let next = "a running node repairs what is missing of a release; its log says what keeps it, and an engine that cannot \
                limit or is too small needs another host";
    let probed = examination.readiness().await.into_iter();
    let judged = probed.map(|(generation, ready)| match ready {
        Ok(()) => Finding::ok(CHECK, format!("generation {generation} could create a sandbox now")),
        Err(reason) => Finding::problem(CHECK, format!("generation {generation}: {reason}"), next),
    });
    judged.collect()
}

/// What is recorded of the generations, and whether each can be worked on.
pub(super) fn generations(root: &Path) -> Vec<Finding> {
    const CHECK: &str = "records";
    let held = match palisade_node::generations(root) {
        Ok(held) => held,
        Err(error) => {
            let next = "a node does not start beside a record that it cannot believe; nothing was changed: inspect what it \
                        names, and bring back the original or ask for help before anything is removed";
            return vec![Finding::problem(CHECK, error.to_string(), next)];
        }
    };
    let count = |state| held.iter().filter(|one| one.state == state).count();
    let states = ["configured", "unfinished", "collecting", "dropped", "leased"].map(|state| (count(state), state));
    let states = states.iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!("{count} {state}"));
    let told = states.collect::<Vec<_>>().join(", ");
    let mut findings = vec![Finding::ok(CHECK, format!("all are believed: {told}"))];
    findings.extend(held.iter().filter_map(lease));
    findings.extend(held.iter().filter(|one| matches!(one.state, "unfinished" | "collecting")).map(under_way));
    findings
}

/// A lease that is not what it must be is refused for good.
fn lease(held: &HeldGeneration) -> Option<Finding> {
    let wrong = held.lease.as_ref()?;
    let found = format!("generation {}: {wrong}", held.generation);
    let next = "it is never prepared, repaired or collected as it is, and nothing may be removed by hand while a sandbox of \
                it is left: select another generation, and inspect it";
    Some(match held.state {
        "leased" => Finding::warning("lease", found, next),
        _ => Finding::problem("lease", found, next),
    })
}

fn under_way(held: &HeldGeneration) -> Finding {
    Finding::warning("generation", format!("generation {} is {}", held.generation, held.state), held.next)
}
