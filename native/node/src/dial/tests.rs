use rstest::rstest;
use tokio::net::TcpListener;

use super::*;
use crate::connection::peer::{self, Peer};
use crate::testing::refusal as envelope;

const NODE: &str = "6f1c2b1e-5f0a-4a55-9d0e-0a1b2c3d4e5f";
const CREDENTIAL: &str = "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3";

/// Somebody on loopback, and a dialer to them.
async fn somebody() -> (TcpListener, Dialer<Internet>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}/", listener.local_addr().unwrap());
    let dialer = Dialer::new(Internet::towards(&origin), &origin, NODE, CREDENTIAL).unwrap();
    (listener, dialer)
}

/// Dials somebody who answers with these words.
async fn refused(status: &str, headers: &str, body: &str) -> DialError {
    let (listener, dialer) = somebody().await;
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        peer::head(&mut stream).await;
        peer::answer(stream, status, headers, body).await;
    };
    let (dialled, ()) = tokio::join!(dialer.dial(), answer);
    dialled.err().expect("no socket")
}

#[tokio::test]
async fn the_upgrade_names_the_node_and_shows_the_credential_once() {
    let (listener, dialer) = somebody().await;
    let accept = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = peer::head(&mut stream).await;
        Peer::upgrade(stream, &head).await;
        head
    };
    let (dialled, head) = tokio::join!(dialer.dial(), accept);
    dialled.unwrap();
    assert!(head.starts_with(&format!("GET /api/v1/sandbox-node/connect?node_id={NODE} HTTP/1.1\r\n")), "{head}");
    assert_eq!(head.to_ascii_lowercase().matches("authorization:").count(), 1);
    assert_eq!(peer::header(&head, "authorization"), Some(&*format!("Bearer {CREDENTIAL}")));
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(peer::header(&head, "host"), Some(&*address));
    for absent in ["origin", "sec-websocket-protocol", "sec-websocket-extensions"] {
        assert_eq!(peer::header(&head, absent), None, "{absent}");
    }
}

/// W 153. Only Core's own 401 is final; a 401 of something else, 403, 409 and 503 are retried.
#[rstest]
#[case("401 Unauthorized", true, "rejected this node's credential")]
#[case("401 Unauthorized", false, "something between this node and core answered with status 401 Unauthorized")]
#[case("403 Forbidden", true, "core answered with status 403 Forbidden")]
#[case("409 Conflict", true, "core answered with status 409 Conflict")]
#[case("503 Service Unavailable", true, "core answered with status 503 Service Unavailable")]
#[case("200 OK", false, "something between this node and core answered with status 200 OK")]
#[tokio::test]
async fn an_answer_is_judged_by_who_gave_it(#[case] status: &str, #[case] by_core: bool, #[case] words: &str) {
    let body = if by_core { envelope("invalid_node_credential") } else { "<html>sign in</html>".to_owned() };
    let error = refused(status, "", &body).await;
    assert_eq!(matches!(error, DialError::Credential), by_core && status.starts_with("401"));
    assert!(error.to_string().contains(words), "{error}");
}

/// E9: an answer of something on the way is reported with status and server, and `Retry-After` is heard.
#[tokio::test]
async fn something_between_is_named() {
    let error =
        refused("502 Bad Gateway", "Server: nginx/1.22\r\nRetry-After: 7\r\n", "<html>bad gateway</html>").await;
    let words = "something between this node and core answered with status 502 Bad Gateway from server \"nginx/1.22\"";
    assert!(error.to_string().contains(words), "{error}");
    assert_eq!(error.retry_after_ms(), Some(7_000));
}

/// E9: a false 101 is no connection.
#[tokio::test]
async fn a_false_upgrade_is_something_between() {
    let error = refused("101 Switching Protocols", "Upgrade: websocket\r\n", "").await;
    assert!(matches!(error, DialError::Between(_)), "{error}");
}

#[tokio::test]
async fn a_closed_port_is_unreachable() {
    let (listener, dialer) = somebody().await;
    drop(listener);
    assert!(matches!(dialer.dial().await, Err(DialError::Unreachable(_))));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_without_an_answer_ends_after_ten_seconds() {
    let (_listener, dialer) = somebody().await;
    let start = tokio::time::Instant::now();
    assert!(matches!(dialer.dial().await, Err(DialError::Timeout)));
    assert_eq!(start.elapsed().as_secs(), 10);
}

/// E9: a proxy of the environment is asked for a tunnel, so that it never sees the upgrade.
#[tokio::test]
async fn a_proxy_is_asked_for_a_tunnel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://user:secret@{}", listener.local_addr().unwrap());
    let dialer = |proxy: &str| {
        let proxies = Matcher::builder().all(proxy).build();
        Dialer::new(Internet { proxies: Some(proxies) }, "http://core.example:8080", NODE, CREDENTIAL).unwrap()
    };
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let connect = peer::head(&mut stream).await;
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let head = peer::head(&mut stream).await;
        Peer::upgrade(stream, &head).await;
        connect
    };
    let through = dialer(&proxy);
    let (dialled, connect) = tokio::join!(through.dial(), serve);
    dialled.unwrap();
    assert!(connect.starts_with("CONNECT core.example:8080 HTTP/1.1\r\n"), "{connect}");
    assert!(!connect.contains(CREDENTIAL));
    assert!(peer::header(&connect, "proxy-authorization").is_some());

    let refuse = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        peer::head(&mut stream).await;
        peer::answer(stream, "407 Proxy Authentication Required", "", "").await;
    };
    let (dialled, ()) = tokio::join!(through.dial(), refuse);
    let error = dialled.err().expect("no tunnel").to_string();
    assert!(error.contains("through http://127.0.0.1:") && !error.contains("secret"), "{error}");
    let error = dialer("socks5://127.0.0.1:9").dial().await.err().expect("no such tunnel");
    assert!(matches!(error, DialError::Proxy(_)), "{error}");
}
