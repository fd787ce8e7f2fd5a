//! A Core for tests: the other end of one connection, spoken frame by frame.

use palisade_core::operation::{Call, Fencing, Operation};
use palisade_core::units::{Generation, Id, OwnerEpoch, Sequence};
use palisade_core::wire;
use palisade_core::wire::frame::{Announcement, Frame, Request, Response};
use palisade_core::wire::payload::{Deployment, Health, Identity, Reference};
use palisade_socket::{Incoming, Reader, Socket, Writer, accept_key};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Reads one HTTP request's head.
pub(crate) async fn head<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a request arrives"));
    }
    String::from_utf8(head).expect("a head is text")
}

/// Answers an HTTP request and closes.
pub(crate) async fn answer<S: AsyncWrite + Unpin>(mut stream: S, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await.expect("the answer is taken");
    stream.shutdown().await.expect("the stream closes");
}

/// Core's end of one connection.
pub(crate) struct Peer<S> {
    reader: Reader<S>,
    writer: Writer<S>,
    connection_id: Id,
    epoch: OwnerEpoch,
    pub(crate) sequence: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Peer<S> {
    /// Upgrades a stream whose request has the given head.
    pub(crate) async fn upgrade(mut stream: S, head: &str) -> Self {
        let key = header(head, "sec-websocket-key").expect("a client sends a key");
        let accept = accept_key(key.as_bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).await.expect("the upgrade is taken");
        let (reader, writer) = Socket::accepted(stream, &[]).split();
        let connection_id = Id::from_random(rand::random());
        Self { reader, writer, connection_id, epoch: OwnerEpoch::FIRST, sequence: 0 }
    }

    /// The next frame; `None` when the connection ended.
    pub(crate) async fn frame(&mut self) -> Option<Frame<'static>> {
        loop {
            match self.reader.next().await {
                Incoming::Text(text) => {
                    let text: &'static str = Box::leak(text.to_string().into_boxed_str());
                    return Some(wire::decode_text(text).expect("the node sends valid frames"));
                }
                Incoming::Fragment => {}
                Incoming::Binary => panic!("the node sent a binary message"),
                Incoming::Closed(_) => return None,
            }
        }
    }

    pub(crate) async fn send(&mut self, frame: &Frame<'_>) {
        self.writer.send_text(wire::encode(frame).expect("a valid frame")).await.expect("the node reads");
    }

    pub(crate) async fn hello(&mut self) -> (Identity<'static>, Health<'static>) {
        match self.frame().await {
            Some(Frame::Hello { identity, health }) => (identity, health),
            other => panic!("expected hello, got {other:?}"),
        }
    }

    pub(crate) async fn welcome(&mut self, epoch: u64, deployment: Deployment) {
        self.hello().await;
        self.send_welcome(epoch, deployment).await;
    }

    pub(crate) async fn send_welcome(&mut self, epoch: u64, deployment: Deployment) {
        self.epoch = OwnerEpoch::new(epoch).expect("a positive epoch");
        self.send(&Frame::Welcome(self.announcement(deployment))).await;
    }

    fn announcement(&self, deployment: Deployment) -> Announcement {
        Announcement { connection_id: self.connection_id, owner_epoch: self.epoch, deployment }
    }

    /// The next heartbeat, acknowledged; other frames are passed over.
    pub(crate) async fn heartbeat(&mut self, deployment: Deployment) -> Health<'static> {
        loop {
            match self.frame().await {
                Some(Frame::Heartbeat { health, .. }) => {
                    self.acknowledge(deployment).await;
                    return health;
                }
                Some(_) => {}
                None => panic!("the connection ended before a heartbeat"),
            }
        }
    }

    /// Acknowledges a heartbeat that was read.
    pub(crate) async fn acknowledge(&mut self, deployment: Deployment) {
        self.send(&Frame::HeartbeatAck(self.announcement(deployment))).await;
    }

    /// Sends a request with the next sequence; gives back its identifier.
    pub(crate) async fn request(
        &mut self,
        generation: Generation,
        reference: Reference,
        operation: Operation<'static>,
        timeout_ms: u64,
    ) -> Id {
        let id = Id::from_random(rand::random());
        let call = Call { id, deployment_generation: generation, reference, timeout_ms, operation };
        let request = self.next(call);
        self.send(&Frame::Request(Box::new(request))).await;
        id
    }

    /// `call` with the next sequence.
    pub(crate) fn next(&mut self, call: Call<'static>) -> Request<'static> {
        self.sequence += 1;
        call.into_request(Fencing {
            sequence: Sequence::new(self.sequence).expect("a positive sequence"),
            owner_epoch: self.epoch,
            connection_id: self.connection_id,
        })
    }

    /// The next response; heartbeats are passed over unanswered.
    pub(crate) async fn response(&mut self) -> Response<'static> {
        loop {
            match self.frame().await {
                Some(Frame::Response(response)) => return *response,
                Some(_) => {}
                None => panic!("the connection ended before a response"),
            }
        }
    }

    /// Reads until the connection ends.
    pub(crate) async fn ended(&mut self) {
        while self.frame().await.is_some() {}
    }
}

/// A header's value in a request's head, whatever the case of its name.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
