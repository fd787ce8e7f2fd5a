//! What connections record, most of it heartbeats: who asks, what is recorded, and what is announced (wire §5.3, §5.5).
//!
//! Each of the three steps is carried out for many nodes in one transaction (see `gather`). What fails for one node fails
//! for no other, and nobody is answered before the transaction has committed. A caller that stops waiting takes its call
//! back unless it has begun; one that has begun ends with its transaction, and does nothing unless its connection still is
//! the current one then.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use palisade_core::deployment::Deployment;
use palisade_core::limits::CALLBACK_TIMEOUT_MS;
use palisade_core::session::hub::presence::{self, Authority, Change, Connected, Standing};
use palisade_core::units::{Digest, Generation, Id};
use palisade_core::wire::IntoOwned as _;
use palisade_core::wire::payload::{self, GenerationReference, Health, Identity, Retention};
use sqlx::any::AnyRow;
use tokio::sync::Mutex;

use super::gather::{Asked, Gathered};
use super::nodes::limit;
use super::presence::{accept, identity};
use super::{Columns, Refused, Result, Store, StoreError, Timestamp, Tx};
use crate::limits::GATHER_WAIT;

type Answer<T> = Result<T, Refused>;

/// Calls of connections that wait for the next transaction of their kind.
#[derive(Default)]
pub(super) struct Heartbeats {
    identify: Gathered<Credential, Answer<Identity<'static>>>,
    record: Gathered<Report, Answer<Done>>,
    announce: Gathered<Id, Answer<payload::Deployment>>,
    /// Held by the group that is being recorded.
    recording: Mutex<()>,
}

#[derive(Debug, Clone, Copy)]
struct Credential {
    node: Id,
    digest: Digest,
}

/// What a connection wants to be recorded.
#[derive(Debug, Clone)]
struct Report {
    node: Id,
    by: Connected,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Connect,
    Health(Box<Health<'static>>),
    Retain(Vec<GenerationReference>),
    Disconnect,
}

impl What {
    /// Generations whose specifications the decision needs.
    fn named(&self) -> Vec<Generation> {
        match self {
            Self::Connect | Self::Disconnect => Vec::new(),
            Self::Health(health) => health.generations.iter().map(|said| said.generation).collect(),
            Self::Retain(references) => references.iter().map(|reference| reference.generation).collect(),
        }
    }
}

/// What a connection learns of it.
enum Done {
    /// It is recorded.
    Recorded,
    /// It is recorded, and these of the reported generations are kept.
    Kept(Vec<Generation>),
    /// What the node must keep, in the order asked, and what is announced beside it.
    Retained(Vec<Retention>, payload::Deployment),
}

/// Digests of specifications that one transaction has looked up; `None` is not stored.
type Digests = BTreeMap<Generation, Option<Digest>>;

/// One kind of gathered call: where it waits, and how a group of them is carried out.
macro_rules! gathered {
    ($store:expr, $kind:ident, $question:expr, $group:path) => {{
        let (first, answered) = $store.heartbeats.$kind.join($question);
        if first {
            let store = $store.clone();
            tokio::spawn(async move {
                tokio::time::sleep(GATHER_WAIT).await;
                while $group(&store).await {}
            });
        }
        // The group's transaction could not begin, or the task of the group died: either is in the log.
        answered.await.unwrap_or(Err(Refused::Store(StoreError::Database(sqlx::Error::WorkerCrashed))))
    }};
}

impl Store {
    /// The identity of the node that owns a credential, given by digest, with the capacity that is approved now.
    pub async fn identify_node(&self, node: Id, digest: Digest) -> Result<Identity<'static>, Refused> {
        gathered!(self, identify, Credential { node, digest }, Self::identify_group)
    }

    /// Records a new connection.
    pub async fn connect_node(&self, node: Id, by: Connected) -> Result<(), Refused> {
        let recorded = gathered!(self, record, Report { node, by, what: What::Connect }, Self::record_group);
        recorded.map(drop)
    }

    /// Clears a connection, when it is still the current one. What was asked before for the same node is recorded before.
    pub async fn disconnect_node(&self, node: Id, by: Connected) -> Result<()> {
        let recorded = gathered!(self, record, Report { node, by, what: What::Disconnect }, Self::record_group);
        match recorded {
            Ok(_) | Err(Refused::Rejected | Refused::Mismatch) => Ok(()),
            Err(Refused::Store(error)) => Err(error),
        }
    }

    /// Records a heartbeat (or the health of `hello`): presence, measurements, observations and the serving pin, all or
    /// nothing. Returns the reported generations that Core keeps for this node.
    pub async fn record_health(
        &self,
        node: Id,
        by: Connected,
        health: &Health<'_>,
    ) -> Result<Vec<Generation>, Refused> {
        let what = What::Health(Box::new(health.clone().into_owned()));
        match gathered!(self, record, Report { node, by, what }, Self::record_group)? {
            Done::Kept(kept) => Ok(kept),
            Done::Recorded | Done::Retained(..) => Ok(Vec::new()),
        }
    }

    /// Decides which references the node must keep, and forgets what it said of the others (wire §7.3).
    pub async fn retain_for_node(
        &self,
        node: Id,
        by: Connected,
        references: &[GenerationReference],
    ) -> Result<(Vec<Retention>, payload::Deployment), Refused> {
        let what = What::Retain(references.to_vec());
        match gathered!(self, record, Report { node, by, what }, Self::record_group)? {
            Done::Retained(retentions, deployment) => Ok((retentions, deployment)),
            Done::Recorded | Done::Kept(_) => Err(Refused::Rejected),
        }
    }

    /// What `welcome`, `heartbeat_ack` and `retention_ack` announce to a node: the target and the node's pin.
    pub async fn announcement(&self, node: Id) -> Result<payload::Deployment, Refused> {
        gathered!(self, announce, node, Self::announce_group)
    }

    async fn identify_group(&self) -> bool {
        let (group, more) = self.heartbeats.identify.take();
        let outcome = bounded(async { self.read().await?.identify(&questions(&group)).await }).await;
        settle(group, outcome);
        more
    }

    async fn announce_group(&self) -> bool {
        let (group, more) = self.heartbeats.announce.take();
        let outcome = bounded(async { self.read().await?.announce(&questions(&group)).await }).await;
        settle(group, outcome);
        more
    }

    /// The transaction begins first, so that everybody who comes while it waits for its turn is in the group. Groups are
    /// recorded one after another: what a connection asks later never overtakes what it asked before.
    async fn record_group(&self) -> bool {
        let _turn = self.heartbeats.recording.lock().await;
        let begun = bounded(self.write_ahead()).await;
        let (group, more) = self.heartbeats.record.take();
        let reports: Vec<Report> = group.iter().map(|asked| asked.question.clone()).collect();
        let outcome = bounded(async { begun?.record(&reports, Rows::Free).await }).await;
        let answers = outcome.unwrap_or_else(|error| {
            tracing::warn!(%error, nodes = reports.len(), "heartbeats are recorded one by one");
            reports.iter().map(|_| None).collect()
        });
        for ((asked, report), answer) in group.into_iter().zip(reports).zip(answers) {
            match answer {
                Some(answer) => asked.answer(answer),
                None => drop(tokio::spawn(self.clone().answer_alone(asked, report))),
            }
        }
        more
    }

    /// What one node reports, or a row that somebody holds, must not cost the others their connections. Ends without
    /// effect when its caller goes before it commits.
    async fn answer_alone(self, mut asked: Asked<Report, Answer<Done>>, report: Report) {
        let answer = tokio::select! {
            answer = bounded(self.record_alone(report)) => answer,
            () = asked.gone() => return,
        };
        asked.answer(answer);
    }

    async fn record_alone(&self, report: Report) -> Answer<Done> {
        match &report.what {
            What::Connect => self.connect_alone(report.node, report.by).await.map(|()| Done::Recorded),
            What::Disconnect => Ok(self.disconnect_alone(report.node, report.by).await.map(|()| Done::Recorded)?),
            What::Health(_) | What::Retain(_) => {
                let answer = self.write_ahead().await?.record(&[report], Rows::All).await?.pop();
                answer.flatten().unwrap_or(Err(Refused::Rejected))
            }
        }
    }
}

/// Which rows a transaction locks.
#[derive(Clone, Copy)]
enum Rows {
    /// Those that nobody holds.
    Free,
    /// All, however long that takes.
    All,
}

/// The bound of every storage call of a connection, for those that no connection can end.
async fn bounded<T, E: From<StoreError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let late = || StoreError::Database(sqlx::Error::PoolTimedOut).into();
    tokio::time::timeout(Duration::from_millis(CALLBACK_TIMEOUT_MS), work).await.unwrap_or_else(|_| Err(late()))
}

fn questions<Q: Copy, A>(group: &[Asked<Q, A>]) -> Vec<Q> {
    group.iter().map(|asked| asked.question).collect()
}

/// Answers everybody; what befell the whole group is told to nobody but the log.
fn settle<Q, T>(group: Vec<Asked<Q, Answer<T>>>, outcome: Result<Vec<Answer<T>>>) {
    match outcome {
        Ok(answers) => group.into_iter().zip(answers).for_each(|(asked, answer)| asked.answer(answer)),
        Err(error) => tracing::warn!(%error, nodes = group.len(), "a storage call of connections failed"),
    }
}

impl Tx {
    async fn identify(&mut self, credentials: &[Credential]) -> Result<Vec<Answer<Identity<'static>>>> {
        let deployment = self.deployment().await?;
        let ids = credentials.iter().map(|credential| credential.node).collect();
        let query = "SELECT id, installation_id, credential_sha256, backend_fingerprint, deployment_generation, \
             specification_digest, max_active, max_retained FROM runtime_nodes WHERE removed_at IS NULL AND id IN (IDS)";
        let rows = self.rows_of(query, &ids).await?;
        let rows = by_id(&rows)?;
        let mut digests = Digests::new();
        let mut answers = Vec::with_capacity(credentials.len());
        for credential in credentials {
            let row = rows.get(&credential.node).copied();
            answers.push(self.identify_one(&deployment, row, credential, &mut digests).await);
        }
        Ok(answers)
    }

    async fn identify_one(
        &mut self,
        deployment: &Deployment,
        row: Option<&AnyRow>,
        credential: &Credential,
        digests: &mut Digests,
    ) -> Answer<Identity<'static>> {
        let row = row.ok_or(Refused::Rejected)?;
        let enrolled = accept(row, credential.digest)?;
        let limits = (limit(row, "max_active")?, limit(row, "max_retained")?);
        let identity = identity(credential.node, &enrolled, deployment, limits)?;
        let generation = enrolled.generation;
        let digest = match digests.entry(generation) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                let stored = self.specification(deployment, generation).await?;
                *unknown.insert(stored.map(|specification| specification.digest()))
            }
        };
        enrolled.check(deployment, digest)?;
        Ok(identity)
    }

    async fn announce(&mut self, nodes: &[Id]) -> Result<Vec<Answer<payload::Deployment>>> {
        let authority = self.deployment().await?.authority();
        let standings = self.pins(&nodes.iter().copied().collect(), "").await?;
        let answer = |node: &Id| {
            let standing = standings.get(node).ok_or(Refused::Rejected)?;
            Ok(presence::announce(&authority, standing)?)
        };
        Ok(nodes.iter().map(answer).collect())
    }

    /// Records what can be recorded, and commits. An error has recorded nothing. Without an answer is a report whose node
    /// was not found among the rows that nobody holds.
    async fn record(mut self, reports: &[Report], rows: Rows) -> Result<Vec<Option<Answer<Done>>>> {
        let deployment = self.lock_deployment().await?;
        let locking = match rows {
            Rows::Free => self.dialect().locking_free_ones(),
            Rows::All => self.dialect().locking(),
        };
        let mut standings = self.standings(&reports.iter().map(|report| report.node).collect(), locking).await?;
        let now = self.now().await?;
        let mut authority = deployment.authority();
        let (mut answers, mut measured) = (Vec::with_capacity(reports.len()), BTreeMap::new());
        for report in reports {
            let Some(standing) = standings.get_mut(&report.node) else {
                answers.push(None);
                continue;
            };
            self.learn(&deployment, &mut authority, standing, report.what.named().into_iter()).await?;
            let answer = self.record_one(&authority, standing, report, now).await?;
            if let (What::Health(health), Ok(_)) = (&report.what, &answer) {
                measured.insert(report.node, &**health);
            }
            answers.push(Some(answer));
        }
        self.store_health(&measured, now).await?;
        self.commit().await?;
        Ok(answers)
    }

    async fn record_one(
        &mut self,
        authority: &Authority,
        standing: &mut Standing,
        report: &Report,
        now: Timestamp,
    ) -> Result<Answer<Done>> {
        let decided = match &report.what {
            What::Connect => {
                presence::connect(authority, standing, report.by, now).map(|change| (vec![change], Done::Recorded))
            }
            What::Health(health) => presence::record(authority, standing, report.by, &health.generations, now)
                .map(|recorded| (recorded.changes, Done::Kept(recorded.kept))),
            What::Retain(references) => presence::retain(authority, standing, report.by, references)
                .map(|retained| (retained.changes, Done::Retained(retained.retentions, retained.deployment))),
            What::Disconnect => Ok((presence::disconnect(standing, report.by).into_iter().collect(), Done::Recorded)),
        };
        let (changes, done) = match decided {
            Ok(decided) => decided,
            Err(refused) => return Ok(Err(refused.into())),
        };
        let news: Vec<_> = changes.into_iter().filter(|change| is_news(change, standing)).collect();
        self.apply(report.node, news.clone(), now).await?;
        // The node may have two reports in one group.
        for change in news {
            standing.apply(change);
        }
        Ok(Ok(done))
    }
}

/// Whether a change of a report is still to be written: the time went with the measurements, and what a node says again
/// on the same connection keeps the time since which it says so.
fn is_news(change: &Change, standing: &Standing) -> bool {
    match change {
        Change::Heard(_) => false,
        Change::Observed(status) => standing.statuses.get(&status.said.generation) != Some(status),
        Change::Connected(..) | Change::Disconnected | Change::Forgotten(_) | Change::Pinned(_) => true,
    }
}

fn by_id(rows: &[AnyRow]) -> Result<BTreeMap<Id, &AnyRow>> {
    rows.iter().map(|row| Ok((row.id("id")?, row))).collect()
}
