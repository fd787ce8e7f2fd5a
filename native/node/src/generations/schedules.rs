//! Random schedules of everything that happens to the generations of one host, beside a model that only knows what must
//! never be touched (promise 7).

use std::collections::BTreeMap;
use std::path::PathBuf;

use palisade_core::deployment::contract::Provider as Kind;
use palisade_core::generation::recovery::Local;

use super::lease::HelperLease;
use super::records::Records;
use super::setup::Setup;
use super::testing::{Site, number, target};
use crate::files::faults::{Faults, Stop};

/// How many schedules a quick run has; `PALISADE_SCHEDULES` says otherwise.
const SCHEDULES: u64 = 40;
/// Steps of one schedule.
const STEPS: u32 = 14;
/// The generations of a site: two of the enrolled release, two of another.
const GENERATIONS: [u64; 4] = [3, 4, 5, 6];

/// A small generator: the seed is the schedule.
struct Luck(u64);

impl Luck {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn generation(&mut self) -> u64 {
        GENERATIONS[usize::try_from(self.below(4)).unwrap()]
    }
}

/// What must be as it is for as long as somebody uses it.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The files that a helper of the generation works with.
fn files(site: &Site, generation: u64) -> Files {
    let configuration = site.records().of(target(site.kind, generation).generation).configuration.unwrap();
    let setup = Setup::of(&site.layout, &site.base(), &configuration).unwrap();
    let paths = setup
        .files()
        .into_iter()
        .filter(|one| !one.path.starts_with("images/"))
        .map(|one| setup.release.join(one.path));
    paths.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

/// What a helper does with its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Holds it to its end.
    Holds,
    /// Lets go of it at once and works on: what it uses can be deleted, and the model must notice.
    LetsGo,
}

/// A helper at work.
struct Worker {
    generation: u64,
    /// `None` when it let go.
    _lease: Option<HelperLease>,
    files: Files,
}

/// One history. Helpers come and go, runs are killed at random calls, grants come for whatever there is.
fn play(seed: u64, habit: Habit) {
    let mut luck = Luck(seed);
    let site = Site::played(if luck.below(2) == 0 { Kind::Docker } else { Kind::Microsandbox });
    let mut helpers: Vec<Worker> = Vec::new();
    let mut dropped = Vec::new();
    let mut told = Vec::new();
    for _ in 0..STEPS {
        let generation = luck.generation();
        let calls = usize::try_from(luck.below(70)).unwrap();
        let end = if luck.below(2) == 0 { Stop::Power } else { Stop::Torn };
        let mut disk = Faults::after(calls, end).remembering(&site.attic());
        let step = match luck.below(8) {
            0 | 1 => format!(
                "prepare {generation}: {:?}",
                site.prepare(generation).map(drop).map_err(|error| error.to_string())
            ),
            2 => {
                let told = site.prepare_on(&mut disk, generation).map(drop).map_err(|error| error.to_string());
                disk.lose(usize::try_from(luck.below(3)).unwrap());
                format!("prepare {generation} until call {calls}: {told:?}")
            }
            3 | 4 => format!(
                "collect {generation}: {:?}",
                site.collect(generation).map(drop).map_err(|error| error.to_string())
            ),
            5 => {
                let told = site.collect_on(&mut disk, generation).map(drop).map_err(|error| error.to_string());
                disk.lose(usize::try_from(luck.below(3)).unwrap());
                format!("collect {generation} until call {calls}: {told:?}")
            }
            6 => match HelperLease::acquire(site.layout.root(), target(site.kind, generation)) {
                Ok(lease) => {
                    let lease = (habit == Habit::Holds).then_some(lease);
                    helpers.push(Worker { generation, _lease: lease, files: files(&site, generation) });
                    format!("a helper of {generation} starts")
                }
                Err(error) => format!("no helper of {generation}: {error}"),
            },
            _ if helpers.is_empty() => "nothing".to_owned(),
            _ => {
                let at = usize::try_from(luck.below(helpers.len() as u64)).unwrap();
                format!("a helper of {} ends", helpers.swap_remove(at).generation)
            }
        };
        told.push(step);
        check(&site, &helpers, &mut dropped, &format!("seed {seed}: {told:#?}"));
    }
}

fn check(site: &Site, helpers: &[Worker], dropped: &mut Vec<u64>, told: &str) {
    let records = site.records();
    let locals = records.locals().unwrap_or_else(|refused| panic!("a start understands everything: {refused}. {told}"));
    let local = |generation: u64| locals.get(&number(generation)).copied().unwrap_or(Local::Nothing);
    for Worker { generation, files, .. } in helpers {
        assert_ne!(local(*generation), Local::Dropped, "generation {generation} is in use. {told}");
        for (path, content) in files {
            let found = std::fs::read(path).ok();
            let path = path.display();
            assert_eq!(found.as_ref(), Some(content), "{path} of generation {generation} is in use. {told}");
        }
    }
    for generation in GENERATIONS {
        let local = local(generation);
        if dropped.contains(&generation) {
            assert_eq!(local, Local::Dropped, "a dropped generation stays so. {told}");
        } else if local == Local::Dropped {
            dropped.push(generation);
        }
        if local == Local::Configured && site.path(&format!("{generation}.lease-identity")).exists() {
            assert!(files_are_there(site, &records, generation), "generation {generation} is configured. {told}");
        }
    }
}

/// Whether everything that a configured generation works with is there.
fn files_are_there(site: &Site, records: &Records, generation: u64) -> bool {
    let configuration = records.of(number(generation)).configuration.unwrap();
    let setup = Setup::of(&site.layout, &site.base(), &configuration).unwrap();
    setup.files().iter().filter(|one| !one.path.starts_with("images/")).all(|one| setup.release.join(one.path).exists())
}

/// Promise 5, promise 6, promise 7, promise 15. H 129, H 136. E30. Whatever happens in whatever order, no file of a
/// generation that a helper uses, or that could be used, ever goes.
#[test]
fn no_schedule_deletes_what_is_in_use() {
    let schedules = std::env::var("PALISADE_SCHEDULES").map_or(SCHEDULES, |text| text.parse().unwrap());
    for seed in 0..schedules {
        play(seed, Habit::Holds);
        if seed % 1000 == 999 {
            println!("{} schedules", seed + 1);
        }
    }
    println!("{schedules} schedules of {STEPS} steps");
}

/// Promise 7. Where helpers do not hold their leases, something in use is really deleted, and the model notices.
#[test]
fn the_model_notices_what_is_deleted_in_use() {
    let noticed = |seed: &u64| {
        let played = std::panic::catch_unwind(|| play(*seed, Habit::LetsGo));
        let said = played.err().and_then(|panic| panic.downcast::<String>().ok());
        said.is_some_and(|said| said.contains("is in use"))
    };
    let seeds: Vec<_> = (0..SCHEDULES).filter(noticed).collect();
    println!("noticed with the seeds {seeds:?}");
    assert!(!seeds.is_empty());
}
