//! Asking a provider what can be selected (deployment §1.5).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::contract::Provider;
use super::e2b;
use super::selection::{self, SelectionRefusal};
use crate::admin::error::{Code, Fault};
use crate::strict;

/// A discovery as it is sent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Discovery")]
pub struct Body<'a> {
    /// Where to ask.
    #[serde(borrow, default, deserialize_with = "strict::present")]
    #[schemars(with = "BTreeMap<String, String>")]
    configuration: Option<&'a RawValue>,
    /// The key to ask with; stored nowhere.
    #[serde(borrow, default, deserialize_with = "strict::present")]
    #[schemars(with = "BTreeMap<String, String>")]
    credential: Option<&'a RawValue>,
    /// What to ask for.
    #[serde(borrow, default, deserialize_with = "strict::present")]
    #[schemars(with = "BTreeMap<String, String>")]
    query: Option<&'a RawValue>,
}

/// Why a discovery is refused. No provider of this Core offers one yet, so there is always a reason.
#[must_use]
pub fn refuse(provider: &str, body: &[u8]) -> Fault {
    let Ok(body) = strict::object::<Body<'_>>(body) else { return Code::InvalidRequest.into() };
    if ![body.configuration, body.credential, body.query].into_iter().flatten().all(selection::is_object) {
        return Code::InvalidRequest.into();
    }
    match Provider::from_name(provider) {
        None => Code::InvalidSandboxConfiguration.into(),
        Some(Provider::Docker | Provider::Microsandbox) => Code::SandboxOperationUnsupported.into(),
        Some(Provider::E2b) => match valid_e2b(&body) {
            Err(refusal) => refusal.into(),
            Ok(false) => Fault::of(Code::SandboxConfigurationInvalid, "configuration"),
            Ok(true) => Code::SandboxVerificationUnconfirmed.into(),
        },
    }
}

/// Whether what was submitted has a form that E2B could be asked with; an error when its members are wrong.
fn valid_e2b(body: &Body<'_>) -> Result<bool, SelectionRefusal> {
    let rule = Provider::E2b.rule();
    let configuration = selection::configuration(&rule, body.configuration)?;
    let credential = selection::credential(&rule, body.credential)?;
    body.query.map_or(Ok([None]), |query| selection::members(["template"], query))?;
    Ok(credential.is_none_or(|key| e2b::valid_key(key.expose()))
        && e2b::endpoint(configuration.get(e2b::API_URL), configuration.get(e2b::DOMAIN)).is_some())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("docker", "{}", "sandbox_operation_unsupported")]
    #[case("microsandbox", r#"{"query":{}}"#, "sandbox_operation_unsupported")]
    #[case("podman", "{}", "invalid_sandbox_configuration")]
    #[case("podman", r#"{"other":{}}"#, "invalid_request")]
    #[case("docker", r#"{"query":null}"#, "invalid_request")]
    #[case("docker", r#"{"query":[]}"#, "invalid_request")]
    #[case("e2b", r#"{"query":{},"query":{}}"#, "invalid_request")]
    #[case("e2b", "{}", "sandbox_verification_unconfirmed")]
    #[case("e2b", r#"{"credential":{"api_key":"k"},"query":{"template":""}}"#, "sandbox_verification_unconfirmed")]
    #[case("e2b", r#"{"configuration":{"Template":"x"}}"#, "invalid_sandbox_configuration")]
    #[case("e2b", r#"{"configuration":{"template":null}}"#, "invalid_sandbox_configuration")]
    #[case("e2b", r#"{"credential":{"api_key":null}}"#, "invalid_sandbox_configuration")]
    #[case("e2b", r#"{"query":{"other":"x"}}"#, "invalid_sandbox_configuration")]
    #[case("e2b", r#"{"credential":{"api_key":"a b"}}"#, "sandbox_configuration_invalid")]
    #[case("e2b", r#"{"configuration":{"api_url":"nowhere"}}"#, "sandbox_configuration_invalid")]
    /// D 8. A discovery is as strict as a selection, and is refused in the documented order.
    fn a_discovery_is_refused_in_order(#[case] provider: &str, #[case] body: &str, #[case] code: &str) {
        assert_eq!(refuse(provider, body.as_bytes()).code.code(), code);
    }
}
