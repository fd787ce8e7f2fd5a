//! The owner loop: the one place that changes lifecycles.
//!
//! # Invariants
//!
//! - What happens next is decided by [`palisade_core::lifecycle`] from durable facts; nothing here remembers more than
//!   when to ask again. After a restart the facts alone continue, and nothing is sent a second time.
//! - One task for each environment with something to do. Turns of different Sessions run side by side, also on one
//!   node; those of one Session run in order.
//! - Every write proves the owner's epoch in its own transaction.

mod clock;
mod compute;
mod environment;
mod reset;
mod waiting;

pub use reset::Resetting;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use palisade_core::units::Id;
use tokio::sync::watch;
use tokio::task::{self, JoinSet};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::Core;
use crate::execution::Lease;
use crate::store::Result;

/// How often the owner looks for work that nobody told it about.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);

/// Drives every lifecycle while this process holds the execution lease, until `stop`.
pub async fn run(core: Core, stop: CancellationToken) {
    let execution = core.execution().clone();
    let mut lease = execution.lease();
    loop {
        let seen = lease;
        let next = async {
            match seen {
                Some(held) => tokio::select! {
                    lease = execution.changed(seen) => lease,
                    () = Owner::new(core.clone(), held).work() => None,
                },
                None => execution.changed(seen).await,
            }
        };
        match stop.run_until_cancelled(next).await {
            Some(changed) => lease = changed,
            None => return,
        }
    }
}

/// What one lease makes of the environments.
struct Owner {
    core: Core,
    lease: Lease,
    tasks: Tasks,
    clock: clock::Clock,
    news: watch::Sender<u64>,
}

impl Owner {
    fn new(core: Core, lease: Lease) -> Self {
        let (tasks, clock) = (Tasks::default(), clock::Clock::default());
        Self { core, lease, tasks, clock, news: watch::Sender::new(0) }
    }

    async fn work(self) {
        let reset = reset::drive(self.core.clone(), self.lease, self.news.subscribe());
        tokio::join!(reset, self.drive());
    }

    async fn drive(mut self) {
        let mut nodes = self.core.hub().changes();
        let mut ticks = interval(SCAN_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let core = self.core.clone();
            tokio::select! {
                () = core.owner_woken() => self.tell(),
                () = changed(&mut nodes) => self.tell(),
                _ = ticks.tick() => {}
                Some(seen) = self.tasks.ended() => {
                    let missed_news = seen.is_some_and(|seen| seen != *self.news.borrow());
                    if !missed_news {
                        continue;
                    }
                }
            }
            self.scan().await;
        }
    }

    fn tell(&self) {
        self.news.send_modify(|version| *version += 1);
    }

    async fn scan(&mut self) {
        let unfinished = match self.unfinished().await {
            Ok(unfinished) => unfinished,
            Err(error) => return tracing::warn!(%error, "cannot look for work"),
        };
        for environment in unfinished {
            self.tasks.start(environment, || {
                let (core, news) = (self.core.clone(), self.news.subscribe());
                environment::Task::new(core, self.lease, self.clock.clone(), environment, news).run()
            });
        }
    }

    async fn unfinished(&self) -> Result<Vec<Id>> {
        let mut unfinished = self.core.store().unfinished_environments().await?;
        let (retained, read_at) = self.core.store().retained().await?;
        unfinished.extend(self.clock.all_expired(&retained, read_at));
        Ok(unfinished)
    }
}

/// At most one task for each environment; a task ends with the last news it has seen.
#[derive(Default)]
struct Tasks {
    set: JoinSet<u64>,
    of: HashMap<task::Id, Id>,
    busy: BTreeSet<Id>,
}

impl Tasks {
    fn start<T: Future<Output = u64> + Send + 'static>(&mut self, environment: Id, work: impl FnOnce() -> T) {
        if self.busy.insert(environment) {
            let task = self.set.spawn(work());
            self.of.insert(task.id(), environment);
        }
    }

    /// The next end of a task: the news it had seen, or `None` when it ended abnormally. Its environment is then left to
    /// the next scan, and the work on the others goes on.
    async fn ended(&mut self) -> Option<Option<u64>> {
        let (task, seen) = match self.set.join_next_with_id().await? {
            Ok((task, seen)) => (task, Some(seen)),
            Err(error) => {
                tracing::error!(%error, "work on an environment ended abnormally");
                (error.id(), None)
            }
        };
        if let Some(environment) = self.of.remove(&task) {
            self.busy.remove(&environment);
        }
        Some(seen)
    }
}

async fn changed(nodes: &mut Option<watch::Receiver<u64>>) {
    let gone = match nodes {
        Some(version) => version.changed().await.is_err(),
        None => true,
    };
    if gone {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKEN: Id = Id::from_random([1; 16]);
    const OTHER: Id = Id::from_random([2; 16]);

    /// Work that breaks down neither ends the work on another environment nor blocks its own for ever.
    #[tokio::test]
    async fn a_broken_task_frees_its_environment_and_leaves_the_others_alone() {
        let mut tasks = Tasks::default();
        let (finish, finished) = tokio::sync::oneshot::channel();
        tasks.start(OTHER, || async { finished.await.unwrap() });
        tasks.start(BROKEN, || async { panic!("a defect") });
        assert_eq!(tasks.ended().await, Some(None));
        tasks.start(OTHER, || async { panic!("is busy already") });
        finish.send(7).unwrap();
        assert_eq!(tasks.ended().await, Some(Some(7)));
        tasks.start(BROKEN, || async { 8 });
        assert_eq!(tasks.ended().await, Some(Some(8)));
    }
}
