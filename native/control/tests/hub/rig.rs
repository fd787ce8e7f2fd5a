//! A Core that listens, and nodes that dial it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use palisade_control::hub::{Hub, Placement};
use palisade_control::store::{Location, Store};
use palisade_control::{Core, CoreKeys, Execution, http};
use palisade_core::deployment::contract::Provider;
use palisade_core::limits::HUB_BYTES_MAX;
use palisade_core::operation::Operation;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::frame::{Announcement, Request, Response};
use palisade_core::wire::payload::{
    Command, CommandResult, Health, Identity, Info, Observation, ObservedState, Reference,
};
use palisade_core::wire::{Frame, IntoOwned as _, decode_text, encode};
use palisade_socket::{Answer, Incoming, Reader, Socket, UpgradeError, Writer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::contract;
use crate::fake::{Fake, credential, generation, identity};

pub(crate) const NODE: Id = Id::from_random([1; 16]);
pub(crate) const OTHER: Id = Id::from_random([2; 16]);
/// Long enough for anything that is not stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A listening Core over [`Fake`] records.
pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) hub: Hub,
    pub(crate) records: Arc<Fake>,
    _directory: tempfile::TempDir,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with_budget(HUB_BYTES_MAX).await
    }

    pub(crate) async fn with_budget(bytes: u64) -> Self {
        let records = Arc::new(Fake::default());
        records.enroll(NODE);
        records.enroll(OTHER);
        let hub = Hub::with_budget(records.clone(), bytes);
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&Location::Directory(directory.path().to_owned())).await.unwrap();
        let keys = CoreKeys::read(Some("core-key-of-the-hub-tests"), None).unwrap();
        let core = Core::new(store, keys, "https://core.example".to_owned(), Execution::fixed(None), hub.clone());
        Self { address: listen(core).await, hub, records, _directory: directory }
    }

    /// A dial that was not upgraded.
    pub(crate) async fn refused(&self, node: Id) -> Answer {
        match dial(self.address, node, &credential(node)).await {
            Err(UpgradeError::Refused(answer)) => {
                let held = contract::Answer::new(answer.status, &answer.headers, &answer.body);
                contract::check(&Method::GET, "/api/v1/sandbox-node/connect", &held);
                *answer
            }
            Err(error) => panic!("expected an answer, got {error}"),
            Ok(_) => panic!("expected an answer, got a connection"),
        }
    }

    /// Dials until the identity is free.
    pub(crate) async fn connect(&self, node: Id) -> Peer {
        let socket = loop {
            match dial(self.address, node, &credential(node)).await {
                Ok(socket) => break socket,
                Err(UpgradeError::Refused(answer)) if answer.status == 409 => tokio::task::yield_now().await,
                Err(error) => panic!("cannot connect: {error}"),
            }
        };
        Peer::new(socket, node)
    }

    /// A live connection; generation 3 is ready, 4 is not.
    pub(crate) async fn live(&self, node: Id) -> Peer {
        let mut peer = self.connect(node).await;
        peer.open().await;
        self.published(node).await;
        peer
    }

    pub(crate) async fn published(&self, node: Id) {
        self.until(|hub| hub.is_live(node)).await;
    }

    pub(crate) async fn gone(&self, node: Id) {
        self.until(|hub| !hub.is_live(node)).await;
    }

    async fn until(&self, holds: impl Fn(&Hub) -> bool) {
        let mut changes = self.hub.changes().unwrap();
        while !holds(&self.hub) {
            changes.changed().await.unwrap();
        }
    }

    /// A call in a task of its own.
    pub(crate) fn call(&self, operation: Operation<'static>, budget_ms: u64) -> Calling {
        self.call_on(NODE, 3, operation, budget_ms)
    }

    pub(crate) fn call_on(&self, node: Id, on: u64, operation: Operation<'static>, budget_ms: u64) -> Calling {
        let (hub, budget) = (self.hub.clone(), Duration::from_millis(budget_ms));
        let placement = Placement { provider: Provider::Docker, node, generation: generation(on) };
        tokio::spawn(async move { hub.call(placement, reference(), operation, budget).await })
    }
}

pub(crate) type Calling = tokio::task::JoinHandle<palisade_control::hub::Outcome>;

pub(crate) async fn listen(core: Core) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(http::listen(listener, http::router(core), CancellationToken::new()));
    address
}

pub(crate) async fn dial(address: SocketAddr, node: Id, bearer: &str) -> Result<Socket<TcpStream>, UpgradeError> {
    let request = hyper::Request::get(format!("/api/v1/sandbox-node/connect?node_id={node}"))
        .header("Host", address.to_string())
        .header("Authorization", format!("Bearer {bearer}"))
        .body(())
        .unwrap();
    Socket::client(TcpStream::connect(address).await.unwrap(), request).await
}

pub(crate) fn reference() -> Reference {
    Reference {
        tenant: Id::from_random([21; 16]),
        environment: Id::from_random([31; 16]),
        allocation: Id::from_random([41; 16]),
    }
}

pub(crate) fn command(stdin: usize) -> Operation<'static> {
    let stdin = (stdin > 0).then(|| Cow::Owned(vec![b'x'; stdin]));
    Operation::RunCommand(Command { args: vec!["/bin/true".into()], directory: "".into(), stdin })
}

pub(crate) fn health(states: &[(u64, bool)]) -> Health<'static> {
    let state = |ready| {
        if ready { ObservedState::Ready { checkpoint: None } } else { ObservedState::Preparing { diagnostic: None } }
    };
    let observation = |(value, ready): &(u64, bool)| Observation {
        generation: generation(*value),
        specification_digest: Digest::of(b"specification"),
        state: state(*ready),
    };
    palisade_core::testing::health(states.iter().map(observation))
}

/// A node's end of a connection.
pub(crate) struct Peer {
    pub(crate) reader: Reader<TcpStream>,
    pub(crate) writer: Writer<TcpStream>,
    pub(crate) identity: Identity<'static>,
    pub(crate) connection_id: Id,
    pub(crate) owner_epoch: OwnerEpoch,
}

impl Peer {
    pub(crate) fn new(socket: Socket<TcpStream>, node: Id) -> Self {
        let (reader, writer) = socket.split();
        Self { reader, writer, identity: identity(node), connection_id: node, owner_epoch: OwnerEpoch::FIRST }
    }

    pub(crate) async fn send(&mut self, frame: Frame<'_>) {
        self.writer.send_text(encode(&frame).unwrap()).await.unwrap();
    }

    pub(crate) async fn hello(&mut self) {
        let identity = self.identity.clone();
        self.send(Frame::Hello { identity, health: health(&[(3, true), (4, false)]) }).await;
    }

    /// Says hello and takes the welcome.
    pub(crate) async fn open(&mut self) -> Announcement {
        self.hello().await;
        let Some(Frame::Welcome(welcome)) = self.next(control).await else { panic!("expected a welcome") };
        (self.connection_id, self.owner_epoch) = (welcome.connection_id, welcome.owner_epoch);
        welcome
    }

    pub(crate) async fn heartbeat(&mut self) {
        let (connection_id, owner_epoch) = (self.connection_id, self.owner_epoch);
        self.send(Frame::Heartbeat { connection_id, owner_epoch, health: health(&[]) }).await;
    }

    /// The next frame; `None` when the connection ended.
    pub(crate) async fn next<T>(&mut self, read: impl Fn(Frame<'_>) -> T) -> Option<T> {
        loop {
            match self.reader.next().await {
                Incoming::Text(text) => return Some(read(decode_text(&text).unwrap())),
                Incoming::Fragment => {}
                Incoming::Binary => panic!("core sent a binary message"),
                Incoming::Closed(_) => return None,
            }
        }
    }

    pub(crate) async fn acknowledged(&mut self) -> bool {
        matches!(self.next(control).await, Some(Frame::HeartbeatAck(_)))
    }

    pub(crate) async fn request(&mut self) -> Asked {
        self.next(|frame| match frame {
            Frame::Request(request) => Asked::of(&request),
            other => panic!("expected a request, got {other:?}"),
        })
        .await
        .expect("a request")
    }

    /// Whether the connection ends before another frame comes.
    pub(crate) async fn ended(&mut self) -> bool {
        self.next(|_| ()).await.is_none()
    }

    pub(crate) async fn answer(&mut self, asked: &Asked, response: Response<'static>) {
        let connection_id = Some(self.connection_id);
        let response = Response { id: asked.id.clone().into(), connection_id, ..response };
        self.send(Frame::Response(Box::new(response))).await;
    }
}

/// What a request said.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) operation: String,
    pub(crate) sequence: u64,
    pub(crate) timeout_ms: i64,
    pub(crate) generation: Generation,
    pub(crate) info: Info<'static>,
    pub(crate) args: Vec<String>,
}

impl Asked {
    fn of(request: &Request<'_>) -> Self {
        let args = request.command.iter().flat_map(|command| command.args.iter().map(ToString::to_string));
        Self {
            id: request.id.to_string(),
            operation: request.operation.to_string(),
            sequence: request.sequence.get(),
            timeout_ms: request.timeout_ms,
            generation: request.deployment_generation,
            info: Info {
                reference: request.reference.clone().into_owned(),
                provider_id: "native-1".into(),
                state: "running".into(),
                bootstrap_complete: true,
                create_settled: true,
            },
            args: args.collect(),
        }
    }

    pub(crate) fn running(&self) -> Response<'static> {
        Response { info: Some(self.info.clone()), ..Response::default() }
    }

    pub(crate) fn absent(&self) -> Response<'static> {
        let absent =
            Info { provider_id: "".into(), state: "absent".into(), bootstrap_complete: false, ..self.info.clone() };
        Response { info: Some(absent), ..Response::default() }
    }
}

pub(crate) fn exited(exit_code: i64) -> Response<'static> {
    let result = CommandResult { stdout: "out\n".into(), stderr: "".into(), exit_code };
    Response { command: Some(result), ..Response::default() }
}

pub(crate) fn control(frame: Frame<'_>) -> Frame<'static> {
    match frame {
        Frame::Welcome(announcement) => Frame::Welcome(announcement),
        Frame::HeartbeatAck(announcement) => Frame::HeartbeatAck(announcement),
        Frame::RetentionAck { exchange, retentions, deployment } => {
            Frame::RetentionAck { exchange, retentions, deployment }
        }
        other => panic!("expected a control frame of core, got {other:?}"),
    }
}
