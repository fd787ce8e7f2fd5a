//! A node as Core sees it: forms of what it submits, presence, and the rollout of the target (deployment §0, §1.1.2,
//! §1.7, §4.5, §8.1).

use super::Deployment;
use crate::admin::node::{Class, NodeRollout, NodeState};
use crate::admin::time::Timestamp;
use crate::limits;
use crate::session::hub::presence::Standing;
use crate::units::{Generation, Id};
use crate::wire::payload::ObservedState;

/// A node row with its counts and observations (deployment §3.3, §3.5), as one transaction read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Chosen by the node.
    pub id: Id,
    /// Chosen by the administrator.
    pub name: String,
    /// Core's public URL at enrollment.
    pub core_url: String,
    /// Handle of the enrollment command.
    pub enrollment_id: Option<Id>,
    /// When it enrolled.
    pub created_at: Timestamp,
    /// Approved sandboxes at once.
    pub max_active: u32,
    /// Approved sandboxes with the suspended ones; as stored.
    pub max_retained: u32,
    /// What its connections recorded.
    pub standing: Standing,
    /// What it holds.
    pub counts: Counts,
    /// What its last report measured.
    pub measured: Measurements,
}

/// Sandboxes of a node (deployment §3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names are those of deployment §3.5")]
pub struct Counts {
    pub running: u64,
    pub snapshots: u64,
    pub active: u64,
    pub reserved: u64,
    pub retained: u64,
    pub cleanup_pending: u64,
}

/// Host measurements; `None` is unknown (deployment §8.1).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[allow(missing_docs, reason = "the names are those of wire §2.9")]
pub struct Measurements {
    pub cpu_count: Option<u64>,
    pub effective_cpu_cores: Option<f64>,
    pub cpu_utilization: Option<f64>,
    pub total_memory_bytes: Option<u64>,
    pub available_memory_bytes: Option<u64>,
    pub available_disk_bytes: Option<u64>,
    pub observed_at: Option<Timestamp>,
}

impl Measurements {
    /// Whether every value is within the bounds of a health report (deployment §8.1).
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let safe = |value: Option<u64>| value.is_none_or(|value| value <= limits::SAFE_INTEGER_MAX);
        let cores = self.effective_cpu_cores.is_none_or(|cores| cores.is_finite() && cores > 0.0);
        let utilization = self.cpu_utilization.is_none_or(|share| (0.0..=1.0).contains(&share));
        let total = self
            .total_memory_bytes
            .is_none_or(|total| total > 0 && self.available_memory_bytes.is_none_or(|available| available <= total));
        let integers =
            [self.cpu_count, self.total_memory_bytes, self.available_memory_bytes, self.available_disk_bytes];
        cores && utilization && total && integers.into_iter().all(safe)
    }
}

impl Node {
    /// See [`Standing::is_online`].
    #[must_use]
    pub fn is_online(&self, deployment: &Deployment, now: Timestamp) -> bool {
        self.standing.is_online(deployment.owner_epoch, now)
    }

    /// The node can carry out a creation of this generation now (deployment §5.3).
    #[must_use]
    pub fn is_ready(&self, generation: Generation, deployment: &Deployment, now: Timestamp) -> bool {
        self.standing.is_ready(generation, deployment.owner_epoch, now)
    }

    /// The serving pin is ready: `provider_ready` of the Node view.
    #[must_use]
    pub fn is_serving(&self, deployment: &Deployment, now: Timestamp) -> bool {
        self.standing.is_serving(deployment.owner_epoch, now)
    }

    /// See [`rollout`].
    #[must_use]
    pub fn rollout(&self, deployment: &Deployment, now: Timestamp) -> NodeRollout {
        rollout(&self.standing, deployment, now)
    }
}

/// State of the current target at a node (deployment §1.1.2).
#[must_use]
pub fn rollout(standing: &Standing, deployment: &Deployment, now: Timestamp) -> NodeRollout {
    let said = |target| standing.status(target, deployment.owner_epoch, now);
    let (state, diagnostic) = match deployment.target().and_then(said).map(|said| &said.state) {
        None => (NodeState::Unknown, None),
        Some(ObservedState::Ready { .. }) => (NodeState::Ready, None),
        Some(ObservedState::Preparing { .. }) => (NodeState::Preparing, None),
        Some(ObservedState::Failed { diagnostic }) => (NodeState::Failed, *diagnostic),
    };
    NodeRollout { state, ready_generation: standing.pin, diagnostic: diagnostic.map(Class) }
}

/// Whether a node's name has 1 to 128 bytes, is not blank and holds no NUL, CR or LF (deployment §0).
#[must_use]
pub fn valid_name(name: &[u8]) -> bool {
    (1..=limits::NODE_NAME_MAX_BYTES).contains(&name.len())
        && !name.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
        && !String::from_utf8_lossy(name).trim().is_empty()
}

/// Whether a node credential has 32 to 256 bytes without space, TAB, CR or LF (deployment §0).
#[must_use]
pub fn valid_credential(credential: &str) -> bool {
    limits::NODE_CREDENTIAL_BYTES.contains(&credential.len())
        && !credential.bytes().any(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

/// Reads a UUID in any letter case, hyphenated, not nil (decision 37).
#[must_use]
pub fn parse_id(text: &str) -> Option<Id> {
    Id::parse(&text.to_ascii_lowercase()).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::admission::tests::say;
    use super::super::contract::Provider;
    use super::super::tests::{deployment, id};
    use super::*;
    use crate::units::{Digest, OwnerEpoch};
    use crate::wire::payload::Diagnostic;

    pub(crate) const NOW: Timestamp = Timestamp(1_000_000);

    /// D 77. Name rules: byte length, blank, CR, LF, NUL; TAB and bytes that are no UTF-8 pass.
    #[rstest]
    #[case(b"a", true)]
    #[case(b" a\tb ", true)]
    #[case(b"\xff\xfe", true)]
    #[case(&[b'x'; 128], true)]
    #[case(&[b'x'; 129], false)]
    #[case(b"", false)]
    #[case(b" \t ", false)]
    #[case("\u{2003}".as_bytes(), false)]
    #[case(b"a\n", false)]
    #[case(b"a\rb", false)]
    #[case(b"a\0", false)]
    fn a_name_is_judged_by_its_bytes(#[case] name: &[u8], #[case] valid: bool) {
        assert_eq!(valid_name(name), valid);
        assert!(!valid_name("é".repeat(65).as_bytes()), "130 bytes in 65 characters");
    }

    /// D 79. A UUID is canonicalised; nil and other forms are refused.
    #[test]
    fn an_identifier_is_canonicalised() {
        let canonical = "94be54a1-138c-4f30-bc87-b13686272dbe";
        assert_eq!(parse_id(&canonical.to_uppercase()), Id::parse(canonical).ok());
        for text in [
            "",
            "00000000-0000-0000-0000-000000000000",
            "94be54a1138c4f30bc87b13686272dbe",
            "{94be54a1-138c-4f30-bc87-b13686272dbe}",
            " 94be54a1-138c-4f30-bc87-b13686272dbe",
        ] {
            assert_eq!(parse_id(text), None, "{text}");
        }
    }

    /// D 79. Credential, digest and generation forms.
    #[test]
    fn forms_of_credentials_digests_and_generations() {
        for (credential, valid) in [
            ("c".repeat(31), false),
            ("c".repeat(32), true),
            ("c".repeat(256), true),
            ("c".repeat(257), false),
            (format!("{} ", "c".repeat(40)), false),
            (format!("{}\n", "c".repeat(40)), false),
        ] {
            assert_eq!(valid_credential(&credential), valid, "{credential:?}");
        }
        assert!(Digest::parse(&"a".repeat(64)).is_ok());
        assert!(Digest::parse(&"A".repeat(64)).is_err() && Digest::parse(&"a".repeat(63)).is_err());
        assert!(Generation::new(0).is_none() && Generation::new(1 << 63).is_none());
    }

    /// D 80. Host bounds; an unknown diagnostic is `provider_unavailable`, an empty one is none.
    #[test]
    fn measurements_and_diagnostics_are_normalised() {
        let valid = |change: fn(&mut Measurements)| {
            let mut measured = Measurements::default();
            change(&mut measured);
            measured.is_valid()
        };
        assert!(valid(|_| {}));
        assert!(valid(|m| (m.cpu_utilization, m.effective_cpu_cores) = (Some(1.0), Some(0.5))));
        assert!(valid(|m| (m.total_memory_bytes, m.available_memory_bytes) = (Some(5), Some(5))));
        assert!(valid(|m| m.available_disk_bytes = Some(limits::SAFE_INTEGER_MAX)));
        assert!(!valid(|m| m.available_disk_bytes = Some(limits::SAFE_INTEGER_MAX + 1)));
        assert!(!valid(|m| m.cpu_utilization = Some(1.01)));
        assert!(!valid(|m| m.cpu_utilization = Some(f64::NAN)));
        assert!(!valid(|m| m.effective_cpu_cores = Some(0.0)));
        assert!(!valid(|m| m.effective_cpu_cores = Some(f64::INFINITY)));
        assert!(!valid(|m| m.total_memory_bytes = Some(0)));
        assert!(!valid(|m| (m.total_memory_bytes, m.available_memory_bytes) = (Some(5), Some(6))));
        assert_eq!(Class::of(""), None);
        assert_eq!(Class::of("kvm_unavailable"), Some(Class(Diagnostic::KvmUnavailable)));
        assert_eq!(Class::of("something_new"), Some(Class(Diagnostic::ProviderUnavailable)));
    }

    /// D 81. Offline, foreign epoch, foreign connection and silence are unknown; else what the node said of the target.
    #[test]
    fn rollout_is_what_the_node_says_of_the_target_now() {
        let deployment = deployment(Some(Provider::Docker));
        let mut node = super::super::admission::tests::node(2);
        let rollout = |node: &Node| node.rollout(&deployment, NOW);
        assert_eq!(rollout(&node).state, NodeState::Ready);
        say(&mut node, 2, ObservedState::Ready { checkpoint: None });
        say(&mut node, 3, ObservedState::Preparing { diagnostic: Some(Diagnostic::DockerUnavailable) });
        assert_eq!((rollout(&node).state, rollout(&node).diagnostic), (NodeState::Preparing, None));
        say(&mut node, 3, ObservedState::Failed { diagnostic: Some(Diagnostic::DockerUnavailable) });
        let failed = rollout(&node);
        assert_eq!((failed.state, failed.diagnostic), (NodeState::Failed, Some(Class(Diagnostic::DockerUnavailable))));
        let unknown = |change: fn(&mut Standing)| {
            let mut node = node.clone();
            change(&mut node.standing);
            assert_eq!(rollout(&node).state, NodeState::Unknown);
        };
        unknown(|standing| standing.connection = None);
        unknown(|standing| standing.connection = Some(id(8)));
        unknown(|standing| standing.epoch = OwnerEpoch::new(6));
        unknown(|standing| standing.last_seen_at = None);
        unknown(|standing| standing.statuses.clear());
        unknown(|standing| standing.last_seen_at = Some(Timestamp(NOW.0 - 45_000)));
    }
}
