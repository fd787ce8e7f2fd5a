//! Collection: takes the steps that the core decides, under a drop grant (node-host §3.6-3.8).

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use palisade_core::deployment::contract::{Provider as Kind, RuntimeMember};
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{
    self, Authority, CollectStep, Collecting as Journal, Collection, Damage, Difference, Entry, Executable, Inventory,
    Local, Native, Originals, Owner, Release, Sandboxes, Shared, shared,
};

use super::layout::name;
use super::originals;
use super::outside::Failure;
use super::run::{Run, Scene, retained};
use super::setup::{Home, Setup};
use super::store;
use crate::files::look::look;
use crate::files::{mounts, writer};

/// More steps than any collection has.
const STEPS_MAX: usize = 32;

/// A collection under way.
pub(crate) struct Collecting<'a> {
    run: Run<'a>,
    /// The engine refused to remove the image.
    in_use: bool,
}

/// What may be removed.
struct Stage {
    setup: Option<Setup>,
    image: String,
    originals: Vec<PathBuf>,
}

impl<'a> Collecting<'a> {
    pub(crate) fn new(run: Run<'a>) -> Self {
        Self { run, in_use: false }
    }

    /// Takes one step after the other until nothing is left to do.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        self.run.lock_installation()?;
        for _ in 0..STEPS_MAX {
            let scene = self.run.look()?;
            let (facts, stage) = self.facts(&scene);
            match recovery::collect(&facts)? {
                CollectStep::Done => return Ok(()),
                step => {
                    tracing::debug!(generation = %self.run.reference.generation, ?step, "collecting");
                    self.take(step, &scene, &stage)?;
                }
            }
        }
        Err(Failure::Endless("collection", STEPS_MAX))
    }

    fn facts(&mut self, scene: &Scene) -> (Collection, Stage) {
        let mut stage = Stage { setup: None, image: String::new(), originals: Vec::new() };
        let mut facts = Collection {
            claim: scene.claim,
            journals: scene.known.recorded.journals,
            surroundings: scene.surroundings(),
            grant: self.grant(scene),
            release: Release::Gone,
            originals: Originals::Gone,
            native: Native::Docker,
        };
        let Some(configuration) = scene.known.configuration() else { return (facts, stage) };
        let Ok(setup) = Setup::of(self.run.layout, &scene.base, configuration) else {
            // What an operator set up by hand somewhere else is the operator's; docker holds nothing else of it.
            let by_hand = facts.journals.enrolled && configuration.envelope.provider() == Kind::Docker;
            facts.release = if by_hand { Release::Gone } else { Release::Damaged(Damage::Link) };
            return (facts, stage);
        };
        let all = self.run.retained(scene, &configuration.envelope.specification, false);
        let others: Vec<_> = all
            .iter()
            .map(|(number, local, other, setup, _)| retained(*number, *local, other, setup.as_ref(), false))
            .collect();
        let leaving = retained(self.run.reference.generation, Local::Configured, configuration, Some(&setup), false);
        let common = shared(&leaving, &others);
        if setup.is_original(self.run.layout) {
            let setups = all
                .iter()
                .filter(|(_, local, ..)| *local != Local::Dropped)
                .filter_map(|(_, _, _, setup, _)| setup.as_ref());
            let (found, files) =
                originals::look_at(self.run.layout, &scene.base, &setup, setups, &mut self.run.contents);
            (facts.originals, stage.originals) = (found, files);
        } else {
            facts.release = release(&setup, common);
        }
        facts.native = self.native(scene, configuration, &setup, common);
        let image = configuration.envelope.specification.runtime(RuntimeMember::MicrosandboxRef);
        stage.image = image.unwrap_or_default().into();
        stage.setup = Some(setup);
        (facts, stage)
    }

    /// The grant names what is recorded, or it is no grant for this generation.
    fn grant(&self, scene: &Scene) -> Authority {
        let granted = self.run.reference.specification_digest;
        match scene.known.recorded.specification_digest {
            Some(known) if known != granted => Authority::Differs(Difference::Specification),
            Some(_) | None => Authority::Agrees,
        }
    }

    fn native(&mut self, scene: &Scene, configuration: &Configuration, setup: &Setup, common: Shared) -> Native {
        let Home::Store(path) = &setup.home else { return Native::Docker };
        // Once the native part is done, no native command runs at all; a plan that was never imported has none either.
        let done = scene.known.recorded.journals.collecting.ours().is_none_or(|journal| journal.native_complete);
        let never = scene.known.plan.as_ref().is_some_and(|plan| !plan.import_started)
            && scene.known.recorded.configuration.is_none();
        let store = store::look(path, scene.base.envelope.installation);
        let executable = self.run.executable(setup, &configuration.envelope.specification);
        if done || never || executable != Executable::Verified || store != Entry::Ours(()) {
            let (image, sandboxes) = (Inventory::Unknown, Sandboxes::Unknown);
            return Native::Microsandbox { store, executable, image, sandboxes };
        }
        let specification = &configuration.envelope.specification;
        let image =
            self.image(setup, specification.runtime(RuntimeMember::MicrosandboxRef).unwrap_or_default(), common);
        let sandboxes = if common.store {
            Sandboxes::Shared
        } else {
            match self.run.outside.engine.has_sandboxes(setup) {
                Some(false) => Sandboxes::None,
                Some(true) => Sandboxes::Some,
                None => Sandboxes::Unknown,
            }
        };
        Native::Microsandbox { store, executable, image, sandboxes }
    }

    fn image(&mut self, setup: &Setup, image: &str, common: Shared) -> Inventory {
        if common.image {
            return Inventory::Shared;
        }
        match self.run.outside.engine.images(setup) {
            Some(images) if !images.iter().any(|listed| digest(listed) == digest(image)) => Inventory::Absent,
            Some(_) if self.in_use => Inventory::InUse,
            Some(_) => Inventory::Listed,
            None => Inventory::Unknown,
        }
    }

    fn take(&mut self, step: CollectStep, scene: &Scene, stage: &Stage) -> Result<(), Failure> {
        match step {
            CollectStep::LockInstallation => self.run.lock_installation(),
            CollectStep::LockLease => self.run.lock_lease(),
            CollectStep::Begin => self.journal(scene, false),
            CollectStep::CompleteNative => self.journal(scene, true),
            CollectStep::RemoveImage => {
                let setup = stage.setup.as_ref().expect("an image is listed by the store of a setup");
                self.in_use = !self.run.outside.engine.remove_image(setup, &stage.image)?;
                Ok(())
            }
            CollectStep::RemoveRelease => {
                let setup = stage.setup.as_ref().expect("a release is found by its setup");
                Ok(writer::remove_tree(self.run.disk, &setup.release)?)
            }
            CollectStep::RemoveOriginals => {
                for path in &stage.originals {
                    writer::remove(self.run.disk, path)?;
                }
                Ok(())
            }
            CollectStep::WriteDropped => {
                // An interrupted run may have removed some of the files, and this one only missed them.
                if let Some(setup) = &stage.setup {
                    self.run.settle_files(setup)?;
                }
                self.write("dropped", &owner(scene, self).dropped())
            }
            CollectStep::Done => Ok(()),
        }
    }

    fn journal(&mut self, scene: &Scene, native_complete: bool) -> Result<(), Failure> {
        let bytes = owner(scene, self).collecting(Journal { native_complete });
        self.write("collecting", &bytes)
    }

    fn write(&mut self, suffix: &str, bytes: &[u8]) -> Result<(), Failure> {
        let file = name(self.run.reference.generation, suffix);
        Ok(writer::record(self.run.disk, &self.run.layout.generations(), &file, bytes)?)
    }
}

fn owner(scene: &Scene, collecting: &Collecting<'_>) -> Owner {
    Owner {
        installation: scene.base.envelope.installation,
        generation: collecting.run.reference.generation,
        specification_digest: collecting.run.reference.specification_digest,
    }
}

/// The folder of a release that is not the enrolled one. Nothing behind a link or a mount is touched.
fn release(setup: &Setup, common: Shared) -> Release {
    match look(&setup.release, 0).borrow().directory() {
        Entry::Damaged(Damage::Link) => Release::Damaged(Damage::Link),
        _ if common.release => Release::Shared,
        Entry::Absent => Release::Gone,
        Entry::Damaged(damage) => Release::Damaged(damage),
        Entry::Foreign(_) => Release::Damaged(Damage::Content),
        Entry::Ours(()) => match mounts::at_or_below(&setup.release) {
            Ok(false) => Release::Present,
            Ok(true) => Release::Damaged(Damage::Mount),
            Err(_) => Release::Damaged(Damage::Unreadable),
        },
    }
}

/// The part of an image's name that decides.
fn digest(image: &str) -> &str {
    image.rsplit_once('@').map_or(image, |(_, digest)| digest)
}
