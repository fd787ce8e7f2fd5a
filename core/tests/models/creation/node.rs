//! The node: its lanes, what its process knows of the creation, and the engine behind it.

use std::collections::VecDeque;

use palisade_core::lifecycle::{CallError, Outcome, Step as Ask};
use palisade_core::operation::{Call, Operation};
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::session::lanes::{Lanes, Step, Ticket, Work};
use palisade_core::units::{Id, Millis};
use palisade_core::wire::payload::{Bootstrap, Info, Reference, Secret};

use super::Broken;
use crate::fixtures::{NOW, generation, id};

const REFERENCE: Reference = Reference { tenant: id(1), environment: id(2), allocation: id(3) };
const BUDGET_MS: u64 = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Node {
    lanes: Lanes,
    /// The create that holds its lane until the engine answers.
    awaited: Option<(Ticket, u8, Id)>,
    creation: Known,
    /// The engine works on a create.
    pub(super) engine: bool,
    /// How often it was asked to create.
    pub(super) asked: u8,
    pub(super) sandboxes: u8,
    running: bool,
    /// How many sandboxes were removed.
    pub(super) removed: u8,
    /// Answers on their way over the connection that asked.
    pub(super) answers: VecDeque<(u8, Outcome<'static>)>,
    connection: Option<Id>,
    overdue: bool,
}

/// What this process knows of the creation (decision 34).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Known {
    /// Never heard of, or its answer was lost.
    #[default]
    Unknown,
    /// Absent at every look since.
    Absent {
        for_five_minutes: bool,
    },
    Running,
    Ended,
}

/// How a create ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Engine {
    Running,
    /// It is there and does not run.
    Stopped,
    Nothing,
}

impl Node {
    pub(super) fn admit(&mut self, connection: u8, request: u8, ask: Ask) {
        let operation = match ask {
            Ask::Create => Operation::Create(Box::new(bootstrap())),
            Ask::Kill => Operation::Kill,
            Ask::Observe { .. }
            | Ask::Verify
            | Ask::Settle
            | Ask::Rest
            | Ask::Wait(_)
            | Ask::Reserve
            | Ask::Dispatch(_)
            | Ask::FailTurn(..)
            | Ask::RequestCleanup
            | Ask::Confirm
            | Ask::Compute(_)
            | Ask::Release => Operation::GetInfo,
        };
        let call = Call {
            id: id(request),
            deployment_generation: generation(1),
            reference: REFERENCE,
            timeout_ms: BUDGET_MS,
            operation,
        };
        self.connection = Some(id(100 + connection));
        let work = Work { origin: id(100 + connection), call, deadline: NOW.after(BUDGET_MS), bytes: 0 };
        self.lanes.admit(work).expect("an owner asks one thing after the other");
    }

    pub(super) fn has_work(&self) -> bool {
        matches!(self.lanes.clone().poll(NOW), Some(Step::Start { .. }))
    }

    pub(super) fn start(&mut self, broken: Option<Broken>) {
        let Some(Step::Start { ticket, call, .. }) = self.lanes.poll(NOW) else { return };
        let request = number(call.id);
        let origin = self.connection.expect("work comes over a connection");
        match call.operation {
            Operation::Create(_) if matches!(self.creation, Known::Running | Known::Ended) => {
                self.finish(ticket, request, Err(failed(Failure::Exists)));
            }
            Operation::Create(_) => {
                self.creation = Known::Running;
                self.asked += 1;
                self.engine = true;
                self.awaited = Some((ticket, request, origin));
            }
            Operation::Kill => {
                self.removed += self.sandboxes;
                self.sandboxes = 0;
                self.finish(ticket, request, Ok(Answer::Done));
            }
            _ => {
                let outcome = self.info(broken);
                self.finish(ticket, request, outcome);
            }
        }
    }

    fn info(&mut self, broken: Option<Broken>) -> Outcome<'static> {
        if self.sandboxes > 0 {
            if matches!(self.creation, Known::Absent { .. }) {
                self.creation = Known::Unknown;
            }
            let state = if self.running { "running" } else { "created" };
            return Ok(Answer::Info(info("native", state, self.running, false)));
        }
        let settled = match self.creation {
            Known::Running => return Err(failed(Failure::NotFound)),
            Known::Ended => true,
            Known::Unknown => {
                self.creation = Known::Absent { for_five_minutes: false };
                broken == Some(Broken::SettledByOneLook)
            }
            Known::Absent { for_five_minutes } => for_five_minutes,
        };
        if settled { Ok(Answer::Info(info("", "absent", false, true))) } else { Err(failed(Failure::NotFound)) }
    }

    /// The engine is done, whether somebody waits for it or not.
    pub(super) fn engine_ends(&mut self, how: Engine) {
        self.engine = false;
        self.sandboxes += u8::from(how != Engine::Nothing);
        self.running = how == Engine::Running;
        let Some((ticket, request, _)) = self.awaited.take() else { return };
        self.creation = Known::Ended;
        let receipt = |provider_id, state| {
            let info = Some(info(provider_id, state, false, true));
            Err(CallError::Failed(Failed { failure: Failure::Unconfirmed, info, state: None }))
        };
        let outcome = match how {
            Engine::Running => Ok(Answer::Info(info("native", "running", true, true))),
            Engine::Stopped => receipt("native", "created"),
            Engine::Nothing => receipt("", "absent"),
        };
        self.finish(ticket, request, outcome);
    }

    /// The engine's answer is lost: the lane is free, and nobody knows.
    pub(super) fn engine_lost(&mut self) {
        let Some((ticket, request, _)) = self.awaited.take() else { return };
        self.creation = Known::Unknown;
        self.finish(ticket, request, Err(failed(Failure::Unconfirmed)));
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    pub(super) fn is_overdue_possible(&self) -> bool {
        self.awaited.is_some() && !self.overdue
    }

    /// The budget is over: the answer is given up, the lane stays busy. What waits behind it expires as well.
    pub(super) fn overdue(&mut self) {
        self.overdue = true;
        while let Some(step) = self.lanes.poll(Millis(NOW.0 + BUDGET_MS)) {
            if let Step::Overdue(origin) | Step::Expired(origin, _) = step {
                self.answer(number(origin.asked.id), origin.connection, Err(failed(Failure::Unconfirmed)));
            }
        }
    }

    fn finish(&mut self, ticket: Ticket, request: u8, outcome: Outcome<'static>) {
        self.overdue = false;
        let finished = self.lanes.finish(ticket).expect("it was started");
        if let Some(origin) = finished.origin {
            self.answer(request, origin.connection, outcome);
        }
    }

    /// Answers, unless the connection that asked is gone.
    fn answer(&mut self, request: u8, connection: Id, outcome: Outcome<'static>) {
        if self.connection == Some(connection) {
            self.answers.push_back((request, outcome));
        }
    }

    pub(super) fn disconnect(&mut self, connection: u8) {
        self.lanes.abandon(id(100 + connection));
        self.answers.clear();
        self.connection = None;
    }

    /// The engine remembers, the process does not.
    pub(super) fn restart(&mut self) {
        let Self { engine, asked, sandboxes, running, removed, .. } = *self;
        *self = Self { engine, asked, sandboxes, running, removed, ..Self::default() };
    }

    /// What the engine was asked for exists by then, or never will.
    pub(super) fn may_wait(&self) -> bool {
        !self.engine && self.creation == Known::Absent { for_five_minutes: false }
    }

    pub(super) fn wait(&mut self) {
        self.creation = Known::Absent { for_five_minutes: true };
    }

    pub(super) fn has_waited(&self) -> bool {
        self.creation == Known::Absent { for_five_minutes: true }
    }
}

fn number(id: Id) -> u8 {
    id.as_bytes()[0]
}

const fn failed(failure: Failure) -> CallError<'static> {
    CallError::Failed(Failed { failure, info: None, state: None })
}

fn info(provider_id: &'static str, state: &'static str, complete: bool, settled: bool) -> Info<'static> {
    Info {
        reference: REFERENCE.into(),
        provider_id: provider_id.into(),
        state: state.into(),
        bootstrap_complete: complete,
        create_settled: settled,
    }
}

fn bootstrap() -> Bootstrap<'static> {
    Bootstrap {
        tenant_id: REFERENCE.tenant.to_string().into(),
        environment_id: REFERENCE.environment.to_string().into(),
        allocation_id: REFERENCE.allocation.to_string().into(),
        session_id: id(4).to_string().into(),
        device_id: id(5).to_string().into(),
        core_url: "https://core.example/api/v1".into(),
        credential: Secret("secret".into()),
        network_access: "disabled".into(),
        allowed_domains: None,
        workspace: None,
    }
}
