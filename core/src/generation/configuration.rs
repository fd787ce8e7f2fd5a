//! The configuration of one generation on its host: `provider.json`, `<g>.json` and every plan (node-host §1.9 I2).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::recovery::Difference;
use crate::deployment::contract::{Mode, Provider};
use crate::deployment::origin::Origin;
use crate::deployment::specification::{Draft, Refusal, Specification};
use crate::strict;
use crate::units::{Digest, Generation, Id};

/// Where the machine API begins on Core's origin.
pub const API: &str = "/api/v1";

/// What a deployment generation asks of a host.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What Core decides.
    pub envelope: Envelope,
    /// The JSON object that belongs to the provider alone; its constructor judges it.
    pub native: Box<RawValue>,
}

/// Everything in a configuration but the provider's own part. Two files of one generation must agree in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Whose installation.
    pub installation: Id,
    /// Core's origin, exactly as it was written, without [`API`].
    pub core_url: String,
    /// The deployment generation.
    pub generation: Generation,
    /// Sizes and Runtime release, for a provider that runs on nodes.
    pub specification: Specification,
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidConfiguration {
    /// Not exactly the six members, each of its JSON type.
    #[error(
        "expected one JSON object of exactly installation_id, provider, core_url, specification, generation and \
         native: {0}"
    )]
    Malformed(#[from] serde_json::Error),
    /// A provider that has no nodes, or none at all.
    #[error("provider must be docker or microsandbox")]
    Provider,
    /// `core_url` is no API address.
    #[error("core_url must be an origin followed by /api/v1")]
    CoreUrl,
    /// The specification is not valid for the provider.
    #[error("specification is refused: {0}")]
    Specification(#[from] Refusal),
    /// `native` is no object.
    #[error("native must be an object")]
    Native,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    installation_id: Id,
    provider: String,
    core_url: String,
    #[serde(deserialize_with = "strict::nested")]
    specification: Draft,
    generation: Generation,
    native: Box<RawValue>,
}

#[derive(Serialize)]
struct Written<'a> {
    core_url: String,
    generation: Generation,
    installation_id: Id,
    native: &'a RawValue,
    provider: &'a str,
    specification: &'a Specification,
}

impl Configuration {
    /// Reads exactly one configuration and nothing after it.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidConfiguration> {
        Self::check(strict::object(bytes)?)
    }

    fn check(members: Members) -> Result<Self, InvalidConfiguration> {
        let provider = Provider::from_name(&members.provider).filter(|provider| provider.rule().mode == Mode::Nodes);
        let provider = provider.ok_or(InvalidConfiguration::Provider)?;
        let origin = members.core_url.strip_suffix(API).filter(|origin| !origin.ends_with('/'));
        let origin = origin.filter(|origin| Origin::parse(origin).is_some()).ok_or(InvalidConfiguration::CoreUrl)?;
        if !members.native.get().starts_with('{') {
            return Err(InvalidConfiguration::Native);
        }
        let envelope = Envelope {
            installation: members.installation_id,
            core_url: origin.to_owned(),
            generation: members.generation,
            specification: Specification::check(provider, &members.specification)?,
        };
        Ok(Self { envelope, native: members.native })
    }

    /// The file: one line of compact JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(&self.written()).expect("checked members serialise");
        bytes.push(b'\n');
        bytes
    }

    fn written(&self) -> Written<'_> {
        Written {
            core_url: format!("{}{API}", self.envelope.core_url),
            generation: self.envelope.generation,
            installation_id: self.envelope.installation,
            native: &self.native,
            provider: self.envelope.provider().name(),
            specification: &self.envelope.specification,
        }
    }

    /// In what this configuration differs from a plan of the same generation. Only Docker's `native.image` may: the plan
    /// has what the release names, the final configuration has what the engine calls it (node-host §3.2 step 17).
    #[must_use]
    pub fn difference_from_plan(&self, plan: &Self) -> Option<Difference> {
        let same_native = || self.fixed_native().is_some_and(|native| plan.fixed_native() == Some(native));
        self.envelope.difference(&plan.envelope).or_else(|| (!same_native()).then_some(Difference::Native))
    }

    /// The provider's own part without what an import resolves.
    fn fixed_native(&self) -> Option<Value> {
        let mut native: Value = serde_json::from_str(self.native.get()).ok()?;
        match self.envelope.provider() {
            Provider::Docker => drop(native.as_object_mut()?.remove("image")),
            Provider::Microsandbox | Provider::E2b => {}
        }
        Some(native)
    }
}

impl Serialize for Configuration {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Configuration {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = strict::nested(deserializer)?;
        Self::check(members).map_err(serde::de::Error::custom)
    }
}

impl Envelope {
    /// A provider that runs on nodes.
    #[must_use]
    pub const fn provider(&self) -> Provider {
        self.specification.provider()
    }

    /// The digest of the specification.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.specification.digest()
    }

    /// Whether both belong to the same installation, provider and Core, whatever the generation.
    #[must_use]
    pub fn difference_of_base(&self, base: &Self) -> Option<Difference> {
        if self.installation != base.installation {
            Some(Difference::Installation)
        } else if self.provider() != base.provider() {
            Some(Difference::Provider)
        } else if self.core_url != base.core_url {
            Some(Difference::Core)
        } else {
            None
        }
    }

    /// The first member in which they differ.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        self.difference_of_base(other).or_else(|| {
            if self.generation != other.generation {
                Some(Difference::Generation)
            } else if self.specification != other.specification {
                Some(Difference::Specification)
            } else {
                None
            }
        })
    }
}
