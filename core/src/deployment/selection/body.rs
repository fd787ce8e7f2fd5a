//! The body of a selection: members and JSON types (deployment §1.2.2, steps 2 to 4).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::super::contract::{Provider, ProviderRule};
use super::super::specification::{Draft, Resources, Runtime};
use super::{Selection, SelectionRefusal};
use crate::deployment::configuration::Configuration;
use crate::strict::{self, Table};

/// A submitted key; cleared when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// Takes a key, submitted or opened.
    #[must_use]
    pub fn new(key: String) -> Self {
        Self(Zeroizing::new(key))
    }

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
            configuration: configuration(&provider.rule(), body.configuration)?,
            credential: credential(&provider.rule(), body.credential)?,
        })
    }
}

pub(in crate::deployment) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// A configuration of the members that the provider declares, values unchecked.
pub(in crate::deployment) fn configuration(
    rule: &ProviderRule,
    raw: Option<&RawValue>,
) -> Result<Configuration, SelectionRefusal> {
    let Some(raw) = raw else { return Ok(Configuration::default()) };
    let configuration: Configuration =
        strict::object(raw.get().as_bytes()).map_err(|_| SelectionRefusal::Configuration)?;
    let declared = configuration.0.keys().all(|name| rule.configuration.contains(&name.as_str()));
    if declared { Ok(configuration) } else { Err(SelectionRefusal::Configuration) }
}

/// A credential of the one member that the provider declares, which is never empty.
pub(in crate::deployment) fn credential(
    rule: &ProviderRule,
    raw: Option<&RawValue>,
) -> Result<Option<ApiKey>, SelectionRefusal> {
    let Some(raw) = raw else { return Ok(None) };
    let name = rule.credential.ok_or(SelectionRefusal::Configuration)?;
    let [key] = members([name], raw)?;
    let key = key.map(ApiKey::new).filter(|key| !key.expose().is_empty());
    Ok(Some(key.ok_or(SelectionRefusal::Configuration)?))
}

pub(in crate::deployment) fn members<const N: usize>(
    names: [&str; N],
    raw: &RawValue,
) -> Result<[Option<String>; N], SelectionRefusal> {
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    Table::new(names).deserialize(&mut deserializer).map_err(|_| SelectionRefusal::Configuration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::contract::Mode;

    /// A provider that nothing but this declaration knows.
    const ANOTHER: ProviderRule = ProviderRule {
        name: "another",
        mode: Mode::Direct,
        disks: false,
        runtime: false,
        public_origin: true,
        configuration: &["region", "zone"],
        credential: Some("token"),
        suspension: None,
    };

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    /// D 11. The configuration of an additional provider is read by its declaration alone.
    #[test]
    fn a_declaration_is_all_that_a_configuration_needs() {
        let read = |text: &str| configuration(&ANOTHER, Some(&raw(text)));
        let both = Configuration::from([("region", "north"), ("zone", "a")]);
        assert_eq!(read(r#"{"zone":"a","region":"north"}"#), Ok(both.clone()));
        assert!(both.has_exactly(ANOTHER.configuration));
        assert_eq!(read("{}"), Ok(Configuration::default()));
        for text in [r#"{"template":"x"}"#, r#"{"Region":"x"}"#, r#"{"region":null}"#, r#"{"zone":"a","zone":"a"}"#] {
            assert_eq!(read(text), Err(SelectionRefusal::Configuration), "{text}");
        }
        let key = |text: &str| credential(&ANOTHER, Some(&raw(text))).map(|key| key.map(|key| key.expose().to_owned()));
        assert_eq!(key(r#"{"token":"secret"}"#), Ok(Some("secret".to_owned())));
        for text in [r#"{"api_key":"secret"}"#, r#"{"token":""}"#, "{}", r#"{"token":"s","more":"x"}"#] {
            assert_eq!(key(text), Err(SelectionRefusal::Configuration), "{text}");
        }
    }
}
