//! Archiving a session and ending its resources (deployment §1.14).

use crate::admin::archive::ArchiveState;
use crate::admin::error::{Code, Fault};
use crate::deployment::Deployment;
use crate::units::Id;

/// A session's environment and resources, read under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// It has an environment of type `openai_hosted`.
    pub hosted: bool,
    /// The environment failed or expired.
    pub ended: bool,
    /// Its allocation: which installation owns it, and how far it is.
    pub allocation: Option<(Id, Stage)>,
}

/// How far an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Being created or running.
    Live,
    /// Being cleaned up.
    CleanupPending,
    /// Gone.
    Released,
}

/// What an archive does in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Archiving {
    /// The environment becomes `expired`, and work is cancelled.
    pub expire: bool,
    /// What happens to the resources.
    pub ending: Ending,
}

/// What happens to the resources of a session that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nothing: they are ending or gone.
    Keep,
    /// The allocation becomes `cleanup_pending` and its device is revoked.
    Cleanup,
    /// There is no allocation: the placement is released.
    ReleasePlacement,
}

impl Resources {
    /// What ends when the session is archived or deleted.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        match self.allocation {
            Some((_, Stage::Live)) => Ending::Cleanup,
            Some((_, Stage::CleanupPending | Stage::Released)) => Ending::Keep,
            None => Ending::ReleasePlacement,
        }
    }

    /// The state that `GET` answers.
    #[must_use]
    pub const fn state(&self) -> ArchiveState {
        match (self.allocation, self.ended) {
            (Some((_, Stage::Released)), _) | (None, true) => ArchiveState::Released,
            (Some((_, Stage::CleanupPending)), _) | (Some(_), true) => ArchiveState::CleanupPending,
            (Some((_, Stage::Live)) | None, false) => ArchiveState::Active,
        }
    }
}

/// The checks of an archive after the session was found, in order.
pub fn archive(resources: &Resources, expected_generation: u64, deployment: &Deployment) -> Result<Archiving, Fault> {
    check_deployment(expected_generation, deployment)?;
    if !resources.hosted {
        return Err(Code::InvalidRequest.into());
    }
    match resources.allocation {
        Some((owner, Stage::Live | Stage::CleanupPending)) if Some(owner) != deployment.installation => {
            Err(Code::SandboxDeploymentConflict.into())
        }
        Some(_) | None => Ok(Archiving { expire: !resources.ended, ending: resources.ending() }),
    }
}

fn check_deployment(expected_generation: u64, deployment: &Deployment) -> Result<(), Fault> {
    if expected_generation != deployment.generation {
        let current = deployment.generation;
        return Err(Fault::from(Code::SandboxGenerationStale).detail("current_generation", current));
    }
    if deployment.installation.is_none() {
        return Err(Code::SandboxDeploymentConflict.into());
    }
    if deployment.selected.is_none() { Err(Code::SandboxNotConfigured.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::contract::Provider;
    use crate::deployment::tests::{deployment, id, resetting};

    fn resources(allocation: Option<(Id, Stage)>) -> Resources {
        Resources { hosted: true, ended: false, allocation }
    }

    fn refused(resources: Resources, generation: u64, deployment: &Deployment) -> Option<Code> {
        archive(&resources, generation, deployment).err().map(|fault| fault.code)
    }

    /// D 66. Stale before everything, no installation is a conflict, no provider is not configured.
    #[test]
    fn the_deployment_is_checked_in_order() {
        let configured = deployment(Some(Provider::Docker));
        let bare = Deployment { installation: None, ..deployment(None) };
        assert_eq!(refused(resources(None), 2, &bare), Some(Code::SandboxGenerationStale));
        assert_eq!(refused(resources(None), 3, &bare), Some(Code::SandboxDeploymentConflict));
        assert_eq!(refused(resources(None), 3, &deployment(None)), Some(Code::SandboxNotConfigured));
        assert_eq!(refused(resources(None), 3, &configured), None);
        assert_eq!(refused(resources(None), 3, &resetting(Provider::Docker)), None);
    }

    /// D 68. Live, unallocated, released, ended, foreign and self-hosted sessions.
    #[test]
    fn each_kind_of_session_is_archived_in_its_way() {
        let deployment = deployment(Some(Provider::Docker));
        let decide = |resources: Resources| archive(&resources, 3, &deployment).ok();
        let archiving = |expire, ending| Some(Archiving { expire, ending });
        assert_eq!(decide(resources(Some((id(1), Stage::Live)))), archiving(true, Ending::Cleanup));
        assert_eq!(decide(resources(None)), archiving(true, Ending::ReleasePlacement));
        assert_eq!(decide(resources(Some((id(1), Stage::Released)))), archiving(true, Ending::Keep));
        let ended = Resources { ended: true, ..resources(Some((id(1), Stage::CleanupPending))) };
        assert_eq!(decide(ended), archiving(false, Ending::Keep));
        let foreign = resources(Some((id(2), Stage::Live)));
        assert_eq!(refused(foreign, 3, &deployment), Some(Code::SandboxDeploymentConflict));
        let self_hosted = Resources { hosted: false, ..resources(None) };
        assert_eq!(refused(self_hosted, 3, &deployment), Some(Code::InvalidRequest));
    }

    /// D 68. The state that is answered.
    #[test]
    fn the_state_follows_the_resources() {
        let state =
            |ended, stage: Option<Stage>| Resources { ended, ..resources(stage.map(|stage| (id(1), stage))) }.state();
        assert_eq!(state(false, None), ArchiveState::Active);
        assert_eq!(state(false, Some(Stage::Live)), ArchiveState::Active);
        assert_eq!(state(true, Some(Stage::Live)), ArchiveState::CleanupPending);
        assert_eq!(state(true, Some(Stage::CleanupPending)), ArchiveState::CleanupPending);
        assert_eq!(state(true, Some(Stage::Released)), ArchiveState::Released);
        assert_eq!(state(true, None), ArchiveState::Released);
    }
}
