//! What things of a sandbox are called inside microsandbox (node-host §8.4, §8.5).

use std::fmt;

use crate::units::{Digest, Id};
use crate::wire::payload::Reference;

/// The names of one allocation. All of them are derived; none is ever read from anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Names {
    stem: String,
}

impl Names {
    /// The names of the sandbox of `reference` in an installation.
    #[must_use]
    pub fn of(installation: Id, reference: Reference) -> Self {
        let Reference { tenant, environment, allocation } = reference;
        let digest = Digest::of(format!("{installation}:{tenant}:{environment}:{allocation}").as_bytes()).to_string();
        Self { stem: format!("oac-{}", &digest[..32]) }
    }

    /// The machine of one compute generation; 0 is the one that was created.
    #[must_use]
    pub fn compute(&self, generation: u64) -> String {
        format!("{}-g{generation}", self.stem)
    }

    /// The group of all snapshots, which is named like the machine that was created.
    #[must_use]
    pub fn group(&self) -> String {
        self.compute(0)
    }

    /// The snapshot that the suspend `operation` takes, inside of its group.
    #[must_use]
    pub fn snapshot(&self, operation: Id) -> SnapshotName {
        SnapshotName { group: self.group(), member: format!("s-{operation}") }
    }

    /// The file that is locked while anybody works with the allocation, in the folder of locks of the store.
    #[must_use]
    pub fn lock(&self) -> String {
        format!("{}.lock", self.compute(0))
    }
}

/// The name of a snapshot: `group:member`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SnapshotName {
    /// The machine of generation 0.
    pub group: String,
    /// `s-` and the operation's identifier.
    pub member: String,
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.group, self.member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(installation: u8, allocation: u8) -> Names {
        let id = |byte| Id::from_random([byte; 16]);
        Names::of(id(installation), Reference { tenant: id(2), environment: id(3), allocation: id(allocation) })
    }

    #[test]
    fn names_are_derived_from_installation_reference_and_generation() {
        let one = names(1, 4);
        assert_eq!(one.compute(0).len(), "oac-".len() + 32 + "-g0".len());
        assert_eq!(one.compute(7), one.compute(0).replace("-g0", "-g7"));
        assert_eq!(one.lock(), format!("{}.lock", one.compute(0)));
        let operation = Id::from_random([9; 16]);
        assert_eq!(one.snapshot(operation).to_string(), format!("{}:s-{operation}", one.compute(0)));
        assert_eq!(names(1, 4), one);
        assert!(names(5, 4) != one && names(1, 5) != one);
    }
}
