//! The shared contract suite: what holds for every provider when its backend fails (node-host §9.3).
//!
//! A provider implements [`Fixture`] over a backend that it can script, and calls [`run_failures`].

use std::time::{Duration, Instant};

use async_trait::async_trait;
use palisade_core::operation::{Method, MethodGroup, Operation, Support};
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::units::Id;
use palisade_core::wire::payload::{Bootstrap, Info, Reference};

use super::context;
use crate::{Context, Provider, dispatch, flattened};

/// Which operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// `Create`.
    Create,
    /// `GetInfo`.
    Inspect,
    /// `Renew`.
    Renew,
    /// `Kill`.
    Kill,
}

/// How it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breakage {
    /// The operation's last native call ends in a transport error.
    Transport,
    /// The operation's last native call is dispatched and not answered before the deadline.
    CancelledAfterDispatch,
    /// The resource of the name belongs to another sandbox.
    ForeignOwnership,
    /// The native removal is refused.
    Cleanup,
}

/// One row of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What is called.
    pub subject: Subject,
    /// What goes wrong.
    pub breakage: Breakage,
}

impl Case {
    /// Every row.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let subjects = [Subject::Create, Subject::Inspect, Subject::Renew, Subject::Kill];
        let breakages = [Breakage::Transport, Breakage::CancelledAfterDispatch, Breakage::ForeignOwnership];
        let mut cases: Vec<Self> =
            subjects.into_iter().flat_map(|subject| breakages.map(|breakage| Self { subject, breakage })).collect();
        cases.push(Self { subject: Subject::Kill, breakage: Breakage::Cleanup });
        cases
    }
}

/// A provider over a backend that fails as one [`Case`] says.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The provider under test.
    fn provider(&self) -> &dyn Provider;
    /// The sandbox that is called.
    fn reference(&self) -> Reference;
    /// A valid bootstrap of it.
    fn bootstrap(&self) -> Bootstrap<'static>;
    /// Ends when the call that is not answered in time has reached the backend.
    async fn dispatched(&self);
    /// Lets the backend answer that call after all.
    fn release(&self);
    /// Every native call since the case was arranged, in order.
    fn native_calls(&self) -> Vec<String>;
    /// Exactly what the provider is expected to have called.
    fn expected_calls(&self) -> Vec<String>;
}

/// How long a call that is cancelled waits: ample time to dispatch it.
const CANCELLED_BUDGET: Duration = Duration::from_millis(500);
const AMPLE_BUDGET: Duration = Duration::from_secs(30);

/// Checks the eight assertions of node-host §9.3 for one arranged case.
///
/// # Panics
/// When the provider breaks the contract; the message names the case.
pub async fn check_failure(case: Case, fixture: &dyn Fixture) {
    check_declaration(fixture.provider());
    check_bootstrap(fixture);
    let cancelled = case.breakage == Breakage::CancelledAfterDispatch;
    let budget = if cancelled { CANCELLED_BUDGET } else { AMPLE_BUDGET };
    let context = context(fixture.reference(), budget);
    let call = dispatch(fixture.provider(), context, operation(case.subject, fixture));
    let result = if cancelled { cancelled_call(case, fixture, context, call).await } else { call.await };
    check_result(case, fixture.reference(), result);
    assert_eq!(fixture.native_calls(), fixture.expected_calls(), "{case:?}: native calls");
}

/// Checks a successful observation: exact reference and state, a native identity, and no claim of readiness.
///
/// # Panics
/// When the observation says anything else.
#[must_use]
pub fn check_observation(
    result: Result<Answer<'static>, Failed<'static>>,
    reference: Reference,
    provider_id: Option<&str>,
    state: &str,
) -> Info<'static> {
    let Ok(Answer::Info(info)) = result else { panic!("expected an observation, got {result:?}") };
    assert_eq!(info.reference, flattened(reference));
    assert!(!info.provider_id.is_empty(), "an observed sandbox has a native identity");
    if let Some(expected) = provider_id {
        assert_eq!(info.provider_id, expected);
    }
    assert_eq!(info.state, state);
    info
}

async fn cancelled_call(
    case: Case,
    fixture: &dyn Fixture,
    context: Context,
    call: impl Future<Output = Result<Answer<'static>, Failed<'static>>>,
) -> Result<Answer<'static>, Failed<'static>> {
    let cancel = async {
        fixture.dispatched().await;
        assert!(Instant::now() < context.deadline, "{case:?}: the call was dispatched before its deadline");
        tokio::time::sleep_until(context.deadline.into()).await;
        fixture.release();
    };
    tokio::join!(call, cancel).0
}

fn operation(subject: Subject, fixture: &dyn Fixture) -> Operation<'static> {
    match subject {
        Subject::Create => Operation::Create(Box::new(fixture.bootstrap())),
        Subject::Inspect => Operation::GetInfo,
        Subject::Renew => Operation::Renew,
        Subject::Kill => Operation::Kill,
    }
}

fn check_declaration(provider: &dyn Provider) {
    for method in Method::ALL {
        let support = provider.declaration().support(method);
        if method.group() == MethodGroup::Lifecycle {
            assert_eq!(*support, Support::Supported, "{} is supported by every provider", method.name());
        }
    }
}

fn check_bootstrap(fixture: &dyn Fixture) {
    let bootstrap = fixture.bootstrap();
    let texts = flattened(fixture.reference());
    assert_eq!(
        (&bootstrap.tenant_id, &bootstrap.environment_id, &bootstrap.allocation_id),
        (&texts.tenant_id, &texts.environment_id, &texts.allocation_id),
        "the fixture's bootstrap names the fixture's sandbox"
    );
    assert!(Id::parse(&bootstrap.session_id).is_ok() && Id::parse(&bootstrap.device_id).is_ok());
}

fn check_result(case: Case, reference: Reference, result: Result<Answer<'static>, Failed<'static>>) {
    let failed = result.expect_err(&format!("{case:?}: a native failure is never a success"));
    assert!(!matches!(failed.failure, Failure::Unsupported { .. }), "{case:?}: reported as unsupported");
    if case.breakage == Breakage::ForeignOwnership {
        assert_eq!(failed.failure, Failure::Ownership, "{case:?}");
    }
    if let Some(info) = failed.info {
        assert!(!info.create_settled, "{case:?}: claims a settled creation");
        assert!(!info.bootstrap_complete, "{case:?}: claims a complete bootstrap");
        assert_eq!(info.reference, flattened(reference), "{case:?}: shows somebody else's reference");
    }
}
