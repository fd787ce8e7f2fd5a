//! The Deployment view (deployment §1.1.1–§1.1.3, §9.2 D1–D13).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::time::Timestamp;
use super::{Invalid, Validate, rule};
use crate::deployment::contract::{Mode, Provider, Suspension};
use crate::deployment::specification::{Draft, Specification};
use crate::limits::SAFE_INTEGER_MAX;
use crate::strict::{self, Object};
use crate::units::{Digest, Id};

/// What `GET /core/v1/sandbox/deployment` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// How far the nodes are with the current target.
    #[serde(deserialize_with = "strict::nested")]
    pub rollout: Rollout,
    /// Only when configured.
    #[serde(default, deserialize_with = "strict::present_nested", skip_serializing_if = "Option::is_none")]
    pub specification: Option<Draft>,
    /// Exactly beside `specification`.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub specification_digest: Option<Digest>,
    /// 0 before the first selection.
    pub generation: u64,
    /// `None` is `""`, unconfigured.
    #[serde(with = "or_empty")]
    pub mode: Option<Mode>,
    /// Counts, not limits.
    #[serde(deserialize_with = "strict::nested")]
    pub resources: Held,
    /// Only when configured.
    #[serde(default, deserialize_with = "strict::present_nested", skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// Only when configured.
    #[serde(default, deserialize_with = "strict::present_nested", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// A credential is stored.
    pub credential_configured: bool,
    /// Idle policy of providers that suspend.
    #[serde(deserialize_with = "strict::nullable")]
    pub suspension: Option<Object<Suspension>>,
    /// `None` is `""`, unclaimed.
    #[serde(with = "or_empty")]
    pub installation_id: Option<Id>,
    /// `None` is `""`, unconfigured.
    #[serde(with = "or_empty")]
    pub provider: Option<Provider>,
    /// The reset under way.
    #[serde(deserialize_with = "strict::nullable")]
    pub reset: Option<Object<Reset>>,
    /// Fencing number of the process that owns execution; 0 before the first.
    pub owner_epoch: u64,
    /// The installation's public URL.
    pub core_url: String,
}

/// Sandboxes that exist or are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Allocations that are not released.
    pub allocations: u64,
    /// Pending environments without an allocation.
    pub pending: u64,
}

/// Provider configuration; `{}` for Docker and microsandbox, all three members for E2B.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// `<template>:<build>`.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// API origin.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
    /// Sandbox domain.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

/// What was recorded of the provider; `{}` when nothing was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// E2B's template build.
    #[serde(default, deserialize_with = "strict::present_nested", skip_serializing_if = "Option::is_none")]
    pub template_build: Option<TemplateBuild>,
}

/// A template build as E2B described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateBuild {
    /// E2B's status text.
    #[serde(deserialize_with = "strict::nullable")]
    pub status: Option<String>,
    /// Sizes of the build.
    #[serde(deserialize_with = "strict::nested")]
    pub resources: BuildResources,
}

/// Sizes of a template build; `root_disk_mib` is informative only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §1.1.1")]
pub struct BuildResources {
    #[serde(deserialize_with = "strict::nullable")]
    pub cpus: Option<u64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub memory_mib: Option<u64>,
    #[serde(deserialize_with = "strict::nullable")]
    pub root_disk_mib: Option<u64>,
}

/// Rollout of the current target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    /// `preparing` exactly while a node is.
    pub state: RolloutState,
    /// Sandboxes of other generations.
    pub previous_generation_sandboxes: u64,
    /// `None` in direct mode and unconfigured.
    #[serde(deserialize_with = "strict::nullable")]
    pub nodes: Option<Object<Buckets>>,
}

/// See [`Rollout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the values are those of deployment §1.1.2")]
pub enum RolloutState {
    Settled,
    Preparing,
}

/// Nodes per state of the current target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §1.1.2")]
pub struct Buckets {
    pub ready: u64,
    pub preparing: u64,
    pub failed: u64,
    /// Always 0 (decision 7).
    pub update_required: u64,
    pub unknown: u64,
}

/// The reset under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// Which sessions are archived.
    pub clear: Clear,
    /// Identity of this reset.
    pub requested_at: Timestamp,
    /// When `auto` becomes `force`.
    #[serde(deserialize_with = "strict::nullable")]
    pub deadline_at: Option<Timestamp>,
    /// When it became `force`.
    #[serde(deserialize_with = "strict::nullable")]
    pub forced_at: Option<Timestamp>,
    /// What it still waits for.
    #[serde(deserialize_with = "strict::nested")]
    pub remaining: Remaining,
}

/// Which sessions a reset archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clear {
    /// Those that are not busy.
    Auto,
    /// All.
    Force,
}

/// What a reset still waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of deployment §1.1.3")]
pub struct Remaining {
    pub busy: u64,
    pub idle: u64,
    pub cleanup: u64,
    pub on_offline_nodes: u64,
    pub offline_nodes: Vec<Object<OfflineNode>>,
}

/// An offline node that holds sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfflineNode {
    /// Which node.
    pub node_id: Id,
    /// Its name.
    pub name: String,
    /// What it holds.
    pub resources: u64,
}

impl Validate for Deployment {
    fn validate(&self) -> Result<(), Invalid> {
        rule(self.generation <= SAFE_INTEGER_MAX && self.owner_epoch <= SAFE_INTEGER_MAX, "D1")?;
        rule(self.provider.map(|provider| provider.rule().mode) == self.mode, "D2")?;
        self.validate_selection()?;
        self.rollout.validate(self)?;
        self.reset.as_ref().map_or(Ok(()), |Object(reset)| reset.validate(self.held()))
    }
}

impl Deployment {
    fn held(&self) -> u64 {
        self.resources.allocations.saturating_add(self.resources.pending)
    }

    fn validate_selection(&self) -> Result<(), Invalid> {
        let Some(provider) = self.provider else {
            let empty = self.specification.is_none()
                && self.specification_digest.is_none()
                && self.configuration.is_none()
                && self.metadata.is_none();
            return rule(empty, "D4 D6: no selection without a provider");
        };
        match (&self.specification, self.specification_digest) {
            (Some(draft), Some(digest)) => {
                let checked = Specification::check(provider, draft).map_err(|_| Invalid("D5"))?;
                rule(checked.digest() == digest, "D4")?;
            }
            (None, None) => {}
            (Some(_), None) | (None, Some(_)) => return Err(Invalid("D4")),
        }
        let (Some(configuration), Some(metadata)) = (&self.configuration, &self.metadata) else {
            return Err(Invalid("D6"));
        };
        let members = [&configuration.template, &configuration.api_url, &configuration.domain];
        let expected = if provider == Provider::E2b { 3 } else { 0 };
        rule(members.into_iter().flatten().count() == expected, "D6")?;
        rule(metadata.template_build.is_none() || provider == Provider::E2b, "D7")
    }
}

impl Rollout {
    fn validate(&self, deployment: &Deployment) -> Result<(), Invalid> {
        rule(self.previous_generation_sandboxes <= deployment.held(), "D9")?;
        rule(self.nodes.is_some() == (deployment.mode == Some(Mode::Nodes)), "D9")?;
        let preparing = self.nodes.is_some_and(|Object(nodes)| nodes.preparing > 0);
        rule((self.state == RolloutState::Preparing) == preparing, "D9")
    }
}

impl Reset {
    fn validate(&self, held: u64) -> Result<(), Invalid> {
        rule(self.forced_at.is_some() == (self.clear == Clear::Force), "D10")?;
        rule(self.deadline_at.is_some() || self.clear == Clear::Force, "D10")?;
        let remaining = &self.remaining;
        let sum = [remaining.busy, remaining.idle, remaining.cleanup].into_iter().fold(0, u64::saturating_add);
        rule(sum == held, "D11")?;
        let offline: BTreeMap<_, _> =
            remaining.offline_nodes.iter().map(|Object(node)| (node.node_id, node.resources)).collect();
        rule(offline.len() == remaining.offline_nodes.len(), "D11")?;
        rule(offline.values().fold(0, |sum: u64, held| sum.saturating_add(*held)) == remaining.on_offline_nodes, "D11")
    }
}

/// `None` as the empty string.
mod or_empty {
    use serde::de::IntoDeserializer;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option, reason = "serde's `with` passes the member by reference")]
    pub(super) fn serialize<S: Serializer, T: Serialize>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: for<'t> Deserialize<'t>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        if text.is_empty() { Ok(None) } else { T::deserialize((&*text).into_deserializer()).map(Some) }
    }
}
