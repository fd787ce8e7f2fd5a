//! The value rules of a frame, the same before sending and after receiving.
//!
//! Whatever a type cannot express stands here; shapes and scalars stand beside the types.

use super::frame::{Frame, Request, Response};
use super::payload::{Checkpoint, GenerationReference, Health, Observation, ObservedState, Retention, Sample};
use super::time::Instant;
use super::violation::{Reason, Violation};
use crate::limits::{CHECKPOINT_TOKEN_MAX_BYTES, EXECUTING_MAX, OBSERVATIONS_MAX, REFERENCES_MAX, SAFE_INTEGER_MAX};
use crate::units::Generation;

type Checked = Result<(), Violation>;

fn require(holds: bool, reason: Reason, member: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(Violation::member(reason, member)) }
}

pub(super) fn frame(frame: &Frame<'_>) -> Checked {
    match frame {
        Frame::Hello { health: report, .. } | Frame::Heartbeat { health: report, .. } => health(report),
        Frame::Retention { references, .. } => {
            list(references, |GenerationReference { generation, .. }| *generation, "control.references")
        }
        Frame::RetentionAck { retentions, .. } => {
            list(retentions, |Retention { reference, .. }| reference.generation, "control.retentions")
        }
        Frame::Welcome(_) | Frame::HeartbeatAck(_) => Ok(()),
        Frame::Request(asked) => request(asked),
        Frame::Response(answer) => response(answer),
    }
}

fn request(request: &Request<'_>) -> Checked {
    match &request.observation {
        Some(target) => require(
            Instant::parse(&target.instance.allocation_created_at).is_some(),
            Reason::Time,
            "observation.Instance.AllocationCreatedAt",
        ),
        None => Ok(()),
    }
}

fn response(response: &Response<'_>) -> Checked {
    require(response.connection_id.is_some(), Reason::NotAddressed, "connection_id")?;
    result(response)
}

/// The rules of a response that was not addressed yet.
pub(super) fn result(response: &Response<'_>) -> Checked {
    require(response.error_code.as_deref() != Some(""), Reason::EmptyErrorCode, "error_code")?;
    response.sample.as_ref().map_or(Ok(()), sample)
}

fn sample(sample: &Sample<'_>) -> Checked {
    let time = |text: &str| Instant::parse(text).is_some();
    require(time(&sample.observed_at), Reason::Time, "sample.ObservedAt")?;
    require(sample.started_at.as_deref().is_none_or(time), Reason::Time, "sample.StartedAt")?;
    for (value, member) in [
        (sample.cpu_usage_seconds_total, "sample.CPUUsageSecondsTotal"),
        (sample.cpu_capacity_cores, "sample.CPUCapacityCores"),
        (sample.cpu_utilization_ratio, "sample.CPUUtilizationRatio"),
    ] {
        require(value.is_none_or(f64::is_finite), Reason::NumberRange, member)?;
    }
    for (value, member) in [
        (sample.memory_usage_bytes, "sample.MemoryUsageBytes"),
        (sample.memory_limit_bytes, "sample.MemoryLimitBytes"),
        (sample.disk_usage_bytes, "sample.DiskUsageBytes"),
        (sample.disk_limit_bytes, "sample.DiskLimitBytes"),
    ] {
        require(value.is_none_or(|bytes| i64::try_from(bytes).is_ok()), Reason::NumberRange, member)?;
    }
    Ok(())
}

fn health(health: &Health<'_>) -> Checked {
    let observed = Instant::parse(&health.observed_at).is_some_and(Instant::in_observed_years);
    require(observed, Reason::Time, "health.observed_at")?;
    let active = usize::try_from(health.active_operations).is_ok_and(|active| active <= EXECUTING_MAX);
    require(active, Reason::NumberRange, "health.active_operations")?;
    let utilization = health.cpu_utilization.is_none_or(|share| (0.0..=1.0).contains(&share));
    require(utilization, Reason::NumberRange, "health.cpu_utilization")?;
    let cores = health.effective_cpu_cores.is_none_or(|cores| cores > 0.0 && cores.is_finite());
    require(cores, Reason::NumberRange, "health.effective_cpu_cores")?;
    for (value, least, member) in [
        (health.total_memory_bytes, 1, "health.total_memory_bytes"),
        (health.cpu_count, 0, "health.cpu_count"),
        (health.available_memory_bytes, 0, "health.available_memory_bytes"),
        (health.available_disk_bytes, 0, "health.available_disk_bytes"),
    ] {
        let inside = value.is_none_or(|value| (least..=SAFE_INTEGER_MAX).contains(&value));
        require(inside, Reason::NumberRange, member)?;
    }
    let available = health.available_memory_bytes.zip(health.total_memory_bytes);
    let within = available.is_none_or(|(available, total)| available <= total);
    require(within, Reason::MemoryAboveTotal, "health.available_memory_bytes")?;
    observations(&health.generations)
}

fn observations(list: &[Observation<'_>]) -> Checked {
    require(list.len() <= OBSERVATIONS_MAX, Reason::ListLength, "health.generations")?;
    require(unique(list, |seen| seen.generation), Reason::RepeatedGeneration, "health.generations")?;
    for observation in list {
        if let ObservedState::Ready { checkpoint: Some(checkpoint) } = &observation.state {
            require(checkpoint.is_well_formed(), Reason::CheckpointToken, "health.generations.checkpoint")?;
        }
    }
    Ok(())
}

impl Checkpoint<'_> {
    /// Whether both tokens hold 1 to 256 bytes (wire §2.9b).
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let token = |text: &str| (1..=CHECKPOINT_TOKEN_MAX_BYTES).contains(&text.len());
        token(&self.artifact_domain) && token(&self.execution_class)
    }
}

fn list<T>(entries: &[T], generation: impl Fn(&T) -> Generation, member: &'static str) -> Checked {
    require((1..=REFERENCES_MAX).contains(&entries.len()), Reason::ListLength, member)?;
    require(unique(entries, generation), Reason::RepeatedGeneration, member)
}

/// At most eight entries, so a quadratic look is the cheapest one.
fn unique<T>(entries: &[T], generation: impl Fn(&T) -> Generation) -> bool {
    entries
        .iter()
        .enumerate()
        .all(|(at, entry)| entries[..at].iter().all(|earlier| generation(earlier) != generation(entry)))
}
