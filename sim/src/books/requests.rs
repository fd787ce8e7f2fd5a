//! Requests and operations: who asked what, what ran, and what its caller was told.

use std::collections::BTreeMap;

use palisade_core::lifecycle::{CallError, Outcome};
use palisade_core::outcome::{Answer, Failed};
use palisade_core::session::hub::Uncertain;
use palisade_core::units::Id;

use super::Books;
use super::frame::{Duty, Frame};
use crate::coverage::names::failure;
use crate::world::store::Store;

/// Everything about requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Written by Core, by identifier.
    sent: BTreeMap<String, Sent>,
    /// The answer that Core read first; `None` is a success.
    answers: BTreeMap<String, Option<String>>,
    /// How often a create of each allocation, and a command of each Turn, was written.
    creates: BTreeMap<String, u32>,
    commands: BTreeMap<String, u32>,
    /// The same of each suspend and resume that was to have an effect.
    moves: BTreeMap<String, u32>,
    /// How often the provider began each request.
    executed: BTreeMap<String, u32>,
    /// Requests that came while 32 were waiting.
    pub(super) full: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Sent {
    operation: String,
    allocation: String,
}

/// A request as a node read it.
#[derive(Debug)]
pub(super) struct Received {
    link: usize,
    epoch: u64,
    /// End of the budget on the node's clock.
    pub(super) deadline: u64,
    turn: Option<String>,
}

impl Books {
    /// Promise 4, on the wire: one create for an allocation, one command for a Turn.
    pub(super) fn request_sent(&mut self, id: &str, frame: &Frame) {
        let operation = frame.text(&["request", "operation"]).to_owned();
        let repeated = match operation.as_str() {
            "create" => {
                let allocation = frame.text(&["request", "reference", "AllocationID"]).to_owned();
                count(&mut self.requests.creates, allocation)
            }
            "command" | "command_compute" => count(&mut self.requests.commands, turn(frame).unwrap_or_default()),
            "suspend" | "resume" if frame.at(&["request", &operation, "ObserveOnly"]) == false => {
                let moved = frame.text(&["request", &operation, "OperationID"]).to_owned();
                count(&mut self.requests.moves, moved)
            }
            _ => 1,
        };
        let allocation = frame.text(&["request", "reference", "AllocationID"]).to_owned();
        let full = self.requests.full.contains_key(id);
        self.require(repeated == 1, "promise 4", || format!("a {operation} was sent {repeated} times"));
        self.require(!full, "promise 9", || format!("a 33rd request was sent: {operation}"));
        let again = self.requests.sent.insert(id.to_owned(), Sent { operation, allocation });
        self.require(again.is_none(), "promise 4", || format!("request {id} was sent twice"));
    }

    /// What a node owes for a request, and what it may execute because of it.
    pub(super) fn node_reads_request(&mut self, host: usize, link: usize, frame: &Frame, now: u64, _: &Store) -> Duty {
        let book = self.link(link);
        let (expected, got) = (book.read + 1, frame.number(&["request", "sequence"]));
        let own = frame.text(&["request", "connection_id"]) == book.told.0
            && frame.number(&["request", "owner_epoch"]) == book.told.1;
        if !own {
            return Duty::Close("a request of another connection or epoch");
        }
        if got != expected {
            return Duty::Close("a request out of sequence");
        }
        book.read = got;
        let id = frame.text(&["request", "id"]).to_owned();
        let budget = frame.number(&["request", "timeout_ms"]);
        let received = Received {
            link,
            epoch: frame.number(&["request", "owner_epoch"]),
            deadline: now + budget,
            turn: turn(frame),
        };
        self.host(host).received.insert(id, received);
        if frame.text(&["request", "operation"]) == "nonsense" {
            return Duty::Keep("a request that is only invalid");
        }
        Duty::None
    }

    /// The provider begins.
    pub(crate) fn executing(&mut self, host: usize, id: &str, operation: &str, generation: u64, now: u64) {
        let times = count(&mut self.requests.executed, id.to_owned());
        let place = self.host(host);
        place.running.insert(id.to_owned(), generation);
        let (known, removing) = (place.known_epoch, place.removing);
        let facts = place.received.get(id).map(|received| (received.link, received.epoch, received.deadline));
        let Some((link, epoch, deadline)) = facts else {
            return self.fail("promise 3", format!("host {host} executes {operation} {id}, which it never accepted"));
        };
        let closed = self.link(link).node_closed;
        self.require(times == 1, "promise 4", || format!("host {host} executes {operation} {id} {times} times"));
        self.require(epoch >= known, "promise 2", || {
            format!("host {host} executes {operation} of epoch {epoch}, but has seen {known}")
        });
        self.require(now < deadline, "promise 8", || {
            format!("host {host} starts {operation} {} ms after its budget", now.saturating_sub(deadline))
        });
        self.require(!closed, "promise 4", || format!("host {host} starts {operation} of a connection that is closed"));
        self.require(removing != Some(generation), "promise 7", || {
            format!("host {host} starts {operation} on generation {generation}, which is being removed")
        });
    }

    /// The provider ended.
    pub(crate) fn executed(&mut self, host: usize, id: &str, answer: &Result<Answer<'static>, Failed<'static>>) {
        let place = self.host(host);
        place.running.remove(id);
        let turn = place.received.get(id).and_then(|received| received.turn.clone());
        if let (Some(turn), Err(failed)) = (turn, answer) {
            self.clients.refused.insert(turn, failure(&failed.failure));
        }
    }

    /// An operation whose node is gone ended without anybody to tell.
    pub(crate) fn operation_gone(&mut self, host: usize, id: &str) {
        self.host(host).running.remove(id);
    }

    /// The first answer that Core read.
    pub(super) fn response_read(&mut self, id: &str, frame: &Frame) {
        let code = frame.at(&["response", "error_code"]).as_str().map(str::to_owned);
        let definite = matches!(code.as_deref(), Some("checkpoint_unusable" | "invalid" | "ownership" | "unsupported"));
        let resumed = self.requests.sent.get(id).filter(|sent| definite && sent.operation == "resume");
        self.clients.unusable.extend(resumed.and_then(|sent| Id::parse(&sent.allocation).ok()));
        self.requests.answers.entry(id.to_owned()).or_insert(code);
    }

    /// What a caller was told agrees with what was sent and answered.
    pub(crate) fn told(&mut self, id: Id, operation: &str, outcome: &Outcome<'_>) {
        let id = id.to_string();
        let sent = self.requests.sent.get(&id).map(|sent| sent.operation.as_str());
        let answer = self.requests.answers.get(&id);
        let full = self.requests.full.remove(&id).is_some();
        let text = match (outcome, sent, answer) {
            (Ok(_), Some(_), Some(None))
            | (Err(CallError::Uncertain(Uncertain { sent: false, .. })), None, _)
            | (Err(CallError::Uncertain(Uncertain { sent: true, .. })), Some(_), _)
            | (Err(CallError::Refused(_)), ..) => None,
            (Ok(_), ..) => Some("success without one".to_owned()),
            (Err(CallError::Uncertain(Uncertain { sent: false, .. })), Some(_), _) => {
                Some("nothing sent, but it was".to_owned())
            }
            (Err(CallError::Uncertain(Uncertain { sent: true, .. })), None, _) => {
                Some("perhaps sent, but it was not".to_owned())
            }
            (Err(CallError::Failed(failed)), Some(_), Some(code)) => {
                let told = failure(&failed.failure);
                let allowed = allowed(operation, code.as_deref());
                (!allowed.contains(&told)).then(|| format!("{told}, but the answer was {code:?}"))
            }
            (Err(CallError::Failed(_)), ..) => Some("a failure that nobody answered".to_owned()),
        };
        if let Some(text) = text {
            self.fail("promise 12", format!("the caller of {operation} {id} was told: {text}"));
        }
        let refused = matches!(outcome, Err(CallError::Uncertain(Uncertain { sent: false, .. })));
        self.require(!full || refused, "promise 9", || format!("a 33rd request was not refused: {operation} {id}"));
    }

    /// Its caller is gone with its Core.
    pub(crate) fn forgotten(&mut self, id: Id) {
        self.requests.full.remove(&id.to_string());
    }
}

/// What a caller may be told of a code (wire §6.2, in the books' own words).
fn allowed(operation: &str, code: Option<&str>) -> &'static [&'static str] {
    match (operation, code) {
        (_, Some("unsupported")) => &["unsupported"],
        (_, Some("invalid")) => &["invalid"],
        (_, Some("ownership")) => &["ownership"],
        (_, Some("exists")) => &["exists"],
        (_, Some("not_found")) => &["not_found"],
        (_, Some("runtime_not_running")) => &["runtime_not_running"],
        (_, Some("command_unconfirmed")) => &["command_unconfirmed"],
        ("observe", _) | (_, Some("observation_unavailable")) => &["observation_unavailable"],
        ("command" | "command_compute", _) => &["unconfirmed", "command_unconfirmed"],
        ("resume", Some("checkpoint_unusable")) => &["checkpoint_unusable"],
        (_, _) => &["unconfirmed"],
    }
}

fn turn(frame: &Frame) -> Option<String> {
    let args = frame.at(&["request", "command", "Args"]).as_array()?;
    args.last()?.as_str().map(str::to_owned)
}

fn count(counts: &mut BTreeMap<String, u32>, of: String) -> u32 {
    let count = counts.entry(of).or_default();
    *count += 1;
    *count
}
