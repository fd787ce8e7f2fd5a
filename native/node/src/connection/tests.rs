//! The loop over streams in memory, under a stopped clock: every wait is exact, and nothing sleeps.

mod generations;

use std::sync::Mutex;

use palisade_core::limits::STOP_GRACE_MS;
use palisade_core::operation::{Call, Method, Operation};
use palisade_core::testing::{digest, generation, health, identity};
use palisade_core::units::Id;
use palisade_core::wire::frame::{Frame, Request};
use palisade_core::wire::payload::{Command, Deployment, GenerationReference, Health, ObservedState, Reference};
use palisade_provider::testing::{Fault, FaultProvider, bootstrap, reference};
use tokio::io::DuplexStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use palisade_core::generation::{Found, Table};

use super::peer::{self, Peer};
use super::*;
use crate::host::Work;

const EPOCH: u64 = 9;
/// Small, so that a peer that does not read is noticed.
const PIPE_BYTES: usize = 64 * 1024;

struct Memory {
    streams: UnboundedSender<DuplexStream>,
    epochs: Arc<Mutex<Vec<OwnerEpoch>>>,
    hang: bool,
}

impl Host for Memory {
    type Stream = DuplexStream;

    fn dial(&self) -> Dial<DuplexStream> {
        let (node, core) = tokio::io::duplex(PIPE_BYTES);
        drop(self.streams.send(core));
        Box::pin(async {
            let mut request = hyper::Request::new(());
            *request.uri_mut() = hyper::Uri::from_static("/api/v1/sandbox-node/connect");
            Socket::client(node, request).await.map_err(|error| DialError::Unreachable(error.to_string()))
        })
    }

    fn sampler(&self) -> Box<Sampler> {
        let (hang, mut samples) = (self.hang, 0);
        worker::beside(move || {
            samples += 1;
            if hang {
                std::thread::park_timeout(Duration::from_millis(50));
            }
            Health { cpu_count: Some(samples), ..health([]) }
        })
    }

    fn store_epoch(&self, epoch: OwnerEpoch) -> Work<bool> {
        self.epochs.lock().unwrap().push(epoch);
        Box::pin(async { true })
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}

fn deployment(target: u64) -> Deployment {
    palisade_core::testing::deployment(target, Some(target))
}

/// A running node, and the streams it dials.
struct Running {
    providers: Vec<Arc<FaultProvider>>,
    streams: UnboundedReceiver<DuplexStream>,
    epochs: Arc<Mutex<Vec<OwnerEpoch>>>,
    stop: CancellationToken,
    node: JoinHandle<End>,
}

impl Running {
    /// A node of one generation for each provider, numbered from 1.
    fn start(count: u64) -> Self {
        Self::start_on(count, false)
    }

    fn start_on(count: u64, hang: bool) -> Self {
        Self::start_with(count, hang, |connections| connections)
    }

    fn start_with(count: u64, hang: bool, adapt: impl FnOnce(Connections<Memory>) -> Connections<Memory>) -> Self {
        let providers: Vec<_> = (1..=count).map(|number| Arc::new(FaultProvider::new(generation(number)))).collect();
        let found = providers.iter().map(|provider| {
            let (generation, declaration) = (provider.generation(), provider.declaration().clone());
            let reference = GenerationReference { generation, specification_digest: digest(generation.get()) };
            (reference, Found::Provider(declaration))
        });
        let node = Node::new(identity(), None, Table::new(found));
        let (streams, dialled) = unbounded_channel();
        let epochs = Arc::default();
        let host = Memory { streams, epochs: Arc::clone(&epochs), hang };
        let by_generation = providers.iter().map(|provider| {
            let provider: Arc<dyn Provider> = Arc::clone(provider) as Arc<dyn Provider>;
            (provider.generation(), provider)
        });
        let stop = CancellationToken::new();
        let connections = adapt(Connections::new(node, host, by_generation.collect()));
        let node = tokio::spawn(connections.run(stop.clone()));
        Self { providers, streams: dialled, epochs, stop, node }
    }

    fn provider(&self) -> &FaultProvider {
        &self.providers[0]
    }

    /// The next connection, upgraded.
    async fn peer(&mut self) -> Peer<DuplexStream> {
        let mut stream = self.streams.recv().await.expect("the node dials");
        let head = peer::head(&mut stream).await;
        Peer::upgrade(stream, &head).await
    }

    /// The next connection, live, with every generation probed.
    async fn ready(&mut self) -> Peer<DuplexStream> {
        let mut peer = self.peer().await;
        let target = self.providers.len() as u64;
        peer.welcome(EPOCH, deployment(target)).await;
        while peer.heartbeat(deployment(target)).await.generations.iter().any(|seen| !is_ready(&seen.state)) {}
        peer
    }

    async fn stop(self) -> End {
        self.stop.cancel();
        self.node.await.unwrap()
    }
}

fn is_ready(state: &ObservedState<'_>) -> bool {
    matches!(state, ObservedState::Ready { .. })
}

fn create(reference: Reference) -> Operation<'static> {
    Operation::Create(Box::new(bootstrap(reference)))
}

fn command() -> Operation<'static> {
    Operation::RunCommand(Command { args: vec!["/bin/true".into()], directory: "".into(), stdin: None })
}

/// W 33. Request 1 is answered, a second request with its sequence ends the connection.
/// W 34. The provider was called exactly once.
/// W 35. The epoch from welcome is stored.
#[tokio::test(start_paused = true)]
async fn a_repeated_sequence_ends_the_connection_and_the_node_dials_again() {
    let mut running = Running::start(1);
    let mut peer = running.ready().await;
    let sandbox = reference(1);
    let id = peer.request(generation(1), sandbox, create(sandbox), 5_000).await;
    assert_eq!(peer.response().await.id, id.to_string());
    peer.sequence -= 1;
    peer.request(generation(1), sandbox, Operation::Kill, 5_000).await;
    peer.ended().await;
    assert_eq!(running.provider().calls(), [(Method::Create, sandbox)]);
    assert_eq!(*running.epochs.lock().unwrap(), [OwnerEpoch::new(EPOCH).unwrap()]);
    running.ready().await;
    assert_eq!(running.stop().await, End::Stopped);
}

/// W 36. A lower epoch ends the connection; the node dials on (decision 9).
/// H 248. It is an ownership failure, and nothing is stored.
#[tokio::test(start_paused = true)]
async fn a_lower_epoch_ends_the_connection() {
    let mut running = Running::start(1);
    running.ready().await;
    let mut peer = running.peer().await;
    peer.welcome(EPOCH - 1, deployment(1)).await;
    peer.ended().await;
    assert_eq!(running.epochs.lock().unwrap().len(), 1);
    running.ready().await;
}

/// W 41. A create whose answer nobody waits for any more is not repeated.
/// W 43. After a forced disconnect the node connects again.
/// W 44. A kill over the new connection waits while the old create runs.
/// W 45. It runs once the create ended: one create, one kill, no replay.
#[tokio::test(start_paused = true)]
async fn a_lost_connection_neither_cancels_nor_replays() {
    let mut running = Running::start(1);
    running.provider().script(Method::Create, Fault::Hang);
    let mut peer = running.ready().await;
    let sandbox = reference(1);
    peer.request(generation(1), sandbox, create(sandbox), 120_000).await;
    running.provider().dispatched().await;
    drop(peer);
    let mut peer = running.ready().await;
    let kill = peer.request(generation(1), sandbox, Operation::Kill, 120_000).await;
    let health = peer.heartbeat(deployment(1)).await;
    assert_eq!(health.active_operations, 1);
    assert_eq!(running.provider().calls(), [(Method::Create, sandbox)]);
    running.provider().release();
    assert_eq!(peer.response().await.id, kill.to_string());
    assert_eq!(running.provider().calls(), [(Method::Create, sandbox), (Method::Kill, sandbox)]);
}

/// W 67. An idle node heartbeats within 12 s, measured anew, and its connection stays alive and usable.
/// W 160. Each connection takes a fresh sampler.
/// H 249. Acknowledgements are all that keeps it alive.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_stays_alive() {
    let mut running = Running::start(1);
    for _ in 0..2 {
        let mut peer = running.peer().await;
        let (_, hello) = peer.hello().await;
        assert_eq!(hello.cpu_count, Some(1));
        peer.send_welcome(EPOCH, deployment(1)).await;
        let mut last = Instant::now();
        for beat in 1..=20 {
            let health = peer.heartbeat(deployment(1)).await;
            assert_eq!(health.cpu_count, Some(beat + 1));
            assert_eq!(last.elapsed().as_secs(), 10);
            last = Instant::now();
        }
        let sandbox = reference(1);
        peer.request(generation(1), sandbox, Operation::Renew, 5_000).await;
        peer.response().await;
    }
}

/// E5, promise 10. With 32 hung operations and a host that cannot be measured, heartbeats keep their time.
#[tokio::test(start_paused = true)]
async fn heartbeats_are_on_time_whatever_hangs() {
    let mut running = Running::start_on(1, true);
    let mut peer = running.ready().await;
    let mut last = Instant::now();
    for number in 0..32 {
        running.provider().script(Method::RunCommand, Fault::Hang);
        peer.request(generation(1), reference(number), command(), 120_000).await;
    }
    for _ in 0..5 {
        let health = peer.heartbeat(deployment(1)).await;
        assert_eq!(health.active_operations, 32);
        let since = last.elapsed();
        assert!((Duration::from_secs(9)..=Duration::from_secs(11)).contains(&since), "{since:?}");
        last = Instant::now();
    }
}

/// W 70. A node whose generation is not ready serves info and kill, and refuses create at the execution.
/// W 71. What crosses the wire is the class alone.
/// W 72. No text of the failure appears in a heartbeat.
/// H 250. The degraded node keeps observing and cleaning up.
#[tokio::test(start_paused = true)]
async fn a_degraded_node_observes_and_cleans_up() {
    let mut running = Running::start(1);
    running.provider().set_not_ready(Some(Diagnostic::DockerUnavailable));
    let mut peer = running.peer().await;
    peer.welcome(EPOCH, deployment(1)).await;
    let health = peer.heartbeat(deployment(1)).await;
    let failed = ObservedState::Failed { diagnostic: Some(Diagnostic::DockerUnavailable) };
    assert_eq!(health.generations[0].state, failed);
    let sandbox = reference(1);
    peer.request(generation(1), sandbox, create(sandbox), 5_000).await;
    assert_eq!(peer.response().await.error_code.as_deref(), Some("unconfirmed"));
    peer.request(generation(1), sandbox, Operation::GetInfo, 5_000).await;
    assert_eq!(peer.response().await.error_code.as_deref(), Some("not_found"));
    peer.request(generation(1), sandbox, Operation::Kill, 5_000).await;
    peer.response().await;
    assert_eq!(running.provider().calls(), [(Method::GetInfo, sandbox), (Method::Kill, sandbox)]);
}

/// W 77. info on three generations reaches exactly its own provider.
/// W 78. create on ready generations likewise; no other provider is substituted.
/// H 246. Requests reach exactly the named generation's provider.
#[tokio::test(start_paused = true)]
async fn requests_reach_the_named_generation_alone() {
    let mut running = Running::start(3);
    let mut peer = running.ready().await;
    for number in 1..=3 {
        let sandbox = reference(number);
        peer.request(generation(number), sandbox, Operation::GetInfo, 5_000).await;
        peer.response().await;
        peer.request(generation(number), sandbox, create(sandbox), 5_000).await;
        assert_eq!(peer.response().await.error_code, None);
    }
    for (provider, number) in running.providers.iter().zip(1..) {
        let sandbox = reference(number);
        assert_eq!(provider.calls(), [(Method::GetInfo, sandbox), (Method::Create, sandbox)]);
    }
}

/// W 193. A full queue ends the connection, and nothing it queued is executed.
#[tokio::test(start_paused = true)]
async fn a_full_queue_ends_the_connection() {
    let mut running = Running::start(1);
    running.provider().script(Method::Create, Fault::Hang);
    let mut peer = running.ready().await;
    let sandbox = reference(1);
    peer.request(generation(1), sandbox, create(sandbox), 120_000).await;
    for _ in 0..33 {
        peer.request(generation(1), sandbox, Operation::Kill, 120_000).await;
    }
    peer.ended().await;
    running.provider().release();
    let mut peer = running.ready().await;
    peer.request(generation(1), sandbox, Operation::GetInfo, 120_000).await;
    peer.response().await;
    assert_eq!(running.provider().calls(), [(Method::Create, sandbox), (Method::GetInfo, sandbox)]);
}

/// W 196. A generation that became unready after the request came is judged when the operation would start.
#[tokio::test(start_paused = true)]
async fn readiness_is_judged_at_the_execution() {
    let mut running = Running::start(1);
    running.provider().script(Method::GetInfo, Fault::Hang);
    let mut peer = running.ready().await;
    let sandbox = reference(1);
    peer.request(generation(1), sandbox, Operation::GetInfo, 120_000).await;
    let late = peer.request(generation(1), sandbox, create(sandbox), 120_000).await;
    running.provider().set_not_ready(Some(Diagnostic::DockerUnavailable));
    while peer.heartbeat(deployment(1)).await.generations.iter().any(|seen| is_ready(&seen.state)) {}
    running.provider().release();
    peer.response().await;
    let response = peer.response().await;
    assert_eq!((response.id.as_ref(), response.error_code.as_deref()), (&*late.to_string(), Some("unconfirmed")));
    assert_eq!(running.provider().count(Method::Create), 0);
}

/// Wire §4.11: a repair that this node cannot carry out leaves the class that the probe found, at every heartbeat.
#[tokio::test(start_paused = true)]
async fn an_impossible_repair_keeps_the_class_of_the_probe() {
    let mut running = Running::start(1);
    running.provider().set_not_ready(Some(Diagnostic::RuntimeImageUnavailable));
    let mut peer = running.peer().await;
    peer.welcome(EPOCH, deployment(1)).await;
    let failed = ObservedState::Failed { diagnostic: Some(Diagnostic::RuntimeImageUnavailable) };
    for _ in 0..30 {
        assert_eq!(peer.heartbeat(deployment(1)).await.generations[0].state, failed);
    }
}

/// W 209. A peer that takes nothing for 10 s loses the connection, long before its silence would end it.
#[tokio::test(start_paused = true)]
async fn a_write_that_cannot_finish_ends_the_connection() {
    let mut running = Running::start(1);
    let mut peer = running.ready().await;
    let start = Instant::now();
    let operation = Operation::Kill;
    let id = Id::from_random([7; 16]);
    let call = Call { id, deployment_generation: generation(1), reference: reference(1), timeout_ms: 1, operation };
    let request = Request { id: "x".repeat(2 * PIPE_BYTES).into(), ..peer.next(call) };
    peer.send(&Frame::Request(Box::new(request))).await;
    running.peer().await.hello().await;
    assert!((10..=11).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// W 187. A Core that never answers hello, or falls silent, loses the connection.
#[tokio::test(start_paused = true)]
async fn a_silent_core_loses_the_connection() {
    let mut running = Running::start(1);
    let start = Instant::now();
    let mut peer = running.peer().await;
    peer.ended().await;
    assert_eq!(start.elapsed().as_secs(), 15);
    let mut peer = running.peer().await;
    peer.welcome(EPOCH, deployment(1)).await;
    let start = Instant::now();
    peer.ended().await;
    assert_eq!(start.elapsed().as_secs(), 35);
}

/// Stopping closes the connection at once and waits for what runs, up to its own deadline and the time to end it.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_runs() {
    let mut running = Running::start(1);
    running.provider().script(Method::Create, Fault::Hang);
    let mut peer = running.ready().await;
    let sandbox = reference(1);
    peer.request(generation(1), sandbox, create(sandbox), 60_000).await;
    running.provider().dispatched().await;
    let start = Instant::now();
    running.stop.cancel();
    peer.ended().await;
    assert_eq!(start.elapsed().as_secs(), 0);
    assert_eq!(running.stop().await, End::Stopped);
    assert_eq!(start.elapsed().as_secs(), 60 + STOP_GRACE_MS / 1_000, "it never ends");
}

/// E21. A command whose budget ends while the node stops is still being ended in its sandbox: that is awaited.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_until_what_is_overdue_was_ended() {
    let mut running = Running::start(1);
    running.provider().script(Method::Create, Fault::Hang);
    let mut peer = running.ready().await;
    let sandbox = reference(1);
    peer.request(generation(1), sandbox, create(sandbox), 1).await;
    assert!(peer.response().await.error_code.is_some(), "overdue");
    running.stop.cancel();
    peer.ended().await;
    assert!(!running.node.is_finished());
    let start = Instant::now();
    running.provider().release();
    assert_eq!(running.stop().await, End::Stopped);
    assert_eq!(start.elapsed().as_secs(), 0);
}
