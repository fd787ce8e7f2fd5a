//! A long run of real processes on one host: preparers that are cancelled, nodes that are killed, helpers that outlive them.
//!
//! `PALISADE_LONG_RUN_SECONDS=300 cargo test -p palisade-node --lib generations::processes -- --nocapture` runs five
//! minutes; without the variable it is a few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use palisade_core::deployment::contract::Provider as Kind;
use palisade_core::distribution::catalogue::Role;
use palisade_core::generation::preparer::conclude;
use palisade_core::generation::recovery::Local;
use palisade_core::generation::{Drop, Found, Table};
use palisade_core::units::{Generation, Id, Millis};
use palisade_core::wire::payload::Deployment;
use palisade_provider::Provider as _;
use palisade_provider::testing::FaultProvider;
use tokio_util::sync::CancellationToken;

use super::lease::{Held, HelperLease, Lease, Mode};
use super::preparer::Preparer;
use super::program::Action;
use super::setup::Setup;
use super::testing::{self, Site, argument, number, target};
use crate::testing::INSTALLATION;

/// How long a quick run is.
const SECONDS: u64 = 8;

/// A helper process that works with a generation until its input ends, and the node that started it, if that lives.
struct Helper {
    generation: u64,
    node: Option<Child>,
    _input: ChildStdin,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// What happened how often.
#[derive(Debug, Default)]
struct Tally {
    prepared: u32,
    cancelled: u32,
    collected: u32,
    disconnected: u32,
    kept_by_helper: u32,
    kept_by_pin: u32,
    helpers: u32,
    orphans: u32,
    restarts: u32,
}

/// One host with the table of its node.
struct Host {
    site: Site,
    table: Table,
    deployment: Deployment,
    helpers: Vec<Helper>,
    dropped: BTreeSet<u64>,
    tally: Tally,
    luck: u64,
}

impl Host {
    fn new(kind: Kind) -> Self {
        let site = Site::new(kind);
        let first = target(kind, 3);
        let deployment = Deployment {
            generation: first.generation,
            specification_digest: first.specification_digest,
            serving_generation: Some(first.generation),
        };
        let table = Table::new([]);
        let mut host = Self {
            site,
            table,
            deployment,
            helpers: Vec::new(),
            dropped: BTreeSet::new(),
            tally: Tally::default(),
            luck: u64::from(std::process::id()),
        };
        host.restart();
        host
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.luck = self.luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.luck >> 33) % bound
    }

    /// The node begins again: it knows what is on the disk, and no helper.
    fn restart(&mut self) {
        for helper in &mut self.helpers {
            if let Some(mut node) = helper.node.take() {
                node.kill().unwrap();
                node.wait().unwrap();
                self.tally.orphans += 1;
            }
        }
        let declaration = FaultProvider::new(number(3)).declaration().clone();
        let locals = self.site.records().locals().unwrap();
        let found = locals.into_iter().filter_map(|(generation, local)| {
            let found = match local {
                Local::Nothing | Local::Dropped => return None,
                Local::Collecting => Found::Collecting,
                Local::Unfinished => Found::Recovery,
                Local::Configured => Found::Provider(declaration.clone()),
            };
            Some((target(self.site.kind, generation.get()), found))
        });
        self.table = Table::new(found);
        // One that is being collected here is no target any more.
        let _ = self.table.announce(self.deployment);
    }

    /// Another target, or another pin.
    fn announce(&mut self) {
        let known: Vec<_> = self.configured();
        let next = self.deployment.generation.get() + self.below(2);
        let of = target(self.site.kind, next);
        let at = usize::try_from(self.below(known.len().max(1) as u64)).unwrap();
        let serving = known.get(at).copied().filter(|serving| *serving <= next);
        let deployment = Deployment {
            generation: of.generation,
            specification_digest: of.specification_digest,
            serving_generation: serving.map(number),
        };
        if self.table.announce(deployment).is_ok() {
            self.deployment = deployment;
        }
    }

    fn configured(&self) -> Vec<u64> {
        let locals = self.site.records().locals().unwrap();
        locals.into_iter().filter(|(_, local)| *local == Local::Configured).map(|(found, _)| found.get()).collect()
    }

    fn preparer(&self) -> Preparer {
        let script = format!(
            "PALISADE_TEST_KIND={} PALISADE_TEST_ARGUMENTS=\"$*\" exec \"$0\" \
             --exact generations::processes::a_preparer --ignored --nocapture >/dev/null 2>&1",
            self.site.kind.name()
        );
        let own = std::env::current_exe().unwrap().into_os_string();
        let program = vec![OsString::from("/bin/sh"), "-c".into(), script.into(), own];
        Preparer { program, root: self.site.root(), installation: Id::parse(INSTALLATION).unwrap() }
    }

    /// Runs a preparer, and cancels it every other time; whether it did its work, and whether it was cancelled.
    async fn run(&mut self, action: Action, generation: u64) -> (bool, bool) {
        let patience = Duration::from_millis(self.below(120));
        let cancelled = self.below(2) == 0;
        let cancel = CancellationToken::new();
        let (preparer, reference) = (self.preparer(), target(self.site.kind, generation));
        let cancelling = async {
            if cancelled {
                tokio::time::sleep(patience).await;
                cancel.cancel();
            }
        };
        let ((ended, cancelled), ()) = tokio::join!(preparer.run(action, reference, &cancel), cancelling);
        (conclude(ended, cancelled).is_ok(), cancelled)
    }

    async fn prepare(&mut self) {
        let generation = self.deployment.generation;
        let (done, cancelled) = self.run(Action::Prepare, generation.get()).await;
        self.tally.prepared += u32::from(done);
        self.tally.cancelled += u32::from(cancelled);
        // What the table makes of it is what a restart makes of it.
        self.restart_table(generation, done);
    }

    fn restart_table(&mut self, generation: Generation, done: bool) {
        if done && !self.table.is_ready(generation) {
            let _ = self.table.poll_task(Millis(u64::MAX / 2));
            self.table.handle_prepared(Millis(0), generation, Ok(FaultProvider::new(generation).declaration().clone()));
        }
    }

    /// Core grants a drop; target or pin may change before it is taken, and the connection may end while it is.
    async fn collect(&mut self) {
        let locals = self.site.records().locals().unwrap();
        let at = usize::try_from(self.below(locals.len() as u64)).unwrap();
        let generation = locals.keys().nth(at).unwrap().get();
        if self.below(2) == 0 {
            self.announce();
        }
        let before = self.site.everything();
        match self.table.drop_granted(target(self.site.kind, generation)) {
            Drop::Remove => {
                let pinned = [Some(self.deployment.generation), self.deployment.serving_generation];
                assert!(!pinned.contains(&Some(number(generation))), "{generation} is wanted here");
                let in_use = self.helpers.iter().any(|helper| helper.generation == generation);
                let (done, cancelled) = self.run(Action::Collect, generation).await;
                assert!(!(done && in_use), "{generation} is in use");
                self.tally.kept_by_helper += u32::from(in_use);
                self.tally.collected += u32::from(done);
                self.tally.disconnected += u32::from(cancelled);
                self.table.handle_removed(number(generation), done);
            }
            Drop::Busy => {
                self.tally.kept_by_pin += 1;
                assert_eq!(before, self.site.everything());
            }
            Drop::Unknown | Drop::Foreign => {}
        }
    }

    /// A node process starts a helper and waits for it.
    fn start_helper(&mut self) {
        let known = self.configured();
        if known.is_empty() || self.helpers.len() >= 4 {
            return;
        }
        let at = usize::try_from(self.below(known.len() as u64)).unwrap();
        let generation = known[at];
        let root = self.site.root();
        let arguments = [
            ("PALISADE_TEST_ROOT", root.to_str().unwrap()),
            ("PALISADE_TEST_KIND", self.site.kind.name()),
            ("PALISADE_TEST_GENERATION", &generation.to_string()),
        ];
        let mut node = testing::process("generations::processes::a_node", &arguments);
        let mut node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map_while(Result::ok);
        if !lines.any(|line| line.ends_with("ready")) {
            node.wait().unwrap();
            return;
        }
        let configuration = self.site.records().of(number(generation)).configuration.unwrap();
        let setup = Setup::of(&self.site.layout, &self.site.base(), &configuration).unwrap();
        let worked_with = setup.files().into_iter().filter(|one| one.role != Role::Image);
        let paths = worked_with.map(|one| setup.release.join(one.path));
        let files = paths.filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?))).collect();
        let input = node.stdin.take().unwrap();
        self.helpers.push(Helper { generation, node: Some(node), _input: input, files });
        self.tally.helpers += 1;
    }

    fn end_helper(&mut self) {
        if self.helpers.is_empty() {
            return;
        }
        let at = usize::try_from(self.below(self.helpers.len() as u64)).unwrap();
        let Helper { generation, node, _input: input, .. } = self.helpers.swap_remove(at);
        drop(input);
        if let Some(mut node) = node {
            node.wait().unwrap();
        }
        if self.helpers.iter().all(|helper| helper.generation != generation) {
            let open = || Lease::open(&self.site.layout.generations(), number(generation), Mode::Exclusive);
            while !matches!(open(), Ok(Held::Yes(_))) {
                std::thread::yield_now();
            }
        }
    }

    fn check(&mut self) {
        let locals = self.site.records().locals().expect("a start understands everything");
        for helper in &self.helpers {
            let generation = number(helper.generation);
            assert_ne!(locals.get(&generation), Some(&Local::Dropped), "{generation} is in use");
            for (path, content) in &helper.files {
                assert_eq!(std::fs::read(path).ok().as_ref(), Some(content), "{} is in use", path.display());
            }
        }
        for (generation, local) in locals {
            if local == Local::Dropped {
                self.dropped.insert(generation.get());
            } else {
                assert!(!self.dropped.contains(&generation.get()), "{generation} was dropped for good");
            }
        }
    }
}

/// Promise 6, promise 7. H 129, H 160, H 161, H 168. E28, E30. Real preparers, nodes and helpers on one host: callers are
/// cancelled, nodes are killed and leave orphans, targets and pins change between a grant and its collection, connections
/// end during collections; nothing in use is ever deleted, and what was dropped stays so.
#[tokio::test]
async fn nothing_in_use_goes_in_a_long_run_of_real_processes() {
    let seconds = std::env::var("PALISADE_LONG_RUN_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    for kind in [Kind::Docker, Kind::Microsandbox] {
        let (mut host, began) = (Host::new(kind), Instant::now());
        let mut steps = 0_u64;
        while began.elapsed() < Duration::from_secs(seconds) / 2 {
            match host.below(10) {
                0..=2 => host.prepare().await,
                3..=5 => host.collect().await,
                6 => host.announce(),
                7 => host.start_helper(),
                8 => host.end_helper(),
                _ => {
                    host.restart();
                    host.tally.restarts += 1;
                }
            }
            host.check();
            steps += 1;
        }
        println!("{}: {steps} steps in {:?}: {:?}", kind.name(), began.elapsed(), host.tally);
        host.restart();
        while !host.helpers.is_empty() {
            host.end_helper();
        }
    }
}

#[test]
#[ignore = "a preparer of the long run, started by it as a process of its own"]
#[expect(clippy::disallowed_methods, reason = "its parent reads the exit status, which a test cannot return")]
fn a_preparer() {
    let told = argument("PALISADE_TEST_ARGUMENTS");
    let words: Vec<_> = told.split(' ').collect();
    let site = Site::open(words[2], Kind::from_name(&argument("PALISADE_TEST_KIND")).unwrap());
    let generation = words[6].parse().unwrap();
    let outcome = if words[0] == "prepare" { site.prepare(generation) } else { site.collect(generation) };
    std::process::exit(outcome.map_or_else(|failure| failure.exit_code().into(), |_| 0));
}

#[tokio::test]
#[ignore = "a node of the long run, started by it as a process of its own"]
async fn a_node() {
    let site = Site::open(&argument("PALISADE_TEST_ROOT"), Kind::from_name(&argument("PALISADE_TEST_KIND")).unwrap());
    let generation = argument("PALISADE_TEST_GENERATION").parse().unwrap();
    let Ok(lease) = HelperLease::acquire(site.layout.root(), target(site.kind, generation)) else { return };
    let mut command = tokio::process::Command::new("/bin/sh");
    command.args(["-c", "echo ready; read line"]).stdin(Stdio::inherit()).stdout(Stdio::inherit());
    lease.spawn(command).unwrap().exited.await.unwrap().unwrap();
}
