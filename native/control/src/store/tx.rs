//! One transaction.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use palisade_core::deployment::Deployment;
use palisade_core::session::hub::presence;
use palisade_core::units::{Id, OwnerEpoch};
use sqlx::any::Any;
use sqlx::{AnyConnection, Row as _, Transaction};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};

use super::dialect::{Dialect, Lockable};
use super::file::DatabaseFile;
use super::{Result, StoreError, Timestamp};
use crate::metrics::Times;

/// A transaction; it dereferences to the connection, so queries run on `&mut *tx`. Dropping it rolls back.
pub struct Tx {
    inner: Transaction<'static, Any>,
    dialect: Dialect,
    public_url: Arc<str>,
    _turn: Option<OwnedMutexGuard<()>>,
    _crowd: Option<OwnedSemaphorePermit>,
    _large: Option<OwnedMutexGuard<()>>,
    times: Times,
    /// The embedded database's.
    file: Option<Arc<DatabaseFile>>,
    /// It proved the owner's epoch, as every write of the owner does.
    fenced: bool,
}

impl Tx {
    pub(super) fn new(
        inner: Transaction<'static, Any>,
        dialect: Dialect,
        public_url: Arc<str>,
        turn: Option<OwnedMutexGuard<()>>,
        times: Times,
    ) -> Self {
        Self { inner, dialect, public_url, _turn: turn, _crowd: None, _large: None, times, file: None, fenced: false }
    }

    /// The same transaction, which is in this file.
    pub(super) fn in_file(self, file: Option<Arc<DatabaseFile>>) -> Self {
        Self { file, ..self }
    }

    /// The same transaction, which keeps its place among the writers until it ends.
    pub(super) fn of_crowd(self, turn: OwnedSemaphorePermit) -> Self {
        Self { _crowd: Some(turn), ..self }
    }

    /// The same transaction, which keeps the turn of large writes until it ends.
    pub(super) fn holding(self, large: OwnedMutexGuard<()>) -> Self {
        Self { _large: Some(large), ..self }
    }

    /// How this database is read, locked and asked for the time.
    pub(super) const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The public URL of this installation, which is no part of the database but of every decision.
    pub(super) fn public_url(&self) -> &str {
        &self.public_url
    }

    /// Makes everything durable. After an error, [`StoreError::Unconfirmed`], the outcome is unknown.
    pub async fn commit(self) -> Result<()> {
        if let Some(file) = &self.file {
            file.check()?;
        }
        let timed = self.times.begin("commit");
        let crash = super::crash::next(self.fenced);
        crash.before();
        let committed = self.inner.commit().await;
        crash.after();
        timed.end_with(&committed);
        committed.map_err(StoreError::Unconfirmed)
    }

    /// The database's clock at this moment.
    pub async fn now(&mut self) -> Result<Timestamp> {
        let row = sqlx::query(self.dialect.now()).fetch_one(&mut *self.inner).await?;
        Ok(Timestamp(row.try_get(0)?))
    }

    /// Locks a Session's row, before the deployment and any node. A Session that does not exist locks nothing.
    pub async fn lock_session(&mut self, session: Id) -> Result<()> {
        self.lock(Lockable::Session, session).await
    }

    /// Locks the deployment's row, after a Session and before any node, and reads it.
    pub async fn lock_deployment(&mut self) -> Result<Deployment> {
        self.read_deployment(self.dialect.locking()).await
    }

    /// [`Tx::lock_deployment`] for a write of the owner: fails with [`StoreError::Fenced`] unless `epoch` is still
    /// the installation's, so that a process which lost its lease can change nothing.
    pub async fn fence(&mut self, epoch: OwnerEpoch) -> Result<Deployment> {
        let deployment = self.lock_deployment().await?;
        presence::fence(deployment.owner_epoch, epoch).map_err(|_| StoreError::Fenced)?;
        self.fenced = true;
        Ok(deployment)
    }

    /// Locks a node's row, last of all. A node that does not exist locks nothing.
    pub async fn lock_node(&mut self, node: Id) -> Result<()> {
        self.lock(Lockable::Node, node).await
    }

    async fn lock(&mut self, row: Lockable, id: Id) -> Result<()> {
        if let Some(statement) = self.dialect.lock(row) {
            sqlx::query(statement).bind(id.to_string()).fetch_optional(&mut *self.inner).await?;
        }
        Ok(())
    }
}

impl Deref for Tx {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.inner
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.inner
    }
}
