//! From a caller to the connection of a node, and back (wire §3.3, §5.4).

use std::sync::Arc;
use std::time::Duration;

use palisade_core::deployment::contract::Provider;
use palisade_core::lifecycle::CallError;
use palisade_core::limits::{BUDGET_MAX_MS, CALL_FRAME_MAX_BYTES, CALLBACK_TIMEOUT_MS, STREAM_MAX_BYTES};
use palisade_core::operation::{Call, Method, MethodGroup, Operation, Support};
use palisade_core::outcome::Answer;
use palisade_core::session::hub::dispatch::{Facts, Peer as PeerFacts, Refusal, check};
use palisade_core::session::hub::{Cause, Submission, Uncertain};
use palisade_core::units::{Generation, Id, Millis, OwnerEpoch};
use palisade_core::wire::payload::{Command, Reference};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout_at;

use super::connection::Request;
use super::line::Line;
use super::{Bounds, Hub, Peer, Shared};
use crate::metrics::Times;

/// What came of a call.
pub type Outcome = Result<Answer<'static>, CallError<'static>>;

/// Where a sandbox is, from the durable placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Which provider.
    pub provider: Provider,
    /// Which node.
    pub node: Id,
    /// Which generation carries out its operations.
    pub generation: Generation,
}

/// Room for the bodies of one command in the budget of all connections (decision 30). Other operations need none: what
/// they carry is small, and they must not wait behind what is large.
#[derive(Debug, Default)]
pub struct Room {
    /// Until the request is written.
    pub(super) request: Option<OwnedSemaphorePermit>,
    /// Until the call ends.
    _answer: Option<OwnedSemaphorePermit>,
}

/// What connections use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Reserved identities: connections that open, live or close.
    pub connections: u64,
    /// Bodies that may be in flight at once, in bytes.
    pub budget_bytes: u64,
    /// What is free of that.
    pub free_bytes: u64,
}

/// Room for everything that is no body.
const OVERHEAD_BYTES: u64 = 64 * 1024;
/// Unit in which the byte budget is counted.
const PERMIT_BYTES: u64 = 1024;

impl Hub {
    /// Waits for room for a command with this much standard input, in the order of the callers.
    pub async fn room(&self, stdin_bytes: u64) -> Room {
        match &self.0 {
            Some(shared) => shared.take_room(OVERHEAD_BYTES + encoded(stdin_bytes)).await,
            None => Room::default(),
        }
    }

    /// Sends one operation to the node of `placement` and waits for the answer, at most `budget`; the wait for room is
    /// part of it. Never sends twice. Dropping the call stops the wait and nothing else.
    pub async fn call(
        &self,
        placement: Placement,
        reference: Reference,
        operation: Operation<'static>,
        budget: Duration,
    ) -> Outcome {
        self.measure(None, placement, reference, operation, budget).await
    }

    /// [`Hub::call`] for a caller that waited for room before it had the body in hand.
    pub async fn call_in(
        &self,
        room: Room,
        placement: Placement,
        reference: Reference,
        operation: Operation<'static>,
        budget: Duration,
    ) -> Outcome {
        self.measure(Some(room), placement, reference, operation, budget).await
    }

    /// Connections and room at this moment.
    #[must_use]
    pub fn load(&self) -> Load {
        let load = self.0.as_ref().map(|shared| Load {
            connections: shared.table().reservations.count() as u64,
            budget_bytes: shared.budget_bytes,
            free_bytes: shared.bytes.available_permits() as u64 * PERMIT_BYTES,
        });
        load.unwrap_or_default()
    }

    /// The times of all calls.
    pub(crate) fn times(&self) -> Times {
        self.0.as_ref().map_or_else(Times::default, |shared| shared.times.clone())
    }

    async fn measure(
        &self,
        room: Option<Room>,
        placement: Placement,
        reference: Reference,
        operation: Operation<'static>,
        budget: Duration,
    ) -> Outcome {
        let timed = self.times().begin(operation.method().name());
        let outcome = self.carry(room, placement, reference, operation, budget).await;
        timed.end(match &outcome {
            Ok(_) => "done",
            Err(CallError::Refused(_)) => "refused",
            Err(CallError::Uncertain(_)) => "uncertain",
            Err(CallError::Failed(_)) => "failed",
        });
        outcome
    }

    async fn carry(
        &self,
        room: Option<Room>,
        placement: Placement,
        reference: Reference,
        operation: Operation<'static>,
        budget: Duration,
    ) -> Outcome {
        let unavailable = Uncertain { cause: Cause::Unavailable, sent: false };
        let shared = self.0.as_ref().ok_or(CallError::Refused(Refusal::Uncertain(unavailable)))?;
        let budget = u64::try_from(budget.as_millis()).unwrap_or(u64::MAX);
        let deadline = shared.now().after(budget);
        let call = Call {
            id: Id::from_random(rand::random()),
            deployment_generation: placement.generation,
            reference,
            timeout_ms: budget.clamp(1, BUDGET_MAX_MS),
            operation,
        };
        let peer = shared.dispatchable(placement, &call, deadline).await.map_err(CallError::Refused)?;
        let room = match room {
            Some(room) => room,
            None => shared.room(&call.operation, deadline).await.map_err(CallError::Uncertain)?,
        };
        shared.send(&peer, call, deadline, room).await
    }
}

impl Shared {
    /// The checks of wire §3.3 in their order; the two reads are made only when the check before them passed.
    async fn dispatchable(&self, placement: Placement, call: &Call<'_>, deadline: Millis) -> Result<Peer, Refusal> {
        let method = call.operation.method();
        let support = declared(placement.provider, method);
        let now = self.now();
        let asked = support == Support::Supported && deadline.since(now) > 0;
        let owner_epoch = if asked { self.epoch(now, deadline).await } else { None };
        let peer = self.peer(placement.node);
        let facts = Facts {
            support,
            generation: Some(placement.generation),
            deadline,
            owner_epoch,
            peer: peer.as_ref().map(|peer| PeerFacts {
                owner_epoch: peer.owner_epoch,
                ready: peer.readiness.borrow().is_ready(placement.generation),
            }),
            valid: call.verify().is_ok() && fits(&call.operation),
        };
        check(method, call.operation.needs_ready(), &facts, self.now())?;
        peer.ok_or(Refusal::Uncertain(Uncertain { cause: Cause::Unavailable, sent: false }))
    }

    async fn epoch(&self, now: Millis, deadline: Millis) -> Option<OwnerEpoch> {
        let bound = deadline.min(now.after(CALLBACK_TIMEOUT_MS));
        let bounds = Bounds { deadline: self.instant(bound), cancel: self.stop.clone() };
        self.records.owner_epoch(&bounds).await.ok()
    }

    /// Room for the bodies of this call; the wait is part of the caller's budget (decision 30).
    async fn room(&self, operation: &Operation<'_>, deadline: Millis) -> Result<Room, Uncertain> {
        let Some(command) = command_of(operation) else { return Ok(Room::default()) };
        let room = timeout_at(self.instant(deadline), self.take_room(body_bytes(command))).await;
        room.map_err(|_| Uncertain { cause: Cause::Deadline, sent: false })
    }

    async fn take_room(&self, body_bytes: u64) -> Room {
        let (body, answer) = (permits(body_bytes), permits(OVERHEAD_BYTES + 2 * STREAM_MAX_BYTES as u64));
        let all = Arc::clone(&self.bytes).acquire_many_owned(body + answer).await;
        let mut all = all.expect("the budget is never closed");
        Room { request: all.split(body as usize), _answer: Some(all) }
    }

    async fn send(&self, peer: &Peer, call: Call<'static>, deadline: Millis, room: Room) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let submission = Submission {
            id: call.id,
            generation: call.deployment_generation,
            needs_ready: call.operation.needs_ready(),
            deadline,
        };
        let id = submission.id;
        let request = Request { submission, asked: call.asked(), call: Some(call), answer, room };
        if !peer.line.join(Box::new(request)) {
            return Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent: false }));
        }
        let waiting = Waiting { line: &peer.line, id, over: false };
        waiting.answer(answered).await
    }
}

/// A caller in line or on the wire; dropping it frees its slot.
struct Waiting<'p> {
    line: &'p Line,
    id: Id,
    over: bool,
}

impl Waiting<'_> {
    async fn answer(mut self, answered: oneshot::Receiver<Outcome>) -> Outcome {
        let outcome = answered.await;
        self.over = true;
        // The task of a connection answers everybody; if it died, nobody knows.
        outcome.unwrap_or(Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent: true })))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.line.cancel(self.id);
        }
    }
}

/// What the transport carries for each kind of node.
fn declared(provider: Provider, method: Method) -> Support {
    let reason = match (provider, method.group()) {
        (_, MethodGroup::Lifecycle | MethodGroup::Observation)
        | (Provider::Microsandbox, MethodGroup::Checkpoint | MethodGroup::Preparation) => return Support::Supported,
        (Provider::Docker | Provider::E2b, MethodGroup::Checkpoint) => "checkpoint_not_supported",
        (Provider::Docker | Provider::E2b, MethodGroup::Preparation) => "preparation_not_supported",
    };
    Support::Unsupported { reason: reason.to_owned() }
}

fn command_of<'o, 'a>(operation: &'o Operation<'a>) -> Option<&'o Command<'a>> {
    match operation {
        Operation::RunCommand(command) | Operation::RunCommandCompute { command, .. } => Some(command),
        _ => None,
    }
}

/// What a command is on the wire, which is more than it is in memory.
fn body_bytes(command: &Command<'_>) -> u64 {
    let args: usize = command.args.iter().map(|argument| argument.len()).sum();
    let stdin = command.stdin.as_ref().map_or(0, |bytes| bytes.len());
    OVERHEAD_BYTES + args as u64 + encoded(stdin as u64)
}

/// Length of the base64 of this many bytes.
const fn encoded(bytes: u64) -> u64 {
    bytes.div_ceil(3) * 4
}

/// Whether the frame stays below its limit even if every byte of an argument needs its longest escape.
fn fits(operation: &Operation<'_>) -> bool {
    let Some(command) = command_of(operation) else { return true };
    let args: usize = command.args.iter().map(|argument| 6 * argument.len() + 3).sum();
    let stdin = command.stdin.as_ref().map_or(0, |bytes| bytes.len().div_ceil(3) * 4);
    args + 6 * command.directory.len() + stdin + 64 * 1024 <= CALL_FRAME_MAX_BYTES
}

pub(super) fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
}
