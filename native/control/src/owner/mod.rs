//! The owner loop: the one place that changes lifecycles.
//!
//! # Invariants
//!
//! - What happens next is decided by [`palisade_core::lifecycle`] from durable facts; nothing here remembers more than
//!   when to ask again. After a restart the facts alone continue, and nothing is sent a second time.
//! - One task for each environment with something to do. Turns of different Sessions run side by side, also on one
//!   node; those of one Session run in order.
//! - Every write proves the owner's epoch in its own transaction.

mod environment;

use std::collections::BTreeSet;
use std::time::Duration;

use palisade_core::units::Id;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::Core;
use crate::execution::Lease;

/// How often the owner looks for work that nobody told it about.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);

/// Drives every lifecycle while this process holds the execution lease, until `stop`.
pub async fn run(core: Core, stop: CancellationToken) {
    let mut execution = core.execution().clone();
    let mut lease = execution.lease();
    loop {
        let seen = lease;
        let next = async {
            match seen {
                Some(held) => tokio::select! {
                    lease = execution.changed(seen) => lease,
                    () = Owner::new(core.clone(), held).drive() => None,
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

/// The environments that are being worked on under one lease.
struct Owner {
    core: Core,
    lease: Lease,
    tasks: JoinSet<Ended>,
    busy: BTreeSet<Id>,
    news: watch::Sender<u64>,
}

/// A task that found nothing more to do, and the last news it had seen.
struct Ended {
    environment: Id,
    seen: u64,
}

impl Owner {
    fn new(core: Core, lease: Lease) -> Self {
        Self { core, lease, tasks: JoinSet::new(), busy: BTreeSet::new(), news: watch::Sender::new(0) }
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
                Some(ended) = self.tasks.join_next() => {
                    if !self.forget(ended) {
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

    /// Whether something happened that the ended task has not seen.
    fn forget(&mut self, ended: Result<Ended, tokio::task::JoinError>) -> bool {
        match ended {
            Ok(ended) => {
                self.busy.remove(&ended.environment);
                ended.seen != *self.news.borrow()
            }
            Err(error) => {
                // The task is gone, and with it which environment it was for: all are looked at again.
                tracing::error!(%error, "work on an environment ended abnormally");
                self.tasks = JoinSet::new();
                self.busy.clear();
                true
            }
        }
    }

    async fn scan(&mut self) {
        let unfinished = match self.core.store().unfinished_environments().await {
            Ok(unfinished) => unfinished,
            Err(error) => return tracing::warn!(%error, "cannot look for work"),
        };
        for environment in unfinished {
            if self.busy.insert(environment) {
                let news = self.news.subscribe();
                let task = environment::Task::new(self.core.clone(), self.lease, environment, news);
                self.tasks.spawn(async move { Ended { environment, seen: task.run().await } });
            }
        }
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
