//! What an idle connection costs. Alone in its process, because it measures the process.

#![allow(clippy::unwrap_used, reason = "a test panics with what surprised it")]

use palisade_socket::{Incoming, Reader, Socket, Writer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const CONNECTIONS: usize = 2000;
/// Shell, buffers and the in-memory stream itself.
const BUDGET_BYTES: usize = 12 * 1024;

/// A connection on which each side has sent one small message, and nothing since.
async fn used_connection() -> (Reader<DuplexStream>, Writer<DuplexStream>, DuplexStream) {
    let (ours, mut peer) = duplex(64);
    let (mut reader, mut writer) = Socket::accepted(ours, &[]).split();
    peer.write_all(&[0x81, 0x82, 0, 0, 0, 0, b'{', b'}']).await.unwrap();
    assert_eq!(reader.next().await, Incoming::Text("{}".into()));
    writer.send_text("{}").await.unwrap();
    peer.read_exact(&mut [0; 4]).await.unwrap();
    (reader, writer, peer)
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn an_idle_connection_costs_at_most_12_kib() {
    // What the first connections allocate once for all.
    let mut connections = vec![used_connection().await];
    connections.reserve(CONNECTIONS);
    let before = resident_bytes();
    for _ in 0..CONNECTIONS {
        connections.push(used_connection().await);
    }
    let each = resident_bytes().saturating_sub(before) / CONNECTIONS;
    assert!(each <= BUDGET_BYTES, "{each} bytes each");
    assert!(each >= 4096, "{each} bytes each: the measurement missed the read buffer");
}
