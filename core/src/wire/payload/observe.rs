//! What `observe` asks for and gets (wire §2.10).

use std::hash::{Hash, Hasher};

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Text, bits};
use crate::wire::json;

/// What `observe` asks for (wire §2.10). Raw texts; [`crate::operation`] checks them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct ObservationTarget<'a> {
    /// `TenantID`.
    #[serde(rename = "TenantID", borrow)]
    pub tenant_id: Cow<'a, str>,
    /// `SessionID`.
    #[serde(rename = "SessionID", borrow)]
    pub session_id: Cow<'a, str>,
    /// `EnvironmentID`.
    #[serde(rename = "EnvironmentID", borrow)]
    pub environment_id: Cow<'a, str>,
    /// Exactly `openai_hosted`.
    #[serde(borrow)]
    pub mode: Cow<'a, str>,
    /// Which instance.
    #[serde(borrow)]
    pub instance: Instance<'a>,
    /// Whether `TokenUsage` held anything but null, which is invalid.
    #[serde(rename = "TokenUsage", with = "json::token_usage")]
    pub token_usage_present: bool,
}

/// `ObservationTarget.Instance` (wire §2.10).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Instance<'a> {
    /// `AllocationID`.
    #[serde(rename = "AllocationID", borrow)]
    pub allocation_id: Cow<'a, str>,
    /// The installation's UUID.
    #[serde(borrow)]
    pub provider_key: Cow<'a, str>,
    /// May be empty.
    #[serde(borrow)]
    pub connection_generation: Cow<'a, str>,
    /// For example `running`.
    #[serde(borrow)]
    pub allocation_state: Cow<'a, str>,
    /// RFC 3339; the zero time is allowed.
    #[serde(borrow)]
    pub allocation_created_at: Cow<'a, str>,
    /// For example `running`, `suspended`, `disabled`.
    #[serde(borrow)]
    pub compute_phase: Cow<'a, str>,
    /// Opaque JSON text, carried unchanged; `null` included.
    #[serde(borrow, with = "json::provider_state")]
    pub provider_state: Cow<'a, str>,
}

/// Measured use of one sandbox (wire §2.10b). `None` is unknown; an observed zero is a zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Sample<'a> {
    /// RFC 3339.
    #[serde(borrow)]
    pub observed_at: Cow<'a, str>,
    /// RFC 3339.
    #[serde(borrow, deserialize_with = "json::nullable_text")]
    pub started_at: Option<Text<'a>>,
    /// Seconds.
    #[serde(rename = "CPUUsageSecondsTotal", deserialize_with = "json::nullable_number")]
    pub cpu_usage_seconds_total: Option<f64>,
    /// Cores.
    #[serde(rename = "CPUCapacityCores", deserialize_with = "json::nullable_number")]
    pub cpu_capacity_cores: Option<f64>,
    /// Omitted when absent.
    #[serde(
        rename = "CPUUtilizationRatio",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json::present_number"
    )]
    pub cpu_utilization_ratio: Option<f64>,
    /// Bytes.
    #[serde(deserialize_with = "json::nullable")]
    pub memory_usage_bytes: Option<u64>,
    /// Bytes.
    #[serde(deserialize_with = "json::nullable")]
    pub memory_limit_bytes: Option<u64>,
    /// Bytes, omitted when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub disk_usage_bytes: Option<u64>,
    /// Bytes, omitted when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub disk_limit_bytes: Option<u64>,
}

/// No frame carries a number that is not finite, so equality is reflexive.
impl Eq for Sample<'_> {}

impl Hash for Sample<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let times = (&self.observed_at, &self.started_at);
        let numbers = [self.cpu_usage_seconds_total, self.cpu_capacity_cores, self.cpu_utilization_ratio].map(bits);
        let memory = (self.memory_usage_bytes, self.memory_limit_bytes);
        (times, numbers, memory, self.disk_usage_bytes, self.disk_limit_bytes).hash(state);
    }
}
