//! The simulated network as the shells see it, and the trace of what happened in it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use hyper::Uri;
use palisade_node::{DialError, Network};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use turmoil::net::{TcpListener, TcpStream};

/// What happened, with the virtual time in milliseconds.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<(u64, String)>>>, Arc<AtomicBool>);

impl Trace {
    /// What a crash drops says nothing.
    pub(crate) fn mute(&self, muted: bool) {
        self.1.store(muted, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, what: String) {
        if self.1.load(Ordering::Relaxed) {
            return;
        }
        let now = turmoil::sim_elapsed().unwrap_or_default();
        self.0.lock().unwrap().push((u64::try_from(now.as_millis()).unwrap(), what));
    }

    pub(crate) fn all(&self) -> Vec<(u64, String)> {
        self.0.lock().unwrap().clone()
    }

    /// The times of everything that begins like this, from `since` on.
    pub(crate) fn times(&self, what: &str, since: Duration) -> Vec<u64> {
        let since = u64::try_from(since.as_millis()).unwrap();
        let all = self.0.lock().unwrap();
        all.iter().filter(|(at, happened)| *at >= since && happened.starts_with(what)).map(|(at, _)| *at).collect()
    }

    /// What begins like this, from `since` on.
    pub(crate) fn since(&self, what: &str, since: Duration) -> Vec<(u64, String)> {
        let since = u64::try_from(since.as_millis()).unwrap();
        let all = self.0.lock().unwrap();
        all.iter().filter(|(at, happened)| *at >= since && happened.starts_with(what)).cloned().collect()
    }
}

/// A stream that tells the trace when its shell let go of it, and how long nothing had come.
pub(crate) struct Wire {
    stream: TcpStream,
    trace: Trace,
    name: String,
    heard: Instant,
}

impl Wire {
    fn new(stream: TcpStream, trace: Trace, name: String) -> Self {
        Self { stream, trace, name, heard: Instant::now() }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.trace.add(format!("{} closes after {} ms of silence", self.name, self.heard.elapsed().as_millis()));
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            self.heard = Instant::now();
        }
        polled
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Core's door.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) trace: Trace,
}

impl Listener for Door {
    type Io = Wire;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Wire, SocketAddr) {
        let (stream, from) = self.listener.accept().await.expect("a simulated listener does not fail");
        let host = turmoil::reverse_lookup(from.ip()).unwrap_or_default();
        (Wire::new(stream, self.trace.clone(), format!("core to {host}")), from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A node's way to Core.
pub(crate) struct Simulated {
    pub(crate) trace: Trace,
    pub(crate) name: String,
}

impl Network for Simulated {
    type Stream = Wire;

    async fn connect(&self, url: &Uri) -> Result<Wire, DialError> {
        let host = url.host().expect("an origin has a host");
        let connected = TcpStream::connect((host, url.port_u16().unwrap_or(80))).await;
        let stream = connected.map_err(|error| DialError::Unreachable(error.to_string()))?;
        Ok(Wire::new(stream, self.trace.clone(), self.name.clone()))
    }
}
