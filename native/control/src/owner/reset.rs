//! The owner's part of a reset: archive what may be archived, and end when nothing is held (deployment §4.2).
//!
//! Every step is one transaction that proves the lease and the identity of the reset, so that a crash between any two
//! continues where the rows are.

use std::time::Duration;

use palisade_core::admin::deployment::Held;
use palisade_core::deployment::Deployment;
use palisade_core::deployment::reset::{self, Audit, Completed, Identity, Incomplete};
use palisade_core::hosted::archive::archive;
use palisade_core::limits::RESET_PAGE_MAX;
use palisade_core::units::Id;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::Core;
use crate::execution::Lease;
use crate::limits::{RESET_INTERVAL, RESET_PASS_MAX};
use crate::store::reset::Candidate;
use crate::store::{Result, StoreError};

/// Works on resets while this lease is held.
pub(super) async fn drive(core: Core, lease: Lease, mut news: watch::Receiver<u64>) {
    let mut reset = Resetting { core, lease, cursor: None };
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

/// What is remembered between two passes; losing it only looks at some sessions again.
struct Resetting {
    core: Core,
    lease: Lease,
    cursor: Option<(Identity, Id)>,
}

impl Resetting {
    /// One pass. `true`: a reset is under way.
    async fn pass(&mut self) -> Result<bool> {
        let Some(of) = self.escalate().await? else {
            self.cursor = None;
            return Ok(false);
        };
        self.archive_page(of).await?;
        self.complete(of).await
    }

    /// Makes the deadline take effect, and names the reset under way.
    async fn escalate(&self) -> Result<Option<Identity>> {
        let mut tx = self.core.store().read().await?;
        let Some(reset) = tx.deployment().await?.reset else { return Ok(None) };
        if reset::overdue(reset, tx.now().await?).is_none() {
            return Ok(Identity::of(&tx.deployment().await?));
        }
        drop(tx);
        let mut tx = self.core.store().write().await?;
        let deployment = tx.fence(self.lease.epoch).await?;
        let now = tx.now().await?;
        if let Some(forced) = deployment.reset.and_then(|reset| reset::overdue(reset, now)) {
            tx.escalate_reset(forced).await?;
            let source = tx.reset_source().await?;
            tx.audit(Audit::Deadline.action(), "sandbox_deployment", self.lease.installation, None, &source).await?;
            tx.commit().await?;
            tracing::info!("the deadline of the reset has passed: busy sessions are archived as well");
        }
        Ok(Identity::of(&deployment))
    }

    /// Archives the next sessions. One that cannot be archived now is met again on a later round.
    async fn archive_page(&mut self, of: Identity) -> Result<()> {
        let cursor = self.cursor.filter(|(known, _)| *known == of).map(|(_, session)| session);
        let candidates = self.core.store().read().await?.reset_candidates(cursor).await?;
        let until = Instant::now() + RESET_PASS_MAX;
        for candidate in &candidates {
            if let Err(error) = self.archive(of, *candidate).await {
                tracing::warn!(session = %candidate.session, %error, "a session could not be archived by the reset");
            }
            self.cursor = Some((of, candidate.session));
            if Instant::now() >= until {
                return Ok(());
            }
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
        if tx.session(session, project).await?.is_none() {
            return Ok(());
        }
        match reset::candidate(of, &deployment, tx.is_busy(session).await?) {
            reset::Candidate::Superseded | reset::Candidate::Busy => return Ok(()),
            reset::Candidate::Archive => {}
        }
        let (_, resources) = tx.resources(session).await?;
        let archiving = match archive(&resources, of.generation, &deployment) {
            Ok(archiving) => archiving,
            Err(fault) => {
                tracing::warn!(%session, code = fault.code.code(), "a session could not be archived by the reset");
                return Ok(());
            }
        };
        let (now, source) = (tx.now().await?, tx.reset_source().await?);
        tx.archive_session(session, archiving, now).await?;
        if archiving.expire {
            tx.audit("archive", "session", session, Some(project), &source).await?;
        }
        tx.commit().await?;
        self.core.wake_owner();
        Ok(())
    }

    /// Ends the reset when nothing is held. `true`: it goes on.
    async fn complete(&self, of: Identity) -> Result<bool> {
        let deployment = self.core.store().read().await?.deployment().await?;
        if self.held(&deployment).await? != Held::default() {
            return Ok(true);
        }
        let mut tx = self.core.store().write().await?;
        let deployment = tx.fence(self.lease.epoch).await?;
        let held = tx.counted(&deployment).await?.held;
        let completed = match reset::complete(of, &deployment, held) {
            Ok(completed) => completed,
            Err(Incomplete::Superseded | Incomplete::Remaining(_)) => return Ok(true),
            Err(refused @ Incomplete::Exhausted) => {
                tracing::error!(%refused, "the reset of the deployment cannot end");
                return Ok(true);
            }
        };
        let (now, source) = (tx.now().await?, tx.reset_source().await?);
        let nodes = tx.nodes(self.lease.installation).await?;
        tx.audit(Audit::Complete.action(), "sandbox_deployment", self.lease.installation, None, &source).await?;
        tx.complete_reset(completed, now).await?;
        self.publish(tx.commit().await, completed, nodes.iter().map(|node| node.id));
        Ok(false)
    }

    async fn held(&self, deployment: &Deployment) -> Result<Held> {
        Ok(self.core.store().read().await?.counted(deployment).await?.held)
    }

    /// A commit whose outcome is unknown ends the lease: whoever claims the installation next reads what holds.
    fn publish(&self, committed: Result<()>, completed: Completed, nodes: impl Iterator<Item = Id>) {
        match committed {
            Ok(()) => {
                tracing::info!(generation = completed.generation.get(), "the reset of the deployment is complete");
                nodes.for_each(|node| self.core.hub().disconnect(node));
                self.core.execution().advance(self.lease, completed.owner_epoch);
            }
            Err(error) => {
                tracing::error!(%error, "the end of the reset is unconfirmed; the installation is claimed again");
                self.core.execution().abandon(self.lease);
            }
        }
    }
}
