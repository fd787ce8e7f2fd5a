//! Whether a sandbox could be created now; the first failing check wins (node-host §7.7).

use std::time::{Duration, Instant};

use bollard::models::SystemInfo;
use palisade_core::limits::PROBE_TIMEOUT_MS;
use palisade_core::wire::payload::Diagnostic;
use palisade_provider::NotReady;

use crate::configuration::{Limits, Settings};
use crate::engine::{EngineError, Wait};
use crate::provider::Docker;

impl Docker {
    /// # Errors
    /// The class of the first failing check, with local detail.
    pub(crate) async fn probe(&self) -> Result<(), NotReady> {
        let wait = Wait::Until(Instant::now() + Duration::from_millis(PROBE_TIMEOUT_MS));
        self.engine.ping(wait).await.map_err(|error| self.unavailable(&error))?;
        let info = self.engine.info(wait).await.map_err(|error| self.unavailable(&error))?;
        check_host(&info, &self.settings)?;
        match self.engine.image_id(&self.settings.image, wait).await {
            Ok(id) if !id.is_empty() => Ok(()),
            Err(error) if !error.is_status(404) => Err(self.unavailable(&error)),
            Ok(_) | Err(_) => Err(NotReady {
                diagnostic: Diagnostic::RuntimeImageUnavailable,
                detail: format!("the engine does not have image {}; load the release's image", self.settings.image),
            }),
        }
    }

    fn unavailable(&self, error: &EngineError) -> NotReady {
        NotReady {
            diagnostic: Diagnostic::DockerUnavailable,
            detail: format!("{}: {error}; check that the engine runs and may be used", self.settings.host),
        }
    }
}

fn check_host(info: &SystemInfo, settings: &Settings) -> Result<(), NotReady> {
    let refuse = |diagnostic, detail: &str| Err(NotReady { diagnostic, detail: detail.to_owned() });
    let enforced = [info.memory_limit, info.cpu_cfs_period, info.cpu_cfs_quota];
    if enforced != [Some(true); 3] {
        return refuse(
            Diagnostic::DockerLimitsUnsupported,
            "the engine cannot limit memory and CPU; enable both cgroup controllers",
        );
    }
    let memory = info.mem_total.unwrap_or_default();
    if memory <= 0 {
        return refuse(Diagnostic::ProviderUnavailable, "the engine does not say how much memory it has");
    }
    let nano_cpus = info.ncpu.unwrap_or_default().saturating_mul(1_000_000_000);
    let Limits { memory_bytes, nano_cpus: wanted } = settings.limits;
    if settings.managed && (memory < memory_bytes || nano_cpus < wanted) {
        return refuse(Diagnostic::CapacityInsufficient, "one sandbox needs more memory or CPUs than the engine has");
    }
    Ok(())
}
