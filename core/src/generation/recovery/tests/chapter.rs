//! The operator's page of refusals: every one that the code can say has its row there.

use super::refusals::{DAMAGES, DIFFERENCES};
use super::*;
use crate::units::Generation;
use crate::wire::payload::Diagnostic;

const CHAPTER: &str = include_str!("../../../../../docs/refusals.md");

/// A new cause has no row in this match, and needs one here and there.
fn causes() -> Vec<Cause> {
    let damaged = DAMAGES.map(Cause::Damaged);
    let foreign = DIFFERENCES.map(Cause::Foreign);
    let others = [
        Cause::Missing,
        Cause::Unrecorded,
        Cause::Conflict,
        Cause::Busy,
        Cause::Unknown,
        Cause::InUse,
        Cause::Final,
        Cause::Begun,
    ];
    for cause in others {
        match cause {
            Cause::Damaged(_) | Cause::Foreign(_) => panic!("one of the lists before"),
            Cause::Missing
            | Cause::Unrecorded
            | Cause::Conflict
            | Cause::Busy
            | Cause::Unknown
            | Cause::InUse
            | Cause::Final
            | Cause::Begun => {}
        }
    }
    damaged.into_iter().chain(foreign).chain(others).collect()
}

const OBJECTS: [Object; 20] = [
    Object::InstallationLock,
    Object::Base,
    Object::Directory,
    Object::Name,
    Object::Lease,
    Object::LeaseRecord,
    Object::Configuration,
    Object::Preparing,
    Object::Collecting,
    Object::Dropped,
    Object::Others,
    Object::CoreConfiguration,
    Object::Grant,
    Object::Release,
    Object::Originals,
    Object::Store,
    Object::Executable,
    Object::Image,
    Object::Sandboxes,
    Object::Provider,
];

/// A new object has no row in this match, and needs one in the list and in the page.
fn objects() -> [Object; 20] {
    for object in OBJECTS {
        match object {
            Object::InstallationLock
            | Object::Base
            | Object::Directory
            | Object::Name
            | Object::Lease
            | Object::LeaseRecord
            | Object::Configuration
            | Object::Preparing
            | Object::Collecting
            | Object::Dropped
            | Object::Others
            | Object::CoreConfiguration
            | Object::Grant
            | Object::Release
            | Object::Originals
            | Object::Store
            | Object::Executable
            | Object::Image
            | Object::Sandboxes
            | Object::Provider => {}
        }
    }
    OBJECTS
}

/// The cells of every table's rows.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let rows = CHAPTER.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").collect())
}

/// What begins a message after the name of its thing.
fn said(object: Object, cause: Cause) -> String {
    let text = Refusal { object, cause }.to_string();
    let told = text.split(';').next().unwrap().trim();
    let name = Refusal { object, cause: Cause::Missing }.to_string();
    let name = name.split(" is missing").next().unwrap();
    told.strip_prefix(name).unwrap_or(told).trim().to_owned()
}

#[test]
fn every_cause_of_a_refusal_has_a_row_with_what_to_do() {
    for cause in causes() {
        let said = said(Object::Release, cause);
        let quoted = |cell: &str| cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).map(str::to_owned);
        let fits = |row: &Vec<&str>| row.len() == 4 && quoted(row[0]).is_some_and(|phrase| said.contains(&phrase));
        let found = rows().filter(fits).max_by_key(|row| row[0].len());
        let row = found.unwrap_or_else(|| panic!("no row says {said:?}"));
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        if matches!(cause, Cause::Damaged(_) | Cause::Foreign(_)) {
            assert_eq!(quoted(row[0]).as_ref(), Some(&said), "one row for each");
        }
        let nothing = row[3].starts_with("nothing");
        let remedy = Refusal { object: Object::Release, cause }.remedy();
        assert_eq!(nothing, remedy != Remedy::Inspect, "{row:?}: the code says {remedy:?}");
    }
}

#[test]
fn every_thing_that_a_refusal_names_has_a_row_with_its_place() {
    for object in objects() {
        let text = Refusal { object, cause: Cause::Missing }.to_string();
        let name = text.split(" is missing").next().unwrap();
        let row = rows().find(|row| row.len() == 3 && row[0] == name);
        let row = row.unwrap_or_else(|| panic!("no row says where {name} is"));
        if let Some(path) = object.path(Generation::new(2).unwrap()) {
            let file = path.rsplit('/').next().unwrap().replace("2.", "N.");
            assert!(row[1].contains(&file), "{row:?} must name {file}");
        }
    }
}

#[test]
fn every_reason_that_core_is_told_has_a_row() {
    for diagnostic in Diagnostic::ALL {
        let code = format!("`{}`", diagnostic.code());
        assert!(rows().any(|row| row.len() == 4 && row[0] == code), "no row says {code}");
    }
}
