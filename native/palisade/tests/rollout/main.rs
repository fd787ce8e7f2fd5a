//! Rollouts on a real Docker engine: a second release is prepared by the running node while the first serves, new
//! sandboxes go to it, and the first is collected once nothing needs it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod kills;
mod world;

use std::panic::AssertUnwindSafe;
use std::process::Stdio;

use futures_util::FutureExt as _;
use palisade_core::distribution::catalogue::SECCOMP;
use palisade_core::units::{Digest, Generation};
use palisade_core::wire::payload::GenerationReference;
use palisade_node::HelperLease;
use palisade_release::engine;

use world::World;

/// Node-host §3, §4.4. W 85. The whole rollout, with the real executable as Core, node and preparer.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_rolled_out_and_the_old_one_collected() {
    in_a_world(async |world| roll_out(world).await).await;
}

/// Whatever becomes of it, nothing of it stays in the engine.
async fn in_a_world(story: impl AsyncFnOnce(&World)) {
    let world = World::new().await;
    let told = AssertUnwindSafe(story(&world)).catch_unwind().await;
    world.clear().await;
    if let Err(panic) = told {
        std::panic::resume_unwind(panic);
    }
}

async fn roll_out(world: &World) {
    let ending = Digest::of(&rand::random::<u128>().to_be_bytes()).to_string();
    let (old, new) = (world.release(&"a".repeat(40), b""), world.release(&"b".repeat(40), ending.as_bytes()));
    let view = world.select(0, &old).await;
    world.install(&view, &old).await;
    world.register().await;
    let node = world.node();
    world.ready(1).await;
    world.healthy().await;
    let (project, key) = world.project().await;
    let first = world.session(&key).await;
    world.run(&key, &first).await;

    world.select(1, &new).await;
    world.ready(2).await;
    world.run(&key, &first).await;
    let records = world.path("root/state/node/generations");
    assert!(records.join("2.json").exists() && !records.join("2.preparing").exists());
    assert!(world.path("root/releases").join("b".repeat(40)).join(SECCOMP).exists());
    let second = world.session(&key).await;
    world.run(&key, &second).await;
    let runtime = new.runtime();
    let image = engine::resolve(&world.docker, &runtime.image_id, &runtime.image_manifest_digest).await.unwrap();
    assert!(image.is_some(), "the preparer loaded the new image");
    assert!(!records.join("1.collecting").exists(), "the first sandbox still needs generation 1");

    world.archive(&project, &first).await;
    world.until("the collection of generation 1", async || records.join("1.dropped").exists().then_some(())).await;
    assert!(!world.path("root").join(SECCOMP).exists() && world.path("root/provider.json").exists());
    let kept = old.runtime();
    let kept = engine::resolve(&world.docker, &kept.image_id, &kept.image_manifest_digest).await.unwrap();
    assert!(kept.is_some(), "no image is ever removed from the engine");
    world.run(&key, &second).await;

    // A restart knows the second generation alone.
    drop(node);
    let node = world.node();
    world.ready(2).await;
    world.healthy().await;
    world.run(&key, &second).await;
    world.archive(&project, &second).await;
    drop(node);
}

/// What a story that fails has loaded into the engine goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_story_that_fails_leaves_no_image_behind() {
    let mut loaded = None;
    let story = in_a_world(async |world| {
        let ending = Digest::of(&rand::random::<u128>().to_be_bytes()).to_string();
        let release = world.release(&"a".repeat(40), ending.as_bytes());
        let image = engine::ensure(&world.docker, &release).await.unwrap();
        loaded = Some((world.docker.clone(), image));
        panic!("it fails");
    });
    AssertUnwindSafe(story).catch_unwind().await.unwrap_err();
    let (docker, image) = loaded.expect("the image was loaded");
    assert!(docker.inspect_image(&image).await.is_err(), "{image} is still there");
}

/// H 129, H 136, H 146. W 85, W 99-101. A grant for the old generation is refused for as long as a helper process works
/// with it. The target changes meanwhile, to one that is of the old release again: when the helper is gone and Core grants
/// once more, the old generation is collected, and the files stay that the new target uses by now.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_waits_for_a_helper_and_spares_what_a_new_target_uses() {
    in_a_world(async |world| grant(world).await).await;
}

async fn grant(world: &World) {
    let ending = Digest::of(&rand::random::<u128>().to_be_bytes()).to_string();
    let (old, new) = (world.release(&"a".repeat(40), b""), world.release(&"b".repeat(40), ending.as_bytes()));
    let view = world.select(0, &old).await;
    world.install(&view, &old).await;
    world.register().await;
    let node = world.node();
    world.ready(1).await;

    let specification_digest = Digest::parse(view["specification_digest"].as_str().unwrap()).unwrap();
    let reference = GenerationReference { generation: Generation::new(1).unwrap(), specification_digest };
    let lease = HelperLease::acquire(&world.path("root"), reference).unwrap();
    let mut helper = tokio::process::Command::new("cat");
    helper.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut helper = lease.spawn(helper).unwrap();
    world.select(1, &new).await;
    world.ready(2).await;
    let refused = || world.logged("collect was not done", "generation=1");
    world.until("a refused collection", async || (refused() > 0).then_some(())).await;
    let policy = world.path("root").join(SECCOMP);
    let bytes = std::fs::read(&policy).unwrap();
    assert_eq!(world.state(1).as_deref(), Some("configured"), "nothing of it has begun");

    world.select_with(2, &old, 1024).await;
    world.ready(3).await;
    let before = refused();
    world.until("another grant", async || (refused() > before).then_some(())).await;
    assert_eq!((world.state(1).as_deref(), std::fs::read(&policy).unwrap()), (Some("configured"), bytes.clone()));

    drop(helper.stdin.take());
    assert!((&mut helper.exited).await.unwrap().unwrap().success());
    let records = world.path("root/state/node/generations");
    for dropped in ["1.dropped", "2.dropped"] {
        world.until(dropped, async || records.join(dropped).exists().then_some(())).await;
    }
    assert_eq!(std::fs::read(&policy).unwrap(), bytes, "the new target uses it");
    assert!(!world.path("root/releases").join("b".repeat(40)).exists(), "nobody uses that release any more");
    assert_eq!([1, 2, 3].map(|number| world.state(number).unwrap()), ["dropped", "dropped", "configured"]);
    let (project, key) = world.project().await;
    let session = world.session(&key).await;
    world.run(&key, &session).await;
    world.archive(&project, &session).await;
    drop(node);
}
