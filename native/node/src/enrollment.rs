//! The node's side of enrollment (wire §9.1–9.3).

use std::time::Duration;

use palisade_core::admin::error::Envelope;
use palisade_core::deployment::origin::is_loopback;
use palisade_core::generation::configuration::API;
use palisade_core::limits::ENROLLMENT_MAX_BYTES;
use palisade_core::strict;
use palisade_core::units::{Digest, Generation, Id};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::dial::Refusal;
use crate::health::Measurements;
use crate::identity::{Identity, IdentityError, State, Stored};
use crate::limits::{CAPACITY_MAX, ENROLLMENT_TIMEOUT_MS};
use crate::origin::Origin;

/// Why Core's approval could not be obtained. What is on disk is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum EnrollmentError {
    /// Core does not accept the token or the credential: permanent, and believed from Core alone (decision 36).
    #[error("core refused the {secret} with status 401{}; issue a new enrollment token and register again", named(code.as_deref()))]
    Unauthorized {
        /// What authenticated.
        secret: &'static str,
        /// Core's code, when it is one.
        code: Option<String>,
    },
    /// Core refused for another reason.
    #[error("core refused with status {status}{}", named(code.as_deref()))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Core's code, when it is one.
        code: Option<String>,
    },
    /// An answer that is neither an approval nor Core's refusal (field report E9).
    #[error("something between us answered {0}; check proxies on the way to core")]
    Between(Refusal),
    /// No answer to a read, which has changed nothing.
    #[error("core is unreachable: {0}")]
    Unreachable(String),
    /// No answer to the enrollment, which may have been accepted.
    #[error("the enrollment is unconfirmed: {0}; run the same command again with the same state directory")]
    Unconfirmed(String),
    /// An answer that does not read as one.
    #[error("core's answer is malformed: {0}")]
    Malformed(String),
    /// An answer that belongs to somebody else.
    #[error("core's answer names another {0} than this node's; nothing was stored")]
    Foreign(&'static str),
    /// An approval out of bounds.
    #[error("core's answer has capacities outside 1 to 1000000, or fewer retained than active; nothing was stored")]
    Capacity,
    /// The approval could not be stored.
    #[error(transparent)]
    State(#[from] IdentityError),
    /// No HTTP client could be made on this host.
    #[error("no http client could be made: {0}")]
    Client(String),
}

impl EnrollmentError {
    /// 78 when a service manager must not try again, else 1 (wire §4.1).
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Unauthorized { .. } => 78,
            Self::Refused { .. }
            | Self::Between(_)
            | Self::Unreachable(_)
            | Self::Unconfirmed(_)
            | Self::Malformed(_)
            | Self::Foreign(_)
            | Self::Capacity
            | Self::State(_)
            | Self::Client(_) => 1,
        }
    }
}

/// Body of an enrollment. The host's numbers are left out when unknown; capacity is not the node's to choose.
#[derive(Serialize)]
pub(crate) struct Request<'a> {
    specification_digest: Digest,
    deployment_generation: Generation,
    node_id: Id,
    credential: &'a str,
    name: &'a str,
    provider: &'a str,
    backend_fingerprint: Digest,
    core_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_disk_bytes: Option<u64>,
}

/// Core's approval.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Approval {
    node_id: Id,
    installation_id: Id,
    provider: String,
    deployment_generation: Generation,
    specification_digest: Digest,
    max_active: i64,
    max_retained: i64,
    /// Only of the identity route; only the doctor makes something of it.
    #[serde(default, deserialize_with = "strict::present")]
    connected: Option<bool>,
    /// Only of the identity route; nothing here depends on it.
    #[serde(default, rename = "provider_ready", deserialize_with = "strict::present")]
    _provider_ready: Option<bool>,
}

/// Talks to Core's machine routes, without redirects, 15 s for each request.
pub(crate) struct Enrollment {
    client: Client,
}

impl Enrollment {
    /// The proxies of the environment apply, but never between two programs of one host.
    pub(crate) fn new(core_url: &Origin) -> Result<Self, EnrollmentError> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_millis(ENROLLMENT_TIMEOUT_MS));
        let client = if is_loopback(core_url.as_str()) { client.no_proxy() } else { client };
        let client = client.build().map_err(|error| EnrollmentError::Client(error.to_string()))?;
        Ok(Self { client })
    }

    /// The client, for another question to Core's machine routes.
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Recovers an earlier enrollment, or spends the token; stores the approved capacity.
    ///
    /// Whatever keeps the identity route from confirming, the token is tried next (wire §9.3).
    pub(crate) async fn enroll(
        &self,
        state: &State,
        stored: &mut Stored,
        name: &str,
        token: &Zeroizing<String>,
        measured: &Measurements,
    ) -> Result<(), EnrollmentError> {
        if self.refresh(state, stored).await.is_ok() {
            return Ok(());
        }
        let body = request(stored, name, measured);
        let sent = self.client.post(route(stored, "/enroll")).bearer_auth(token.as_str()).json(&body);
        let approval = answer(sent, "enrollment token").await.map_err(|error| match error {
            EnrollmentError::Unreachable(detail) => EnrollmentError::Unconfirmed(detail),
            other => other,
        })?;
        store(state, stored, &approval)
    }

    /// Reads the approved capacity with the node's credential and stores it; on any failure nothing changes.
    pub(crate) async fn refresh(&self, state: &State, stored: &mut Stored) -> Result<(), EnrollmentError> {
        let approval = answer(self.identity(stored), CREDENTIAL).await?;
        store(state, stored, &approval)
    }

    /// Asks the same and stores nothing: whether Core has a live connection of this node, when it says so, and the `Date`
    /// of whoever answered.
    pub(crate) async fn look(&self, stored: &Stored) -> (Result<Option<bool>, EnrollmentError>, Option<String>) {
        let response = match self.identity(stored).send().await {
            Ok(response) => response,
            Err(error) => return (Err(EnrollmentError::Unreachable(describe(&error))), None),
        };
        let date = response.headers().get(reqwest::header::DATE).and_then(|date| date.to_str().ok()).map(str::to_owned);
        let judged = judge(response, CREDENTIAL).await.and_then(|approval| {
            check(&stored.identity, &approval)?;
            Ok(approval.connected)
        });
        (judged, date)
    }

    fn identity(&self, stored: &Stored) -> RequestBuilder {
        let address = route(stored, &format!("/identity?node_id={}", stored.identity.node_id));
        self.client.get(address).bearer_auth(stored.credential.as_str())
    }
}

/// What authenticates a node that is enrolled.
const CREDENTIAL: &str = "node credential";

fn route(stored: &Stored, path: &str) -> String {
    stored.core_url.join(&format!("{API}/sandbox-node{path}"))
}

pub(crate) fn request<'a>(stored: &'a Stored, name: &'a str, measured: &Measurements) -> Request<'a> {
    let identity = &stored.identity;
    Request {
        specification_digest: identity.specification_digest,
        deployment_generation: identity.deployment_generation,
        node_id: identity.node_id,
        credential: stored.credential.as_str(),
        name,
        provider: &identity.provider,
        backend_fingerprint: identity.backend_fingerprint,
        core_url: stored.core_url.as_str(),
        cpu_count: measured.cpu_count,
        effective_cpu_cores: measured.effective_cpu_cores,
        total_memory_bytes: measured.total_memory_bytes,
        available_disk_bytes: measured.available_disk_bytes,
    }
}

/// Sends, and reads an approval; `secret` names what authenticates.
async fn answer(request: RequestBuilder, secret: &'static str) -> Result<Approval, EnrollmentError> {
    let sent = request.send().await.map_err(|error| EnrollmentError::Unreachable(describe(&error)))?;
    judge(sent, secret).await
}

async fn judge(response: Response, secret: &'static str) -> Result<Approval, EnrollmentError> {
    let unreachable = |error: reqwest::Error| EnrollmentError::Unreachable(describe(&error));
    let status = response.status();
    let between = EnrollmentError::Between(Refusal::of(status, response.headers()));
    let body = bounded(response).await.map_err(unreachable)?;
    if status.is_success() {
        let body = body.ok_or_else(|| EnrollmentError::Malformed("it is above 16384 bytes".to_owned()))?;
        return strict::object(&body).map_err(|error| EnrollmentError::Malformed(error.to_string()));
    }
    let refusal = body.and_then(|body| strict::object::<Envelope>(&body).ok());
    let Some(envelope) = refusal else { return Err(between) };
    let code = envelope.error.code.filter(|code| is_code(code));
    Err(match status {
        StatusCode::UNAUTHORIZED => EnrollmentError::Unauthorized { secret, code },
        status => EnrollmentError::Refused { status: status.as_u16(), code },
    })
}

/// A code in a message, when there is one.
fn named(code: Option<&str>) -> String {
    code.map(|code| format!(", code {code}")).unwrap_or_default()
}

/// The body; `None` above 16 384 bytes.
pub(crate) async fn bounded(mut response: Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > ENROLLMENT_MAX_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// What kept the answer away, without the address or anything that was sent.
pub(crate) fn describe(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "no answer within 15 s"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the answer broke off"
    };
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    cause.map_or_else(|| what.to_owned(), |cause| format!("{what} ({cause})"))
}

/// Codes of Core that a message may repeat.
fn is_code(code: &str) -> bool {
    (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
}

fn store(state: &State, stored: &mut Stored, approval: &Approval) -> Result<(), EnrollmentError> {
    check(&stored.identity, approval)?;
    let (max_active, max_retained) = (approval.max_active, approval.max_retained);
    let identity = Identity { max_active, max_retained, ..stored.identity.clone() };
    if identity != stored.identity {
        let next = Stored { identity, ..stored.clone() };
        state.write(&next)?;
        *stored = next;
    }
    Ok(())
}

fn check(identity: &Identity, approval: &Approval) -> Result<(), EnrollmentError> {
    let differences = [
        (approval.specification_digest != identity.specification_digest, "specification"),
        (approval.deployment_generation != identity.deployment_generation, "deployment generation"),
        (approval.node_id != identity.node_id, "node"),
        (approval.installation_id != identity.installation_id, "installation"),
        (approval.provider != identity.provider, "provider"),
    ];
    if let Some((_, what)) = differences.into_iter().find(|(differs, _)| *differs) {
        return Err(EnrollmentError::Foreign(what));
    }
    let bounded = 1 <= approval.max_active
        && approval.max_active <= approval.max_retained
        && approval.max_retained <= CAPACITY_MAX;
    if bounded { Ok(()) } else { Err(EnrollmentError::Capacity) }
}
