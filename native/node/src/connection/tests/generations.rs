//! Generations come and go beside the connection, and nothing of it is waited for.

use palisade_core::limits::{HEARTBEAT_INTERVAL_MS, PREPARATION_TIMEOUT_MS};
use palisade_core::wire::frame::Frame;
use palisade_core::wire::payload::Retention;
use tokio::sync::oneshot;

use super::*;

/// Something that the node wants done.
enum Wanted {
    Prepare(GenerationReference, CancellationToken, oneshot::Sender<Result<Arc<dyn Provider>, Diagnostic>>),
    Collect(GenerationReference, CancellationToken, oneshot::Sender<bool>),
}

/// Leaves everything to the test.
struct Asked(UnboundedSender<Wanted>);

impl Generations for Asked {
    fn prepare(
        &self,
        reference: GenerationReference,
        cancel: CancellationToken,
    ) -> Work<Result<Arc<dyn Provider>, Diagnostic>> {
        let (answer, answered) = oneshot::channel();
        drop(self.0.send(Wanted::Prepare(reference, cancel, answer)));
        Box::pin(async { answered.await.unwrap_or(Err(Diagnostic::ProviderUnavailable)) })
    }

    fn collect(&self, reference: GenerationReference, cancel: CancellationToken) -> Work<bool> {
        let (answer, answered) = oneshot::channel();
        drop(self.0.send(Wanted::Collect(reference, cancel, answer)));
        Box::pin(async { answered.await.unwrap_or(false) })
    }
}

/// A node of generation 1 that can get others.
fn start() -> (Running, UnboundedReceiver<Wanted>) {
    let (asked, wanted) = unbounded_channel();
    (Running::start_with(1, false, |connections| connections.preparing_with(Asked(asked))), wanted)
}

/// The target of everybody is `target`, and the node still serves generation 1.
fn rollout(target: u64) -> Deployment {
    Deployment { serving_generation: Some(generation(1)), ..deployment(target) }
}

async fn prepare(
    wanted: &mut UnboundedReceiver<Wanted>,
    number: u64,
) -> (CancellationToken, oneshot::Sender<Result<Arc<dyn Provider>, Diagnostic>>) {
    match wanted.recv().await.unwrap() {
        Wanted::Prepare(reference, cancel, answer) => {
            assert_eq!((reference.generation, reference.specification_digest), (generation(number), digest(number)));
            (cancel, answer)
        }
        Wanted::Collect(reference, ..) => panic!("a collection of {}", reference.generation),
    }
}

/// E6. Promise 10. A preparation that takes its whole half hour delays no heartbeat and no operation of the generation
/// that serves; it is ended at its deadline.
#[tokio::test(start_paused = true)]
async fn a_long_preparation_delays_nothing() {
    let (mut running, mut wanted) = start();
    let mut peer = running.ready().await;
    peer.heartbeat(rollout(2)).await;
    let (cancel, answer) = prepare(&mut wanted, 2).await;
    let (began, mut last) = (Instant::now(), Instant::now());
    while !cancel.is_cancelled() {
        let health = peer.heartbeat(rollout(2)).await;
        let since = last.elapsed();
        assert!((Duration::from_secs(9)..=Duration::from_secs(11)).contains(&since), "{since:?}");
        last = Instant::now();
        assert_eq!(health.generations[0].state, ObservedState::Preparing { diagnostic: None });
        assert!(is_ready(&health.generations[1].state));
        let id = peer.request(generation(1), reference(1), Operation::GetInfo, 5_000).await;
        assert_eq!(peer.response().await.id, id.to_string());
    }
    let took = began.elapsed().as_millis();
    let limit = u128::from(PREPARATION_TIMEOUT_MS);
    assert!((limit..=limit + u128::from(2 * HEARTBEAT_INTERVAL_MS)).contains(&took), "{took} ms");
    drop(answer);
    let failed = ObservedState::Failed { diagnostic: Some(Diagnostic::ProviderUnavailable) };
    while peer.heartbeat(rollout(2)).await.generations[0].state != failed {}
}

/// W 85. W 87. What was prepared is probed, then ready, then used; the generation before it serves all the time. A failure
/// is reported with its class and tried again after a minute.
#[tokio::test(start_paused = true)]
async fn a_second_generation_is_prepared_while_the_first_serves() {
    let (mut running, mut wanted) = start();
    let mut peer = running.ready().await;
    peer.heartbeat(rollout(2)).await;
    let (_, answer) = prepare(&mut wanted, 2).await;
    answer.send(Err(Diagnostic::RuntimeDownloadFailed)).ok().unwrap();
    let failed = ObservedState::Failed { diagnostic: Some(Diagnostic::RuntimeDownloadFailed) };
    while peer.heartbeat(rollout(2)).await.generations[0].state != failed {}
    let before = Instant::now();
    let again = tokio::select! {
        again = prepare(&mut wanted, 2) => again,
        () = async { loop { peer.heartbeat(rollout(2)).await; } } => unreachable!("the peer goes on"),
    };
    assert!(before.elapsed() >= Duration::from_secs(40), "a minute after the failure, not at once");
    let provider = Arc::new(FaultProvider::new(generation(2)));
    again.1.send(Ok(Arc::clone(&provider) as Arc<dyn Provider>)).ok().unwrap();
    while !is_ready(&peer.heartbeat(rollout(2)).await.generations[0].state) {}
    let sandbox = reference(2);
    let id = peer.request(generation(2), sandbox, create(sandbox), 5_000).await;
    assert_eq!(peer.response().await.id, id.to_string());
    assert_eq!((provider.count(Method::Create), running.provider().count(Method::Create)), (1, 0));
}

/// Wire §4.10. A new target ends the preparation of the one before; its own starts when that has ended.
#[tokio::test(start_paused = true)]
async fn a_new_target_ends_the_preparation_of_the_old() {
    let (mut running, mut wanted) = start();
    let mut peer = running.ready().await;
    peer.heartbeat(rollout(2)).await;
    let (cancel, answer) = prepare(&mut wanted, 2).await;
    peer.heartbeat(rollout(3)).await;
    cancel.cancelled().await;
    assert!(wanted.try_recv().is_err(), "one preparation at a time");
    drop(answer);
    prepare(&mut wanted, 3).await;
}

/// Answers the next frame: a heartbeat, or a question about retention. Only the target is kept.
async fn serve(peer: &mut Peer<DuplexStream>, target: u64) -> Option<Vec<Generation>> {
    let deployment = deployment(target);
    match peer.frame().await.expect("the connection lives") {
        Frame::Heartbeat { health, .. } => {
            peer.acknowledge(deployment).await;
            Some(health.generations.iter().map(|seen| seen.generation).collect())
        }
        Frame::Retention { exchange, references } => {
            let granted = |reference: GenerationReference| Retention {
                reference,
                keep: reference.generation == deployment.generation,
            };
            let retentions = references.into_iter().map(granted).collect();
            peer.send(&Frame::RetentionAck { exchange, retentions, deployment }).await;
            None
        }
        other => panic!("unexpected: {other:?}"),
    }
}

/// Serves until the node wants something.
async fn next(peer: &mut Peer<DuplexStream>, wanted: &mut UnboundedReceiver<Wanted>) -> Wanted {
    loop {
        tokio::select! {
            biased;
            wanted = wanted.recv() => return wanted.unwrap(),
            _ = serve(peer, 2) => {}
        }
    }
}

/// The generations of the next heartbeat.
async fn observed(peer: &mut Peer<DuplexStream>) -> Vec<Generation> {
    loop {
        if let Some(observed) = serve(peer, 2).await {
            return observed;
        }
    }
}

/// H 161, H 164. W 89, W 90, W 102. A granted removal runs beside the connection, ends with it, and continues only with a
/// new grant; then the generation is gone.
#[tokio::test(start_paused = true)]
async fn a_removal_needs_a_live_grant() {
    let (mut running, mut wanted) = start();
    let mut peer = running.peer().await;
    peer.welcome(EPOCH, deployment(2)).await;
    let Wanted::Prepare(.., answer) = next(&mut peer, &mut wanted).await else { panic!("a preparation") };
    answer.send(Ok(Arc::new(FaultProvider::new(generation(2))))).ok().unwrap();
    let Wanted::Collect(reference, cancel, answer) = next(&mut peer, &mut wanted).await else { panic!("a collection") };
    assert_eq!(reference.generation, generation(1));
    assert_eq!(observed(&mut peer).await, [generation(2)], "nobody sees it any more");

    drop(peer);
    cancel.cancelled().await;
    drop(answer);
    let mut peer = running.peer().await;
    peer.welcome(EPOCH, deployment(2)).await;
    assert_eq!(observed(&mut peer).await, [generation(2)]);
    assert!(wanted.try_recv().is_err(), "the old grant is not used again");
    let Wanted::Collect(.., answer) = next(&mut peer, &mut wanted).await else { panic!("a collection") };
    answer.send(true).unwrap();
    loop {
        match peer.frame().await.expect("the connection lives") {
            Frame::Retention { references, .. } => {
                assert_eq!(references.iter().map(|one| one.generation).collect::<Vec<_>>(), [generation(2)]);
                break;
            }
            Frame::Heartbeat { .. } => peer.acknowledge(deployment(2)).await,
            other => panic!("unexpected: {other:?}"),
        }
    }
}

/// E6. Promise 10. A removal that takes its whole time delays no heartbeat. A new target is prepared when it has ended:
/// both need the one lock of the installation.
#[tokio::test(start_paused = true)]
async fn a_long_removal_delays_no_heartbeat() {
    let (mut running, mut wanted) = start();
    let mut peer = running.peer().await;
    peer.welcome(EPOCH, deployment(2)).await;
    let Wanted::Prepare(.., answer) = next(&mut peer, &mut wanted).await else { panic!("a preparation") };
    answer.send(Ok(Arc::new(FaultProvider::new(generation(2))))).ok().unwrap();
    let Wanted::Collect(_, cancel, answer) = next(&mut peer, &mut wanted).await else { panic!("a collection") };
    observed(&mut peer).await;
    let (began, mut last) = (Instant::now(), Instant::now());
    while !cancel.is_cancelled() {
        serve(&mut peer, 3).await.expect("nothing is asked while a removal runs");
        let since = last.elapsed();
        assert!((Duration::from_secs(9)..=Duration::from_secs(11)).contains(&since), "{since:?}");
        last = Instant::now();
    }
    assert!(began.elapsed() >= Duration::from_secs(90), "it had its time");
    assert!(wanted.try_recv().is_err(), "the removal has not ended yet");
    drop(answer);
    prepare(&mut wanted, 3).await;
}

/// Wire §7.4. Node-host §3.9. After a lost connection, and after one that the node itself closes, the wait before the next
/// dial begins only when the removal that was cancelled has really ended; it is then as long as ever.
#[rstest::rstest]
#[case::lost(false)]
#[case::closed(true)]
#[tokio::test(start_paused = true)]
async fn no_dial_begins_before_a_cancelled_removal_has_ended(#[case] node_closes: bool) {
    let (mut running, mut wanted) = start();
    let mut peer = running.peer().await;
    peer.welcome(EPOCH, deployment(2)).await;
    let Wanted::Prepare(.., answer) = next(&mut peer, &mut wanted).await else { panic!("a preparation") };
    answer.send(Ok(Arc::new(FaultProvider::new(generation(2))))).ok().unwrap();
    let Wanted::Collect(_, cancel, answer) = next(&mut peer, &mut wanted).await else { panic!("a collection") };
    if node_closes {
        let other = Deployment { specification_digest: digest(7), ..deployment(2) };
        peer.acknowledge(other).await;
        peer.ended().await;
    }
    drop(peer);
    cancel.cancelled().await;

    let hour = Duration::from_secs(3600);
    assert!(tokio::time::timeout(hour, running.streams.recv()).await.is_err(), "the removal has not ended yet");
    let ended = Instant::now();
    drop(answer);
    let mut peer = running.peer().await;
    let waited = ended.elapsed();
    assert!((Duration::from_millis(500)..=Duration::from_secs(1)).contains(&waited), "{waited:?}");
    peer.welcome(EPOCH, deployment(2)).await;
    assert_eq!(observed(&mut peer).await, [generation(2)]);
}

/// A node that is asked to stop ends what it started, and leaves only when that has ended.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_preparation_first() {
    let (mut running, mut wanted) = start();
    let mut peer = running.ready().await;
    peer.heartbeat(rollout(2)).await;
    let (cancel, answer) = prepare(&mut wanted, 2).await;
    running.stop.cancel();
    cancel.cancelled().await;
    peer.ended().await;
    assert!(!running.node.is_finished());
    drop(answer);
    assert_eq!(running.node.await.unwrap(), End::Stopped);
}
