//! The node's half: the real program of a node, over a provider that answers at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use palisade_core::generation::{Found, Table};
use palisade_core::operation::{Declaration, Operation, Support};
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::session::node::Node;
use palisade_core::testing::health;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Checkpoint, CommandResult, Deployment, GenerationReference, Identity, Info};
use palisade_node::{Connections, Dial, Dialer, Host, Internet, Sampler, Stream, Work};
use palisade_provider::{Context, NotReady, Provider, flattened};
use tokio_util::sync::CancellationToken;

use crate::part::{orders, say};

pub(crate) const NODE: Id = Id::from_random([1; 16]);

/// Serves Core until standard input ends.
pub(crate) async fn run(origin: String) -> anyhow::Result<()> {
    let dialer = Dialer::new(Internet::towards(&origin), &origin, &NODE.to_string(), "credential")?;
    let found = Found::Provider(declaration());
    let generation =
        GenerationReference { generation: Generation::FIRST, specification_digest: deployment().specification_digest };
    let node = Node::new(identity(), None, Table::new([(generation, found)]));
    let provider: Arc<dyn Provider> = Arc::new(Instant(declaration()));
    let host = Nowhere { dialer: Arc::new(dialer) };
    let connections = Connections::new(node, host, BTreeMap::from([(Generation::FIRST, provider)]));
    let stop = CancellationToken::new();
    let running = tokio::spawn(connections.run(stop.clone()));
    say("running")?;
    let mut orders = orders();
    while orders.next_line().await?.is_some() {}
    stop.cancel();
    running.await?;
    Ok(())
}

pub(crate) fn identity() -> Identity<'static> {
    Identity {
        node_id: NODE.to_string().into(),
        installation_id: Id::from_random([2; 16]).to_string().into(),
        provider: "docker".into(),
        backend_fingerprint: Digest::of(b"backend").to_string().into(),
        deployment_generation: 1,
        specification_digest: deployment().specification_digest.to_string().into(),
        max_active: 1,
        max_retained: 1,
    }
}

pub(crate) fn deployment() -> Deployment {
    Deployment {
        generation: Generation::FIRST,
        specification_digest: Digest::of(b"specification"),
        serving_generation: Some(Generation::FIRST),
    }
}

fn declaration() -> Declaration {
    let not = |reason: &str| Support::Unsupported { reason: reason.to_owned() };
    let (checkpoint, preparation) = (not("no_checkpoints_here"), not("no_preparation_here"));
    Declaration::of_groups(&Support::Supported, &checkpoint, &preparation).expect("the reasons are reason codes")
}

/// A host without disk and measurements.
struct Nowhere {
    dialer: Arc<Dialer<Internet>>,
}

impl Host for Nowhere {
    type Stream = Stream;

    fn dial(&self) -> Dial<Stream> {
        let dialer = Arc::clone(&self.dialer);
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

/// A provider without a backend.
struct Instant(Declaration);

#[async_trait]
impl Provider for Instant {
    fn declaration(&self) -> &Declaration {
        &self.0
    }

    async fn execute(
        &self,
        context: Context,
        operation: Operation<'static>,
    ) -> Result<Answer<'static>, Failed<'static>> {
        match operation {
            Operation::GetInfo => Ok(Answer::Info(Info {
                reference: flattened(context.reference),
                provider_id: "instant".into(),
                state: "running".into(),
                bootstrap_complete: true,
                create_settled: false,
            })),
            Operation::RunCommand(_) => {
                Ok(Answer::Command(CommandResult { stdout: "".into(), stderr: "".into(), exit_code: 0 }))
            }
            _ => Err(Failure::Invalid.into()),
        }
    }

    async fn probe(&self) -> Result<Option<Checkpoint<'static>>, NotReady> {
        Ok(None)
    }

    fn generation(&self) -> Generation {
        Generation::FIRST
    }
}
