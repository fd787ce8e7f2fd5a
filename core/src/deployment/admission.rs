//! Who may create a sandbox, and where (deployment §5.1, §5.2).

use super::contract::Mode;
use super::node::{Node, rollout};
use super::{Deployment, origin};
use crate::admin::error::{Code, Fault};
use crate::admin::node::NodeState;
use crate::admin::time::Timestamp;
use crate::session::hub::presence::Standing;
use crate::units::{Generation, Id};

/// Why a sandbox is not admitted, as the public API answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A reset is under way.
    #[error("sandboxes are being reset")]
    Reset,
    /// Admission is closed.
    #[error("admission is closed")]
    Closed,
    /// Nothing is selected.
    #[error("no deployment is selected")]
    Unconfigured,
    /// The provider needs a public URL that others reach.
    #[error("the provider needs a public URL that is not a loopback address")]
    Loopback,
    /// Nodes that could take it are still preparing.
    #[error("nodes are being prepared")]
    Preparing,
    /// No node can take it.
    #[error("no node is available")]
    NoNode,
}

impl Refused {
    /// The public answer.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::Reset => Code::AdmissionResetInProgress,
            Self::Closed => Code::EnvironmentUnavailable,
            Self::Unconfigured => Code::ExecutionUnavailable,
            Self::Loopback => Code::SandboxConfigurationError,
            Self::Preparing => Code::SandboxNodesPreparing,
            Self::NoNode => Code::RuntimeNodeUnavailable,
        }
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        refused.code().into()
    }
}

/// What the choice of a node looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which node.
    pub id: Id,
    /// Core's public URL at enrollment.
    pub core_url: String,
    /// Approved sandboxes at once.
    pub max_active: u32,
    /// Approved sandboxes with the suspended ones; as stored.
    pub max_retained: u32,
    /// Sandboxes that count against `max_active` (deployment §3.5).
    pub active: u64,
    /// Sandboxes that count against `max_retained`.
    pub retained: u64,
    /// What its connections recorded, with at least what it said of its pin and of the target.
    pub standing: Standing,
}

/// A node and the generation that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Which node.
    pub node: Id,
    /// Its serving pin at the time of placement; immutable afterwards.
    pub generation: Generation,
}

/// Whether the deployment takes sandboxes at all; `installation` is that of an existing placement.
pub fn check_admission(deployment: &Deployment, installation: Option<Id>) -> Result<(), Refused> {
    let Some(claimed) = deployment.installation else {
        return Ok(());
    };
    if deployment.reset.is_some() {
        return Err(Refused::Reset);
    }
    let undecodable = deployment.selected.is_some() && deployment.specification().is_none();
    let foreign = installation.is_some_and(|installation| installation != claimed);
    if deployment.admission_paused || undecodable || foreign { Err(Refused::Closed) } else { Ok(()) }
}

/// Chooses the node of a new sandbox; `Ok(None)` admits it without one.
///
/// Filter first, prefer second: a full newest node never hides a free older one.
pub fn decide_placement(
    deployment: &Deployment,
    nodes: &[Candidate],
    now: Timestamp,
) -> Result<Option<Placement>, Refused> {
    if deployment.reset.is_some() {
        return Err(Refused::Reset);
    }
    let needs_origin = deployment.provider().is_some_and(|provider| provider.rule().public_origin);
    if needs_origin && origin::is_loopback(&deployment.core_url) {
        return Err(Refused::Loopback);
    }
    let paused = if deployment.admission_paused { Err(Refused::NoNode) } else { Ok(()) };
    match deployment.mode() {
        Some(Mode::Direct) => paused.map(|()| None),
        None if deployment.web_managed => Err(Refused::NoNode),
        None => Ok(None),
        Some(Mode::Nodes) => paused.and_then(|()| choose(deployment, nodes, now)).map(Some),
    }
}

/// A new hosted session: both decisions, in order (deployment §5.1 steps 2–4).
pub fn admit(deployment: &Deployment, nodes: &[Candidate], now: Timestamp) -> Result<Option<Placement>, Refused> {
    if deployment.reset.is_none() && deployment.selected.is_none() {
        return Err(Refused::Unconfigured);
    }
    check_admission(deployment, None)?;
    decide_placement(deployment, nodes, now)
}

fn choose(deployment: &Deployment, nodes: &[Candidate], now: Timestamp) -> Result<Placement, Refused> {
    let epoch = deployment.owner_epoch;
    let online = |node: &Candidate| node.standing.is_online(epoch, now);
    let usable = |node: &&Candidate| has_room(node) && is_reachable(node, deployment) && online(node);
    let serving = nodes.iter().filter(usable).filter(|node| node.standing.is_serving(epoch, now));
    let best = serving.min_by_key(|node| (std::cmp::Reverse(node.standing.pin), node.active, node.id));
    if let Some((node, generation)) = best.and_then(|node| Some((node.id, node.standing.pin?))) {
        return Ok(Placement { node, generation });
    }
    let preparing = |node: &Candidate| rollout(&node.standing, deployment, now).state == NodeState::Preparing;
    Err(if nodes.iter().filter(usable).any(preparing) { Refused::Preparing } else { Refused::NoNode })
}

fn has_room(node: &Candidate) -> bool {
    node.active < u64::from(node.max_active) && node.retained < u64::from(node.max_retained)
}

fn is_reachable(node: &Candidate, deployment: &Deployment) -> bool {
    !deployment.web_managed || node.core_url == deployment.core_url
}

/// What a reservation finds under the session's lock (deployment §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The session was deleted.
    pub deleted: bool,
    /// The environment is `openai_hosted`.
    pub hosted: bool,
    /// The environment failed or expired.
    pub ended: bool,
    /// Installation of an allocation that exists already.
    pub existing: Option<Id>,
    /// The placement and whether it is unreleased; `None` in direct mode.
    pub placement: Option<(Placement, bool)>,
}

/// What to do with a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// An allocation exists: return it, never authorise another creation.
    Replay,
    /// Insert device and allocation with this node and generation.
    Fresh {
        /// `None` in direct mode.
        node: Option<Id>,
        /// The reservation's generation, in direct mode the current one.
        generation: Generation,
    },
}

/// Why a reservation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReserveRefused {
    /// The session was deleted.
    #[error("the session is deleted")]
    Deleted,
    /// The environment does not run here.
    #[error("the environment is not hosted")]
    NotHosted,
    /// The allocation belongs to another installation.
    #[error("the allocation belongs to another installation")]
    Foreign,
    /// The environment failed or expired.
    #[error("the environment has ended")]
    Ended,
    /// Not admitted now.
    #[error(transparent)]
    Admission(#[from] Refused),
}

impl ReserveRefused {
    /// The answer.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::Deleted => Code::NotFoundError,
            Self::NotHosted | Self::Ended => Code::InvalidRequest,
            Self::Foreign => Code::SandboxDeploymentConflict,
            Self::Admission(refused) => refused.code(),
        }
    }
}

/// Decides a reservation. A replay precedes admission, so that retries continue while admission is closed.
///
/// `nodes` holds at least the placement's node.
pub fn reserve(
    reservation: &Reservation,
    installation: Id,
    deployment: &Deployment,
    nodes: &[Node],
    now: Timestamp,
) -> Result<Reserved, ReserveRefused> {
    if reservation.deleted {
        return Err(ReserveRefused::Deleted);
    }
    if !reservation.hosted {
        return Err(ReserveRefused::NotHosted);
    }
    match reservation.existing {
        Some(existing) if existing == installation => return Ok(Reserved::Replay),
        Some(_) => return Err(ReserveRefused::Foreign),
        None => {}
    }
    check_admission(deployment, Some(installation))?;
    if reservation.ended {
        return Err(ReserveRefused::Ended);
    }
    Ok(place(reservation, deployment, nodes, now)?)
}

fn place(
    reservation: &Reservation,
    deployment: &Deployment,
    nodes: &[Node],
    now: Timestamp,
) -> Result<Reserved, Refused> {
    if deployment.mode() == Some(Mode::Direct) {
        let generation = deployment.target().ok_or(Refused::Unconfigured)?;
        return Ok(Reserved::Fresh { node: None, generation });
    }
    let (placement, _) = reservation.placement.filter(|(_, unreleased)| *unreleased).ok_or(Refused::NoNode)?;
    let available = |node: &&Node| node.id == placement.node && node.is_ready(placement.generation, deployment, now);
    nodes.iter().find(available).ok_or(Refused::NoNode)?;
    Ok(Reserved::Fresh { node: Some(placement.node), generation: placement.generation })
}

/// Whether suspended compute may be restored on its own node (deployment §4.4): never on another.
pub fn check_restore(
    placement: Placement,
    deployment: &Deployment,
    nodes: &[Node],
    now: Timestamp,
) -> Result<(), Refused> {
    let able = |node: &&Node| {
        node.id == placement.node
            && node.is_ready(placement.generation, deployment, now)
            && node.counts.active < u64::from(node.max_active)
    };
    nodes.iter().find(able).map(|_| ()).ok_or(Refused::NoNode)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::contract::Provider;
    use super::super::node::{Counts, Measurements};
    use super::super::tests::{deployment, generation, id, resetting};
    use super::*;
    use crate::session::hub::presence::{Change, Connected, Status};
    use crate::units::{Digest, OwnerEpoch};
    use crate::wire::payload::{Observation, ObservedState};

    const NOW: Timestamp = Timestamp(1_000_000);

    /// An online node of the test deployment that serves generation 3 and has room for two.
    pub(crate) fn node(last: u8) -> Node {
        let by = Connected { connection_id: id(9), owner_epoch: OwnerEpoch::new(7).unwrap() };
        let mut standing = Standing::enrolled(id(1));
        standing.apply(Change::Connected(by, NOW));
        standing.apply(Change::Pinned(generation(3)));
        let mut node = Node {
            id: id(last),
            name: "worker".to_owned(),
            core_url: "https://core.example".to_owned(),
            enrollment_id: None,
            created_at: Timestamp(0),
            max_active: 2,
            max_retained: 2,
            standing,
            counts: Counts::default(),
            measured: Measurements::default(),
        };
        say(&mut node, 3, ObservedState::Ready { checkpoint: None });
        node
    }

    /// The node says this of a generation, on its connection.
    pub(crate) fn say(node: &mut Node, of: u64, state: ObservedState<'static>) {
        let by = Connected { connection_id: id(9), owner_epoch: OwnerEpoch::new(7).unwrap() };
        let said = Observation { generation: generation(of), specification_digest: Digest::of(b""), state };
        node.standing.apply(Change::Observed(Status { by, said }));
    }

    /// What the choice looks at of these nodes.
    fn candidates(nodes: &[Node]) -> Vec<Candidate> {
        let candidate = |node: &Node| Candidate {
            id: node.id,
            core_url: node.core_url.clone(),
            max_active: node.max_active,
            max_retained: node.max_retained,
            active: node.counts.active,
            retained: node.counts.retained,
            standing: node.standing.clone(),
        };
        nodes.iter().map(candidate).collect()
    }

    fn with(change: impl FnOnce(&mut Node)) -> Node {
        let mut node = node(20);
        change(&mut node);
        node
    }

    fn docker(change: impl FnOnce(&mut Deployment)) -> Deployment {
        let mut deployment = deployment(Some(Provider::Docker));
        change(&mut deployment);
        deployment
    }

    #[allow(clippy::unnecessary_wraps, reason = "compared with decisions")]
    fn placed(last: u8, of: u64) -> Result<Option<Placement>, Refused> {
        Ok(Some(Placement { node: id(last), generation: generation(of) }))
    }

    /// D 48. Unclaimed admits everything; reset, pause, a bad specification and a foreign installation refuse; no
    /// provider admits.
    #[test]
    fn admission_is_decided_in_order() {
        let unclaimed = Deployment { installation: None, ..resetting(Provider::Docker) };
        assert_eq!(check_admission(&unclaimed, Some(id(5))), Ok(()));
        assert_eq!(check_admission(&resetting(Provider::Docker), None), Err(Refused::Reset));
        assert_eq!(check_admission(&docker(|d| d.admission_paused = true), None), Err(Refused::Closed));
        let broken = docker(|d| d.selected.as_mut().unwrap().specification = None);
        assert_eq!(check_admission(&broken, None), Err(Refused::Closed));
        assert_eq!(check_admission(&docker(|_| {}), Some(id(5))), Err(Refused::Closed));
        assert_eq!(check_admission(&docker(|_| {}), Some(id(1))), Ok(()));
        assert_eq!(check_admission(&deployment(None), None), Ok(()));
    }

    /// D 49. Reset, public origin, direct mode, no provider and pause, before any node is looked at.
    #[test]
    fn placement_asks_the_deployment_first() {
        let place = |deployment: &Deployment| decide_placement(deployment, &candidates(&[node(20)]), NOW);
        assert_eq!(place(&resetting(Provider::Docker)), Err(Refused::Reset));
        let mut direct = deployment(Some(Provider::E2b));
        assert_eq!(place(&direct), Ok(None));
        direct.admission_paused = true;
        assert_eq!(place(&direct), Err(Refused::NoNode));
        direct.core_url = "http://localhost:8080".to_owned();
        assert_eq!(place(&direct), Err(Refused::Loopback));
        assert_eq!(place(&deployment(None)), Err(Refused::NoNode));
        assert_eq!(place(&Deployment { web_managed: false, ..deployment(None) }), Ok(None));
        assert_eq!(place(&docker(|d| d.admission_paused = true)), Err(Refused::NoNode));
        assert_eq!(place(&docker(|_| {})), placed(20, 3));
    }

    /// D 49. A candidate is online, serving, pinned, free and reachable; another address counts only under the Web.
    #[test]
    fn only_a_usable_node_is_a_candidate() {
        type Spoil = fn(&mut Node);
        let deployment = docker(|_| {});
        let place = |node: Node| decide_placement(&deployment, &candidates(&[node]), NOW);
        let refused: [(&str, Spoil); 6] = [
            ("offline", |n| n.standing.connection = None),
            ("not serving", |n| say(n, 3, ObservedState::Failed { diagnostic: None })),
            ("no pin", |n| n.standing.pin = None),
            ("active is full", |n| n.counts.active = 2),
            ("retained is full", |n| n.counts.retained = 2),
            ("another address", |n| n.core_url = "https://old.example".to_owned()),
        ];
        for (why, change) in refused {
            assert_eq!(place(with(change)), Err(Refused::NoNode), "{why}");
        }
        let moved = with(|n| n.core_url = "https://old.example".to_owned());
        assert_eq!(decide_placement(&docker(|d| d.web_managed = false), &candidates(&[moved]), NOW), placed(20, 3));
    }

    /// D 49. The highest pin wins, then the fewest active, then the first identifier; a full newest node hides nobody.
    #[test]
    fn the_best_candidate_is_chosen() {
        let deployment = docker(|_| {});
        let older = |last, active| {
            let mut node = node(last);
            node.standing.pin = Some(generation(2));
            say(&mut node, 2, ObservedState::Ready { checkpoint: None });
            node.counts.active = active;
            node
        };
        let place = |nodes: &[Node]| decide_placement(&deployment, &candidates(nodes), NOW);
        assert_eq!(place(&[older(20, 0), node(21)]), placed(21, 3));
        let full = Node { counts: Counts { active: 2, ..Counts::default() }, ..node(22) };
        assert_eq!(place(&[full, older(21, 1)]), placed(21, 2));
        assert_eq!(place(&[older(22, 1), older(21, 0)]), placed(21, 2));
        assert_eq!(place(&[older(22, 0), older(21, 0)]), placed(21, 2));
    }

    /// D 49. Without a candidate, a usable node that prepares the target turns the answer into "preparing".
    #[test]
    fn a_preparing_node_is_worth_waiting_for() {
        let deployment = docker(|_| {});
        let preparing = |change: fn(&mut Node)| {
            let mut node = with(|n| say(n, 3, ObservedState::Preparing { diagnostic: None }));
            node.standing.pin = Some(generation(2));
            change(&mut node);
            decide_placement(&deployment, &candidates(&[node]), NOW)
        };
        assert_eq!(preparing(|_| {}), Err(Refused::Preparing));
        assert_eq!(preparing(|n| n.counts.active = 2), Err(Refused::NoNode));
        assert_eq!(preparing(|n| n.standing.last_seen_at = None), Err(Refused::NoNode));
        assert_eq!(preparing(|n| n.core_url.push('x')), Err(Refused::NoNode));
    }

    /// D 48. A new session asks for a selection first, and every refusal has its public code.
    #[test]
    fn an_unconfigured_deployment_admits_no_session() {
        assert_eq!(admit(&deployment(None), &[], NOW), Err(Refused::Unconfigured));
        assert_eq!(admit(&docker(|_| {}), &candidates(&[node(20)]), NOW), placed(20, 3));
        let code = |refused: Refused| (refused.code().status(), refused.code().code());
        assert_eq!(code(Refused::Reset), (503, "sandbox_reset_in_progress"));
        assert_eq!(code(Refused::Closed), (409, "environment_unavailable"));
        assert_eq!(code(Refused::Unconfigured), (503, "execution_unavailable"));
        assert_eq!(code(Refused::Loopback), (409, "sandbox_configuration_error"));
        assert_eq!(code(Refused::Preparing), (503, "sandbox_nodes_preparing"));
        assert_eq!(code(Refused::NoNode), (503, "runtime_node_unavailable"));
    }

    fn reservation() -> Reservation {
        let placement = Placement { node: id(20), generation: generation(2) };
        Reservation { deleted: false, hosted: true, ended: false, existing: None, placement: Some((placement, true)) }
    }

    fn serving_two() -> Node {
        with(|n| say(n, 2, ObservedState::Ready { checkpoint: None }))
    }

    /// D 53. An existing allocation replays before admission is read; the other checks come before or after it.
    #[test]
    fn an_existing_allocation_replays_while_admission_is_closed() {
        let closed = resetting(Provider::Docker);
        let decide = |reservation: Reservation| reserve(&reservation, id(1), &closed, &[], NOW);
        assert_eq!(decide(Reservation { existing: Some(id(1)), ..reservation() }), Ok(Reserved::Replay));
        assert_eq!(decide(Reservation { existing: Some(id(2)), ..reservation() }), Err(ReserveRefused::Foreign));
        let deleted = Reservation { deleted: true, existing: Some(id(1)), ..reservation() };
        assert_eq!(decide(deleted).map_err(|refused| refused.code().status()), Err(404));
        let self_hosted = Reservation { hosted: false, existing: Some(id(1)), ..reservation() };
        assert_eq!(decide(self_hosted).map_err(|refused| refused.code().status()), Err(400));
        assert_eq!(decide(reservation()), Err(ReserveRefused::Admission(Refused::Reset)));
    }

    /// D 54. A fresh reservation takes the reserved node and generation, never the current one. D 51. The placement
    /// must be unreleased and its node ready for it.
    #[test]
    fn a_fresh_reservation_takes_what_was_placed() {
        let deployment = docker(|_| {});
        let decide = |reservation: Reservation, nodes: &[Node]| reserve(&reservation, id(1), &deployment, nodes, NOW);
        let fresh = Reserved::Fresh { node: Some(id(20)), generation: generation(2) };
        assert_eq!(decide(reservation(), &[node(21), serving_two()]), Ok(fresh));
        let moved = Node { core_url: "https://old.example".to_owned(), ..serving_two() };
        assert_eq!(decide(reservation(), &[moved]), Ok(fresh));
        let unavailable = Err(ReserveRefused::Admission(Refused::NoNode));
        assert_eq!(decide(reservation(), &[node(20)]), unavailable);
        let released = Reservation { placement: reservation().placement.map(|(at, _)| (at, false)), ..reservation() };
        assert_eq!(decide(released, &[serving_two()]), unavailable);
        let ended = Reservation { ended: true, ..reservation() };
        assert_eq!(decide(ended, &[serving_two()]), Err(ReserveRefused::Ended));
        let paused = docker(|d| d.admission_paused = true);
        let closed = Err(ReserveRefused::Admission(Refused::Closed));
        assert_eq!(reserve(&reservation(), id(1), &paused, &[serving_two()], NOW), closed);
        let direct = super::super::tests::deployment(Some(Provider::E2b));
        let unplaced = Reservation { placement: None, ..reservation() };
        let current = Reserved::Fresh { node: None, generation: generation(3) };
        assert_eq!(reserve(&unplaced, id(1), &direct, &[], NOW), Ok(current));
    }

    /// D 51. A restore needs the original node online, ready for the generation and below its active limit.
    #[test]
    fn a_restore_stays_on_its_node() {
        let deployment = docker(|_| {});
        let at = Placement { node: id(20), generation: generation(2) };
        assert_eq!(check_restore(at, &deployment, &[serving_two()], NOW), Ok(()));
        let full = Node { counts: Counts { active: 2, ..Counts::default() }, ..serving_two() };
        let other = Node { id: id(21), ..serving_two() };
        for nodes in [vec![], vec![full], vec![other], vec![node(20)]] {
            assert_eq!(check_restore(at, &deployment, &nodes, NOW), Err(Refused::NoNode));
        }
    }
}
