//! What is stored of a provider beside the specification (deployment §1.1.1).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strict;

/// Provider configuration: exactly the members that the provider declares ([`ProviderRule::configuration`]), `{}` for
/// Docker and microsandbox. What they mean only the provider's own module knows.
///
/// [`ProviderRule::configuration`]: super::contract::ProviderRule::configuration
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Configuration(#[serde(deserialize_with = "strict::each_once")] pub BTreeMap<String, String>);

impl Configuration {
    /// A member's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether these are its members, all of them and no other.
    #[must_use]
    pub fn has_exactly(&self, names: &[&str]) -> bool {
        self.0.len() == names.len() && names.iter().all(|name| self.0.contains_key(*name))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Configuration {
    fn from(members: [(&str, &str); N]) -> Self {
        Self(members.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// What was recorded of the provider; `{}` when nothing was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// E2B's template build.
    #[serde(default, deserialize_with = "strict::present_nested", skip_serializing_if = "Option::is_none")]
    pub template_build: Option<TemplateBuild>,
}

/// A template build as E2B described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
