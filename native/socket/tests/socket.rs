//! The shell over real loopback TCP and over in-memory streams with a raw peer and paused time.

#![allow(clippy::unwrap_used, reason = "a test panics with what surprised it")]

use std::time::Duration;

use bytes::Bytes;
use palisade_core::limits::{CALL_FRAME_MAX_BYTES, FRAGMENT_MAX_BYTES, MESSAGE_TIMEOUT_MS, WRITE_TIMEOUT_MS};
use palisade_socket::{Closed, Incoming, Reader, SendError, Socket, UpgradeError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CONTINUATION: u8 = 0x0;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
const LAST: u8 = 0x80;

/// One masked frame, as a client sends it; the mask is zero.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = header(first, payload.len() as u64);
    frame.extend(payload);
    frame
}

fn header(first: u8, length: u64) -> Vec<u8> {
    let mut header = vec![first];
    match u16::try_from(length) {
        Ok(length) if length < 126 => header.push(0x80 | u8::try_from(length).unwrap()),
        Ok(length) => {
            header.push(0x80 | 0x7e);
            header.extend(length.to_be_bytes());
        }
        Err(_) => {
            header.push(0x80 | 0x7f);
            header.extend(length.to_be_bytes());
        }
    }
    header.extend([0; 4]);
    header
}

/// The next frame that the shell, in Core's role, wrote: first byte and payload.
async fn frame(peer: &mut DuplexStream) -> (u8, Vec<u8>) {
    let first = peer.read_u8().await.unwrap();
    let length = match peer.read_u8().await.unwrap() {
        0x7e => u64::from(peer.read_u16().await.unwrap()),
        0x7f => peer.read_u64().await.unwrap(),
        short => u64::from(short),
    };
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    peer.read_exact(&mut payload).await.unwrap();
    (first, payload)
}

fn accepted(buffer: usize) -> (Socket<DuplexStream>, DuplexStream) {
    let (ours, peer) = duplex(buffer);
    (Socket::accepted(ours, &[]), peer)
}

fn text(incoming: &Incoming) -> &str {
    match incoming {
        Incoming::Text(text) => text,
        other => panic!("expected a text message, got {other:?}"),
    }
}

#[tokio::test]
async fn a_message_up_to_256_kib_is_one_frame_and_a_longer_one_is_split() {
    let (socket, mut peer) = accepted(64 * 1024);
    let (_reader, mut writer) = socket.split();
    let message = Bytes::from("ä".repeat(300 * 1024));
    let sent = message.clone();
    let writing = tokio::spawn(async move {
        writer.send_text(sent.slice(..FRAGMENT_MAX_BYTES)).await.unwrap();
        writer.send_text(sent).await.unwrap();
        writer
    });
    assert_eq!(frame(&mut peer).await, (LAST | TEXT, message[..FRAGMENT_MAX_BYTES].to_vec()));
    assert_eq!(frame(&mut peer).await, (TEXT, message[..FRAGMENT_MAX_BYTES].to_vec()));
    assert_eq!(frame(&mut peer).await, (CONTINUATION, message[FRAGMENT_MAX_BYTES..2 * FRAGMENT_MAX_BYTES].to_vec()));
    assert_eq!(frame(&mut peer).await, (LAST | CONTINUATION, message[2 * FRAGMENT_MAX_BYTES..].to_vec()));
    writing.await.unwrap();
}

#[tokio::test]
async fn fragments_with_pings_between_them_become_one_message_and_every_ping_is_answered() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    peer.write_all(&masked(TEXT, b"{\"a\":")).await.unwrap();
    assert_eq!(reader.next().await, Incoming::Fragment);
    peer.write_all(&masked(LAST | PING, b"here?")).await.unwrap();
    peer.write_all(&masked(LAST | CONTINUATION, b"1}")).await.unwrap();
    assert_eq!(text(&reader.next().await), "{\"a\":1}");
    assert_eq!(frame(&mut peer).await, (LAST | PONG, b"here?".to_vec()));
}

/// W 186.
#[tokio::test]
async fn a_binary_message_is_reported_as_such() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    peer.write_all(&masked(LAST | BINARY, b"{}")).await.unwrap();
    assert_eq!(reader.next().await, Incoming::Binary);
}

#[tokio::test]
async fn text_that_is_not_utf8_ends_the_connection() {
    for frames in
        [masked(LAST | TEXT, b"{\"a\":\"\xff\"}"), [masked(TEXT, b"\xc3"), masked(LAST | CONTINUATION, b"")].concat()]
    {
        let (socket, mut peer) = accepted(4096);
        let (mut reader, _writer) = socket.split();
        peer.write_all(&frames).await.unwrap();
        assert_eq!(reader.next().await, Incoming::Closed(Closed::InvalidText));
    }
}

#[tokio::test]
async fn a_character_may_be_cut_by_a_fragment() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    peer.write_all(&[masked(TEXT, b"\xc3"), masked(LAST | CONTINUATION, b"\xa4")].concat()).await.unwrap();
    let incoming = reader.next().await;
    assert_eq!(text(&incoming), "ä");
}

/// W 185. One byte more than 72 MiB is refused by its header, before anything of it is held.
#[tokio::test]
async fn a_frame_above_the_limit_is_refused_by_its_header() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    peer.write_all(&header(LAST | TEXT, CALL_FRAME_MAX_BYTES as u64 + 1)).await.unwrap();
    assert_eq!(reader.next().await, Incoming::Closed(Closed::TooLarge));
    assert_eq!(frame(&mut peer).await, (LAST | CLOSE, 1009_u16.to_be_bytes().to_vec()));
    assert_eq!(peer.read(&mut [0; 16]).await.unwrap(), 0, "the stream is closed at once");
}

/// W 185. A message of exactly 72 MiB passes, in fragments as in one frame; with one byte more it does not.
#[tokio::test]
async fn a_message_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
    for (tail, passes) in [(&b""[..], true), (b"x", false)] {
        let (socket, mut peer) = accepted(1 << 20);
        let (mut reader, _writer) = socket.split();
        let feeding = tokio::spawn(async move {
            peer.write_all(&header(TEXT, CALL_FRAME_MAX_BYTES as u64)).await.unwrap();
            let chunk = vec![b' '; 1 << 20];
            for _ in 0..CALL_FRAME_MAX_BYTES >> 20 {
                peer.write_all(&chunk).await.unwrap();
            }
            peer.write_all(&masked(LAST | CONTINUATION, tail)).await.unwrap();
            peer
        });
        let incoming = loop {
            match reader.next().await {
                Incoming::Fragment => {}
                other => break other,
            }
        };
        match incoming {
            Incoming::Text(text) => assert!(passes && text.len() == CALL_FRAME_MAX_BYTES),
            other => assert_eq!((other, passes), (Incoming::Closed(Closed::TooLarge), false)),
        }
        drop(feeding.await.unwrap());
    }
}

#[tokio::test]
async fn an_unmasked_frame_to_core_ends_the_connection() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    peer.write_all(&[LAST | TEXT, 2, b'{', b'}']).await.unwrap();
    assert!(matches!(reader.next().await, Incoming::Closed(Closed::Violation(_))));
}

/// W 187. The shell's half of the idle deadline: pings report nothing, so nothing re-arms it.
#[tokio::test(start_paused = true)]
async fn pings_and_pongs_report_nothing() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    let waiting = async {
        for _ in 0..10 {
            sleep(Duration::from_secs(5)).await;
            peer.write_all(&masked(LAST | PING, b"")).await.unwrap();
            peer.write_all(&masked(LAST | PONG, b"")).await.unwrap();
        }
    };
    tokio::select! {
        incoming = reader.next() => panic!("{incoming:?}"),
        () = waiting => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_message_reports_each_fragment_and_is_bounded_as_a_whole() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    let start = Instant::now();
    let feeding = tokio::spawn(async move {
        peer.write_all(&masked(TEXT, b"[")).await.unwrap();
        while peer.write_all(&masked(CONTINUATION, b" ")).await.is_ok() {
            sleep(Duration::from_secs(30)).await;
        }
    });
    let mut fragments = 0;
    let reason = loop {
        match reader.next().await {
            Incoming::Fragment => fragments += 1,
            other => break other,
        }
    };
    assert_eq!(reason, Incoming::Closed(Closed::Stalled));
    assert_eq!(start.elapsed(), Duration::from_millis(MESSAGE_TIMEOUT_MS));
    assert!(fragments >= 4, "{fragments} fragments were reported");
    feeding.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_a_message_starts_with_that_message() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    let feeding = tokio::spawn(async move {
        for _ in 0..3 {
            peer.write_all(&masked(TEXT, b"[")).await.unwrap();
            sleep(Duration::from_secs(100)).await;
            peer.write_all(&masked(LAST | CONTINUATION, b"]")).await.unwrap();
        }
        peer
    });
    let mut messages = 0;
    while messages < 3 {
        match reader.next().await {
            Incoming::Text(_) => messages += 1,
            Incoming::Fragment => {}
            other => panic!("{other:?}"),
        }
    }
    drop(feeding.await.unwrap());
}

/// W 209.
#[tokio::test(start_paused = true)]
async fn a_fragment_that_cannot_be_written_in_ten_seconds_ends_the_connection() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, mut writer) = socket.split();
    let start = Instant::now();
    assert_eq!(writer.send_text(vec![b' '; 8192]).await, Err(SendError::Timeout));
    assert_eq!(start.elapsed(), Duration::from_millis(WRITE_TIMEOUT_MS));
    assert_eq!(reader.next().await, Incoming::Closed(Closed::Unsent(SendError::Timeout)));
    assert_eq!(writer.send_text("{}").await, Err(SendError::Closed));
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() <= 4096, "nothing was written after the end");
}

/// W 209. The deadline belongs to one fragment: a peer that takes a fragment every nine seconds is slow, not dead.
#[tokio::test(start_paused = true)]
async fn a_slow_peer_may_take_ten_seconds_for_each_fragment() {
    let (socket, mut peer) = accepted(1024);
    let (_reader, mut writer) = socket.split();
    let writing = tokio::spawn(async move { (writer.send_text(vec![b' '; 4 * FRAGMENT_MAX_BYTES]).await, writer).0 });
    for _ in 0..4 {
        sleep(Duration::from_secs(9)).await;
        frame(&mut peer).await;
    }
    assert_eq!(writing.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn half_a_message_is_finished_before_another_begins() {
    let (socket, mut peer) = accepted(1024);
    let (_reader, mut writer) = socket.split();
    tokio::select! {
        biased;
        _ = writer.send_text(vec![b' '; 8192]) => panic!("nobody reads"),
        () = async {} => {}
    }
    let writing = tokio::spawn(async move { (writer.send_text("{}").await, writer).0 });
    assert_eq!(frame(&mut peer).await.1, vec![b' '; 8192]);
    assert_eq!(frame(&mut peer).await.1, b"{}");
    assert_eq!(writing.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn messages_are_written_in_the_order_in_which_they_were_pushed() {
    let (socket, mut peer) = accepted(4096);
    let (_reader, mut writer) = socket.split();
    for text in ["", "[]", "{}"] {
        writer.push(text);
    }
    for text in ["", "[]", "{}"] {
        assert_eq!(writer.sent().await, Ok(text.len()));
        assert_eq!(frame(&mut peer).await.1, text.as_bytes());
    }
}

#[tokio::test]
async fn abort_closes_the_stream_while_the_other_half_still_lives() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, writer) = socket.split();
    let reading = tokio::spawn(async move { (reader.next().await, reader) });
    tokio::task::yield_now().await;
    writer.abort();
    assert_eq!(peer.read(&mut [0; 16]).await.unwrap(), 0, "no close handshake");
    assert_eq!(reading.await.unwrap().0, Incoming::Closed(Closed::Aborted));
}

#[tokio::test]
async fn dropping_one_half_ends_the_connection() {
    let (socket, mut peer) = accepted(4096);
    let (reader, mut writer) = socket.split();
    drop(reader);
    assert_eq!(peer.read(&mut [0; 16]).await.unwrap(), 0);
    assert_eq!(writer.send_text("{}").await, Err(SendError::Closed));
}

#[tokio::test]
async fn a_close_is_answered_and_polled_to_the_end_of_the_stream() {
    let (socket, mut peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    peer.write_all(&masked(LAST | CLOSE, &1000_u16.to_be_bytes())).await.unwrap();
    assert_eq!(reader.next().await, Incoming::Closed(Closed::ByPeer));
    assert_eq!(frame(&mut peer).await, (LAST | CLOSE, 1000_u16.to_be_bytes().to_vec()));
    assert_eq!(peer.read(&mut [0; 16]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_does_not_wait_for_ever_for_the_stream_to_end_after_a_close() {
    let (socket, mut peer) = client(4096).await;
    let (mut reader, _writer) = socket.split();
    let start = Instant::now();
    peer.write_all(&[LAST | CLOSE, 0]).await.unwrap();
    assert_eq!(reader.next().await, Incoming::Closed(Closed::ByPeer));
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test]
async fn a_stream_that_just_ends_is_lost() {
    let (socket, peer) = accepted(4096);
    let (mut reader, _writer) = socket.split();
    drop(peer);
    assert!(matches!(reader.next().await, Incoming::Closed(Closed::Lost(_))));
}

/// A client whose peer has answered with an honest 101.
async fn client(buffer: usize) -> (Socket<DuplexStream>, DuplexStream) {
    let (ours, mut peer) = duplex(buffer);
    let connecting = tokio::spawn(Socket::client(ours, request()));
    let key = read_request(&mut peer).await;
    peer.write_all(honest(&key).as_bytes()).await.unwrap();
    (connecting.await.unwrap().unwrap(), peer)
}

fn request() -> hyper::Request<()> {
    hyper::Request::get("/api/v1/sandbox-node/connect?node_id=1").header("host", "core.example").body(()).unwrap()
}

fn honest(key: &str) -> String {
    let accept = palisade_socket::accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: keep-alive, Upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
    )
}

/// Reads one upgrade request and gives its key.
async fn read_request(peer: &mut (impl AsyncRead + Unpin)) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(peer.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    assert!(request.starts_with("GET /api/v1/sandbox-node/connect?node_id=1 HTTP/1.1\r\n"), "{request}");
    let headers: Vec<(String, &str)> = request
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let all = |wanted: &str| headers.iter().filter(|(name, _)| name == wanted).map(|(_, v)| *v).collect::<Vec<_>>();
    assert_eq!((all("sec-websocket-version"), all("upgrade")), (vec!["13"], vec!["websocket"]));
    for absent in ["origin", "sec-websocket-protocol", "sec-websocket-extensions"] {
        assert!(all(absent).is_empty(), "{request}");
    }
    all("sec-websocket-key")[0].to_owned()
}

async fn refused(answer: &'static [&'static str]) -> UpgradeError {
    let (ours, mut peer) = duplex(4096);
    let connecting = tokio::spawn(Socket::client(ours, request()));
    read_request(&mut peer).await;
    for part in answer {
        peer.write_all(part.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    drop(peer);
    connecting.await.unwrap().err().expect("no socket")
}

#[tokio::test]
async fn a_refusal_comes_with_its_status_headers_and_whole_body() {
    let answer =
        refused(&["HTTP/1.1 401 Unauthorized\r\nserver: proxy\r\ncontent-length: 12\r\n\r\n", "{\"error\"", ":{}}"]);
    let UpgradeError::Refused(answer) = answer.await else { panic!("expected a refusal") };
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (401, &b"{\"error\":{}}"[..]));
    assert_eq!(answer.headers["server"], "proxy");
}

#[tokio::test]
async fn a_refusal_that_breaks_off_keeps_its_status() {
    let answer = refused(&["HTTP/1.1 503 Unavailable\r\ncontent-length: 12\r\n\r\n", "{"]).await;
    assert!(matches!(answer, UpgradeError::Refused(answer) if answer.status == 503 && answer.body.is_empty()));
}

#[tokio::test]
async fn a_false_101_is_no_upgrade() {
    let answer = refused(&["HTTP/1.1 101 Fine\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"]).await;
    assert!(matches!(answer, UpgradeError::Impostor(_)), "{answer}");
}

#[tokio::test]
async fn what_is_no_http_fails() {
    assert!(matches!(refused(&["SSH-2.0-OpenSSH\r\n"]).await, UpgradeError::Failed(_)));
    assert!(matches!(refused(&[]).await, UpgradeError::Failed(_)));
}

#[tokio::test]
async fn a_frame_behind_the_101_in_one_packet_is_read() {
    let (ours, mut peer) = duplex(4096);
    let connecting = tokio::spawn(Socket::client(ours, request()));
    let key = read_request(&mut peer).await;
    let packet = [honest(&key).as_bytes(), &[TEXT, 1, b'{'], &[LAST, 1, b'}']].concat();
    peer.write_all(&packet).await.unwrap();
    let (mut reader, _writer) = connecting.await.unwrap().unwrap().split();
    assert_eq!(text(&reader.next().await), "{}");
}

#[tokio::test]
async fn both_roles_exchange_large_messages_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let key = read_request(&mut stream).await;
        stream.write_all(honest(&key).as_bytes()).await.unwrap();
        echo(Socket::accepted(stream, &[])).await
    });
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = Socket::client(stream, request()).await.unwrap().split();
    for size in [2, FRAGMENT_MAX_BYTES + 1, 8 << 20] {
        let message = Bytes::from("\u{1F980}".repeat(size / 4 + 1));
        let sending = async { writer.send_text(message.clone()).await };
        let (sent, received) = tokio::join!(sending, whole(&mut reader));
        sent.unwrap();
        assert_eq!(text(&received).as_bytes(), &message);
    }
    writer.close().await.unwrap();
    assert_eq!(reader.next().await, Incoming::Closed(Closed::ByPeer));
    assert_eq!(serving.await.unwrap(), Closed::ByPeer);
}

async fn echo(socket: Socket<TcpStream>) -> Closed {
    let (mut reader, mut writer) = socket.split();
    loop {
        match whole(&mut reader).await {
            Incoming::Text(text) => writer.send_text(text).await.unwrap(),
            Incoming::Closed(reason) => return reason,
            other => panic!("{other:?}"),
        }
    }
}

async fn whole<S: AsyncRead + AsyncWrite + Unpin>(reader: &mut Reader<S>) -> Incoming {
    loop {
        match reader.next().await {
            Incoming::Fragment => {}
            other => return other,
        }
    }
}
