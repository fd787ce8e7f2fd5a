//! The measured frames as plain derived structures: no uniqueness, range, time, digest or base64 is checked.

#![allow(missing_docs, reason = "the members are those of the wire")]

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub struct Heartbeat<'a> {
    pub version: u64,
    #[serde(borrow)]
    pub r#type: Cow<'a, str>,
    #[serde(borrow)]
    pub connection_id: Cow<'a, str>,
    pub owner_epoch: u64,
    #[serde(borrow)]
    pub health: Health<'a>,
}

#[derive(Serialize, Deserialize)]
pub struct Health<'a> {
    #[serde(borrow)]
    pub observed_at: Cow<'a, str>,
    pub active_operations: u32,
    pub cpu_utilization: Option<f64>,
    pub total_memory_bytes: Option<u64>,
    pub effective_cpu_cores: Option<f64>,
    pub cpu_count: Option<u64>,
    pub available_memory_bytes: Option<u64>,
    pub available_disk_bytes: Option<u64>,
    #[serde(borrow)]
    pub generations: Vec<Observation<'a>>,
}

#[derive(Serialize, Deserialize)]
pub struct Observation<'a> {
    pub generation: u64,
    #[serde(borrow)]
    pub specification_digest: Cow<'a, str>,
    #[serde(borrow)]
    pub state: Cow<'a, str>,
    #[serde(borrow)]
    pub diagnostic: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
pub struct RequestFrame<'a> {
    pub version: u64,
    #[serde(borrow)]
    pub r#type: Cow<'a, str>,
    #[serde(borrow)]
    pub request: Request<'a>,
}

#[derive(Serialize, Deserialize)]
pub struct Request<'a> {
    pub deployment_generation: u64,
    pub sequence: u64,
    pub owner_epoch: u64,
    #[serde(borrow)]
    pub connection_id: Cow<'a, str>,
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    #[serde(borrow)]
    pub operation: Cow<'a, str>,
    pub timeout_ms: i64,
    #[serde(borrow)]
    pub reference: Reference<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command<'a>>,
}

#[derive(Serialize, Deserialize)]
pub struct Reference<'a> {
    #[serde(rename = "TenantID", borrow)]
    pub tenant: Cow<'a, str>,
    #[serde(rename = "EnvironmentID", borrow)]
    pub environment: Cow<'a, str>,
    #[serde(rename = "AllocationID", borrow)]
    pub allocation: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Command<'a> {
    pub args: Vec<String>,
    #[serde(borrow)]
    pub directory: Cow<'a, str>,
    #[serde(borrow)]
    pub stdin: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
pub struct ResponseFrame<'a> {
    pub version: u64,
    #[serde(borrow)]
    pub r#type: Cow<'a, str>,
    #[serde(borrow)]
    pub response: Response<'a>,
}

#[derive(Serialize, Deserialize)]
pub struct Response<'a> {
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    #[serde(borrow)]
    pub connection_id: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub info: Option<Info<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandResult<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Info<'a> {
    #[serde(rename = "TenantID", borrow)]
    pub tenant: Cow<'a, str>,
    #[serde(rename = "EnvironmentID", borrow)]
    pub environment: Cow<'a, str>,
    #[serde(rename = "AllocationID", borrow)]
    pub allocation: Cow<'a, str>,
    #[serde(rename = "ProviderID", borrow)]
    pub provider: Cow<'a, str>,
    #[serde(borrow)]
    pub state: Cow<'a, str>,
    pub bootstrap_complete: bool,
    pub create_settled: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CommandResult<'a> {
    #[serde(borrow)]
    pub stdout: Cow<'a, str>,
    #[serde(borrow)]
    pub stderr: Cow<'a, str>,
    pub exit_code: i64,
}
