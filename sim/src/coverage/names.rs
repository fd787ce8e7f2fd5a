//! The stable names under which things are counted.

use palisade_core::admin::node::ComputePhase;
use palisade_core::generation::recovery::{Cause, CollectStep, Local, PrepareStep, Refusal as RecoveryRefusal};
use palisade_core::generation::{Probed, Refusal as Announced, Wake as TableWake};
use palisade_core::lifecycle::compute::Step as ComputeStep;
use palisade_core::lifecycle::{CallError, Change, Outcome, Step, TurnError};
use palisade_core::operation::Method;
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::session::backoff::Refused;
use palisade_core::session::hub::dispatch::Refusal;
use palisade_core::session::hub::{Cause as Unknown, CloseReason, Uncertain, Wake as CoreWake, Write};
use palisade_core::session::node::{Ended, Ownership, Wake as NodeWake};
use palisade_core::wire::{Kind, Reason};

use crate::plan::Event;

/// Prefixes the same names for the places where something happens.
macro_rules! prefixed {
    ($prefix:literal, $value:expr, { $($pattern:pat => $name:literal),+ $(,)? }) => {
        match $value { $($pattern => concat!($prefix, ": ", $name)),+ }
    };
}

/// Prefixes the names of the failures, which are the codes of the wire.
macro_rules! failed {
    ($prefix:literal, $failure:expr) => {
        match $failure {
            Failure::Unsupported { .. } => concat!($prefix, "unsupported"),
            Failure::ObservationUnavailable => concat!($prefix, "observation_unavailable"),
            Failure::RuntimeNotRunning => concat!($prefix, "runtime_not_running"),
            Failure::Invalid => concat!($prefix, "invalid"),
            Failure::Ownership => concat!($prefix, "ownership"),
            Failure::Exists => concat!($prefix, "exists"),
            Failure::NotFound => concat!($prefix, "not_found"),
            Failure::CommandUnconfirmed => concat!($prefix, "command_unconfirmed"),
            Failure::CheckpointUnusable => concat!($prefix, "checkpoint_unusable"),
            Failure::Unconfirmed => concat!($prefix, "unconfirmed"),
        }
    };
}

pub(crate) const fn core_close(reason: CloseReason) -> &'static str {
    prefixed!("core closes", reason, {
        CloseReason::HelloTimeout => "no hello within 15 s",
        CloseReason::Idle => "no frame for 35 s",
        CloseReason::Violation => "invalid or misplaced frame",
        CloseReason::Fenced => "another connection, epoch or sequence",
        CloseReason::Identity => "another identity",
        CloseReason::EpochChanged => "the owner epoch changed",
        CloseReason::Storage => "a storage call failed",
        CloseReason::StorageTimeout => "a storage call took too long",
        CloseReason::WriteFailed => "a frame could not be written",
        CloseReason::PeerGone => "the node closed",
        CloseReason::Asked => "core was asked to",
    })
}

pub(crate) const fn core_wake(wake: CoreWake) -> &'static str {
    prefixed!("core wakes", wake, {
        CoreWake::Hello => "hello is late",
        CoreWake::Callback => "a callback is late",
        CoreWake::Idle => "the node is silent",
        CoreWake::Request => "a caller's time ends",
    })
}

pub(crate) const fn core_write(write: &Write) -> &'static str {
    prefixed!("core writes", write, {
        Write::Welcome(_) => "welcome",
        Write::HeartbeatAck(_) => "heartbeat_ack",
        Write::RetentionAck { .. } => "retention_ack",
        Write::Request { .. } => "request",
    })
}

pub(crate) const fn frame_at_core(kind: Kind) -> &'static str {
    prefixed!("core reads", kind, {
        Kind::Hello => "hello",
        Kind::Welcome => "welcome",
        Kind::Heartbeat => "heartbeat",
        Kind::HeartbeatAck => "heartbeat_ack",
        Kind::Retention => "retention",
        Kind::RetentionAck => "retention_ack",
        Kind::Request => "request",
        Kind::Response => "response",
    })
}

/// By the beginning of the message, as every sender here writes it.
pub(crate) fn frame_at_node(bytes: &[u8]) -> &'static str {
    let kinds: [(&[u8], _); 4] = [
        (b"welcome", "node reads: welcome"),
        (b"heartbeat_ack", "node reads: heartbeat_ack"),
        (b"retention_ack", "node reads: retention_ack"),
        (b"request", "node reads: request"),
    ];
    let kind = bytes.strip_prefix(br#"{"version":6,"type":""#).unwrap_or_default();
    let known = kinds.iter().find(|(name, _)| kind.strip_prefix(*name).is_some_and(|rest| rest.first() == Some(&b'"')));
    known.map_or("node reads: something else", |(_, name)| name)
}

pub(crate) const fn violation(reason: Reason) -> &'static str {
    prefixed!("invalid frame", reason, {
        Reason::TooLong => "too long",
        Reason::NotUtf8 => "not UTF-8",
        Reason::NotJson => "not JSON",
        Reason::Truncated => "truncated",
        Reason::TrailingText => "trailing text",
        Reason::TooDeep => "too deep",
        Reason::Version => "version",
        Reason::Type => "type",
        Reason::UnknownMember => "unknown member",
        Reason::RepeatedMember => "repeated member",
        Reason::MissingMember => "missing member",
        Reason::Null => "null",
        Reason::WrongType => "wrong type",
        Reason::NumberRange => "number out of range",
        Reason::Uuid => "no UUID",
        Reason::Digest => "no digest",
        Reason::Time => "no time",
        Reason::Base64 => "no base64",
        Reason::MemoryAboveTotal => "memory above total",
        Reason::ListLength => "list length",
        Reason::RepeatedGeneration => "repeated generation",
        Reason::State => "state",
        Reason::Diagnostic => "diagnostic",
        Reason::StateMember => "member of another state",
        Reason::CheckpointToken => "checkpoint token",
        Reason::EmptyErrorCode => "empty error code",
        Reason::NotAddressed => "not addressed",
        Reason::TokenUsage => "token usage",
    })
}

pub(crate) const fn ended(ended: &Ended) -> &'static str {
    prefixed!("node closes", ended, {
        Ended::Invalid(_) => "invalid frame",
        Ended::Binary => "binary message",
        Ended::Unexpected => "misplaced frame",
        Ended::Foreign => "another connection",
        Ended::Ownership(Ownership::LowerEpoch) => "lower epoch",
        Ended::Ownership(Ownership::Fencing) => "fencing",
        Ended::Ownership(Ownership::Sequence { .. }) => "sequence",
        Ended::Ownership(Ownership::Deployment(Announced::ServingAboveTarget { .. })) => "serving pin above target",
        Ended::Ownership(Ownership::Deployment(Announced::DigestChanged(_))) => "digest changed",
        Ended::Ownership(Ownership::Deployment(Announced::Collected(_))) => "target or pin is collected",
        Ended::Ownership(Ownership::Retention) => "retention answer does not match",
        Ended::Full(_) => "no waiting place",
        Ended::NoWelcome => "no welcome within 15 s",
        Ended::Silent => "no frame for 35 s",
        Ended::EpochNotStored => "epoch not stored",
        Ended::Unencodable(_) => "measurements do not fit",
    })
}

pub(crate) const fn node_wake(wake: NodeWake) -> &'static str {
    prefixed!("node wakes", wake, {
        NodeWake::Welcome => "welcome is late",
        NodeWake::Idle => "core is silent",
        NodeWake::Heartbeat => "heartbeat",
        NodeWake::Budget => "a budget ends",
        NodeWake::Generation(TableWake::Probe) => "probe",
        NodeWake::Generation(TableWake::Prepare) => "preparation",
        NodeWake::Generation(TableWake::Deadline) => "a preparation takes too long",
    })
}

pub(crate) const fn refused(refused: Refused) -> &'static str {
    prefixed!("dial answered", refused, {
        Refused::Credential => "credential rejected by core",
        Refused::Core => "refused by core",
        Refused::Between => "something between",
    })
}

pub(crate) const fn step(step: Step) -> &'static str {
    prefixed!("owner", step, {
        Step::Rest => "rest",
        Step::Wait(_) => "wait",
        Step::Reserve => "reserve",
        Step::Create => "create",
        Step::Observe { late: false } => "observe the creation",
        Step::Observe { late: true } => "observe the creation after its time",
        Step::Verify => "verify",
        Step::Confirm => "confirm",
        Step::Compute(_) => "compute",
        Step::Dispatch(_) => "dispatch a turn",
        Step::FailTurn(..) => "fail a turn",
        Step::RequestCleanup => "request cleanup",
        Step::Kill => "kill",
        Step::Settle => "settle",
        Step::Release => "release",
    })
}

pub(crate) const fn compute_step(step: ComputeStep) -> &'static str {
    prefixed!("compute", step, {
        ComputeStep::Identify => "identify",
        ComputeStep::Quiesce => "quiesce",
        ComputeStep::Return => "return",
        ComputeStep::Suspend => "suspend",
        ComputeStep::LookSuspend => "look what came of a suspend",
        ComputeStep::StopSource => "stop the source",
        ComputeStep::Plan => "plan",
        ComputeStep::Restore => "restore",
        ComputeStep::LookRestore => "look what came of a restore",
        ComputeStep::Replan => "remove a target and plan anew",
        ComputeStep::Thaw => "thaw",
        ComputeStep::RemoveLeftover => "remove a leftover",
        ComputeStep::Expire => "expire",
    })
}

pub(crate) const fn phase(phase: ComputePhase) -> &'static str {
    prefixed!("compute is", phase, {
        ComputePhase::Disabled => "disabled",
        ComputePhase::Running => "running",
        ComputePhase::Quiescing => "quiescing",
        ComputePhase::Suspending => "suspending",
        ComputePhase::Suspended => "suspended",
        ComputePhase::Restoring => "restoring",
        ComputePhase::Waking => "waking",
    })
}

pub(crate) const fn change(change: Change) -> &'static str {
    match change {
        Change::AttemptCleared => "change: attempt cleared",
        Change::Running => "change: running",
        Change::Settled => "change: settled",
        Change::Looked(_) => "change: looked",
        Change::CleanupRequested => "change: cleanup requested",
        Change::Released => "change: released",
        Change::TurnCompleted(_) => "change: turn completed",
        Change::TurnFailed(_, error) => turn_error(error),
        Change::TurnRequeued(_) => "change: turn requeued",
    }
}

pub(crate) const fn turn_error(error: TurnError) -> &'static str {
    prefixed!("turn failed", error, {
        TurnError::Unconfirmed => "command_unconfirmed",
        TurnError::NodeUnavailable => "node_unavailable",
        TurnError::EnvironmentUnavailable => "environment_unavailable",
        TurnError::Expired => "command_expired",
        TurnError::Invalid => "command_invalid",
        TurnError::NotFound => "sandbox_not_found",
        TurnError::Ownership => "sandbox_ownership",
        TurnError::Unsupported => "command_unsupported",
    })
}

pub(crate) const fn refusal(refusal: &Refusal) -> &'static str {
    prefixed!("not dispatched", refusal, {
        Refusal::Unsupported { .. } => "unsupported",
        Refusal::Ownership => "malformed placement",
        Refusal::Uncertain(_) => "uncertain",
        Refusal::Deadline => "no budget left",
        Refusal::Invalid => "invalid",
    })
}

pub(crate) fn outcome(outcome: &Outcome<'_>) -> &'static str {
    match outcome {
        Ok(answer) => answer_name(answer),
        Err(CallError::Refused(_)) => "caller told: refused",
        Err(CallError::Uncertain(Uncertain { cause, sent })) => match (cause, sent) {
            (Unknown::Unavailable, false) => "caller told: unavailable, nothing sent",
            (Unknown::Unavailable, true) => "caller told: unavailable, perhaps sent",
            (Unknown::Deadline, false) => "caller told: deadline, nothing sent",
            (Unknown::Deadline, true) => "caller told: deadline, perhaps sent",
            (Unknown::Cancelled, false) => "caller told: cancelled, nothing sent",
            (Unknown::Cancelled, true) => "caller told: cancelled, perhaps sent",
            (Unknown::Write, false) => "caller told: write failed, nothing sent",
            (Unknown::Write, true) => "caller told: write failed, perhaps sent",
            (Unknown::Records, _) => "caller told: records unreadable",
        },
        Err(CallError::Failed(failed)) => failed!("caller told: failed: ", &failed.failure),
    }
}

const fn answer_name(answer: &Answer<'_>) -> &'static str {
    prefixed!("caller told", answer, {
        Answer::Info(_) => "info",
        Answer::Compute(_) => "compute",
        Answer::State(_) => "state",
        Answer::Command(_) => "command result",
        Answer::Sample(_) => "sample",
        Answer::Restored(_) => "restored",
        Answer::Done => "done",
    })
}

/// The name of a failure alone.
pub(crate) const fn failure(failure: &Failure) -> &'static str {
    failed!("", failure)
}

pub(crate) fn provider_answer(answer: &Result<Answer<'_>, Failed<'_>>) -> &'static str {
    match answer {
        Ok(_) => "provider: success",
        Err(failed) => failed!("provider: ", &failed.failure),
    }
}

pub(crate) const fn executed(method: Method) -> &'static str {
    prefixed!("executed", method, {
        Method::Create => "create",
        Method::GetInfo => "info",
        Method::Renew => "renew",
        Method::Kill => "kill",
        Method::RunCommand => "command",
        Method::Observe => "observe",
        Method::Initial => "initial",
        Method::NewCompute => "new_compute",
        Method::GetCompute => "compute",
        Method::KillCompute => "kill_compute",
        Method::ResumeCompute => "resume_compute",
        Method::RunCommandCompute => "command_compute",
        Method::Suspend => "suspend",
        Method::Resume => "resume",
        Method::DeleteSnapshot => "delete_snapshot",
        Method::RestorePreparation => "restore_preparation",
        Method::SavePreparation => "save_preparation",
    })
}

pub(crate) const fn probed(probed: &Probed) -> &'static str {
    prefixed!("probe", probed, {
        Probed::Ready(_) => "ready",
        Probed::NotReady(_) => "not ready",
        Probed::Cancelled => "cancelled",
    })
}

pub(crate) const fn local(local: Local) -> &'static str {
    prefixed!("found at start", local, {
        Local::Nothing => "nothing",
        Local::Dropped => "dropped",
        Local::Collecting => "collecting",
        Local::Unfinished => "unfinished",
        Local::Configured => "configured",
    })
}

pub(crate) const fn prepare_step(step: PrepareStep) -> &'static str {
    prefixed!("prepare", step, {
        PrepareStep::LockInstallation => "lock the installation",
        PrepareStep::CreateDirectory => "create the directory",
        PrepareStep::CreateLease => "create the lease",
        PrepareStep::RecordLease => "record the lease",
        PrepareStep::LockLease => "lock the lease",
        PrepareStep::AskCore => "ask core",
        PrepareStep::WritePlan => "write the plan",
        PrepareStep::Fetch => "fetch",
        PrepareStep::WriteManifest => "write the manifest",
        PrepareStep::MakeHome => "make the home",
        PrepareStep::StartImport => "start the import",
        PrepareStep::Import => "import",
        PrepareStep::Publish => "publish",
        PrepareStep::ClearJournal => "clear the journal",
        PrepareStep::Load => "load",
    })
}

pub(crate) const fn collect_step(step: CollectStep) -> &'static str {
    prefixed!("collect", step, {
        CollectStep::LockInstallation => "lock the installation",
        CollectStep::LockLease => "lock the lease",
        CollectStep::Begin => "begin",
        CollectStep::RemoveImage => "remove the image",
        CollectStep::CompleteNative => "complete native",
        CollectStep::RemoveRelease => "remove the release",
        CollectStep::RemoveOriginals => "remove the originals",
        CollectStep::WriteDropped => "write dropped",
        CollectStep::Done => "done",
    })
}

pub(crate) const fn recovery_refusal(refusal: RecoveryRefusal) -> &'static str {
    prefixed!("preparer refuses", refusal.cause, {
        Cause::Damaged(_) => "damaged",
        Cause::Foreign(_) => "foreign",
        Cause::Missing => "missing",
        Cause::Unrecorded => "unrecorded",
        Cause::Busy => "busy",
        Cause::Final => "dropped",
        Cause::Begun => "collection began",
        Cause::Conflict => "conflict",
        Cause::InUse => "in use",
        Cause::Unknown => "unknown",
    })
}

/// Whether a code is one of the wire's.
pub(crate) fn is_known_code(code: &str) -> bool {
    [
        "unsupported",
        "observation_unavailable",
        "runtime_not_running",
        "invalid",
        "ownership",
        "exists",
        "not_found",
        "command_unconfirmed",
        "checkpoint_unusable",
        "unconfirmed",
    ]
    .contains(&code)
}

pub(crate) const fn planned(event: &Event) -> &'static str {
    prefixed!("event", event, {
        Event::CreateSession => "session created",
        Event::PostTurn { .. } => "turn posted",
        Event::CancelTurns { .. } => "turns cancelled",
        Event::DeleteSession { .. } => "session deleted",
        Event::Ask { .. } => "many callers",
        Event::ChangeTarget => "target changed",
        Event::Archive { .. } => "session archived",
        Event::StartReset => "reset started",
        Event::CancelReset => "reset cancelled",
        Event::RemoveNode { .. } => "node removed",
        Event::PauseAdmission { .. } => "admission paused",
        Event::CrashCore { .. } => "core crashes",
        Event::StopCore { .. } => "core stops",
        Event::SuspendCore { .. } => "core freezes",
        Event::LoseLock => "owner's lock lost",
        Event::StoreOutage { .. } => "database silent",
        Event::WallClockJump { .. } => "database clock jumps",
        Event::CrashNode { .. } => "node crashes",
        Event::StopNode { .. } => "node stops",
        Event::NodeAway { .. } => "node away",
        Event::Reboot { .. } => "host loses power",
        Event::SuspendHost { .. } => "host suspended",
        Event::ClockJump { .. } => "host clock jumps",
        Event::EngineDown { .. } => "engine down",
        Event::ProbesFail { .. } => "probes fail",
        Event::HostMeasuresSlowly { .. } => "host hangs when measured",
        Event::DiskFails { .. } => "disk refuses",
        Event::SandboxStops { .. } => "sandbox stops",
        Event::Cut { .. } => "connection reset",
        Event::HalfOpen { .. } => "connection half open",
        Event::Stall { .. } => "connection stalls",
        Event::Block { .. } => "connection takes no bytes",
        Event::Proxy { .. } => "proxy between",
        Event::LoseNextDial { .. } => "next dial's answer lost",
        Event::Send { .. } => "hostile frame",
        Event::Arm(..) => "crash armed",
    })
}
