//! The live loop: heartbeats, retention, silence, invalid frames.

use palisade_core::units::{Digest, Id, Sequence};
use palisade_core::wire::Frame;
use palisade_core::wire::payload::{Exchange, GenerationReference};
use palisade_socket::UpgradeError;
use tokio::time::{Instant, timeout};

use crate::fake::{Call, Plan, credential, generation};
use crate::rig::{NODE, PATIENCE, Rig, control, dial};

/// W 65. Disconnecting during a periodic health record cancels it, acknowledges nothing and frees the identity.
#[tokio::test]
async fn disconnect_cancels_a_periodic_health_record() {
    let rig = Rig::new().await;
    let mut peer = rig.live(NODE).await;
    rig.records.plan(Call::Record, NODE, Plan::Hang);
    peer.heartbeat().await;
    rig.records.called(Call::Record, NODE, 2).await;
    rig.hub.disconnect(NODE);
    assert!(timeout(PATIENCE, peer.ended()).await.unwrap(), "no acknowledgement");
    rig.records.release(Call::Record, NODE);
    rig.live(NODE).await;
}

/// W 68, W 69, W 187. A node that is silent after welcome is closed at 35 s; until then a duplicate gets 409.
#[tokio::test]
async fn silent_node_is_closed_and_may_be_replaced() {
    let rig = Rig::new().await;
    let mut silent = rig.live(NODE).await;
    assert_eq!(rig.refused(NODE).await.status, 409);
    tokio::time::pause();
    let begun = Instant::now();
    assert!(silent.ended().await);
    assert!((34..38).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    tokio::time::resume();
    rig.gone(NODE).await;
    rig.live(NODE).await;
}

/// W 206. A revoked credential closes at the next heartbeat, and the next dial gets 401.
#[tokio::test]
async fn revoked_credential_closes_at_the_next_heartbeat() {
    let rig = Rig::new().await;
    let mut peer = rig.live(NODE).await;
    rig.records.revoke(NODE);
    peer.heartbeat().await;
    assert!(timeout(PATIENCE, peer.ended()).await.unwrap());
    let Err(UpgradeError::Refused(answer)) = dial(rig.address, NODE, &credential(NODE)).await else {
        panic!("accepted");
    };
    assert_eq!(answer.status, 401);
}

/// W 37. A raised owner epoch closes the old connection at its next heartbeat.
#[tokio::test]
async fn raised_epoch_closes_at_the_next_heartbeat() {
    let rig = Rig::new().await;
    let mut peer = rig.live(NODE).await;
    rig.records.set_epoch(8);
    peer.heartbeat().await;
    assert!(timeout(PATIENCE, peer.ended()).await.unwrap());
    let mut next = rig.connect(NODE).await;
    assert_eq!(next.open().await.owner_epoch.get(), 8);
}

/// W 185. A control frame of 32 768 bytes is processed, one of 32 769 closes.
#[tokio::test]
async fn control_frame_above_its_limit_closes() {
    for (length, accepted) in [(32_768, true), (32_769, false)] {
        let rig = Rig::new().await;
        let mut peer = rig.live(NODE).await;
        let frame = Frame::Heartbeat {
            connection_id: peer.connection_id,
            owner_epoch: peer.owner_epoch,
            health: crate::rig::health(&[]),
        };
        let mut text = palisade_core::wire::encode(&frame).unwrap();
        text.resize(length, b' ');
        peer.writer.send_text(text).await.unwrap();
        assert_eq!(peer.acknowledged().await, accepted, "{length}");
    }
}

#[tokio::test]
async fn retention_is_answered_in_the_order_asked() {
    let rig = Rig::new().await;
    let mut peer = rig.live(NODE).await;
    let exchange = Exchange {
        id: Id::from_random([77; 16]),
        sequence: Sequence::FIRST,
        connection_id: peer.connection_id,
        owner_epoch: peer.owner_epoch,
    };
    let reference =
        |value| GenerationReference { generation: generation(value), specification_digest: Digest::of(b"s") };
    peer.send(Frame::Retention { exchange, references: vec![reference(4), reference(2)] }).await;
    let Some(Frame::RetentionAck { exchange: answered, retentions, .. }) = peer.next(control).await else {
        panic!("expected an answer");
    };
    assert_eq!(answered, exchange);
    let kept: Vec<_> = retentions.iter().map(|entry| (entry.reference.generation.get(), entry.keep)).collect();
    assert_eq!(kept, vec![(4, true), (2, false)]);
}
