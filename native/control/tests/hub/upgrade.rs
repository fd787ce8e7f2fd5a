//! The upgrade as Core grants it (RFC 6455 §4.2): who gets a 101, and what the others get.

use palisade_socket::accept_key;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fake::credential;
use crate::rig::{NODE, Rig};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const HONEST: [&str; 4] = [
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];

/// The head of the answer to a request with these lines, in lower case.
async fn ask(rig: &Rig, version: &str, lines: &[&str]) -> String {
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    let head = format!(
        "GET /api/v1/sandbox-node/connect?node_id={NODE} {version}\r\nHost: core\r\nAuthorization: Bearer {}\r\n{}\r\n\r\n",
        credential(NODE),
        lines.join("\r\n")
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap().to_ascii_lowercase()
}

/// The honest lines with one in place of another.
fn with(index: usize, line: &'static str) -> Vec<&'static str> {
    let mut lines = HONEST.to_vec();
    lines[index] = line;
    lines.retain(|line| !line.is_empty());
    lines
}

/// W 175. Whatever is no complete handshake of version 13 is 400 and names that version; nothing of it holds the identity.
#[tokio::test]
async fn an_incomplete_handshake_is_a_bad_request() {
    let rig = Rig::new().await;
    let mut bad = vec![
        with(0, ""),
        with(0, "Upgrade: h2c"),
        with(0, "Upgrade: websocket/13"),
        with(1, ""),
        with(1, "Connection: close"),
        with(1, "Connection: keep-alive"),
        with(2, ""),
        with(2, "Sec-WebSocket-Version: 8"),
        with(2, "Sec-WebSocket-Version: 130"),
        with(2, "Sec-WebSocket-Version: 13, 8"),
        with(3, ""),
        with(3, "Sec-WebSocket-Key: "),
        with(3, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j"),
        with(3, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZTE="),
        with(3, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j!Q=="),
        with(3, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"),
    ];
    bad.push([&HONEST[..], &["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]].concat());
    for lines in bad {
        let answer = ask(&rig, "HTTP/1.1", &lines).await;
        assert!(answer.starts_with("http/1.1 400 "), "{lines:?}: {answer}");
        assert!(answer.contains("\r\nsec-websocket-version: 13\r\n"), "{lines:?}: {answer}");
    }
    let answer = ask(&rig, "HTTP/1.0", &HONEST).await;
    assert!(answer.starts_with("http/1.0 400 "), "{answer}");
    rig.live(NODE).await;
}

/// However a handshake is written, and whatever it offers: it is granted with the right proof and nothing else.
#[tokio::test]
async fn a_complete_handshake_is_granted_without_extension_or_subprotocol() {
    for lines in [
        HONEST.to_vec(),
        with(0, "UPGRADE: WebSocket"),
        with(0, "Upgrade: other, websocket"),
        with(1, "connection: keep-alive, upgrade"),
        with(3, "sec-websocket-key:   dGhlIHNhbXBsZSBub25jZQ==  "),
        [&HONEST[..], &["Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"]].concat(),
        [&HONEST[..], &["Sec-WebSocket-Protocol: chat, superchat"]].concat(),
    ] {
        let rig = Rig::new().await;
        let answer = ask(&rig, "HTTP/1.1", &lines).await;
        assert!(answer.starts_with("http/1.1 101 "), "{lines:?}: {answer}");
        let proof = format!("\r\nsec-websocket-accept: {}\r\n", accept_key(KEY.as_bytes()).to_ascii_lowercase());
        assert!(answer.contains(&proof), "{lines:?}: {answer}");
        assert!(answer.contains("\r\nupgrade: websocket\r\n") && answer.contains("\r\nconnection: upgrade\r\n"));
        assert!(!answer.contains("extensions") && !answer.contains("protocol:"), "{lines:?}: {answer}");
    }
}

/// W 176. A page's upgrade is refused however complete it is.
#[tokio::test]
async fn an_origin_is_refused() {
    let rig = Rig::new().await;
    for origin in ["Origin: https://page.example", "Origin: null", "origin:"] {
        let answer = ask(&rig, "HTTP/1.1", &[&HONEST[..], &[origin]].concat()).await;
        assert!(answer.starts_with("http/1.1 403 "), "{origin}: {answer}");
    }
    rig.live(NODE).await;
}
