//! The loop that drives the node's machine over one connection after another.
//!
//! All decisions are [`Node`]'s. This loop dials, moves messages, waits for the machine's times and performs its actions;
//! nothing in it waits for a provider, a disk or the peer, so that a heartbeat is never late for them.

#[cfg(test)]
pub(crate) mod peer;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use palisade_core::generation::{Probed, Task};
use palisade_core::session::backoff::Backoff;
use palisade_core::session::node::{Action, Ended, Node};
use palisade_core::units::{Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Diagnostic, GenerationReference};
use palisade_provider::Provider;
use palisade_socket::{Alarm, Incoming, Reader, SendError, Socket, Writer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::dial::DialError;
use crate::host::{Dial, Generations, Host, Sampler};
use crate::worker::{self, Outcome, Outcomes};

/// Why a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Stopped,
    /// Core rejected its credential.
    Credential,
}

/// A node's program after its start: machine, providers and the way to Core.
pub struct Connections<H: Host> {
    node: Node,
    host: H,
    providers: BTreeMap<Generation, Arc<dyn Provider>>,
    /// Everything that something on this host belongs to.
    recorded: BTreeSet<Generation>,
    /// Without it, nothing is ever brought or taken away.
    generations: Option<Box<dyn Generations>>,
    /// The preparation and the removal under way, and what ends each.
    preparing: Option<(Generation, CancellationToken)>,
    removing: BTreeMap<Generation, CancellationToken>,
    clock: Clock,
    backoff: Backoff,
    link: Link<H::Stream>,
    /// Counts attempts, so that what belongs to an old one is recognised.
    number: u64,
    /// The connection that was last logged as live.
    live: Option<(Id, OwnerEpoch)>,
    outcomes: Outcomes,
    results: UnboundedReceiver<Outcome>,
    /// What each generation was last reported as, so that only changes are logged.
    reported: BTreeMap<Generation, Probed>,
    end: Option<End>,
}

/// Where the way to Core stands.
enum Link<S> {
    Waiting(Pin<Box<Sleep>>),
    /// Removals that the lost connection granted are being ended; the wait, in milliseconds, begins after the last.
    Ending {
        delay_ms: u64,
    },
    Dialling {
        since: Instant,
        dial: Dial<S>,
    },
    Open {
        since: Instant,
        reader: Reader<S>,
        writer: Writer<S>,
        sampler: Box<Sampler>,
    },
    /// The node ends; only running operations are awaited.
    Closed,
}

/// What happened on the way to Core.
enum Event<S> {
    Retry,
    Dialled(Result<Box<Socket<S>>, DialError>),
    Received(Incoming),
    Written(Result<usize, SendError>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    /// Cancel safe: whatever is under way stays in `self`.
    async fn next(&mut self, may_read: bool) -> Event<S> {
        match self {
            Self::Waiting(delay) => {
                delay.await;
                Event::Retry
            }
            Self::Dialling { dial, .. } => Event::Dialled(dial.await.map(Box::new)),
            // What is written first, so that a seed gives one history.
            Self::Open { reader, writer, .. } => tokio::select! {
                biased;
                written = writer.sent() => Event::Written(written),
                incoming = reader.next(), if may_read => Event::Received(incoming),
            },
            Self::Ending { .. } | Self::Closed => pending().await,
        }
    }
}

impl<H: Host> Connections<H> {
    /// Nothing is dialled before [`Connections::run`]. Every generation that the table of `node` holds with a provider has
    /// one in `providers`.
    #[must_use]
    pub fn new(node: Node, host: H, providers: BTreeMap<Generation, Arc<dyn Provider>>) -> Self {
        let (outcomes, results) = unbounded_channel();
        Self {
            node,
            host,
            recorded: providers.keys().copied().collect(),
            generations: None,
            preparing: None,
            removing: BTreeMap::new(),
            providers,
            clock: Clock::start(),
            backoff: Backoff::default(),
            link: Link::Waiting(Box::pin(sleep(Duration::ZERO))),
            number: 0,
            live: None,
            outcomes: Outcomes(outcomes),
            results,
            reported: BTreeMap::new(),
            end: None,
        }
    }

    /// Tells of generations that have files on this host, with a provider or without.
    pub(crate) fn keeping(mut self, recorded: BTreeSet<Generation>) -> Self {
        self.recorded.extend(recorded);
        self
    }

    /// Lets the node bring generations to its host and take them away.
    #[must_use]
    pub fn preparing_with(mut self, generations: impl Generations) -> Self {
        self.generations = Some(Box::new(generations));
        self
    }

    /// Serves Core until `stop`, or until Core rejects the credential. The connection then closes at once; operations
    /// that run are awaited up to their own deadlines, and a little longer for those that are being ended.
    pub async fn run(mut self, stop: CancellationToken) -> End {
        let mut stopped = pin!(stop.cancelled());
        let mut alarm = Alarm::default();
        loop {
            self.perform();
            let busy_until = self.node.busy_until().filter(|at| *at > self.clock.now());
            // What was cancelled ends at once; its files are in the hands of nobody then.
            let idle = busy_until.is_none() && self.preparing.is_none() && self.removing.is_empty();
            if let Some(end) = self.end.filter(|_| idle) {
                return end;
            }
            let wake = self.node.poll_timeout().map(|(at, _)| at);
            let wake = wake.into_iter().chain(busy_until).min().map(|at| self.clock.instant(at));
            // In this order, so that a seed gives one history; a timeout moves on with every call and starves nobody.
            tokio::select! {
                biased;
                () = &mut stopped, if self.end.is_none() => self.finish(End::Stopped),
                () = alarm.reached(wake) => self.node.handle_timeout(self.clock.now()),
                Some(outcome) = self.results.recv() => self.take(outcome),
                event = self.link.next(self.node.may_read()) => self.handle(event),
            }
        }
    }

    fn handle(&mut self, event: Event<H::Stream>) {
        match event {
            Event::Retry => self.link = Link::Dialling { since: Instant::now(), dial: self.host.dial() },
            Event::Dialled(Ok(socket)) => self.open(*socket),
            Event::Dialled(Err(DialError::Credential)) => {
                tracing::error!("{}", DialError::Credential);
                self.finish(End::Credential);
            }
            Event::Dialled(Err(error)) => {
                tracing::warn!(%error, "no connection to core");
                self.retry(error.retry_after_ms());
            }
            Event::Received(Incoming::Text(text)) => self.node.handle_message(self.clock.now(), &text),
            Event::Received(Incoming::Fragment) => self.node.handle_fragment(self.clock.now()),
            Event::Received(Incoming::Binary) => self.node.handle_binary(self.clock.now()),
            Event::Received(Incoming::Closed(reason)) => self.lose(&reason.to_string()),
            Event::Written(Ok(bytes)) => self.node.handle_written(self.clock.now(), bytes),
            Event::Written(Err(error)) => self.lose(&error.to_string()),
        }
    }

    fn open(&mut self, socket: Socket<H::Stream>) {
        let (reader, writer) = socket.split();
        let since = match &self.link {
            Link::Dialling { since, .. } => *since,
            Link::Waiting(_) | Link::Ending { .. } | Link::Open { .. } | Link::Closed => Instant::now(),
        };
        let sampler = self.host.sampler();
        self.link = Link::Open { since, reader, writer, sampler };
        self.node.handle_opened(self.clock.now());
    }

    /// The connection is gone; the machine may know already.
    fn lose(&mut self, reason: &str) {
        tracing::warn!(reason, "the connection to core ended");
        self.node.handle_closed(self.clock.now());
        self.retry(None);
    }

    /// Drops what is left of the attempt and waits before the next one. No removal outlives the connection that granted
    /// it into the next (wire §7.4).
    fn retry(&mut self, retry_after_ms: Option<u64>) {
        let lived = match &self.link {
            Link::Dialling { since, .. } | Link::Open { since, .. } => since.elapsed(),
            Link::Waiting(_) | Link::Ending { .. } | Link::Closed => return,
        };
        let lived_ms = u64::try_from(lived.as_millis()).unwrap_or(u64::MAX);
        self.number += 1;
        let delay_ms = self.backoff.next_delay_ms(lived_ms, retry_after_ms, self.host.random());
        self.link = Link::Ending { delay_ms };
        self.wait();
    }

    /// Begins the wait before the next attempt once nothing that belonged to the last one removes files any more.
    fn wait(&mut self) {
        if let Link::Ending { delay_ms } = self.link
            && self.removing.is_empty()
        {
            tracing::info!(delay_ms, "dialling core again after a wait");
            self.link = Link::Waiting(Box::pin(sleep(Duration::from_millis(delay_ms))));
        }
    }

    fn finish(&mut self, end: End) {
        self.end = Some(end);
        self.preparing.iter().for_each(|(_, cancel)| cancel.cancel());
        self.removing.values().for_each(CancellationToken::cancel);
        self.number += 1;
        self.link = Link::Closed;
        self.node.handle_closed(self.clock.now());
    }

    fn take(&mut self, outcome: Outcome) {
        let now = self.clock.now();
        match outcome {
            Outcome::Executed(ticket, result) => self.node.handle_result(now, ticket, result),
            Outcome::Probed(generation, probed, detail) => {
                self.report(generation, &probed, detail.as_deref());
                self.node.handle_probed(now, generation, probed);
            }
            Outcome::Prepared(generation, prepared) => self.prepared(generation, prepared),
            Outcome::Removed(generation, finished) => self.removed(generation, finished),
            Outcome::Measured(number, health) if number == self.number => {
                let random = u128::from(self.host.random()) << 64 | u128::from(self.host.random());
                self.node.handle_health(now, health, random.to_be_bytes());
            }
            Outcome::EpochStored(epoch) => self.node.handle_epoch_stored(now, epoch),
            Outcome::EpochNotStored(number) if number == self.number => self.node.handle_epoch_not_stored(now),
            Outcome::Measured(..) | Outcome::EpochNotStored(_) => {}
        }
    }

    /// One line when a generation's state or class changes; the text stays on this host.
    fn report(&mut self, generation: Generation, probed: &Probed, detail: Option<&str>) {
        if self.reported.get(&generation) == Some(probed) {
            return;
        }
        match probed {
            Probed::Ready(_) => tracing::info!(%generation, "generation is ready"),
            Probed::NotReady(class) => {
                tracing::warn!(%generation, class = class.code(), detail, "generation is not ready");
            }
            Probed::Cancelled => return,
        }
        self.reported.insert(generation, probed.clone());
    }

    fn perform(&mut self) {
        while let Some(action) = self.node.poll_action() {
            self.act(action);
        }
        let live = self.node.live();
        if std::mem::replace(&mut self.live, live) != live
            && let Some((connection, epoch)) = live
        {
            tracing::info!(%connection, %epoch, "connected to core");
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::MeasureHealth => {
                if let Link::Open { sampler, .. } = &mut self.link {
                    worker::measure(self.outcomes.clone(), self.number, sampler());
                }
            }
            Action::Send(message) => {
                if let Link::Open { writer, .. } = &mut self.link {
                    writer.push(message);
                }
            }
            Action::StoreEpoch(epoch) => self.store_epoch(epoch),
            Action::Execute { ticket, call, deadline } => {
                let provider = self.providers.get(&call.deployment_generation).expect("only constructed ones run");
                let deadline = self.clock.instant(deadline);
                worker::execute(self.outcomes.clone(), Arc::clone(provider), ticket, call, deadline);
            }
            Action::Task(task) => self.start(task),
            Action::Remove(reference) => self.remove(reference),
            Action::CancelRemoval(generation) => {
                if let Some(cancel) = self.removing.get(&generation) {
                    cancel.cancel();
                }
            }
            Action::Close(ended) => self.close(&ended),
        }
    }

    fn store_epoch(&self, epoch: OwnerEpoch) {
        let (outcomes, number, store) = (self.outcomes.clone(), self.number, self.host.store_epoch(epoch));
        tokio::spawn(async move {
            let stored = store.await;
            outcomes.report(if stored { Outcome::EpochStored(epoch) } else { Outcome::EpochNotStored(number) });
        });
    }

    fn start(&mut self, task: Task) {
        match task {
            Task::Probe(generation) => {
                let provider = self.providers.get(&generation).expect("only constructed ones are probed");
                worker::probe(self.outcomes.clone(), Arc::clone(provider), generation);
            }
            Task::Prepare(reference) => self.prepare(reference),
            Task::CancelPreparation(generation) => {
                if let Some((_, cancel)) = self.preparing.as_ref().filter(|(preparing, _)| *preparing == generation) {
                    cancel.cancel();
                }
            }
        }
    }

    fn prepare(&mut self, reference: GenerationReference) {
        let generation = reference.generation;
        let Some(generations) = &self.generations else { return self.cannot_prepare(generation) };
        tracing::info!(%generation, "preparing a generation");
        let cancel = CancellationToken::new();
        worker::prepare(self.outcomes.clone(), generation, generations.prepare(reference, cancel.clone()));
        self.preparing = Some((generation, cancel));
    }

    /// Without a preparer, a target that is not on the host is honestly failed (decision 39), and one that needs a repair
    /// keeps the class that its probe found.
    fn cannot_prepare(&mut self, generation: Generation) {
        let class = match self.reported.get(&generation) {
            Some(Probed::NotReady(class)) => *class,
            Some(Probed::Ready(_) | Probed::Cancelled) | None => Diagnostic::ProviderUnavailable,
        };
        if self.recorded.contains(&generation) {
            tracing::warn!(%generation, class = class.code(), "this node cannot repair a generation; load its release again");
        } else {
            tracing::warn!(%generation, "this node cannot prepare another generation; register it again for that one");
        }
        self.node.handle_prepared(self.clock.now(), generation, Err(class));
    }

    fn prepared(&mut self, generation: Generation, prepared: Result<Arc<dyn Provider>, Diagnostic>) {
        self.preparing = None;
        let declared = prepared.map(|provider| {
            tracing::info!(%generation, "the generation is prepared; it is probed next");
            let declaration = provider.declaration().clone();
            self.recorded.insert(generation);
            self.providers.insert(generation, provider);
            declaration
        });
        if let Err(class) = &declared {
            tracing::warn!(%generation, class = class.code(), "the generation is not prepared; it is tried again later");
        }
        self.node.handle_prepared(self.clock.now(), generation, declared);
    }

    /// Without a collector, a generation of which nothing is recorded has nothing on this host; the files of others stay,
    /// and are asked about again.
    fn remove(&mut self, reference: GenerationReference) {
        let generation = reference.generation;
        let finished = !self.recorded.contains(&generation);
        if let Some(generations) = &self.generations {
            let cancel = CancellationToken::new();
            worker::remove(self.outcomes.clone(), generation, generations.collect(reference, cancel.clone()));
            self.removing.insert(generation, cancel);
            return;
        }
        // Core repeats its word at every heartbeat; the log says it once.
        if self.reported.remove(&generation).is_some() && !finished {
            tracing::warn!(%generation, "core needs this generation no more; its files stay on this host");
        }
        self.node.handle_removed(self.clock.now(), generation, finished);
    }

    fn removed(&mut self, generation: Generation, finished: bool) {
        self.removing.remove(&generation);
        if finished {
            tracing::info!(%generation, "the generation is gone from this host");
            self.reported.remove(&generation);
            self.recorded.remove(&generation);
            self.providers.remove(&generation);
        }
        self.node.handle_removed(self.clock.now(), generation, finished);
        self.wait();
    }

    fn close(&mut self, ended: &Ended) {
        tracing::warn!(reason = %ended, "closing the connection to core");
        self.retry(None);
    }
}
