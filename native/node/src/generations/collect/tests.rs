use palisade_core::distribution::catalogue::{FIRMWARE, IMAGE, MSB, SECCOMP};
use palisade_core::generation::recovery::{Object, Refusal};
use rstest::rstest;

use super::*;
use crate::generations::testing::{Site, target};

fn is_refused(failure: &Failure, expected: Object) -> bool {
    matches!(failure, Failure::Refused(Refusal { object, .. }) if *object == expected)
}

fn native(asked: &[String]) -> Vec<&str> {
    asked.iter().map(String::as_str).filter(|one| ["images", "sandboxes", "remove image"].contains(one)).collect()
}

/// H 129, H 136, H 139. A generation goes with its release and image once nobody else needs them; its records stay, its
/// lease is the same inode, a second collection does nothing, and docker's engine is never asked to remove anything.
#[rstest]
fn a_generation_is_collected(#[values(Kind::Docker, Kind::Microsandbox)] kind: Kind) {
    let site = Site::new(kind);
    site.prepare(5).unwrap();
    let before = site.everything();
    let asked = site.collect(5).unwrap();
    assert_eq!(site.local(5), Local::Dropped);
    assert!(!site.layout.release(&"1".repeat(40)).exists());
    let expected: &[&str] =
        if kind == Kind::Docker { &[] } else { &["images", "sandboxes", "remove image", "images", "sandboxes"] };
    let mut asked = native(&asked);
    asked.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(asked, expected);
    let after = site.everything();
    for name in ["5.json", "5.lease", "5.lease-identity"] {
        assert_eq!(before[&site.path(name)], after[&site.path(name)], "{name} stays as it was");
    }
    assert!(site.path("5.collecting").exists());
    assert_eq!(site.collect(5).unwrap(), Vec::<String>::new());
    assert_eq!(site.everything(), after);
    assert!(site.admits(3) && !site.admits(5));
}

/// H 136, H 145, H 146. What another generation uses stays until the last one goes.
#[test]
fn what_is_shared_stays_until_the_last() {
    let site = Site::new(Kind::Microsandbox);
    site.prepare(4).unwrap();
    site.collect(3).unwrap();
    assert_eq!((site.local(3), site.local(4)), (Local::Dropped, Local::Configured));
    for path in [SECCOMP, MSB, FIRMWARE] {
        assert!(site.root().join(path).exists(), "{path} is used by generation 4");
    }
    assert!(site.admits(4));
    site.collect(4).unwrap();
    for path in [SECCOMP, MSB, FIRMWARE, IMAGE] {
        assert!(!site.root().join(path).exists(), "{path} was used by nobody else");
    }
}

/// H 142, H 143, H 144. The originals go only when every one of them is what was recorded; the rest of ROOT stays.
#[rstest]
fn originals_are_verified_before_the_first_goes(#[values(Kind::Docker, Kind::Microsandbox)] kind: Kind) {
    let site = Site::new(kind);
    site.prepare(5).unwrap();
    crate::testing::write(site.root().join("runtime/notes.txt"), "an operator's");
    let changed = site.root().join(IMAGE);
    let original = std::fs::read(&changed).unwrap();
    crate::testing::write(&changed, "changed");
    let before = site.everything();
    let failure = site.collect(3).unwrap_err();
    assert!(is_refused(&failure, Object::Originals), "{failure}");
    let after = site.everything();
    assert!(before.iter().all(|(path, file)| after[path] == *file), "nothing was touched");
    crate::testing::write(&changed, original);

    let record = site.root().join("runtime-artifacts.json");
    std::fs::rename(&record, site.root().join("elsewhere")).unwrap();
    assert!(is_refused(&site.collect(3).unwrap_err(), Object::Originals));
    std::fs::rename(site.root().join("elsewhere"), &record).unwrap();

    site.collect(3).unwrap();
    assert!(!site.root().join(SECCOMP).exists());
    assert!(site.root().join("runtime/notes.txt").exists() && site.layout.base().exists());
    assert!(site.admits(5));
    assert_eq!(site.local(3), Local::Dropped);
}

/// H 132, H 138. An inventory that fails, an unknown line, a missing program, sandboxes that run: every byte stays and the
/// journal says that the native part is not done.
#[test]
fn an_unproven_inventory_keeps_every_byte() {
    type Fault = (&'static str, fn(&Site), Object);
    let faults: [Fault; 4] = [
        ("the engine fails", |site| site.world().put("fails-engine"), Object::Sandboxes),
        ("a malformed line", |site| site.world().put("images/latest"), Object::Image),
        ("sandboxes run", |site| site.world().put("fails-sandboxes"), Object::Sandboxes),
        ("in use", |site| site.world().put("fails-in-use"), Object::Image),
    ];
    for (what, spoil, object) in faults {
        let site = Site::new(Kind::Microsandbox);
        site.prepare(5).unwrap();
        let before = site.everything();
        spoil(&site);
        let failure = site.collect(5).unwrap_err();
        assert!(is_refused(&failure, object), "{what}: {failure}");
        let after = site.everything();
        assert!(before.iter().all(|(path, file)| after[path] == *file), "{what}");
        let journal = site.records().of(target(site.kind, 5).generation).journals.collecting;
        assert_eq!(journal.ours().map(|journal| journal.native_complete), Some(false), "{what}");
        assert!(!site.admits(5), "no helper starts once a collection began");
    }
}

/// H 138. A loaded archive has a name of its own beside the pinned one. A removal that was interrupted between the two goes
/// on with the other, whichever it is.
#[test]
fn an_interrupted_removal_goes_on() {
    for kept in 0..2 {
        let site = Site::new(Kind::Microsandbox);
        site.prepare(5).unwrap();
        let digest = palisade_core::units::Digest::of(b"1 ref").to_string();
        let names = site.world().images_with(&digest);
        assert_eq!(names.len(), 2, "{names:?}");
        site.world().take(&format!("images/{}", names[1 - kept]));
        site.collect(5).unwrap();
        assert_eq!(site.local(5), Local::Dropped);
        assert_eq!(site.world().images_with(&digest), Vec::<String>::new(), "{} was left", names[kept]);
    }
}

/// H 137, H 138. What was never imported goes without its program; what was needs it.
#[test]
fn a_missing_program_is_no_proof() {
    let site = Site::new(Kind::Microsandbox);
    site.world().put("fails-releases");
    site.prepare(5).unwrap_err();
    site.world().take("fails-releases");
    let mut disk = crate::files::faults::Faults::after(26, crate::files::faults::Stop::Power);
    site.prepare_on(&mut disk, 5).unwrap_err();
    assert_eq!(site.local(5), Local::Unfinished);
    let asked = site.collect(5).unwrap();
    assert!(native(&asked).is_empty(), "{asked:?}");
    assert_eq!(site.local(5), Local::Dropped);

    let site = Site::new(Kind::Microsandbox);
    site.prepare(5).unwrap();
    std::fs::remove_file(site.layout.release(&"1".repeat(40)).join(MSB)).unwrap();
    for _ in 0..2 {
        assert!(is_refused(&site.collect(5).unwrap_err(), Object::Executable));
    }
}

/// H 141. A release behind a link is refused before anything native.
#[test]
fn a_linked_release_is_not_touched() {
    let site = Site::new(Kind::Docker);
    site.prepare(5).unwrap();
    let (release, elsewhere) = (site.layout.release(&"1".repeat(40)), site.root().join("elsewhere"));
    std::fs::rename(&release, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &release).unwrap();
    let before = site.everything();
    assert!(is_refused(&site.collect(5).unwrap_err(), Object::Release));
    assert_eq!(site.everything(), before);
}

/// H 129, H 130. A helper keeps the collector out; afterwards it succeeds.
#[test]
fn a_helper_keeps_its_generation() {
    let site = Site::new(Kind::Docker);
    site.prepare(5).unwrap();
    let helper = crate::generations::HelperLease::acquire(site.layout.root(), target(site.kind, 5)).unwrap();
    let before = site.everything();
    assert!(is_refused(&site.collect(5).unwrap_err(), Object::Lease));
    assert_eq!(site.everything(), before);
    drop(helper);
    site.collect(5).unwrap();
}

/// H 127, H 128, H 135, H 140. A record that cannot be believed, of whichever generation, stops preparation and
/// collection before anything is changed or asked.
#[rstest]
fn a_damaged_record_stops_everything(
    #[values(
        "provider.json",
        "state/node/generations/5.json",
        "state/node/generations/5.preparing",
        "state/node/generations/5.collecting",
        "state/node/generations/5.dropped"
    )]
    file: &str,
) {
    for contents in ["", "\0\0\0\0", "{}", r#"{"provider":"e2b"}"#] {
        let site = Site::new(Kind::Docker);
        site.prepare(5).unwrap();
        let path = site.root().join(file);
        let _ = std::fs::remove_file(&path);
        crate::files::writer::record(
            &mut crate::files::disk::System,
            path.parent().unwrap(),
            path.file_name().unwrap().to_str().unwrap(),
            contents.as_bytes(),
        )
        .unwrap();
        let before = site.everything();
        for generation in [3, 4, 5] {
            site.prepare(generation).unwrap_err();
            site.collect(generation).unwrap_err();
        }
        assert_eq!(site.everything(), before, "{file}: {contents:?}");
    }
}
