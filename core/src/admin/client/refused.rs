use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::admin::error::{Code, Detail};
use crate::strict;

/// Why a call gave no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// HTTP status; 0 when no answer came, 502 for an answer that Core may not send.
    pub status: u16,
    /// Stable identifier.
    pub code: Option<String>,
    /// The offending member.
    pub param: Option<String>,
    /// For a person.
    pub message: String,
    /// Flat facts.
    pub details: BTreeMap<String, Detail>,
}

/// What became of the request behind a [`Failed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Core refused it: nothing was written.
    Refused,
    /// It may or may not have been carried out.
    Unknown,
}

/// How much of a refusal is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// What Core said, when it has the form of an error.
    Open,
    /// Only what a closed table names, in the client's own words: a key may be reflected anywhere in the rest.
    Closed,
}

const UNCONFIRMED: &str = "sandbox_configuration_unconfirmed";
const UNCONFIRMED_MESSAGE: &str = "it is unknown whether the deployment changed: read it again before the next write";

impl Failed {
    pub(super) fn invalid_response() -> Self {
        let message = "the answer does not have the form that core's must have: does core answer there, or a proxy?";
        Self::plain(502, Some("invalid_admin_response"), message)
    }

    /// Whether the request was certainly not carried out.
    #[must_use]
    pub fn known(&self) -> Known {
        match (self.status, self.code.as_deref()) {
            (_, Some(UNCONFIRMED)) => Known::Unknown,
            (400..500, _) | (503, Some(_)) => Known::Refused,
            _ => Known::Unknown,
        }
    }

    fn plain(status: u16, code: Option<&str>, message: &str) -> Self {
        let (code, message) = (code.map(str::to_owned), message.to_owned());
        Self { status, code, param: None, message, details: BTreeMap::new() }
    }
}

/// An error envelope as far as a client trusts its form; members that Core may add later are borne.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    error: Body<'a>,
}

#[derive(Deserialize)]
struct Body<'a> {
    message: String,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    param: Option<String>,
    #[serde(borrow, default)]
    details: Option<&'a RawValue>,
}

impl Body<'_> {
    /// Malformed details are dropped, and change nothing else.
    fn details(&self) -> BTreeMap<String, Detail> {
        self.details.and_then(|raw| strict::object(raw.get().as_bytes()).ok()).unwrap_or_default()
    }
}

impl Table {
    pub(super) fn refused(self, status: u16, body: &[u8]) -> Failed {
        let error = serde_json::from_slice::<Envelope<'_>>(body).ok().map(|envelope| envelope.error);
        match (self, error) {
            (Self::Open, None) => Failed::plain(status, None, &between(status)),
            (Self::Open, Some(error)) => {
                let details = error.details();
                Failed { status, code: error.code, param: error.param, message: error.message, details }
            }
            (Self::Closed, error) => {
                let before = error.is_none().then(|| between(status));
                let told = error.and_then(|error| closed(status, &error));
                told.unwrap_or_else(|| match before {
                    Some(before) => {
                        Failed { message: format!("{before}; {UNCONFIRMED_MESSAGE}"), ..unconfirmed(status) }
                    }
                    None => unconfirmed(status),
                })
            }
        }
    }

    pub(super) fn unanswered(self) -> Failed {
        match self {
            Self::Open => Failed::plain(0, None, "core did not answer"),
            Self::Closed => unconfirmed(0),
        }
    }
}

/// An answer that is no error of Core's: something between has spoken. Nothing of what it said is repeated.
fn between(status: u16) -> String {
    let hint = match status {
        300..400 => "it sends callers elsewhere: is the address right, with https where https is served?",
        407 => {
            "a proxy wants to know who asks: put user and password into the proxy's address, or name core in no_proxy"
        }
        502..=504 => "a proxy does not reach core: is core running behind it?",
        _ => "look at the address, the proxy variables, and what stands before core",
    };
    format!("something between here and core answered with status {status}; {hint}")
}

fn unconfirmed(status: u16) -> Failed {
    Failed::plain(status, Some(UNCONFIRMED), UNCONFIRMED_MESSAGE)
}

/// The closed table of deployment §9.4: the client's own text for a code that it knows, under that code's own status.
fn closed(status: u16, error: &Body<'_>) -> Option<Failed> {
    let text = error.code.as_deref()?;
    let code = Code::ALL.iter().copied().find(|code| code.code() == text && code.status() == status)?;
    let mut failed = Failed::plain(status, Some(code.code()), code.message());
    if matches!(code, Code::SandboxCredentialInvalid | Code::SandboxCredentialOwnership) {
        failed.keep_param(error, |param| param == "credential");
    } else if code == Code::SandboxConfigurationInvalid {
        failed.keep_param(error, |param| param == "configuration");
    } else if code == Code::SandboxGenerationStale {
        failed.keep_details(error, &["current_generation"]);
    } else if code == Code::InvalidSandboxConfiguration {
        failed.keep_param(error, is_sizes_or_release);
        failed.keep_details(error, if failed.param.is_some() { &["min", "max"] } else { &[] });
    }
    Some(failed)
}

/// The members of a selection that never hold a secret.
fn is_sizes_or_release(param: &str) -> bool {
    let sizes = ["cpus", "memory_mib", "root_disk_mib", "environment_disk_mib"];
    param == "runtime" || param.strip_prefix("resources.").is_some_and(|size| sizes.contains(&size))
}

impl Failed {
    fn keep_param(&mut self, error: &Body<'_>, known: impl Fn(&str) -> bool) {
        self.param = error.param.clone().filter(|param| known(param));
    }

    /// Keeps integers under these names.
    fn keep_details(&mut self, error: &Body<'_>, names: &[&str]) {
        let integer = |value: &Detail| matches!(value, Detail::Integer(_));
        self.details = error.details();
        self.details.retain(|name, value| names.contains(&name.as_str()) && integer(value));
    }
}
