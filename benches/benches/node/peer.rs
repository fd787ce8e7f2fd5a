//! The least Core that a node works for: it approves, welcomes, acknowledges heartbeats, and asks one thing at a time.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use palisade_core::operation::{Call, Fencing, Operation};
use palisade_core::units::{Id, OwnerEpoch, Sequence};
use palisade_core::wire;
use palisade_core::wire::IntoOwned as _;
use palisade_core::wire::frame::{Announcement, Frame, Response};
use palisade_core::wire::payload::{Deployment, Health, ObservedState, Reference};
use palisade_socket::{Incoming, Reader, Socket, Writer, accept_key};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Budget of every request, in milliseconds: ample, nothing here tests it.
const BUDGET_MS: u64 = 60_000;

/// Core's end of the node's connection.
pub(crate) struct Peer {
    reader: Reader<TcpStream>,
    writer: Writer<TcpStream>,
    announcement: Announcement,
    sequence: u64,
}

impl Peer {
    /// Answers everything that a node asks over HTTP, until it connects.
    pub(crate) async fn accept(
        listener: &TcpListener,
        deployment: Deployment,
        installation: Id,
    ) -> anyhow::Result<Self> {
        loop {
            let (mut stream, _) = listener.accept().await?;
            let (head, body) = read_request(&mut stream).await?;
            if let Some(key) = header(&head, "sec-websocket-key") {
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: {}\r\n\r\n",
                    accept_key(key.as_bytes())
                );
                stream.write_all(answer.as_bytes()).await?;
                stream.set_nodelay(true)?;
                return Self::welcome(stream, deployment).await;
            }
            let approval = approval(&head, &body, deployment, installation)?.to_string();
            let length = approval.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{approval}");
            stream.write_all(answer.as_bytes()).await?;
        }
    }

    async fn welcome(stream: TcpStream, deployment: Deployment) -> anyhow::Result<Self> {
        let (reader, writer) = Socket::accepted(stream, &[]).split();
        let connection_id = Id::from_random(rand::random());
        let announcement = Announcement { connection_id, owner_epoch: OwnerEpoch::FIRST, deployment };
        let mut peer = Self { reader, writer, announcement, sequence: 0 };
        peer.next(|frame| matches!(frame, Frame::Hello { .. }).then_some(())).await?;
        peer.send(&Frame::Welcome(announcement)).await?;
        peer.next(|frame| matches!(frame, Frame::Heartbeat { health, .. } if is_ready(&health)).then_some(())).await?;
        Ok(peer)
    }

    /// How long one operation took, from its request to its answer, and the answer.
    pub(crate) async fn ask(
        &mut self,
        reference: Reference,
        operation: Operation<'static>,
    ) -> anyhow::Result<(Duration, Response<'static>)> {
        self.sequence += 1;
        let call = Call {
            id: Id::from_random(rand::random()),
            deployment_generation: self.announcement.deployment.generation,
            reference,
            timeout_ms: BUDGET_MS,
            operation,
        };
        let request = call.into_request(Fencing {
            sequence: Sequence::new(self.sequence).context("sequences begin at 1")?,
            owner_epoch: self.announcement.owner_epoch,
            connection_id: self.announcement.connection_id,
        });
        let asked = Instant::now();
        self.send(&Frame::Request(Box::new(request))).await?;
        let response = self
            .next(|frame| match frame {
                Frame::Response(response) => Some(response.into_owned()),
                _ => None,
            })
            .await?;
        Ok((asked.elapsed(), *response))
    }

    /// The first frame that `pick` takes; heartbeats are acknowledged, whatever else comes is passed over.
    async fn next<T>(&mut self, pick: impl Fn(Frame<'_>) -> Option<T>) -> anyhow::Result<T> {
        loop {
            let text = match self.reader.next().await {
                Incoming::Text(text) => text,
                Incoming::Fragment => continue,
                Incoming::Binary => bail!("the node sent a binary message"),
                Incoming::Closed(reason) => bail!("the node closed the connection: {reason:?}"),
            };
            let frame = wire::decode_text(&text)?;
            if matches!(frame, Frame::Heartbeat { .. }) {
                self.send(&Frame::HeartbeatAck(self.announcement)).await?;
            }
            if let Some(picked) = pick(frame) {
                return Ok(picked);
            }
        }
    }

    async fn send(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        Ok(self.writer.send_text(wire::encode(frame)?).await?)
    }
}

fn is_ready(health: &Health<'_>) -> bool {
    health.generations.iter().any(|observation| matches!(observation.state, ObservedState::Ready { .. }))
}

/// What Core answers to an enrollment and to the identity route; the node is whoever it says it is.
fn approval(head: &str, body: &[u8], deployment: Deployment, installation: Id) -> anyhow::Result<Value> {
    let asked = head.split_once("node_id=").and_then(|(_, rest)| rest.split_whitespace().next()).map(str::to_owned);
    let named = || {
        let body: Value = serde_json::from_slice(body).ok()?;
        body["node_id"].as_str().map(str::to_owned)
    };
    let node_id = asked.or_else(named).context("the node names itself")?;
    Ok(json!({
        "specification_digest": deployment.specification_digest, "deployment_generation": deployment.generation,
        "node_id": node_id, "installation_id": installation, "provider": "docker", "max_active": 4, "max_retained": 8,
    }))
}

async fn read_request(stream: &mut TcpStream) -> anyhow::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let length = header(&head, "content-length").map_or(Ok(0), |length| length.trim().parse())?;
    ensure!(length <= 65_536, "a node's request is short");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((head, body))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
