//! The second chapter: another Runtime is rolled out to two nodes of one Core, and each of them has an accident meanwhile.
//!
//! One node's network falls silent in the middle of its download, the other node is killed there. Nobody helps them.

mod after;
mod beats;
mod before;
mod losses;
mod proofs;

use palisade_release::Release;

use super::api::Api;
use super::host::Host;
use super::link::{Link, Router};
use super::stage::Stage;
use super::story::Sandbox;
use crate::cli::Demo;
use beats::Beats;

/// The node whose network falls silent.
const WEST: Host = Host { name: "west" };
/// The node that is killed.
const EAST: Host = Host { name: "east" };

/// Everything that this chapter has set up.
struct Fleet {
    api: Api,
    west: Node,
    east: Node,
    old: Edition,
    new: Edition,
    beats: Beats,
    /// Where the nodes dial Core, for as long as the chapter lasts.
    _router: Router,
}

/// A node, its way to Core, and what it runs.
struct Node {
    host: Host,
    id: String,
    link: Link,
    /// Of the old generation, from before the rollout.
    sandbox: Sandbox,
    /// Its first process, as the kernel counts.
    process: i64,
}

/// A Runtime release.
struct Edition {
    release: Release,
    /// Size of its image's archive, in bytes.
    size: u64,
}

pub(crate) async fn tell(options: &Demo, stage: &mut Stage) -> anyhow::Result<()> {
    let fleet = before::set_up(options, stage).await?;
    before::select(stage, &fleet).await?;
    losses::serve_meanwhile(stage, &fleet).await?;

    fleet.west.link.fall_silent();
    stage
        .timeline
        .step("west's network fell silent in the middle of its download: nothing was closed, nothing arrives");
    losses::kill_east(stage, &fleet).await?;
    let placed_east = after::place(stage, &fleet, &fleet.east).await?;
    after::drain(stage, &fleet, &fleet.east).await?;
    after::collected(stage, &fleet, &fleet.east).await?;

    losses::west_is_unknown(stage, &fleet).await?;
    losses::west_comes_back(stage, &fleet).await?;
    after::released(stage, &fleet, &fleet.west).await?;
    let placed_west = after::place(stage, &fleet, &fleet.west).await?;
    after::collected(stage, &fleet, &fleet.west).await?;
    after::settled(stage, &fleet, [placed_west, placed_east]).await
}
