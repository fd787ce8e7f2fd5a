//! How a connection ends when one side says so, and when it does not listen.

use std::time::Duration;

use palisade_core::limits::FRAGMENT_MAX_BYTES;
use palisade_socket::{Closed, Incoming, SendError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use crate::raw::{
    CLOSE, CONTINUATION, LAST, PATIENCE, PING, ROLES, Role, TEXT, close, connected, frame, receive, reports,
};

const TEN_SECONDS: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn our_close_is_empty_and_its_answer_ends_the_connection() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 4096).await;
        let (mut reader, mut writer) = socket.split();
        writer.close().await.unwrap();
        assert_eq!(receive(&mut peer, role).await, Some((LAST | CLOSE, Vec::new())));
        peer.write_all(&close(1000, "").bytes(role)).await.unwrap();
        // The server closes the stream; a client waits for that.
        if role == Role::Node {
            peer.shutdown().await.unwrap();
        }
        let begun = Instant::now();
        assert_eq!(reader.next().await, Incoming::Closed(Closed::ByPeer), "{role:?}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(peer.read(&mut [0; 16]).await.unwrap(), 0);
        assert_eq!(writer.send_text("{}").await, Err(SendError::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_our_close() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 4096).await;
        let (_reader, mut writer) = socket.split();
        writer.close().await.unwrap();
        assert_eq!(writer.send_text("{}").await, Err(SendError::Closed));
        assert_eq!(receive(&mut peer, role).await, Some((LAST | CLOSE, Vec::new())));
        assert_eq!(peer.read(&mut [0; 16]).await.unwrap(), 0, "{role:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_answers_our_close_is_left_after_ten_seconds() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 4096).await;
        let (mut reader, mut writer) = socket.split();
        let begun = Instant::now();
        let (ended, closed) = tokio::join!(reader.next(), writer.close());
        closed.unwrap();
        assert_eq!(ended, Incoming::Closed(Closed::Aborted), "{role:?}");
        assert_eq!(begun.elapsed(), TEN_SECONDS);
        receive(&mut peer, role).await;
        assert_eq!(peer.read(&mut [0; 16]).await.unwrap(), 0);
    }
}

/// Not even a peer that talks on keeps a connection open that we have closed, and nothing of it is reported.
#[tokio::test(start_paused = true)]
async fn a_peer_that_talks_on_after_our_close_is_not_heard() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 4096).await;
        let (mut reader, mut writer) = socket.split();
        writer.close().await.unwrap();
        let begun = Instant::now();
        let talking = tokio::spawn(async move {
            let frames = [
                frame(LAST | TEXT, "{}"),
                frame(TEXT, "["),
                frame(LAST | PING, "here?"),
                frame(LAST | CONTINUATION, "]"),
            ];
            for frame in frames.iter().cycle() {
                tokio::time::sleep(Duration::from_millis(700)).await;
                if peer.write_all(&frame.bytes(role)).await.is_err() {
                    return receive_rest(&mut peer, role).await;
                }
            }
            unreachable!("the frames are a cycle");
        });
        let (reported, closed) = timeout(PATIENCE, reports(&mut reader)).await.expect("the talking ends");
        assert_eq!((reported, closed), (Vec::new(), Closed::Aborted), "{role:?}");
        assert_eq!(begun.elapsed(), TEN_SECONDS);
        assert_eq!(talking.await.unwrap(), 1, "the close and no pong");
    }
}

async fn receive_rest(peer: &mut tokio::io::DuplexStream, role: Role) -> usize {
    crate::raw::receive_all(peer, role).await.len()
}

/// Whatever follows the peer's own Close ends the connection at once, and is never reported.
#[tokio::test(start_paused = true)]
async fn a_peer_that_keeps_sending_after_its_close_is_left_at_once() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 4096).await;
        let (mut reader, _writer) = socket.split();
        peer.write_all(&close(1000, "").bytes(role)).await.unwrap();
        let begun = Instant::now();
        let feeding = async {
            // As soon as the shell had the Close, and for ever.
            receive(&mut peer, role).await;
            while peer.write_all(&frame(LAST | TEXT, "late").bytes(role)).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        let ((), ended) = tokio::join!(feeding, reports(&mut reader));
        assert_eq!(ended, (Vec::new(), Closed::ByPeer), "{role:?}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}

/// A server closes the stream after the handshake; a client gives the server ten seconds to do it.
#[tokio::test(start_paused = true)]
async fn only_a_client_waits_for_the_end_of_the_stream() {
    for (role, waits) in [(Role::Core, Duration::ZERO), (Role::Node, TEN_SECONDS)] {
        let (socket, mut peer) = connected(role, 4096).await;
        let (mut reader, _writer) = socket.split();
        peer.write_all(&close(1001, "").bytes(role)).await.unwrap();
        let begun = Instant::now();
        assert_eq!(reader.next().await, Incoming::Closed(Closed::ByPeer));
        assert_eq!(begun.elapsed(), waits, "{role:?}");
    }
}

/// The peer's Close arrives while a message of ours is half written: the message stays half, and both halves end.
#[tokio::test(start_paused = true)]
async fn a_close_in_the_middle_of_our_message_ends_it() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 64).await;
        let (mut reader, mut writer) = socket.split();
        let writing = tokio::spawn(async move { writer.send_text(vec![b' '; 2 * FRAGMENT_MAX_BYTES]).await });
        let begun = Instant::now();
        let reading = tokio::spawn(async move { (reports(&mut reader).await, reader) });
        peer.read_exact(&mut [0; 1000]).await.unwrap();
        peer.write_all(&close(1000, "").bytes(role)).await.unwrap();
        let ((reported, closed), _reader) = reading.await.unwrap();
        assert_eq!((reported, closed), (Vec::new(), Closed::ByPeer), "{role:?}");
        assert!(writing.await.unwrap().is_err());
        assert!(begun.elapsed() <= TEN_SECONDS);
    }
}

/// A peer at fault that does not read is not waited for.
#[tokio::test(start_paused = true)]
async fn a_violation_ends_a_blocked_connection_at_once() {
    for role in ROLES {
        let (socket, mut peer) = connected(role, 64).await;
        let (mut reader, mut writer) = socket.split();
        let writing = tokio::spawn(async move { (writer.send_text(vec![b' '; 4096]).await, writer) });
        tokio::task::yield_now().await;
        peer.write_all(&frame(0x73, "").bytes(role)).await.unwrap();
        let begun = Instant::now();
        assert!(matches!(reader.next().await, Incoming::Closed(Closed::Violation(_))), "{role:?}");
        assert_eq!(writing.await.unwrap().0, Err(SendError::Closed));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
