//! Core's half: the real hub behind the real HTTP server, over records that are always the same.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use async_trait::async_trait;
use palisade_control::hub::{Bounds, Denied, Failed, Hub, NodeStore, Placement, Retained};
use palisade_control::store::{Location, Store};
use palisade_control::{Core, CoreKeys, Execution, http};
use palisade_core::deployment::contract::Provider;
use palisade_core::operation::Operation;
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::{Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Command, Deployment, GenerationReference, Health, Identity, Retention};
use palisade_provider::testing::reference;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::node::{NODE, deployment, identity};
use crate::part::{orders, say};
use crate::{FRAME_BYTES, ROUND_TRIPS};

/// Budget of every call: ample, nothing here tests it.
const BUDGET: Duration = Duration::from_secs(60);

pub(crate) async fn run() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let hub = Hub::new(Arc::new(Always));
    let location = Location::Directory(folder.path().to_owned());
    // On a thread of its own, because the compiler does not see that opening may move between threads.
    let open = move || Handle::current().block_on(Store::open(&location));
    let store = tokio::task::spawn_blocking(open).await??;
    let keys = CoreKeys::read(Some("a-core-key-that-nobody-uses"), None)?;
    let core = Core::new(store, keys, "https://core.example".to_owned(), Execution::fixed(None), hub.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&listener.local_addr()?.to_string())?;
    tokio::spawn(async move { axum::serve(listener, http::router(core)).await });
    ready(&hub).await?;
    say("ready")?;
    let mut orders = orders();
    while let Some(order) = orders.next_line().await? {
        match order.as_str() {
            "go" => round_trips(&hub).await?,
            "large" => large(&hub).await?,
            other => bail!("the order {other:?} is not known"),
        }
        say("done")?;
    }
    Ok(())
}

async fn ready(hub: &Hub) -> anyhow::Result<()> {
    let mut changes = hub.changes().context("a hub with records")?;
    while !hub.is_ready(NODE, Generation::FIRST) {
        changes.changed().await?;
    }
    Ok(())
}

async fn round_trips(hub: &Hub) -> anyhow::Result<()> {
    for _ in 0..ROUND_TRIPS {
        call(hub, Operation::GetInfo).await?;
    }
    Ok(())
}

async fn large(hub: &Hub) -> anyhow::Result<()> {
    let stdin = Some(Cow::Owned(vec![b'x'; FRAME_BYTES / 4 * 3]));
    call(hub, Operation::RunCommand(Command { args: vec!["cat".into()], directory: "".into(), stdin })).await
}

async fn call(hub: &Hub, operation: Operation<'static>) -> anyhow::Result<()> {
    let placement = Placement { provider: Provider::Docker, node: NODE, generation: Generation::FIRST };
    let outcome = hub.call(placement, reference(7), operation, BUDGET).await;
    ensure!(outcome.is_ok(), "a call failed: {outcome:?}");
    Ok(())
}

/// Records that know one node, and never change.
struct Always;

#[async_trait]
impl NodeStore for Always {
    async fn authenticate(&self, _: &Bounds, _: Id, _: &str) -> Result<Identity<'static>, Denied> {
        Ok(identity())
    }

    async fn owner_epoch(&self, _: &Bounds) -> Result<OwnerEpoch, Failed> {
        Ok(OwnerEpoch::FIRST)
    }

    async fn connect(&self, _: &Bounds, _: Id, _: Connected) -> Result<(), Failed> {
        Ok(())
    }

    async fn record(
        &self,
        _: &Bounds,
        _: Id,
        _: Connected,
        health: &Health<'static>,
    ) -> Result<Vec<Generation>, Failed> {
        Ok(health.generations.iter().map(|observation| observation.generation).collect())
    }

    async fn deployment(&self, _: &Bounds, _: Id) -> Result<Deployment, Failed> {
        Ok(deployment())
    }

    async fn retain(
        &self,
        _: &Bounds,
        _: Id,
        _: Connected,
        references: &[GenerationReference],
    ) -> Result<Retained, Failed> {
        let kept = |reference: &GenerationReference| Retention { reference: *reference, keep: true };
        Ok((references.iter().map(kept).collect(), deployment()))
    }

    async fn disconnect(&self, _: &Bounds, _: Id, _: Connected) -> Result<(), Failed> {
        Ok(())
    }
}
