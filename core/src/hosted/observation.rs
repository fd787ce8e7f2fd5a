//! What a sandbox uses, measured when somebody asks (deployment §8.3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::request::HOSTED;
use crate::admin::time::Timestamp;
use crate::deployment::contract::Provider;
use crate::lifecycle::CallError;
use crate::limits::{SAFE_INTEGER_MAX, SAMPLE_AHEAD_MAX_MS};
use crate::outcome::{Answer, Failure};
use crate::session::hub::dispatch::Refusal;
use crate::session::hub::{Cause, Uncertain};
use crate::strict;
use crate::units::Id;
use crate::wire::payload::Sample;

/// A runtime observation. Times are whole seconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §8.3")]
pub struct Observation {
    pub id: Id,
    pub object: Object,
    pub session_id: Id,
    #[serde(deserialize_with = "strict::nullable")]
    pub environment_id: Option<Id>,
    pub mode: String,
    #[serde(deserialize_with = "strict::nullable")]
    pub provider_type: Option<Provider>,
    #[serde(deserialize_with = "strict::nested")]
    pub instance: Instance,
    pub status: Status,
    #[serde(deserialize_with = "strict::nullable")]
    pub reason: Option<Reason>,
    #[serde(deserialize_with = "strict::nullable")]
    pub allocation_created_at: Option<i64>,
    pub resolved_at: i64,
    #[serde(deserialize_with = "strict::nullable")]
    pub observed_at: Option<i64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub started_at: Option<i64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub cpu: Option<Cpu>,
    #[serde(deserialize_with = "strict::nullable")]
    pub memory: Option<Bytes>,
    #[serde(deserialize_with = "strict::nullable")]
    pub disk: Option<Bytes>,
}

/// The literal `agent.runtime_observation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ObservationObject")]
pub enum Object {
    /// See the type.
    #[serde(rename = "agent.runtime_observation")]
    Observation,
}

/// What was observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §8.3")]
pub struct Instance {
    pub kind: Kind,
    #[serde(deserialize_with = "strict::nullable")]
    pub allocation_id: Option<Id>,
    #[serde(deserialize_with = "strict::nullable")]
    pub device_id: Option<Id>,
    #[serde(deserialize_with = "strict::nullable")]
    pub connection_generation: Option<String>,
}

/// Whether there is an allocation to observe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words say it")]
#[schemars(rename = "InstanceKind")]
pub enum Kind {
    None,
    Allocation,
}

/// Whether there are values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words say it")]
#[schemars(rename = "ObservationStatus")]
pub enum Status {
    Observed,
    Unsupported,
    Unavailable,
}

/// Why there are no values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ObservationReason")]
pub enum Reason {
    /// The environment does not run here.
    RuntimeModeNotObservable,
    /// There is no sandbox yet.
    AllocationPending,
    /// The sandbox does not run any more, or not now.
    RuntimeNotRunning,
    /// Nothing here measures it.
    SourceNotConfigured,
    /// The node did not answer in time.
    SampleTimeout,
    /// The node has no values, or cannot be reached.
    SampleUnavailable,
}

/// CPU use; absent values are unknown, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §8.3")]
pub struct Cpu {
    #[serde(deserialize_with = "strict::nullable")]
    pub usage_seconds_total: Option<f64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub capacity_cores: Option<f64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub usage_cores: Option<f64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub utilization_ratio: Option<f64>,
}

/// Use and limit in bytes; absent values are unknown, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §8.3")]
pub struct Bytes {
    #[serde(deserialize_with = "strict::nullable")]
    pub usage_bytes: Option<u64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub limit_bytes: Option<u64>,
}

/// What the store says of a session that is to be observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Which session.
    pub session: Id,
    /// Its environment.
    pub environment: Id,
    /// The selected provider.
    pub provider: Option<Provider>,
    /// Its allocation, if any: identifier, device, creation time.
    pub allocation: Option<(Id, Id, Timestamp)>,
}

/// The node's evidence is corrupt, or the sandbox belongs to somebody else: an internal error, never "unavailable".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the observation of a sandbox is corrupt or foreign")]
pub struct Corrupt;

impl Subject {
    /// An observation without values.
    #[must_use]
    pub fn unavailable(&self, reason: Reason, now: Timestamp) -> Observation {
        let unsupported = reason == Reason::RuntimeModeNotObservable;
        let status = if unsupported { Status::Unsupported } else { Status::Unavailable };
        Observation {
            id: self.session,
            object: Object::Observation,
            session_id: self.session,
            environment_id: Some(self.environment),
            mode: HOSTED.to_owned(),
            provider_type: self.provider,
            instance: self.instance(),
            status,
            reason: Some(reason),
            allocation_created_at: self.allocation.map(|(_, _, created_at)| created_at.seconds()),
            resolved_at: now.seconds(),
            observed_at: None,
            started_at: None,
            cpu: None,
            memory: None,
            disk: None,
        }
    }

    /// The observation that follows from the node's answer.
    pub fn resolve(&self, outcome: &Result<Answer<'_>, CallError<'_>>, now: Timestamp) -> Result<Observation, Corrupt> {
        match outcome {
            Ok(Answer::Sample(sample)) => self.observed(sample, now),
            Ok(_) => Err(Corrupt),
            Err(error) => Ok(self.unavailable(reason(error)?, now)),
        }
    }

    fn observed(&self, sample: &Sample<'_>, now: Timestamp) -> Result<Observation, Corrupt> {
        let latest = now.0.saturating_add(SAMPLE_AHEAD_MAX_MS);
        let observed_at = Timestamp::parse(&sample.observed_at).filter(|at| (0..=latest).contains(&at.0));
        let observed_at = observed_at.ok_or(Corrupt)?;
        let started_at = sample.started_at.as_deref().map(|at| Timestamp::parse(at).ok_or(Corrupt)).transpose()?;
        if started_at.is_some_and(|started| started > observed_at) || !values_are_valid(sample) {
            return Err(Corrupt);
        }
        let memory = Bytes { usage_bytes: sample.memory_usage_bytes, limit_bytes: sample.memory_limit_bytes };
        let disk = Bytes { usage_bytes: sample.disk_usage_bytes, limit_bytes: sample.disk_limit_bytes };
        let unknown = Bytes { usage_bytes: None, limit_bytes: None };
        Ok(Observation {
            status: Status::Observed,
            reason: None,
            observed_at: Some(observed_at.seconds()),
            started_at: started_at.map(Timestamp::seconds),
            cpu: Some(Cpu {
                usage_seconds_total: sample.cpu_usage_seconds_total,
                capacity_cores: sample.cpu_capacity_cores,
                usage_cores: sample.cpu_utilization_ratio.zip(sample.cpu_capacity_cores).map(|(used, of)| used * of),
                utilization_ratio: sample.cpu_utilization_ratio,
            }),
            memory: Some(memory),
            disk: (disk != unknown).then_some(disk),
            ..self.unavailable(Reason::SampleUnavailable, now)
        })
    }

    fn instance(&self) -> Instance {
        Instance {
            kind: if self.allocation.is_some() { Kind::Allocation } else { Kind::None },
            allocation_id: self.allocation.map(|(allocation, _, _)| allocation),
            device_id: self.allocation.map(|(_, device, _)| device),
            connection_generation: None,
        }
    }
}

fn values_are_valid(sample: &Sample<'_>) -> bool {
    let amount = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value >= 0.0);
    let bytes = |value: Option<u64>, least: u64| value.is_none_or(|value| (least..=SAFE_INTEGER_MAX).contains(&value));
    amount(sample.cpu_usage_seconds_total)
        && amount(sample.cpu_utilization_ratio)
        && sample.cpu_capacity_cores.is_none_or(|cores| cores.is_finite() && cores > 0.0)
        && bytes(sample.memory_usage_bytes, 0)
        && bytes(sample.memory_limit_bytes, 1)
        && bytes(sample.disk_usage_bytes, 0)
        && bytes(sample.disk_limit_bytes, 1)
}

fn reason(error: &CallError<'_>) -> Result<Reason, Corrupt> {
    match error {
        CallError::Refused(Refusal::Unsupported { .. }) => Ok(Reason::SourceNotConfigured),
        CallError::Refused(Refusal::Deadline) => Ok(Reason::SampleTimeout),
        CallError::Refused(Refusal::Uncertain(uncertain)) | CallError::Uncertain(uncertain) => Ok(silence(*uncertain)),
        CallError::Refused(Refusal::Ownership | Refusal::Invalid) => Err(Corrupt),
        CallError::Failed(failed) => match failed.failure {
            Failure::Unsupported { .. } => Ok(Reason::SourceNotConfigured),
            Failure::RuntimeNotRunning => Ok(Reason::RuntimeNotRunning),
            Failure::ObservationUnavailable
            | Failure::NotFound
            | Failure::Invalid
            | Failure::CommandUnconfirmed
            | Failure::Unconfirmed => Ok(Reason::SampleUnavailable),
            Failure::Ownership | Failure::Exists | Failure::CheckpointUnusable => Err(Corrupt),
        },
    }
}

const fn silence(uncertain: Uncertain) -> Reason {
    match uncertain.cause {
        Cause::Deadline => Reason::SampleTimeout,
        Cause::Unavailable | Cause::Cancelled | Cause::Write | Cause::Records => Reason::SampleUnavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::tests::id;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn subject() -> Subject {
        let allocation = Some((id(3), id(4), Timestamp(1_700_000_000_500)));
        Subject { session: id(1), environment: id(2), provider: Some(Provider::Docker), allocation }
    }

    fn sample() -> Sample<'static> {
        Sample {
            observed_at: "2027-01-15T08:00:00.123456789Z".into(),
            started_at: Some("2027-01-15T07:00:00+00:00".into()),
            cpu_usage_seconds_total: Some(0.0),
            cpu_capacity_cores: Some(2.0),
            cpu_utilization_ratio: None,
            memory_usage_bytes: Some(0),
            memory_limit_bytes: Some(1 << 30),
            disk_usage_bytes: None,
            disk_limit_bytes: None,
        }
    }

    #[test]
    fn a_sample_becomes_an_observation() {
        let observation = subject().resolve(&Ok(Answer::Sample(sample())), NOW).unwrap();
        let value = serde_json::to_value(&observation).unwrap();
        assert_eq!(value["status"], "observed");
        assert_eq!(value["reason"], serde_json::Value::Null);
        assert_eq!(value["observed_at"], 1_800_000_000);
        assert_eq!(value["started_at"], 1_799_996_400);
        assert_eq!(value["allocation_created_at"], 1_700_000_000);
        assert_eq!(value["cpu"]["usage_seconds_total"], 0.0);
        assert_eq!(value["cpu"]["usage_cores"], serde_json::Value::Null);
        assert_eq!(value["memory"], serde_json::json!({"usage_bytes": 0, "limit_bytes": 1 << 30}));
        assert_eq!(value["disk"], serde_json::Value::Null);
        assert_eq!(serde_json::from_value::<Observation>(value).unwrap(), observation);
    }

    #[test]
    fn corrupt_or_foreign_evidence_is_never_unavailable() {
        type Change = fn(&mut Sample<'static>);
        let changes: [Change; 12] = [
            |sample| sample.observed_at = "yesterday".into(),
            |sample| sample.observed_at = "1969-12-31T23:59:59Z".into(),
            |sample| sample.observed_at = "2027-01-15T08:01:01Z".into(),
            |sample| sample.started_at = Some("2027-01-15T08:00:01Z".into()),
            |sample| sample.started_at = Some("2027-01-15".into()),
            |sample| sample.cpu_capacity_cores = Some(0.0),
            |sample| sample.cpu_capacity_cores = Some(f64::INFINITY),
            |sample| sample.cpu_usage_seconds_total = Some(-0.5),
            |sample| sample.cpu_utilization_ratio = Some(f64::INFINITY),
            |sample| sample.disk_usage_bytes = Some(SAFE_INTEGER_MAX + 1),
            |sample| sample.memory_limit_bytes = Some(0),
            |sample| sample.memory_usage_bytes = Some(SAFE_INTEGER_MAX + 1),
        ];
        for change in changes {
            let mut sample = sample();
            change(&mut sample);
            assert_eq!(subject().resolve(&Ok(Answer::Sample(sample)), NOW), Err(Corrupt));
        }
        assert_eq!(subject().resolve(&Err(CallError::Failed(Failure::Ownership.into())), NOW), Err(Corrupt));
        assert_eq!(subject().resolve(&Ok(Answer::Done), NOW), Err(Corrupt));
    }

    #[test]
    fn a_silent_node_has_its_reason() {
        let uncertain = |cause| CallError::Uncertain(Uncertain { cause, sent: true });
        for (error, expected) in [
            (uncertain(Cause::Deadline), Reason::SampleTimeout),
            (uncertain(Cause::Unavailable), Reason::SampleUnavailable),
            (CallError::Refused(Refusal::Deadline), Reason::SampleTimeout),
            (CallError::Failed(Failure::RuntimeNotRunning.into()), Reason::RuntimeNotRunning),
            (CallError::Failed(Failure::ObservationUnavailable.into()), Reason::SampleUnavailable),
        ] {
            let observation = subject().resolve(&Err(error), NOW).unwrap();
            assert_eq!((observation.status, observation.reason), (Status::Unavailable, Some(expected)));
        }
        let pending = Subject { allocation: None, ..subject() }.unavailable(Reason::AllocationPending, NOW);
        assert_eq!((pending.instance.kind, pending.resolved_at), (Kind::None, 1_800_000_000));
    }

    /// A sandbox may be observed in the very millisecond in which it started; the cores in use are the share of the whole.
    #[test]
    fn cores_in_use_are_a_share_of_the_capacity() {
        let used = Sample {
            started_at: Some("2027-01-15T08:00:00.123Z".into()),
            cpu_capacity_cores: Some(4.0),
            cpu_utilization_ratio: Some(0.5),
            disk_limit_bytes: Some(9),
            ..sample()
        };
        let observation = subject().resolve(&Ok(Answer::Sample(used)), NOW).unwrap();
        assert_eq!(observation.disk, Some(Bytes { usage_bytes: None, limit_bytes: Some(9) }));
        assert_eq!(observation.cpu.unwrap().usage_cores, Some(2.0));
        assert_eq!(observation.started_at, Some(1_800_000_000));
    }
}
