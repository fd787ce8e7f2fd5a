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
    database: String,
    state: watch::Sender<State>,
}

impl Gate {
    /// A gate to the database at `location` that is open.
    pub(crate) async fn open(location: &Location) -> Self {
        let database = authority(location).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(State::Open);
        let behind = database.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass(stream, behind.clone(), seen.clone()));
            }
        });
        Self { address, database, state }
    }

    /// The same database, through the gate.
    pub(crate) fn before(&self, location: &Location) -> Location {
        Location::Url(url(location).replacen(&self.database, &self.address.to_string(), 1))
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

fn url(location: &Location) -> &str {
    let Location::Url(url) = location else { panic!("only PostgreSQL is reached over TCP") };
    url
}

/// Host and port, between the password and the path.
fn authority(location: &Location) -> &str {
    url(location).split_once('@').and_then(|(_, rest)| rest.split('/').next()).expect("a URL with user, host and port")
}

async fn pass(mut stream: TcpStream, database: String, mut state: watch::Receiver<State>) {
    let seen = *state.borrow_and_update();
    if seen == State::Open {
        let mut database = TcpStream::connect(database).await.unwrap();
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
