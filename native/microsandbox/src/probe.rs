//! Whether a sandbox could be created now; the first failing check wins (node-host §8.9).

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use palisade_core::limits::PROBE_TIMEOUT_MS;
use palisade_core::microsandbox::native::Construction;
use palisade_core::microsandbox::readiness::Check;
use palisade_provider::NotReady;

use crate::directory;
use crate::limits::MEMINFO_MAX_BYTES;
use crate::msb::Msb;
use crate::programs::{self, Verified};

/// What a probe must know of the machine that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The device of the kernel's virtual machines.
    pub kvm: PathBuf,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Memory of the machine, in bytes; 0 when it is not known.
    pub memory_bytes: u64,
}

/// The checks of one generation.
#[derive(Debug)]
pub(crate) struct Probe {
    checks: &'static [Check],
    host: Arc<Host>,
    msb: Msb,
}

/// What the checks that only look at files need.
#[derive(Debug)]
struct Host {
    machine: Machine,
    construction: Construction,
    runtime: Verified,
    firmware: Verified,
}

impl Machine {
    /// The one that this program runs on.
    #[must_use]
    pub fn this() -> Self {
        let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        Self { kvm: PathBuf::from("/dev/kvm"), cpus, memory_bytes: memory_bytes().unwrap_or(0) }
    }
}

impl Probe {
    pub(crate) fn new(machine: Machine, checks: &'static [Check], construction: &Construction) -> Self {
        let (runtime, firmware) = (Verified::default(), Verified::default());
        let msb = Msb::of(&construction.native);
        let host = Arc::new(Host { machine, construction: construction.clone(), runtime, firmware });
        Self { checks, host, msb }
    }

    /// Looks at one thing after the other.
    pub(crate) async fn run(&self) -> Result<(), NotReady> {
        for &check in self.checks {
            let looked = tokio::time::timeout(Duration::from_millis(PROBE_TIMEOUT_MS), self.check(check)).await;
            let looked = looked.unwrap_or_else(|_| Err("the check did not end in time".to_owned()));
            looked.map_err(|detail| NotReady { diagnostic: check.diagnostic(), detail })?;
        }
        Ok(())
    }

    async fn check(&self, check: Check) -> Result<(), String> {
        if check == Check::Image {
            return self.msb.inspect(&self.host.construction.image).await.map_err(|error| error.to_string());
        }
        let host = Arc::clone(&self.host);
        let looked = tokio::task::spawn_blocking(move || host.check(check)).await;
        looked.unwrap_or_else(|_| Err("the check could not be made".to_owned()))
    }
}

impl Host {
    fn check(&self, check: Check) -> Result<(), String> {
        let native = &self.construction.native;
        match check {
            Check::System if cfg!(target_os = "linux") => Ok(()),
            Check::System => Err("microsandbox needs Linux".to_owned()),
            Check::Kvm => kvm(&self.machine.kvm),
            Check::Capacity => self.capacity(),
            Check::Programs => self
                .runtime
                .check(Path::new(&native.runtime_path), self.construction.runtime)
                .and_then(|()| self.firmware.check(Path::new(&native.firmware_path), self.construction.firmware)),
            Check::Helper => programs::is_executable(Path::new(&native.helper_path)),
            Check::Store => {
                directory::open(Path::new(&native.runtime_home)).map(drop).map_err(|error| error.to_string())
            }
            // The one check that asks a program.
            Check::Image => Ok(()),
        }
    }

    fn capacity(&self) -> Result<(), String> {
        let Construction { cpus, memory_mib, .. } = self.construction;
        let enough = u64::from(memory_mib) << 20 <= self.machine.memory_bytes;
        if enough && usize::try_from(cpus).is_ok_and(|cpus| cpus <= self.machine.cpus) {
            return Ok(());
        }
        let Machine { cpus: has, memory_bytes, .. } = self.machine;
        let mib = memory_bytes >> 20;
        Err(format!("one sandbox needs {cpus} CPUs and {memory_mib} MiB; this machine has {has} and {mib}"))
    }
}

fn kvm(device: &Path) -> Result<(), String> {
    let opened = OpenOptions::new().read(true).write(true).open(device);
    let failed = |error| format!("{}: {error}; give this account access to KVM", device.display());
    opened.map(drop).map_err(failed)
}

/// The first line of `/proc/meminfo` that says how much there is.
fn memory_bytes() -> Option<u64> {
    let mut text = String::new();
    File::open("/proc/meminfo").ok()?.take(MEMINFO_MAX_BYTES).read_to_string(&mut text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
