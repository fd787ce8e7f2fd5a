//! A server that answers as a test says, also badly, over plain TCP or TLS.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// How many came before it.
    pub(super) number: usize,
    pub(super) path: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
}

impl Asked {
    pub(super) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// The byte that the range starts at; 0 without one.
    pub(super) fn from(&self) -> usize {
        let range = self.header("range").map(|range| range.trim_start_matches("bytes=").trim_end_matches('-'));
        range.map_or(0, |from| from.parse().unwrap())
    }
}

/// What happens after the head of an answer.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// The connection closes.
    Close,
    /// Nothing more comes, and the connection stays.
    Hang,
    /// Bytes without end.
    Flood,
}

/// One answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    pub(super) end: End,
}

impl Answer {
    pub(super) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), end: End::Close }
    }

    /// The whole content, of a version.
    pub(super) fn whole(content: &[u8], version: &str) -> Self {
        Self::new(200).with("etag", version).length(content.len()).body(content)
    }

    /// What the request asks for, as a good server gives it.
    pub(super) fn good(asked: &Asked, content: &[u8], version: &str) -> Self {
        let same = asked.header("if-range").is_none_or(|given| given == version);
        match asked.from() {
            from if from > 0 && same => Self::part(content, from, version),
            _ => Self::whole(content, version),
        }
    }

    pub(super) fn part(content: &[u8], from: usize, version: &str) -> Self {
        let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
        let part = &content[from..];
        Self::new(206).with("etag", version).with("content-range", &range).length(part.len()).body(part)
    }

    pub(super) fn to(status: u16, location: &str) -> Self {
        Self::new(status).with("location", location)
    }

    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn length(self, length: usize) -> Self {
        self.with("content-length", &length.to_string())
    }

    pub(super) fn body(mut self, bytes: &[u8]) -> Self {
        bytes.clone_into(&mut self.body);
        self
    }

    /// Only the first bytes of the body come.
    pub(super) fn cut(mut self, at: usize) -> Self {
        self.body.truncate(at);
        self
    }

    pub(super) fn then(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

/// A running server.
pub(super) struct Server {
    pub(super) origin: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    authority: Option<reqwest::Certificate>,
}

impl Server {
    pub(super) async fn start(answer: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        Self::serve(answer, None, None).await
    }

    /// Over TLS, as `localhost`.
    pub(super) async fn secure(answer: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let authority = reqwest::Certificate::from_der(cert.der()).unwrap();
        Self::serve(answer, Some(TlsAcceptor::from(Arc::new(config))), Some(authority)).await
    }

    async fn serve(
        answer: impl FnMut(&Asked) -> Answer + Send + 'static,
        tls: Option<TlsAcceptor>,
        authority: Option<reqwest::Certificate>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let origin =
            if tls.is_some() { format!("https://localhost:{port}") } else { format!("http://127.0.0.1:{port}") };
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&asked), Arc::new(Mutex::new(answer)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, answer, tls) = (Arc::clone(&kept), Arc::clone(&answer), tls.clone());
                tokio::spawn(async move {
                    let choose = |request: Asked| {
                        let mut kept = kept.lock().unwrap();
                        let request = Asked { number: kept.len(), ..request };
                        kept.push(request.clone());
                        (answer.lock().unwrap())(&request)
                    };
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                converse(stream, choose).await;
                            }
                        }
                        None => converse(stream, choose).await,
                    }
                });
            }
        });
        Self { origin, asked, authority }
    }

    /// Trusts another server's authority instead of its own.
    pub(super) fn trusting(mut self, other: &Self) -> Self {
        self.authority.clone_from(&other.authority);
        self
    }

    pub(super) fn authority(&self) -> Option<reqwest::Certificate> {
        self.authority.clone()
    }

    /// The requests so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.path).collect()
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, choose: impl FnOnce(Asked) -> Answer) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let answer = choose(Asked { number: 0, path, headers });
    let mut text = format!("HTTP/1.1 {} Any\r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        write!(text, "{name}: {value}\r\n").expect("a string takes everything");
    }
    text.push_str("\r\n");
    let flood = vec![b'x'; 65_536];
    let sent = async {
        stream.write_all(text.as_bytes()).await?;
        stream.write_all(&answer.body).await?;
        stream.flush().await?;
        match answer.end {
            End::Close => {}
            End::Hang => std::future::pending().await,
            End::Flood => loop {
                stream.write_all(&flood).await?;
            },
        }
        stream.shutdown().await
    };
    // Whoever asked may have gone.
    let _ = sent.await;
}
