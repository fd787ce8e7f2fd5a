//! Who connects, and how long they may take to say what they want.

use axum::Router;
use axum::body::Body;
use axum::serve::Listener;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::linger::{Lingering, Unread};
use crate::limits::{HEADER_MAX_BYTES, HEADER_WAIT};

/// Serves `router` over any network to whoever connects, until `stop`; then accepts nobody, and returns when the open
/// requests have ended. Upgraded connections are not waited for.
///
/// A connection that does not bring a whole request head within [`HEADER_WAIT`] is closed, one that is kept alive
/// between two requests included; bodies are bounded where they are read, in [`super::read_body`].
pub async fn listen<L: Listener>(mut listener: L, router: Router, stop: CancellationToken) {
    let open = TaskTracker::new();
    while let Some((stream, _)) = stop.run_until_cancelled(listener.accept()).await {
        open.spawn(converse(stream, router.clone(), stop.clone()));
    }
    drop(listener);
    open.close();
    open.wait().await;
}

async fn converse<S>(stream: S, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_WAIT).max_buf_size(HEADER_MAX_BYTES);
    let unread = Unread::default();
    let stream = Lingering::new(stream, unread.clone());
    let service = service_fn(|request: Request<Incoming>| {
        router.clone().oneshot(request.map(|body| Body::new(unread.watch(body))))
    });
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests;
