//! One node's way to Core, which is slow when it shall be, falls silent, and knows what passed.
//!
//! Nodes dial Core at one address, where [`Router`] tells them apart by the identifier in their requests. Files of releases
//! are asked for without one, so that each node has an address of its own for them. While a way is silent, nothing is
//! closed and nothing is refused; nothing arrives. When it comes back, it knows no connection of before, and resets them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes a second of a download.
const RATE: f64 = 2.0 * 1024.0 * 1024.0;
/// Bytes a second of a download that has become slow: more than what counts as a stall.
const CRAWL: f64 = 16.0 * 1024.0;
/// What is moved at once.
const PIECE_BYTES: usize = 16 * 1024;
/// Longest head of a request.
const HEAD_MAX_BYTES: usize = 16 * 1024;

/// The way of each node, by what only that node sends.
type Ways = Arc<Mutex<Vec<(String, Arc<Way>)>>>;

/// Where all nodes dial Core. Whoever it does not know passes.
pub(crate) struct Router {
    pub(crate) address: SocketAddr,
    core: Arc<OnceLock<SocketAddr>>,
    ways: Ways,
    accepting: JoinHandle<()>,
}

/// The way of one node.
pub(crate) struct Link {
    /// Where the node asks for files.
    pub(crate) address: SocketAddr,
    way: Arc<Way>,
    accepting: JoinHandle<()>,
}

/// A request for a file that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// The first byte that was asked for; `None` asks for all of them.
    pub(crate) from: Option<u64>,
    /// Bytes of the answer that passed, its head included.
    pub(crate) passed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    silent: bool,
    /// How often it came back: connections of before are unknown to it.
    era: u64,
    /// Bytes of a file after which its download becomes slow.
    slow_after: Option<u64>,
}

#[derive(Debug)]
struct Way {
    state: watch::Sender<State>,
    asked: Mutex<Vec<Asked>>,
}

impl Router {
    /// Listens. Nothing is answered before it knows where Core is.
    pub(crate) async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (core, ways) = (Arc::new(OnceLock::new()), Ways::default());
        let (known, stranger) = (Arc::clone(&ways), Arc::new(Way::new()));
        let find = move |head: &[u8]| {
            let known = locked(&known);
            let names = |id: &str| head.windows(id.len()).any(|found| found == id.as_bytes());
            known.iter().find(|(id, _)| names(id)).map_or_else(|| Arc::clone(&stranger), |(_, way)| Arc::clone(way))
        };
        let accepting = tokio::spawn(accept(listener, Arc::clone(&core), find));
        Ok(Self { address, core, ways, accepting })
    }

    /// From now on, it leads to Core.
    pub(crate) fn lead_to(&self, core: SocketAddr) {
        // Core has one address for as long as a chapter lasts.
        let _ = self.core.set(core);
    }

    /// A way for one node.
    pub(crate) async fn link(&self) -> io::Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, way) = (listener.local_addr()?, Arc::new(Way::new()));
        let only = Arc::clone(&way);
        let accepting = tokio::spawn(accept(listener, Arc::clone(&self.core), move |_: &[u8]| Arc::clone(&only)));
        Ok(Link { address, way, accepting })
    }

    /// From now on, the node with this identifier has this way.
    pub(crate) fn knows(&self, id: &str, link: &Link) {
        locked(&self.ways).push((id.to_owned(), Arc::clone(&link.way)));
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Link {
    /// Downloads become slow after so many bytes; with `None`, those under way are fast again.
    pub(crate) fn slow_after(&self, bytes: Option<u64>) {
        self.way.state.send_modify(|state| state.slow_after = bytes);
    }

    /// From now on, nothing arrives.
    pub(crate) fn fall_silent(&self) {
        self.way.state.send_modify(|state| state.silent = true);
    }

    /// It is back, and has forgotten every connection.
    pub(crate) fn come_back(&self) {
        self.way.state.send_modify(|state| *state = State { silent: false, era: state.era + 1, ..*state });
    }

    /// Every request for a file whose name ends like this, in order.
    pub(crate) fn asked(&self, ending: &str) -> Vec<Asked> {
        locked(&self.way.asked).iter().filter(|asked| asked.path.ends_with(ending)).cloned().collect()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Way {
    fn new() -> Self {
        let (state, _) = watch::channel(State { silent: false, era: 0, slow_after: None });
        Self { state, asked: Mutex::new(Vec::new()) }
    }

    /// Waits for as long as nothing arrives. Gives the era in which something does.
    async fn arrives(&self) -> u64 {
        // The sender lives in `self`.
        self.state.subscribe().wait_for(|state| !state.silent).await.map_or(0, |state| state.era)
    }

    /// Takes note of a request; says which it is.
    fn note(&self, head: &[u8]) -> Option<usize> {
        let head = std::str::from_utf8(head).ok()?;
        let path = head.strip_prefix("GET ")?.split(' ').next()?.to_owned();
        let range =
            head.lines().find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("range")));
        let from = range.and_then(|(_, range)| range.trim().strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let mut asked = locked(&self.asked);
        asked.push(Asked { path, from, passed: 0 });
        Some(asked.len() - 1)
    }

    /// Counts what passed of an answer, and says how long that takes on this way.
    fn pass(&self, request: usize, bytes: usize) -> Duration {
        let slow_after = self.state.borrow().slow_after;
        let mut asked = locked(&self.asked);
        let Some(asked) = asked.get_mut(request) else { return Duration::ZERO };
        asked.passed += bytes as u64;
        let slow = asked.path.contains("/artifacts/")
            && slow_after.is_some_and(|after| asked.from.unwrap_or(0) + asked.passed > after);
        #[expect(clippy::cast_precision_loss, reason = "a piece is small")]
        Duration::from_secs_f64(bytes as f64 / if slow { CRAWL } else { RATE })
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(
    listener: TcpListener,
    core: Arc<OnceLock<SocketAddr>>,
    find: impl Fn(&[u8]) -> Arc<Way> + Clone + Send + Sync + 'static,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let (core, find) = (Arc::clone(&core), find.clone());
        // A connection that fails is its ends' concern, as on any network.
        tokio::spawn(async move { carry(client, &core, find).await.ok() });
    }
}

/// Carries one connection to its end, or resets both sides when it is forgotten.
async fn carry(mut client: TcpStream, core: &OnceLock<SocketAddr>, find: impl Fn(&[u8]) -> Arc<Way>) -> io::Result<()> {
    let mut head = vec![0; HEAD_MAX_BYTES];
    let read = client.read(&mut head).await?;
    head.truncate(read);
    let way = find(&head);
    let era = way.arrives().await;
    let mut forgotten = way.state.subscribe();
    let mut core = TcpStream::connect(*core.get().ok_or(io::ErrorKind::NotConnected)?).await?;
    // What is forgotten carries nothing more, also not what it holds.
    let carried = tokio::select! {
        biased;
        _ = forgotten.wait_for(|state| state.era != era) => Err(io::ErrorKind::ConnectionReset.into()),
        carried = exchange(&head, &mut client, &mut core, &way, era) => carried,
    };
    if carried.is_err() {
        client.set_zero_linger()?;
        core.set_zero_linger()?;
    }
    carried
}

async fn exchange(head: &[u8], client: &mut TcpStream, core: &mut TcpStream, way: &Way, era: u64) -> io::Result<()> {
    let request = Mutex::new(way.note(head));
    core.write_all(head).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_core, mut to_core) = core.split();
    let current = || *locked(&request);
    let up = pump(&mut from_client, &mut to_core, way, era, |piece| {
        // One connection of a client carries one request after another.
        let known = current();
        *locked(&request) = way.note(piece).or(known);
        Duration::ZERO
    });
    let down = pump(&mut from_core, &mut to_client, way, era, |piece| {
        current().map_or(Duration::ZERO, |request| way.pass(request, piece.len()))
    });
    tokio::try_join!(up, down).map(drop)
}

async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    way: &Way,
    era: u64,
    mut passing: impl FnMut(&[u8]) -> Duration,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = from.read(&mut piece).await?;
        // It may come back between the look at what is forgotten and this one.
        if way.arrives().await != era {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if read == 0 {
            return to.shutdown().await;
        }
        let takes = passing(&piece[..read]);
        to.write_all(&piece[..read]).await?;
        tokio::time::sleep(takes).await;
    }
}
