//! The client's side of the HTTP upgrade, over hyper, so that a refusal comes with its whole body.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tungstenite::handshake::client::generate_key;
use tungstenite::handshake::derive_accept_key;

use crate::limits::REFUSAL_BODY_MAX_BYTES;

/// An answer that is no upgrade.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Anything but an honest 101.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The body; empty when it could not be read or is above 16 KiB.
    pub body: Bytes,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// Somebody answered with another status than 101.
    #[error("the upgrade was answered with status {}", .0.status.as_u16())]
    Refused(Box<Answer>),
    /// Somebody answered 101 without knowing the WebSocket protocol.
    #[error("the upgrade was answered with a false 101")]
    Impostor(Box<Answer>),
    /// The stream failed, or what came was no HTTP.
    #[error("the upgrade failed: {0}")]
    Failed(#[from] hyper::Error),
}

/// The upgraded stream and what had already been read of it.
pub(crate) async fn client<S>(stream: S, request: Request<()>) -> Result<(S, Bytes), UpgradeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let key = generate_key();
    let request = with_upgrade_headers(request, &key);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut connection = Box::pin(connection.with_upgrades());
    let answer = async {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(UpgradeError::Refused(Box::new(read(response).await)));
        }
        if response.version() != Version::HTTP_11 || !is_accepted(response.headers(), &key) {
            let (parts, _) = response.into_parts();
            let answer = Answer { status: parts.status, headers: parts.headers, body: Bytes::new() };
            return Err(UpgradeError::Impostor(Box::new(answer)));
        }
        Ok(hyper::upgrade::on(response).await?)
    };
    tokio::pin!(answer);
    let upgraded = tokio::select! {
        answered = &mut answer => answered?,
        _ = &mut connection => answer.await?,
    };
    let parts = upgraded.downcast::<TokioIo<S>>().expect("the stream that was handed to hyper");
    Ok((parts.io.into_inner(), parts.read_buf))
}

fn with_upgrade_headers(request: Request<()>, key: &str) -> Request<Empty<Bytes>> {
    let mut request = request.map(|()| Empty::new());
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_str(key).expect("a key is base64"));
    request
}

/// Nothing but the exact proof counts; we offer no subprotocol and no extension, so none may be chosen.
fn is_accepted(headers: &HeaderMap, key: &str) -> bool {
    names(headers, UPGRADE, "websocket")
        && names(headers, CONNECTION, "upgrade")
        && headers.get_all(SEC_WEBSOCKET_ACCEPT).iter().eq([&derive_accept_key(key.as_bytes())])
        && !headers.contains_key(SEC_WEBSOCKET_EXTENSIONS)
        && !headers.contains_key(SEC_WEBSOCKET_PROTOCOL)
}

/// Whether a header that is a list of tokens has this one.
fn names(headers: &HeaderMap, header: HeaderName, token: &str) -> bool {
    headers
        .get_all(header)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(token))
}

async fn read(response: Response<hyper::body::Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, REFUSAL_BODY_MAX_BYTES).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Answer { status: parts.status, headers: parts.headers, body }
}
