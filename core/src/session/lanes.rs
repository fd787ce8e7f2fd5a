//! The lanes of a node: one per allocation, outliving every connection (decision 8).
//!
//! - Operations of one allocation run strictly in the order of their arrival; different allocations run side by side.
//! - At most [`EXECUTING_MAX`] execute and [`WAITING_MAX`] wait.
//! - Never does an operation start after its budget, or after its connection ended.
//! - A lane stays busy until the provider really ended, even when the answer was given up earlier (decision 34).

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{EXECUTING_MAX, WAITING_MAX};
use crate::operation::{Call, Method, Operation};
use crate::units::{Generation, Id, Millis};
use crate::wire::payload::{Compute, Reference};

/// Names one execution for as long as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// An admitted operation.
#[derive(Debug)]
pub struct Work {
    /// The connection that asked.
    pub origin: Id,
    /// What to do.
    pub call: Call<'static>,
    /// End of the budget on this node's clock.
    pub deadline: Millis,
    /// What it occupies of the node's byte budget.
    pub bytes: u64,
}

/// Where an answer belongs, and what it is judged by when the arguments are gone.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The connection that asked.
    pub connection: Id,
    /// The request's identifier.
    pub id: Id,
    /// What was asked.
    pub method: Method,
    /// Of which sandbox.
    pub reference: Reference,
    /// The incarnation that a resume was to create.
    pub target: Option<Compute<'static>>,
}

impl Asked {
    fn of(connection: Id, call: &Call<'static>) -> Self {
        let target = match &call.operation {
            Operation::Resume(resume) => Some(resume.target.clone()),
            _ => None,
        };
        Self { connection, id: call.id, method: call.operation.method(), reference: call.reference, target }
    }
}

/// All 32 waiting places are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{WAITING_MAX} operations wait already")]
pub struct Full;

/// What the lanes want done next.
#[derive(Debug)]
pub enum Step {
    /// The budget was used up in the queue; never executed. The generation is held no more.
    Expired(Asked, Generation),
    /// The budget of an executing operation ended: answer now, but its lane stays busy.
    Overdue(Asked),
    /// The operation occupies its lane from here on; end it with [`Lanes::finish`].
    Start {
        /// Its name.
        ticket: Ticket,
        /// What to do.
        call: Call<'static>,
        /// End of its budget.
        deadline: Millis,
    },
}

/// An execution that ended.
#[derive(Debug)]
pub struct Finished {
    /// Which generation carried it out.
    pub generation: Generation,
    /// Where the answer belongs; `None` when it was given up at the deadline.
    pub asked: Option<Asked>,
}

#[derive(Debug)]
struct Running {
    allocation: Id,
    generation: Generation,
    deadline: Millis,
    bytes: u64,
    asked: Option<Asked>,
}

/// All lanes of one node.
#[derive(Debug, Default)]
pub struct Lanes {
    waiting: VecDeque<Work>,
    running: BTreeMap<Ticket, Running>,
    next: u64,
    bytes: u64,
}

impl Lanes {
    /// Takes an operation in.
    ///
    /// # Errors
    /// It would have to wait, and all places are taken.
    pub fn admit(&mut self, work: Work) -> Result<(), Full> {
        let lane = work.call.reference.allocation;
        let starts = self.running.len() < EXECUTING_MAX
            && !self.is_busy(lane)
            && !self.waiting.iter().any(|earlier| earlier.call.reference.allocation == lane);
        if !starts && self.waiting.len() >= WAITING_MAX {
            return Err(Full);
        }
        self.bytes += work.bytes;
        self.waiting.push_back(work);
        Ok(())
    }

    /// The next thing to do at `now`.
    pub fn poll(&mut self, now: Millis) -> Option<Step> {
        self.poll_expired(now).or_else(|| self.poll_overdue(now)).or_else(|| self.poll_start())
    }

    fn poll_expired(&mut self, now: Millis) -> Option<Step> {
        let at = self.waiting.iter().position(|work| work.deadline <= now)?;
        let work = self.waiting.remove(at).expect("found above");
        self.bytes -= work.bytes;
        Some(Step::Expired(Asked::of(work.origin, &work.call), work.call.deployment_generation))
    }

    fn poll_overdue(&mut self, now: Millis) -> Option<Step> {
        let mut running = self.running.values_mut();
        running.find_map(|running| running.asked.take_if(|_| running.deadline <= now)).map(Step::Overdue)
    }

    /// The oldest operation whose lane is free, while there is room to execute.
    fn poll_start(&mut self) -> Option<Step> {
        if self.running.len() >= EXECUTING_MAX {
            return None;
        }
        let at = self.waiting.iter().position(|work| !self.is_busy(work.call.reference.allocation))?;
        let Work { origin, call, deadline, bytes } = self.waiting.remove(at).expect("found above");
        let ticket = Ticket(self.next);
        self.next += 1;
        let running = Running {
            allocation: call.reference.allocation,
            generation: call.deployment_generation,
            deadline,
            bytes,
            asked: Some(Asked::of(origin, &call)),
        };
        self.running.insert(ticket, running);
        Some(Step::Start { ticket, call, deadline })
    }

    /// The provider really ended; its lane is free again. `None` for a ticket that ended before.
    pub fn finish(&mut self, ticket: Ticket) -> Option<Finished> {
        let Running { generation, asked, bytes, .. } = self.running.remove(&ticket)?;
        self.bytes -= bytes;
        Some(Finished { generation, asked })
    }

    /// The connection ended: what it queued never runs. Gives back the generations that were held for it.
    pub fn abandon(&mut self, connection: Id) -> Vec<Generation> {
        let (dead, alive) = self.waiting.drain(..).partition(|work| work.origin == connection);
        self.waiting = alive;
        let dead: VecDeque<Work> = dead;
        self.bytes -= dead.iter().map(|work| work.bytes).sum::<u64>();
        dead.iter().map(|work| work.call.deployment_generation).collect()
    }

    /// Operations that execute now, 0 … 32.
    #[must_use]
    pub fn executing(&self) -> u32 {
        u32::try_from(self.running.len()).expect("at most 32 execute")
    }

    /// Bytes of the byte budget that are in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last deadline of what executes; after it nobody waits for an answer.
    #[must_use]
    pub fn last_deadline(&self) -> Option<Millis> {
        self.running.values().filter(|running| running.asked.is_some()).map(|running| running.deadline).max()
    }

    /// When the next budget ends.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        let executing = self.running.values().filter(|running| running.asked.is_some());
        self.waiting.iter().map(|work| work.deadline).chain(executing.map(|running| running.deadline)).min()
    }

    fn is_busy(&self, allocation: Id) -> bool {
        self.running.values().any(|running| running.allocation == allocation)
    }
}
