//! Measured use: one sample, nothing invented (node-host §7.4).

use bollard::models::{ContainerInspectResponse, ContainerStatsResponse};
use jiff::Timestamp;
use palisade_core::outcome::Failure;
use palisade_core::wire::payload::{ObservationTarget, Sample};
use palisade_provider::Context;

use crate::container::is_running;
use crate::engine::Wait;
use crate::provider::{Docker, unconfirmed};

impl Docker {
    /// # Errors
    /// `invalid` and `ownership` for a target that is not this provider's, before any call; `runtime_not_running`
    /// before the statistics are read; `observation_unavailable` for an incomplete answer.
    pub(crate) async fn observe(
        &self,
        context: Context,
        target: &ObservationTarget<'_>,
    ) -> Result<Sample<'static>, Failure> {
        if target.mode != "openai_hosted" || target.instance.allocation_id != context.reference.allocation.to_string() {
            return Err(Failure::Invalid);
        }
        if target.instance.provider_key != self.settings.installation.to_string() {
            return Err(Failure::Ownership);
        }
        let wait = Wait::Until(context.deadline);
        let container = self.owned_container(context.reference, wait).await?.ok_or(Failure::RuntimeNotRunning)?;
        if !is_running(&container) {
            return Err(Failure::RuntimeNotRunning);
        }
        let id = container.id.clone().unwrap_or_default();
        let stats = self.engine.stats(&id, wait).await.map_err(|error| {
            unconfirmed(error);
            Failure::ObservationUnavailable
        })?;
        sample(&container, &stats).ok_or(Failure::ObservationUnavailable)
    }
}

/// `None` when the state is incomplete: no start, no time, or a start after the sample.
fn sample(container: &ContainerInspectResponse, stats: &ContainerStatsResponse) -> Option<Sample<'static>> {
    let started: Timestamp = container.state.as_ref()?.started_at.as_deref()?.parse().ok()?;
    let observed: Timestamp = stats.read.as_deref()?.parse().ok()?;
    if started < Timestamp::UNIX_EPOCH || started > observed {
        return None;
    }
    let cpu_nanoseconds = stats.cpu_stats.as_ref().and_then(|cpu| cpu.cpu_usage.as_ref()?.total_usage);
    let limits = container.host_config.as_ref();
    let nano_cpus = limits.and_then(|limits| limits.nano_cpus).filter(|limit| *limit > 0);
    let memory_limit = limits.and_then(|limits| limits.memory).filter(|limit| *limit > 0);
    Some(Sample {
        observed_at: observed.to_string().into(),
        started_at: Some(started.to_string().into()),
        cpu_usage_seconds_total: cpu_nanoseconds.map(billionths),
        cpu_capacity_cores: nano_cpus.and_then(|limit| u64::try_from(limit).ok()).map(billionths),
        cpu_utilization_ratio: None,
        memory_usage_bytes: stats.memory_stats.as_ref().and_then(|memory| memory.usage),
        memory_limit_bytes: memory_limit.and_then(|limit| u64::try_from(limit).ok()),
        disk_usage_bytes: None,
        disk_limit_bytes: None,
    })
}

#[allow(clippy::cast_precision_loss, reason = "exact below 104 days of CPU time, and near enough after that")]
fn billionths(count: u64) -> f64 {
    count as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::{ContainerCpuStats, ContainerCpuUsage, ContainerMemoryStats, ContainerState, HostConfig};

    fn container(started_at: &str, nano_cpus: i64, memory: i64) -> ContainerInspectResponse {
        ContainerInspectResponse {
            state: Some(ContainerState { started_at: Some(started_at.to_owned()), ..Default::default() }),
            host_config: Some(HostConfig { nano_cpus: Some(nano_cpus), memory: Some(memory), ..Default::default() }),
            ..Default::default()
        }
    }

    fn stats(cpu: Option<u64>, memory: Option<u64>) -> ContainerStatsResponse {
        ContainerStatsResponse {
            read: Some("2026-10-01T08:00:09.5Z".to_owned()),
            cpu_stats: Some(ContainerCpuStats {
                cpu_usage: Some(ContainerCpuUsage { total_usage: cpu, ..Default::default() }),
                ..Default::default()
            }),
            memory_stats: Some(ContainerMemoryStats { usage: memory, ..Default::default() }),
            ..Default::default()
        }
    }

    const STARTED: &str = "2026-10-01T07:00:02.123456789Z";

    /// H 194. An observed zero is kept, a missing value stays missing, and the configured capacity is reported.
    #[test]
    fn observed_zero_and_configured_capacity_are_kept() {
        let zero = sample(&container(STARTED, 2_000_000_000, 512 << 20), &stats(Some(0), Some(0))).unwrap();
        assert_eq!((zero.cpu_usage_seconds_total, zero.memory_usage_bytes), (Some(0.0), Some(0)));
        assert_eq!((zero.cpu_capacity_cores, zero.memory_limit_bytes), (Some(2.0), Some(512 << 20)));
        let missing = sample(&container(STARTED, 1, 1), &stats(None, None)).unwrap();
        assert_eq!((missing.cpu_usage_seconds_total, missing.memory_usage_bytes), (None, None));
    }

    /// H 195. CPU time is in seconds, and no capacity is invented.
    #[test]
    fn cpu_time_is_normalised_and_capacity_is_not_invented() {
        let sample = sample(&container(STARTED, 0, 0), &stats(Some(12_500_000_000), Some(7))).unwrap();
        assert_eq!(sample.cpu_usage_seconds_total, Some(12.5));
        assert_eq!((sample.cpu_capacity_cores, sample.memory_limit_bytes), (None, None));
        assert_eq!(sample.cpu_utilization_ratio, None);
        assert_eq!(sample.observed_at, "2026-10-01T08:00:09.5Z");
        assert_eq!(sample.started_at.as_deref(), Some(STARTED));
    }

    /// H 196. An incomplete state is refused.
    #[test]
    fn incomplete_state_is_refused() {
        for started in ["", "yesterday", "0001-01-01T00:00:00Z", "2026-10-01T08:00:10Z"] {
            assert!(sample(&container(started, 1, 1), &stats(Some(1), Some(1))).is_none(), "{started}");
        }
        assert!(sample(&ContainerInspectResponse::default(), &stats(Some(1), Some(1))).is_none());
        assert!(sample(&container(STARTED, 1, 1), &ContainerStatsResponse::default()).is_none());
    }
}
