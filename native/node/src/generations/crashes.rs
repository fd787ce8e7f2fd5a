//! The crash tables of node-host §3.3, §3.4 and §3.9 on real files: a run ends at every system call that it makes, by a
//! loss of power or by SIGKILL, and the next one does what the table says.

use std::collections::BTreeMap;

use palisade_core::deployment::contract::Provider as Kind;
use palisade_core::distribution::catalogue::{MSB, SECCOMP};
use palisade_core::generation::recovery::{Cause, Local, Object, Refusal};
use rstest::rstest;

use super::outside::Failure;
use super::testing::{self, Site};
use crate::files::disk::{Disk, System};
use crate::files::faults::{Faults, Stop};

/// One kind of work, from a state that the work is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A generation of another release.
    New,
    /// A generation of the release that is there.
    Same,
    /// The enrolled generation lacks a file.
    Repair,
    /// A generation with a release of its own goes.
    Release,
    /// The enrolled generation goes, whose files stand below ROOT.
    Original,
}

pub(super) const ALL: [Work; 5] = [Work::New, Work::Same, Work::Repair, Work::Release, Work::Original];

impl Work {
    fn named(name: &str) -> Self {
        ALL.into_iter().find(|work| format!("{work:?}") == name).unwrap()
    }

    pub(super) const fn generation(self) -> u64 {
        match self {
            Self::New | Self::Release => 5,
            Self::Same => 4,
            Self::Repair | Self::Original => 3,
        }
    }

    fn site(self, kind: Kind) -> Site {
        let site = Site::played(kind);
        self.set_up(&site);
        site
    }

    /// Brings a fresh installation into the state that the work is for.
    pub(super) fn set_up(self, site: &Site) {
        let kind = site.kind;
        match self {
            Self::New | Self::Same => {}
            Self::Repair => {
                let missing = if kind == Kind::Docker { SECCOMP } else { MSB };
                std::fs::remove_file(site.root().join(missing)).unwrap();
            }
            Self::Release | Self::Original => drop(site.prepare(5).unwrap()),
        }
    }

    pub(super) fn run(self, site: &Site, disk: &mut dyn Disk) -> Result<Vec<String>, Failure> {
        match self {
            Self::New | Self::Same | Self::Repair => site.prepare_on(disk, self.generation()),
            Self::Release | Self::Original => site.collect_on(disk, self.generation()),
        }
    }

    pub(super) const fn end(self) -> Local {
        match self {
            Self::New | Self::Same | Self::Repair => Local::Configured,
            Self::Release | Self::Original => Local::Dropped,
        }
    }

    /// Which generation nobody works on here, and which must serve all the time.
    pub(super) const fn other(self) -> u64 {
        match self {
            Self::New | Self::Same | Self::Release => 3,
            Self::Repair | Self::Original => 5,
        }
    }

    /// The calls of an undisturbed run.
    fn calls(self, kind: Kind) -> Vec<String> {
        let (site, mut disk) = (self.site(kind), Faults::none());
        self.run(&site, &mut disk).unwrap();
        disk.calls
    }
}

/// What a crash left, and what the next run made of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    left: Local,
    next: &'static str,
}

/// Looks at what a crash left, lets the next run finish, and looks again.
fn recover(work: Work, site: &Site) -> Row {
    let left = site.local(work.generation());
    assert!(site.admits(work.other()) || work == Work::Repair, "the other generation serves on");
    let unfinished = left != Local::Configured;
    assert!(!(unfinished && site.admits(work.generation())), "{left:?} admits no helper");
    let next = match work.run(site, &mut System) {
        Ok(_) => {
            assert_eq!(site.local(work.generation()), work.end());
            assert_eq!(site.admits(work.generation()), work.end() == Local::Configured);
            let again = work.run(site, &mut System).unwrap();
            assert!(again.iter().all(|asked| asked.starts_with("core")), "nothing is left to do: {again:?}");
            "finished"
        }
        Err(Failure::Refused(Refusal { object: Object::Lease, cause: Cause::Unrecorded })) => {
            let before = site.everything();
            work.run(site, &mut System).unwrap_err();
            assert_eq!(site.everything(), before, "refused for good, and kept as it is");
            "refused: a lease without its record"
        }
        Err(other) => panic!("{work:?} from {left:?}: {other}"),
    };
    let everything = site.everything();
    let names = everything.keys().map(|path| path.file_name().unwrap().to_string_lossy());
    let strays: Vec<_> = names.filter(|name| name.contains(".partial") && !name.contains("lease-identity")).collect();
    assert!(strays.is_empty(), "everything written is accounted for: {strays:?}");
    Row { left, next }
}

/// Prints consecutive points that look the same as one line.
fn print(work: Work, kind: Kind, how: &str, rows: &BTreeMap<(usize, String), Vec<Row>>) {
    for ((number, call), rows) in rows {
        let mut seen: Vec<_> = rows.iter().map(|row| format!("{:?} → {}", row.left, row.next)).collect();
        seen.sort();
        seen.dedup();
        println!("{:<12} {work:?} · {how} · call {number:>3} {call:<32} {}", kind.name(), seen.join(" | "));
    }
}

/// The lines of the crash tables that a run of this kind must have met.
fn require_rows(work: Work, rows: &BTreeMap<(usize, String), Vec<Row>>) {
    let met: std::collections::BTreeSet<_> = rows.values().flatten().cloned().collect();
    let (finished, refused) = ("finished", "refused: a lease without its record");
    let expected: &[(Local, &str)] = match work {
        Work::New | Work::Same => &[
            (Local::Nothing, finished),
            (Local::Nothing, refused),
            (Local::Unfinished, finished),
            (Local::Configured, finished),
        ],
        Work::Repair => &[(Local::Configured, finished), (Local::Unfinished, finished)],
        Work::Release | Work::Original => &[(Local::Configured, finished), (Local::Collecting, finished)],
    };
    for (left, next) in expected {
        assert!(met.contains(&Row { left: *left, next }), "{left:?} → {next} was not met: {met:?}");
    }
}

/// H 133, H 134, H 147, H 153. Promise 15. E28, E36. The power fails at every system call, with a torn write or without,
/// and any part of what was not synced is lost: a start understands what is left, what serves goes on serving, and the
/// next run finishes, or refuses a lease without its record for good.
#[rstest]
fn every_loss_of_power_is_recovered_from(
    #[values(Kind::Docker, Kind::Microsandbox)] kind: Kind,
    #[values(Work::New, Work::Same, Work::Repair, Work::Release, Work::Original)] work: Work,
) {
    let calls = work.calls(kind);
    let mut rows: BTreeMap<_, Vec<Row>> = BTreeMap::new();
    for (number, call) in calls.iter().enumerate() {
        for (stop, kept) in [(Stop::Power, 0), (Stop::Power, 1), (Stop::Torn, usize::MAX)] {
            let site = work.site(kind);
            let mut disk = Faults::after(number, stop).remembering(&site.attic());
            work.run(&site, &mut disk).unwrap_err();
            disk.lose(kept);
            rows.entry((number, call.clone())).or_default().push(recover(work, &site));
        }
    }
    print(work, kind, "power", &rows);
    require_rows(work, &rows);
}

/// H 133, H 134, H 147. Promise 15. E36. A run ends at every system call, and only the next one, which finds what is
/// visible but not synced, comes to its end: then all of it is durable, also what that run did not do itself, and a loss
/// of power takes nothing back.
#[rstest]
fn what_an_interrupted_run_did_not_sync_the_next_one_does(
    #[values(Kind::Docker, Kind::Microsandbox)] kind: Kind,
    #[values(Work::New, Work::Same, Work::Repair, Work::Release, Work::Original)] work: Work,
) {
    let mut found = 0;
    for (number, call) in work.calls(kind).iter().enumerate() {
        let site = work.site(kind);
        let mut disk = Faults::after(number, Stop::Power).remembering(&site.attic());
        work.run(&site, &mut disk).unwrap_err();
        found += disk.names_at_risk();
        let mut disk = disk.next_process();
        match work.run(&site, &mut disk) {
            Ok(_) => {}
            Err(Failure::Refused(Refusal { object: Object::Lease, cause: Cause::Unrecorded })) => continue,
            Err(other) => panic!("{work:?} after call {number}, {call}: {other}"),
        }
        assert_eq!(disk.names(), [""; 0], "{work:?} after call {number}, {call}");
        disk.lose(0);
        assert_eq!(site.local(work.generation()), work.end(), "{work:?} after call {number}, {call}");
    }
    assert!(found > 0, "nothing was ever at risk");
}

/// H 133, H 134, H 147. The process is killed with SIGKILL at every system call.
#[rstest]
fn every_kill_is_recovered_from(
    #[values(Work::New, Work::Same, Work::Repair, Work::Release, Work::Original)] work: Work,
) {
    // Every point for docker here; the calls that only microsandbox has are met by the loss of power.
    let kind = Kind::Docker;
    let calls = work.calls(kind);
    let mut rows: BTreeMap<_, Vec<Row>> = BTreeMap::new();
    for (number, call) in calls.iter().enumerate() {
        let site = work.site(kind);
        kill(work, &site, number);
        rows.entry((number, call.clone())).or_default().push(recover(work, &site));
    }
    print(work, kind, "kill", &rows);
    require_rows(work, &rows);
}

/// Runs the work in a process of its own, which kills itself after that many calls.
fn kill(work: Work, site: &Site, calls: usize) {
    let ended = start(work, site, calls);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9), "killed before its end");
}

fn start(work: Work, site: &Site, calls: usize) -> std::process::ExitStatus {
    let root = site.root();
    let mut process = testing::process(
        "generations::crashes::a_run_that_kills_itself",
        &[
            ("PALISADE_TEST_ROOT", root.to_str().unwrap()),
            ("PALISADE_TEST_KIND", site.kind.name()),
            ("PALISADE_TEST_WORK", &format!("{work:?}")),
            ("PALISADE_TEST_CALLS", &calls.to_string()),
        ],
    );
    process.stdout(std::process::Stdio::null()).status().unwrap()
}

#[test]
#[ignore = "the run of the tests here, started by them as a process of its own"]
fn a_run_that_kills_itself() {
    let kind = Kind::from_name(&testing::argument("PALISADE_TEST_KIND")).unwrap();
    let site = Site::open(&testing::argument("PALISADE_TEST_ROOT"), kind);
    let calls = testing::argument("PALISADE_TEST_CALLS").parse().unwrap();
    let work = Work::named(&testing::argument("PALISADE_TEST_WORK"));
    work.run(&site, &mut Faults::after(calls, Stop::Kill)).unwrap();
}

/// E27. A hundred kills at random points of preparations and collections of one host, one after another, leave nothing
/// that is not accounted for, and everything can be finished.
#[test]
fn a_hundred_random_kills_leave_nothing_unaccounted_for() {
    let site = Site::played(Kind::Microsandbox);
    let before = site.everything();
    let (mut kills, mut seed) = (0, 0x5eed_u64);
    while kills < 100 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The collection of 5 is final, so that it comes last.
        let work = if kills < 70 { Work::New } else { Work::Release };
        let calls = 30 + usize::try_from(seed >> 33).unwrap() % 60;
        let calls = if kills < 70 { calls } else { calls % 20 };
        let ended = start(work, &site, calls);
        kills += 1;
        assert!(ended.success() || !site.admits(5) || site.local(5) == Local::Configured);
        if ended.success() && work == Work::New {
            // Whatever is missing is brought back.
            let release = site.layout.release(&"1".repeat(40));
            let _ = std::fs::remove_file(release.join(SECCOMP));
        }
    }
    site.collect(5).unwrap();
    let names = |everything: &BTreeMap<std::path::PathBuf, _>| everything.keys().cloned().collect::<Vec<_>>();
    let mut expected = names(&before);
    expected.extend(["5.collecting", "5.dropped", "5.json", "5.lease", "5.lease-identity"].map(|name| site.path(name)));
    expected.extend([site.layout.releases(), site.root().join("install.lock")]);
    let left: Vec<_> = names(&site.everything());
    // A store of its own stays with its receipts, and a journal with the records.
    let known = |path: &&std::path::PathBuf| {
        expected.contains(path) || path.ends_with("5.preparing") || path.starts_with(site.stores())
    };
    let strange: Vec<_> = left.iter().filter(|path| !known(path)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    let gone: Vec<_> = names(&before).into_iter().filter(|path| !left.contains(path)).collect();
    assert!(gone.is_empty(), "nothing of generation 3 went: {gone:?}");
    assert!(site.admits(3));
}
