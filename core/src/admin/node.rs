//! Nodes, their allocations, enrollment commands and mutations (deployment §1.6–§1.11, §9.2).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::time::Timestamp;
use super::{Invalid, Validate, rule};
use crate::deployment::contract::Provider;
use crate::strict::{self, Object};
use crate::units::{Digest, Generation, Id};
use crate::wire::payload::Diagnostic;

/// A diagnostic class as answers carry it; a reader takes an unknown one for `provider_unavailable` (decision 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub struct Class(#[schemars(with = "String", extend("enum" = Diagnostic::ALL.map(Diagnostic::code)))] pub Diagnostic);

impl Class {
    /// The class of a code; `None` for the empty text.
    #[must_use]
    pub fn of(code: &str) -> Option<Self> {
        let known = || Diagnostic::from_code(code).unwrap_or(Diagnostic::ProviderUnavailable);
        (!code.is_empty()).then(|| Self(known()))
    }
}

impl Serialize for Class {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.code())
    }
}

impl<'de> Deserialize<'de> for Class {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::of(&code).ok_or_else(|| serde::de::Error::custom("an empty diagnostic"))
    }
}

/// A node (deployment §1.7.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Preparation of the current target.
    #[serde(deserialize_with = "strict::nested")]
    pub rollout: NodeRollout,
    /// Normally absent (decision 7).
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<Class>,
    /// Online, and its serving generation is ready on this connection.
    pub provider_ready: bool,
    /// Last heartbeat.
    #[serde(deserialize_with = "strict::nullable")]
    pub cpu_count: Option<u64>,
    /// Last heartbeat, bytes.
    #[serde(deserialize_with = "strict::nullable")]
    pub available_memory_bytes: Option<u64>,
    /// Last heartbeat, bytes.
    #[serde(deserialize_with = "strict::nullable")]
    pub available_disk_bytes: Option<u64>,
    /// Running sandboxes.
    pub running: u64,
    /// Suspended sandboxes with a snapshot.
    pub snapshots: u64,
    /// Sandboxes that are not suspended.
    pub active: u64,
    /// Placements without an allocation.
    pub reserved: u64,
    /// All placements.
    pub retained: u64,
    /// Allocations being cleaned up.
    pub cleanup_pending: u64,
    /// Which node.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// The deployment's provider.
    pub provider: Provider,
    /// A heartbeat within 45 s on the current connection and epoch.
    pub online: bool,
    /// Last heartbeat.
    #[serde(deserialize_with = "strict::nullable")]
    pub last_seen_at: Option<Timestamp>,
    /// Approved sandboxes at once.
    pub max_active: u64,
    /// Approved sandboxes with the suspended ones.
    pub max_retained: u64,
    /// When it enrolled.
    pub created_at: Timestamp,
    /// Core's public URL at enrollment.
    pub core_url: String,
    /// Handle of the enrollment command.
    #[serde(deserialize_with = "strict::nullable")]
    pub enrollment_id: Option<Id>,
}

/// Preparation of the current target on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeRollout {
    /// How far it is.
    pub state: NodeState,
    /// The serving pin.
    #[serde(deserialize_with = "strict::nullable")]
    pub ready_generation: Option<Generation>,
    /// Only of a failed target.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<Class>,
}

/// State of the current target on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the values are those of deployment §1.7.1")]
pub enum NodeState {
    Ready,
    Preparing,
    Failed,
    /// Never sent (decision 7).
    UpdateRequired,
    Unknown,
}

impl Validate for Node {
    fn validate(&self) -> Result<(), Invalid> {
        let fits = self.rollout.diagnostic.is_none() || self.rollout.state == NodeState::Failed;
        rule(fits, "a diagnostic belongs to a failed target")
    }
}

/// `{"data":[…]}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    /// The entries, in the route's order.
    pub data: Vec<T>,
}

impl<T: Validate> Validate for List<Object<T>> {
    fn validate(&self) -> Result<(), Invalid> {
        self.data.iter().try_for_each(|Object(entry)| entry.validate())
    }
}

/// One node with host and history (deployment §1.8).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NodeDetail {
    /// Every Node member.
    #[serde(flatten)]
    pub node: Node,
    /// Last observation of the host.
    pub host: Host,
    /// Samples of the asked range.
    pub history: History,
}

impl<'de> Deserialize<'de> for NodeDetail {
    /// `host` and `history`, and the rest exactly as a Node.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn part<T: serde::de::DeserializeOwned, E: serde::de::Error>(raw: Option<Box<RawValue>>) -> Result<T, E> {
            let raw = raw.ok_or_else(|| E::custom("a member is missing"))?;
            strict::object(raw.get().as_bytes()).map_err(E::custom)
        }
        let mut members: BTreeMap<String, Box<RawValue>> = strict::each_once(deserializer)?;
        let (host, history) = (members.remove("host"), members.remove("history"));
        let node = serde_json::to_string(&members).map_err(serde::de::Error::custom)?;
        let node = strict::object(node.as_bytes()).map_err(serde::de::Error::custom)?;
        Ok(Self { node, host: part(host)?, history: part(history)? })
    }
}

impl Validate for NodeDetail {
    fn validate(&self) -> Result<(), Invalid> {
        self.node.validate()
    }
}

/// The last observation of a host.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §1.8")]
pub struct Host {
    #[serde(deserialize_with = "strict::nullable")]
    pub effective_cpu_cores: Option<f64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub cpu_utilization: Option<f64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub total_memory_bytes: Option<u64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub available_memory_bytes: Option<u64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub available_disk_bytes: Option<u64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub observed_at: Option<Timestamp>,
}

/// Complete buckets of the asked range (deployment §8.2).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// Length of a bucket.
    pub resolution_seconds: u64,
    /// Oldest first.
    pub points: Vec<Object<Point>>,
}

/// One bucket; a metric is `None` when nothing was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §1.8")]
pub struct Point {
    pub start: Timestamp,
    #[serde(deserialize_with = "strict::nullable")]
    pub cpu_utilization_max: Option<f64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub memory_used_bytes_max: Option<u64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub available_disk_bytes_min: Option<u64>,
}

/// An unreleased allocation of a node (deployment §1.11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §1.11")]
pub struct Allocation {
    pub deployment_generation: Generation,
    pub diagnostic: AllocationDiagnostic,
    pub id: Id,
    pub node_id: Id,
    pub tenant_id: Id,
    pub session_id: Id,
    pub environment_id: Id,
    pub state: AllocationState,
    pub compute_phase: ComputePhase,
    #[serde(deserialize_with = "strict::nullable")]
    pub compute_phase_changed_at: Option<Timestamp>,
    pub initialization: String,
    pub created_at: Timestamp,
}

impl Validate for Allocation {
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// What the last observation of an allocation said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the values are those of deployment §1.11")]
pub enum AllocationDiagnostic {
    #[serde(rename = "")]
    None,
    NodeUnavailable,
    ResourceMissing,
    ComputeUnconfirmed,
    OwnershipMismatch,
    ProviderUnavailable,
}

impl AllocationDiagnostic {
    /// The stored and answered text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::NodeUnavailable => "node_unavailable",
            Self::ResourceMissing => "resource_missing",
            Self::ComputeUnconfirmed => "compute_unconfirmed",
            Self::OwnershipMismatch => "ownership_mismatch",
            Self::ProviderUnavailable => "provider_unavailable",
        }
    }
}

/// State of an allocation that is not released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the values are those of deployment §1.11")]
pub enum AllocationState {
    Creating,
    Running,
    CleanupPending,
}

/// Phase of an allocation's compute (deployment §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the values are those of deployment §1.11")]
pub enum ComputePhase {
    Disabled,
    Running,
    Quiescing,
    Suspending,
    Suspended,
    Restoring,
    Waking,
}

impl ComputePhase {
    /// Whether a commit may lead from this phase to `next` (deployment §4.4).
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Disabled => matches!(next, Self::Running),
            Self::Running => matches!(next, Self::Running | Self::Quiescing),
            Self::Quiescing => matches!(next, Self::Quiescing | Self::Suspending | Self::Waking | Self::Running),
            Self::Suspending => matches!(next, Self::Suspending | Self::Suspended | Self::Waking),
            Self::Suspended => matches!(next, Self::Suspended | Self::Restoring),
            Self::Restoring => matches!(next, Self::Restoring | Self::Waking),
            Self::Waking => matches!(next, Self::Waking | Self::Running),
        }
    }
}

/// An enrollment command; the token is shown once (deployment §1.6).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Enrollment {
    /// 64 lower-case hexadecimal characters.
    pub token: String,
    /// Ten minutes after the issue.
    pub expires_at: Timestamp,
    /// Public handle; never authenticates.
    pub enrollment_id: Id,
}

impl std::fmt::Debug for Enrollment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enrollment").field("enrollment_id", &self.enrollment_id).finish_non_exhaustive()
    }
}

impl Validate for Enrollment {
    fn validate(&self) -> Result<(), Invalid> {
        rule(Digest::parse(&self.token).is_ok(), "a token is 64 lower-case hexadecimal characters")
    }
}

/// Answer to a change of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Updated {
    /// The node of the path.
    pub id: Id,
    /// Always true.
    #[schemars(with = "bool", extend("const" = true))]
    pub updated: True,
}

/// Answer to a removal of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deleted {
    /// The node of the path.
    pub id: Id,
    /// Always true.
    #[schemars(with = "bool", extend("const" = true))]
    pub deleted: True,
}

impl Validate for Updated {
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

impl Validate for Deleted {
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// The literal `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct True;

impl Serialize for True {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(true)
    }
}

impl<'de> Deserialize<'de> for True {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if bool::deserialize(deserializer)? { Ok(Self) } else { Err(serde::de::Error::custom("expected true")) }
    }
}

#[cfg(test)]
mod tests {
    use ComputePhase::{Disabled, Quiescing, Restoring, Running, Suspended, Suspending, Waking};

    use super::*;

    /// D 56. Phases follow their table; a jump is refused, and nothing leads back to `disabled`.
    #[test]
    fn phases_follow_their_table() {
        let allowed = [
            (Disabled, vec![Running]),
            (Running, vec![Running, Quiescing]),
            (Quiescing, vec![Running, Quiescing, Suspending, Waking]),
            (Suspending, vec![Suspending, Suspended, Waking]),
            (Suspended, vec![Suspended, Restoring]),
            (Restoring, vec![Restoring, Waking]),
            (Waking, vec![Running, Waking]),
        ];
        for (from, expected) in allowed {
            let all = [Disabled, Running, Quiescing, Suspending, Suspended, Restoring, Waking];
            let next: Vec<_> = all.into_iter().filter(|next| from.may_become(*next)).collect();
            assert_eq!(next, expected, "{from:?}");
        }
    }

    /// What the store keeps is what the administrator reads.
    #[test]
    fn a_stored_diagnostic_is_the_answered_one() {
        use AllocationDiagnostic as D;
        for diagnostic in [
            D::None,
            D::NodeUnavailable,
            D::ResourceMissing,
            D::ComputeUnconfirmed,
            D::OwnershipMismatch,
            D::ProviderUnavailable,
        ] {
            assert_eq!(serde_json::to_value(diagnostic).unwrap(), diagnostic.name());
        }
    }

    fn shown(state: NodeState, diagnostic: Option<Diagnostic>) -> Node {
        let deployment = crate::deployment::tests::deployment(Some(Provider::Docker));
        let node = crate::deployment::admission::tests::node(2);
        let mut view = crate::deployment::view::node(&node, &deployment, Timestamp(1_000_000)).unwrap();
        (view.rollout.state, view.rollout.diagnostic) = (state, diagnostic.map(Class));
        view
    }

    /// D 99. Only a failed target has a diagnostic, in a list as alone.
    #[test]
    fn a_diagnostic_belongs_to_a_failed_target() {
        let why = Some(Diagnostic::DockerUnavailable);
        for (state, diagnostic, sound) in [
            (NodeState::Failed, why, true),
            (NodeState::Failed, None, true),
            (NodeState::Ready, None, true),
            (NodeState::Ready, why, false),
            (NodeState::Preparing, why, false),
        ] {
            let node = shown(state, diagnostic);
            assert_eq!(node.validate().is_ok(), sound, "{state:?}");
            let list = List { data: vec![Object(shown(NodeState::Ready, None)), Object(node)] };
            assert_eq!(list.validate().is_ok(), sound, "{state:?}");
        }
    }

    #[test]
    fn an_enrollment_has_a_token_of_its_form() {
        let enrollment_id = crate::deployment::tests::id(7);
        let issued = |token: &str| Enrollment { token: token.to_owned(), expires_at: Timestamp(0), enrollment_id };
        assert_eq!(issued(&"0a".repeat(32)).validate(), Ok(()));
        for token in ["", &"0A".repeat(32), &"0a".repeat(31), &"0a".repeat(33)] {
            assert!(issued(token).validate().is_err(), "{token}");
        }
    }

    #[test]
    fn an_enrollment_shows_its_handle_and_never_its_token() {
        let enrollment_id = crate::deployment::tests::id(7);
        let shown = format!("{:?}", Enrollment { token: "secret".to_owned(), expires_at: Timestamp(0), enrollment_id });
        assert!(shown.contains(&enrollment_id.to_string()) && !shown.contains("secret"), "{shown}");
    }

    /// D 94. A known class stays, a later one becomes `provider_unavailable`, an empty one is no class.
    #[test]
    fn an_unknown_diagnostic_is_provider_unavailable() {
        let read = |text: &str| serde_json::from_str::<Class>(text).ok().map(|class| class.0);
        assert_eq!(read(r#""docker_unavailable""#), Some(Diagnostic::DockerUnavailable));
        assert_eq!(read(r#""quantum_unavailable""#), Some(Diagnostic::ProviderUnavailable));
        assert_eq!(read(r#""""#), None);
        assert_eq!(read("null"), None);
    }
}
