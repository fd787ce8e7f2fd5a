//! What a preparer asks beyond the files of its installation: a Core, releases and engines of a folder.

use std::path::{Path, PathBuf};

use palisade_core::deployment::contract::{Provider as Kind, RuntimeMember};
use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::Commit;
use palisade_core::distribution::catalogue::{Catalogue, Declaration, FIRMWARE, IMAGE, IMAGE_UNPACKED, MSB, SECCOMP};
use palisade_core::distribution::manifest::{self, Artifact, MICROSANDBOX_VERSION, Manifest, Microsandbox, PLATFORM};
use palisade_core::generation::assignment::Assignment;
use palisade_core::generation::configuration::Configuration;
use palisade_core::units::{Digest, Generation, Id};
use palisade_core::wire::payload::GenerationReference;
use serde_json::{Value, json};

use super::number;
use crate::download::{DownloadError, tests as download};
use crate::files::disk::Disk;
use crate::generations::engines::Engines;
use crate::generations::outside::{Authority, Engine, Failure, Found, Releases};
use crate::generations::setup::Setup;
use crate::testing::INSTALLATION;

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

    /// Whatever a name of an image of this world has in it.
    pub(crate) fn images_with(&self, part: &str) -> Vec<String> {
        let names = crate::testing::files_below(&self.folder.join("images"));
        names.into_iter().filter(|name| name.contains(part)).collect()
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

/// What a file of a release holds. The program of microsandbox is one that works on a [`World`].
pub(crate) fn content(source: &str, path: &str) -> String {
    if path == MSB { format!("#!/bin/sh\n# {path} of {source}\n{SCRIPT}") } else { format!("{path} of {source}") }
}

/// `msb` as far as a preparer asks it, on the folder of the world beside the stores. It says and does what the real one
/// was seen to (`palisade_core::microsandbox::msb`), the tag that a loaded archive brings included.
const SCRIPT: &str = include_str!("msb.sh");
/// In a world with this, the script is really asked; elsewhere it is only played.
pub(super) const SCRIPTED: &str = "scripted";

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
        let content = content(&manifest.source_commit.as_str()[..1], path);
        Ok(download::bring(disk, release, path, content.as_bytes())?)
    }

    fn unpack(&mut self, disk: &mut dyn Disk, _: &Manifest, release: &Path) -> Result<(), Failure> {
        Ok(download::unpack(disk, release, IMAGE_UNPACKED, b"archive")?)
    }
}

impl Engine for World {
    fn image(&mut self, setup: &Setup, specification: &Specification) -> Found {
        if let Some(found) = self.really(|engines| engines.image(setup, specification)) {
            return found;
        }
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
        if let Some(imported) = self.really(|engines| engines.import(setup, manifest)) {
            return imported;
        }
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

    fn images(&mut self, setup: &Setup) -> Option<Vec<String>> {
        self.asked.push("images".to_owned());
        if let Some(images) = self.really(|engines| engines.images(setup)) {
            return images;
        }
        let names = crate::testing::files_below(&self.folder.join("images"));
        (!self.fails("engine") && !names.iter().any(|name| !name.contains("@sha256:"))).then_some(names)
    }

    fn remove_image(&mut self, setup: &Setup, image: &str) -> Result<bool, Failure> {
        self.asked.push("remove image".to_owned());
        if let Some(removed) = self.really(|engines| engines.remove_image(setup, image)) {
            return removed;
        }
        if self.fails("in-use") {
            return Ok(false);
        }
        self.take(&format!("images/{image}"));
        Ok(true)
    }

    fn has_sandboxes(&mut self, setup: &Setup) -> Option<bool> {
        self.asked.push("sandboxes".to_owned());
        if let Some(told) = self.really(|engines| engines.has_sandboxes(setup)) {
            return told;
        }
        (!self.fails("engine")).then(|| self.fails("sandboxes"))
    }
}

impl World {
    /// Asks microsandbox's program as a preparer on a host does, with the real runner; `None` where it is only played.
    fn really<T: Send>(&self, ask: impl FnOnce(&mut Engines<'_>) -> T + Send) -> Option<T> {
        if self.kind != Kind::Microsandbox || !self.has(SCRIPTED) {
            return None;
        }
        let asked = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            ask(&mut Engines { runtime: &runtime })
        };
        // Some tests run inside of a runtime already.
        std::thread::scope(|scope| Some(scope.spawn(asked).join().unwrap()))
    }

    /// The engine of docker calls images by their manifest; the store of microsandbox by their reference.
    fn image_name(&self, _: &Setup, specification: &Specification) -> String {
        let member = match self.kind {
            Kind::Docker | Kind::E2b => RuntimeMember::ImageManifestDigest,
            Kind::Microsandbox => RuntimeMember::MicrosandboxRef,
        };
        specification.runtime(member).unwrap().to_owned()
    }
}
