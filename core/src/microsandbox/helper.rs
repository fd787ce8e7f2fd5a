//! The boundary of the helper: one process for one operation, one JSON object in each direction (node-host §8.2).
//!
//! Both sides are of one release, and speak one version of a private protocol. What this module promises is what the
//! boundary must keep: sizes, strictness, the environment, and that everything that is not a whole answer of the right
//! version to the right operation is an unknown outcome.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::native::{Construction, Native, Network};
use crate::limits::{HELPER_REQUEST_MAX_BYTES, HELPER_RESPONSE_MAX_BYTES, STREAM_MAX_BYTES};
use crate::outcome::Failure;
use crate::strict;
use crate::units::{Digest, Id};
use crate::wire::IntoOwned;
use crate::wire::payload::{
    Bootstrap, Command, CommandResult, Compute, ComputeState, RawReference, Resume, Snapshot, Suspend,
};

/// The one version of the protocol.
pub const VERSION: u64 = 3;
/// Where a helper finds the lease of its generation.
pub const LEASE_DESCRIPTOR: i32 = 3;
/// The variable that tells it so. It closes the descriptor for its own children before anything else.
pub const LEASE_VARIABLE: &str = "OAC_NODE_GENERATION_LEASE_FD";
/// What a helper has from the node's environment. No proxy, key or override of a backend is among it.
pub const INHERITED: [&str; 6] = ["HOME", "PATH", "TMPDIR", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What a helper has beside [`INHERITED`] and [`LEASE_VARIABLE`].
#[must_use]
pub fn environment(native: &Native) -> [(&'static str, &str); 6] {
    [
        ("MSB_HOME", &native.runtime_home),
        ("MSB_PATH", &native.runtime_path),
        ("MSB_LIBKRUNFW_PATH", &native.firmware_path),
        ("MSB_BACKEND", "local"),
        ("RUST_LOG", "off"),
        ("NO_COLOR", "1"),
    ]
}

/// What a helper can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Makes the machine of generation 0.
    Create,
    /// Looks at one machine.
    Inspect,
    /// Looks at the machine of generation 0, and says when its creation left nothing and never will.
    InitialInfo,
    /// Measures one machine.
    Metrics,
    /// Removes one machine.
    Kill,
    /// Runs a command.
    Command,
    /// Thaws the same resident machine.
    ResumeCompute,
    /// Takes a snapshot.
    Suspend,
    /// Restores one.
    Resume,
    /// Removes one.
    DeleteSnapshot,
}

/// The arguments of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work<'a> {
    /// [`Operation::Create`], with the place of an external workspace when one is bound.
    Create(Box<Bootstrap<'a>>, Option<Workspace<'a>>),
    /// [`Operation::Inspect`].
    Inspect(Compute<'a>),
    /// [`Operation::InitialInfo`].
    InitialInfo(Compute<'a>),
    /// [`Operation::Metrics`].
    Metrics(Compute<'a>),
    /// [`Operation::Kill`].
    Kill(Compute<'a>),
    /// [`Operation::Command`].
    Command(Compute<'a>, Command<'a>),
    /// [`Operation::ResumeCompute`].
    ResumeCompute(Compute<'a>),
    /// [`Operation::Suspend`].
    Suspend(Box<Suspend<'a>>),
    /// [`Operation::Resume`], with the place of an external workspace when one is bound.
    Resume(Box<Resume<'a>>, Option<Workspace<'a>>),
    /// [`Operation::DeleteSnapshot`].
    DeleteSnapshot(Snapshot<'a>),
}

/// A workspace that the provider resolved: a clean absolute directory and its immutable object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Workspace<'a> {
    /// Where it is.
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    /// What it is.
    #[serde(rename = "ObjectID", borrow)]
    pub object_id: Cow<'a, str>,
}

/// What a helper must know of the generation that it works for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Config {
    /// Whose sandboxes.
    pub installation: Id,
    /// Paths and network.
    pub helper_path: String,
    /// Where `msb` stands.
    pub runtime_path: String,
    /// Where the firmware stands.
    pub firmware_path: String,
    /// The store.
    pub runtime_home: String,
    /// SHA-256 of `msb`.
    pub runtime_sha256: Digest,
    /// SHA-256 of the firmware.
    pub firmware_sha256: Digest,
    /// The pinned image.
    pub image: String,
    /// CPUs of a sandbox.
    pub cpus: u32,
    /// Memory of a sandbox, in MiB.
    pub memory_mib: u32,
    /// Root disk of a sandbox, in MiB.
    pub root_disk_mib: u32,
    /// Environment disk of a sandbox, in MiB.
    pub environment_disk_mib: u32,
    /// What sandboxes may reach.
    #[serde(deserialize_with = "strict::nested")]
    pub network: Network,
}

/// One request. It holds credentials: it is written to a pipe, and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The generation.
    pub config: Config,
    /// The sandbox.
    pub reference: RawReference<'a>,
    /// When the work must have ended, in milliseconds of Unix time.
    pub deadline_ms: u64,
    /// What to do.
    pub work: Work<'a>,
}

/// A request that cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the request to the helper is longer than 72 MiB")]
pub struct TooLong;

/// Use of one machine at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
pub struct Metrics {
    /// When, in milliseconds of Unix time.
    #[serde(rename = "ObservedAtMS")]
    pub observed_at_ms: u64,
    /// For how long the machine has run, in milliseconds.
    #[serde(rename = "UptimeMS")]
    pub uptime_ms: u64,
    /// CPU time, in nanoseconds.
    #[serde(rename = "CPUNanoseconds")]
    pub cpu_ns: u64,
    /// Memory in use.
    pub memory_bytes: u64,
    /// Memory that it may use.
    pub memory_limit_bytes: u64,
}

/// A whole answer of a helper. What it says of a sandbox is still to be compared with what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// Why it did not succeed, if it did not.
    pub failure: Option<Failure>,
    /// What became of the machine; also evidence beside a failure.
    pub state: Option<ComputeState<'a>>,
    /// What came of the command.
    pub command: Option<CommandResult<'a>>,
    /// The measurement.
    pub metrics: Option<Metrics>,
    /// The original creation can no longer change anything.
    pub create_settled: bool,
}

/// How a helper ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// With status 0.
    Normally,
    /// With another status, by a signal, or nobody saw how.
    Otherwise,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Members<'a> {
    version: u64,
    operation: Operation,
    #[serde(deserialize_with = "strict::nested")]
    config: Config,
    #[serde(borrow)]
    reference: RawReference<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    compute: Option<Compute<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    bootstrap: Option<Box<Bootstrap<'a>>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    command: Option<Command<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    suspend: Option<Box<Suspend<'a>>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    resume: Option<Box<Resume<'a>>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    snapshot: Option<Snapshot<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present_nested")]
    workspace: Option<Workspace<'a>>,
    #[serde(rename = "DeadlineMS")]
    deadline_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Answered<'a> {
    version: u64,
    #[serde(borrow, default, deserialize_with = "strict::present")]
    state: Option<ComputeState<'a>>,
    #[serde(borrow, default, deserialize_with = "strict::present")]
    command: Option<CommandResult<'a>>,
    #[serde(default, deserialize_with = "strict::present_nested")]
    metrics: Option<Metrics>,
    #[serde(borrow, default, deserialize_with = "strict::present")]
    error_code: Option<Cow<'a, str>>,
    #[serde(default)]
    create_settled: bool,
}

impl Config {
    /// What a helper must know of a construction.
    #[must_use]
    pub fn of(installation: Id, construction: &Construction) -> Self {
        let native = construction.native.clone();
        Self {
            installation,
            helper_path: native.helper_path,
            runtime_path: native.runtime_path,
            firmware_path: native.firmware_path,
            runtime_home: native.runtime_home,
            runtime_sha256: construction.runtime,
            firmware_sha256: construction.firmware,
            image: construction.image.to_string(),
            cpus: construction.cpus,
            memory_mib: construction.memory_mib,
            root_disk_mib: construction.root_disk_mib,
            environment_disk_mib: construction.environment_disk_mib,
            network: native.network,
        }
    }
}

impl Operation {
    /// The failure that says that nobody knows.
    #[must_use]
    pub const fn unknown(self) -> Failure {
        match self {
            Self::Command => Failure::CommandUnconfirmed,
            Self::Create
            | Self::Inspect
            | Self::InitialInfo
            | Self::Metrics
            | Self::Kill
            | Self::ResumeCompute
            | Self::Suspend
            | Self::Resume
            | Self::DeleteSnapshot => Failure::Unconfirmed,
        }
    }

    /// What a code of the helper means for this operation; what may not come of it is an unknown outcome.
    fn failure(self, code: &str) -> Failure {
        match code {
            "invalid" => Failure::Invalid,
            "ownership" => Failure::Ownership,
            "exists" => Failure::Exists,
            "not_found" => Failure::NotFound,
            "metrics_unavailable" if self == Self::Metrics => Failure::ObservationUnavailable,
            _ => self.unknown(),
        }
    }
}

impl Work<'_> {
    /// The operation.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Create(..) => Operation::Create,
            Self::Inspect(_) => Operation::Inspect,
            Self::InitialInfo(_) => Operation::InitialInfo,
            Self::Metrics(_) => Operation::Metrics,
            Self::Kill(_) => Operation::Kill,
            Self::Command(..) => Operation::Command,
            Self::ResumeCompute(_) => Operation::ResumeCompute,
            Self::Suspend(_) => Operation::Suspend,
            Self::Resume(..) => Operation::Resume,
            Self::DeleteSnapshot(_) => Operation::DeleteSnapshot,
        }
    }
}

impl<'a> Request<'a> {
    /// The bytes for the helper's standard input.
    ///
    /// # Errors
    /// More than 72 MiB.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TooLong> {
        let bytes = serde_json::to_vec(&Members::of(self)).expect("checked members serialise");
        if bytes.len() > HELPER_REQUEST_MAX_BYTES { Err(TooLong) } else { Ok(bytes) }
    }

    /// Reads exactly one request of this version, with exactly the arguments of its operation.
    ///
    /// # Errors
    /// `None` for everything else.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let bytes = (bytes.len() <= HELPER_REQUEST_MAX_BYTES).then_some(bytes)?;
        let members: Members<'a> = strict::object(bytes).ok()?;
        if members.version == VERSION { members.request() } else { None }
    }
}

impl<'a> Members<'a> {
    fn of(request: &Request<'a>) -> Self {
        let mut members = Self {
            version: VERSION,
            operation: request.work.operation(),
            config: request.config.clone(),
            reference: request.reference.clone(),
            compute: None,
            bootstrap: None,
            command: None,
            suspend: None,
            resume: None,
            snapshot: None,
            workspace: None,
            deadline_ms: request.deadline_ms,
        };
        match request.work.clone() {
            Work::Create(bootstrap, workspace) => (members.bootstrap, members.workspace) = (Some(bootstrap), workspace),
            Work::Inspect(compute)
            | Work::InitialInfo(compute)
            | Work::Metrics(compute)
            | Work::Kill(compute)
            | Work::ResumeCompute(compute) => members.compute = Some(compute),
            Work::Command(compute, command) => (members.compute, members.command) = (Some(compute), Some(command)),
            Work::Suspend(suspend) => members.suspend = Some(suspend),
            Work::Resume(resume, workspace) => (members.resume, members.workspace) = (Some(resume), workspace),
            Work::DeleteSnapshot(snapshot) => members.snapshot = Some(snapshot),
        }
        members
    }

    /// Every argument that the operation takes, and none that it does not.
    fn request(mut self) -> Option<Request<'a>> {
        let work = match self.operation {
            Operation::Create => Work::Create(self.bootstrap.take()?, self.workspace.take()),
            Operation::Inspect => Work::Inspect(self.compute.take()?),
            Operation::InitialInfo => Work::InitialInfo(self.compute.take()?),
            Operation::Metrics => Work::Metrics(self.compute.take()?),
            Operation::Kill => Work::Kill(self.compute.take()?),
            Operation::Command => Work::Command(self.compute.take()?, self.command.take()?),
            Operation::ResumeCompute => Work::ResumeCompute(self.compute.take()?),
            Operation::Suspend => Work::Suspend(self.suspend.take()?),
            Operation::Resume => Work::Resume(self.resume.take()?, self.workspace.take()),
            Operation::DeleteSnapshot => Work::DeleteSnapshot(self.snapshot.take()?),
        };
        let Self { config, reference, deadline_ms, .. } = self;
        let left = [
            self.compute.is_some(),
            self.bootstrap.is_some(),
            self.command.is_some(),
            self.suspend.is_some(),
            self.resume.is_some(),
            self.snapshot.is_some(),
            self.workspace.is_some(),
        ];
        (!left.contains(&true)).then_some(Request { config, reference, deadline_ms, work })
    }
}

impl IntoOwned for Response<'_> {
    type Owned = Response<'static>;

    fn into_owned(self) -> Response<'static> {
        Response {
            failure: self.failure,
            state: self.state.into_owned(),
            command: self.command.into_owned(),
            metrics: self.metrics,
            create_settled: self.create_settled,
        }
    }
}

/// Judges what a helper said before it ended. `output` holds at most one byte more than an answer may have.
///
/// # Errors
/// The unknown outcome of the operation, for everything but one whole answer with exactly the operation's result.
pub fn judge(operation: Operation, ended: Ended, output: &[u8]) -> Result<Response<'_>, Failure> {
    read(ended, output).and_then(|answered| answered.response(operation)).ok_or(operation.unknown())
}

fn read(ended: Ended, output: &[u8]) -> Option<Answered<'_>> {
    match ended {
        Ended::Normally if output.len() <= HELPER_RESPONSE_MAX_BYTES => {}
        Ended::Normally | Ended::Otherwise => return None,
    }
    let answered: Answered<'_> = strict::object(output).ok()?;
    (answered.version == VERSION).then_some(answered)
}

impl<'a> Answered<'a> {
    fn response(self, operation: Operation) -> Option<Response<'a>> {
        let failure = self.error_code.as_deref().map(|code| operation.failure(code));
        let within = |result: &CommandResult<'_>| {
            result.stdout.len() <= STREAM_MAX_BYTES && result.stderr.len() <= STREAM_MAX_BYTES
        };
        let bounded = self.command.as_ref().is_none_or(within);
        let (state, command, metrics) = (self.state.is_some(), self.command.is_some(), self.metrics.is_some());
        let exact = match operation {
            // Evidence beside a failure is a state and nothing else.
            _ if failure.is_some() => !command && !metrics,
            Operation::Create
            | Operation::Inspect
            | Operation::InitialInfo
            | Operation::ResumeCompute
            | Operation::Suspend
            | Operation::Resume => state && !command && !metrics,
            Operation::Metrics => metrics && !state && !command,
            Operation::Command => command && !state && !metrics,
            Operation::Kill | Operation::DeleteSnapshot => !state && !command && !metrics,
        };
        let Self { state, command, metrics, create_settled, .. } = self;
        (exact && bounded).then_some(Response { failure, state, command, metrics, create_settled })
    }
}

#[cfg(test)]
mod tests;
