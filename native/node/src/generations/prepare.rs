//! Preparation and repair: takes the steps that the core decides (node-host §3.2, §3.4).

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use palisade_core::deployment::contract::Provider as Kind;
use palisade_core::distribution::catalogue::{Declaration, IMAGE, IMAGE_UNPACKED, Role};
use palisade_core::distribution::manifest::Manifest;
use palisade_core::generation::assignment::{Assignment, Expected};
use palisade_core::generation::configuration::{Configuration, Envelope};
use palisade_core::generation::recovery::{
    self, Authority, Damage, Difference, Files, Home, Image, Plan, Preparation, PrepareStep, reusable,
};
use palisade_core::limits::METADATA_MAX_BYTES;

use super::content::{Content, exists};
use super::layout::name;
use super::originals;
use super::outside::{Failure, Found};
use super::run::{Run, Scene, retained};
use super::setup::{self, Setup};
use super::store;
use crate::files::look::look;
use crate::files::writer;

/// More steps than any preparation has.
const STEPS_MAX: usize = 64;
/// The name of a saved manifest in the folder of its release.
const MANIFEST: &str = "manifest.json";

/// A preparation or repair under way.
pub(crate) struct Preparing<'a> {
    run: Run<'a>,
    core: Authority,
    assignment: Option<Assignment>,
    manifest: Option<Manifest>,
}

/// What the provider's side of a look has found.
struct Stage {
    configuration: Configuration,
    setup: Setup,
    missing: Vec<&'static str>,
    image: Option<String>,
}

impl<'a> Preparing<'a> {
    pub(crate) fn new(run: Run<'a>) -> Self {
        Self { run, core: Authority::Unasked, assignment: None, manifest: None }
    }

    /// Takes one step after the other until the generation can be loaded.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        self.run.lock_installation()?;
        for _ in 0..STEPS_MAX {
            let scene = self.run.look()?;
            let (facts, stage) = self.facts(&scene)?;
            match recovery::prepare(&facts)? {
                PrepareStep::Load => return Ok(()),
                step => {
                    tracing::debug!(generation = %self.run.reference.generation, ?step, "preparing");
                    self.take(step, &scene, stage)?;
                }
            }
        }
        Err(Failure::Endless("preparation", STEPS_MAX))
    }

    fn facts(&mut self, scene: &Scene) -> Result<(Preparation, Option<Stage>), Failure> {
        let mut facts = Preparation {
            claim: scene.claim,
            journals: scene.known.recorded.journals,
            surroundings: scene.surroundings(),
            core: self.core,
            // Nothing of this is looked at before Core agreed, and nothing is there before a plan is.
            files: Files::Missing,
            home: Home::Network(false),
            image: Image::Absent,
        };
        let Some(configuration) = scene.known.configuration().filter(|_| self.core == Authority::Agrees) else {
            return Ok((facts, None));
        };
        let setup = Setup::of(self.run.layout, &scene.base, configuration)?;
        let specification = &configuration.envelope.specification;
        let found = self.run.image(scene, &setup, specification);
        facts.image = judge(&found, &setup, scene.known.recorded.configuration.is_some());
        facts.home = match &setup.home {
            setup::Home::Network(name) => Home::Network(self.run.outside.engine.has_network(&setup, name)?),
            setup::Home::Store(path) => Home::Store(store::look(path, scene.base.envelope.installation)),
        };
        let (files, missing) = self.files(scene, configuration, &setup, facts.image == Image::Absent)?;
        facts.files = files;
        let image = match found {
            Found::Image(name) => Some(name),
            Found::Nothing | Found::Other | Found::Unknown => None,
        };
        Ok((facts, Some(Stage { configuration: configuration.clone(), setup, missing, image })))
    }

    /// Every file that is there is verified before one that is not is brought.
    fn files(
        &mut self,
        scene: &Scene,
        configuration: &Configuration,
        setup: &Setup,
        with_image: bool,
    ) -> Result<(Files, Vec<&'static str>), Failure> {
        let mut declared = setup.files();
        declared.sort_by_key(|one| one.role == Role::Image);
        let (there, not_there): (Vec<_>, Vec<_>) =
            declared.into_iter().partition(|one| exists(&setup.release.join(one.path)));
        let needed = not_there.into_iter().filter(|one| with_image || one.role != Role::Image);
        let missing: Vec<_> = needed.map(|one| one.path).collect();
        let saved = match saved(&setup.release, configuration) {
            Ok(saved) => saved,
            Err(damage) => return Ok((Files::Damaged(damage), missing)),
        };
        let recorded =
            setup.is_original(self.run.layout) && originals::recorded(self.run.layout, &scene.base).is_some();
        let listed = saved.is_some() || recorded;
        let manifest = match saved {
            Some(manifest) => Some(manifest),
            // Nothing is missing: what the installer recorded, or a generation that serves already, is enough.
            None if missing.is_empty() && (recorded || scene.known.plan.is_none()) => None,
            None => Some(self.manifest(configuration)?),
        };
        if let Some(files) = self.verify(setup, &there, manifest.as_ref(), &scene.base) {
            return Ok((files, missing));
        }
        self.manifest = manifest.or(self.manifest.take());
        let files = match (missing.is_empty(), listed) {
            (false, _) => Files::Missing,
            (true, true) => Files::Whole,
            (true, false) => Files::Unlisted,
        };
        Ok((files, missing))
    }

    /// The first thing that is wrong with a file that is there.
    fn verify(
        &mut self,
        setup: &Setup,
        there: &[Declaration<'_>],
        manifest: Option<&Manifest>,
        base: &Configuration,
    ) -> Option<Files> {
        let recorded = setup.is_original(self.run.layout).then(|| originals::recorded(self.run.layout, base)).flatten();
        let mut conflict = None;
        for declared in there {
            let expected = match manifest {
                Some(manifest) => manifest.artifacts.get(declared.path).map(|artifact| artifact.sha256),
                None => recorded.as_ref().and_then(|recorded| recorded.digest(declared.path)),
            };
            match (self.run.contents.of(&setup.release.join(declared.path)), expected) {
                (Content::Damaged(damage), _) => return Some(Files::Damaged(damage)),
                (Content::File(digest, _), Some(expected)) if digest != expected => conflict = Some(Files::Conflict),
                (Content::File(..) | Content::Absent, _) => {}
            }
        }
        conflict
    }

    /// The manifest of the release, from where releases come; asked for once.
    fn manifest(&mut self, configuration: &Configuration) -> Result<Manifest, Failure> {
        match &self.manifest {
            Some(manifest) => Ok(manifest.clone()),
            None => self.run.outside.releases.manifest(&configuration.envelope.specification),
        }
    }

    fn take(&mut self, step: PrepareStep, scene: &Scene, stage: Option<Stage>) -> Result<(), Failure> {
        match step {
            PrepareStep::LockInstallation => self.run.lock_installation(),
            PrepareStep::CreateDirectory => {
                Ok(writer::ensure_private_directory(self.run.disk, &self.run.layout.generations())?)
            }
            PrepareStep::CreateLease => self.run.create_lease(),
            PrepareStep::RecordLease => self.run.record_lease(scene),
            PrepareStep::LockLease => self.run.lock_lease(),
            PrepareStep::AskCore => self.ask(scene),
            PrepareStep::WritePlan => {
                let configuration = self.plan(scene)?;
                self.write_plan(&Plan { import_started: false, configuration })
            }
            PrepareStep::Load => Ok(()),
            PrepareStep::Fetch
            | PrepareStep::WriteManifest
            | PrepareStep::MakeHome
            | PrepareStep::StartImport
            | PrepareStep::Import
            | PrepareStep::Publish
            | PrepareStep::ClearJournal => {
                self.work(step, scene, &stage.expect("these steps follow from what a plan or configuration names"))
            }
        }
    }

    fn work(&mut self, step: PrepareStep, scene: &Scene, stage: &Stage) -> Result<(), Failure> {
        let (setup, configuration) = (&stage.setup, &stage.configuration);
        match step {
            PrepareStep::Fetch => self.fetch(setup, configuration, stage.missing.first().copied()),
            PrepareStep::WriteManifest => {
                let manifest = self.manifest(configuration)?;
                Ok(writer::record(self.run.disk, &setup.release, MANIFEST, &manifest.to_bytes())?)
            }
            PrepareStep::MakeHome => match &setup.home {
                setup::Home::Network(name) => self.run.outside.engine.make_network(setup, name),
                setup::Home::Store(path) => Ok(store::make(self.run.disk, path, scene.base.envelope.installation)?),
            },
            PrepareStep::StartImport => {
                // What is imported must never stand in a store without its owner's record.
                if let setup::Home::Store(path) = &setup.home {
                    writer::settle(self.run.disk, path)?;
                }
                self.write_plan(&Plan { import_started: true, configuration: configuration.clone() })
            }
            PrepareStep::Import => {
                let manifest = self.manifest(configuration)?;
                if setup.kind == Kind::Microsandbox {
                    self.run.outside.releases.unpack(self.run.disk, &manifest, &setup.release)?;
                }
                self.run.outside.engine.import(setup, &manifest)?;
                match self.run.image(scene, setup, &configuration.envelope.specification) {
                    Found::Nothing => {
                        Err(Failure::Engine("it took the archive and has no image of the release".to_owned()))
                    }
                    Found::Image(_) | Found::Other | Found::Unknown => Ok(()),
                }
            }
            PrepareStep::Publish => {
                // What is final is published as it is; a plan gets the name that the engine has for its image.
                let last = match &scene.known.recorded.configuration {
                    Some(last) => last.clone(),
                    None => setup::resolved(configuration, stage.image.as_deref()),
                };
                let (directory, file) = (self.run.layout.generations(), self.file("json"));
                Ok(writer::record_once(self.run.disk, &directory, &file, &last.to_bytes())?)
            }
            PrepareStep::ClearJournal => self.clear(setup),
            PrepareStep::LockInstallation
            | PrepareStep::CreateDirectory
            | PrepareStep::CreateLease
            | PrepareStep::RecordLease
            | PrepareStep::LockLease
            | PrepareStep::AskCore
            | PrepareStep::WritePlan
            | PrepareStep::Load => Ok(()),
        }
    }

    /// Asks Core, once in a run, and compares its word with everything that is known.
    fn ask(&mut self, scene: &Scene) -> Result<(), Failure> {
        let generation = self.run.reference.generation;
        let assignment = self.run.outside.core.assignment(generation)?;
        let base = &scene.base.envelope;
        let difference = assignment.difference(&Expected {
            installation: base.installation,
            core_url: &base.core_url,
            provider: Some(base.provider()),
            requested: Some(generation),
            retained: None,
            may_change: true,
        });
        let known = scene.known.recorded.specification_digest.unwrap_or(self.run.reference.specification_digest);
        let digests = [known, self.run.reference.specification_digest];
        let another = digests.into_iter().any(|digest| digest != assignment.specification_digest);
        let difference = difference.or(another.then_some(Difference::Specification));
        self.core = difference.map_or(Authority::Agrees, Authority::Differs);
        self.assignment = Some(assignment);
        Ok(())
    }

    /// What the generation becomes: what it is already, what another one of the same release is, or something new.
    fn plan(&mut self, scene: &Scene) -> Result<Configuration, Failure> {
        if let Some(last) = &scene.known.recorded.configuration {
            return Ok(last.clone());
        }
        let specification = self.assignment.as_ref().map(|assignment| assignment.specification.clone());
        let specification = specification.expect("a plan is written only after Core agreed");
        let base = &scene.base.envelope;
        let envelope = Envelope { generation: self.run.reference.generation, specification, ..base.clone() };
        let all = self.run.retained(scene, &envelope.specification, true);
        let facts: Vec<_> = all
            .iter()
            .filter(|(_, _, _, setup, _)| setup.is_some())
            .map(|(generation, local, other, setup, image)| {
                retained(*generation, *local, other, setup.as_ref(), *image)
            })
            .collect();
        let same = reusable(&envelope.specification, &facts);
        if let Some((_, _, other, ..)) = all.iter().find(|(generation, ..)| Some(*generation) == same) {
            return Ok(setup::taken_over(envelope, other));
        }
        // A release that cannot be had, or is not the selected one, leaves nothing behind.
        let planned = setup::planned(self.run.layout, &scene.base, envelope)?;
        self.manifest = Some(self.manifest(&planned)?);
        Ok(planned)
    }

    fn write_plan(&mut self, plan: &Plan) -> Result<(), Failure> {
        let (directory, file) = (self.run.layout.generations(), self.file("preparing"));
        Ok(writer::record(self.run.disk, &directory, &file, &plan.to_bytes())?)
    }

    fn fetch(
        &mut self,
        setup: &Setup,
        configuration: &Configuration,
        path: Option<&'static str>,
    ) -> Result<(), Failure> {
        let manifest = self.manifest(configuration)?;
        let Some(path) = path else { return Ok(()) };
        writer::ensure_private_directories(self.run.disk, self.run.layout.root(), &setup.release)?;
        self.run.outside.releases.fetch(self.run.disk, &manifest, path, &setup.release)?;
        self.manifest = Some(manifest);
        Ok(())
    }

    /// The archives have served; then the journal goes, and with it the last sign of the preparation.
    fn clear(&mut self, setup: &Setup) -> Result<(), Failure> {
        let image = self.manifest.as_ref().and_then(|manifest| manifest.artifacts.get(IMAGE));
        let digests =
            [(IMAGE, image.map(|image| image.sha256)), (IMAGE_UNPACKED, image.and_then(|image| image.unpacked_sha256))];
        for (archive, expected) in digests {
            let path = setup.release.join(archive);
            if matches!(self.run.contents.of(&path), Content::File(digest, _) if Some(digest) == expected) {
                writer::remove(self.run.disk, &path)?;
            }
        }
        // An interrupted run may have brought some of the files, and this one only found them.
        self.run.settle_files(setup)?;
        let path = self.run.layout.generations().join(self.file("preparing"));
        Ok(writer::remove(self.run.disk, &path)?)
    }

    fn file(&self, suffix: &str) -> String {
        name(self.run.reference.generation, suffix)
    }
}

/// A final configuration names the image exactly; a plan has whatever the engine calls it.
fn judge(found: &Found, setup: &Setup, is_final: bool) -> Image {
    match found {
        Found::Image(name) if is_final && setup.image.as_ref().is_some_and(|image| image != name) => Image::Wrong,
        Found::Image(_) => Image::Available,
        Found::Nothing => Image::Absent,
        Found::Other => Image::Wrong,
        Found::Unknown => Image::Unknown,
    }
}

/// The manifest beside the files, which must be of exactly the selected release; `None` when there is none.
fn saved(release: &Path, configuration: &Configuration) -> Result<Option<Manifest>, Damage> {
    let path: PathBuf = release.join(MANIFEST);
    let seen = look(&path, METADATA_MAX_BYTES);
    let bytes = match seen.borrow().private(METADATA_MAX_BYTES) {
        recovery::Entry::Absent => return Ok(None),
        recovery::Entry::Damaged(damage) => return Err(damage),
        recovery::Entry::Foreign(_) => return Err(Damage::Content),
        recovery::Entry::Ours(bytes) => bytes,
    };
    let manifest = Manifest::parse(bytes).map_err(|_| Damage::Content)?;
    match manifest.differs_from(&configuration.envelope.specification) {
        Some(_) => Err(Damage::Content),
        None => Ok(Some(manifest)),
    }
}
