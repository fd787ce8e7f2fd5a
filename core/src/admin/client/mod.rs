//! A client of Core's administrative routes: what is sent, and what an answer means (deployment §9.1–§9.4).
//!
//! A [`Call`] is one request. The shell sends it exactly once, with the Core key, without following a redirect, and gives
//! back what came: [`Call::handle_answer`] or [`Call::handle_failure`]. Nothing is ever sent again on its own: after a
//! write whose outcome is unknown the caller reads and decides.
//!
//! - Never does an answer pass that Core may not send (`an_answer_that_core_may_not_send_is_refused`,
//!   `an_answer_about_another_node_is_refused`).
//! - Never does text of an answer to a deployment write reach the caller, so that no key can be reflected in an error
//!   (`a_reflected_key_never_leaves_the_client`).

mod refused;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

pub use refused::{Failed, Known};

use super::archive::Archive;
use super::console::ConsoleConfig;
use super::deployment::{Clear, Configuration, Deployment};
use super::discovery::{Builds, Templates};
use super::node::{Allocation, Deleted, Enrollment, List, Node, NodeDetail, Updated};
use super::{Invalid, Validate, read};
use crate::deployment::capacity::Approval;
use crate::deployment::e2b;
use crate::deployment::history::Range;
use crate::hosted::observations::Observations;
use crate::strict::Object;
use crate::units::Id;
use refused::Table;

const SANDBOX: &str = "/core/v1/sandbox";

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of HTTP")]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// As it stands in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// One request, and the reader of its answer.
pub struct Call<T> {
    /// How.
    pub method: Method,
    /// Path and query below Core's origin.
    pub path: String,
    /// A JSON object; sent with `Content-Type: application/json`.
    pub body: Option<String>,
    table: Table,
    check: Box<dyn Fn(&T) -> bool + Send + Sync>,
    read: fn(&[u8]) -> Result<T, Invalid>,
}

/// Shows the route, never the body.
impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("method", &self.method).field("path", &self.path).finish_non_exhaustive()
    }
}

impl<T> Call<T> {
    /// What an answer means.
    ///
    /// # Errors
    /// What Core refused, or `invalid_admin_response` with status 502 for an answer that Core may not send.
    pub fn handle_answer(&self, status: u16, body: &[u8]) -> Result<T, Failed> {
        if !(200..300).contains(&status) {
            return Err(self.table.refused(status, body));
        }
        (self.read)(body).ok().filter(|answer| (self.check)(answer)).ok_or_else(Failed::invalid_response)
    }

    /// No answer came. The outcome of a write is unknown: read before the next one.
    #[must_use]
    pub fn handle_failure(&self) -> Failed {
        self.table.unanswered()
    }
}

fn call<T: Validate + for<'de> serde::Deserialize<'de>>(method: Method, path: String, body: Option<String>) -> Call<T> {
    Call { method, path, body, table: Table::Open, check: Box::new(|_| true), read: |bytes| read(bytes) }
}

fn sandbox<T: Validate + for<'de> serde::Deserialize<'de>>(method: Method, path: &str) -> Call<T> {
    call(method, format!("{SANDBOX}{path}"), None)
}

impl<T> Call<T> {
    fn with(self, body: &impl Serialize) -> Self {
        Self { body: Some(serde_json::to_string(body).expect("a plain struct serialises")), ..self }
    }

    fn checked(self, check: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        Self { check: Box::new(check), ..self }
    }

    fn closed(self) -> Self {
        Self { table: Table::Closed, ..self }
    }
}

/// `GET /console/config`.
#[must_use]
pub fn read_console() -> Call<ConsoleConfig> {
    call(Method::Get, "/console/config".to_owned(), None)
}

/// `GET /core/v1/sandbox/deployment`.
#[must_use]
pub fn read_deployment() -> Call<Deployment> {
    sandbox(Method::Get, "/deployment")
}

/// `POST /core/v1/sandbox/deployment`: the first selection, as the caller wrote it.
#[must_use]
pub fn initialise_deployment(selection: String) -> Call<Deployment> {
    Call { body: Some(selection), ..sandbox(Method::Post, "/deployment").closed() }
}

/// `PUT /core/v1/sandbox/deployment`: a change, as the caller wrote it.
#[must_use]
pub fn update_deployment(selection: String) -> Call<Deployment> {
    Call { body: Some(selection), ..sandbox(Method::Put, "/deployment").closed() }
}

/// `POST /core/v1/sandbox/deployment/reset`. `deadline_seconds`: 300 to 86 400, only with `auto`.
#[must_use]
pub fn start_reset(expected_generation: u64, clear: Clear, deadline_seconds: Option<u32>) -> Call<Deployment> {
    #[derive(Serialize)]
    struct Body {
        expected_generation: u64,
        clear: Clear,
        #[serde(skip_serializing_if = "Option::is_none")]
        deadline_seconds: Option<u32>,
    }
    sandbox(Method::Post, "/deployment/reset").with(&Body { expected_generation, clear, deadline_seconds })
}

/// `DELETE /core/v1/sandbox/deployment/reset?expected_generation=N`.
#[must_use]
pub fn cancel_reset(expected_generation: u64) -> Call<Deployment> {
    sandbox(Method::Delete, &format!("/deployment/reset?expected_generation={expected_generation}"))
}

/// `GET /core/v1/sandbox/nodes`.
#[must_use]
pub fn list_nodes() -> Call<List<Object<Node>>> {
    sandbox(Method::Get, "/nodes")
}

/// `GET /core/v1/sandbox/nodes/{node_id}?range=…`.
#[must_use]
pub fn read_node(node: Id, range: Range) -> Call<NodeDetail> {
    let path = format!("/nodes/{node}?range={}", range.name());
    sandbox(Method::Get, &path).checked(move |detail: &NodeDetail| detail.node.id == node)
}

/// `GET /core/v1/sandbox/nodes/{node_id}/allocations`.
#[must_use]
pub fn list_allocations(node: Id) -> Call<List<Object<Allocation>>> {
    let own = move |list: &List<Object<Allocation>>| list.data.iter().all(|Object(held)| held.node_id == node);
    sandbox(Method::Get, &format!("/nodes/{node}/allocations")).checked(own)
}

/// `PATCH /core/v1/sandbox/nodes/{node_id}`.
#[must_use]
pub fn update_node(node: Id, name: &str, max_active: u32, max_retained: u32) -> Call<Updated> {
    #[derive(Serialize)]
    struct Body<'a> {
        name: &'a str,
        max_active: u32,
        max_retained: u32,
    }
    let call = sandbox(Method::Patch, &format!("/nodes/{node}")).with(&Body { name, max_active, max_retained });
    call.checked(move |updated: &Updated| updated.id == node)
}

/// `DELETE /core/v1/sandbox/nodes/{node_id}`.
#[must_use]
pub fn remove_node(node: Id) -> Call<Deleted> {
    sandbox(Method::Delete, &format!("/nodes/{node}")).checked(move |deleted: &Deleted| deleted.id == node)
}

/// `POST /core/v1/sandbox/enrollment-tokens`; limits that are not given are left to Core.
#[must_use]
pub fn create_enrollment(limits: Approval) -> Call<Enrollment> {
    #[derive(Serialize)]
    struct Body {
        #[serde(skip_serializing_if = "Option::is_none")]
        max_active: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_retained: Option<u32>,
    }
    let Approval { max_active, max_retained } = limits;
    sandbox(Method::Post, "/enrollment-tokens").with(&Body { max_active, max_retained })
}

/// `POST /core/v1/sandbox/providers/e2b/discovery` for the templates of a key's team. `endpoint` is the API's origin with
/// the domain of its sandboxes; without it, E2B's own.
#[must_use]
pub fn discover_templates(api_key: &str, endpoint: Option<(&str, &str)>) -> Call<Templates> {
    discover(api_key, endpoint, None)
}

/// `POST /core/v1/sandbox/providers/e2b/discovery` for the builds of one template.
#[must_use]
pub fn discover_builds(api_key: &str, endpoint: Option<(&str, &str)>, template: &str) -> Call<Builds> {
    discover(api_key, endpoint, Some(template))
}

fn discover<T: Validate + for<'de> serde::Deserialize<'de>>(
    api_key: &str,
    endpoint: Option<(&str, &str)>,
    template: Option<&str>,
) -> Call<T> {
    #[derive(Serialize)]
    struct Body {
        configuration: Configuration,
        credential: Configuration,
        query: Configuration,
    }
    let address = |(api_url, domain)| [(e2b::API_URL, api_url), (e2b::DOMAIN, domain)].into();
    let body = Body {
        configuration: endpoint.map(address).unwrap_or_default(),
        credential: [("api_key", api_key)].into(),
        query: template.map(|template| [(e2b::TEMPLATE, template)].into()).unwrap_or_default(),
    };
    sandbox(Method::Post, "/providers/e2b/discovery").with(&body).closed()
}

/// `GET /core/v1/sandbox/runtime-observations`, the newest sessions first; `after` is the last one of the page before.
#[must_use]
pub fn list_runtime_observations(after: Option<Id>) -> Call<Observations> {
    let after = after.map_or_else(String::new, |id| format!("?after={id}"));
    sandbox(Method::Get, &format!("/runtime-observations{after}"))
}

/// `POST` (or, to look only, `GET`) `/core/v1/projects/{project_id}/sessions/{session_id}/archive`.
#[must_use]
pub fn archive(project: Id, session: Id, expected_generation: Option<u64>) -> Call<Archive> {
    #[derive(Serialize)]
    struct Body {
        expected_generation: u64,
    }
    let path = format!("/core/v1/projects/{project}/sessions/{session}/archive");
    let call = match expected_generation {
        Some(expected_generation) => call(Method::Post, path, None).with(&Body { expected_generation }),
        None => call(Method::Get, path, None),
    };
    call.checked(move |archive: &Archive| archive.session_id == session)
}
