//! The test provider passes the contract suite, and the workspace checks hold in front of it.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails there")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palisade_core::operation::{Declaration, Method, Operation, Support};
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::units::{Generation, Id};
use palisade_core::wire::payload::{
    Bootstrap, Compute, Instance, ObservationTarget, RawReference, Reference, Resume, Sample, Snapshot, Suspend,
    Workspace,
};
use palisade_provider::testing::contract::{Breakage, Case, Fixture, Subject, check_failure, check_observation};
use palisade_provider::testing::{Fault, FaultProvider, bootstrap, context, reference, workspace};
use palisade_provider::workspace::{Policy, Resolver};
use palisade_provider::{Provider, absent_receipt, dispatch, flattened};

const AMPLE: Duration = Duration::from_secs(30);

struct InMemory {
    provider: FaultProvider,
    method: Method,
}

impl InMemory {
    fn arrange(case: Case) -> Self {
        let method = match case.subject {
            Subject::Create => Method::Create,
            Subject::Inspect => Method::GetInfo,
            Subject::Renew => Method::Renew,
            Subject::Kill => Method::Kill,
        };
        let fault = match case.breakage {
            Breakage::Transport => Fault::LostAnswer,
            Breakage::CancelledAfterDispatch => Fault::Hang,
            Breakage::ForeignOwnership => Fault::ForeignOwner,
            Breakage::Cleanup => Fault::Fail(Failure::Unconfirmed),
        };
        let provider = FaultProvider::new(Generation::FIRST);
        if case.subject != Subject::Create {
            provider.set_native_state(reference(1), Some("running"));
        }
        provider.script(method, fault);
        Self { provider, method }
    }
}

#[async_trait]
impl Fixture for InMemory {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }
    fn reference(&self) -> Reference {
        reference(1)
    }
    fn bootstrap(&self) -> Bootstrap<'static> {
        bootstrap(reference(1))
    }
    async fn dispatched(&self) {
        self.provider.dispatched().await;
    }
    fn release(&self) {
        self.provider.release();
    }
    fn native_calls(&self) -> Vec<String> {
        self.provider.calls().iter().map(|(method, _)| method.name().to_owned()).collect()
    }
    fn expected_calls(&self) -> Vec<String> {
        vec![self.method.name().to_owned()]
    }
}

/// W 127. The shared failures hold for the test provider.
#[tokio::test]
async fn test_provider_passes_the_shared_failures() {
    for case in Case::all() {
        check_failure(case, &InMemory::arrange(case)).await;
    }
}

#[tokio::test]
async fn stopped_sandbox_is_observed_as_such_by_inspect_and_renew() {
    let provider = FaultProvider::new(Generation::FIRST);
    provider.set_native_state(reference(1), Some("exited"));
    for operation in [Operation::GetInfo, Operation::Renew] {
        let result = dispatch(&provider, context(reference(1), AMPLE), operation).await;
        let info = check_observation(result, reference(1), None, "exited");
        assert!(!info.bootstrap_complete);
    }
}

/// W 103. A method that is declared unsupported is refused with its reason, and nothing native is called.
#[tokio::test]
async fn declared_unsupported_method_is_refused_without_a_native_call() {
    let provider = FaultProvider::new(Generation::FIRST);
    for (operation, method, reason) in [
        (Operation::Initial, "Initial", "test_has_no_checkpoints"),
        (Operation::SavePreparation("k".into()), "SavePreparation", "test_has_no_preparation"),
    ] {
        let failed = dispatch(&provider, context(reference(1), AMPLE), operation).await.unwrap_err();
        let expected = Failure::Unsupported { method: method.into(), reason: reason.into() };
        assert_eq!(failed, Failed::from(expected));
    }
    assert!(provider.calls().is_empty());
}

#[tokio::test]
async fn expired_budget_never_starts_an_operation() {
    let provider = FaultProvider::new(Generation::FIRST);
    let failed = dispatch(&provider, context(reference(1), Duration::ZERO), Operation::Kill).await.unwrap_err();
    assert_eq!(failed, Failure::Unconfirmed.into());
    assert!(provider.calls().is_empty());
}

/// What a scripted resolver answers.
struct Answering(Result<&'static str, Failure>);

#[async_trait]
impl Resolver for Answering {
    async fn resolve(&self, _: Reference, _: &Workspace<'static>) -> Result<PathBuf, Failure> {
        self.0.clone().map(PathBuf::from)
    }
}

fn storage(answer: Result<&'static str, Failure>) -> FaultProvider {
    let declaration = Declaration::of_groups(&Support::Supported, &Support::Supported, &Support::Supported).unwrap();
    FaultProvider::new(Generation::FIRST)
        .with_declaration(declaration)
        .with_workspace(Policy::Storage(Some(Arc::new(Answering(answer)))))
}

fn create(binding: Option<Workspace<'static>>) -> Operation<'static> {
    Operation::Create(Box::new(Bootstrap { workspace: binding, ..bootstrap(reference(1)) }))
}

/// Creates a sandbox and suspends it; its snapshot.
async fn suspended(provider: &FaultProvider) -> Snapshot<'static> {
    dispatch(provider, context(reference(1), AMPLE), create(Some(workspace(reference(1))))).await.unwrap();
    let RawReference { tenant_id, environment_id, allocation_id } = flattened(reference(1));
    let source = Compute {
        generation: 0,
        name: format!("test-{allocation_id}-g0").into(),
        id: format!("local:{allocation_id}:0").into(),
        restored_from: None,
    };
    let suspend = Operation::Suspend(Box::new(Suspend {
        reference: RawReference { tenant_id, environment_id, allocation_id },
        operation_id: Id::from_random([8; 16]).to_string().into(),
        source,
        snapshot: None,
        observe_only: false,
    }));
    let answer = dispatch(provider, context(reference(1), AMPLE), suspend).await.unwrap();
    let Answer::State(state) = answer else { panic!("{answer:?}") };
    state.snapshot.unwrap()
}

fn resume(binding: Option<Workspace<'static>>, observe_only: bool) -> Operation<'static> {
    let operation_id = Id::from_random([7; 16]).to_string();
    let snapshot = Snapshot {
        reference: "s".into(),
        id: "s".into(),
        digest: "d".into(),
        checkpoint_id: "c".into(),
        checkpoint_root: "r".into(),
        operation_id: operation_id.clone().into(),
        source_generation: 0,
        source_name: "test-g0".into(),
        source_id: "test-0".into(),
    };
    let RawReference { tenant_id, environment_id, allocation_id } = flattened(reference(1));
    Operation::Resume(Box::new(Resume {
        workspace: binding,
        reference: RawReference { tenant_id, environment_id, allocation_id },
        operation_id: operation_id.into(),
        target: Compute { generation: 1, name: "test-g1".into(), id: "".into(), restored_from: Some(snapshot.clone()) },
        snapshot,
        observe_only,
    }))
}

async fn refusal(provider: &FaultProvider, operation: Operation<'static>) -> Failed<'static> {
    let failed = dispatch(provider, context(reference(1), AMPLE), operation).await.unwrap_err();
    assert!(provider.calls().is_empty(), "refused before any native call");
    failed
}

/// W 131-132. Without workspace storage a present binding is unsupported, in create and in resume, and the absence is
/// settled.
#[tokio::test]
async fn provider_without_storage_refuses_a_present_binding() {
    let declaration = Declaration::of_groups(&Support::Supported, &Support::Supported, &Support::Supported).unwrap();
    let provider = FaultProvider::new(Generation::FIRST).with_declaration(declaration);
    let binding = || Some(workspace(reference(1)));
    for (operation, method) in [(create(binding()), "Create"), (resume(binding(), true), "Resume")] {
        let failed = refusal(&provider, operation).await;
        let reason = "external_workspace_unsupported".to_owned();
        assert_eq!(failed.failure, Failure::Unsupported { method: method.into(), reason });
        assert_eq!(failed.info, Some(absent_receipt(reference(1))));
    }
}

/// W 133. With workspace storage and without a resolver everything is refused.
#[tokio::test]
async fn provider_with_storage_and_no_resolver_refuses() {
    let provider = FaultProvider::new(Generation::FIRST).with_workspace(Policy::Storage(None));
    assert_eq!(refusal(&provider, create(Some(workspace(reference(1))))).await.failure, Failure::Invalid);
    assert_eq!(refusal(&provider, create(None)).await.failure, Failure::Invalid);
}

/// W 134. A missing binding, a failed resolution and a directory that is not clean end before native work, settled.
#[tokio::test]
async fn failure_before_native_work_settles_absence() {
    let binding = || Some(workspace(reference(1)));
    for (provider, operation, expected) in [
        (storage(Ok("/srv/w")), create(None), Failure::Invalid),
        (storage(Err(Failure::Unconfirmed)), create(binding()), Failure::Unconfirmed),
        (storage(Ok("srv/../w")), create(binding()), Failure::Invalid),
    ] {
        let failed = refusal(&provider, operation).await;
        assert_eq!(failed.failure, expected);
        assert_eq!(failed.info, Some(absent_receipt(reference(1))));
    }
}

/// W 135. Resume resolves first, also when it only observes, and keeps a partial target with an unconfirmed error.
#[tokio::test]
async fn resume_resolves_before_it_restores_and_keeps_a_partial_target() {
    for observe_only in [false, true] {
        let unresolved = storage(Err(Failure::Ownership));
        let failed = refusal(&unresolved, resume(Some(workspace(reference(1))), observe_only)).await;
        assert_eq!(failed.failure, Failure::Ownership);
    }
    let provider = storage(Ok("/srv/w"));
    let snapshot = suspended(&provider).await;
    provider.script(Method::Resume, Fault::LostAnswer);
    let Operation::Resume(mut operation) = resume(Some(workspace(reference(1))), false) else { unreachable!() };
    operation.target.restored_from = Some(snapshot.clone());
    operation.snapshot = snapshot;
    let operation = Operation::Resume(operation);
    let failed = dispatch(&provider, context(reference(1), AMPLE), operation).await.unwrap_err();
    assert_eq!(failed.failure, Failure::Unconfirmed);
    assert_eq!(failed.state.expect("the partial target").compute.name, "test-g1");
}

/// W 137. Tenant, Environment, object and configuration are checked separately.
/// W 135. A foreign binding is refused before any call, in a resume as well.
#[tokio::test]
async fn binding_of_somebody_else_is_refused() {
    type Change = fn(&mut Workspace<'static>);
    let cases: [(Change, Failure); 5] = [
        (|w| w.tenant_id = reference(2).tenant.to_string().into(), Failure::Ownership),
        (|w| w.environment_id = reference(2).environment.to_string().into(), Failure::Ownership),
        (|w| w.configuration_id = reference(2).tenant.to_string().into(), Failure::Ownership),
        (|w| w.object_id = "not-a-uuid".into(), Failure::Invalid),
        (|w| w.kind = "bucket".into(), Failure::Invalid),
    ];
    for (change, expected) in cases {
        let mut binding = workspace(reference(1));
        change(&mut binding);
        let restoring = refusal(&storage(Ok("/srv/w")), resume(Some(binding.clone()), false)).await;
        assert_eq!(restoring.failure, expected);
        assert_eq!(refusal(&storage(Ok("/srv/w")), create(Some(binding))).await.failure, expected);
    }
    let accepted =
        dispatch(&storage(Ok("/srv/w")), context(reference(1), AMPLE), create(Some(workspace(reference(1))))).await;
    assert!(matches!(accepted, Ok(Answer::Info(_))));
}

/// W 118-120. The target reaches the provider unchanged, its sample comes back unchanged with an observed zero, no
/// lifecycle method is called, and a suspended target is not running.
#[tokio::test]
async fn observation_passes_through_unchanged() {
    let provider = FaultProvider::new(Generation::FIRST);
    provider.set_native_state(reference(1), Some("running"));
    let sample = Sample {
        observed_at: "2026-10-01T08:00:09Z".into(),
        started_at: None,
        cpu_usage_seconds_total: Some(0.0),
        cpu_capacity_cores: None,
        cpu_utilization_ratio: None,
        memory_usage_bytes: Some(0),
        memory_limit_bytes: None,
        disk_usage_bytes: None,
        disk_limit_bytes: Some(1),
    };
    provider.set_sample(sample.clone());
    let observe = |target: &ObservationTarget<'static>| Operation::Observe(Box::new(target.clone()));
    let target = observation(reference(1));
    let answer = dispatch(&provider, context(reference(1), AMPLE), observe(&target)).await;
    assert_eq!(answer, Ok(Answer::Sample(sample)));
    assert_eq!(provider.observed(), std::slice::from_ref(&target));
    assert_eq!(provider.calls(), [(Method::Observe, reference(1))]);

    let mut suspended = target;
    suspended.instance.compute_phase = "suspended".into();
    let failed = dispatch(&provider, context(reference(1), AMPLE), observe(&suspended)).await.unwrap_err();
    assert_eq!(failed, Failure::RuntimeNotRunning.into());
}

fn observation(sandbox: Reference) -> ObservationTarget<'static> {
    let texts = flattened(sandbox);
    ObservationTarget {
        tenant_id: texts.tenant_id,
        session_id: Id::from_random([4; 16]).to_string().into(),
        environment_id: texts.environment_id,
        mode: "openai_hosted".into(),
        instance: Instance {
            allocation_id: texts.allocation_id,
            provider_key: Id::from_random([6; 16]).to_string().into(),
            connection_generation: "".into(),
            allocation_state: "running".into(),
            allocation_created_at: "0001-01-01T00:00:00Z".into(),
            compute_phase: "running".into(),
            provider_state: r#"{"current":{"id":"local:16"}}"#.into(),
        },
        token_usage_present: false,
    }
}
