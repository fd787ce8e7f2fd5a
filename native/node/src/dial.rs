//! From Core's origin to an open WebSocket (wire §4.4).

use std::io;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, SERVER};
use hyper::http::uri::Scheme;
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use palisade_core::deployment::origin::is_loopback;
use palisade_core::limits::DIAL_TIMEOUT_MS;
use palisade_core::session::backoff::Refused;
use palisade_socket::{Answer, Socket, UpgradeError};
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower::ServiceExt as _;

/// TCP, perhaps through a proxy's tunnel, perhaps under TLS.
pub type Stream = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Core itself rejected the credential. The only one that is final.
    #[error("core rejected this node's credential; register the node again")]
    Credential,
    /// Core itself refused, for now.
    #[error("core answered {0}")]
    Core(Refusal),
    /// Not Core's words (field report E9).
    #[error(
        "something between this node and core answered {0}; a proxy or load balancer on the way must pass WebSocket upgrades"
    )]
    Between(Refusal),
    /// No answer at all.
    #[error("core could not be reached: {0}")]
    Unreachable(String),
    /// Connect, TLS and upgrade took longer than 10 s.
    #[error("core did not answer within 10 s")]
    Timeout,
    /// The proxy of the environment cannot be used.
    #[error("the proxy {0} cannot be used; expected an http:// proxy")]
    Proxy(String),
}

impl DialError {
    /// What the answer asked to wait, in milliseconds.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Core(refusal) | Self::Between(refusal) => refusal.retry_after_ms,
            Self::Credential | Self::Unreachable(_) | Self::Timeout | Self::Proxy(_) => None,
        }
    }
}

/// The line of an answer that is safe and useful to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    status: String,
    server: Option<String>,
    retry_after_ms: Option<u64>,
}

impl Refusal {
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let text = |name: HeaderName| shown(headers, &name);
        let seconds = text(RETRY_AFTER).and_then(|seconds| seconds.parse::<u64>().ok());
        Self {
            status: status.to_string(),
            server: text(SERVER),
            retry_after_ms: seconds.map(|seconds| seconds.saturating_mul(1_000)),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "with status {}", self.status)?;
        match &self.server {
            Some(server) => write!(f, " from server {server:?}"),
            None => f.write_str(" and no server header"),
        }
    }
}

/// What carries a connection: TCP with TLS and proxies, or a simulation of it (decision 31).
pub trait Network: Send + Sync + 'static {
    /// A connected stream.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Reaches the host of `url`, under TLS for `https`.
    fn connect(&self, url: &Uri) -> impl Future<Output = Result<Self::Stream, DialError>> + Send;
}

/// Everything a dial needs.
pub struct Dialer<N> {
    /// `http` or `https` address of the connect route.
    url: Uri,
    authorization: HeaderValue,
    network: N,
}

impl<N: Network> Dialer<N> {
    /// Dials the connect route of `origin`, which has passed the rules of wire §4.3.
    ///
    /// # Errors
    /// The origin or the credential cannot stand in a request.
    pub fn new(network: N, origin: &str, node_id: &str, credential: &str) -> Result<Self, io::Error> {
        let base = origin.strip_suffix('/').unwrap_or(origin);
        let url = format!("{base}/api/v1/sandbox-node/connect?node_id={node_id}");
        let mut authorization = HeaderValue::try_from(format!("Bearer {credential}")).map_err(io::Error::other)?;
        authorization.set_sensitive(true);
        Ok(Self { url: url.try_into().map_err(io::Error::other)?, authorization, network })
    }

    /// One attempt.
    ///
    /// # Errors
    /// Only [`DialError::Credential`] is final.
    pub async fn dial(&self) -> Result<Socket<N::Stream>, DialError> {
        let attempt = async {
            let stream = self.network.connect(&self.url).await?;
            Socket::client(stream, self.request()).await.map_err(judge)
        };
        let limit = Duration::from_millis(DIAL_TIMEOUT_MS);
        tokio::time::timeout(limit, attempt).await.unwrap_or(Err(DialError::Timeout))
    }

    fn request(&self) -> Request<()> {
        let mut request = Request::new(());
        let path = self.url.path_and_query().expect("the route was joined").as_str();
        *request.uri_mut() = path.parse().expect("a path and query is an address");
        let authority = self.url.authority().expect("an origin has a host").as_str();
        let host = HeaderValue::from_str(authority).expect("an authority is visible ASCII");
        request.headers_mut().insert(HOST, host);
        request.headers_mut().insert(AUTHORIZATION, self.authorization.clone());
        request
    }
}

/// The real network, with the proxies of the environment.
pub struct Internet {
    proxies: Option<Matcher>,
}

impl Internet {
    /// The way to `origin`. Loopback is never proxied.
    #[must_use]
    pub fn towards(origin: &str) -> Self {
        Self { proxies: (!is_loopback(origin)).then(Matcher::from_env) }
    }
}

impl Network for Internet {
    type Stream = Stream;

    async fn connect(&self, url: &Uri) -> Result<Stream, DialError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let proxy = self.proxies.as_ref().and_then(|proxies| proxies.intercept(url));
        let connected = match &proxy {
            None => reach(http, url.clone()).await,
            Some(proxy) => reach(tunnel(http, proxy)?, url.clone()).await,
        };
        connected.map_err(|error| {
            let way = proxy.map(|proxy| format!("through {}: ", shown_proxy(&proxy))).unwrap_or_default();
            DialError::Unreachable(way + &chain(error.as_ref()))
        })
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// TLS over `connector` for `https`, with the trust of the system; for `http`, which needs none, nothing.
async fn reach<C>(connector: C, url: Uri) -> Result<Stream, Cause>
where
    C: tower::Service<Uri, Response = TokioIo<TcpStream>> + Send + 'static,
    C::Error: Into<Cause>,
    C::Future: Send + 'static,
{
    if url.scheme() == Some(&Scheme::HTTPS) {
        let tls = rustls::ClientConfig::with_platform_verifier()?;
        let secured = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1();
        return secured.wrap_connector(connector).oneshot(url).await.map(TokioIo::new);
    }
    let stream = connector.oneshot(url).await.map_err(Into::into)?;
    Ok(TokioIo::new(MaybeHttpsStream::Http(stream)))
}

fn tunnel(http: HttpConnector, proxy: &Intercept) -> Result<Tunnel<HttpConnector>, DialError> {
    if proxy.uri().scheme_str() != Some("http") {
        return Err(DialError::Proxy(shown_proxy(proxy)));
    }
    let tunnel = Tunnel::new(proxy.uri().clone(), http);
    Ok(match proxy.basic_auth() {
        Some(authorization) => tunnel.with_auth(authorization.clone()),
        None => tunnel,
    })
}

/// A proxy without its user and password.
fn shown_proxy(proxy: &Intercept) -> String {
    let uri = proxy.uri();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default())
}

/// Who answered instead of upgrading (decision 36).
fn judge(error: UpgradeError) -> DialError {
    match error {
        UpgradeError::Refused(answer) => match Refused::judge(answer.status.as_u16(), &answer.body) {
            Refused::Credential => DialError::Credential,
            Refused::Core => DialError::Core(refusal(&answer)),
            Refused::Between => DialError::Between(refusal(&answer)),
        },
        UpgradeError::Impostor(answer) => DialError::Between(refusal(&answer)),
        UpgradeError::Failed(error) => DialError::Unreachable(chain(&error)),
    }
}

fn refusal(answer: &Answer) -> Refusal {
    Refusal::of(answer.status, &answer.headers)
}

/// A header of a stranger, cut to what a log line can bear.
fn shown(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.chars().take(80).collect())
}

/// An error with its causes on one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

#[cfg(test)]
mod tests;
