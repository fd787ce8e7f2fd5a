//! A TCP reset in every state of a connection, over loopback.

use palisade_socket::{Closed, Incoming, SendError, Socket, UpgradeError};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::raw::{LAST, PING, ROLES, Role, TEXT, close, dialled, frame, head, receive, request};

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialling = TcpStream::connect(listener.local_addr().unwrap());
    let (ours, accepted) = tokio::join!(dialling, listener.accept());
    (ours.unwrap(), accepted.unwrap().0)
}

async fn connected(role: Role) -> (Socket<TcpStream>, TcpStream) {
    let (ours, mut peer) = pair().await;
    let socket = match role {
        Role::Core => Socket::accepted(ours, &[]),
        Role::Node => dialled(ours, &mut peer).await,
    };
    (socket, peer)
}

/// Ends the stream with a reset instead of an orderly end.
fn reset(peer: TcpStream) {
    peer.set_zero_linger().unwrap();
    drop(peer);
}

#[tokio::test]
async fn a_reset_is_a_loss_wherever_the_peer_stood() {
    for role in ROLES {
        let text = frame(LAST | TEXT, [b'x'; 1000]).bytes(role);
        let places = [
            ("idle", Vec::new()),
            ("in a header", text[..1].to_vec()),
            ("in a payload", text[..500].to_vec()),
            ("between two fragments", frame(TEXT, "[").bytes(role)),
            ("after a ping", frame(LAST | PING, "").bytes(role)),
        ];
        for (place, bytes) in places {
            let (socket, mut peer) = connected(role).await;
            let (mut reader, mut writer) = socket.split();
            peer.write_all(&bytes).await.unwrap();
            reset(peer);
            let ended = loop {
                match reader.next().await {
                    Incoming::Fragment => {}
                    other => break other,
                }
            };
            assert!(matches!(ended, Incoming::Closed(Closed::Lost(_))), "{role:?} {place}: {ended:?}");
            assert_eq!(writer.send_text("{}").await, Err(SendError::Closed));
        }
    }
}

#[tokio::test]
async fn a_reset_wakes_a_blocked_writer() {
    for role in ROLES {
        let (socket, peer) = connected(role).await;
        let (mut reader, mut writer) = socket.split();
        let writing = tokio::spawn(async move { (writer.send_text(vec![b' '; 64 << 20]).await, writer) });
        // So much is on its way that the rest waits.
        while peer.peek(&mut [0; 8192]).await.unwrap() < 4096 {}
        reset(peer);
        assert!(matches!(reader.next().await, Incoming::Closed(Closed::Lost(_) | Closed::Unsent(_))), "{role:?}");
        let (sent, _writer) = writing.await.unwrap();
        assert!(matches!(sent, Err(SendError::Lost(_) | SendError::Closed)), "{role:?}: {sent:?}");
    }
}

#[tokio::test]
async fn a_reset_during_the_closing_handshake_is_its_end() {
    for role in ROLES {
        let (socket, mut peer) = connected(role).await;
        let (mut reader, _writer) = socket.split();
        peer.write_all(&close(1000, "").bytes(role)).await.unwrap();
        let answered = async {
            receive(&mut peer, role).await.unwrap();
            reset(peer);
        };
        let (ended, ()) = tokio::join!(reader.next(), answered);
        assert_eq!(ended, Incoming::Closed(Closed::ByPeer), "{role:?}: its close");

        let (socket, mut peer) = connected(role).await;
        let (mut reader, mut writer) = socket.split();
        writer.close().await.unwrap();
        receive(&mut peer, role).await.unwrap();
        reset(peer);
        assert!(matches!(reader.next().await, Incoming::Closed(Closed::Lost(_))), "{role:?}: ours");
    }
}

#[tokio::test]
async fn a_reset_during_the_upgrade_fails_the_dial() {
    for answer in ["", "HTTP/1.1 101 Switching", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"] {
        let (ours, mut peer) = pair().await;
        let dialling = tokio::spawn(Socket::client(ours, request()));
        head(&mut peer).await;
        peer.write_all(answer.as_bytes()).await.unwrap();
        reset(peer);
        let error = dialling.await.unwrap().err().expect("no socket");
        assert!(matches!(error, UpgradeError::Failed(_)), "{answer:?}: {error}");
    }
}
