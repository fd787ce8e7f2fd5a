//! What the host measures, for `hello`, heartbeats and enrollment (wire §8).
//!
//! The modules below are pure readings of file contents; this one reads the files. A failed measurement is unknown.

mod cgroup;
mod cpu;
mod disk;
mod memory;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use palisade_core::limits::SAFE_INTEGER_MAX;
use palisade_core::wire::payload::{Health, Observation};

use crate::limits::MEASURED_FILE_MAX_BYTES;

/// One sample of the host. `None` is unknown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measurements {
    /// RFC 3339 in UTC, after the sample began.
    pub(crate) observed_at: String,
    /// 0 … 1 since the sampler's last sample.
    pub(crate) cpu_utilization: Option<f64>,
    /// Processors that this process may use.
    pub(crate) cpu_count: Option<u64>,
    /// The same, limited by control group quotas.
    pub(crate) effective_cpu_cores: Option<f64>,
    /// Bytes, above 0.
    pub(crate) total_memory_bytes: Option<u64>,
    /// Bytes.
    pub(crate) available_memory_bytes: Option<u64>,
    /// Bytes on the state directory's filesystem.
    pub(crate) available_disk_bytes: Option<u64>,
}

impl Measurements {
    /// The health report with what the host cannot know.
    pub(crate) fn health(self, active_operations: u32, generations: Vec<Observation<'_>>) -> Health<'_> {
        Health {
            observed_at: self.observed_at.into(),
            active_operations,
            cpu_utilization: self.cpu_utilization,
            total_memory_bytes: self.total_memory_bytes,
            effective_cpu_cores: self.effective_cpu_cores,
            cpu_count: self.cpu_count,
            available_memory_bytes: self.available_memory_bytes,
            available_disk_bytes: self.available_disk_bytes,
            generations,
        }
    }
}

/// Samples the host for one connection. The first sample has no utilization; each connection takes a fresh sampler.
#[derive(Debug)]
pub(crate) struct Sampler {
    state_directory: PathBuf,
    cpu: cpu::Baseline,
}

impl Sampler {
    /// Disk is measured where `state_directory` lies.
    pub(crate) fn new(state_directory: &Path) -> Self {
        Self { state_directory: state_directory.to_owned(), cpu: cpu::Baseline::default() }
    }

    /// Reads the host now. Blocks for a few small reads of `/proc`, `/sys` and one `statvfs`.
    pub(crate) fn sample(&mut self) -> Measurements {
        let affinity = affinity();
        let text = |path: &str| Host.read(Path::new(path)).ok();
        let memory = memory::read(text("/proc/meminfo").as_deref());
        Measurements {
            cpu_utilization: self.cpu.sample(text("/proc/stat").as_deref()),
            cpu_count: affinity.map(u64::from),
            effective_cpu_cores: cgroup::effective_cores(&Host, affinity),
            total_memory_bytes: memory.total,
            available_memory_bytes: memory.available,
            available_disk_bytes: disk::available(&self.state_directory),
            observed_at: jiff::Timestamp::now().to_string(),
        }
    }
}

/// How many processors the leader of this process may use.
fn affinity() -> Option<u32> {
    let set = nix::sched::sched_getaffinity(nix::unistd::getpid()).ok()?;
    let count = (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).count();
    u32::try_from(count).ok().filter(|count| *count > 0)
}

/// Where measurements read; a test gives other contents.
trait Files {
    /// The whole file as text; a file above 1 MiB is a failed read.
    fn read(&self, path: &Path) -> io::Result<String>;
}

struct Host;

impl Files for Host {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(MEASURED_FILE_MAX_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MEASURED_FILE_MAX_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(text)
    }
}

/// A number that a health report can carry; larger ones are unknown rather than wrong (wire §8.4).
fn expressible(bytes: u64) -> Option<u64> {
    (bytes <= SAFE_INTEGER_MAX).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W 171. A sample of the real host is complete, in UTC, and taken between start and end of the call.
    #[test]
    fn a_sample_of_this_host_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let mut sampler = Sampler::new(directory.path());
        let start = jiff::Timestamp::now();
        let first = sampler.sample();
        let observed: jiff::Timestamp = first.observed_at.parse().unwrap();
        assert!(start <= observed && observed <= jiff::Timestamp::now() && first.observed_at.ends_with('Z'));
        assert_eq!(first.cpu_utilization, None);
        assert!(first.available_memory_bytes.unwrap() <= first.total_memory_bytes.unwrap());
        assert!(first.cpu_count.unwrap() >= 1);
        let second = loop {
            // The kernel counts in ticks; until one has passed there is no interval to speak of.
            if let Some(utilization) = sampler.sample().cpu_utilization {
                break utilization;
            }
        };
        assert!((0.0..=1.0).contains(&second), "{second}");
    }

    /// W 160. A new connection's sampler knows no utilization, whatever another has seen.
    #[test]
    fn a_fresh_sampler_starts_a_fresh_interval() {
        let directory = tempfile::tempdir().unwrap();
        Sampler::new(directory.path()).sample();
        let sample = Sampler::new(directory.path()).sample();
        assert_eq!(sample.cpu_utilization, None);
        assert!(sample.total_memory_bytes.is_some() && !sample.observed_at.is_empty());
    }

    /// W 172. Disk is that of the state directory, and unknown without one.
    #[test]
    fn disk_belongs_to_the_state_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Sampler::new(directory.path()).sample().available_disk_bytes.is_some());
        let missing = directory.path().join("missing");
        assert_eq!(Sampler::new(&missing).sample().available_disk_bytes, None);
    }

    /// W 173. A file of exactly 1 MiB is read; one byte more is a failed read.
    #[test]
    fn a_file_above_one_mib_is_a_failed_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        let size = usize::try_from(MEASURED_FILE_MAX_BYTES).unwrap();
        crate::testing::write(&path, vec![b' '; size]);
        assert_eq!(Host.read(&path).unwrap().len(), size);
        crate::testing::write(&path, vec![b' '; size + 1]);
        Host.read(&path).unwrap_err();
    }

    #[test]
    fn a_number_that_cannot_be_expressed_is_unknown() {
        assert_eq!(expressible(SAFE_INTEGER_MAX), Some(SAFE_INTEGER_MAX));
        assert_eq!(expressible(SAFE_INTEGER_MAX + 1), None);
    }
}
