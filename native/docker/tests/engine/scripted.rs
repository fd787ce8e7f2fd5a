//! What a real engine cannot be made to show on demand: lost answers, hanging calls, drift, and the exact calls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palisade_core::operation::Operation;
use palisade_core::outcome::{Answer, Failure};
use palisade_core::units::Id;
use palisade_core::wire::payload::{Bootstrap, Diagnostic, Instance, ObservationTarget, Reference};
use palisade_provider::testing::contract::{Breakage, Case, Fixture, Subject, check_failure};
use palisade_provider::testing::{bootstrap, context, reference};
use palisade_provider::{Provider, absent_receipt, dispatch, flattened};
use serde_json::json;

use crate::fake::{Fake, INSTALLATION, Trouble, labels};
use crate::lab::{AMPLE, Outcome, command};

const CREATION: [&str; 13] = [
    "inspect container",
    "inspect home",
    "inspect environment",
    "create home",
    "create environment",
    "create container",
    "inspect container",
    "inspect image",
    "upload path=%2Fhome",
    "upload path=%2Fenvironment",
    "start container",
    "inspect container",
    "inspect image",
];

/// The name that the provider derives for a sandbox of the scripted installation.
fn name(sandbox: Reference) -> String {
    let Reference { tenant, environment, allocation } = sandbox;
    let text = format!("{}:{tenant}:{environment}:{allocation}", Id::from_random(INSTALLATION));
    format!("oac-runtime-{}", &palisade_core::units::Digest::of(text.as_bytes()).to_string()[..32])
}

fn create(sandbox: Reference) -> Operation<'static> {
    Operation::Create(Box::new(bootstrap(sandbox)))
}

async fn call(fake: &Fake, sandbox: Reference, operation: Operation<'static>) -> Outcome {
    dispatch(&fake.provider, context(sandbox, AMPLE), operation).await
}

struct Arranged {
    case: Case,
    fake: Fake,
}

impl Arranged {
    fn new(case: Case) -> Self {
        let fake = Fake::new();
        if case.subject != Subject::Create {
            fake.put(&name(reference(1)), reference(1));
        }
        if case.breakage == Breakage::ForeignOwnership {
            Self::make_foreign(case, &fake);
        }
        let last = match case.subject {
            Subject::Create => "create container",
            Subject::Inspect | Subject::Renew => "inspect container",
            Subject::Kill => "remove container",
        };
        match case.breakage {
            Breakage::Transport => fake.trouble(last, Trouble::Cut),
            Breakage::CancelledAfterDispatch => fake.trouble(last, Trouble::Hang),
            Breakage::Cleanup => fake.trouble(last, Trouble::Refuse(500)),
            Breakage::ForeignOwnership => {}
        }
        Self { case, fake }
    }

    /// A removal meets the foreign owner last of all, on the second volume; the rest meet it on the container.
    fn make_foreign(case: Case, fake: &Fake) {
        let name = name(reference(1));
        if case.subject == Subject::Create {
            fake.put(&name, reference(2));
        }
        let mut state = fake.state();
        if case.subject == Subject::Kill {
            state.volumes.get_mut(&format!("{name}-environment")).unwrap()["Labels"] = labels(reference(2));
        } else {
            state.containers.get_mut(&name).unwrap()["Config"]["Labels"] = labels(reference(2));
        }
    }
}

#[async_trait]
impl Fixture for Arranged {
    fn provider(&self) -> &dyn Provider {
        &self.fake.provider
    }
    fn reference(&self) -> Reference {
        reference(1)
    }
    fn bootstrap(&self) -> Bootstrap<'static> {
        bootstrap(reference(1))
    }
    async fn dispatched(&self) {
        self.fake.hanging().await;
    }
    fn release(&self) {
        self.fake.release();
    }
    fn native_calls(&self) -> Vec<String> {
        self.fake.state().calls.clone()
    }
    fn expected_calls(&self) -> Vec<String> {
        let foreign = self.case.breakage == Breakage::ForeignOwnership;
        let removal = ["inspect container", "inspect home", "inspect environment", "remove container"];
        let calls = match self.case.subject {
            Subject::Create if foreign => &CREATION[..1],
            Subject::Create => &CREATION[..6],
            Subject::Inspect | Subject::Renew => &CREATION[..1],
            Subject::Kill if foreign => &removal[..3],
            Subject::Kill => &removal[..],
        };
        calls.iter().map(|call| (*call).to_owned()).collect()
    }
}

/// H 184. The shared failures hold with the exact native calls; removal checks all ownership first.
///
/// W 127. None of them is a success, unsupported, settled, or followed by another call.
#[tokio::test]
async fn shared_failures_hold_with_exact_native_calls() {
    for case in Case::all() {
        check_failure(case, &Arranged::new(case)).await;
    }
}

#[tokio::test]
async fn creation_makes_exactly_these_calls() {
    let fake = Fake::new();
    let Ok(Answer::Info(info)) = call(&fake, reference(1), create(reference(1))).await else { panic!("no sandbox") };
    assert_eq!(fake.take_calls(), CREATION);
    assert_eq!((info.provider_id.as_ref(), info.state.as_ref(), info.bootstrap_complete), ("c1", "running", true));
    assert_eq!(call(&fake, reference(1), Operation::Kill).await.unwrap(), Answer::Done);
    let removal = ["inspect container", "inspect home", "inspect environment"];
    let expected = [&removal[..], &["remove container", "remove home", "remove environment"], &removal[..]].concat();
    assert_eq!(fake.take_calls(), expected);
}

/// H 191. After a lost start response the original is observable, and the creation was sent once.
#[tokio::test]
async fn lost_start_response_is_recoverable() {
    let fake = Fake::new();
    fake.trouble("start container", Trouble::Cut);
    let failed = call(&fake, reference(1), create(reference(1))).await.unwrap_err();
    assert_eq!((failed.failure, failed.info), (Failure::Unconfirmed, None));
    assert_eq!(fake.take_calls(), CREATION[..11]);
    let Ok(Answer::Info(info)) = call(&fake, reference(1), Operation::GetInfo).await else { panic!("not observable") };
    assert!(info.bootstrap_complete && !info.create_settled);
    assert_eq!(info.provider_id, "c1");
    assert_eq!(fake.take_calls(), ["inspect container", "inspect image"]);
}

/// H 187. CPU, memory or image drift is a settled rejection before the bootstrap, and is still cleanable.
///
/// E34. Images are compared as the engine resolves them; one that it does not identify is drift.
#[tokio::test]
async fn drift_rejects_before_bootstrap_and_settles() {
    let other_image = "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";
    for (drift, image) in [
        (json!({"Memory": 1}), None),
        (json!({"NanoCpus": 0}), None),
        (json!({}), Some(other_image)),
        (json!({}), Some("")),
    ] {
        let fake = Fake::new();
        fake.state().drift = drift;
        if let Some(image) = image {
            fake.state().image_id = image.to_owned();
        }
        let failed = call(&fake, reference(1), create(reference(1))).await.unwrap_err();
        assert_eq!(failed.failure, Failure::Invalid);
        let info = failed.info.expect("a settled creation");
        assert!(info.create_settled && !info.bootstrap_complete);
        assert_eq!((info.provider_id.as_ref(), info.reference), ("c1", flattened(reference(1))));
        assert_eq!(fake.take_calls(), CREATION[..8], "no bootstrap, no start, no cleanup");
        assert_eq!(call(&fake, reference(1), Operation::GetInfo).await.unwrap_err().failure, Failure::Invalid);
        assert_eq!(call(&fake, reference(1), Operation::Kill).await.unwrap(), Answer::Done);
    }
}

/// E16. A name conflict in the engine is an existing sandbox; nothing else is tried.
#[tokio::test]
async fn name_conflict_is_an_existing_sandbox() {
    let fake = Fake::new();
    fake.trouble("create container", Trouble::Refuse(409));
    assert_eq!(call(&fake, reference(1), create(reference(1))).await.unwrap_err().failure, Failure::Exists);
    assert_eq!(fake.take_calls(), CREATION[..6]);
    assert_eq!(call(&fake, reference(1), create(reference(1))).await.unwrap_err().failure, Failure::Exists);
    assert_eq!(fake.take_calls(), Vec::<String>::new(), "a creation is never sent twice");
}

/// A volume that appeared between the look and the creation is somebody else's.
#[tokio::test]
async fn volume_that_the_engine_did_not_make_for_us_is_foreign() {
    let fake = Arc::new(Fake::new());
    fake.trouble("create home", Trouble::Hang);
    let creation = tokio::spawn({
        let fake = fake.clone();
        async move { call(&fake, reference(1), create(reference(1))).await }
    });
    fake.hanging().await;
    let volume = format!("{}-environment", name(reference(1)));
    let theirs =
        json!({"Name": volume, "Driver": "local", "Mountpoint": "/", "Scope": "local", "Labels": {}, "Options": {}});
    fake.state().volumes.insert(volume, theirs);
    fake.release();
    assert_eq!(creation.await.unwrap().unwrap_err().failure, Failure::Ownership);
    assert_eq!(fake.take_calls(), CREATION[..5]);
}

/// E16. A creation that nobody waits for any more goes on, nothing calls it settled, and a removal waits for it.
#[tokio::test]
async fn creation_is_never_cancelled_and_removal_waits_for_it() {
    let fake = Arc::new(Fake::new());
    fake.trouble("create container", Trouble::Hang);
    {
        let abandoned = call(&fake, reference(1), create(reference(1)));
        tokio::select! {
            outcome = abandoned => panic!("ended early: {outcome:?}"),
            () = fake.hanging() => {}
        }
    }
    fake.state().containers.clear();
    assert_eq!(call(&fake, reference(1), Operation::GetInfo).await.unwrap_err(), Failure::NotFound.into());
    let early = dispatch(&fake.provider, context(reference(1), Duration::from_millis(50)), Operation::Kill).await;
    assert_eq!(early.unwrap_err().failure, Failure::Unconfirmed);
    assert!(!fake.take_calls().contains(&"remove container".to_owned()), "nothing is removed under a running creation");

    let mut removal = tokio::spawn({
        let fake = fake.clone();
        async move { call(&fake, reference(1), Operation::Kill).await }
    });
    tokio::select! {
        biased;
        ended = &mut removal => panic!("did not wait: {ended:?}"),
        () = tokio::task::yield_now() => {}
    }
    fake.release();
    assert_eq!(removal.await.unwrap().unwrap(), Answer::Done);
    assert_eq!(
        call(&fake, reference(1), Operation::GetInfo).await.unwrap(),
        Answer::Info(absent_receipt(reference(1)))
    );
}

/// A creation whose answer was lost, or that an earlier process sent, is not settled by one look at nothing.
#[tokio::test]
async fn lost_creation_is_not_settled_by_a_single_look() {
    let fake = Fake::new();
    fake.trouble("create container", Trouble::Cut);
    call(&fake, reference(1), create(reference(1))).await.unwrap_err();
    assert_eq!(call(&fake, reference(1), Operation::Kill).await.unwrap(), Answer::Done);
    assert_eq!(call(&fake, reference(1), Operation::GetInfo).await.unwrap_err(), Failure::NotFound.into());
    let restarted = dispatch(&fake.restarted(), context(reference(1), AMPLE), Operation::GetInfo).await;
    assert_eq!(restarted.unwrap_err(), Failure::NotFound.into());
}

/// E5. One hanging call holds up nothing but itself.
#[tokio::test]
async fn hanging_call_holds_up_nothing_else() {
    let fake = Fake::new();
    fake.put(&name(reference(1)), reference(1));
    fake.put(&name(reference(2)), reference(2));
    fake.trouble("inspect container", Trouble::Hang);
    let stuck = dispatch(&fake.provider, context(reference(1), AMPLE), Operation::GetInfo);
    tokio::pin!(stuck);
    tokio::select! {
        outcome = &mut stuck => panic!("ended early: {outcome:?}"),
        () = fake.hanging() => {}
    }
    assert!(call(&fake, reference(2), Operation::GetInfo).await.is_ok());
    assert!(fake.provider.probe().await.is_ok());
    fake.release();
    assert!(stuck.await.is_ok());
}

/// H 190. The first failing check of the probe decides its class.
#[tokio::test]
async fn probe_reports_the_first_failing_check() {
    type Change = fn(&Fake);
    let cases: [(Change, Diagnostic, &[&str]); 10] = [
        (|f| f.trouble("GET /_ping", Trouble::Refuse(500)), Diagnostic::DockerUnavailable, &["GET /_ping"]),
        (|f| f.state().api_version = "1.40".into(), Diagnostic::DockerUnavailable, &[]),
        (|f| f.trouble("GET /info", Trouble::Cut), Diagnostic::DockerUnavailable, &["GET /_ping", "GET /info"]),
        (
            |f| f.state().info["MemoryLimit"] = false.into(),
            Diagnostic::DockerLimitsUnsupported,
            &["GET /_ping", "GET /info"],
        ),
        (
            |f| f.state().info["CpuCfsQuota"] = false.into(),
            Diagnostic::DockerLimitsUnsupported,
            &["GET /_ping", "GET /info"],
        ),
        (|f| f.state().info["MemTotal"] = 0.into(), Diagnostic::ProviderUnavailable, &["GET /_ping", "GET /info"]),
        (
            |f| f.state().info["MemTotal"] = ((512 << 20) - 1).into(),
            Diagnostic::CapacityInsufficient,
            &["GET /_ping", "GET /info"],
        ),
        (|f| f.state().info["NCPU"] = 0.into(), Diagnostic::CapacityInsufficient, &["GET /_ping", "GET /info"]),
        (
            |f| f.state().image_id.clear(),
            Diagnostic::RuntimeImageUnavailable,
            &["GET /_ping", "GET /info", "inspect image"],
        ),
        (
            |f| f.trouble("inspect image", Trouble::Refuse(500)),
            Diagnostic::DockerUnavailable,
            &["GET /_ping", "GET /info", "inspect image"],
        ),
    ];
    for (change, expected, calls) in cases {
        let fake = Fake::new();
        change(&fake);
        assert_eq!(fake.provider.probe().await.unwrap_err().diagnostic, expected);
        assert_eq!(fake.take_calls(), calls);
    }
    let healthy = Fake::new();
    assert!(healthy.provider.probe().await.is_ok());
}

fn target(sandbox: Reference) -> ObservationTarget<'static> {
    ObservationTarget {
        tenant_id: sandbox.tenant.to_string().into(),
        session_id: Id::from_random([4; 16]).to_string().into(),
        environment_id: sandbox.environment.to_string().into(),
        mode: "openai_hosted".into(),
        instance: Instance {
            allocation_id: sandbox.allocation.to_string().into(),
            provider_key: Id::from_random(INSTALLATION).to_string().into(),
            connection_generation: "".into(),
            allocation_state: "running".into(),
            allocation_created_at: "2026-10-01T07:00:00Z".into(),
            compute_phase: "running".into(),
            provider_state: "null".into(),
        },
        token_usage_present: false,
    }
}

/// H 193. Ownership is seen to before the statistics, which are read once; a stopped sandbox's are not read.
#[tokio::test]
async fn statistics_are_read_once_after_ownership() {
    let fake = Fake::new();
    let sandbox = reference(1);
    fake.put(&name(sandbox), sandbox);
    fake.state().stats =
        json!({"read": "2026-10-01T08:00:09Z", "cpu_stats": {"cpu_usage": {}}, "memory_stats": {"usage": 0}});
    let observe = || Operation::Observe(Box::new(target(sandbox)));
    let Ok(Answer::Sample(sample)) = call(&fake, sandbox, observe()).await else { panic!("no sample") };
    assert_eq!((sample.cpu_usage_seconds_total, sample.memory_usage_bytes), (None, Some(0)));
    assert_eq!(fake.take_calls(), ["inspect container", "stats stream=false&one-shot=true"]);

    fake.trouble("stats stream=false&one-shot=true", Trouble::Cut);
    assert_eq!(call(&fake, sandbox, observe()).await.unwrap_err().failure, Failure::ObservationUnavailable);
    fake.take_calls();

    fake.state().containers.get_mut(&name(sandbox)).unwrap()["State"]["Status"] = "exited".into();
    assert_eq!(call(&fake, sandbox, observe()).await.unwrap_err().failure, Failure::RuntimeNotRunning);
    assert_eq!(fake.take_calls(), ["inspect container"]);

    let mut foreign = target(sandbox);
    foreign.instance.provider_key = Id::from_random([8; 16]).to_string().into();
    let failed = call(&fake, sandbox, Operation::Observe(Box::new(foreign))).await.unwrap_err();
    assert_eq!(failed.failure, Failure::Ownership);
    assert_eq!(fake.take_calls(), Vec::<String>::new());
}

/// E21. A command is followed to its end also when nobody waits for it any more.
#[tokio::test]
async fn command_goes_on_without_its_caller() {
    let fake = Fake::new();
    fake.put(&name(reference(1)), reference(1));
    fake.trouble("start exec", Trouble::Hang);
    {
        let abandoned = call(&fake, reference(1), Operation::RunCommand(command(&["true"])));
        tokio::select! {
            outcome = abandoned => panic!("ended early: {outcome:?}"),
            () = fake.hanging() => {}
        }
    }
    fake.trouble("inspect exec", Trouble::Hang);
    fake.release();
    fake.hanging().await;
    assert_eq!(fake.take_calls(), ["inspect container", "create exec", "start exec", "inspect exec"]);
}

/// E19. A start that was not answered is unknown; a refused one that never had a process is not.
#[tokio::test]
async fn unanswered_start_of_a_command_is_unconfirmed() {
    let fake = Fake::new();
    let sandbox = reference(1);
    fake.put(&name(sandbox), sandbox);
    fake.trouble("start exec", Trouble::Cut);
    let run = || Operation::RunCommand(command(&["true"]));
    assert_eq!(call(&fake, sandbox, run()).await.unwrap_err().failure, Failure::CommandUnconfirmed);
    assert_eq!(fake.take_calls(), ["inspect container", "create exec", "start exec", "inspect exec"]);
    assert_eq!(call(&fake, sandbox, run()).await.unwrap_err().failure, Failure::CommandUnconfirmed);
    fake.state().exec = json!({"Running": false, "ExitCode": 127, "Pid": 0});
    assert_eq!(call(&fake, sandbox, run()).await.unwrap_err().failure, Failure::Invalid);
    fake.trouble("create exec", Trouble::Refuse(409));
    assert_eq!(call(&fake, sandbox, run()).await.unwrap_err().failure, Failure::NotFound);
}
