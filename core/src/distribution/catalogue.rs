//! Which files the nodes of each provider need (node-host §5.1). Building, serving and downloading read this one table.

use std::collections::BTreeMap;

use crate::deployment::contract::Provider;

/// What a file is for, and which release it comes from (node-host §5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The node program, of the release that a console offers now.
    Node,
    /// A program that a provider runs, of the selected Runtime release.
    Runtime,
    /// A file of settings, of the selected Runtime release; as small as metadata, and fetched like it.
    Policy,
    /// The Runtime image, of the selected Runtime release.
    Image,
}

/// One file that a provider needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Declaration<'a> {
    /// Where it stands on a node, below the root of its release.
    pub path: &'a str,
    /// The end of its published name.
    pub suffix: &'a str,
    /// What it is for.
    pub role: Role,
}

/// The compressed Runtime image.
pub const IMAGE: &str = "images/runtime.tar.gz";
/// The uncompressed Runtime image, which no release publishes.
pub const IMAGE_UNPACKED: &str = "images/runtime.tar";
/// The node program.
pub const NODE: &str = "native/bin/oac-node";
/// The system-call filter of sandboxes.
pub const SECCOMP: &str = "runtime/seccomp.json";
/// The executable of microsandbox.
pub const MSB: &str = "native/microsandbox/msb";
/// The firmware of microsandbox.
pub const FIRMWARE: &str = "native/microsandbox/libkrunfw.so.5.6.1";

const SHARED: [Declaration<'static>; 3] = [
    Declaration { path: NODE, suffix: "sandbox-node", role: Role::Node },
    Declaration { path: SECCOMP, suffix: "seccomp.json", role: Role::Policy },
    Declaration { path: IMAGE, suffix: "runtime.tar.gz", role: Role::Image },
];
const MICROSANDBOX: [Declaration<'static>; 6] = [
    SHARED[0],
    SHARED[1],
    SHARED[2],
    Declaration { path: "native/bin/oac-microsandbox-provider", suffix: "microsandbox-provider", role: Role::Runtime },
    Declaration { path: MSB, suffix: "msb", role: Role::Runtime },
    Declaration { path: FIRMWARE, suffix: "libkrunfw.so.5.6.1", role: Role::Runtime },
];

/// The files of every provider that runs on nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue<'a>(BTreeMap<&'a str, &'a [Declaration<'a>]>);

/// Why a catalogue was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCatalogue {
    /// Two registrations of one name.
    #[error("provider {0} is registered twice")]
    Provider(String),
    /// A path that is not clean and relative.
    #[error("{0:?} is no path of an artifact: expected letters, digits and ._- between single slashes")]
    Path(String),
    /// A suffix that could leave its folder.
    #[error("{0:?} is no suffix of an artifact: expected letters, digits and ._-")]
    Suffix(String),
    /// A provider with no node program, or two.
    #[error("provider {0} must declare exactly one node program")]
    NodeProgram(String),
    /// One path with two suffixes or roles, or one suffix with two paths, in one provider or across them.
    #[error("{0} and {1} are declared differently in two places")]
    Conflict(String, String),
}

impl Catalogue<'static> {
    /// What this version knows.
    #[must_use]
    pub fn bundled() -> Self {
        let registered = [(Provider::Docker.name(), &SHARED[..]), (Provider::Microsandbox.name(), &MICROSANDBOX[..])];
        Self::new(&registered).expect("the tables above are checked by a test")
    }
}

impl<'a> Catalogue<'a> {
    /// Checks the declarations of all providers together.
    pub fn new(registered: &[(&'a str, &'a [Declaration<'a>])]) -> Result<Self, InvalidCatalogue> {
        let mut providers = BTreeMap::new();
        for (name, declared) in registered {
            if providers.insert(*name, *declared).is_some() {
                return Err(InvalidCatalogue::Provider((*name).to_owned()));
            }
            check(name, declared)?;
        }
        let all: Vec<_> = providers.values().copied().flatten().collect();
        for (at, one) in all.iter().enumerate() {
            let differs =
                |other: &&&Declaration<'_>| one != *other && (one.path == other.path || one.suffix == other.suffix);
            if let Some(other) = all[..at].iter().find(differs) {
                return Err(InvalidCatalogue::Conflict(other.path.to_owned(), one.path.to_owned()));
            }
        }
        Ok(Self(providers))
    }

    /// The names of all providers, sorted.
    pub fn providers(&self) -> impl Iterator<Item = &'a str> {
        self.0.keys().copied()
    }

    /// What a provider's nodes need; `None` for a provider that runs on no node.
    #[must_use]
    pub fn of(&self, provider: &str) -> Option<&'a [Declaration<'a>]> {
        self.0.get(provider).copied()
    }

    /// Every file once, by path.
    #[must_use]
    pub fn all(&self) -> BTreeMap<&'a str, Declaration<'a>> {
        self.0.values().copied().flatten().map(|declared| (declared.path, *declared)).collect()
    }
}

fn check(provider: &str, declared: &[Declaration<'_>]) -> Result<(), InvalidCatalogue> {
    for (at, one) in declared.iter().enumerate() {
        if !one.path.split('/').all(is_name) {
            return Err(InvalidCatalogue::Path(one.path.to_owned()));
        }
        if !is_name(one.suffix) {
            return Err(InvalidCatalogue::Suffix(one.suffix.to_owned()));
        }
        if let Some(other) = declared[..at].iter().find(|other| other.path == one.path) {
            return Err(InvalidCatalogue::Conflict(other.path.to_owned(), one.path.to_owned()));
        }
    }
    let programs = declared.iter().filter(|declared| declared.role == Role::Node).count();
    if programs == 1 { Ok(()) } else { Err(InvalidCatalogue::NodeProgram(provider.to_owned())) }
}

/// `[a-zA-Z0-9][a-zA-Z0-9._-]*`: no name of this form leaves its folder or hides in it.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::contract::Mode;

    const PROGRAM: Declaration<'static> = Declaration { path: "bin/a", suffix: "a", role: Role::Node };

    fn with(second: Declaration<'static>) -> Result<(), InvalidCatalogue> {
        Catalogue::new(&[("one", &[PROGRAM, second])]).map(drop)
    }

    /// H 28, H 63, H 64. The catalogue has exactly the providers that run on nodes, and exactly their files.
    #[test]
    fn the_catalogue_names_the_providers_that_run_on_nodes() {
        let catalogue = Catalogue::bundled();
        let on_nodes = Provider::ALL.into_iter().filter(|provider| provider.rule().mode == Mode::Nodes);
        assert!(catalogue.providers().eq(on_nodes.map(Provider::name)));
        assert_eq!((catalogue.of("e2b"), catalogue.of("podman")), (None, None));
        let paths = |name| catalogue.of(name).unwrap().iter().map(|declared| declared.path).collect::<Vec<_>>();
        assert_eq!(paths("docker"), [NODE, SECCOMP, IMAGE]);
        assert_eq!(paths("microsandbox").len(), 6);
        assert_eq!(catalogue.all().len(), 6);
    }

    /// H 29. What could leave its folder, is declared twice or has no program is refused.
    #[test]
    fn an_invalid_declaration_is_refused() {
        for path in ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.b", ".a", "a b", "a\\b", "a\n"] {
            let refused = with(Declaration { path, suffix: "b", role: Role::Runtime });
            assert_eq!(refused, Err(InvalidCatalogue::Path(path.to_owned())));
        }
        for suffix in ["", "a/b", "..", ".a", "-a", "a b"] {
            let refused = with(Declaration { path: "b", suffix, role: Role::Runtime });
            assert_eq!(refused, Err(InvalidCatalogue::Suffix(suffix.to_owned())));
        }
        let second_program = with(Declaration { path: "b", suffix: "b", role: Role::Node });
        assert_eq!(second_program, Err(InvalidCatalogue::NodeProgram("one".to_owned())));
        let none = Catalogue::new(&[("one", &[])]);
        assert_eq!(none, Err(InvalidCatalogue::NodeProgram("one".to_owned())));
        assert!(matches!(with(PROGRAM), Err(InvalidCatalogue::Conflict(_, _))));
        let twice = Catalogue::new(&[("one", &[PROGRAM]), ("one", &[PROGRAM])]);
        assert_eq!(twice, Err(InvalidCatalogue::Provider("one".to_owned())));
    }

    /// H 29. Another provider is one more row.
    #[test]
    fn another_provider_is_projected_like_the_others() {
        let own = [PROGRAM, Declaration { path: "bin/hypervisor", suffix: "hypervisor", role: Role::Runtime }];
        let catalogue = Catalogue::new(&[("two", &own), ("one", &[PROGRAM])]).unwrap();
        assert!(catalogue.providers().eq(["one", "two"]));
        assert_eq!(catalogue.of("two"), Some(&own[..]));
        assert!(catalogue.all().into_keys().eq(["bin/a", "bin/hypervisor"]));
    }

    /// H 30. One path has one name and one role, whichever provider needs it.
    #[test]
    fn two_providers_cannot_declare_one_file_differently() {
        for other in [Declaration { suffix: "b", ..PROGRAM }, Declaration { path: "bin/b", ..PROGRAM }] {
            let refused = Catalogue::new(&[("one", &[PROGRAM]), ("two", std::slice::from_ref(&other))]);
            assert!(matches!(refused, Err(InvalidCatalogue::Conflict(_, _))), "{other:?}");
        }
        assert!(Catalogue::new(&[("one", &[PROGRAM]), ("two", &[PROGRAM])]).is_ok());
    }
}
