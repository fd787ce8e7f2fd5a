//! `palisade node generations`: what a host holds, in which state, and what would have to happen before it may go.

use std::fmt;
use std::path::{Path, PathBuf};

use palisade_core::generation::recovery::{Claim, Entry, Expected, Lease as Found, Local, Lock, Refusal, Refused};
use palisade_core::limits::PLAN_MAX_BYTES;
use palisade_core::units::{Digest, Generation};
use serde::Serialize;

use super::layout::Layout;
use super::lease::{Held, Lease};
use super::outside::Failure;
use super::records::{Known, Records};
use super::setup::Setup;
use crate::files::look::look;
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{Cause, Object};

/// One generation of a host. Serialises as an object of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldGeneration {
    /// Which.
    pub generation: Generation,
    /// `configured`, `unfinished`, `collecting`, `dropped` or `leased`.
    pub state: &'static str,
    /// By which specification it is known; nothing names it when only a lease is there.
    pub specification_digest: Option<Digest>,
    /// The folder of its files; nothing when they are elsewhere, or gone.
    pub files: Option<PathBuf>,
    /// Why it is there, and what happens next.
    pub next: &'static str,
    /// What is wrong with its lease: it is never prepared, repaired or collected then. Nothing of a dropped one, whose
    /// lease is only a receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// Everything that is recorded below `root`, in ascending order. Changes nothing, locks nothing and asks nobody.
///
/// # Errors
/// The first record that cannot be believed, with its path: a node does not start beside it either.
pub fn generations(root: &Path) -> Result<Vec<HeldGeneration>, Unreadable> {
    read(&Layout::new(root)).map_err(|failure| Unreadable(format!("{}: {failure}", root.display())))
}

fn read(layout: &Layout) -> Result<Vec<HeldGeneration>, Failure> {
    let base = look(&layout.base(), PLAN_MAX_BYTES).borrow().base();
    let missing = || Failure::from(Refused { generation: None, refusal: refusal(Object::Base, Cause::Missing) });
    let base = base.ours().ok_or_else(missing)?;
    let records = Records::read(&layout.generations(), &base)?;
    let locals = records.locals()?;
    Ok(locals.into_iter().map(|(generation, local)| describe(layout, &base, &records, generation, local)).collect())
}

fn describe(
    layout: &Layout,
    base: &Configuration,
    records: &Records,
    generation: Generation,
    local: Local,
) -> HeldGeneration {
    let known = records.known(generation);
    let specification_digest = known.recorded.specification_digest;
    let setup = known.configuration().and_then(|configuration| Setup::of(layout, base, configuration).ok());
    let files = setup.map(|setup| setup.release).filter(|release| local != Local::Dropped && release.exists());
    let expected = Expected { installation: base.envelope.installation, generation, specification_digest };
    let held: Held<Lease> = Held::No;
    let claim = held.claim(Lock::Open, &layout.generations(), records.directory(), &expected);
    let wrong = wrong(claim);
    let (state, next) = (state(local), next(local, &known, wrong));
    let lease = wrong.filter(|_| local != Local::Dropped).map(|refusal| refusal.to_string());
    HeldGeneration { generation, state, specification_digest, files, next, lease }
}

/// Why every run for the generation would be refused, whoever holds the locks.
fn wrong(claim: Claim) -> Option<Refusal> {
    match (claim.lease, claim.record) {
        (Found::Damaged(damage), _) => Some(refusal(Object::Lease, Cause::Damaged(damage))),
        (_, Entry::Damaged(damage)) => Some(refusal(Object::LeaseRecord, Cause::Damaged(damage))),
        (_, Entry::Foreign(difference)) => Some(refusal(Object::LeaseRecord, Cause::Foreign(difference))),
        (Found::Absent, _) => Some(refusal(Object::Lease, Cause::Missing)),
        (Found::Created | Found::Present, Entry::Absent) => Some(refusal(Object::Lease, Cause::Unrecorded)),
        (Found::Created | Found::Present, Entry::Ours(())) => None,
    }
}

const fn refusal(object: Object, cause: Cause) -> Refusal {
    Refusal { object, cause }
}

const fn state(local: Local) -> &'static str {
    match local {
        Local::Nothing => "leased",
        Local::Unfinished => "unfinished",
        Local::Configured => "configured",
        Local::Collecting => "collecting",
        Local::Dropped => "dropped",
    }
}

/// Why it is there, and what happens next. A lease that is not what it must be stops everything but a look.
fn next(local: Local, known: &Known, wrong: Option<Refusal>) -> &'static str {
    let started = known.plan.as_ref().is_some_and(|plan| plan.import_started);
    let native = known.recorded.journals.collecting.ours().is_some_and(|journal| journal.native_complete);
    match (local, wrong.map(|refusal| refusal.cause)) {
        (Local::Dropped, _) => "gone for good and never prepared again; its records stay as a receipt",
        (_, Some(Cause::Unrecorded)) => {
            "its lease has no record, because a run crashed between the two: it is never prepared, repaired or collected; \
             inspect it, and select another generation"
        }
        (_, Some(_)) => {
            "its lease is not what it must be: it is never prepared, repaired or collected as it is; inspect it, and select \
             another generation"
        }
        (Local::Nothing, None) => {
            "its preparation began and left nothing but a lease; the node begins again when core wants it"
        }
        (Local::Unfinished, None) if started => {
            "its preparation or repair began to import; the node finishes it, its log says what keeps it"
        }
        (Local::Unfinished, None) => {
            "its preparation or repair has begun; the node finishes it, its log says what keeps it"
        }
        (Local::Configured, None) => {
            "kept until core says that it is neither target nor serving here, and no sandbox of it is left"
        }
        (Local::Collecting, None) if native => "only files are left to remove; core's next word continues that",
        (Local::Collecting, None) => "core's next word continues its removal; the node's log says what keeps it",
    }
}

impl fmt::Display for HeldGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "generation {}  {}", self.generation, self.state)?;
        if let Some(digest) = self.specification_digest {
            writeln!(f, "  specification  {digest}")?;
        }
        if let Some(files) = &self.files {
            writeln!(f, "  files          {}", files.display())?;
        }
        if let Some(lease) = &self.lease {
            writeln!(f, "  lease          {lease}")?;
        }
        write!(f, "  next           {}", self.next)
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::deployment::contract::Provider as Kind;

    use super::*;
    use crate::files::faults::{Faults, Stop};
    use crate::generations::testing::Site;

    /// Every state is told with what happens next, and nothing is changed by telling it.
    #[test]
    fn every_state_is_told_with_its_next_step() {
        let site = Site::new(Kind::Docker);
        site.prepare(5).unwrap();
        site.collect(5).unwrap();
        site.prepare_on(&mut stopped_after("create 6.lease", 6), 6).unwrap_err();
        site.prepare_on(&mut stopped_after("rename 4.preparing", 4), 4).unwrap_err();
        let before = site.everything();
        let told = generations(&site.root()).unwrap();
        let states: Vec<_> = told.iter().map(|held| (held.generation.get(), held.state)).collect();
        assert_eq!(states, [(3, "configured"), (4, "unfinished"), (5, "dropped"), (6, "leased")]);
        assert_eq!(told[0].files, Some(site.root()));
        assert!(told[3].next.contains("no record"), "{}", told[3]);
        let wrong: Vec<_> = told.iter().map(|held| held.lease.is_some()).collect();
        assert_eq!(wrong, [false, false, false, true], "{told:?}");
        assert_eq!(site.everything(), before);
        let lease = site.path("3.lease");
        std::fs::set_permissions(&lease, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        let told = generations(&site.root()).unwrap();
        assert!(told[0].next.starts_with("its lease is not what it must be"), "{}", told[0]);
        assert!(told[0].lease.as_ref().unwrap().contains("other permissions"), "{}", told[0]);
        crate::testing::write(site.path("5.dropped"), "{}");
        assert!(generations(&site.root()).unwrap_err().to_string().contains("5.dropped"));
        let nowhere = generations(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(nowhere.starts_with("/nowhere: provider.json: the enrolled configuration is missing"), "{nowhere}");
    }

    /// A disk that stops after this call of a preparation.
    fn stopped_after(call: &str, generation: u64) -> Faults {
        let (site, mut disk) = (Site::new(Kind::Docker), Faults::none());
        site.prepare_on(&mut disk, generation).unwrap();
        let place = disk.calls.iter().position(|made| made == call).expect("a preparation makes this call");
        Faults::after(place + 1, Stop::Power)
    }
}
