//! The body of a selection: members and JSON types (deployment §1.2.2, steps 2 to 4).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::super::contract::Provider;
use super::super::specification::{Draft, Resources, Runtime};
use super::{Selection, SelectionRefusal};
use crate::admin::deployment::Configuration;
use crate::strict::{self, Table};

/// A submitted key; cleared when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// The key, to be sealed.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// A selection as it is sent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Selection")]
pub struct Body<'a> {
    /// The generation that the administrator saw; 0 for the first selection.
    expected_generation: u64,
    /// Which provider.
    #[serde(borrow)]
    #[schemars(with = "Provider")]
    provider: Cow<'a, str>,
    /// Sizes of every sandbox.
    #[serde(default, deserialize_with = "strict::present")]
    resources: Option<Resources>,
    /// The Runtime release, of providers that run on nodes.
    #[serde(default, deserialize_with = "strict::present")]
    runtime: Option<Runtime>,
    /// What the provider declares to need beside them.
    #[serde(borrow, default, deserialize_with = "strict::present")]
    #[schemars(with = "Configuration")]
    configuration: Option<&'a RawValue>,
    /// A key for the provider; stored sealed and never shown.
    #[serde(borrow, default, deserialize_with = "strict::present")]
    #[schemars(with = "BTreeMap<String, String>")]
    credential: Option<&'a RawValue>,
}

impl Selection {
    /// Steps 2 to 4: nothing here looks at the stored deployment.
    pub fn parse(body: &[u8]) -> Result<Self, SelectionRefusal> {
        let body: Body = strict::object(body).map_err(|_| SelectionRefusal::Malformed)?;
        if ![body.configuration, body.credential].into_iter().flatten().all(is_object) {
            return Err(SelectionRefusal::Malformed);
        }
        let provider = Provider::from_name(&body.provider).ok_or(SelectionRefusal::Configuration)?;
        Ok(Self {
            expected_generation: body.expected_generation,
            provider,
            draft: Draft { resources: body.resources, runtime: body.runtime },
            configuration: configuration(provider, body.configuration)?,
            credential: credential(provider, body.credential)?,
        })
    }
}

pub(in crate::deployment) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

pub(in crate::deployment) fn configuration(
    provider: Provider,
    raw: Option<&RawValue>,
) -> Result<Configuration, SelectionRefusal> {
    let Some(raw) = raw else { return Ok(Configuration::default()) };
    if provider != Provider::E2b {
        let [] = members::<0>([], raw)?;
        return Ok(Configuration::default());
    }
    let [template, api_url, domain] = members(["template", "api_url", "domain"], raw)?;
    Ok(Configuration { template, api_url, domain })
}

pub(in crate::deployment) fn credential(
    provider: Provider,
    raw: Option<&RawValue>,
) -> Result<Option<ApiKey>, SelectionRefusal> {
    let Some(raw) = raw else { return Ok(None) };
    if !provider.rule().credential {
        return Err(SelectionRefusal::Configuration);
    }
    let [key] = members(["api_key"], raw)?;
    let key = key.filter(|key| !key.is_empty()).ok_or(SelectionRefusal::Configuration)?;
    Ok(Some(ApiKey(Zeroizing::new(key))))
}

pub(in crate::deployment) fn members<const N: usize>(
    names: [&str; N],
    raw: &RawValue,
) -> Result<[Option<String>; N], SelectionRefusal> {
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    Table::new(names).deserialize(&mut deserializer).map_err(|_| SelectionRefusal::Configuration)
}
