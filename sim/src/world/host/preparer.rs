//! The preparer: a child process that looks, takes one durable step, and looks again. It may outlive its node.

use palisade_core::generation::recovery::{
    Authority, Claim, CollectStep, Collection, Difference, Entry, Executable, Home, Image, Inventory, Lock, Native,
    Object, Originals, Preparation, PrepareStep, Refusal, Sandboxes, Surroundings, collect, prepare,
};
use palisade_core::units::{Digest, Generation};
use palisade_core::wire::payload::Diagnostic;

use super::HostEvent;
use super::disk::{File, RELEASE_FILES};
use crate::coverage::names;
use crate::plan::{Party, Trap};
use crate::sabotage::Sabotage;
use crate::world::engine::EngineEvent;
use crate::world::{Event, World, note};

/// One run of the preparer.
#[derive(Debug)]
pub(crate) struct Run {
    /// The life of the process that started it.
    life: u32,
    pub(crate) action: Action,
    pub(crate) generation: Generation,
    digest: Digest,
    core: Authority,
    created: bool,
    locked: bool,
    lease: bool,
    /// A file that was changed and is not synced yet.
    dirty: Option<File>,
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Prepare,
    Collect,
}

impl World {
    pub(super) fn start_run(&mut self, host: usize, action: Action, generation: Generation, digest: Digest) {
        let life = self.hosts[host].life;
        self.hosts[host].next_run += 1;
        let number = self.hosts[host].next_run;
        let run = Run {
            life,
            action,
            generation,
            digest,
            core: Authority::Unasked,
            created: false,
            locked: false,
            lease: false,
            dirty: None,
        };
        note!(self, "host {host}: the preparer starts to {action:?} generation {generation}");
        self.hosts[host].runs.insert(number, run);
        self.run_later(host, number, 1);
    }

    fn run_later(&mut self, host: usize, number: u64, ms: u64) {
        self.queue.push(self.now + ms, Event::Engine(host, EngineEvent::Run(number)));
    }

    /// The run of that kind and generation is killed.
    pub(super) fn kill_run(&mut self, host: usize, action: Action, generation: Generation) {
        let life = self.hosts[host].life;
        let ours = |run: &Run| run.action == action && run.generation == generation && run.life == life;
        let number = self.hosts[host].runs.iter().find(|(_, run)| ours(run)).map(|(number, _)| *number);
        if let Some(number) = number {
            self.cover.hit("preparer killed");
            self.end_run(host, number, Err(Diagnostic::ProviderUnavailable));
        }
    }

    /// The node is gone: a run dies with it, or finishes alone.
    pub(super) fn orphan_runs(&mut self, host: usize, all: bool) {
        let numbers: Vec<u64> = self.hosts[host].runs.keys().copied().collect();
        for number in numbers {
            if all || self.luck.chance(500) {
                self.hosts[host].runs.remove(&number);
            } else {
                self.cover.hit("fault: preparer outlives its node");
            }
        }
    }

    /// One step of a run.
    pub(in crate::world) fn run_step(&mut self, host: usize, number: u64) {
        let Some(run) = self.hosts[host].runs.get_mut(&number) else { return };
        if let Some(file) = run.dirty.take() {
            self.hosts[host].disk.sync(file);
            self.effect(Party::Node(host), Trap::Wrote);
            if let File::Dropped(generation) = file {
                self.books.dropped_durable(host, generation.get());
            }
            return self.run_later(host, number, 1);
        }
        if self.hosts[host].disk_fails_until > self.now {
            self.cover.hit("fault: preparer's disk refuses");
            return self.end_run(host, number, Err(Diagnostic::ProviderUnavailable));
        }
        match self.hosts[host].runs[&number].action {
            Action::Prepare => self.prepare_step(host, number),
            Action::Collect => self.collect_step(host, number),
        }
    }

    fn claim(&self, host: usize, number: u64) -> Claim {
        let (host, run) = (&self.hosts[host], &self.hosts[host].runs[&number]);
        let taken = host.runs.iter().any(|(other, held)| *other != number && held.locked);
        let shared = host.engine.shares(run.generation);
        let careless = self.sabotage == Some(Sabotage::CollectionIgnoresHolds);
        let leased =
            host.runs.iter().any(|(other, held)| *other != number && held.lease && held.generation == run.generation);
        Claim {
            installation: lock(run.locked, taken),
            directory: host.disk.there(File::Directory),
            lease: host.disk.lease(run.generation, run.created),
            record: host.disk.there(File::Record(run.generation)),
            lock: lock(run.lease, leased || shared && !careless),
        }
    }

    fn surroundings(&self, host: usize, generation: Generation) -> Surroundings {
        Surroundings { base: Entry::Ours(()), others: self.hosts[host].disk.others(generation) }
    }

    fn prepare_step(&mut self, host: usize, number: u64) {
        let (generation, core) = (self.hosts[host].runs[&number].generation, self.hosts[host].runs[&number].core);
        let enrolled = self.hosts[host].identity.enrolled;
        let disk = &self.hosts[host].disk;
        let mut journals = disk.journals(generation, enrolled);
        if self.sabotage == Some(Sabotage::PreparerIgnoresDropped) {
            (journals.dropped, journals.collecting) = (Entry::Absent, Entry::Absent);
        }
        let facts = Preparation {
            claim: self.claim(host, number),
            journals,
            surroundings: self.surroundings(host, generation),
            core,
            files: disk.files(generation, enrolled),
            home: Home::Store(disk.there(File::Store)),
            image: match self.hosts[host].engine.image(generation, self.now) {
                None => Image::Unknown,
                Some(true) => Image::Available,
                Some(false) => Image::Absent,
            },
        };
        match prepare(&facts) {
            Ok(step) => {
                self.cover.hit(names::prepare_step(step));
                self.take_prepare_step(host, number, generation, step);
            }
            Err(refusal) => self.refuse_run(host, number, refusal),
        }
    }

    fn take_prepare_step(&mut self, host: usize, number: u64, generation: Generation, step: PrepareStep) {
        let fails = self.luck.chance(self.weather.failing_preparation / 4);
        if matches!(
            step,
            PrepareStep::WritePlan
                | PrepareStep::Fetch
                | PrepareStep::StartImport
                | PrepareStep::Import
                | PrepareStep::Publish
        ) {
            self.books.prepared(host, generation.get());
        }
        match step {
            PrepareStep::LockInstallation => return self.lock_installation(host, number),
            PrepareStep::LockLease => return self.hold(host, number, |run| run.lease = true),
            PrepareStep::CreateDirectory => self.put(host, number, File::Directory, 1),
            PrepareStep::CreateLease => {
                if let Some(run) = self.hosts[host].runs.get_mut(&number) {
                    (run.created, run.lease) = (true, true);
                }
                self.put(host, number, File::Lease(generation), 1);
            }
            PrepareStep::RecordLease => self.put(host, number, File::Record(generation), 1),
            PrepareStep::AskCore => return self.ask_core(host, number),
            PrepareStep::WritePlan => self.put(host, number, File::Preparing(generation), 0),
            PrepareStep::Fetch if fails => {
                self.cover.hit("fault: download failed");
                return self.end_run(host, number, Err(Diagnostic::RuntimeDownloadFailed));
            }
            PrepareStep::Fetch => {
                if generation == self.hosts[host].identity.enrolled {
                    self.put(host, number, File::Originals(generation), 1);
                } else {
                    let have = self.hosts[host].disk.read(File::Release(generation)).unwrap_or(0);
                    self.put(host, number, File::Release(generation), (have + 1).min(RELEASE_FILES));
                }
            }
            PrepareStep::WriteManifest => self.put(host, number, File::Manifest(generation), 1),
            PrepareStep::MakeHome => self.put(host, number, File::Store, 1),
            PrepareStep::StartImport => self.put(host, number, File::Preparing(generation), 1),
            PrepareStep::Import if fails => {
                self.cover.hit("fault: import failed");
                return self.end_run(host, number, Err(Diagnostic::RuntimeImageUnavailable));
            }
            PrepareStep::Import => self.hosts[host].engine.import(generation),
            PrepareStep::Publish => {
                self.put(host, number, File::Configuration(generation), 1);
            }
            PrepareStep::ClearJournal => {
                self.hosts[host].disk.unlink(File::Preparing(generation));
                self.mark_dirty(host, number, File::Preparing(generation));
            }
            PrepareStep::Load => return self.end_run(host, number, Ok(())),
        }
        let ms = match step {
            PrepareStep::Fetch | PrepareStep::Import => 20 + self.luck.below(1_500),
            _ => 1 + self.luck.below(4),
        };
        self.run_later(host, number, ms);
    }

    /// Whoever had the lock may have been killed before a sync: nothing that was found may be worked with before one.
    fn lock_installation(&mut self, host: usize, number: u64) {
        if self.hosts[host].disk.settle() {
            self.cover.hit("preparer: found what was not synced");
        }
        self.hold(host, number, |run| run.locked = true);
    }

    fn hold(&mut self, host: usize, number: u64, take: impl FnOnce(&mut Run)) {
        if let Some(run) = self.hosts[host].runs.get_mut(&number) {
            take(run);
        }
        self.run_later(host, number, 1);
    }

    fn put(&mut self, host: usize, number: u64, file: File, says: u64) {
        self.hosts[host].disk.write(file, says);
        self.mark_dirty(host, number, file);
    }

    fn mark_dirty(&mut self, host: usize, number: u64, file: File) {
        if let Some(run) = self.hosts[host].runs.get_mut(&number) {
            run.dirty = Some(file);
        }
        self.effect(Party::Node(host), Trap::Wrote);
    }

    /// `GET` of the configuration for exactly this generation.
    fn ask_core(&mut self, host: usize, number: u64) {
        let (generation, digest) = (self.hosts[host].runs[&number].generation, self.hosts[host].runs[&number].digest);
        let up = self.cores.iter().any(|core| core.alive) && self.store.silent_until <= self.now;
        let stored = self.store.digest(generation).filter(|_| up);
        let careless = self.sabotage == Some(Sabotage::PreparerIgnoresDropped);
        let Some(stored) = stored.or(careless.then_some(digest)) else {
            self.cover.hit("preparer: core has no configuration");
            return self.end_run(host, number, Err(Diagnostic::ProviderUnavailable));
        };
        let different = Authority::Differs(Difference::Specification);
        self.hold(host, number, |run| run.core = if stored == digest { Authority::Agrees } else { different });
    }

    fn collect_step(&mut self, host: usize, number: u64) {
        let generation = self.hosts[host].runs[&number].generation;
        let enrolled = self.hosts[host].identity.enrolled;
        let (disk, engine) = (&self.hosts[host].disk, &self.hosts[host].engine);
        let there = engine.image(generation, self.now);
        let facts = Collection {
            claim: self.claim(host, number),
            journals: disk.journals(generation, enrolled),
            surroundings: self.surroundings(host, generation),
            grant: Authority::Agrees,
            release: disk.release(generation),
            originals: if disk.read(File::Originals(generation)).is_some() {
                Originals::Verified
            } else {
                Originals::Gone
            },
            native: Native::Microsandbox {
                store: disk.there(File::Store),
                executable: Executable::Verified,
                image: match there {
                    None => Inventory::Unknown,
                    Some(true) if engine.uses(generation) => Inventory::InUse,
                    Some(true) => Inventory::Listed,
                    Some(false) => Inventory::Absent,
                },
                sandboxes: Sandboxes::Shared,
            },
        };
        match collect(&facts) {
            Ok(step) => {
                self.cover.hit(names::collect_step(step));
                self.take_collect_step(host, number, generation, step);
            }
            Err(refusal) => self.refuse_run(host, number, refusal),
        }
    }

    fn take_collect_step(&mut self, host: usize, number: u64, generation: Generation, step: CollectStep) {
        match step {
            CollectStep::LockInstallation => return self.lock_installation(host, number),
            CollectStep::LockLease => return self.hold(host, number, |run| run.lease = true),
            CollectStep::Done => return self.end_run(host, number, Ok(())),
            CollectStep::Begin => self.put(host, number, File::Collecting(generation), 0),
            CollectStep::CompleteNative => self.put(host, number, File::Collecting(generation), 1),
            CollectStep::RemoveImage => self.hosts[host].engine.remove_image(generation),
            CollectStep::RemoveRelease => {
                for file in [File::Release(generation), File::Manifest(generation)] {
                    self.hosts[host].disk.unlink(file);
                    self.hosts[host].disk.sync(file);
                }
            }
            CollectStep::RemoveOriginals => {
                self.hosts[host].disk.unlink(File::Originals(generation));
                self.mark_dirty(host, number, File::Originals(generation));
            }
            CollectStep::WriteDropped => self.put(host, number, File::Dropped(generation), 1),
        }
        if step.deletes() {
            self.books.deleted(host, generation.get(), &self.store, self.now);
        }
        let ms = 1 + self.luck.below(30);
        self.run_later(host, number, ms);
    }

    fn refuse_run(&mut self, host: usize, number: u64, refusal: Refusal) {
        self.cover.hit(names::recovery_refusal(refusal));
        note!(self, "host {host}: the preparer refuses: {refusal}");
        let class = match refusal.object {
            Object::Release => Diagnostic::RuntimeDownloadFailed,
            _ => Diagnostic::ProviderUnavailable,
        };
        self.end_run(host, number, Err(class));
    }

    fn end_run(&mut self, host: usize, number: u64, outcome: Result<(), Diagnostic>) {
        let Some(run) = self.hosts[host].runs.remove(&number) else { return };
        note!(self, "host {host}: the preparer ended {:?} of generation {}: {outcome:?}", run.action, run.generation);
        if let Some(file) = run.dirty {
            // The last effect of a run that is killed may or may not be durable.
            if self.luck.chance(500) {
                self.hosts[host].disk.sync(file);
            }
        }
        let event = match run.action {
            Action::Prepare => HostEvent::Prepared(run.generation, outcome),
            Action::Collect => HostEvent::Removed(run.generation, outcome.is_ok()),
        };
        self.queue.push(self.now + 1, Event::Host(host, run.life, event));
    }
}

const fn lock(held: bool, taken: bool) -> Lock {
    match (held, taken) {
        (true, _) => Lock::Held,
        (false, true) => Lock::Busy,
        (false, false) => Lock::Open,
    }
}
