//! Approved capacity of nodes (deployment §1.6, §1.9, §6; decision 19).

use schemars::JsonSchema;
use serde::Deserialize;

use super::Deployment;
use super::contract::{Mode, Provider, Resource};
use super::node::{self, Measurements};
use super::specification::Specification;
use crate::admin::error::{Code, Fault};
use crate::limits::{CAPACITY_ACTIVE_DEFAULT, CAPACITY_MAX, CAPACITY_RETAINED_DEFAULT};
use crate::strict::{self, Integer};

/// Approved limits of one node; `1 <= max_active <= max_retained`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Sandboxes at once.
    pub max_active: u32,
    /// Sandboxes with the suspended ones; equal to `max_active` for a provider that does not suspend.
    pub max_retained: u32,
}

impl Capacity {
    /// The limits as they are reported and enforced: without suspension the retained limit follows the active one,
    /// whatever is stored.
    #[must_use]
    pub const fn reported(provider: Provider, max_active: u32, max_retained: u32) -> Self {
        let max_retained = if provider.rule().suspension.is_some() { max_retained } else { max_active };
        Self { max_active, max_retained }
    }
}

/// Limits of an enrollment token; `None` is unset and is derived at enrollment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Approval {
    /// Sandboxes at once.
    pub max_active: Option<u32>,
    /// Sandboxes with the suspended ones; always `None` for a provider that does not suspend.
    pub max_retained: Option<u32>,
}

impl Approval {
    /// What a configuration read with the token shows: unset limits are 2 and 8.
    #[must_use]
    pub fn shown(self, provider: Provider) -> Capacity {
        let active = self.max_active.unwrap_or(CAPACITY_ACTIVE_DEFAULT);
        Capacity::reported(provider, active, self.max_retained.unwrap_or(CAPACITY_RETAINED_DEFAULT).max(active))
    }

    /// The limits of a node that enrolls: explicit values, else derived from what it measured, else 2 and 8
    /// (deployment §6.2).
    #[must_use]
    pub fn derive(self, specification: &Specification, measured: &Measurements) -> Capacity {
        let Some(slots) = slots(specification, measured) else { return self.shown(specification.provider()) };
        let active = self.max_active.unwrap_or(slots.min(self.max_retained.unwrap_or(CAPACITY_MAX)));
        let base = active.saturating_mul(RETAINED_PER_ACTIVE).min(CAPACITY_MAX);
        let derived = || disk_slots(specification, measured).map_or(base, |slots| slots.min(base));
        let retained = self.max_retained.unwrap_or_else(derived);
        Capacity::reported(specification.provider(), active, retained.max(active))
    }
}

/// Derived ratio of retained to active sandboxes, that of the defaults 2 and 8.
const RETAINED_PER_ACTIVE: u32 = CAPACITY_RETAINED_DEFAULT / CAPACITY_ACTIVE_DEFAULT;
const MIB: u64 = 1 << 20;
const RESERVED_MEMORY_MIN: u64 = 2048 * MIB;

/// Sandboxes that cores and memory have room for, at least 1; `None` when either is unknown.
fn slots(specification: &Specification, measured: &Measurements) -> Option<u32> {
    #[allow(clippy::cast_precision_loss, reason = "a host has fewer than 2^53 cores")]
    let cores = measured.effective_cpu_cores.or(measured.cpu_count.map(|count| count as f64))?;
    let memory = measured.total_memory_bytes?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a saturating cast of a floor")]
    let cpu_slots = ((cores - 1.0) / f64::from(specification.cpus())).floor() as u64;
    let free = memory.saturating_sub(RESERVED_MEMORY_MIN.max(memory / 10));
    let memory_slots = free / (u64::from(specification.memory_mib()) * MIB);
    Some(clamp(cpu_slots.min(memory_slots)))
}

/// Sandboxes that the disk has room for; `None` when it is unknown or disks have no enforced size.
fn disk_slots(specification: &Specification, measured: &Measurements) -> Option<u32> {
    let sizes = [Resource::RootDiskMib, Resource::EnvironmentDiskMib];
    let each: u64 = sizes.into_iter().map(|disk| u64::from(specification.resource(disk))).sum::<u64>() * MIB;
    measured.available_disk_bytes?.checked_div(each).map(clamp)
}

fn clamp(slots: u64) -> u32 {
    u32::try_from(slots).unwrap_or(CAPACITY_MAX).clamp(1, CAPACITY_MAX)
}

/// Body of `POST /core/v1/sandbox/enrollment-tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrollmentRequest {
    #[serde(default, deserialize_with = "strict::present")]
    max_active: Option<Integer>,
    #[serde(default, deserialize_with = "strict::present")]
    max_retained: Option<Integer>,
}

impl EnrollmentRequest {
    /// Checks 1 and 2 of deployment §1.6: the body, then the active limit.
    pub fn parse(body: &[u8]) -> Result<Self, Fault> {
        let request: Self = strict::object(body).map_err(|_| Code::InvalidRequest)?;
        within("max_active", request.max_active.unwrap_or(Integer(CAPACITY_ACTIVE_DEFAULT.into())), 1)?;
        Ok(request)
    }

    /// Checks 3 to 7 of deployment §1.6 against the deployment.
    pub fn approve(&self, deployment: &Deployment) -> Result<Approval, Fault> {
        let provider = initialised(deployment)?;
        let active = within("max_active", self.max_active.unwrap_or(Integer(CAPACITY_ACTIVE_DEFAULT.into())), 1)?;
        let suspends = provider.rule().suspension.is_some();
        if suspends {
            let retained = self.max_retained.unwrap_or(Integer(CAPACITY_RETAINED_DEFAULT.into()));
            within("max_retained", retained, active)?;
        }
        if deployment.reset.is_some() {
            return Err(Code::SandboxResetInProgress.into());
        }
        if provider.rule().mode != Mode::Nodes || deployment.admission_paused || deployment.specification().is_none() {
            return Err(Code::SandboxDeploymentConflict.into());
        }
        let set = |value: Option<Integer>| value.and_then(|Integer(value)| u32::try_from(value).ok());
        let max_retained = set(self.max_retained).filter(|_| suspends);
        Ok(Approval { max_active: set(self.max_active), max_retained })
    }
}

/// Body of `PATCH /core/v1/sandbox/nodes/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeUpdate {
    /// New name, checked.
    pub name: String,
    max_active: Integer,
    max_retained: Integer,
}

impl NodeUpdate {
    /// The first checks of deployment §1.9: body, then name, then the active limit.
    pub fn parse(body: &[u8]) -> Result<Self, Fault> {
        let update: Self = strict::object(body).map_err(|_| Code::InvalidRequest)?;
        if !node::valid_name(update.name.as_bytes()) {
            return Err(Fault::of(Code::InvalidName, "name").detail("max_length", 128));
        }
        within("max_active", update.max_active, 1)?;
        Ok(update)
    }

    /// The checks after the node's identifier: initialised, then the retained limit.
    pub fn approve(&self, deployment: &Deployment) -> Result<Capacity, Fault> {
        let provider = initialised(deployment)?;
        let max_active = within("max_active", self.max_active, 1)?;
        if provider.rule().suspension.is_none() {
            return Ok(Capacity { max_active, max_retained: max_active });
        }
        Ok(Capacity { max_active, max_retained: within("max_retained", self.max_retained, max_active)? })
    }
}

/// The provider of a claimed and configured deployment, else 503 `runtime_node_unavailable`.
pub fn initialised(deployment: &Deployment) -> Result<Provider, Fault> {
    deployment.provider().filter(|_| deployment.installation.is_some()).ok_or(Code::RuntimeNodeUnavailable.into())
}

fn within(param: &'static str, Integer(value): Integer, min: u32) -> Result<u32, Fault> {
    let valid = u32::try_from(value).ok().filter(|value| (min..=CAPACITY_MAX).contains(value));
    valid.ok_or_else(|| {
        Fault::of(Code::InvalidNodeCapacity, param).detail("min", 1).detail("max", u64::from(CAPACITY_MAX))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::tests::{deployment, resetting, specification};
    use super::*;

    fn issue(provider: Option<Provider>, body: &str) -> Result<Approval, Told> {
        EnrollmentRequest::parse(body.as_bytes())
            .and_then(|request| request.approve(&deployment(provider)))
            .map_err(|fault| (fault.code.status(), fault.code.code(), fault.param))
    }

    /// Status, code and parameter of a refusal.
    type Told = (u16, &'static str, Option<&'static str>);
    /// Explicit limits.
    type Limits = (Option<u32>, Option<u32>);

    const ACTIVE: Told = (400, "invalid_node_capacity", Some("max_active"));
    const RETAINED: Told = (400, "invalid_node_capacity", Some("max_retained"));

    /// D 70. Bounds of a token's capacity, and retained is at least active.
    #[rstest]
    #[case("{}", Ok((None, None)))]
    #[case(r#"{"max_active":1000000,"max_retained":1000000}"#, Ok((Some(1_000_000), Some(1_000_000))))]
    #[case(r#"{"max_active":8}"#, Ok((Some(8), None)))]
    #[case(r#"{"max_active":0}"#, Err(ACTIVE))]
    #[case(r#"{"max_active":-1}"#, Err(ACTIVE))]
    #[case(r#"{"max_active":1000001}"#, Err(ACTIVE))]
    #[case(r#"{"max_active":10}"#, Err(RETAINED))]
    #[case(r#"{"max_retained":1}"#, Err(RETAINED))]
    #[case(r#"{"max_retained":1000001}"#, Err(RETAINED))]
    #[case(r#"{"max_retained":-5}"#, Err(RETAINED))]
    #[case(r#"{"max_active":2.0}"#, Err((400, "invalid_request", None)))]
    #[case(r#"{"max_active":null}"#, Err((400, "invalid_request", None)))]
    #[case(r#"{"max_active":"2"}"#, Err((400, "invalid_request", None)))]
    #[case(r#"{"other":2}"#, Err((400, "invalid_request", None)))]
    #[case("[]", Err((400, "invalid_request", None)))]
    #[case("", Err((400, "invalid_request", None)))]
    fn a_token_has_a_capacity_within_bounds(#[case] body: &str, #[case] expected: Result<Limits, Told>) {
        let issued = issue(Some(Provider::Microsandbox), body);
        assert_eq!(issued.map(|approval| (approval.max_active, approval.max_retained)), expected);
    }

    /// D 70. The active bound precedes the deployment, which precedes the retained bound, the reset and the mode.
    #[test]
    fn a_token_is_refused_in_order() {
        assert_eq!(issue(None, r#"{"max_active":0}"#), Err(ACTIVE));
        assert_eq!(issue(None, r#"{"max_retained":0}"#), Err((503, "runtime_node_unavailable", None)));
        assert_eq!(issue(Some(Provider::E2b), "{}"), Err((409, "sandbox_deployment_conflict", None)));
        let request = EnrollmentRequest::parse(b"{}").unwrap();
        let code = |deployment: &Deployment| request.approve(deployment).unwrap_err().code;
        assert_eq!(code(&resetting(Provider::Docker)), Code::SandboxResetInProgress);
        let paused = Deployment { admission_paused: true, ..deployment(Some(Provider::Docker)) };
        assert_eq!(code(&paused), Code::SandboxDeploymentConflict);
    }

    /// D 71. Without suspension the retained limit follows the active one in token, answer and update.
    #[test]
    fn docker_retains_what_is_active() {
        let issued = issue(Some(Provider::Docker), r#"{"max_active":5,"max_retained":0}"#).unwrap();
        assert_eq!(issued, Approval { max_active: Some(5), max_retained: None });
        assert_eq!(issued.shown(Provider::Docker), Capacity { max_active: 5, max_retained: 5 });
        assert_eq!(Approval::default().shown(Provider::Docker), Capacity { max_active: 2, max_retained: 2 });
        assert_eq!(Approval::default().shown(Provider::Microsandbox), Capacity { max_active: 2, max_retained: 8 });
        assert_eq!(Capacity::reported(Provider::Docker, 3, 9), Capacity { max_active: 3, max_retained: 3 });
        let update = NodeUpdate::parse(br#"{"name":"n","max_active":4,"max_retained":9999999}"#).unwrap();
        let approved = update.approve(&deployment(Some(Provider::Docker))).unwrap();
        assert_eq!(approved, Capacity { max_active: 4, max_retained: 4 });
    }

    /// D 76. D 70. An update is refused by code and field; bounds are inclusive; the name is judged first.
    #[rstest]
    #[case(r#"{"name":"n","max_active":1,"max_retained":1}"#, Ok((1, 1)))]
    #[case(r#"{"name":"n","max_active":1000000,"max_retained":1000000}"#, Ok((1_000_000, 1_000_000)))]
    #[case(r#"{"name":"","max_active":0,"max_retained":0}"#, Err((400, "invalid_name", Some("name"))))]
    #[case(r#"{"name":"n","max_active":0,"max_retained":0}"#, Err(ACTIVE))]
    #[case(r#"{"name":"n","max_active":2,"max_retained":1}"#, Err(RETAINED))]
    #[case(r#"{"name":"n","max_active":2,"max_retained":1000001}"#, Err(RETAINED))]
    #[case(r#"{"name":"n","max_active":2}"#, Err((400, "invalid_request", None)))]
    #[case(r#"{"name":null,"max_active":2,"max_retained":2}"#, Err((400, "invalid_request", None)))]
    #[case(r#"{"name":"n","max_active":2,"max_retained":2,"id":"x"}"#, Err((400, "invalid_request", None)))]
    fn an_update_is_checked_in_order(#[case] body: &str, #[case] expected: Result<(u32, u32), Told>) {
        let decided = NodeUpdate::parse(body.as_bytes())
            .and_then(|update| update.approve(&deployment(Some(Provider::Microsandbox))))
            .map(|capacity| (capacity.max_active, capacity.max_retained))
            .map_err(|fault| (fault.code.status(), fault.code.code(), fault.param));
        assert_eq!(decided, expected);
        let uninitialised = NodeUpdate::parse(br#"{"name":"n","max_active":1,"max_retained":0}"#).unwrap();
        assert_eq!(uninitialised.approve(&deployment(None)).unwrap_err().code, Code::RuntimeNodeUnavailable);
    }

    fn measured(cores: f64, memory_gib: u64, disk_gib: Option<u64>) -> Measurements {
        Measurements {
            effective_cpu_cores: Some(cores),
            cpu_count: Some(64),
            total_memory_bytes: Some(memory_gib << 30),
            available_disk_bytes: disk_gib.map(|gib| gib << 30),
            ..Measurements::default()
        }
    }

    /// D 70. Unset limits come from the measurements, explicit ones always win.
    #[rstest]
    #[case::cpu_bound(Provider::Docker, (None, None), measured(8.0, 64, None), (3, 3))]
    #[case::memory_bound(Provider::Docker, (None, None), measured(32.0, 18, None), (4, 4))]
    #[case::one_more_at_ten_percent(Provider::Docker, (None, None), measured(64.0, 45, None), (10, 10))]
    #[case::a_tenth_of_a_large_host(Provider::Docker, (None, None), measured(512.0, 400, None), (90, 90))]
    #[case::ten_percent(Provider::Docker, (None, None), measured(64.0, 40, None), (9, 9))]
    #[case::small_host(Provider::Docker, (None, None), measured(1.0, 2, None), (1, 1))]
    #[case::micro(Provider::Microsandbox, (None, None), measured(8.0, 64, None), (3, 12))]
    #[case::micro_disk(Provider::Microsandbox, (None, None), measured(8.0, 64, Some(80)), (3, 5))]
    #[case::micro_tiny_disk(Provider::Microsandbox, (None, None), measured(8.0, 64, Some(1)), (3, 3))]
    #[case::explicit_active(Provider::Microsandbox, (Some(1), None), measured(8.0, 64, None), (1, 4))]
    #[case::explicit_retained(Provider::Microsandbox, (None, Some(2)), measured(8.0, 64, None), (2, 2))]
    #[case::both(Provider::Microsandbox, (Some(5), Some(6)), measured(8.0, 64, None), (5, 6))]
    #[case::unknown(Provider::Microsandbox, (None, None), Measurements::default(), (2, 8))]
    #[case::unknown_explicit(Provider::Microsandbox, (Some(1), None), Measurements::default(), (1, 8))]
    #[case::unknown_docker(Provider::Docker, (None, None), Measurements::default(), (2, 2))]
    fn capacity_is_derived_where_it_is_unset(
        #[case] provider: Provider,
        #[case] (max_active, max_retained): Limits,
        #[case] measured: Measurements,
        #[case] expected: (u32, u32),
    ) {
        let capacity = Approval { max_active, max_retained }.derive(&specification(provider), &measured);
        assert_eq!((capacity.max_active, capacity.max_retained), expected);
        assert!(capacity.max_retained >= capacity.max_active);
    }
}
