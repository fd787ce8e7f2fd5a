//! Before the welcome: answers, reservations, callbacks that hang, fail or come late.

use palisade_core::wire::payload::Identity;
use palisade_socket::UpgradeError;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::fake::{ANY, Call, Plan, credential};
use crate::rig::{NODE, OTHER, PATIENCE, Rig, command, dial, exited};

async fn raw(rig: &Rig, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(rig.address).await.unwrap();
    stream.write_all(format!("{head}\r\nHost: core\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

/// W 174, W 177. A wrong credential is a 401 with a JSON error that names no credential.
#[tokio::test]
async fn wrong_credential_is_refused_before_anything_else() {
    let rig = Rig::new().await;
    let Err(UpgradeError::Refused(answer)) = dial(rig.address, NODE, "wrong").await else { panic!("accepted") };
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status.as_u16(), &body["error"]["type"]), (401, &Value::from("invalid_request_error")));
    assert!(body["error"]["code"].is_null() && body["error"]["param"].is_null());
    assert!(!body.to_string().contains("wrong\""));
    assert_eq!(rig.records.count(Call::Epoch, ANY), 0);
}

/// W 175, W 176. No upgrade is 400 and a page is 403, both naming the version; HEAD and POST are 503, DELETE is 405.
#[tokio::test]
async fn failed_upgrades_have_their_own_answers_and_release_the_reservation() {
    let rig = Rig::new().await;
    let path = format!("/api/v1/sandbox-node/connect?node_id={NODE}");
    let bearer = format!("Authorization: Bearer {}", credential(NODE));
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let (status, answer) = raw(&rig, &format!("GET {path} HTTP/1.1\r\n{bearer}")).await;
    assert_eq!(status, 400);
    assert!(answer.to_lowercase().contains("sec-websocket-version: 13"));
    let page = format!("GET {path} HTTP/1.1\r\n{bearer}\r\n{upgrade}\r\nOrigin: https://page.example");
    let (status, answer) = raw(&rig, &page).await;
    assert_eq!(status, 403);
    assert!(answer.to_lowercase().contains("sec-websocket-version: 13"));
    assert_eq!(raw(&rig, &format!("HEAD {path} HTTP/1.1")).await.0, 503);
    assert_eq!(raw(&rig, &format!("POST {path} HTTP/1.1\r\nContent-Length: 0")).await.0, 503);
    assert_eq!(raw(&rig, &format!("DELETE {path} HTTP/1.1")).await.0, 405);
    rig.live(NODE).await;
}

/// W 48. Of two dials at the same time one is upgraded and one gets 409, and nothing was recorded yet.
#[tokio::test]
async fn simultaneous_dials_of_one_identity_give_one_connection() {
    let rig = Rig::new().await;
    let bearer = credential(NODE);
    let (one, two) = tokio::join!(dial(rig.address, NODE, &bearer), dial(rig.address, NODE, &bearer));
    let statuses: Vec<u16> = [one.as_ref().err(), two.as_ref().err()].into_iter().flatten().map(status).collect();
    assert_eq!(statuses, vec![409]);
    assert_eq!(rig.records.count(Call::Connect, NODE), 0);
}

fn status(error: &UpgradeError) -> u16 {
    match error {
        UpgradeError::Refused(answer) => answer.status.as_u16(),
        other => panic!("{other}"),
    }
}

/// W 49, W 50, H 253, E2. A connection without hello blocks others, and the answer names the cause; its end frees the
/// identity.
#[tokio::test]
async fn connection_without_hello_holds_the_identity_until_it_ends() {
    let rig = Rig::new().await;
    let silent = rig.connect(NODE).await;
    let answer = rig.refused(NODE).await;
    assert_eq!(answer.status, 409);
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["error"]["type"], "conflict_error");
    assert!(body["error"]["message"].as_str().unwrap().starts_with("identity in use"));
    drop(silent);
    let _live = rig.live(NODE).await;
    assert_eq!(rig.records.count(Call::Connect, NODE), 1);
    assert_eq!(rig.records.count(Call::Disconnect, NODE), 0, "the silent one never had presence");
}

/// W 53, W 54, H 253. Until the disconnect of an ended connection returned, nobody takes its place.
#[tokio::test]
async fn reservation_remains_until_the_disconnect_returned() {
    let rig = Rig::new().await;
    rig.records.plan(Call::Disconnect, NODE, Plan::Late);
    drop(rig.live(NODE).await);
    rig.records.called(Call::Disconnect, NODE, 1).await;
    assert_eq!(rig.refused(NODE).await.status, 409);
    assert_eq!(rig.records.count(Call::Connect, NODE), 1);
    rig.records.release(Call::Disconnect, NODE);
    let _next = rig.live(NODE).await;
    let (connected, disconnected) = (rig.records.connected(NODE), rig.records.disconnected(NODE));
    assert_eq!(disconnected, connected[..1]);
    assert_eq!(rig.records.presence(NODE), Some(connected[1]), "the late disconnect left it alone");
}

/// W 55, W 56, W 57, W 58. Closing the hub ends every step of an opening; only attempted presence is cleaned up, once.
#[tokio::test]
async fn closing_the_hub_cancels_every_opening_callback() {
    for (held, cleanups) in [(Call::Connect, 1), (Call::Record, 1), (Call::Deployment, 1)] {
        let rig = Rig::new().await;
        rig.records.plan(held, NODE, Plan::Hang);
        let mut peer = rig.connect(NODE).await;
        peer.hello().await;
        rig.records.called(held, NODE, 1).await;
        let asked = Instant::now();
        rig.hub.close();
        assert!(timeout(PATIENCE, peer.ended()).await.unwrap(), "no welcome");
        timeout(PATIENCE, rig.hub.closed()).await.unwrap();
        assert!(asked.elapsed().as_secs() < 4, "ended by the close, not by the five seconds");
        assert_eq!(rig.records.count(Call::Disconnect, NODE), cleanups, "{held:?}");
        assert!(rig.records.longest().as_millis() <= 5_000);
        assert_eq!(rig.records.presence(NODE), None);
    }
}

/// W 55, W 57. The same before the upgrade: 503, no reservation, no cleanup.
#[tokio::test]
async fn closing_the_hub_cancels_authentication_and_epoch_read() {
    for (held, of) in [(Call::Authenticate, NODE), (Call::Epoch, ANY)] {
        let rig = Rig::new().await;
        rig.records.plan(held, of, Plan::Hang);
        let (address, bearer) = (rig.address, credential(NODE));
        let dialling = tokio::spawn(async move { dial(address, NODE, &bearer).await.map(drop) });
        rig.records.called(held, of, 1).await;
        rig.hub.close();
        let refused = timeout(PATIENCE, dialling).await.unwrap().unwrap().unwrap_err();
        assert_eq!(status(&refused), 503);
        timeout(PATIENCE, rig.hub.closed()).await.unwrap();
        assert_eq!(rig.records.count(Call::Disconnect, NODE), 0);
    }
}

/// W 59, W 60. A node that hangs in opening or closing leaves the other one responsive, and keeps its own identity.
#[tokio::test]
async fn hanging_node_leaves_the_others_responsive() {
    for held in [Call::Connect, Call::Disconnect] {
        let rig = Rig::new().await;
        rig.records.plan(held, NODE, Plan::Late);
        let mut hanging = rig.connect(NODE).await;
        hanging.hello().await;
        if held == Call::Disconnect {
            rig.published(NODE).await;
            drop(hanging);
        }
        rig.records.called(held, NODE, 1).await;
        let mut other = rig.live(OTHER).await;
        let calling = rig.call_on(OTHER, 3, command(0), 10_000);
        let asked = other.request().await;
        other.answer(&asked, exited(0)).await;
        assert!(timeout(PATIENCE, calling).await.unwrap().unwrap().is_ok());
        rig.hub.disconnect(NODE);
        assert_eq!(rig.refused(NODE).await.status, 409, "until the callback returned");
        rig.records.release(held, NODE);
        rig.live(NODE).await;
    }
}

/// W 61. Presence that failed after a possible commit, or a first health record that failed: one cleanup, no welcome.
#[tokio::test]
async fn partly_failed_opening_is_cleaned_up_once() {
    for failing in [Call::Connect, Call::Record] {
        let rig = Rig::new().await;
        rig.records.plan(failing, NODE, Plan::FailAfterwards);
        let mut peer = rig.connect(NODE).await;
        peer.hello().await;
        assert!(timeout(PATIENCE, peer.ended()).await.unwrap());
        rig.records.called(Call::Disconnect, NODE, 1).await;
        rig.records.release(failing, NODE);
        let _next = rig.live(NODE).await;
        assert_eq!(rig.records.count(Call::Disconnect, NODE), 1, "{failing:?}");
    }
}

/// W 64. A cancelled presence record that settles late holds the identity; the cleanup runs after it and removes it.
#[tokio::test]
async fn late_presence_is_removed_by_the_cleanup() {
    let rig = Rig::new().await;
    rig.records.plan(Call::Connect, NODE, Plan::Late);
    let mut peer = rig.connect(NODE).await;
    peer.hello().await;
    rig.records.called(Call::Connect, NODE, 1).await;
    rig.hub.disconnect(NODE);
    assert!(timeout(PATIENCE, peer.ended()).await.unwrap());
    assert_eq!(rig.refused(NODE).await.status, 409);
    assert_eq!(rig.records.count(Call::Disconnect, NODE), 0, "not before the record returned");
    rig.records.release(Call::Connect, NODE);
    rig.records.called(Call::Disconnect, NODE, 1).await;
    let _next = rig.live(NODE).await;
    assert_eq!(rig.records.presence(NODE), rig.records.connected(NODE).last().copied());
}

/// W 73, W 74, W 75. A node's cached capacity of 100 changes nothing; a new approval interrupts nothing.
#[tokio::test]
async fn cached_capacity_is_ignored_and_a_new_approval_interrupts_nothing() {
    let rig = Rig::new().await;
    let mut peer = rig.connect(NODE).await;
    peer.identity = Identity { max_active: 100, max_retained: 100, ..peer.identity.clone() };
    peer.open().await;
    rig.records.approve(NODE, 5);
    peer.heartbeat().await;
    assert!(peer.acknowledged().await);
    drop(peer);
    rig.live(NODE).await;
}

/// W 187. A hello later than 15 s closes.
#[tokio::test]
async fn late_hello_closes() {
    let rig = Rig::new().await;
    let mut silent = rig.connect(NODE).await;
    tokio::time::pause();
    let begun = Instant::now();
    assert!(silent.ended().await);
    assert!((15..16).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

/// W 56. A storage call that hangs ends the opening after five seconds.
#[tokio::test]
async fn hanging_presence_is_given_up_after_five_seconds() {
    let rig = Rig::new().await;
    rig.records.plan(Call::Connect, NODE, Plan::Hang);
    let mut peer = rig.connect(NODE).await;
    peer.hello().await;
    rig.records.called(Call::Connect, NODE, 1).await;
    tokio::time::pause();
    let begun = Instant::now();
    assert!(peer.ended().await);
    assert!((4..6).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}
