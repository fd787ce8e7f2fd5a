//! Facts of every kind. What is sound comes up often, so that the deep rows are reached.

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use palisade_core::generation::recovery::{
    Authority, Claim, Collecting, Collection, Damage, Difference, Entry, Executable, Files, Home, Image, Inventory,
    Journals, Lease, Lock, Native, Originals, Preparation, Preparing, Release, Root, Sandboxes, Surroundings,
};

use super::super::values::generation;

pub(super) fn preparation(source: &mut Unstructured<'_>) -> Result<Preparation> {
    Ok(Preparation {
        claim: claim(source)?,
        journals: journals(source)?,
        surroundings: surroundings(source)?,
        core: authority(source)?,
        files: files(source)?,
        home: if source.arbitrary()? { Home::Network(source.arbitrary()?) } else { Home::Store(bare(source)?) },
        image: *source.choose(&[Image::Available, Image::Available, Image::Absent, Image::Wrong, Image::Unknown])?,
    })
}

pub(super) fn collection(source: &mut Unstructured<'_>) -> Result<Collection> {
    Ok(Collection {
        claim: claim(source)?,
        journals: journals(source)?,
        surroundings: surroundings(source)?,
        grant: authority(source)?,
        release: match source.int_in_range(0..=6_u8)? {
            0 => Release::Damaged(damage(source)?),
            1 | 2 => Release::Gone,
            3 => Release::Shared,
            _ => Release::Present,
        },
        originals: *source.choose(&[
            Originals::Gone,
            Originals::Verified,
            Originals::Verified,
            Originals::Conflict,
            Originals::Unrecorded,
        ])?,
        native: if source.arbitrary()? { Native::Docker } else { microsandbox(source)? },
    })
}

pub(super) fn root(source: &mut Unstructured<'_>) -> Result<Root> {
    let count = source.int_in_range(0..=6_u8)?;
    let mut generations = BTreeMap::new();
    for _ in 0..count {
        generations.insert(generation(source.arbitrary()?), journals(source)?);
    }
    let enrolled = generation(source.arbitrary()?);
    Ok(Root { base: entry(source, |_| Ok(enrolled))?, directory: bare(source)?, generations })
}

fn claim(source: &mut Unstructured<'_>) -> Result<Claim> {
    Ok(Claim {
        installation: lock(source)?,
        directory: bare(source)?,
        lease: match source.int_in_range(0..=6_u8)? {
            0 => Lease::Damaged(damage(source)?),
            1 | 2 => Lease::Absent,
            3 => Lease::Created,
            _ => Lease::Present,
        },
        record: bare(source)?,
        lock: lock(source)?,
    })
}

fn journals(source: &mut Unstructured<'_>) -> Result<Journals> {
    Ok(Journals {
        enrolled: source.arbitrary()?,
        configuration: bare(source)?,
        preparing: entry(source, |source| Ok(Preparing { import_started: source.arbitrary()? }))?,
        collecting: entry(source, |source| Ok(Collecting { native_complete: source.arbitrary()? }))?,
        dropped: if source.ratio(1_u8, 4_u8)? { bare(source)? } else { Entry::Absent },
    })
}

fn surroundings(source: &mut Unstructured<'_>) -> Result<Surroundings> {
    let base = if source.ratio(1_u8, 8_u8)? { bare(source)? } else { Entry::Ours(()) };
    Ok(Surroundings { base, others: bare(source)? })
}

fn microsandbox(source: &mut Unstructured<'_>) -> Result<Native> {
    Ok(Native::Microsandbox {
        store: bare(source)?,
        executable: *source.choose(&[
            Executable::Verified,
            Executable::Verified,
            Executable::Missing,
            Executable::Conflict,
        ])?,
        image: *source.choose(&[
            Inventory::Shared,
            Inventory::Absent,
            Inventory::Listed,
            Inventory::InUse,
            Inventory::Unknown,
        ])?,
        sandboxes: *source.choose(&[Sandboxes::Shared, Sandboxes::None, Sandboxes::Some, Sandboxes::Unknown])?,
    })
}

fn files(source: &mut Unstructured<'_>) -> Result<Files> {
    Ok(match source.int_in_range(0..=8_u8)? {
        0 => Files::Damaged(damage(source)?),
        1 => Files::Conflict,
        2..=4 => Files::Whole,
        5 | 6 => Files::Unlisted,
        _ => Files::Missing,
    })
}

fn authority(source: &mut Unstructured<'_>) -> Result<Authority> {
    Ok(match source.int_in_range(0..=6_u8)? {
        0 => Authority::Differs(difference(source)?),
        1 => Authority::Unasked,
        _ => Authority::Agrees,
    })
}

fn lock(source: &mut Unstructured<'_>) -> Result<Lock> {
    Ok(*source.choose(&[Lock::Held, Lock::Held, Lock::Held, Lock::Held, Lock::Open, Lock::Busy, Lock::Replaced])?)
}

fn bare(source: &mut Unstructured<'_>) -> Result<Entry<()>> {
    entry(source, |_| Ok(()))
}

fn entry<T>(
    source: &mut Unstructured<'_>,
    content: impl FnOnce(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Entry<T>> {
    Ok(match source.int_in_range(0..=15_u8)? {
        0 => Entry::Damaged(damage(source)?),
        1 => Entry::Foreign(difference(source)?),
        2..=8 => Entry::Absent,
        _ => Entry::Ours(content(source)?),
    })
}

pub(super) fn damage(source: &mut Unstructured<'_>) -> Result<Damage> {
    source
        .choose(&[
            Damage::Link,
            Damage::Kind,
            Damage::Access,
            Damage::HardLink,
            Damage::Size,
            Damage::Content,
            Damage::Replaced,
            Damage::Unreadable,
            Damage::Mount,
        ])
        .copied()
}

fn difference(source: &mut Unstructured<'_>) -> Result<Difference> {
    source
        .choose(&[
            Difference::Installation,
            Difference::Provider,
            Difference::Core,
            Difference::Generation,
            Difference::Specification,
            Difference::Inode,
            Difference::Native,
        ])
        .copied()
}
