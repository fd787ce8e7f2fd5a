//! A whole node over loopback: its own state directory, a Core that speaks HTTP and WebSocket, a provider in memory.

use std::os::unix::fs::PermissionsExt;

use palisade_core::operation::Operation;
use palisade_core::units::{Digest, Generation};
use palisade_core::wire::payload::Deployment;
use palisade_provider::testing::reference;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::connection::peer::{self, Peer};
use crate::identity;
use crate::status::status;
use crate::testing::{DIGEST, Host as Folder, approval, fingerprint, parsed, ready, refusal};

/// A preparer that ends at once with a local failure.
fn no_preparer(root: PathBuf, installation: Id) -> Preparer {
    Preparer { program: vec!["/bin/false".into()], root, installation }
}

/// A registered node's folder, and the Core it is registered at.
struct Site {
    folder: Folder,
    core: TcpListener,
    node_id: String,
}

impl Site {
    async fn new() -> Self {
        let (folder, core) = (Folder::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let origin = Origin::parse(&format!("http://{}", core.local_addr().unwrap())).unwrap();
        std::fs::set_permissions(folder.directory.path(), PermissionsExt::from_mode(0o700)).unwrap();
        crate::files::ensure_private_directory(&folder.path("state")).unwrap();
        let state = State::create(&folder.path("state/node")).unwrap();
        let stored = state.adopt_or_create(&parsed(), fingerprint(), &origin, false).unwrap();
        Self { folder, core, node_id: stored.identity.node_id.to_string() }
    }

    fn options(&self) -> Run {
        Run { config: self.folder.path("provider.json"), state_dir: self.folder.path("state/node"), core_url: None }
    }

    fn stored(&self) -> Stored {
        identity::peek(&self.folder.path("state/node")).unwrap().unwrap()
    }

    /// The next request for `route`.
    async fn request(&self, route: &str) -> (TcpStream, String) {
        let (mut stream, _) = self.core.accept().await.unwrap();
        let head = peer::head(&mut stream).await;
        assert!(head.starts_with(&format!("GET /api/v1/sandbox-node/{route}?node_id={} ", self.node_id)), "{head}");
        let credential = self.stored().credential.as_str().to_owned();
        assert_eq!(peer::header(&head, "authorization"), Some(&*format!("Bearer {credential}")));
        (stream, head)
    }

    /// Starts the node, and answers its question about its identity.
    async fn start(&self) -> (JoinHandle<End>, CancellationToken) {
        let options = self.options();
        let approve = async {
            let (stream, _) = self.request("identity").await;
            let body = approval(&self.node_id, 4, 16).to_string();
            peer::answer(stream, "200 OK", "", &body).await;
        };
        let started = async {
            let build = Arc::new(|_: &Configuration| Ok(ready()));
            start_with(&options, build, no_preparer).await.unwrap_or_else(|error| panic!("no start: {error}"))
        };
        let (connections, ()) = tokio::join!(started, approve);
        let stop = CancellationToken::new();
        (tokio::spawn(connections.run(stop.clone())), stop)
    }

    async fn peer(&self) -> Peer<TcpStream> {
        let (stream, head) = self.request("connect").await;
        Peer::upgrade(stream, &head).await
    }
}

fn deployment() -> Deployment {
    let generation = Generation::new(3).unwrap();
    let specification_digest = Digest::parse(DIGEST).unwrap();
    Deployment { generation, specification_digest, serving_generation: Some(generation) }
}

/// Sends a harmless request and waits for its answer, so that the connection is live for certain.
async fn use_once(peer: &mut Peer<TcpStream>) {
    let id = peer.request(Generation::new(3).unwrap(), reference(1), Operation::GetInfo, 5_000).await;
    assert_eq!(peer.response().await.id, id.to_string());
}

/// W 37. A Core with a higher epoch takes the node over.
/// W 39. The identity then holds the new epoch and the unchanged credential.
/// W 40. A restarted node connects with the same identity.
/// W 42. A running node holds the lock; another opener fails.
/// H 247. A restart keeps identity, credential and epoch.
#[tokio::test]
async fn a_restart_keeps_identity_credential_and_epoch() {
    let site = Site::new().await;
    let credential = site.stored().credential;
    for epoch in [9, 12] {
        let (node, stop) = site.start().await;
        assert!(matches!(State::open(&site.folder.path("state/node")), Err(IdentityError::InUse(_))));
        let mut peer = site.peer().await;
        peer.welcome(epoch, deployment()).await;
        use_once(&mut peer).await;
        assert_eq!(status(&site.folder.path("state/node")).unwrap().owner_epoch, epoch);
        stop.cancel();
        peer.ended().await;
        assert_eq!(node.await.unwrap(), End::Stopped);
        let stored = site.stored();
        assert_eq!((stored.identity.node_id.to_string(), &stored.credential), (site.node_id.clone(), &credential));
        assert_eq!(stored.identity.max_active, 4);
    }
    let (node, stop) = site.start().await;
    let mut peer = site.peer().await;
    peer.welcome(11, deployment()).await;
    peer.ended().await;
    assert_eq!(site.stored().owner_epoch, OwnerEpoch::new(12));
    stop.cancel();
    node.await.unwrap();
}

/// E1: a conflict is retried, not final. W 153. Core's own 401 ends the node with 78.
#[tokio::test]
async fn a_conflict_is_retried_and_a_rejected_credential_ends_the_node() {
    let site = Site::new().await;
    let (node, _stop) = site.start().await;
    let answers = [("409 Conflict", refusal("conflict")), ("401 Unauthorized", "<html>proxy</html>".to_owned())];
    for (status, body) in answers {
        let (stream, _) = site.request("connect").await;
        peer::answer(stream, status, "", &body).await;
    }
    let (stream, _) = site.request("connect").await;
    peer::answer(stream, "401 Unauthorized", "", &refusal("invalid_node_credential")).await;
    assert_eq!(node.await.unwrap(), End::Credential);
    assert_eq!(ExitStatus::CredentialRejected.code(), 78);
}

/// W 153. At the start, only Core's own 401 is 78; everything else is 1 and leaves the state as it was.
#[tokio::test]
async fn a_start_that_core_refuses_names_its_status() {
    let site = Site::new().await;
    let before = std::fs::read(site.folder.path("state/node/identity.json")).unwrap();
    let answers = [
        ("401 Unauthorized", refusal("invalid_node_credential"), ExitStatus::CredentialRejected),
        ("401 Unauthorized", "<html>proxy</html>".to_owned(), ExitStatus::Failed),
        ("403 Forbidden", refusal("forbidden"), ExitStatus::Failed),
        ("503 Service Unavailable", refusal("runtime_node_unavailable"), ExitStatus::Failed),
    ];
    for (status, body, expected) in answers {
        let options = site.options();
        let refuse = async {
            let (stream, _) = site.request("identity").await;
            peer::answer(stream, status, "", &body).await;
        };
        let (started, ()) =
            tokio::join!(start_with(&options, Arc::new(|_: &Configuration| Ok(ready())), no_preparer), refuse);
        assert_eq!(started.err().expect("no start").status(), expected, "{status}");
        assert_eq!(std::fs::read(site.folder.path("state/node/identity.json")).unwrap(), before);
    }
}

#[tokio::test]
async fn another_address_or_an_unregistered_directory_does_not_start() {
    let site = Site::new().await;
    let other = Run { core_url: Some("https://other.example".to_owned()), ..site.options() };
    let error =
        start_with(&other, Arc::new(|_: &Configuration| Ok(ready())), no_preparer).await.err().expect("no start");
    assert!(matches!(error, RunError::State(IdentityError::Foreign(_))), "{error}");
    let elsewhere = Run { state_dir: site.folder.path("elsewhere"), ..site.options() };
    let error =
        start_with(&elsewhere, Arc::new(|_: &Configuration| Ok(ready())), no_preparer).await.err().expect("no start");
    assert!(matches!(error, RunError::Layout), "{error}");
    let nowhere = site.options();
    std::fs::rename(&nowhere.state_dir, site.folder.path("state/elsewhere")).unwrap();
    let error =
        start_with(&nowhere, Arc::new(|_: &Configuration| Ok(ready())), no_preparer).await.err().expect("no start");
    assert!(matches!(error, RunError::State(IdentityError::Unregistered(_))), "{error}");
    assert_eq!(error.status().code(), 1);
}
