//! What is looked at before a helper is asked: everything that is named must be derived from the sandbox (node-host §8.5).

use super::name::Names;
use crate::outcome::Failure;
use crate::units::{Digest, Id};
use crate::wire::payload::{Compute, RawReference, Reference, Resume, Snapshot};

/// The three texts must be those of the sandbox.
///
/// # Errors
/// [`Failure::Ownership`].
pub fn reference(reference: &Reference, named: &RawReference<'_>) -> Result<(), Failure> {
    if reference.is(named) { Ok(()) } else { Err(Failure::Ownership) }
}

/// A machine of this sandbox, with the provenance that its generation must have.
///
/// # Errors
/// [`Failure::Ownership`] for another sandbox's name, [`Failure::Invalid`] for a provenance that cannot be.
pub fn compute(names: &Names, compute: &Compute<'_>) -> Result<(), Failure> {
    if compute.name != names.compute(compute.generation) {
        return Err(Failure::Ownership);
    }
    match (compute.generation, &compute.restored_from) {
        (0, None) => Ok(()),
        (1.., Some(from)) if from.source_generation < compute.generation => snapshot(names, from),
        (0, Some(_)) | (1.., Some(_) | None) => Err(Failure::Invalid),
    }
}

/// A snapshot of this sandbox: complete, and called what its operation and its source make of it. A name that is no name
/// of a snapshot, such as a path, never reaches a program.
///
/// # Errors
/// [`Failure::Invalid`] for one that could be nobody's, [`Failure::Ownership`] for somebody else's.
pub fn snapshot(names: &Names, snapshot: &Snapshot<'_>) -> Result<(), Failure> {
    let members =
        [&snapshot.id, &snapshot.digest, &snapshot.checkpoint_id, &snapshot.checkpoint_root, &snapshot.source_id];
    let operation = Id::parse(&snapshot.operation_id).map_err(|_| Failure::Invalid)?;
    if members.iter().any(|member| member.is_empty()) || !is_snapshot_name(&snapshot.reference) {
        return Err(Failure::Invalid);
    }
    let derived = snapshot.reference == names.snapshot(operation).to_string();
    let sourced = snapshot.source_name == names.compute(snapshot.source_generation);
    if derived && sourced { Ok(()) } else { Err(Failure::Ownership) }
}

/// A resume asks for a machine that is made of exactly its snapshot.
///
/// # Errors
/// As [`compute`]; [`Failure::Invalid`] for a target that another snapshot would be in.
pub fn resume(names: &Names, asked: &Resume<'_>) -> Result<(), Failure> {
    compute(names, &asked.target)?;
    if asked.target.restored_from.as_ref() == Some(&asked.snapshot) { Ok(()) } else { Err(Failure::Invalid) }
}

/// `oac-<32 digits>-g0:s-<operation>`.
fn is_snapshot_name(text: &str) -> bool {
    let parts = text.split_once("-g0:s-");
    let group = parts.and_then(|(group, _)| group.strip_prefix("oac-"));
    // Thirty-two digits twice are a digest.
    let hex = group.is_some_and(|hex| hex.len() == 32 && Digest::parse(&hex.repeat(2)).is_ok());
    hex && parts.is_some_and(|(_, operation)| Id::parse(operation).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::microsandbox::answer::tests::{allocation, made, names, restored, taken};
    use crate::wire::payload::Text;

    /// H 200. A target that is not made of the snapshot is refused before anybody is asked for it.
    #[test]
    fn a_target_is_asked_for_with_its_own_snapshot() {
        let good = crate::microsandbox::answer::tests::resume();
        assert_eq!(resume(&names(1), &good), Ok(()));
        let other = Snapshot { id: "other".into(), ..taken(1) };
        assert_eq!(resume(&names(1), &Resume { snapshot: other, ..good.clone() }), Err(Failure::Invalid));
        assert_eq!(resume(&names(2), &good), Err(Failure::Ownership));
    }

    /// H 204. What names another sandbox never reaches a helper. A call without a deadline cannot be written down.
    #[test]
    fn another_sandbox_is_never_asked_for() {
        let raw = |reference: Reference| RawReference {
            tenant_id: reference.tenant.to_string().into(),
            environment_id: reference.environment.to_string().into(),
            allocation_id: reference.allocation.to_string().into(),
        };
        assert_eq!(reference(&allocation(1), &raw(allocation(1))), Ok(()));
        assert_eq!(reference(&allocation(1), &raw(allocation(2))), Err(Failure::Ownership));
        assert_eq!(compute(&names(1), &made(1)), Ok(()));
        assert_eq!(compute(&names(1), &made(2)), Err(Failure::Ownership));
        let renamed = Compute { name: "oac-1-g0".into(), ..made(1) };
        assert_eq!(compute(&names(1), &renamed), Err(Failure::Ownership));
        let renumbered = Compute { generation: 1, ..made(1) };
        assert_eq!(compute(&names(1), &renumbered), Err(Failure::Ownership));
    }

    /// Generation 0 comes from nowhere, and every other one from an earlier one of the same sandbox.
    #[test]
    fn provenance_belongs_to_a_generation() {
        assert_eq!(compute(&names(1), &restored(1)), Ok(()));
        let from = Some(taken(1));
        for wrong in [
            Compute { restored_from: from.clone(), ..made(1) },
            Compute { restored_from: None, ..restored(1) },
            Compute { restored_from: Some(Snapshot { source_generation: 1, ..taken(1) }), ..restored(1) },
        ] {
            assert_eq!(compute(&names(1), &wrong), Err(Failure::Invalid), "{wrong:?}");
        }
        let foreign = Compute { restored_from: Some(taken(2)), ..restored(1) };
        assert_eq!(compute(&names(1), &foreign), Err(Failure::Ownership));
    }

    /// H 201. A reference that is a path or anything else than a name is refused, and so is another sandbox's.
    #[test]
    fn a_path_is_no_snapshot() {
        let good = taken(1);
        assert_eq!(snapshot(&names(1), &good), Ok(()));
        let name = good.reference.to_string();
        for reference in [
            "",
            "/etc/passwd",
            "../../snapshot",
            &format!("/{name}"),
            &format!("{name}/.."),
            &name.replace("-g0:", "-g1:"),
            &name.replace(":s-", ":"),
            &name.replace("oac-", "oac-../"),
            &name.to_uppercase(),
            &format!("oac-{}{}", "g".repeat(32), &name["oac-".len() + 32..]),
            &format!("{name}\n"),
            &format!("{name}:s-x"),
        ] {
            let named = Snapshot { reference: Text::Borrowed(reference), ..taken(1) };
            assert_eq!(snapshot(&names(1), &named), Err(Failure::Invalid), "{reference:?}");
        }
        assert_eq!(snapshot(&names(2), &good), Err(Failure::Ownership));
        let another = Snapshot { operation_id: Id::from_random([8; 16]).to_string().into(), ..taken(1) };
        assert_eq!(snapshot(&names(1), &another), Err(Failure::Ownership), "another operation");
        let elsewhere = Snapshot { source_name: names(2).compute(0).into(), ..taken(1) };
        assert_eq!(snapshot(&names(1), &elsewhere), Err(Failure::Ownership));
    }

    #[test]
    fn a_snapshot_is_complete() {
        for wrong in [
            Snapshot { id: "".into(), ..taken(1) },
            Snapshot { digest: "".into(), ..taken(1) },
            Snapshot { checkpoint_id: "".into(), ..taken(1) },
            Snapshot { checkpoint_root: "".into(), ..taken(1) },
            Snapshot { source_id: "".into(), ..taken(1) },
            Snapshot { operation_id: "".into(), ..taken(1) },
            Snapshot { operation_id: "s-1".into(), ..taken(1) },
        ] {
            assert_eq!(snapshot(&names(1), &wrong), Err(Failure::Invalid), "{wrong:?}");
        }
    }
}
