//! Answers that send a download elsewhere.

use super::*;

const V1: &str = "\"v1\"";

/// H 12. A redirect to plain http refuses, whoever sends it, and nothing is written.
#[tokio::test]
async fn a_redirect_to_plain_http_is_refused() {
    let elsewhere = Server::start(|_| Answer::whole(b"x", V1)).await;
    for status in [301, 302, 303, 307, 308] {
        let target = format!("{}/file", elsewhere.origin);
        let lab = Lab::new(move |_| Answer::to(status, &target).length(0)).await;
        let refused = lab.fetch(&program(b"x")).await.unwrap_err();
        assert!(matches!(refused, DownloadError::Redirect { .. }) && refused.is_transfer(), "{refused}");
        assert!(!refused.to_string().contains("127.0.0.1"), "{refused}");
        assert_eq!((lab.path(PROGRAM).exists(), lab.server.asked().len()), (false, 1));
    }
    assert_eq!(elsewhere.asked().len(), 0);
}

/// H 13, H 14. An https redirect is followed, verified and resumed, with the range and nothing else of its own.
#[tokio::test]
async fn an_https_redirect_is_followed_without_anything_secret() {
    let bytes = content(300_000);
    let served = bytes.clone();
    let files = Server::secure(move |asked| match asked.number {
        0 => Answer::good(asked, &served, V1).cut(100_000),
        _ => Answer::good(asked, &served, V1),
    })
    .await;
    let target = format!("{}/signed?key=value", files.origin);
    let answer = move |_: &Asked| Answer::to(307, &target).with("set-cookie", "session=secret; Path=/").length(0);
    let lab = Lab::of(Server::start(answer).await.trusting(&files));
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!((lab.bytes(PROGRAM), lab.files()), (bytes, vec![PROGRAM.to_owned()]));
    for asked in files.asked().iter().chain(&lab.server.asked()) {
        let mut names: Vec<_> = asked.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.retain(|name| !matches!(*name, "accept" | "accept-encoding" | "host" | "range" | "if-range"));
        assert_eq!(names, Vec::<&str>::new(), "{}", asked.path);
    }
    assert_eq!((files.asked()[1].from(), files.asked()[1].header("if-range")), (100_000, Some(V1)));
    assert_eq!(files.asked()[0].path, "/signed?key=value");
}

/// H 14. Over TLS an answer may name a path alone, and may not lead back to plain http, nor in a circle.
#[tokio::test]
async fn redirects_stay_on_https_and_end() {
    let bytes = content(1000);
    let served = bytes.clone();
    let moving = Server::secure(move |asked| match asked.path.as_str() {
        "/moved" => Answer::whole(&served, V1),
        _ => Answer::to(302, "/moved").length(0),
    });
    let lab = Lab::of(moving.await);
    lab.fetch(&program(&bytes)).await.unwrap();
    assert_eq!(lab.server.paths()[1], "/moved");

    let circle = Lab::of(Server::secure(|_| Answer::to(302, "/again").length(0)).await);
    assert!(matches!(circle.fetch(&program(&bytes)).await, Err(DownloadError::Redirect { .. })));
    assert_eq!(circle.server.asked().len(), crate::limits::REDIRECTS_MAX + 1);

    let down = Lab::of(Server::secure(|_| Answer::to(302, "http://localhost/a").length(0)).await);
    assert!(matches!(down.fetch(&program(&bytes)).await, Err(DownloadError::Redirect { .. })));
}

/// A certificate that nobody trusts is no connection.
#[tokio::test]
async fn an_untrusted_server_is_unreachable() {
    let (lab, other) = (Server::secure(|_| Answer::whole(b"x", V1)).await, Server::secure(|_| Answer::new(200)).await);
    let lab = Lab::of(lab.trusting(&other));
    assert!(matches!(lab.fetch(&program(b"x")).await, Err(DownloadError::Unreachable { .. })));
    assert_eq!(lab.server.asked().len(), 0);
}
