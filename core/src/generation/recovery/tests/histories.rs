//! Power fails at every moment of every run, again and again: all disks that can come of it, and what a start, a
//! preparation and a collection make of each.

use std::collections::BTreeSet;

use super::disk::{Disk, FILES};
use super::*;

/// Every disk that any sequence of crashed and finished preparations and collections can leave.
fn reachable() -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    visit(&mut |disk| {
        seen.insert(format!("{disk:?}"));
    });
    seen
}

fn visit(look: &mut impl FnMut(Disk)) {
    let kinds = [false, true].map(|docker| [Disk::fresh(docker), Disk::enrolled(docker)]);
    let mut open: Vec<Disk> = kinds.into_iter().flatten().flat_map(damaged_by_hand).collect();
    let mut seen = std::collections::HashSet::new();
    while let Some(disk) = open.pop() {
        if !seen.insert(disk) {
            continue;
        }
        look(disk);
        for mut run in [disk; 2] {
            let _ = run.prepare(|left| open.push(left));
            open.push(run);
        }
        let mut run = disk;
        let _ = run.collect(|left| open.push(left));
        open.push(run);
    }
}

/// The disk, and what an operator who deletes files or images makes of it once it is finished.
fn damaged_by_hand(disk: Disk) -> Vec<Disk> {
    let mut finished = disk;
    finished.prepare(|_| {}).unwrap();
    let less = (0..FILES).map(|files| Disk { files, ..finished });
    [disk, Disk { image: false, ..finished }].into_iter().chain(less).collect()
}

#[test]
fn crashes_lead_to_many_different_disks() {
    let count = reachable().len();
    assert!(count > 100, "the walk found only {count} disks");
}

/// Promise 15. Every disk that crashes can leave is understood by a start: no crash damages anything.
#[test]
fn a_start_understands_whatever_a_crash_left() {
    visit(&mut |disk| {
        let root = Root {
            base: Entry::Ours(crate::units::Generation::FIRST),
            directory: if disk.directory { Entry::Ours(()) } else { Entry::Absent },
            generations: [(crate::units::Generation::FIRST, Journals { enrolled: false, ..disk.journals() })]
                .into_iter()
                .filter(|_| disk.directory)
                .collect(),
        };
        let found = discover(&root).unwrap();
        assert!(!found.is_empty());
    });
}

/// Promise 15. From each of them, an undisturbed preparation ends in the whole new state, or in a refusal that
/// changed nothing and is the same the next time.
#[test]
fn a_preparation_ends_whole_or_refuses_whatever_happened_before() {
    visit(&mut |disk| {
        let (mut once, before) = (disk, disk);
        match once.prepare(|_| {}) {
            Ok(steps) => {
                assert!(once.is_complete(), "{before:?} became {once:?} by {steps:?}");
                let mut twice = once;
                assert_eq!(twice.prepare(|_| {}).map(|steps| steps.len()), Ok(4), "nothing is left to do");
                assert_eq!(twice, once);
            }
            Err((_, refusal)) => {
                assert_eq!(once, before, "a refused run changed the disk");
                assert_eq!(once.prepare(|_| {}).unwrap_err().1, refusal);
                let dropped = refusal == Refusal { object: Object::Dropped, cause: Cause::Final };
                let collecting = refusal == Refusal { object: Object::Collecting, cause: Cause::Begun };
                let orphan = refusal == Refusal { object: Object::Lease, cause: Cause::Unrecorded };
                assert_eq!(
                    (dropped, collecting && !dropped),
                    (disk.dropped, disk.collecting.is_some() && !disk.dropped)
                );
                assert!(dropped || collecting || (orphan && disk.lease && !disk.record));
            }
        }
    });
}

/// H 138. From each of them, a granted collection ends with the drop record and nothing deletable left, the image of a
/// store included, or refuses without having deleted anything.
#[test]
fn a_collection_ends_dropped_or_deletes_nothing() {
    visit(&mut |disk| {
        let mut after = disk;
        match after.collect(|_| {}) {
            Ok(_) if disk.dropped || !disk.journals().is_retained() => assert_eq!(after, disk),
            Ok(_) => {
                assert!(after.dropped && after.files == 0 && after.lease && after.record);
                assert!(after.docker || !after.image, "{disk:?} left its image");
                assert_eq!((after.configuration, after.preparing), (disk.configuration, disk.preparing));
            }
            Err(_) => assert_eq!((after.files, after.image, after.dropped), (disk.files, disk.image, disk.dropped)),
        }
    });
}

/// Promise 6. Once dropped, no sequence of runs and crashes prepares anything of the generation again.
#[test]
fn a_dropped_generation_is_never_prepared_again_at_any_crash_point() {
    let mut dropped = 0;
    visit(&mut |disk| {
        if disk.dropped {
            dropped += 1;
            let mut after = disk;
            let (steps, refusal) = after.prepare(|_| {}).unwrap_err();
            assert_eq!(steps, [PrepareStep::LockInstallation]);
            assert_eq!((refusal.cause, refusal.remedy()), (Cause::Final, Remedy::Never));
            assert_eq!(after, disk);
        }
    });
    assert!(dropped > 1);
}
