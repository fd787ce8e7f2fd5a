//! What a provider offers to select (deployment §1.5, §9.2).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Validate};
use crate::strict::Object;
use crate::units::Id;

/// Answer of a discovery: exactly one of the two lists, which may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Discovered {
    /// Without a template in the query.
    Templates(Templates),
    /// With one.
    Builds(Builds),
}

/// The templates of the key's team.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Templates {
    /// In the provider's order.
    pub templates: Vec<Object<Template>>,
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its identifier.
    pub id: String,
    /// Its names.
    pub names: Vec<String>,
}

/// The builds of a template that are ready.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Builds {
    /// In the provider's order.
    pub builds: Vec<Object<Build>>,
}

/// A build of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Which one.
    pub id: Id,
    /// Whole CPUs.
    pub cpus: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl Validate for Templates {
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

impl Validate for Builds {
    fn validate(&self) -> Result<(), Invalid> {
        Ok(())
    }
}
