use palisade_core::deployment::contract::Provider as Kind;
use palisade_core::generation::recovery::{Cause, Local, Object, Refusal};
use rstest::rstest;

use super::*;
use crate::generations::testing::{Site, content, target};
use palisade_core::distribution::catalogue::{MSB, SECCOMP};

const BOTH: [Kind; 2] = [Kind::Docker, Kind::Microsandbox];

/// The third release folder of a site.
fn release(site: &Site) -> PathBuf {
    site.layout.release(&"1".repeat(40))
}

/// H 147. A new release is planned, fetched, imported and published, for either provider; what was enrolled keeps serving,
/// and a second run asks Core and does nothing.
#[rstest]
fn a_new_release_is_prepared(#[values(Kind::Docker, Kind::Microsandbox)] kind: Kind) {
    let site = Site::new(kind);
    let before = site.everything();
    let asked = site.prepare(5).unwrap();
    assert_eq!(site.local(5), Local::Configured);
    assert!(site.admits(5) && site.admits(3));
    assert!(asked.contains(&"import".to_owned()), "{asked:?}");
    let after = site.everything();
    assert!(before.iter().all(|(path, file)| after[path].2 == file.2), "nothing that was there changed");
    assert!(!release(&site).join(IMAGE).exists(), "the archive has served");
    assert!(release(&site).join(SECCOMP).exists() && release(&site).join(MANIFEST).exists());
    assert_eq!(site.prepare(5).unwrap(), ["core 5"]);
    assert_eq!(site.everything().keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    if kind == Kind::Docker {
        let last = site.records().of(target(kind, 5).generation).configuration.unwrap();
        let image = Setup::of(&site.layout, &site.base(), &last).unwrap().image;
        let specification = &last.envelope.specification;
        let expected = palisade_core::deployment::contract::RuntimeMember::ImageManifestDigest;
        assert_eq!(image.as_deref(), specification.runtime(expected), "the engine's own name is published");
    }
}

/// Node-host §3.2 step 8. Other sizes of the same release need no release server and no import.
#[rstest]
fn the_same_release_is_taken_over(#[values(Kind::Docker, Kind::Microsandbox)] kind: Kind) {
    let site = Site::new(kind);
    site.world().put("fails-releases");
    let asked = site.prepare(4).unwrap();
    assert_eq!(asked, ["core 4"]);
    assert!(site.admits(4) && site.admits(3));
    assert!(!site.layout.releases().exists());
}

/// H 148. A repair brings only what is missing, publishes the enrolled configuration unchanged, and keeps every inode.
#[rstest]
fn a_repair_replaces_only_what_is_missing(#[values(Kind::Docker, Kind::Microsandbox)] kind: Kind) {
    let site = Site::new(kind);
    let path = if kind == Kind::Docker { SECCOMP } else { MSB };
    let before = site.everything();
    std::fs::remove_file(site.root().join(path)).unwrap();
    let asked = site.prepare(3).unwrap();
    let fetched: Vec<_> = asked.iter().filter(|asked| asked.starts_with("fetch")).collect();
    assert_eq!(fetched, [&format!("fetch {path}")]);
    let after = site.everything();
    for (path, file) in &before {
        let kept = path.ends_with(IMAGE) || path.ends_with(if kind == Kind::Docker { SECCOMP } else { MSB });
        assert!(kept || after[path].1 == file.1, "{} kept its inode", path.display());
    }
    let published = site.records().of(target(kind, 3).generation).configuration.unwrap();
    assert_eq!(published.to_bytes(), site.base().to_bytes());
    assert!(site.admits(3));
}

/// H 149. A sibling of other content is refused with 65 before the missing file is fetched, each time.
#[rstest]
fn a_conflicting_sibling_comes_first(#[values(Kind::Docker, Kind::Microsandbox)] kind: Kind) {
    let site = Site::new(kind);
    let (sibling, missing) = if kind == Kind::Docker { (IMAGE, SECCOMP) } else { (SECCOMP, MSB) };
    crate::testing::write(site.root().join(sibling), "corrupt");
    std::fs::remove_file(site.root().join(missing)).unwrap();
    for _ in 0..2 {
        let failure = site.prepare(3).unwrap_err();
        assert!(
            matches!(failure, Failure::Refused(Refusal { object: Object::Release, cause: Cause::Conflict })),
            "{failure}"
        );
        assert_eq!(failure.exit_code(), 65);
        assert!(!site.root().join(missing).exists());
        assert_eq!(std::fs::read(site.root().join(sibling)).unwrap(), b"corrupt");
    }
}

/// H 149. A program that is not the release's is never run, not even to ask what it has.
#[test]
fn an_unverified_program_is_never_run() {
    let site = Site::new(Kind::Microsandbox);
    let (program, marker) = (site.root().join(MSB), site.attic().join("ran"));
    crate::testing::write(&program, format!("#!/bin/sh\ntouch {}\n", marker.display()));
    let failure = site.prepare(3).unwrap_err();
    assert_eq!(failure.exit_code(), 65, "{failure}");
    // What cannot be asked has nothing to share, so that this one brings everything for itself.
    let asked = site.prepare(4).unwrap();
    assert!(asked.contains(&format!("fetch {MSB}")), "{asked:?}");
    assert!(!marker.exists());
}

/// H 152. What fails decides the exit status; a release that cannot be had leaves nothing but the lease.
#[test]
fn only_a_transfer_ends_with_65() {
    for kind in BOTH {
        let site = Site::new(kind);
        site.world().put("fails-releases");
        let failure = site.prepare(5).unwrap_err();
        assert!(matches!(failure, Failure::Download(_)), "{failure}");
        assert_eq!(failure.exit_code(), 65);
        assert_eq!(site.local(5), Local::Nothing);
        assert!(!site.layout.releases().exists());
        for (thing, expected) in [("core", 1), ("engine", 1)] {
            let site = Site::new(kind);
            site.world().put(&format!("fails-{thing}"));
            assert_eq!(site.prepare(5).unwrap_err().exit_code(), expected, "{thing}");
        }
    }
}

/// H 150. Whoever holds the lease or the installation keeps a preparation out, and it succeeds afterwards.
#[test]
fn another_holder_is_waited_for() {
    let site = Site::new(Kind::Docker);
    let lock = crate::generations::lease::InstallationLock::take(site.layout.root(), crate::generations::Layout::LOCK);
    let busy = |failure: Failure, expected| {
        assert!(
            matches!(failure, Failure::Refused(Refusal { object, cause: Cause::Busy }) if object == expected),
            "{failure}"
        );
    };
    busy(site.prepare(4).unwrap_err(), Object::InstallationLock);
    drop(lock);
    site.prepare(4).unwrap();
    std::fs::remove_file(site.root().join(SECCOMP)).unwrap();
    for mode in [crate::generations::lease::Mode::Shared, crate::generations::lease::Mode::Exclusive] {
        let held =
            crate::generations::lease::Lease::open(&site.layout.generations(), target(site.kind, 4).generation, mode);
        busy(site.prepare(4).unwrap_err(), Object::Lease);
        drop(held);
    }
    site.prepare(4).unwrap();
    assert_eq!(std::fs::read_to_string(site.root().join(SECCOMP)).unwrap(), content("a", SECCOMP));
}

/// Promise 6. H 82. A generation that was dropped, or is known with another specification, is never prepared.
#[test]
fn what_was_dropped_or_differs_is_not_prepared() {
    for kind in BOTH {
        let site = Site::new(kind);
        site.prepare(5).unwrap();
        site.collect(5).unwrap();
        let before = site.everything();
        let failure = site.prepare(5).unwrap_err();
        assert!(
            matches!(failure, Failure::Refused(Refusal { object: Object::Dropped, cause: Cause::Final })),
            "{failure}"
        );
        assert_eq!(site.everything(), before);
    }
}

/// E34. Another image under the release's name, or an engine that does not answer, is never trusted.
#[test]
fn a_wrong_image_is_refused() {
    for kind in BOTH {
        let site = Site::new(kind);
        site.prepare(5).unwrap();
        site.world().put("images/wrong");
        let failure = site.prepare(5).unwrap_err();
        assert!(matches!(failure, Failure::Refused(Refusal { object: Object::Image, .. })), "{failure}");
    }
}

/// E33. No space or no inode at any call: what serves goes on serving, nothing unaccounted is left, and the preparation
/// finishes once there is room.
#[rstest]
fn a_full_disk_keeps_what_serves(#[values(Kind::Docker, Kind::Microsandbox)] kind: Kind) {
    use crate::files::faults::{Faults, Stop};
    let calls = {
        let mut disk = Faults::none();
        Site::played(kind).prepare_on(&mut disk, 5).unwrap();
        disk.calls.len()
    };
    for number in 0..calls {
        let site = Site::played(kind);
        let outcome = site.prepare_on(&mut Faults::after(number, Stop::Full), 5);
        assert!(site.admits(3), "after {number} calls");
        assert!(outcome.is_ok() || !site.admits(5), "after {number} calls");
        let partial = |path: &PathBuf| path.to_string_lossy().ends_with(".partial");
        let strays: Vec<_> = site.everything().into_keys().filter(partial).collect();
        assert!(strays.is_empty(), "after {number} calls: {strays:?}");
        site.prepare(5).unwrap_or_else(|failure| panic!("after {number} calls: {failure}"));
        assert!(site.admits(5));
    }
}
