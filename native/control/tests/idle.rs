//! What an idle node costs Core. Alone in its process, because it measures the process.

#![allow(clippy::unwrap_used, reason = "a test panics with what surprised it")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use async_trait::async_trait;
use palisade_control::hub::{Bounds, Denied, Failed, Hub, NodeStore, Retained};
use palisade_control::store::{Location, Store};
use palisade_control::{Core, CoreKeys, Execution, http};
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity, Observation, ObservedState};
use palisade_core::wire::{Frame, encode};
use tokio::net::TcpListener;

const NODES: u64 = 500;
/// User space of Core for one connected node that says nothing.
const BUDGET_BYTES: usize = 12 * 1024;

/// Records that know every node and forget everything.
struct Everybody;

#[async_trait]
impl NodeStore for Everybody {
    async fn authenticate(&self, _: &Bounds, node: Id, _: &str) -> Result<Identity<'static>, Denied> {
        Ok(identity(node))
    }
    async fn owner_epoch(&self, _: &Bounds) -> Result<OwnerEpoch, Failed> {
        Ok(OwnerEpoch::FIRST)
    }
    async fn connect(&self, _: &Bounds, _: Id, _: Connected) -> Result<(), Failed> {
        Ok(())
    }
    async fn record(
        &self,
        _: &Bounds,
        _: Id,
        _: Connected,
        health: &Health<'static>,
    ) -> Result<Vec<Generation>, Failed> {
        Ok(health.generations.iter().map(|observation| observation.generation).collect())
    }
    async fn deployment(&self, _: &Bounds, _: Id) -> Result<Deployment, Failed> {
        let (generation, specification_digest) = (Generation::FIRST, Digest::of(b"specification"));
        Ok(Deployment { generation, specification_digest, serving_generation: None })
    }
    async fn retain(&self, _: &Bounds, _: Id, _: Connected, _: &[GenerationReference]) -> Result<Retained, Failed> {
        Err(Failed)
    }
    async fn disconnect(&self, _: &Bounds, _: Id, _: Connected) -> Result<(), Failed> {
        Ok(())
    }
}

fn identity(node: Id) -> Identity<'static> {
    Identity {
        node_id: node.to_string().into(),
        installation_id: Id::from_random([0x11; 16]).to_string().into(),
        provider: "docker".into(),
        backend_fingerprint: "11".repeat(32).into(),
        deployment_generation: 1,
        specification_digest: Digest::of(b"specification").to_string().into(),
        max_active: 2,
        max_retained: 2,
    }
}

fn node(number: u64) -> Id {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Id::from_random(bytes)
}

/// `hello` with one observation, as a client's WebSocket frame.
fn hello(node: Id) -> Vec<u8> {
    let observation = Observation {
        generation: Generation::FIRST,
        specification_digest: Digest::of(b"specification"),
        state: ObservedState::Ready { checkpoint: None },
    };
    let health = Health {
        observed_at: "2026-10-01T08:00:00Z".into(),
        active_operations: 0,
        cpu_utilization: Some(0.5),
        total_memory_bytes: Some(1 << 34),
        effective_cpu_cores: Some(4.0),
        cpu_count: Some(4),
        available_memory_bytes: Some(1 << 33),
        available_disk_bytes: Some(1 << 36),
        generations: vec![observation],
    };
    let text = encode(&Frame::Hello { identity: identity(node), health }).unwrap();
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    assert!(text.len() > 125);
    [&[0x81, 0xfe, length[0], length[1], 0, 0, 0, 0], &text[..]].concat()
}

/// A node that has been welcome and is silent. Costs this process next to nothing.
fn connect(core: SocketAddr, number: u64) -> TcpStream {
    let node = node(number);
    let mut stream = TcpStream::connect(core).unwrap();
    let request = format!(
        "GET /api/v1/sandbox-node/connect?node_id={node} HTTP/1.1\r\nHost: {core}\r\nAuthorization: Bearer secret\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream.write_all(&hello(node)).unwrap();
    let mut welcome = [0; 4];
    stream.read_exact(&mut welcome).unwrap();
    assert_eq!(welcome[..2], [0x81, 0x7e], "welcome is one text message");
    stream
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// E13. What an idle connection may cost is a number that the build enforces, whatever a library's next version does.
#[tokio::test]
async fn an_idle_node_costs_core_at_most_12_kib() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&Location::Directory(directory.path().to_owned())).await.unwrap();
    let hub = Hub::new(Arc::new(Everybody));
    let keys = CoreKeys::read(Some("core-key-of-the-idle-test"), None).unwrap();
    let core = Core::new(store, keys, "https://core.example".to_owned(), Execution::fixed(None), hub.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, http::router(core)).await });
    let dial = move |from: u64, to: u64| (from..to).map(|number| connect(address, number)).collect::<Vec<_>>();

    // What the first connections allocate once for all.
    let warm = tokio::task::spawn_blocking(move || dial(0, 50)).await.unwrap();
    let before = resident_bytes();
    let idle = tokio::task::spawn_blocking(move || dial(50, 50 + NODES)).await.unwrap();
    let each = resident_bytes().saturating_sub(before) / idle.len();
    #[expect(clippy::cast_precision_loss, reason = "some thousand bytes")]
    let ratio = each as f64 / BUDGET_BYTES as f64;
    let (name, ours, limit) = ("an idle node, memory of core", format!("{each} B"), format!("{BUDGET_BYTES} B"));
    println!("{name:<44} {ours:>14} {limit:>14} {ratio:>7.2} {:>9}", "<= 1");
    assert!((50..50 + NODES).all(|number| hub.is_live(node(number))), "every node is connected");
    assert!(each <= BUDGET_BYTES, "{each} bytes each");
    assert!(each >= 2048, "{each} bytes each: the measurement missed the connections");
    drop((warm, idle));
}
