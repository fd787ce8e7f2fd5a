//! One process that owns, or owned, the environment: its lifecycle and what it is in the middle of.

use palisade_core::lifecycle::{CallError, Change, Facts, Lifecycle, Outcome, Step};
use palisade_core::session::hub::{Cause, Uncertain};

use super::Broken;
use super::store::Store;
use crate::fixtures::NOW;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) epoch: u64,
    lifecycle: Lifecycle,
    pub(super) doing: Doing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    Nothing,
    /// A transaction follows, and then perhaps a call.
    Recording(Step),
    /// A call follows.
    Calling(Step),
    /// The call was written.
    UnderWay {
        request: u8,
        step: Step,
    },
    /// The node has the call.
    Waiting {
        request: u8,
        step: Step,
    },
    /// These changes follow, of a call.
    Concluding(Vec<Change>),
    /// Another process is the owner; this one writes nothing any more.
    Over,
}

impl Owner {
    pub(super) fn new(epoch: u64) -> Self {
        Self { epoch, lifecycle: Lifecycle::default(), doing: Doing::Nothing }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.doing == Doing::Nothing
    }

    pub(super) const fn writes(&self) -> bool {
        matches!(self.doing, Doing::Recording(_) | Doing::Concluding(_))
    }

    pub(super) const fn is_under_way(&self) -> bool {
        matches!(self.doing, Doing::UnderWay { .. })
    }

    pub(super) fn waits_for_create(&self) -> bool {
        matches!(self.doing, Doing::Waiting { step: Step::Create, .. })
    }

    /// Whether this call has left the lifecycle.
    pub(super) fn has_handed(&self, wanted: Step) -> bool {
        match self.doing {
            Doing::UnderWay { step, .. } | Doing::Waiting { step, .. } => step == wanted,
            Doing::Nothing | Doing::Recording(_) | Doing::Calling(_) | Doing::Concluding(_) | Doing::Over => false,
        }
    }

    /// Time passes freely: whatever the lifecycle waits for has come.
    pub(super) fn decide(&mut self, facts: &Facts, broken: Option<Broken>) {
        self.lifecycle.handle_hint();
        self.doing = match self.lifecycle.step(facts, NOW) {
            Step::Create if broken == Some(Broken::RecordedLate) => Doing::Calling(Step::Create),
            step @ (Step::Reserve | Step::Create | Step::RequestCleanup | Step::Release) => Doing::Recording(step),
            step @ (Step::Observe { .. } | Step::Verify | Step::Kill | Step::Settle) => Doing::Calling(step),
            Step::Rest | Step::Wait(_) | Step::Confirm | Step::Compute(_) | Step::Dispatch(_) | Step::FailTurn(..) => {
                Doing::Nothing
            }
        };
    }

    /// Commits what follows. `true` when an attempt was taken back.
    pub(super) fn write(&mut self, store: &mut Store) -> bool {
        match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Recording(Step::Create) => {
                if store.record_attempt() {
                    self.doing = Doing::Calling(Step::Create);
                }
            }
            Doing::Recording(Step::Reserve) => store.reserve(),
            Doing::Recording(Step::RequestCleanup) => store.change(Change::CleanupRequested),
            Doing::Recording(Step::Release) => store.change(Change::Released),
            Doing::Concluding(changes) => {
                for change in &changes {
                    store.change(*change);
                }
                return changes.contains(&Change::AttemptCleared);
            }
            doing => self.doing = doing,
        }
        false
    }

    /// The hub takes the call, or says that it sent nothing.
    pub(super) fn call(&mut self, request: Option<u8>) {
        let Doing::Calling(step) = self.doing else { return };
        match request {
            Some(request) => self.doing = Doing::UnderWay { request, step },
            None => self.finish(step, &uncertain(false)),
        }
    }

    /// The request reaches the node.
    pub(super) fn arrive(&mut self) -> Option<(u8, Step)> {
        let Doing::UnderWay { request, step } = self.doing else { return None };
        self.doing = Doing::Waiting { request, step };
        Some((request, step))
    }

    /// An answer to `request`; `None` stands for the end of the connection.
    pub(super) fn conclude(&mut self, request: Option<u8>, outcome: &Outcome<'static>, broken: Option<Broken>) {
        let (Doing::UnderWay { request: waited, step } | Doing::Waiting { request: waited, step }) = self.doing else {
            return;
        };
        if request.is_some_and(|request| request != waited) {
            return;
        }
        if step == Step::Create && request.is_none() && broken == Some(Broken::Replayed) {
            return self.finish(step, &uncertain(false));
        }
        self.finish(step, outcome);
    }

    pub(super) fn lose(&mut self, broken: Option<Broken>) {
        self.conclude(None, &uncertain(true), broken);
    }

    fn finish(&mut self, step: Step, outcome: &Outcome<'static>) {
        let changes = self.lifecycle.conclude(NOW, step, outcome);
        self.doing = if changes.is_empty() { Doing::Nothing } else { Doing::Concluding(changes) };
    }
}

const fn uncertain(sent: bool) -> Outcome<'static> {
    Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent }))
}
