//! From a request to its answer: order, generation, lane, readiness, response (wire §3.2, §4.8, §4.9), and the ends of
//! all work that the node asked for.

use super::super::lanes::{Origin, Step, Ticket, Work};
use super::{Action, Ended, Link, Node, Ownership};
use crate::generation::Probed;
use crate::limits::{CALL_FRAME_MAX_BYTES, NODE_BYTES_MAX};
use crate::operation::{Call, Declaration, Support};
use crate::outcome::{self, Answer, Failed, Failure};
use crate::units::{Generation, Id, Millis};
use crate::wire;
use crate::wire::frame::{Frame, Request, Response};
use crate::wire::payload::Diagnostic;

impl Node {
    /// An operation really ended.
    pub fn handle_result(&mut self, now: Millis, ticket: Ticket, outcome: Result<Answer<'static>, Failed<'static>>) {
        if let Some(finished) = self.lanes.finish(ticket) {
            self.table.release(finished.generation);
            if let Some(origin) = finished.origin {
                self.respond(&origin, outcome);
            }
        }
        self.drain(now);
    }

    /// A preparation or repair ended.
    pub fn handle_prepared(&mut self, now: Millis, generation: Generation, outcome: Result<Declaration, Diagnostic>) {
        self.table.handle_prepared(now, generation, outcome);
        self.drain(now);
    }

    /// A probe ended.
    pub fn handle_probed(&mut self, now: Millis, generation: Generation, outcome: Probed) {
        self.table.handle_probed(generation, outcome);
        self.drain(now);
    }

    /// A removal ended; `finished` only when nothing of the generation is left.
    pub fn handle_removed(&mut self, now: Millis, generation: Generation, finished: bool) {
        self.table.handle_removed(generation, finished);
        if let Link::Live(live) = &mut self.link {
            live.exchanges.handle_removed(generation);
        }
        self.drain(now);
    }

    /// Takes a request that is the next one of this connection and epoch.
    pub(super) fn handle_request(&mut self, now: Millis, request: Request<'_>, bytes: u64) -> Result<(), Ended> {
        let Link::Live(live) = &mut self.link else { return Err(Ended::Unexpected) };
        if (request.connection_id, request.owner_epoch) != (live.connection_id, live.owner_epoch) {
            return Err(Ended::Ownership(Ownership::Fencing));
        }
        let (expected, got) = (live.sequence + 1, request.sequence.get());
        if got != expected {
            return Err(Ended::Ownership(Ownership::Sequence { expected, got }));
        }
        live.sequence = got;
        let connection = live.connection_id;
        match Call::accept(request) {
            Ok(call) => self.admit(now, connection, call.into_owned(), bytes),
            Err(rejected) => {
                self.send_response(connection, outcome::refusal(rejected.id, &Failure::Invalid));
                Ok(())
            }
        }
    }

    /// Holds the generation and queues the call, or answers `unconfirmed` when nobody can carry it out.
    fn admit(&mut self, now: Millis, connection: Id, call: Call<'static>, bytes: u64) -> Result<(), Ended> {
        let (generation, deadline) = (call.deployment_generation, now.after(call.timeout_ms));
        if !self.table.acquire(generation) {
            self.respond(&Origin { connection, asked: call.asked() }, Err(Failure::Unconfirmed.into()));
            return Ok(());
        }
        let work = Work { origin: connection, call, deadline, bytes };
        self.lanes.admit(work).inspect_err(|_| self.table.release(generation))?;
        Ok(())
    }

    pub(super) fn handle_step(&mut self, step: Step) {
        match step {
            Step::Expired(origin, generation) => {
                self.table.release(generation);
                self.respond(&origin, Err(Failure::Unconfirmed.into()));
            }
            Step::Overdue(origin) => self.respond(&origin, Err(outcome::unknown(origin.asked.method).into())),
            Step::Start { ticket, call, deadline } => match self.obstacle(&call) {
                None => self.actions.push_back(Action::Execute { ticket, call: Box::new(call), deadline }),
                Some(failure) => {
                    let finished = self.lanes.finish(ticket).expect("started just now");
                    self.table.release(finished.generation);
                    let origin = finished.origin.expect("started just now");
                    self.respond(&origin, Err(failure.into()));
                }
            },
        }
    }

    /// What forbids the execution now: readiness is judged here, not at admission (wire §3.2).
    fn obstacle(&self, call: &Call<'static>) -> Option<Failure> {
        let generation = call.deployment_generation;
        let method = call.operation.method();
        if call.operation.needs_ready() && !self.table.is_ready(generation) {
            return Some(Failure::Unconfirmed);
        }
        match self.table.declaration(generation).map(|declaration| declaration.support(method)) {
            Some(Support::Supported) => None,
            Some(Support::Unsupported { reason }) => {
                Some(Failure::Unsupported { method: method.name().to_owned(), reason: reason.clone() })
            }
            None => Some(Failure::Unconfirmed),
        }
    }

    /// Answers, unless the connection that asked is gone.
    pub(super) fn respond(&mut self, origin: &Origin, outcome: Result<Answer<'static>, Failed<'static>>) {
        if self.live().is_some_and(|(connection_id, _)| connection_id == origin.connection) {
            self.send(outcome::respond(origin.connection, &origin.asked, outcome));
        }
    }

    pub(super) fn send_response(&mut self, connection: Id, response: Response<'_>) {
        let response = Response { connection_id: Some(connection), ..response };
        let message = wire::encode(&Frame::Response(Box::new(response)));
        self.send(message.expect("a checked outcome and an echoed identifier encode"));
    }

    pub(super) fn send_control(&mut self, frame: &Frame<'_>) -> Result<(), Ended> {
        let message = wire::encode(frame).map_err(Ended::Unencodable)?;
        self.send(message);
        Ok(())
    }

    fn send(&mut self, message: Vec<u8>) {
        self.unsent += message.len() as u64;
        self.actions.push_back(Action::Send(message));
    }

    /// Reading stops while another message would not fit; silence counts from the moment it goes on.
    pub(super) fn update_pause(&mut self, now: Millis) {
        let room = NODE_BYTES_MAX.saturating_sub(self.lanes.bytes() + self.unsent);
        let paused = room < CALL_FRAME_MAX_BYTES as u64;
        if std::mem::replace(&mut self.paused, paused) && !paused {
            self.handle_fragment(now);
        }
    }
}
