//! The task of one connection: it does what the machine says, and tells it what came of it.

use std::collections::HashMap;
use std::future::pending;
use std::pin::{Pin, pin};

use palisade_core::lifecycle::CallError;
use palisade_core::limits::CALLBACK_TIMEOUT_MS;
use palisade_core::operation::{Asked, Call, Fencing};
use palisade_core::outcome::judge;
use palisade_core::session::hub::presence::Connected;
use palisade_core::session::hub::{
    Action, Callback, Cause, CloseReason, Connection, Delivery, Readiness, Reply, Submission, Uncertain, Write,
};
use palisade_core::units::{Id, Sequence};
use palisade_core::wire::{Frame, IntoOwned as _, decode_text, encode};
use palisade_socket::{Alarm, Incoming, Reader, Writer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::call::{Outcome, Room};
use super::line::{Line, Order};
use super::{Bounds, Denied, Peer, Reservation};

/// A request and its caller.
pub(super) struct Request {
    pub(super) submission: Submission,
    pub(super) asked: Asked,
    /// Until it is sent.
    pub(super) call: Option<Call<'static>>,
    pub(super) answer: oneshot::Sender<Outcome>,
    pub(super) room: Room,
}

type Running<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// One connection from its upgrade to the end of its last storage call.
pub(super) struct Driver<S> {
    reservation: Reservation,
    machine: Connection,
    bearer: String,
    /// Until the connection closes.
    socket: Option<(Reader<S>, Writer<S>)>,
    /// The room of the request that is being written, free again as soon as it is.
    writing: Option<OwnedSemaphorePermit>,
    callback: Running<Reply>,
    cancel: CancellationToken,
    requests: HashMap<Id, Box<Request>>,
    line: Line,
    readiness: watch::Sender<Readiness>,
    alarm: Alarm,
    finished: bool,
}

/// What happened next.
enum Input {
    Message(Incoming),
    Written(bool),
    Callback(Reply),
    Order(Order),
    Stop,
    Timeout,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Driver<S> {
    pub(super) fn new(
        reservation: Reservation,
        machine: Connection,
        bearer: String,
        socket: (Reader<S>, Writer<S>),
    ) -> Self {
        Self {
            reservation,
            machine,
            bearer,
            socket: Some(socket),
            writing: None,
            callback: None,
            cancel: CancellationToken::new(),
            requests: HashMap::new(),
            line: Line::default(),
            readiness: watch::Sender::default(),
            alarm: Alarm::default(),
            finished: false,
        }
    }

    /// One input, then everything that follows from it, until nothing can follow.
    pub(super) async fn run(mut self) {
        let stop = self.reservation.stop.clone();
        let mut stopped = pin!(stop.cancelled());
        while !self.finished {
            match self.next(stopped.as_mut()).await {
                Input::Message(incoming) => self.receive(incoming),
                Input::Written(written) => {
                    self.writing = None;
                    self.machine.handle_written(self.now(), written);
                }
                Input::Callback(reply) => self.machine.handle_callback(self.now(), reply),
                Input::Order(order) => self.order(order),
                Input::Stop => self.machine.handle_close(self.now(), CloseReason::Asked),
                Input::Timeout => self.machine.handle_timeout(self.now()),
            }
            self.drain();
        }
    }

    async fn next(&mut self, stopped: Pin<&mut WaitForCancellationFuture<'_>>) -> Input {
        let shared = &self.reservation.shared;
        let wake = self.machine.poll_timeout().map(|(at, _)| shared.instant(at));
        let (listens, open) = (self.machine.accepts_frames(), self.socket.is_some());
        tokio::select! {
            biased;
            () = stopped, if open => Input::Stop,
            reply = resume(&mut self.callback) => Input::Callback(reply),
            order = self.line.next() => Input::Order(order),
            input = exchange(&mut self.socket, listens) => input,
            () = self.alarm.reached(wake) => Input::Timeout,
        }
    }

    fn receive(&mut self, incoming: Incoming) {
        let now = self.now();
        let text = match incoming {
            Incoming::Text(text) => text,
            Incoming::Fragment => return self.machine.handle_fragment(now),
            Incoming::Binary => return self.machine.handle_close(now, CloseReason::Violation),
            Incoming::Closed(_) => return self.machine.handle_close(now, CloseReason::PeerGone),
        };
        let frame = match decode_text(&text) {
            Ok(frame) => frame,
            Err(violation) => {
                let connection = self.machine.connection_id();
                tracing::warn!(node = %self.reservation.node, %connection, %violation, "an invalid frame");
                return self.machine.handle_close(now, CloseReason::Violation);
            }
        };
        if let Some(Delivery { id, response }) = self.machine.handle_frame(now, frame)
            && let Some(request) = self.requests.remove(&id)
        {
            let outcome = match judge(&request.asked, *response) {
                Ok(answer) => Ok(answer.into_owned()),
                Err(failed) => Err(CallError::Failed(failed.into_owned())),
            };
            answer(request, outcome);
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Request(request) => {
                let submission = request.submission;
                self.requests.insert(submission.id, request);
                self.machine.handle_request(self.now(), submission);
            }
            Order::Cancel(id) => self.machine.handle_cancel(id),
        }
    }

    fn drain(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Call(callback) => self.call(callback),
                Action::CancelCallback => self.cancel.cancel(),
                Action::Write(write) => self.write(write),
                Action::Publish => self.publish(),
                Action::Abandon { id, outcome } => self.abandon(id, outcome),
                Action::Close(reason) => self.close(reason),
                Action::Finish => self.finished = true,
            }
        }
        if *self.readiness.borrow() != *self.machine.readiness() {
            self.readiness.send_replace(self.machine.readiness().clone());
            self.reservation.shared.changed();
        }
    }

    fn publish(&self) {
        tracing::info!(node = %self.reservation.node, connection = %self.machine.connection_id(), "node connected");
        self.reservation.publish(Peer {
            owner_epoch: self.machine.owner_epoch(),
            line: self.line.clone(),
            readiness: self.readiness.subscribe(),
        });
    }

    fn close(&mut self, reason: CloseReason) {
        let connection = self.machine.connection_id();
        tracing::info!(node = %self.reservation.node, %connection, %reason, "node connection closed");
        self.reservation.close();
        self.socket = None;
        self.writing = None;
    }

    fn abandon(&mut self, id: Id, outcome: Uncertain) {
        if let Some(request) = self.requests.remove(&id) {
            answer(request, Err(CallError::Uncertain(outcome)));
        }
    }

    fn write(&mut self, write: Write) {
        let frame = match write {
            Write::Welcome(announcement) => Some(Frame::Welcome(announcement)),
            Write::HeartbeatAck(announcement) => Some(Frame::HeartbeatAck(announcement)),
            Write::RetentionAck { exchange, retentions, deployment } => {
                Some(Frame::RetentionAck { exchange, retentions, deployment })
            }
            Write::Request { id, sequence, timeout_ms } => self.request(id, sequence, timeout_ms),
        };
        match (&mut self.socket, frame.map(|frame| encode(&frame))) {
            (Some((_, writer)), Some(Ok(text))) => writer.push(text),
            (_, encoded) => {
                let error = encoded.and_then(Result::err).map(tracing::field::display);
                tracing::error!(node = %self.reservation.node, error, "a frame of our own could not be written");
                self.machine.handle_written(self.now(), false);
            }
        }
    }

    fn request(&mut self, id: Id, sequence: Sequence, timeout_ms: u64) -> Option<Frame<'static>> {
        let request = self.requests.get_mut(&id)?;
        let call = request.call.take()?;
        self.writing = request.room.request.take();
        let connection_id = self.machine.connection_id();
        let fencing = Fencing { sequence, owner_epoch: self.machine.owner_epoch(), connection_id };
        Some(Frame::Request(Box::new(Call { timeout_ms, ..call }.into_request(fencing))))
    }

    fn call(&mut self, callback: Callback) {
        self.cancel = CancellationToken::new();
        let shared = &self.reservation.shared;
        let deadline = shared.instant(shared.now().after(CALLBACK_TIMEOUT_MS));
        let bounds = Bounds { deadline, cancel: self.cancel.clone() };
        let (records, node, bearer) = (shared.records.clone(), self.reservation.node, self.bearer.clone());
        let connection =
            Connected { connection_id: self.machine.connection_id(), owner_epoch: self.machine.owner_epoch() };
        self.callback = Some(Box::pin(async move {
            let reply = match callback {
                Callback::Connect => records.connect(&bounds, node, connection).await.map(|()| Reply::Done),
                Callback::Record(health) => {
                    records.record(&bounds, node, connection, &health).await.map(Reply::Recorded)
                }
                Callback::Deployment => records.deployment(&bounds, node).await.map(Reply::Deployment),
                Callback::Authenticate => match records.authenticate(&bounds, node, &bearer).await {
                    Ok(identity) => Ok(Reply::Authenticated(Box::new(identity))),
                    Err(Denied::Rejected) => Ok(Reply::Failed),
                    Err(Denied::Failed(failed)) => Err(failed),
                },
                Callback::Epoch => records.owner_epoch(&bounds).await.map(Reply::Epoch),
                Callback::Retain(references) => {
                    let retained = records.retain(&bounds, node, connection, &references).await;
                    retained.map(|(retentions, deployment)| Reply::Retained(retentions, deployment))
                }
                Callback::Disconnect => records.disconnect(&bounds, node, connection).await.map(|()| Reply::Done),
            };
            reply.unwrap_or(Reply::Failed)
        }));
    }

    fn now(&self) -> palisade_core::units::Millis {
        self.reservation.shared.now()
    }
}

impl<S> Drop for Driver<S> {
    fn drop(&mut self) {
        for order in self.line.close() {
            if let Order::Request(request) = order {
                answer(request, Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent: false })));
            }
        }
    }
}

/// A caller that is gone does not want to know.
fn answer(request: Box<Request>, outcome: Outcome) {
    drop(request.answer.send(outcome));
}

/// The end of what runs; never, when nothing runs.
async fn resume<T>(running: &mut Running<T>) -> T {
    match running {
        Some(work) => {
            let done = work.await;
            *running = None;
            done
        }
        None => pending().await,
    }
}

/// What was written, before what was read; never, when there is no socket any more.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Option<(Reader<S>, Writer<S>)>,
    listens: bool,
) -> Input {
    let Some((reader, writer)) = socket else { return pending().await };
    tokio::select! {
        biased;
        written = writer.sent() => Input::Written(written.is_ok()),
        incoming = reader.next(), if listens => Input::Message(incoming),
    }
}
