//! The lease of the generation that a node is enrolled with (node-host §2.1 C2, §6.7).

use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{Lock, Look, Owner, admit_helper};
use palisade_core::limits::MARKER_MAX_BYTES;

use super::layout::{Layout, name};
use super::lease::{Held, Lease, Mode};
use super::outside::Failure;
use super::records::Records;
use crate::files::FileError;
use crate::files::disk::Disk;
use crate::files::look::look;
use crate::files::writer;

/// Makes the lease of a node that was never approved, or checks the one that is there. It is held by nobody afterwards.
///
/// # Errors
/// A lease without its record, and everything else that is not exactly as it must be; nothing is repaired.
pub(crate) fn enroll(disk: &mut dyn Disk, layout: &Layout, base: &Configuration) -> Result<(), Failure> {
    let directory = layout.generations();
    writer::ensure_private_directory(disk, &directory)?;
    let envelope = &base.envelope;
    let owner = Owner::of(envelope);
    let absent = |suffix| {
        let seen = look(&directory.join(name(envelope.generation, suffix)), MARKER_MAX_BYTES);
        matches!(seen.borrow(), Look::Absent)
    };
    if absent("lease") && absent("lease-identity") {
        let made = Lease::create(disk, &directory, envelope.generation)?;
        if let Held::Yes(lease) = made {
            lease.record(disk, &directory, &owner)?;
        }
        return Ok(());
    }
    let held = Lease::open(&directory, envelope.generation, Mode::Shared);
    let held = held.map_err(|error| FileError::new(&directory, error))?;
    let records = Records::read(&directory, base)?;
    let expected = owner.expected();
    let claim = held.claim(Lock::Open, &directory, records.directory(), &expected);
    Ok(admit_helper(&claim, &records.of(envelope.generation).journals)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::disk::System;
    use crate::files::faults::{Faults, Stop};
    use crate::generations::testing::{Place, numbered};
    use palisade_core::generation::recovery::{Cause, Object, Refusal};

    /// W 149. Node-host §3.3 row 2. An enrollment that is interrupted at any system call is finished by the next one, or
    /// left a lease without its record, which is refused for good.
    #[test]
    fn an_interrupted_enrollment_is_finished_or_refused() {
        let base = numbered(3);
        let mut seen = std::collections::BTreeSet::new();
        for (calls, kept) in (0..20).flat_map(|calls| (0..4).map(move |kept| (calls, kept))) {
            let (place, attic) = (Place::new(), tempfile::tempdir().unwrap());
            std::fs::remove_dir(place.layout.generations()).unwrap();
            let mut disk = Faults::after(calls, Stop::Power).remembering(attic.path());
            let first = enroll(&mut disk, &place.layout, &base);
            disk.lose(if first.is_ok() { usize::MAX } else { kept });
            match enroll(&mut System, &place.layout, &base) {
                Ok(()) => seen.insert("finished"),
                Err(Failure::Refused(Refusal { object: Object::Lease, cause: Cause::Unrecorded })) => {
                    assert!(first.is_err());
                    seen.insert("refused")
                }
                Err(other) => panic!("after {calls} calls: {other}"),
            };
        }
        assert_eq!(seen.len(), 2, "{seen:?}");
    }
}
