//! The owner's part of a reset: archive what may be archived, and end when nothing is held (deployment §4.2).
//!
//! Every step is one transaction that proves the lease and the identity of the reset, so that a crash between any two
//! continues where the rows are.

use std::time::Duration;

use palisade_core::admin::deployment::Held;
use palisade_core::admin::time::Timestamp;
use palisade_core::deployment::reset::{self, Audit, Completed, Identity, Incomplete};
use palisade_core::deployment::{Deployment, Reset};
use palisade_core::hosted::archive::archive;
use palisade_core::lifecycle::Deadlines;
use palisade_core::limits::RESET_PAGE_MAX;
use palisade_core::units::{Id, Millis};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::Core;
use crate::execution::Lease;
use crate::limits::{RESET_INTERVAL, RESET_PASS_MAX};
use crate::store::reset::Candidate;
use crate::store::{Result, StoreError, Tx};

/// Works on resets while this lease is held.
pub(super) async fn drive(core: Core, lease: Lease, mut news: watch::Receiver<u64>) {
    let mut reset = Resetting::new(core, lease);
    loop {
        let pause = match reset.pass().await {
            Ok(true) => RESET_INTERVAL,
            // When it is fenced off, another owner goes on with it.
            Ok(false) | Err(StoreError::Fenced) => super::SCAN_INTERVAL,
            Err(error) => {
                tracing::warn!(%error, "the reset of the deployment is interrupted; it is tried again");
                RESET_INTERVAL
            }
        };
        wait(&mut news, pause).await;
    }
}

async fn wait(news: &mut watch::Receiver<u64>, pause: Duration) {
    tokio::select! {
        () = sleep(pause) => {}
        Ok(()) = news.changed() => {}
    }
}

/// The work on resets under one lease. What is remembered between two passes only saves looking at some sessions again.
pub struct Resetting {
    core: Core,
    lease: Lease,
    cursor: Option<(Identity, Id)>,
    deadlines: Deadlines<Timestamp>,
    started: Instant,
}

/// The end of a reset, up to its commit.
struct Ending {
    tx: Tx,
    completed: Completed,
    nodes: Vec<Id>,
}

impl Resetting {
    /// Nothing is done before the first pass.
    #[must_use]
    pub fn new(core: Core, lease: Lease) -> Self {
        Self { core, lease, cursor: None, deadlines: Deadlines::default(), started: Instant::now() }
    }

    /// One pass. `true`: a reset is under way. Whatever it meets, it ends after a while: what it did not come to is done by
    /// the next one, and until the last commit the selection is what it was.
    pub async fn pass(&mut self) -> Result<bool> {
        let worked = timeout(RESET_PASS_MAX, self.work()).await;
        let Ok(worked) = worked else {
            tracing::warn!("a pass of the reset took too long; the next one goes on with it");
            return Ok(true);
        };
        match worked? {
            Pass::Idle => Ok(false),
            Pass::Remaining => Ok(true),
            Pass::Ended(ending) => {
                self.finish(*ending).await;
                Ok(false)
            }
        }
    }

    async fn work(&mut self) -> Result<Pass> {
        let Some(of) = self.escalate().await? else {
            self.cursor = None;
            return Ok(Pass::Idle);
        };
        self.archive_page(of).await?;
        let ending = self.complete(of).await?;
        Ok(ending.map_or(Pass::Remaining, |ending| Pass::Ended(Box::new(ending))))
    }

    /// Makes the deadline take effect, and names the reset under way.
    async fn escalate(&mut self) -> Result<Option<Identity>> {
        let mut tx = self.core.store().read().await?;
        let deployment = tx.deployment().await?;
        let Some(reset) = deployment.reset else { return Ok(None) };
        let seen = tx.now().await?;
        drop(tx);
        if !self.is_overdue(reset, seen) {
            return Ok(Identity::of(&deployment));
        }
        let mut tx = self.core.store().write().await?;
        let deployment = tx.fence(self.lease.epoch).await?;
        // Compared under the lock: what was cancelled, forced or started anew meanwhile is another reset.
        if deployment.reset == Some(reset) {
            let now = tx.now().await?;
            tx.escalate_reset(reset::escalated(reset, now)).await?;
            let source = tx.reset_source().await?;
            tx.audit(Audit::Deadline.action(), "sandbox_deployment", self.lease.installation, None, &source).await?;
            tx.commit().await?;
            tracing::info!("the deadline of the reset has passed: busy sessions are archived as well");
        }
        Ok(Identity::of(&deployment))
    }

    fn is_overdue(&mut self, reset: Reset, seen: Timestamp) -> bool {
        let now = Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.deadlines.retain(|of| *of == reset.requested_at);
        let deadline = reset::deadline_of(reset);
        deadline.is_some_and(|deadline| self.deadlines.passed(reset.requested_at, deadline, seen, now))
    }

    /// Archives the next sessions. One that cannot be archived now is met again on a later round.
    async fn archive_page(&mut self, of: Identity) -> Result<()> {
        let cursor = self.cursor.filter(|(known, _)| *known == of).map(|(_, session)| session);
        let candidates = self.core.store().read().await?.reset_candidates(cursor).await?;
        for candidate in &candidates {
            if let Err(error) = self.archive(of, *candidate).await {
                tracing::warn!(session = %candidate.session, %error, "a session could not be archived by the reset");
            }
            self.cursor = Some((of, candidate.session));
        }
        if candidates.len() < RESET_PAGE_MAX {
            self.cursor = None;
        }
        Ok(())
    }

    async fn archive(&self, of: Identity, candidate: Candidate) -> Result<()> {
        let Candidate { session, project } = candidate;
        let mut tx = self.core.store().write().await?;
        tx.lock_session(session).await?;
        let deployment = tx.fence(self.lease.epoch).await?;
        let Some(busy) = tx.is_busy(session).await? else { return Ok(()) };
        match reset::candidate(of, &deployment, busy) {
            reset::Candidate::Superseded | reset::Candidate::Busy => return Ok(()),
            reset::Candidate::Archive => {}
        }
        let (environment, resources) = tx.resources(session).await?;
        let archiving = match archive(&resources, of.generation, &deployment) {
            Ok(archiving) => archiving,
            Err(fault) => {
                tracing::warn!(%session, code = fault.code.code(), "a session could not be archived by the reset");
                return Ok(());
            }
        };
        let (now, source) = (tx.now().await?, tx.reset_source().await?);
        tx.archive_session(session, environment, archiving, now).await?;
        if archiving.expire {
            tx.audit("archive", "session", session, Some(project), &source).await?;
        }
        tx.commit().await?;
        self.core.wake_owner();
        Ok(())
    }

    /// Everything of the end of a reset but its commit; `None` while something is held.
    async fn complete(&self, of: Identity) -> Result<Option<Ending>> {
        let deployment = self.core.store().read().await?.deployment().await?;
        if self.held(&deployment).await? != Held::default() {
            return Ok(None);
        }
        let mut tx = self.core.store().write().await?;
        let deployment = tx.fence(self.lease.epoch).await?;
        let held = tx.counted(&deployment).await?.held;
        let completed = match reset::complete(of, &deployment, held) {
            Ok(completed) => completed,
            Err(Incomplete::Superseded | Incomplete::Remaining(_)) => return Ok(None),
            Err(refused @ Incomplete::Exhausted) => {
                tracing::error!(%refused, "the reset of the deployment cannot end");
                return Ok(None);
            }
        };
        let (now, source) = (tx.now().await?, tx.reset_source().await?);
        let nodes = tx.nodes(self.lease.installation).await?;
        tx.audit(Audit::Complete.action(), "sandbox_deployment", self.lease.installation, None, &source).await?;
        tx.complete_reset(completed, now).await?;
        Ok(Some(Ending { tx, completed, nodes: nodes.iter().map(|node| node.id).collect() }))
    }

    async fn held(&self, deployment: &Deployment) -> Result<Held> {
        Ok(self.core.store().read().await?.counted(deployment).await?.held)
    }

    /// A commit whose outcome is unknown ends the lease: whoever claims the installation next reads what holds.
    async fn finish(&self, ending: Ending) {
        let Ending { tx, completed, nodes } = ending;
        match tx.commit().await {
            Ok(()) => {
                tracing::info!(generation = completed.generation.get(), "the reset of the deployment is complete");
                for node in nodes {
                    self.core.hub().disconnect(node);
                }
                self.core.execution().advance(self.lease, completed.owner_epoch);
            }
            Err(error) => {
                tracing::error!(%error, "the end of the reset is unconfirmed; the installation is claimed again");
                self.core.execution().abandon(self.lease);
            }
        }
    }
}

/// What came of one pass.
enum Pass {
    /// No reset is under way.
    Idle,
    /// It goes on.
    Remaining,
    /// It ends with the commit of this.
    Ended(Box<Ending>),
}
