//! Requests: sequence, send lock, budgets, pending, uncertainty.

use palisade_control::hub::Outcome;
use palisade_core::lifecycle::CallError;
use palisade_core::operation::{Method, Operation};
use palisade_core::session::hub::dispatch::Refusal;
use palisade_core::session::hub::{Cause, Uncertain};
use palisade_core::wire::payload::{Bootstrap, Secret};
use tokio::time::timeout;

use crate::fake::{ANY, Call, Plan};
use crate::rig::{Calling, NODE, OTHER, PATIENCE, Rig, command, exited, reference};

async fn ended(calling: Calling) -> Outcome {
    timeout(PATIENCE, calling).await.expect("the call ends").unwrap()
}

fn create() -> Operation<'static> {
    let reference = reference();
    Operation::Create(Box::new(Bootstrap {
        tenant_id: reference.tenant.to_string().into(),
        environment_id: reference.environment.to_string().into(),
        allocation_id: reference.allocation.to_string().into(),
        session_id: NODE.to_string().into(),
        device_id: OTHER.to_string().into(),
        core_url: "https://core.example/api/v1".into(),
        credential: Secret("secret".into()),
        network_access: "disabled".into(),
        allowed_domains: None,
        workspace: None,
    }))
}

fn unsent(outcome: &Outcome, cause: Cause) -> bool {
    let expected = Uncertain { cause, sent: false };
    match outcome {
        Err(CallError::Uncertain(uncertain) | CallError::Refused(Refusal::Uncertain(uncertain))) => {
            *uncertain == expected
        }
        _ => false,
    }
}

/// W 51, W 52, H 253, E2. A copied identity cannot replace a live node in the middle of a create.
#[tokio::test]
async fn copied_identity_cannot_replace_a_node_in_the_middle_of_a_create() {
    let rig = Rig::new().await;
    let mut node = rig.live(NODE).await;
    let creating = rig.call(create(), 10_000);
    let asked = node.request().await;
    for _ in 0..3 {
        assert_eq!(rig.refused(NODE).await.status, 409);
    }
    node.answer(&asked, asked.running()).await;
    assert!(ended(creating).await.is_ok());
    let looking = rig.call(Operation::GetInfo, 10_000);
    let info = node.request().await;
    assert_eq!((info.operation.as_str(), info.sequence), ("info", 2));
    node.answer(&info, info.running()).await;
    assert!(ended(looking).await.is_ok());
    assert_eq!(rig.records.count(Call::Connect, NODE), 1);
}

/// W 62, decision 13. A caller that waits for the send lock ends with its own deadline and closes nothing.
#[tokio::test]
async fn caller_that_waits_for_the_send_lock_ends_with_its_deadline() {
    let rig = Rig::new().await;
    let mut node = rig.live(NODE).await;
    let large = rig.call(command(32 << 20), 60_000);
    // The node does not read, so the large frame holds the lock.
    let waiting = rig.call(command(0), 300);
    assert!(unsent(&ended(waiting).await, Cause::Deadline));
    let first = node.request().await;
    node.answer(&first, exited(0)).await;
    assert!(ended(large).await.is_ok());
    let later = rig.call(command(0), 10_000);
    let second = node.request().await;
    assert_eq!((first.sequence, second.sequence), (1, 2), "the one in between consumed none");
    node.answer(&second, exited(0)).await;
    assert!(ended(later).await.is_ok());
}

/// W 63. The epoch read before dispatch is cancelled when the hub closes, and nothing was sent.
#[tokio::test]
async fn epoch_read_before_dispatch_ends_with_the_hub() {
    let rig = Rig::new().await;
    let _node = rig.live(NODE).await;
    rig.records.plan(Call::Epoch, ANY, Plan::Hang);
    let calling = rig.call(command(0), 60_000);
    rig.records.called(Call::Epoch, ANY, 2).await;
    rig.hub.close();
    assert!(unsent(&ended(calling).await, Cause::Records));
}

/// W 46. A node that never connected is unavailable, not "not found".
#[tokio::test]
async fn offline_node_is_unavailable() {
    let rig = Rig::new().await;
    assert!(unsent(&ended(rig.call(Operation::GetInfo, 1_000)).await, Cause::Unavailable));
}

/// W 47, W 107. An operation that docker does not declare is refused without a node.
#[tokio::test]
async fn undeclared_operation_needs_no_node() {
    let rig = Rig::new().await;
    let outcome = ended(rig.call(Operation::Initial, 1_000)).await;
    assert!(matches!(outcome, Err(CallError::Refused(Refusal::Unsupported { method: Method::Initial, .. }))));
    assert_eq!(rig.records.count(Call::Epoch, ANY), 0);
}

/// W 28. A budget that is used up is a plain deadline error.
#[tokio::test]
async fn used_up_budget_is_certainly_not_sent() {
    let rig = Rig::new().await;
    let _node = rig.live(NODE).await;
    let outcome = ended(rig.call(command(0), 0)).await;
    assert!(matches!(outcome, Err(ref error) if error.nothing_sent()), "{outcome:?}");
}

/// W 195, W 70, W 122. A create for a generation that is not ready is not dispatched; info to it is.
#[tokio::test]
async fn unready_generation_gets_info_but_no_create() {
    let rig = Rig::new().await;
    let mut node = rig.live(NODE).await;
    assert!(unsent(&ended(rig.call_on(NODE, 4, create(), 5_000)).await, Cause::Unavailable));
    let looking = rig.call_on(NODE, 4, Operation::GetInfo, 10_000);
    let asked = node.request().await;
    assert_eq!((asked.operation.as_str(), asked.sequence, asked.generation.get()), ("info", 1, 4));
    node.answer(&asked, asked.running()).await;
    assert!(ended(looking).await.is_ok());
}

/// W 192. The 33rd pending request is unavailable; a finished one frees its slot.
#[tokio::test]
async fn thirty_third_pending_request_is_unavailable() {
    let rig = Rig::new().await;
    let mut node = rig.live(NODE).await;
    let mut calls = Vec::new();
    let mut asked = Vec::new();
    for _ in 0..32 {
        calls.push(rig.call(Operation::GetInfo, 60_000));
        asked.push(node.request().await);
    }
    assert!(unsent(&ended(rig.call(Operation::GetInfo, 5_000)).await, Cause::Unavailable));
    node.answer(&asked[0], asked[0].running()).await;
    assert!(ended(calls.remove(0)).await.is_ok());
    let next = rig.call(Operation::GetInfo, 60_000);
    let request = node.request().await;
    assert_eq!(request.sequence, 33);
    node.answer(&request, request.running()).await;
    assert!(ended(next).await.is_ok());
}

/// Decision 30. Bodies share one budget over all connections: a request's part is free once it is written, an answer's part
/// when the call ends; who finds no room ends with its own deadline, and what has no body waits for nothing.
#[tokio::test]
async fn bodies_share_one_budget_over_all_connections() {
    let rig = Rig::with_budget(7 << 20).await;
    let (mut one, mut other) = (rig.live(NODE).await, rig.live(OTHER).await);
    let large = || command(2 << 20);
    let first = rig.call(large(), 60_000);
    let asked = one.request().await;
    let second = rig.call_on(OTHER, 3, large(), 60_000);
    let asked_too = other.request().await;
    assert!(unsent(&ended(rig.call(large(), 300)).await, Cause::Deadline), "two answers are outstanding");
    let looking = rig.call_on(OTHER, 3, Operation::GetInfo, 60_000);
    let info = other.request().await;
    other.answer(&info, info.running()).await;
    assert!(ended(looking).await.is_ok());
    one.answer(&asked, exited(0)).await;
    assert!(ended(first).await.is_ok());
    let third = rig.call(large(), 60_000);
    let next = one.request().await;
    assert_eq!(next.sequence, 2, "the one without room consumed none");
    one.answer(&next, exited(0)).await;
    other.answer(&asked_too, exited(0)).await;
    assert!(ended(second).await.is_ok() && ended(third).await.is_ok());
}

/// W 41, E14. A caller that gives up knows nothing; the late answer is ignored and nothing is sent again.
#[tokio::test]
async fn lost_answer_is_uncertain_and_never_replayed() {
    let rig = Rig::new().await;
    let mut node = rig.live(NODE).await;
    let outcome = {
        let calling = rig.call(create(), 150);
        let asked = node.request().await;
        assert!(asked.timeout_ms <= 150);
        let outcome = ended(calling).await;
        node.answer(&asked, asked.running()).await;
        outcome
    };
    assert_eq!(outcome, Err(CallError::Uncertain(Uncertain { cause: Cause::Deadline, sent: true })));
    node.heartbeat().await;
    assert!(node.acknowledged().await, "no second create came before the acknowledgement");
}

/// E14, W 38. Whoever waits when the connection is lost knows nothing, at once.
#[tokio::test]
async fn lost_connection_ends_the_wait_at_once() {
    let rig = Rig::new().await;
    let mut node = rig.live(NODE).await;
    let calling = rig.call(command(0), 60_000);
    node.request().await;
    drop(node);
    let outcome = ended(calling).await;
    assert_eq!(outcome, Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent: true })));
}

/// A dropped call frees its slot.
#[tokio::test]
async fn dropped_call_frees_its_slot() {
    let rig = Rig::new().await;
    let mut node = rig.live(NODE).await;
    for _ in 0..40 {
        let calling = rig.call(Operation::GetInfo, 60_000);
        node.request().await;
        calling.abort();
        assert!(calling.await.unwrap_err().is_cancelled());
    }
    let last = rig.call(Operation::GetInfo, 60_000);
    let asked = node.request().await;
    node.answer(&asked, asked.running()).await;
    assert!(ended(last).await.is_ok());
}

/// W 209. A write that the node does not take within 10 s ends the connection.
#[tokio::test]
async fn write_that_does_not_finish_ends_the_connection() {
    let rig = Rig::new().await;
    let _deaf = rig.live(NODE).await;
    let calling = rig.call(command(48 << 20), 100_000);
    let outcome = timeout(PATIENCE, calling).await.unwrap().unwrap();
    assert_eq!(outcome, Err(CallError::Uncertain(Uncertain { cause: Cause::Write, sent: true })));
    rig.gone(NODE).await;
}
