//! What preparation and collection have in common: they look at everything, take one step, and look again.

use std::collections::BTreeMap;

use palisade_core::deployment::contract::RuntimeMember;
use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::catalogue::MSB;
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{
    Cause, Claim, Damage, Difference, Entry, Executable, Expected, Local, Lock, Object, Owner, Refusal, Retained,
    Surroundings,
};
use palisade_core::limits::PLAN_MAX_BYTES;
use palisade_core::units::Generation;
use palisade_core::wire::payload::GenerationReference;

use super::content::{Content, Contents};
use super::layout::Layout;
use super::lease::{Held, InstallationLock, Lease, Mode};
use super::outside::{Failure, Found, Outside};
use super::records::{Known, Records};
use super::setup::{Home, Setup};
use super::store;
use crate::files::disk::Disk;
use crate::files::look::look;
use crate::files::writer;

/// One run of the preparer for one generation. What it holds is given back when it is dropped.
pub(crate) struct Run<'a> {
    pub(super) layout: &'a Layout,
    pub(super) reference: GenerationReference,
    pub(super) disk: &'a mut dyn Disk,
    pub(super) outside: Outside<'a>,
    pub(super) contents: Contents,
    installation: Held<InstallationLock>,
    pub(super) lease: Held<Lease>,
}

/// What one look at the installation has found.
pub(super) struct Scene {
    pub(super) base: Configuration,
    pub(super) records: Records,
    /// What is recorded of the run's generation.
    pub(super) known: Known,
    /// Where every other generation stands.
    pub(super) others: BTreeMap<Generation, Local>,
    pub(super) claim: Claim,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        layout: &'a Layout,
        reference: GenerationReference,
        disk: &'a mut dyn Disk,
        outside: Outside<'a>,
    ) -> Self {
        let contents = Contents::default();
        Self { layout, reference, disk, outside, contents, installation: Held::No, lease: Held::No }
    }

    /// The installation lock comes before any look at what it protects. What is looked at is durable: the last holder may
    /// have been killed before it synced, and no step may follow from what a loss of power takes back.
    pub(super) fn lock_installation(&mut self) -> Result<(), Failure> {
        self.installation = InstallationLock::take(self.layout.root(), Layout::LOCK)?;
        match self.installation.lock() {
            Lock::Held => self.settle(),
            Lock::Open | Lock::Busy => Err(refused(Object::InstallationLock, Cause::Busy)),
            Lock::Replaced => Err(refused(Object::InstallationLock, Cause::Damaged(Damage::Replaced))),
        }
    }

    fn settle(&mut self) -> Result<(), Failure> {
        let layout = self.layout;
        for directory in [layout.root().to_owned(), layout.releases(), layout.state(), layout.generations()] {
            writer::settle(self.disk, &directory)?;
        }
        Ok(())
    }

    /// Makes the files of a generation, and their removal, as durable as the record that is written next says.
    pub(super) fn settle_files(&mut self, setup: &Setup) -> Result<(), Failure> {
        for folder in setup.folders() {
            writer::settle(self.disk, &folder)?;
        }
        Ok(())
    }

    pub(super) fn lock_lease(&mut self) -> Result<(), Failure> {
        let directory = self.layout.generations();
        let opened = Lease::open(&directory, self.reference.generation, Mode::Exclusive);
        self.lease = opened.map_err(|error| crate::files::FileError::new(&directory, error))?;
        Ok(())
    }

    /// Makes the lease of a generation that nothing is known of.
    pub(super) fn create_lease(&mut self) -> Result<(), Failure> {
        let directory = self.layout.generations();
        self.lease = Lease::create(self.disk, &directory, self.reference.generation)?;
        Ok(())
    }

    /// Makes the lease that this run created durable, with its record.
    pub(super) fn record_lease(&mut self, scene: &Scene) -> Result<(), Failure> {
        if let Held::Yes(lease) = &self.lease {
            let owner = Owner {
                installation: scene.base.envelope.installation,
                generation: self.reference.generation,
                specification_digest: self.reference.specification_digest,
            };
            lease.record(self.disk, &self.layout.generations(), &owner)?;
        }
        Ok(())
    }

    /// Looks at everything that is recorded. A record of another generation that cannot be believed ends the run.
    pub(super) fn look(&self) -> Result<Scene, Failure> {
        let base = match look(&self.layout.base(), PLAN_MAX_BYTES).borrow().base() {
            Entry::Ours(base) => base,
            Entry::Absent => return Err(refused(Object::Base, Cause::Missing)),
            Entry::Damaged(damage) => return Err(refused(Object::Base, Cause::Damaged(damage))),
            Entry::Foreign(difference) => return Err(refused(Object::Base, Cause::Foreign(difference))),
        };
        let directory = self.layout.generations();
        let records = Records::read(&directory, &base)?;
        let generation = self.reference.generation;
        let others = records.others(generation)?;
        self.check_plans(&base, &records, &others)?;
        let known = records.known(generation);
        let expected = Expected {
            installation: base.envelope.installation,
            generation,
            specification_digest: known.recorded.specification_digest.or(Some(self.reference.specification_digest)),
        };
        let claim = self.lease.claim(self.installation.lock(), &directory, records.directory(), &expected);
        Ok(Scene { base, records, known, others, claim })
    }

    /// No plan of another generation may name anything outside of its release (node-host §3.5).
    fn check_plans(
        &self,
        base: &Configuration,
        records: &Records,
        others: &BTreeMap<Generation, Local>,
    ) -> Result<(), Failure> {
        let unfinished = others.iter().filter(|(_, local)| **local == Local::Unfinished);
        for (generation, _) in unfinished {
            let known = records.known(*generation);
            let sound =
                known.plan.as_ref().is_none_or(|plan| Setup::of(self.layout, base, &plan.configuration).is_ok());
            if !sound && Some(*generation) != Some(base.envelope.generation) {
                return Err(refused(Object::Others, Cause::Foreign(Difference::Native)));
            }
        }
        Ok(())
    }

    /// Every other generation of this host, with the setup that it was configured for; with `ask`, whether its image is
    /// there is asked for those that run the same release as `wanted`: once for each place that images are in.
    pub(super) fn retained(
        &mut self,
        scene: &Scene,
        wanted: &Specification,
        ask: bool,
    ) -> Vec<(Generation, Local, Configuration, Option<Setup>, bool)> {
        let mut retained = Vec::new();
        let mut asked: Vec<(Setup, bool)> = Vec::new();
        for (&generation, &local) in &scene.others {
            let Some(configuration) = scene.records.known(generation).configuration().cloned() else { continue };
            let setup = Setup::of(self.layout, &scene.base, &configuration).ok();
            let specification = &configuration.envelope.specification;
            let finished = ask && local == Local::Configured && same_release(wanted, specification);
            let available = setup.as_ref().filter(|_| finished).is_some_and(|setup| {
                if let Some((_, known)) = asked.iter().find(|(known, _)| known.keeps_images_with(setup)) {
                    return *known;
                }
                let available = matches!(self.image(scene, setup, specification), Found::Image(_));
                asked.push((setup.clone(), available));
                available
            });
            retained.push((generation, local, configuration, setup, available));
        }
        retained
    }
}

impl Run<'_> {
    /// Whether the engine has an image. Microsandbox's is a program of the release: without it nobody can be asked, an
    /// unverified one is not run, and a store that is not ours is not opened, nor made by the question.
    pub(super) fn image(&mut self, scene: &Scene, setup: &Setup, specification: &Specification) -> Found {
        if let Home::Store(path) = &setup.home {
            let ours = store::look(path, scene.base.envelope.installation) == Entry::Ours(());
            if !ours || self.executable(setup, specification) != Executable::Verified {
                return Found::Nothing;
            }
        }
        self.outside.engine.image(setup, specification)
    }

    /// The program of microsandbox.
    pub(super) fn executable(&mut self, setup: &Setup, specification: &Specification) -> Executable {
        let expected = specification.runtime(RuntimeMember::RuntimeSha256);
        match self.contents.of(&setup.release.join(MSB)) {
            Content::Absent => Executable::Missing,
            Content::File(digest, _) if expected == Some(&digest.to_string()) => Executable::Verified,
            Content::File(..) | Content::Damaged(_) => Executable::Conflict,
        }
    }
}

impl Scene {
    pub(super) fn surroundings(&self) -> Surroundings {
        let others = if self.others.is_empty() { Entry::Absent } else { Entry::Ours(()) };
        Surroundings { base: Entry::Ours(()), others }
    }
}

/// Whether two specifications select the same Runtime release.
fn same_release(one: &Specification, other: &Specification) -> bool {
    RuntimeMember::ALL.into_iter().all(|member| one.runtime(member) == other.runtime(member))
}

/// A generation for the core's questions about what is shared.
pub(super) fn retained<'a>(
    generation: Generation,
    local: Local,
    configuration: &'a Configuration,
    setup: Option<&'a Setup>,
    image_available: bool,
) -> Retained<'a> {
    let store = match setup.map(|setup| &setup.home) {
        Some(Home::Store(path)) => path.to_str().unwrap_or_default(),
        Some(Home::Network(_)) | None => "",
    };
    Retained { generation, local, specification: &configuration.envelope.specification, store, image_available }
}

pub(super) fn refused(object: Object, cause: Cause) -> Failure {
    Failure::Refused(Refusal { object, cause })
}
