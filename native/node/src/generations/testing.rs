//! An installation for tests, in a temporary folder.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use palisade_core::deployment::contract::{Provider as Kind, RuntimeMember};
use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::Commit;
use palisade_core::distribution::catalogue::{Catalogue, Declaration, FIRMWARE, IMAGE, IMAGE_UNPACKED, MSB, SECCOMP};
use palisade_core::distribution::manifest::{self, Artifact, MICROSANDBOX_VERSION, Manifest, Microsandbox, PLATFORM};
use palisade_core::generation::assignment::Assignment;
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{Local, Owner};
use palisade_core::units::{Digest, Generation, Id};
use palisade_core::wire::payload::GenerationReference;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::collect::Collecting;
use super::layout::Layout;
use super::lease::{Held, HelperLease, Lease};
use super::outside::{Authority, Engine, Failure, Found, Outside, Releases};
use super::prepare::Preparing;
use super::records::Records;
use super::run::Run;
use super::setup::{Home, Setup};
use crate::download::DownloadError;
use crate::files::disk::{Disk, System};
use crate::files::writer;
use crate::testing::{INSTALLATION, configuration};

/// ROOT of a node that was enrolled with generation 3.
pub(crate) struct Place {
    _folder: TempDir,
    pub(crate) layout: Layout,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        writer::record(&mut System, folder.path(), Layout::BASE, &numbered(3).to_bytes()).unwrap();
        writer::ensure_private_directories(&mut System, folder.path(), &layout.generations()).unwrap();
        Self { _folder: folder, layout }
    }

    /// One that has the lease of its enrolled generation, as an installer leaves it.
    pub(crate) fn enrolled() -> Self {
        let place = Self::new();
        place.lease(3);
        place
    }

    /// Makes a lease with its record.
    pub(crate) fn lease(&self, generation: u64) {
        let directory = self.layout.generations();
        let Held::Yes(lease) = Lease::create(&mut System, &directory, number(generation)).unwrap() else {
            panic!("nobody knows the lease")
        };
        lease.record(&mut System, &directory, &owner(generation)).unwrap();
    }

    /// Where a file of `generations/` is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.layout.generations().join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: &[u8]) {
        writer::record(&mut System, &self.layout.generations(), name, contents).unwrap();
    }
}

pub(crate) fn number(generation: u64) -> Generation {
    Generation::new(generation).unwrap()
}

/// The test's configuration under another number.
pub(crate) fn numbered(generation: u64) -> Configuration {
    let mut document = configuration();
    document["generation"] = json!(generation);
    Configuration::parse(document.to_string().as_bytes()).unwrap()
}

pub(crate) fn owner(generation: u64) -> Owner {
    Owner::of(&numbered(generation).envelope)
}

pub(crate) fn reference(generation: u64) -> GenerationReference {
    GenerationReference { generation: number(generation), specification_digest: owner(generation).specification_digest }
}

/// One function of this test program as a process of its own. `role` is the path of an ignored test.
pub(crate) fn process(role: &str, arguments: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--ignored", "--nocapture"]);
    command.envs(arguments.iter().copied());
    command
}

/// What [`process`] was given.
pub(crate) fn argument(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is given by the test that starts this process"))
}

/// Everything beyond the files of an installation, in a folder beside it, so that it outlives a killed process.
pub(crate) struct World {
    folder: PathBuf,
    pub(crate) kind: Kind,
    /// What was asked of Core, the releases and the engine, in order.
    pub(crate) asked: Vec<String>,
}

/// Sources of the releases that this world has.
pub(crate) const SOURCES: [&str; 2] = ["a", "1"];

impl World {
    pub(crate) fn new(folder: &Path, kind: Kind) -> Self {
        for place in ["images", "networks"] {
            std::fs::create_dir_all(folder.join(place)).unwrap();
        }
        Self { folder: folder.to_owned(), kind, asked: Vec::new() }
    }

    pub(crate) fn has(&self, thing: &str) -> bool {
        self.folder.join(thing).exists()
    }

    pub(crate) fn put(&self, thing: &str) {
        crate::testing::write(self.folder.join(thing), "");
    }

    pub(crate) fn take(&self, thing: &str) {
        std::fs::remove_file(self.folder.join(thing)).unwrap();
    }

    /// Something that fails from now on: `core`, `releases`, `engine`, `in-use`, `sandboxes`.
    pub(crate) fn fails(&self, thing: &str) -> bool {
        self.has(&format!("fails-{thing}"))
    }

    fn require(&self, thing: &str, failure: Failure) -> Result<(), Failure> {
        if self.fails(thing) { Err(failure) } else { Ok(()) }
    }
}

/// Generation 3 and 4 have the first source, 5 the second; all have other sizes.
pub(crate) fn specification(kind: Kind, generation: u64) -> Value {
    let source = SOURCES[usize::from(generation >= 5)];
    let hex = |text: &str| Digest::of(text.as_bytes()).to_string();
    let mut resources = json!({"cpus": 2, "memory_mib": 4096 + generation});
    if kind == Kind::Microsandbox {
        resources["root_disk_mib"] = json!(4096);
        resources["environment_disk_mib"] = json!(4096);
    }
    json!({
        "resources": resources,
        "runtime": {
            "source_commit": source.repeat(40),
            "image_id": format!("sha256:{}", hex(&format!("{source} image"))),
            "image_manifest_digest": format!("sha256:{}", hex(&format!("{source} manifest"))),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", hex(&format!("{source} ref"))),
            "runtime_sha256": hex(&content(source, MSB)),
            "firmware_sha256": hex(&content(source, FIRMWARE)),
        },
    })
}

/// What a file of a release holds.
pub(crate) fn content(source: &str, path: &str) -> String {
    format!("{path} of {source}")
}

/// What an installer writes for the enrolled generation 3, whose files stand below `root`.
pub(crate) fn enrolled(kind: Kind, root: &Path, home: &Path) -> Configuration {
    let native = match kind {
        Kind::Docker | Kind::E2b => json!({
            "host": "unix:///var/run/docker.sock",
            "image": specification(kind, 3)["runtime"]["image_id"],
            "network": "oac-node-network",
            "seccomp_file": root.join(SECCOMP),
        }),
        Kind::Microsandbox => {
            let name = &Digest::of(INSTALLATION.as_bytes()).to_string()[..12];
            json!({
                "helper_path": root.join("native/bin/oac-microsandbox-provider"),
                "runtime_path": root.join(MSB),
                "firmware_path": root.join(FIRMWARE),
                "runtime_home": home.join(".oac/m").join(name),
                "network": {"default_egress": "allow", "default_ingress": "deny", "rules": []},
            })
        }
    };
    let document = json!({
        "installation_id": INSTALLATION, "provider": kind.name(), "core_url": "https://core.example/api/v1",
        "generation": 3, "specification": specification(kind, 3), "native": native,
    });
    Configuration::parse(document.to_string().as_bytes()).unwrap()
}

/// The generation as Core names it.
pub(crate) fn target(kind: Kind, generation: u64) -> GenerationReference {
    let text = specification(kind, generation).to_string();
    let specification = Specification::parse(kind, text.as_bytes()).unwrap();
    GenerationReference { generation: number(generation), specification_digest: specification.digest() }
}

impl Authority for World {
    fn assignment(&mut self, generation: Generation) -> Result<Assignment, Failure> {
        self.asked.push(format!("core {generation}"));
        self.require("core", Failure::Core("no answer".to_owned()))?;
        let text = specification(self.kind, generation.get()).to_string();
        let specification = Specification::parse(self.kind, text.as_bytes()).unwrap();
        Ok(Assignment {
            max_active: 1,
            max_retained: 1,
            installation_id: Id::parse(INSTALLATION).unwrap(),
            provider: self.kind,
            core_url: "https://core.example".to_owned(),
            generation,
            specification_digest: specification.digest(),
            specification,
        })
    }
}

impl Releases for World {
    fn manifest(&mut self, specification: &Specification) -> Result<Manifest, Failure> {
        self.asked.push("manifest".to_owned());
        self.require("releases", Failure::Download(DownloadError::Mismatch("a test".to_owned())))?;
        let member = |member| specification.runtime(member).unwrap().to_owned();
        let commit = Commit::parse(&member(RuntimeMember::SourceCommit)).unwrap();
        let source = &commit.as_str()[..1];
        let artifact = |declared: &Declaration<'_>| {
            let content = content(source, declared.path);
            let unpacked = (declared.path == IMAGE).then_some(7);
            let artifact = Artifact {
                filename: manifest::filename(&commit, declared),
                sha256: Digest::of(content.as_bytes()),
                size: content.len() as u64,
                unpacked_sha256: unpacked.map(|_| Digest::of(b"archive")),
                unpacked_size: unpacked,
            };
            (declared.path.to_owned(), artifact)
        };
        let manifest = Manifest {
            artifact_base_url: String::new(),
            artifacts: Catalogue::bundled().all().values().map(artifact).collect(),
            image_manifest_digests: [("runtime".to_owned(), member(RuntimeMember::ImageManifestDigest))].into(),
            images: [("runtime".to_owned(), member(RuntimeMember::ImageId))].into(),
            microsandbox: Microsandbox {
                firmware_sha256: Digest::of(content(source, FIRMWARE).as_bytes()),
                runtime_sha256: Digest::of(content(source, MSB).as_bytes()),
                version: MICROSANDBOX_VERSION.to_owned(),
            },
            platform: PLATFORM.to_owned(),
            runtime_ref: member(RuntimeMember::MicrosandboxRef),
            source_tree: commit.clone(),
            source_commit: commit,
        };
        manifest.check().unwrap();
        assert_eq!(manifest.differs_from(specification), None);
        Ok(manifest)
    }

    fn fetch(&mut self, disk: &mut dyn Disk, manifest: &Manifest, path: &str, release: &Path) -> Result<(), Failure> {
        self.asked.push(format!("fetch {path}"));
        self.require("releases", Failure::Download(DownloadError::Mismatch("a test".to_owned())))?;
        let target = release.join(path);
        assert!(!target.exists(), "what is there is never fetched: {path}");
        let folder = target.parent().unwrap();
        writer::ensure_private_directories(disk, release, folder)?;
        let content = content(&manifest.source_commit.as_str()[..1], path);
        let file = target.file_name().unwrap().to_str().unwrap();
        let partial = format!("{file}.download");
        writer::replace(disk, folder, &partial, &writer::partial(&partial), content.as_bytes())?;
        let mode = if path.starts_with("native/") { 0o700 } else { 0o600 };
        Ok(writer::publish(disk, &folder.join(&partial), &target, mode)?)
    }
}

impl Engine for World {
    fn image(&mut self, setup: &Setup, specification: &Specification) -> Found {
        let image = self.image_name(setup, specification);
        match (self.fails("engine"), self.has(&format!("images/{image}")), self.has("images/wrong")) {
            (true, ..) => Found::Unknown,
            (false, _, true) => Found::Other,
            (false, true, false) => Found::Image(image),
            (false, false, false) => Found::Nothing,
        }
    }

    fn has_network(&mut self, _: &Setup, name: &str) -> Result<bool, Failure> {
        Ok(self.has(&format!("networks/{name}")))
    }

    fn make_network(&mut self, _: &Setup, name: &str) -> Result<(), Failure> {
        self.asked.push("network".to_owned());
        self.put(&format!("networks/{name}"));
        Ok(())
    }

    fn import(&mut self, setup: &Setup, manifest: &Manifest) -> Result<(), Failure> {
        self.asked.push("import".to_owned());
        self.require("engine", Failure::Engine("no answer".to_owned()))?;
        let source = &manifest.source_commit.as_str()[..1];
        assert_eq!(std::fs::read_to_string(setup.release.join(IMAGE)).unwrap(), content(source, IMAGE));
        let image = match setup.kind {
            Kind::Docker | Kind::E2b => &manifest.image_manifest_digests["runtime"],
            Kind::Microsandbox => &manifest.runtime_ref,
        };
        self.put(&format!("images/{image}"));
        Ok(())
    }

    fn images(&mut self, _: &Setup) -> Option<Vec<String>> {
        self.asked.push("images".to_owned());
        let names = crate::testing::files_below(&self.folder.join("images"));
        (!self.fails("engine") && !names.iter().any(|name| !name.contains("@sha256:"))).then_some(names)
    }

    fn remove_image(&mut self, _: &Setup, image: &str) -> Result<bool, Failure> {
        self.asked.push("remove image".to_owned());
        if self.fails("in-use") {
            return Ok(false);
        }
        self.take(&format!("images/{image}"));
        Ok(true)
    }

    fn has_sandboxes(&mut self, _: &Setup) -> Option<bool> {
        self.asked.push("sandboxes".to_owned());
        (!self.fails("engine")).then(|| self.fails("sandboxes"))
    }
}

impl World {
    /// The engine of docker calls images by their manifest; the store of microsandbox by their reference.
    fn image_name(&self, _: &Setup, specification: &Specification) -> String {
        let member = match self.kind {
            Kind::Docker | Kind::E2b => RuntimeMember::ImageManifestDigest,
            Kind::Microsandbox => RuntimeMember::MicrosandboxRef,
        };
        specification.runtime(member).unwrap().to_owned()
    }
}

/// An installation with its world: what a preparer has before it.
pub(crate) struct Site {
    /// Removed with this, by whoever made it.
    _folder: Option<TempDir>,
    pub(crate) layout: Layout,
    pub(crate) kind: Kind,
}

impl Site {
    /// A node that was installed with generation 3: lease, files, their record, network or store, and image.
    pub(crate) fn new(kind: Kind) -> Self {
        // A store's path has at most 48 bytes. Memory will do: what a disk may lose is taken back by the test.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory } else { Path::new("/tmp") };
        let folder = tempfile::Builder::new().prefix("s").rand_bytes(4).tempdir_in(place).unwrap();
        let site = Self { layout: Layout::new(&folder.path().join(".oac/nodes/n")), kind, _folder: None };
        let root = site.root();
        writer::ensure_private_directories(&mut System, folder.path(), &site.layout.generations()).unwrap();
        writer::ensure_private_directory(&mut System, &folder.path().join("attic")).unwrap();
        let base = enrolled(kind, &root, folder.path());
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
            Home::Store(path) => super::store::make(&mut System, path, base.envelope.installation).unwrap(),
        }
        // The engine names docker's image by its manifest, and the configuration has that name.
        let resolved =
            super::setup::resolved(&base, base.envelope.specification.runtime(RuntimeMember::ImageManifestDigest));
        if kind == Kind::Docker {
            writer::record(&mut System, &root, Layout::BASE, &resolved.to_bytes()).unwrap();
        }
        Self { _folder: Some(folder), ..site }
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
        act: impl FnOnce(Run<'_>) -> Result<(), Failure>,
    ) -> Result<Vec<String>, Failure> {
        let (mut core, mut releases, mut engine) = (self.world(), self.world(), self.world());
        let outside = Outside { core: &mut core, releases: &mut releases, engine: &mut engine };
        act(Run::new(&self.layout, target(self.kind, generation), disk, outside))?;
        Ok([core.asked, releases.asked, engine.asked].concat())
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
