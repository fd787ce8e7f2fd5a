//! A disk, an image store and a Core that do what a step says, and may lose power in the middle of it.

use super::*;

/// What survives a loss of power. Of the release's two files either none, one or both are there.
#[allow(clippy::struct_excessive_bools, reason = "a disk that holds a file or does not, for each file")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Disk {
    pub(super) docker: bool,
    pub(super) directory: bool,
    pub(super) lease: bool,
    pub(super) record: bool,
    pub(super) enrolled: bool,
    pub(super) configuration: bool,
    pub(super) preparing: Option<bool>,
    pub(super) collecting: Option<bool>,
    pub(super) dropped: bool,
    pub(super) files: u8,
    pub(super) manifest: bool,
    pub(super) home: bool,
    pub(super) image: bool,
}

pub(super) const FILES: u8 = 2;

/// What a process holds, and loses when it ends.
#[allow(clippy::struct_excessive_bools, reason = "a lock that is held or is not, for each lock")]
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    installation: bool,
    lock: bool,
    created: bool,
    core: bool,
}

/// What a run came to.
pub(super) type Outcome<S> = Result<Vec<S>, (Vec<S>, Refusal)>;

impl Disk {
    /// A node on which nothing is known of the generation, beside an enrolled one.
    pub(super) const fn fresh(docker: bool) -> Self {
        Self {
            docker,
            directory: false,
            lease: false,
            record: false,
            enrolled: false,
            configuration: false,
            preparing: None,
            collecting: None,
            dropped: false,
            files: 0,
            manifest: false,
            home: false,
            image: false,
        }
    }

    /// The generation that was enrolled, as the installer left it: without `<g>.json` and without a manifest.
    pub(super) const fn enrolled(docker: bool) -> Self {
        Self {
            directory: true,
            lease: true,
            record: true,
            enrolled: true,
            files: FILES,
            home: true,
            image: true,
            ..Self::fresh(docker)
        }
    }

    pub(super) fn journals(&self) -> Journals {
        let entry = |present: bool| if present { Entry::Ours(()) } else { Entry::Absent };
        Journals {
            enrolled: self.enrolled,
            configuration: entry(self.configuration),
            preparing: self
                .preparing
                .map_or(Entry::Absent, |started| Entry::Ours(Preparing { import_started: started })),
            collecting: self.collecting.map_or(Entry::Absent, |done| Entry::Ours(Collecting { native_complete: done })),
            dropped: entry(self.dropped),
        }
    }

    fn claim(&self, run: Run) -> Claim {
        let held = |held: bool| if held { Lock::Held } else { Lock::Open };
        let entry = |present: bool| if present { Entry::Ours(()) } else { Entry::Absent };
        Claim {
            installation: held(run.installation),
            directory: entry(self.directory),
            lease: match (self.lease, run.created) {
                (false, _) => Lease::Absent,
                (true, true) => Lease::Created,
                (true, false) => Lease::Present,
            },
            record: entry(self.record),
            lock: held(run.lock),
        }
    }

    fn preparation(&self, run: Run) -> Preparation {
        Preparation {
            claim: self.claim(run),
            journals: self.journals(),
            surroundings: SURROUNDED,
            core: if run.core { Authority::Agrees } else { Authority::Unasked },
            files: match (self.files, self.manifest) {
                (FILES, true) => Files::Whole,
                (FILES, false) => Files::Unlisted,
                _ => Files::Missing,
            },
            home: match (self.docker, self.home) {
                (true, home) => Home::Network(home),
                (false, true) => Home::Store(Entry::Ours(())),
                (false, false) => Home::Store(Entry::Absent),
            },
            image: if self.image { Image::Available } else { Image::Absent },
        }
    }

    fn collection(&self, run: Run) -> Collection {
        let left = self.files > 0 || self.manifest;
        let native = Native::Microsandbox {
            store: if self.home { Entry::Ours(()) } else { Entry::Absent },
            executable: if self.files == FILES { Executable::Verified } else { Executable::Missing },
            image: if self.image { Inventory::Listed } else { Inventory::Absent },
            sandboxes: Sandboxes::None,
        };
        Collection {
            claim: self.claim(run),
            journals: self.journals(),
            surroundings: SURROUNDED,
            grant: Authority::Agrees,
            release: if left && !self.enrolled { Release::Present } else { Release::Gone },
            originals: if self.files > 0 && self.enrolled { Originals::Verified } else { Originals::Gone },
            native: if self.docker { Native::Docker } else { native },
        }
    }

    /// Whether the generation can serve: a final configuration, and everything that it names.
    pub(super) fn is_complete(&self) -> bool {
        self.lease
            && self.record
            && self.configuration
            && self.preparing.is_none()
            && self.files == FILES
            && self.home
            && self.image
    }

    /// Prepares until the end. `crashed` gets every disk that a loss of power at any moment would leave.
    pub(super) fn prepare(&mut self, mut crashed: impl FnMut(Disk)) -> Outcome<PrepareStep> {
        let (mut run, mut steps) = (Run::default(), Vec::new());
        loop {
            assert!(steps.len() < 30, "a run that does not end: {steps:?}");
            crashed(*self);
            match prepare(&self.preparation(run)) {
                Err(refusal) => return Err((steps, refusal)),
                Ok(step) => {
                    steps.push(step);
                    if step == PrepareStep::Load {
                        return Ok(steps);
                    }
                    self.take_prepare(step, &mut run);
                }
            }
        }
    }

    /// Every effect is one change of the durable state, so that before and after are all that a crash can leave.
    fn take_prepare(&mut self, step: PrepareStep, run: &mut Run) {
        match step {
            PrepareStep::LockInstallation => run.installation = true,
            PrepareStep::CreateDirectory => self.directory = true,
            PrepareStep::CreateLease => {
                assert!(!self.lease && !self.record, "created exclusively");
                (self.lease, run.created, run.lock) = (true, true, true);
            }
            PrepareStep::RecordLease => self.record = true,
            PrepareStep::LockLease => run.lock = true,
            PrepareStep::AskCore => run.core = true,
            PrepareStep::WritePlan => self.preparing = Some(false),
            PrepareStep::Fetch => self.files += 1,
            PrepareStep::WriteManifest => self.manifest = true,
            PrepareStep::MakeHome => self.home = true,
            PrepareStep::StartImport => self.preparing = Some(true),
            PrepareStep::Import => {
                assert_eq!(self.preparing, Some(true), "nothing native without the journal's word");
                self.image = true;
            }
            PrepareStep::Publish => self.configuration = true,
            PrepareStep::ClearJournal => self.preparing = None,
            PrepareStep::Load => {}
        }
    }

    /// Collects until the end, like [`Disk::prepare`].
    pub(super) fn collect(&mut self, mut crashed: impl FnMut(Disk)) -> Outcome<CollectStep> {
        let (mut run, mut steps) = (Run::default(), Vec::new());
        loop {
            assert!(steps.len() < 30, "a run that does not end: {steps:?}");
            crashed(*self);
            match collect(&self.collection(run)) {
                Err(refusal) => return Err((steps, refusal)),
                Ok(step) => {
                    steps.push(step);
                    if step == CollectStep::Done {
                        return Ok(steps);
                    }
                    self.take_collect(step, &mut run, &mut crashed);
                }
            }
        }
    }

    fn take_collect(&mut self, step: CollectStep, run: &mut Run, crashed: &mut impl FnMut(Disk)) {
        assert!(!step.deletes() || self.collecting.is_some(), "nothing is deleted before the intent is durable");
        match step {
            CollectStep::LockInstallation => run.installation = true,
            CollectStep::LockLease => run.lock = true,
            CollectStep::Begin => self.collecting = Some(false),
            CollectStep::RemoveImage => self.image = false,
            CollectStep::CompleteNative => self.collecting = Some(true),
            CollectStep::RemoveRelease | CollectStep::RemoveOriginals => {
                self.manifest &= self.enrolled;
                while self.files > 0 {
                    crashed(*self);
                    self.files -= 1;
                }
            }
            CollectStep::WriteDropped => {
                assert!(self.files == 0 && self.collecting == Some(true), "the record comes last");
                self.dropped = true;
            }
            CollectStep::Done => {}
        }
    }
}
