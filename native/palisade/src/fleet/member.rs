//! One simulated node: the real machine, without host, disk or provider.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use palisade_core::generation::Table;
use palisade_core::outcome::unknown;
use palisade_core::session::backoff::Backoff;
use palisade_core::session::node::{Action, Node};
use palisade_core::units::Millis;
use palisade_core::wire::payload::{Health, Identity};
use palisade_core::wire::{self, Frame};
use palisade_node::{Dialer, Internet, Stream};
use palisade_socket::{Alarm, Incoming, Reader, Socket, Writer};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::tally::Tally;

/// A node that has enrolled.
pub(crate) struct Member {
    pub(crate) identity: Identity<'static>,
    pub(crate) credential: String,
}

impl Member {
    /// Connects after `delay`, and again after every end, with the back-off of a real node.
    pub(crate) async fn live(
        self,
        dialer: Dialer<Internet>,
        delay: Duration,
        dials: Arc<Semaphore>,
        tally: Arc<Tally>,
    ) {
        let started = tokio::time::Instant::now();
        // Nothing is prepared on a simulated host: the target stays `preparing`.
        let mut node = Node::new(self.identity, None, Table::default());
        let mut backoff = Backoff::default();
        let mut wait = delay;
        loop {
            sleep(wait).await;
            let since = Instant::now();
            let turn = dials.acquire().await;
            let dialled = dialer.dial().await;
            let mut retry_after_ms = None;
            match dialled {
                Ok(socket) => {
                    let mut connection = Connection::new(&mut node, socket, started, &tally);
                    let reason = connection.welcome(turn).await;
                    let reason = if let Some(reason) = reason { reason } else { connection.serve().await };
                    tally.ended(reason);
                }
                Err(error) => {
                    retry_after_ms = error.retry_after_ms();
                    tally.refused(error.to_string());
                }
            }
            let lived_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            wait = Duration::from_millis(backoff.next_delay_ms(lived_ms, retry_after_ms, rand::random()));
        }
    }
}

/// One connection of one node.
struct Connection<'n> {
    node: &'n mut Node,
    reader: Reader<Stream>,
    writer: Writer<Stream>,
    started: tokio::time::Instant,
    tally: &'n Tally,
    /// When each heartbeat that is not acknowledged was sent, and whether it counts.
    unacknowledged: VecDeque<(Instant, bool)>,
    open: bool,
    alarm: Alarm,
}

impl<'n> Connection<'n> {
    fn new(node: &'n mut Node, socket: Socket<Stream>, started: tokio::time::Instant, tally: &'n Tally) -> Self {
        let (reader, writer) = socket.split();
        let unacknowledged = VecDeque::new();
        let connection =
            Self { node, reader, writer, started, tally, unacknowledged, open: false, alarm: Alarm::default() };
        connection.node.handle_opened(connection.now());
        connection
    }

    /// Holds its turn among those who dial until `welcome` has come. Gives the reason of an early end.
    async fn welcome<T>(&mut self, turn: T) -> Option<String> {
        while self.node.live().is_none() {
            if let Err(reason) = self.step().await {
                return Some(reason);
            }
        }
        drop(turn);
        self.open = true;
        self.tally.opened_one();
        None
    }

    /// Until the connection ends, for whatever reason.
    async fn serve(&mut self) -> String {
        loop {
            if let Err(reason) = self.step().await {
                return reason;
            }
        }
    }

    /// One input, and everything that follows from it.
    async fn step(&mut self) -> Result<(), String> {
        self.perform().await?;
        let wake = self.node.poll_timeout().map(|(at, _)| self.started + Duration::from_millis(at.0));
        let may_read = self.node.may_read();
        tokio::select! {
            incoming = self.reader.next(), if may_read => self.receive(incoming)?,
            () = self.alarm.reached(wake) => self.node.handle_timeout(self.now()),
        }
        self.perform().await
    }

    fn receive(&mut self, incoming: Incoming) -> Result<(), String> {
        let now = self.now();
        match incoming {
            Incoming::Text(text) => {
                if matches!(wire::decode_text(&text), Ok(Frame::HeartbeatAck(_))) {
                    self.acknowledged();
                }
                self.node.handle_message(now, &text);
            }
            Incoming::Fragment => self.node.handle_fragment(now),
            Incoming::Binary => self.node.handle_binary(now),
            Incoming::Closed(reason) => {
                self.node.handle_closed(now);
                return Err(reason.to_string());
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self) {
        if let Some((sent, true)) = self.unacknowledged.pop_front() {
            self.tally.acknowledged(sent.elapsed());
        }
    }

    async fn perform(&mut self) -> Result<(), String> {
        let mut heartbeat = false;
        while let Some(action) = self.node.poll_action() {
            match action {
                Action::MeasureHealth => {
                    heartbeat = self.node.live().is_some();
                    self.node.handle_health(self.now(), health(), rand::random());
                }
                Action::Send(message) => {
                    if std::mem::take(&mut heartbeat) {
                        self.unacknowledged.push_back((Instant::now(), self.tally.sent()));
                    }
                    let bytes = message.len();
                    self.writer.send_text(message).await.map_err(|error| error.to_string())?;
                    self.node.handle_written(self.now(), bytes);
                }
                Action::StoreEpoch(epoch) => self.node.handle_epoch_stored(self.now(), epoch),
                Action::Execute { ticket, call, .. } => {
                    let outcome = Err(unknown(call.operation.method()).into());
                    self.node.handle_result(self.now(), ticket, outcome);
                }
                Action::Remove(reference) => self.node.handle_removed(self.now(), reference.generation, true),
                Action::Task(_) | Action::CancelRemoval(_) => {}
                Action::Close(ended) => return Err(ended.to_string()),
            }
        }
        Ok(())
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if self.open {
            self.tally.closed_one();
        }
    }
}

/// A small host, busy at random.
fn health() -> Health<'static> {
    let share = f64::from(rand::random::<u8>()) / 256.0;
    Health {
        observed_at: jiff::Timestamp::now().to_string().into(),
        active_operations: 0,
        cpu_utilization: Some(share),
        total_memory_bytes: Some(16 << 30),
        effective_cpu_cores: Some(8.0),
        cpu_count: Some(8),
        available_memory_bytes: Some(8 << 30),
        available_disk_bytes: Some((64 << 30) + u64::from(rand::random::<u16>()) * 4096),
        generations: Vec::new(),
    }
}
