//! Nodes that enroll like any other, and their removal.

use std::sync::Arc;

use anyhow::Context as _;
use palisade_core::units::{Digest, Id};
use palisade_core::wire::payload::Identity;
use reqwest::Method;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::core::{Selection, Target};
use super::member::Member;
use super::progress;

/// Requests under way at once.
const REQUESTS_MAX: usize = 32;
/// Nodes between two lines of progress.
const PROGRESS_EVERY: usize = 1000;

/// Enrolls `count` nodes, or fewer when it is asked to stop. Those that were enrolled are in [`Target::enrolled`], also
/// after an error.
pub(crate) async fn all(target: &mut Target, count: u32, stop: &CancellationToken) -> anyhow::Result<Vec<Member>> {
    let (mut tasks, turns) = (JoinSet::new(), Arc::new(Semaphore::new(REQUESTS_MAX)));
    for number in 1..=count {
        let (api, selection, turns, stop) =
            (target.api.clone(), target.selection.clone(), Arc::clone(&turns), stop.clone());
        tasks.spawn(async move {
            let _turn = turns.acquire().await.context("the turns are never closed")?;
            if stop.is_cancelled() {
                return Ok(None);
            }
            one(&api, &selection, number).await.map(Some)
        });
    }
    let (mut members, mut failure) = (Vec::with_capacity(tasks.len()), None);
    while let Some(ended) = tasks.join_next().await {
        match ended? {
            Ok(Some(member)) => {
                target.enrolled.push(member.identity.node_id.to_string());
                members.push(member);
                if members.len().is_multiple_of(PROGRESS_EVERY) {
                    progress(format_args!("enrolled {} of {count} nodes", members.len()));
                }
            }
            Ok(None) => {}
            // The first reason is told; what runs is awaited, so that every node that was enrolled is known.
            Err(error) => {
                turns.close();
                failure.get_or_insert(error);
            }
        }
    }
    failure.map_or(Ok(members), |error| Err(error.context("cannot enroll a node")))
}

async fn one(api: &Api, selection: &Selection, number: u32) -> anyhow::Result<Member> {
    let limits = json!({ "max_active": 1, "max_retained": 1 });
    let issued = api.admin(Method::POST, "/core/v1/sandbox/enrollment-tokens", Some(limits)).await?;
    let token = issued["token"].as_str().context("an enrollment has a token")?;
    let credential = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
    let id = Id::from_random(rand::random());
    let fingerprint = Digest::of(format!("palisade fleet {id}").as_bytes());
    let body = json!({
        "node_id": id,
        "credential": credential,
        "name": format!("fleet-{number}"),
        "provider": selection.provider.name(),
        "backend_fingerprint": fingerprint,
        "deployment_generation": selection.generation,
        "specification_digest": selection.digest,
        "core_url": api.origin(),
    });
    let answer = api.send(Method::POST, "/api/v1/sandbox-node/enroll", token, Some(body)).await?;
    let identity = Identity {
        node_id: id.to_string().into(),
        installation_id: answer["installation_id"].as_str().context("an enrollment names Core")?.to_owned().into(),
        provider: selection.provider.name().into(),
        backend_fingerprint: fingerprint.to_string().into(),
        deployment_generation: selection.generation,
        specification_digest: selection.digest.clone().into(),
        max_active: 1,
        max_retained: 1,
    };
    Ok(Member { identity, credential })
}

/// Removes nodes, all that can be; fails when one is left.
pub(crate) async fn remove(api: &Api, nodes: Vec<String>) -> anyhow::Result<()> {
    let count = nodes.len();
    progress(format_args!("removing {count} nodes"));
    let (mut tasks, turns) = (JoinSet::new(), Arc::new(Semaphore::new(REQUESTS_MAX)));
    for node in nodes {
        let (api, turns) = (api.clone(), Arc::clone(&turns));
        tasks.spawn(async move {
            let _turn = turns.acquire().await.context("the turns are never closed")?;
            let removed = api.admin(Method::DELETE, &format!("/core/v1/sandbox/nodes/{node}"), None).await;
            removed.map(drop).with_context(|| format!("cannot remove node {node}"))
        });
    }
    let mut failures = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        failures.extend(ended?.err());
    }
    let left = failures.len();
    let first = failures.into_iter().next();
    first.map_or(Ok(()), |error| {
        Err(error.context(format!("{left} of {count} nodes are left; remove those named fleet-…")))
    })
}
