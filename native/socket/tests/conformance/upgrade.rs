//! The upgrade as the node asks for it: what is taken for Core's word, and what is not.

use palisade_socket::{Socket, UpgradeError, accept_key};
use tokio::io::{AsyncWriteExt as _, duplex};

use crate::raw::{head, header, request};

/// What a dial came to.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Connected,
    Impostor,
    Refused(u16),
    Failed,
}

/// Answers one dial with `answer`, in which `{accept}` is the right proof, and hangs up.
async fn dial(answer: &str) -> Came {
    let (ours, mut peer) = duplex(1 << 20);
    let dialling = tokio::spawn(Socket::client(ours, request()));
    let key = header(&head(&mut peer).await, "sec-websocket-key").unwrap();
    let answer = answer.replace("{accept}", &accept_key(key.as_bytes()));
    // What does not read on is told nothing more.
    let _ = peer.write_all(answer.as_bytes()).await;
    drop(peer);
    match dialling.await.unwrap() {
        Ok(_) => Came::Connected,
        Err(UpgradeError::Impostor(answer)) => {
            assert_eq!(answer.status, 101);
            Came::Impostor
        }
        Err(UpgradeError::Refused(answer)) => Came::Refused(answer.status.as_u16()),
        Err(UpgradeError::Failed(_)) => Came::Failed,
    }
}

const HONEST: [&str; 3] = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: {accept}"];

/// An answer with these lines.
fn switching(lines: &[&str]) -> String {
    format!("HTTP/1.1 101 Switching Protocols\r\n{}\r\n\r\n", lines.join("\r\n"))
}

/// The honest answer with one line in place of another.
fn with(index: usize, line: &str) -> String {
    let mut lines = HONEST;
    lines[index] = line;
    switching(&lines)
}

/// The honest answer with one line more.
fn and(line: &str) -> String {
    switching(&[&HONEST[..], &[line]].concat())
}

#[tokio::test]
async fn an_honest_101_is_an_upgrade_however_it_is_written() {
    let early = format!("HTTP/1.1 102 Processing\r\n\r\n{}", switching(&HONEST));
    for answer in [
        switching(&HONEST),
        with(0, "upgrade: WebSocket"),
        with(0, "Upgrade: other, websocket"),
        with(1, "CONNECTION: keep-alive, uPGRADE"),
        with(2, "sec-websocket-accept:   {accept}  "),
        and("Server: anything"),
        and("Connection: keep-alive"),
        early,
    ] {
        assert_eq!(dial(&answer).await, Came::Connected, "{answer}");
    }
}

#[tokio::test]
async fn a_101_without_every_proof_is_an_impostor() {
    for answer in [
        switching(&[]),
        switching(&HONEST[1..]),
        switching(&[HONEST[0], HONEST[2]]),
        switching(&HONEST[..2]),
        with(0, "Upgrade: h2c"),
        with(0, "Upgrade: websocket2"),
        with(1, "Connection: close"),
        with(2, "Sec-WebSocket-Accept: "),
        with(2, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        with(2, "Sec-WebSocket-Accept: {accept}x"),
        and("Sec-WebSocket-Accept: {accept}"),
        and("Sec-WebSocket-Accept: another"),
        and("Sec-WebSocket-Extensions: permessage-deflate"),
        and("Sec-WebSocket-Protocol: chat"),
        and("Sec-WebSocket-Protocol: "),
        switching(&HONEST).replace("HTTP/1.1", "HTTP/1.0"),
    ] {
        assert_eq!(dial(&answer).await, Came::Impostor, "{answer}");
    }
}

#[tokio::test]
async fn any_other_status_is_a_refusal() {
    for status in [200, 204, 301, 302, 400, 401, 403, 404, 407, 409, 426, 429, 500, 502, 503] {
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let answer = format!("{version} {status} Any\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(dial(&answer).await, Came::Refused(status), "{answer}");
        }
    }
    let long = format!("HTTP/1.1 503 Any\r\n\r\n{}", "x".repeat(100_000));
    assert_eq!(dial(&long).await, Came::Refused(503), "a page that is too long to keep");
}

#[tokio::test]
async fn what_is_no_answer_fails() {
    let huge = format!("HTTP/1.1 101 Any\r\nX: {}\r\n\r\n", "x".repeat(800_000));
    let many = format!("HTTP/1.1 101 Any\r\n{}\r\n", "X: y\r\n".repeat(500));
    for answer in [
        "",
        "HTTP/1.1 1",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n",
        "HTTP/2.0 101 Any\r\n\r\n",
        "HTTP/1.1 abc Any\r\n\r\n",
        "HTTP/1.1 101 Any\r\nno header\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "\u{15}\u{3}\u{1}\0\u{2}\u{2}F",
        &huge,
        &many,
    ] {
        assert_eq!(dial(answer).await, Came::Failed, "{}", &answer[..answer.len().min(80)]);
    }
}

/// RFC 6455 §4.1. The key is 16 bytes, and another one each time.
#[tokio::test]
async fn every_dial_has_a_key_of_its_own() {
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let (ours, mut peer) = duplex(4096);
        let _dialling = tokio::spawn(Socket::client(ours, request()));
        let head = head(&mut peer).await;
        let key = header(&head, "sec-websocket-key").unwrap();
        assert!(key.len() == 24 && key.ends_with("=="), "{key}");
        assert_eq!(head.to_ascii_lowercase().matches("sec-websocket-key").count(), 1);
        keys.insert(key);
    }
    assert_eq!(keys.len(), 20);
}
