//! A way to the database that can be shut.

use std::net::SocketAddr;

use palisade_control::store::Location;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to the connections through a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// They are passed on.
    Open,
    /// They stay, and nothing goes through.
    Hanging,
    /// They are cut, new ones too.
    Cut,
}

/// Passes TCP connections on to PostgreSQL until it is shut.
pub(crate) struct Gate {
    address: SocketAddr,
    state: watch::Sender<State>,
}

impl Gate {
    /// A gate that is open.
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(State::Open);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass(stream, seen.clone()));
            }
        });
        Self { address, state }
    }

    /// The same database, through the gate.
    pub(crate) fn before(&self, location: &Location) -> Location {
        let Location::Url(url) = location else { panic!("only PostgreSQL is reached over TCP") };
        Location::Url(url.replacen("localhost:5432", &self.address.to_string(), 1))
    }

    /// From now on nothing goes through: connections hang, or are cut.
    pub(crate) fn shut(&self, hangs: bool) {
        self.state.send_replace(if hangs { State::Hanging } else { State::Cut });
    }

    /// New connections go through again. Those that hung stay dead.
    pub(crate) fn reopen(&self) {
        self.state.send_replace(State::Open);
    }
}

async fn pass(mut stream: TcpStream, mut state: watch::Receiver<State>) {
    let seen = *state.borrow_and_update();
    if seen == State::Open {
        let mut database = TcpStream::connect("localhost:5432").await.unwrap();
        tokio::select! {
            _ = copy_bidirectional(&mut stream, &mut database) => return,
            _ = state.changed() => {}
        }
    }
    let now = *state.borrow();
    if now == State::Hanging {
        std::future::pending::<()>().await;
    }
}
