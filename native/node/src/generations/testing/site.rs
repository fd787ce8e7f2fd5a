//! An installation as an installer leaves it, and everything that a test does with one.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use palisade_core::deployment::contract::{Provider as Kind, RuntimeMember};
use palisade_core::distribution::catalogue::IMAGE_UNPACKED;
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{Cause, Local, Owner, Refusal};
use palisade_core::units::{Digest, Id};
use serde_json::json;
use tempfile::TempDir;

use super::number;
use super::world::{SCRIPTED, World, content, enrolled, target};
use crate::files::disk::{Disk, System};
use crate::files::writer;
use crate::generations::collect::Collecting;
use crate::generations::layout::Layout;
use crate::generations::lease::{Held, HelperLease, Lease};
use crate::generations::outside::{Engine as _, Failure, Outside, Releases as _};
use crate::generations::prepare::Preparing;
use crate::generations::records::Records;
use crate::generations::run::Run;
use crate::generations::setup::{self, Home, Setup};
use crate::generations::store;
use crate::testing::INSTALLATION;

/// A process that another thread of this test program is just starting has a copy of every lock of this one, until it
/// becomes another program. How often and how long that is waited for.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

/// An installation with its world: what a preparer has before it.
pub(crate) struct Site {
    /// Removed with this, by whoever made it.
    _folder: Option<TempDir>,
    pub(crate) layout: Layout,
    pub(crate) kind: Kind,
}

impl Site {
    /// A node that was installed with generation 3: lease, files, their record, network or store, and image. Docker's
    /// engine is played; microsandbox's program is a script, asked by the real runner.
    pub(crate) fn new(kind: Kind) -> Self {
        let site = Self::played(kind);
        site.world().put(SCRIPTED);
        site
    }

    /// The same with microsandbox's program only played, for the tests that prepare and collect thousands of times.
    pub(crate) fn played(kind: Kind) -> Self {
        // A store's path has at most 48 bytes. Memory will do: what a disk may lose is taken back by the test.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory } else { Path::new("/tmp") };
        let folder = tempfile::Builder::new().prefix("s").rand_bytes(4).tempdir_in(place).unwrap();
        let site = Self::install(folder.path(), kind);
        Self { _folder: Some(folder), ..site }
    }

    /// As [`Self::played`], in the home `folder`, which is empty but for a `world` of its own, if that shall be elsewhere.
    pub(crate) fn install(folder: &Path, kind: Kind) -> Self {
        let site = Self { layout: Layout::new(&folder.join(".oac/nodes/n")), kind, _folder: None };
        let root = site.root();
        writer::ensure_private_directories(&mut System, folder, &site.layout.generations()).unwrap();
        writer::ensure_private_directory(&mut System, &folder.join("attic")).unwrap();
        let base = enrolled(kind, &root, folder);
        writer::record(&mut System, &root, Layout::BASE, &base.to_bytes()).unwrap();
        site.lease(3);
        let mut world = site.world();
        let manifest = world.manifest(&base.envelope.specification).unwrap();
        let setup = Setup::of(&site.layout, &base, &base).unwrap();
        for declared in setup.files() {
            world.fetch(&mut System, &manifest, declared.path, &root).unwrap();
        }
        world.import(&setup, &manifest).unwrap();
        let digest = |path: &str| Digest::of(content("a", path).as_bytes()).to_string();
        let mut sha256: BTreeMap<&str, String> = setup.files().iter().map(|one| (one.path, digest(one.path))).collect();
        sha256.insert(IMAGE_UNPACKED, digest(IMAGE_UNPACKED));
        let record = json!({"installation_id": INSTALLATION, "source_commit": "a".repeat(40), "sha256": sha256});
        writer::record(&mut System, &root, "runtime-artifacts.json", record.to_string().as_bytes()).unwrap();
        match &setup.home {
            Home::Network(name) => world.put(&format!("networks/{name}")),
            Home::Store(path) => store::make(&mut System, path, base.envelope.installation).unwrap(),
        }
        // The engine names docker's image by its manifest, and the configuration has that name.
        let resolved = setup::resolved(&base, base.envelope.specification.runtime(RuntimeMember::ImageManifestDigest));
        if kind == Kind::Docker {
            writer::record(&mut System, &root, Layout::BASE, &resolved.to_bytes()).unwrap();
        }
        site
    }

    /// The installation that another process made.
    pub(crate) fn open(root: &str, kind: Kind) -> Self {
        Self { _folder: None, layout: Layout::new(Path::new(root)), kind }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.layout.root().to_owned()
    }

    pub(crate) fn world(&self) -> World {
        World::new(&self.layout.root().ancestors().nth(3).unwrap().join("world"), self.kind)
    }

    /// Where the stores of microsandbox are.
    pub(crate) fn stores(&self) -> PathBuf {
        self.layout.root().ancestors().nth(3).unwrap().join(".oac/m")
    }

    pub(crate) fn attic(&self) -> PathBuf {
        self.layout.root().ancestors().nth(3).unwrap().join("attic")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.layout.generations().join(name)
    }

    fn lease(&self, generation: u64) {
        let directory = self.layout.generations();
        let Held::Yes(lease) = Lease::create(&mut System, &directory, number(generation)).unwrap() else {
            panic!("nobody knows the lease")
        };
        let owner = Owner {
            installation: Id::parse(INSTALLATION).unwrap(),
            generation: number(generation),
            specification_digest: target(self.kind, generation).specification_digest,
        };
        lease.record(&mut System, &directory, &owner).unwrap();
    }

    pub(crate) fn prepare(&self, generation: u64) -> Result<Vec<String>, Failure> {
        self.prepare_on(&mut System, generation)
    }

    pub(crate) fn prepare_on(&self, disk: &mut dyn Disk, generation: u64) -> Result<Vec<String>, Failure> {
        self.run(disk, generation, |run| Preparing::new(run).finish())
    }

    pub(crate) fn collect(&self, generation: u64) -> Result<Vec<String>, Failure> {
        self.collect_on(&mut System, generation)
    }

    pub(crate) fn collect_on(&self, disk: &mut dyn Disk, generation: u64) -> Result<Vec<String>, Failure> {
        self.run(disk, generation, |run| Collecting::new(run).finish())
    }

    fn run(
        &self,
        disk: &mut dyn Disk,
        generation: u64,
        mut act: impl FnMut(Run<'_>) -> Result<(), Failure>,
    ) -> Result<Vec<String>, Failure> {
        let mut tries = 0..BUSY_TRIES;
        loop {
            let (mut core, mut releases, mut engine) = (self.world(), self.world(), self.world());
            let outside = Outside { core: &mut core, releases: &mut releases, engine: &mut engine };
            match act(Run::new(&self.layout, target(self.kind, generation), disk, outside)) {
                Err(Failure::Refused(Refusal { cause: Cause::Busy, .. })) if tries.next().is_some() => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                done => return done.map(|()| [core.asked, releases.asked, engine.asked].concat()),
            }
        }
    }

    pub(crate) fn base(&self) -> Configuration {
        Configuration::parse(&std::fs::read(self.layout.base()).unwrap()).unwrap()
    }

    pub(crate) fn records(&self) -> Records {
        Records::read(&self.layout.generations(), &self.base()).unwrap()
    }

    /// Where a generation stands for a start.
    pub(crate) fn local(&self, generation: u64) -> Local {
        let locals = self.records().locals().unwrap();
        locals.get(&number(generation)).copied().unwrap_or(Local::Nothing)
    }

    /// Whether a helper could work with the generation now.
    pub(crate) fn admits(&self, generation: u64) -> bool {
        let lease = self.path(&format!("{generation}.lease"));
        let busy = || {
            let opened = std::fs::File::open(&lease);
            opened.is_ok_and(|lease| matches!(lease.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
        };
        for _ in (0..BUSY_TRIES).take_while(|_| busy()) {
            std::thread::sleep(BUSY_PAUSE);
        }
        HelperLease::acquire(self.layout.root(), target(self.kind, generation)).is_ok()
    }

    /// Everything below ROOT and the stores, with content, mode and inode.
    pub(crate) fn everything(&self) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
        let home = self.layout.root().ancestors().nth(3).unwrap().join(".oac");
        let mut found = BTreeMap::new();
        walk(&home, &mut found);
        found
    }
}

fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, (u32, u64, Vec<u8>)>) {
    for name in crate::testing::files_below(folder) {
        let path = folder.join(name);
        let metadata = path.symlink_metadata().unwrap();
        let content = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path.clone(), (metadata.mode(), metadata.ino(), content));
        if metadata.is_dir() {
            walk(&path, found);
        }
    }
}
