//! Slow and oversize requests over streams in memory, under a stopped clock.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::http::{ApiResult, read_body};
use crate::limits::{BODY_WAIT, BODY_WAIT_BYTES};

const LIMIT: usize = 8 * BODY_WAIT_BYTES;

struct Memory(UnboundedReceiver<DuplexStream>);

impl Listener for Memory {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(stream) => (stream, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Served {
    dial: UnboundedSender<DuplexStream>,
    stop: CancellationToken,
    ended: JoinHandle<()>,
}

impl Served {
    fn new() -> Self {
        let count = async |body: Body| -> ApiResult<String> { Ok(read_body(body, LIMIT).await?.len().to_string()) };
        let slow = async || sleep(Duration::from_secs(3)).await;
        let router = Router::new().route("/count", post(count)).route("/slow", get(slow));
        let (dial, dialled) = unbounded_channel();
        let stop = CancellationToken::new();
        let ended = tokio::spawn(listen(Memory(dialled), router, stop.clone()));
        Self { dial, stop, ended }
    }

    fn connect(&self) -> DuplexStream {
        let (ours, theirs) = duplex(64 * 1024);
        self.dial.send(theirs).unwrap();
        ours
    }
}

/// Everything until the end of the stream, and when that was.
async fn rest(stream: &mut DuplexStream, since: Instant) -> (String, Duration) {
    let mut text = Vec::new();
    // A reset instead of an end is an end as well.
    let _ = timeout(Duration::from_secs(3_600), stream.read_to_end(&mut text)).await.expect("it is closed");
    (String::from_utf8(text).unwrap(), since.elapsed())
}

fn post_head(length: usize) -> String {
    format!("POST /count HTTP/1.1\r\nHost: core\r\nContent-Length: {length}\r\n\r\n")
}

/// Sends `pieces` with a pause after each, until the other side hangs up.
fn drip(mut writer: tokio::io::WriteHalf<DuplexStream>, pieces: Vec<Vec<u8>>, pause: Duration) {
    tokio::spawn(async move {
        for piece in pieces {
            if writer.write_all(&piece).await.is_err() {
                return;
            }
            sleep(pause).await;
        }
        std::future::pending::<()>().await;
    });
}

async fn answer_to(head: &str, pieces: Vec<Vec<u8>>, pause: Duration) -> (String, Duration) {
    let served = Served::new();
    let since = Instant::now();
    let (mut reader, mut writer) = tokio::io::split(served.connect());
    writer.write_all(head.as_bytes()).await.unwrap();
    drip(writer, pieces, pause);
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(3_600), reader.read_to_end(&mut answer)).await.expect("it is closed");
    (String::from_utf8(answer).unwrap(), since.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_in_time_closes_the_connection() {
    for (begun, pieces) in [("", vec![]), ("GET /slow HTTP/1.1\r\nHost: core\r\n", vec![b"X: y\r\n".to_vec(); 50])] {
        let (answer, after) = answer_to(begun, pieces, Duration::from_secs(1)).await;
        assert_eq!((answer.as_str(), after), ("", HEADER_WAIT), "{begun:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_alive_that_long_between_two_requests() {
    let served = Served::new();
    let mut stream = served.connect();
    for _ in 0..3 {
        stream.write_all(b"GET /slow HTTP/1.1\r\nHost: core\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
        sleep(HEADER_WAIT * 9 / 10).await;
    }
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: core\r\n\r\n").await.unwrap();
    sleep(Duration::from_secs(3)).await;
    let answered = Instant::now();
    assert_eq!(rest(&mut stream, answered).await.1, HEADER_WAIT);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stands_still_or_drips_is_answered_with_408() {
    for pieces in [vec![], vec![b"x".to_vec(); 600]] {
        let (answer, after) = answer_to(&post_head(1000), pieces, Duration::from_secs(1)).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("\"code\":\"request_timeout\""), "{answer}");
        assert_eq!(after, BODY_WAIT);
    }
}

/// The deadline moves on with each mebibyte, not with each byte.
#[tokio::test(start_paused = true)]
async fn a_slow_but_steady_body_is_taken() {
    let pieces = vec![vec![b'x'; BODY_WAIT_BYTES / 2]; 8];
    let head = post_head(4 * BODY_WAIT_BYTES);
    let pause = BODY_WAIT * 4 / 10;
    let (answer, after) = answer_to(&head, pieces.clone(), pause).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("4194304"), "{answer}");
    assert!(after >= 7 * pause);
    let pause = BODY_WAIT / 2 + Duration::from_secs(1);
    let (answer, after) = answer_to(&head, pieces, pause).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(after, pause + BODY_WAIT, "the second mebibyte came too late");
}

#[tokio::test(start_paused = true)]
async fn a_body_above_its_limit_is_refused_before_it_is_sent() {
    let (answer, _) = answer_to(&post_head(LIMIT + 1), vec![], Duration::ZERO).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let chunk = [b"80000\r\n", &vec![b'x'; 0x80000][..], b"\r\n"].concat();
    let head = "POST /count HTTP/1.1\r\nHost: core\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (answer, _) = answer_to(head, vec![chunk; 20], Duration::ZERO).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// Over a real network, where a stream that is closed with bytes in it is reset: the client is still writing when its
/// answer is made, writes to its end, and finds the answer there.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_writes_on_gets_the_answer_that_its_body_is_too_large() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = async |body: Body| -> ApiResult<String> { Ok(read_body(body, 1024).await?.len().to_string()) };
    let router = Router::new().route("/count", post(count));
    tokio::spawn(listen(listener, router, CancellationToken::new()));
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    client.write_all(post_head(LIMIT).as_bytes()).await.unwrap();
    // The answer is there before the body is.
    client.readable().await.unwrap();
    client.write_all(&vec![b'x'; LIMIT]).await.unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, *b"HTTP/1.1 413");
}

#[tokio::test(start_paused = true)]
async fn a_head_above_its_limit_is_refused() {
    let (fits, exceeds) = ("x".repeat(HEADER_MAX_BYTES / 2), "x".repeat(2 * HEADER_MAX_BYTES));
    let (answer, _) =
        answer_to(&format!("GET /slow HTTP/1.1\r\nHost: core\r\nX: {fits}\r\n\r\n"), vec![], Duration::ZERO).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let long = format!("GET /slow HTTP/1.1\r\nHost: core\r\nX: {exceeds}\r\n\r\n").into_bytes();
    let (answer, after) = answer_to("", vec![long], Duration::ZERO).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(after, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_open_requests_end_and_closes_idle_connections() {
    let served = Served::new();
    let (mut idle, mut open) = (served.connect(), served.connect());
    open.write_all(b"GET /slow HTTP/1.1\r\nHost: core\r\n\r\n").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let stopped = Instant::now();
    served.stop.cancel();
    assert_eq!(rest(&mut idle, stopped).await, (String::new(), Duration::ZERO));
    let (answer, after) = rest(&mut open, stopped).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(after, Duration::from_secs(2));
    served.ended.await.unwrap();
}
