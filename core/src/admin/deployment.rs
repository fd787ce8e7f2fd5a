//! The Deployment view (deployment §1.1.1–§1.1.3, §9.2 D1–D13).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::time::Timestamp;
use super::{Invalid, Validate, rule};
pub use crate::deployment::configuration::{BuildResources, Configuration, Metadata, TemplateBuild};
use crate::deployment::contract::{Mode, Provider, Suspension};
use crate::deployment::specification::{Draft, Specification};
use crate::limits::SAFE_INTEGER_MAX;
use crate::strict::{self, Object};
use crate::units::{Digest, Id};

/// What `GET /core/v1/sandbox/deployment` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    #[schemars(with = "OrEmpty<Mode>")]
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
    #[schemars(with = "OrEmpty<Id>")]
    pub installation_id: Option<Id>,
    /// `None` is `""`, unconfigured.
    #[serde(with = "or_empty")]
    #[schemars(with = "OrEmpty<Provider>")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Allocations that are not released.
    pub allocations: u64,
    /// Pending environments without an allocation.
    pub pending: u64,
}

/// Rollout of the current target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the values are those of deployment §1.1.2")]
pub enum RolloutState {
    Settled,
    Preparing,
}

/// Nodes per state of the current target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Clear {
    /// Those that are not busy.
    Auto,
    /// All.
    Force,
}

/// What a reset still waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        rule(configuration.has_exactly(provider.rule().configuration), "D6")?;
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

/// How [`or_empty`] writes a value, for the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
#[schemars(inline)]
enum OrEmpty<T> {
    Present(T),
    Absent(#[schemars(extend("const" = ""))] String),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::admission::tests::node;
    use crate::deployment::tests::{deployment, id, resetting};
    use crate::deployment::view::{self, Counted};

    const NOW: Timestamp = Timestamp(1_000_000);

    fn counted(allocations: u64) -> Counted {
        let remaining = Remaining { busy: allocations, ..Remaining::default() };
        Counted { held: Held { allocations, pending: 0 }, remaining, ..Counted::default() }
    }

    /// A sound view with one node and three sandboxes.
    fn sound(provider: Option<Provider>) -> Deployment {
        let mut stored = deployment(provider);
        if let Some(selected) = stored.selected.as_mut().filter(|selected| selected.provider == Provider::E2b) {
            selected.configuration = [("template", "t:b"), ("api_url", "u"), ("domain", "d")].into();
        }
        let view = view::deployment(&stored, &counted(3), [&node(2).standing], NOW);
        assert_eq!(view.validate(), Ok(()));
        view
    }

    fn broken(provider: Option<Provider>, change: impl FnOnce(&mut Deployment)) -> &'static str {
        let mut view = sound(provider);
        change(&mut view);
        view.validate().expect_err("a broken rule").0
    }

    const DOCKER: Option<Provider> = Some(Provider::Docker);
    const NOTHING: &str = "D4 D6: no selection without a provider";

    /// D 90. Each number that a client reads is an integer that it can hold.
    #[test]
    fn generation_and_epoch_are_safe_integers() {
        let mut largest = sound(DOCKER);
        (largest.generation, largest.owner_epoch) = (SAFE_INTEGER_MAX, SAFE_INTEGER_MAX);
        assert_eq!(largest.validate(), Ok(()));
        assert_eq!(broken(DOCKER, |view| view.generation = SAFE_INTEGER_MAX + 1), "D1");
        assert_eq!(broken(DOCKER, |view| view.owner_epoch = SAFE_INTEGER_MAX + 1), "D1");
        assert_eq!(broken(DOCKER, |view| view.mode = Some(Mode::Direct)), "D2");
    }

    type Change = fn(&mut Deployment);

    /// D 90. Without a provider nothing is selected, member by member.
    #[test]
    fn nothing_is_selected_without_a_provider() {
        let changes: [Change; 4] = [
            |view| view.specification = sound(DOCKER).specification,
            |view| view.specification_digest = Some(Digest::of(b"")),
            |view| view.configuration = Some(Configuration::default()),
            |view| view.metadata = Some(Metadata::default()),
        ];
        for change in changes {
            assert_eq!(broken(None, change), NOTHING);
        }
    }

    /// D 90. A selection is whole, within its bounds, and its digest is that of what is shown.
    #[test]
    fn a_selection_is_whole() {
        let changes: [(&str, Change); 8] = [
            ("D4", |view| view.specification_digest = None),
            ("D4", |view| view.specification = None),
            ("D4", |view| view.specification_digest = Some(Digest::of(b""))),
            ("D5", |view| view.specification.as_mut().unwrap().runtime = None),
            ("D6", |view| view.configuration = None),
            ("D6", |view| view.metadata = None),
            ("D6", |view| view.configuration = Some([("template", "")].into())),
            ("D7", |view| view.metadata = Some(build())),
        ];
        for (at, (rule, change)) in changes.into_iter().enumerate() {
            assert_eq!(broken(DOCKER, change), rule, "change {at}");
        }
        let halved = broken(Some(Provider::E2b), |view| {
            view.configuration.as_mut().unwrap().0.remove("domain");
        });
        assert_eq!(halved, "D6");
    }

    fn build() -> Metadata {
        let resources = BuildResources { cpus: Some(1), memory_mib: Some(512), root_disk_mib: None };
        Metadata { template_build: Some(TemplateBuild { status: None, resources }) }
    }

    #[test]
    fn only_e2b_has_a_template_build() {
        let mut view = sound(Some(Provider::E2b));
        view.metadata = Some(build());
        assert_eq!(view.validate(), Ok(()));
    }

    /// D 98. The rollout counts no more than is held, has buckets in node mode alone, and prepares while a node does.
    #[test]
    fn a_rollout_agrees_with_its_counts() {
        let mut all = sound(DOCKER);
        all.rollout.previous_generation_sandboxes = 3;
        assert_eq!(all.validate(), Ok(()));
        assert_eq!(broken(DOCKER, |view| view.rollout.previous_generation_sandboxes = 4), "D9");
        assert_eq!(broken(DOCKER, |view| view.rollout.nodes = None), "D9");
        assert_eq!(broken(DOCKER, |view| view.rollout.state = RolloutState::Preparing), "D9");
        let preparing = Some(Object(Buckets { preparing: 1, ..Buckets::default() }));
        assert_eq!(broken(DOCKER, |view| view.rollout.nodes = preparing), "D9");
        let e2b = Some(Provider::E2b);
        assert_eq!(broken(e2b, |view| view.rollout.nodes = Some(Object(Buckets::default()))), "D9");
        all.rollout.nodes = preparing;
        all.rollout.state = RolloutState::Preparing;
        assert_eq!(all.validate(), Ok(()));
    }

    fn resets(change: impl FnOnce(&mut Reset)) -> Result<(), Invalid> {
        let mut view = view::deployment(&resetting(Provider::Docker), &counted(3), &[], NOW);
        change(&mut view.reset.as_mut().expect("a reset").0);
        view.validate()
    }

    /// D 97. A reset that is forced says since when, one that is not says until when.
    #[test]
    fn a_reset_has_the_times_of_its_kind() {
        let (forced, deadline) = (Some(Timestamp(2)), Some(Timestamp(9)));
        let with = |clear, deadline_at, forced_at| {
            resets(|reset| (reset.clear, reset.deadline_at, reset.forced_at) = (clear, deadline_at, forced_at))
        };
        assert_eq!(with(Clear::Auto, deadline, None), Ok(()));
        assert_eq!(with(Clear::Force, deadline, forced), Ok(()));
        assert_eq!(with(Clear::Force, None, forced), Ok(()));
        for refused in [
            with(Clear::Auto, None, None),
            with(Clear::Auto, deadline, forced),
            with(Clear::Force, deadline, None),
            with(Clear::Force, None, None),
        ] {
            assert_eq!(refused, Err(Invalid("D10")));
        }
    }

    /// D 97. What remains adds up to what is held, and each offline node stands there once with what it holds.
    #[test]
    fn the_offline_nodes_of_a_reset_add_up() {
        let offline = |nodes: &[(u8, u64)], total| {
            resets(|reset| {
                let node = |&(node, resources): &(u8, u64)| {
                    Object(OfflineNode { node_id: id(node), name: "n".to_owned(), resources })
                };
                reset.remaining.offline_nodes = nodes.iter().map(node).collect();
                reset.remaining.on_offline_nodes = total;
            })
        };
        assert_eq!(offline(&[(1, 2), (2, 1)], 3), Ok(()));
        assert_eq!(offline(&[(1, 2), (2, 1)], 2), Err(Invalid("D11")));
        assert_eq!(offline(&[(1, 1), (1, 2)], 2), Err(Invalid("D11")));
        assert_eq!(resets(|reset| reset.remaining.cleanup = 1), Err(Invalid("D11")));
    }
}
