//! Names and ownership labels (node-host §7.2).

use std::collections::HashMap;

use palisade_core::units::{Digest, Id};
use palisade_core::wire::payload::Reference;

/// The native names of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) container: String,
    pub(crate) home: String,
    pub(crate) environment: String,
}

impl Names {
    pub(crate) fn of(installation: Id, reference: Reference) -> Self {
        let Reference { tenant, environment, allocation } = reference;
        let digest = Digest::of(format!("{installation}:{tenant}:{environment}:{allocation}").as_bytes()).to_string();
        let container = format!("oac-runtime-{}", &digest[..32]);
        Self { home: format!("{container}-home"), environment: format!("{container}-environment"), container }
    }

    pub(crate) fn volumes(&self) -> [&str; 2] {
        [&self.home, &self.environment]
    }
}

/// The labels that say whose a container or a volume is.
pub(crate) fn labels(installation: Id, reference: Reference) -> HashMap<String, String> {
    ownership(installation, reference).map(|(name, id)| (name.to_owned(), id.to_string())).into()
}

/// Whether all four labels name this sandbox.
pub(crate) fn owns(installation: Id, reference: Reference, labels: Option<&HashMap<String, String>>) -> bool {
    labels.is_some_and(|labels| {
        ownership(installation, reference)
            .iter()
            .all(|(name, id)| labels.get(*name).is_some_and(|label| *label == id.to_string()))
    })
}

const fn ownership(installation: Id, reference: Reference) -> [(&'static str, Id); 4] {
    [
        ("io.oac.installation", installation),
        ("io.oac.tenant", reference.tenant),
        ("io.oac.environment", reference.environment),
        ("io.oac.allocation", reference.allocation),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_provider::testing::reference;

    #[test]
    fn names_are_derived_from_installation_and_reference() {
        let names = Names::of(Id::from_random([1; 16]), reference(1));
        assert_eq!(names.container.len(), "oac-runtime-".len() + 32);
        assert_eq!(names.home, format!("{}-home", names.container));
        assert_ne!(names, Names::of(Id::from_random([2; 16]), reference(1)));
        assert_ne!(names, Names::of(Id::from_random([1; 16]), reference(2)));
    }

    #[test]
    fn one_differing_label_is_foreign() {
        let installation = Id::from_random([1; 16]);
        let good = labels(installation, reference(1));
        assert!(owns(installation, reference(1), Some(&good)));
        assert!(!owns(installation, reference(1), None));
        for name in good.keys() {
            let mut other = good.clone();
            other.insert(name.clone(), Id::from_random([7; 16]).to_string());
            assert!(!owns(installation, reference(1), Some(&other)), "{name}");
            other.remove(name);
            assert!(!owns(installation, reference(1), Some(&other)), "{name}");
        }
    }
}
