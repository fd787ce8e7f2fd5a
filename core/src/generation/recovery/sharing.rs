//! What generations of one host have in common (node-host §3.2 step 8, §3.6-3.8).

use super::discovery::Local;
use crate::deployment::contract::RuntimeMember;
use crate::deployment::specification::Specification;
use crate::units::Generation;

/// A generation of this host, as the scan found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retained<'a> {
    /// Which.
    pub generation: Generation,
    /// Where it stands.
    pub local: Local,
    /// Its specification.
    pub specification: &'a Specification,
    /// The path of its microsandbox store; empty for docker.
    pub store: &'a str,
    /// Whether the provider has its image.
    pub image_available: bool,
}

/// What a generation that is collected leaves to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shared {
    /// Another generation has the same source: the release's files stay.
    pub release: bool,
    /// Another generation of the same store has the same image: the image stays.
    pub image: bool,
    /// Another generation has the same store: what runs there is not ours to judge.
    pub store: bool,
}

/// What the generations that are not dropped have in common with `leaving`.
#[must_use]
pub fn shared(leaving: &Retained<'_>, all: &[Retained<'_>]) -> Shared {
    let others = all.iter().filter(|other| other.generation != leaving.generation && other.local.uses_files());
    others.fold(Shared::default(), |shared, other| {
        let same = |member| leaving.specification.runtime(member) == other.specification.runtime(member);
        let store = leaving.store == other.store;
        Shared {
            release: shared.release || same(RuntimeMember::SourceCommit),
            image: shared.image || (store && same(RuntimeMember::MicrosandboxRef)),
            store: shared.store || store,
        }
    })
}

/// The generation whose provider setup a plan for `wanted` may take over: the first finished one with the same Runtime
/// release and an available image. Nothing pending, collecting or dropped is ever taken over.
#[must_use]
pub fn reusable(wanted: &Specification, all: &[Retained<'_>]) -> Option<Generation> {
    let same = |other: &Retained<'_>| {
        RuntimeMember::ALL.into_iter().all(|member| wanted.runtime(member) == other.specification.runtime(member))
    };
    let finished = all.iter().filter(|other| other.local == Local::Configured && other.image_available);
    finished.filter(|other| same(other)).map(|other| other.generation).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::contract::Provider;

    /// A specification whose source, image and program are made of these digits.
    fn specification(source: &str, image: &str, cpus: u32) -> Specification {
        let hex = |digit: &str| digit.repeat(64);
        let text = format!(
            r#"{{"resources":{{"cpus":{cpus},"memory_mib":512}},"runtime":{{"source_commit":"{}","image_id":"sha256:{}",
            "image_manifest_digest":"sha256:{}","microsandbox_ref":"oac-runtime@sha256:{}","runtime_sha256":"{}",
            "firmware_sha256":"{}"}}}}"#,
            source.repeat(40),
            hex("b"),
            hex("c"),
            hex(image),
            hex("e"),
            hex("f"),
        );
        Specification::parse(Provider::Docker, text.as_bytes()).unwrap()
    }

    fn retained<'a>(number: u64, specification: &'a Specification, store: &'a str) -> Retained<'a> {
        let generation = Generation::new(number).unwrap();
        Retained { generation, local: Local::Configured, specification, store, image_available: true }
    }

    const NOTHING: Shared = Shared { release: false, image: false, store: false };

    /// H 136, H 145. Release, image and store stay as long as one other generation uses them, finished or not.
    #[test]
    fn what_another_generation_uses_is_shared() {
        let (first, same, other) = (specification("a", "d", 1), specification("a", "d", 2), specification("1", "2", 1));
        let leaving = retained(1, &first, "s");
        let with = |others: &[Retained<'_>]| shared(&leaving, &[&[leaving], others].concat());
        assert_eq!(with(&[]), NOTHING, "it shares nothing with itself");
        assert_eq!(with(&[retained(2, &other, "t")]), NOTHING);
        assert_eq!(with(&[retained(2, &other, "s")]), Shared { store: true, ..NOTHING });
        assert_eq!(with(&[retained(2, &same, "t")]), Shared { release: true, ..NOTHING });
        let all = Shared { release: true, image: true, store: true };
        for local in [Local::Configured, Local::Unfinished, Local::Collecting] {
            assert_eq!(with(&[retained(2, &other, "t"), Retained { local, ..retained(3, &same, "s") }]), all);
        }
        for local in [Local::Dropped, Local::Nothing] {
            assert_eq!(with(&[Retained { local, ..retained(2, &same, "s") }]), NOTHING, "{local:?}");
        }
    }

    /// The first finished generation of the same release and with its image lends its setup; sizes do not matter.
    #[test]
    fn only_a_finished_generation_of_the_same_release_is_reused() {
        let (wanted, same, other) =
            (specification("a", "d", 1), specification("a", "d", 2), specification("a", "1", 1));
        let number = |all: &[Retained<'_>]| reusable(&wanted, all).map(Generation::get);
        assert_eq!(number(&[retained(4, &same, ""), retained(3, &same, ""), retained(2, &other, "")]), Some(3));
        for local in [Local::Nothing, Local::Dropped, Local::Collecting, Local::Unfinished] {
            assert_eq!(number(&[Retained { local, ..retained(3, &same, "") }]), None, "{local:?}");
        }
        assert_eq!(number(&[Retained { image_available: false, ..retained(3, &same, "") }]), None);
        assert_eq!(number(&[retained(2, &other, "")]), None);
        assert_eq!(number(&[]), None);
    }
}
