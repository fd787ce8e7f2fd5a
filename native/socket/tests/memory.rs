//! What a peer can make a connection hold. Alone in its process, because it measures the process.

#![allow(clippy::unwrap_used, reason = "a test panics with what surprised it")]

use palisade_core::limits::CALL_FRAME_MAX_BYTES;
use palisade_socket::{Incoming, Reader, Socket, Writer};
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};

const MIB: usize = 1 << 20;

/// Address space and resident memory of this process.
fn memory() -> (usize, usize) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<usize> = statm.split(' ').map(|field| field.trim().parse().unwrap()).collect();
    (pages[0] * 4096, pages[1] * 4096)
}

fn connected() -> (Reader<DuplexStream>, Writer<DuplexStream>, DuplexStream) {
    let (ours, peer) = duplex(64 * 1024);
    let (reader, writer) = Socket::accepted(ours, &[]).split();
    (reader, writer, peer)
}

/// A masked header of this payload length; the mask is zero.
fn header(first: u8, length: usize) -> Vec<u8> {
    let mut header = vec![first, 0x80 | 127];
    header.extend((length as u64).to_be_bytes());
    header.extend([0; 4]);
    header
}

/// W 185. What is refused by its header is not even reserved; what is only announced is not held.
#[tokio::test]
async fn announced_bytes_cost_nothing_until_they_come() {
    let (warm, _writer, _peer) = connected();
    for (first, length) in [(0x81, CALL_FRAME_MAX_BYTES + 1), (0x89, CALL_FRAME_MAX_BYTES), (0x81, usize::MAX >> 1)] {
        let (mut reader, _writer, mut peer) = connected();
        let before = memory();
        peer.write_all(&header(first, length)).await.unwrap();
        assert!(matches!(reader.next().await, Incoming::Closed(_)));
        let reserved = memory().0.saturating_sub(before.0);
        assert!(reserved < MIB, "{reserved} bytes were reserved for what was refused");
    }
    let (mut reader, _writer, mut peer) = connected();
    let before = memory();
    peer.write_all(&header(0x81, CALL_FRAME_MAX_BYTES)).await.unwrap();
    tokio::select! {
        biased;
        incoming = reader.next() => panic!("{incoming:?}"),
        () = tokio::task::yield_now() => {}
    }
    let held = memory().1.saturating_sub(before.1);
    assert!(held < MIB, "{held} bytes are held for a header");

    tiny_fragments().await;
    drop(warm);
}

/// 256 KiB in fragments of one byte are held as 256 KiB, not as a quarter of a million fragments.
async fn tiny_fragments() {
    let (mut reader, _writer, mut peer) = connected();
    let before = memory();
    let mut feeding = tokio::spawn(async move {
        let fragments: Vec<u8> = [0x00, 0x81, 0, 0, 0, 0, b'x'].repeat(1024);
        peer.write_all(&[0x01, 0x80, 0, 0, 0, 0]).await.unwrap();
        for _ in 0..256 {
            peer.write_all(&fragments).await.unwrap();
        }
        peer.write_all(&[0x89, 0x80, 0, 0, 0, 0]).await.unwrap();
        peer
    });
    let _peer = loop {
        tokio::select! {
            incoming = reader.next() => assert_eq!(incoming, Incoming::Fragment),
            peer = &mut feeding => break peer.unwrap(),
        }
    };
    let held = memory().1.saturating_sub(before.1);
    assert!(held < 2 * MIB, "{held} bytes are held for 256 KiB");
}
