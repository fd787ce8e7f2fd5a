//! A node without a host: the real session over real sockets, with a provider that fails on demand.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_core::generation::{Found, Table};
use palisade_core::session::node::Node as Machine;
use palisade_core::testing::health;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{GenerationReference, Identity};
use palisade_node::{Connections, Dial, Dialer, End, Host, Internet, Sampler, Stream, Work};
use palisade_provider::Provider;
use palisade_provider::testing::FaultProvider;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::core::{Core, KEY};

/// An enrolled node; what its provider holds outlives its connections.
pub(crate) struct Node {
    pub(crate) id: Id,
    pub(crate) provider: Arc<FaultProvider>,
    identity: Identity<'static>,
    credential: String,
    origin: String,
    running: Option<(CancellationToken, JoinHandle<End>)>,
}

impl Node {
    /// Enrolls for the current selection, with room for this many sandboxes, and connects.
    pub(crate) async fn enroll(core: &Core, max_active: u32, max_retained: u32) -> Self {
        let (_, view) = core.admin(Method::GET, "/core/v1/sandbox/deployment", Value::Null).await;
        let limits = json!({"max_active": max_active, "max_retained": max_retained});
        let (_, issued) = core.admin(Method::POST, "/core/v1/sandbox/enrollment-tokens", limits).await;
        let id = Id::from_random(rand::random());
        let credential = format!("{:032x}", rand::random::<u128>()).repeat(2);
        let (provider, digest) = (view["provider"].as_str().unwrap(), view["specification_digest"].as_str().unwrap());
        let fingerprint = Digest::of(id.to_string().as_bytes()).to_string();
        let body = json!({
            "node_id": id, "credential": credential, "name": format!("node-{id}"), "provider": provider,
            "backend_fingerprint": fingerprint, "deployment_generation": view["generation"],
            "specification_digest": digest, "core_url": core.origin(),
        });
        let token = issued["token"].as_str().unwrap();
        let (status, answer) = core.ask(Method::POST, "/api/v1/sandbox-node/enroll", token, body).await.unwrap();
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        let generation = Generation::new(view["generation"].as_u64().unwrap()).unwrap();
        let faulty = if provider == "microsandbox" { FaultProvider::suspending } else { FaultProvider::new };
        let identity = Identity {
            node_id: id.to_string().into(),
            installation_id: answer["installation_id"].as_str().unwrap().to_owned().into(),
            provider: provider.to_owned().into(),
            backend_fingerprint: fingerprint.into(),
            deployment_generation: generation.get(),
            specification_digest: digest.to_owned().into(),
            max_active: i64::from(max_active),
            max_retained: i64::from(if provider == "microsandbox" { max_retained } else { max_active }),
        };
        let (provider, origin) = (Arc::new(faulty(generation)), core.origin().to_owned());
        let mut node = Self { id, provider, identity, credential, origin, running: None };
        node.connect();
        node
    }

    /// Starts the node program again, on the same host.
    pub(crate) fn connect(&mut self) {
        let generation = self.provider.generation();
        let specification_digest = Digest::parse(&self.identity.specification_digest).unwrap();
        let reference = GenerationReference { generation, specification_digest };
        let found = Found::Provider(self.provider.declaration().clone());
        let machine = Machine::new(self.identity.clone(), None, Table::new([(reference, found)]));
        let way = Internet::towards(&self.origin);
        let dialer = Dialer::new(way, &self.origin, &self.id.to_string(), &self.credential).unwrap();
        let provider: Arc<dyn Provider> = self.provider.clone();
        let connections = Connections::new(machine, Bare(Arc::new(dialer)), BTreeMap::from([(generation, provider)]));
        let stop = CancellationToken::new();
        self.running = Some((stop.clone(), tokio::spawn(connections.run(stop))));
    }

    /// Stops the node program; the sandboxes stay.
    pub(crate) async fn disconnect(&mut self) {
        if let Some((stop, running)) = self.running.take() {
            stop.cancel();
            running.await.unwrap();
        }
    }

    /// Waits until Core says that the node is online and serves.
    pub(crate) async fn ready(&self, core: &Core) {
        let path = format!("/core/v1/sandbox/nodes/{}", self.id);
        loop {
            if let Ok((_, node)) = core.ask(Method::GET, &path, KEY, Value::Null).await
                && node["provider_ready"] == true
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// A host that measures nothing and remembers nothing.
struct Bare(Arc<Dialer<Internet>>);

impl Host for Bare {
    type Stream = Stream;

    fn dial(&self) -> Dial<Stream> {
        let dialer = Arc::clone(&self.0);
        Box::pin(async move { dialer.dial().await })
    }

    fn sampler(&self) -> Box<Sampler> {
        Box::new(|| Box::pin(async { Some(health([])) }))
    }

    fn store_epoch(&self, _: OwnerEpoch) -> Work<bool> {
        Box::pin(async { true })
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}
