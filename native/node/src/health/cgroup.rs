//! Effective CPU cores: affinity and the quotas of every control group above this process (wire §8.3).
//!
//! Either the whole chain of limits is proven, or the number is unknown.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::Files;
use crate::limits::CGROUP_LEVELS_MAX;

const MEMBERSHIP: &str = "/proc/self/cgroup";
const MOUNTS: &str = "/proc/self/mountinfo";

/// The cores that this process can really use; `affinity` is how many it may run on.
pub(super) fn effective_cores(files: &impl Files, affinity: Option<u32>) -> Option<f64> {
    let affinity = f64::from(affinity?);
    let membership = files.read(Path::new(MEMBERSHIP)).ok()?;
    let quota = match hierarchy(&membership)? {
        Hierarchy::Unlimited => f64::INFINITY,
        Hierarchy::Group(version, group) => {
            let mount = mount(&files.read(Path::new(MOUNTS)).ok()?, version)?;
            smallest_quota(files, version, &mount, &group)?
        }
    };
    // The process may have been moved meanwhile; then the chain is not its own.
    (files.read(Path::new(MEMBERSHIP)).ok()? == membership).then(|| affinity.min(quota))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// Which hierarchy limits the processor.
#[derive(Debug, PartialEq, Eq)]
enum Hierarchy {
    Unlimited,
    /// The process's group in it.
    Group(Version, PathBuf),
}

/// `None` when the membership is malformed or ambiguous.
fn hierarchy(membership: &str) -> Option<Hierarchy> {
    let (mut unified, mut cpu) = (None, None);
    for line in membership.lines() {
        let [id, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { return None };
        let id: u32 = id.bytes().all(|byte| byte.is_ascii_digit()).then(|| id.parse().ok())??;
        if (id == 0) != controllers.is_empty() || path.ends_with(" (deleted)") || !is_clean(Path::new(path)) {
            return None;
        }
        let slot = if controllers.split(',').any(|name| name == "cpu") {
            &mut cpu
        } else if id == 0 {
            &mut unified
        } else {
            continue;
        };
        if slot.replace(PathBuf::from(path)).is_some() {
            return None;
        }
    }
    Some(match (cpu, unified) {
        (Some(path), _) => Hierarchy::Group(Version::V1, path),
        (None, Some(path)) => Hierarchy::Group(Version::V2, path),
        (None, None) => Hierarchy::Unlimited,
    })
}

/// Where the hierarchy is mounted whole; a mount of a subtree hides the limits above it.
fn mount(mountinfo: &str, version: Version) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let (before, after): (Vec<_>, Vec<_>) = (before.split(' ').collect(), after.split(' ').collect());
        if before.len() < 6 || after.len() < 3 {
            return None;
        }
        let matches = match version {
            Version::V2 => after[0] == "cgroup2",
            Version::V1 => after[0] == "cgroup" && after[2].split(',').any(|option| option == "cpu"),
        };
        let point = unescape(before[4]);
        (matches && unescape(before[3]) == Path::new("/") && is_clean(&point)).then_some(point)
    })
}

/// Decodes `\040`, `\011`, `\012` and `\134`.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let (byte, taken) = match rest {
            [b'\\', b'0', b'4', b'0', ..] => (b' ', 4),
            [b'\\', b'0', b'1', b'1', ..] => (b'\t', 4),
            [b'\\', b'0', b'1', b'2', ..] => (b'\n', 4),
            [b'\\', b'1', b'3', b'4', ..] => (b'\\', 4),
            _ => (*first, rest.len() - tail.len()),
        };
        bytes.push(byte);
        rest = &rest[taken..];
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn is_clean(path: &Path) -> bool {
    let clean: PathBuf = path.components().filter(|part| *part != Component::ParentDir).collect();
    path.is_absolute() && clean.as_os_str() == path.as_os_str()
}

/// The smallest limit from the process's group up to the mount root, in cores; infinite without one.
fn smallest_quota(files: &impl Files, version: Version, mount: &Path, group: &Path) -> Option<f64> {
    if !is_visible_root(files, version, mount) {
        return None;
    }
    let names: Vec<_> = group.components().skip(1).collect();
    // The root is a level as well.
    if names.len() >= CGROUP_LEVELS_MAX {
        return None;
    }
    let mut smallest = f64::INFINITY;
    for depth in (0..=names.len()).rev() {
        let level = names[..depth].iter().fold(mount.to_owned(), |path, name| path.join(name));
        let limit = match version {
            Version::V1 => quota_v1(files, &level)?,
            Version::V2 if depth == 0 => unlimited_root_v2(files, &level)?,
            Version::V2 => quota_v2(files, &level)?,
        };
        smallest = smallest.min(limit);
    }
    Some(smallest)
}

/// Whether the mount shows the real root of the hierarchy and not that of a namespace.
fn is_visible_root(files: &impl Files, version: Version, mount: &Path) -> bool {
    match version {
        Version::V1 => files.read(&mount.join("release_agent")).is_ok(),
        Version::V2 => is_missing(&files.read(&mount.join("cgroup.type"))),
    }
}

fn unlimited_root_v2(files: &impl Files, level: &Path) -> Option<f64> {
    files.read(&level.join("cgroup.controllers")).ok()?;
    is_missing(&files.read(&level.join("cpu.max"))).then_some(f64::INFINITY)
}

fn quota_v2(files: &impl Files, level: &Path) -> Option<f64> {
    let limit = files.read(&level.join("cpu.max"));
    if is_missing(&limit) {
        let controllers = files.read(&level.join("cgroup.controllers")).ok()?;
        let delegated = controllers.split_ascii_whitespace().any(|name| name == "cpu");
        return (!delegated).then_some(f64::INFINITY);
    }
    let limit = limit.ok()?;
    let [quota, period] = limit.split_ascii_whitespace().collect::<Vec<_>>()[..] else { return None };
    cores(quota, period, "max")
}

fn quota_v1(files: &impl Files, level: &Path) -> Option<f64> {
    let quota = files.read(&level.join("cpu.cfs_quota_us")).ok()?;
    let period = files.read(&level.join("cpu.cfs_period_us")).ok()?;
    cores(quota.trim_ascii(), period.trim_ascii(), "-1")
}

fn cores(quota: &str, period: &str, unlimited: &str) -> Option<f64> {
    let period = positive(period)?;
    if quota == unlimited {
        return Some(f64::INFINITY);
    }
    #[allow(
        clippy::cast_precision_loss,
        reason = "a ratio of microseconds needs no more than the precision of a double"
    )]
    Some(positive(quota)? as f64 / period as f64)
}

fn positive(text: &str) -> Option<i64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok().filter(|value| *value > 0) } else { None }
}

fn is_missing(read: &io::Result<String>) -> bool {
    matches!(read, Err(error) if error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests;
