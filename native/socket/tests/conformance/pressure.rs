//! Peers that send much and read little.

use std::time::Duration;

use palisade_core::limits::FRAGMENT_MAX_BYTES;
use palisade_socket::{Closed, Incoming};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::raw::{CONTINUATION, LAST, PING, PONG, ROLES, TEXT, connected, frame, receive, reports};

const PINGS: u32 = 20_000;

/// 2.6 MiB of pings and not one pong read: what is kept is bounded, the last ping is answered, and a message that was
/// sent meanwhile arrives.
#[tokio::test(start_paused = true)]
async fn a_flood_of_pings_neither_grows_without_bound_nor_costs_a_message() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 1024).await;
        let (mut reader, mut writer) = socket.split();
        let reading = tokio::spawn(async move { (reports(&mut reader).await, reader) });
        for number in 0..PINGS {
            let payload = [&number.to_be_bytes()[..], &[b'p'; 121]].concat();
            peer.write_all(&frame(LAST | PING, payload).bytes(role)).await.unwrap();
        }
        let message = vec![b' '; FRAGMENT_MAX_BYTES];
        let sending = tokio::spawn(async move { (writer.send_text(message).await, writer) });
        tokio::task::yield_now().await;
        let (mut pongs, mut last, mut messages) = (0, Vec::new(), 0);
        while messages == 0 || last[..4] != (PINGS - 1).to_be_bytes() {
            match receive(&mut peer, role).await.expect("the connection lives") {
                (first, payload) if first == LAST | PONG => {
                    (pongs, last) = (pongs + payload.len() + 2, payload);
                }
                (first, payload) => {
                    assert_eq!((first, payload.len()), (LAST | TEXT, FRAGMENT_MAX_BYTES), "{role:?}");
                    messages += 1;
                }
            }
        }
        let (sent, _writer) = sending.await.unwrap();
        assert_eq!(sent, Ok(()));
        assert!(pongs <= FRAGMENT_MAX_BYTES + 4096, "{pongs} bytes of pongs waited");
        drop(peer);
        let ((reported, closed), _reader) = reading.await.unwrap();
        assert!(reported.is_empty() && matches!(closed, Closed::Lost(_)));
    }
}

/// A pong does not wait for the end of a long message: it goes between two of its fragments.
#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_between_two_fragments_of_our_message() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 4096).await;
        let (mut reader, mut writer) = socket.split();
        let _reading = tokio::spawn(async move { reader.next().await });
        let _writing =
            tokio::spawn(async move { (writer.send_text(vec![b' '; 4 * FRAGMENT_MAX_BYTES]).await, writer) });
        peer.read_exact(&mut [0; 100]).await.unwrap();
        peer.write_all(&frame(LAST | PING, "here?").bytes(role)).await.unwrap();
        // What is left of the first fragment, headers and mask included.
        let header = if role == crate::raw::Role::Node { 14 } else { 10 };
        peer.read_exact(&mut vec![0; FRAGMENT_MAX_BYTES + header - 100]).await.unwrap();
        let next = receive(&mut peer, role).await.unwrap();
        assert_eq!(next, (LAST | PONG, b"here?".to_vec()), "{role:?}");
        assert_eq!(receive(&mut peer, role).await.unwrap().0, CONTINUATION);
    }
}

#[tokio::test(start_paused = true)]
async fn a_ping_to_an_idle_connection_is_answered_at_once() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 4096).await;
        let (mut reader, _writer) = socket.split();
        let _reading = tokio::spawn(async move { reader.next().await });
        let begun = Instant::now();
        peer.write_all(&frame(LAST | PING, "here?").bytes(role)).await.unwrap();
        assert_eq!(receive(&mut peer, role).await, Some((LAST | PONG, b"here?".to_vec())));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}

/// A message in 200,000 fragments, every second of them empty, with a ping after every thousandth.
#[tokio::test(start_paused = true)]
async fn many_tiny_fragments_are_one_message() {
    for role in ROLES {
        let (socket, peer) = connected(role, 64 * 1024).await;
        let (mut reader, _writer) = socket.split();
        let (mut pongs, mut feed) = tokio::io::split(peer);
        let feeding = tokio::spawn(async move {
            let mut bytes = frame(TEXT, "").bytes(role);
            for number in 0..200_000 {
                let payload = if number % 2 == 0 { "x" } else { "" };
                bytes.extend(frame(CONTINUATION, payload).bytes(role));
                if number % 1_000 == 0 {
                    bytes.extend(frame(LAST | PING, "").bytes(role));
                }
            }
            bytes.extend(frame(LAST | CONTINUATION, "").bytes(role));
            feed.write_all(&bytes).await.unwrap();
            feed
        });
        let reading = tokio::spawn(async move { crate::raw::receive_all(&mut pongs, role).await.len() });
        let message = loop {
            match reader.next().await {
                Incoming::Fragment => {}
                other => break other,
            }
        };
        assert!(matches!(message, Incoming::Text(text) if text.len() == 100_000), "{role:?}");
        drop(feeding.await.unwrap());
        drop(reader);
        assert!(reading.await.unwrap() >= 1);
    }
}
