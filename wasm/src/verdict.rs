//! What the functions answer, before it becomes JSON.

use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::{Refusal, Specification};
use palisade_core::wire::{Kind, check};
use serde::Serialize;

/// What is said of one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrameVerdict {
    /// `ok`, `invalid_frame` or `invalid_request`.
    pub grade: &'static str,
    /// The frame's type, when it could be read.
    pub r#type: Option<&'static str>,
    /// The rule that was broken, and where.
    pub reason: Option<String>,
}

/// Judges one message as its receiver does.
#[must_use]
pub fn frame(message: &[u8]) -> FrameVerdict {
    let verdict = check(message);
    FrameVerdict {
        grade: verdict.grade().name(),
        r#type: verdict.kind().map(Kind::name),
        reason: verdict.explanation(),
    }
}

/// Whether a specification is valid; the members after `ok` are absent when they say nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SpecificationVerdict {
    /// Whether it is valid.
    pub ok: bool,
    /// What is wrong, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The member that is wrong, as error answers of Core name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<&'static str>,
    /// The smallest size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The largest size, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// Checks `{"resources":…,"runtime":…}` for a provider.
#[must_use]
pub fn specification(provider: &str, json: &str) -> SpecificationVerdict {
    match read(provider, json) {
        Ok(_) => SpecificationVerdict { ok: true, ..SpecificationVerdict::default() },
        Err(refused) => refused,
    }
}

/// Digest and canonical text, or what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Digested {
    /// Only a valid specification has a digest.
    Valid {
        /// 64 lower-case hexadecimal digits.
        digest: String,
        /// The text that was hashed.
        canonical: String,
    },
    /// As [`specification`] answers.
    Refused(SpecificationVerdict),
}

/// The digest of a valid specification.
#[must_use]
pub fn specification_digest(provider: &str, json: &str) -> Digested {
    match read(provider, json) {
        Ok(valid) => Digested::Valid {
            digest: valid.digest().to_string(),
            canonical: String::from_utf8_lossy(&valid.canonical()).into_owned(),
        },
        Err(refused) => Digested::Refused(refused),
    }
}

fn read(provider: &str, json: &str) -> Result<Specification, SpecificationVerdict> {
    let Some(provider) = Provider::from_name(provider) else {
        let reason = Some("unknown provider: expected docker, microsandbox or e2b".to_owned());
        return Err(SpecificationVerdict { reason, param: Some("provider"), ..SpecificationVerdict::default() });
    };
    Specification::parse(provider, json.as_bytes()).map_err(|refusal| {
        let (min, max) = match &refusal {
            Refusal::Resource { min, max, .. } => (Some(*min), *max),
            Refusal::Malformed(_) | Refusal::Presence { .. } | Refusal::Runtime(_) => (None, None),
        };
        SpecificationVerdict { ok: false, reason: Some(refusal.to_string()), param: refusal.param(), min, max }
    })
}
