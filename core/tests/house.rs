//! The laws of this crate, read from its own sources.

#![expect(clippy::disallowed_methods, reason = "it reads the sources of this workspace, and nothing else")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Every Rust file below `directory`, with its text.
fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory of this workspace") {
        let path = entry.expect("readable").path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            found.push((path, text));
        }
    }
    found
}

/// The names of all test functions of the workspace.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in ["core", "native", "sim"].iter().flat_map(|part| sources(&root().join(part))) {
        let mut marked = false;
        for line in text.lines().map(str::trim) {
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let Some(name) = name.and_then(|rest| rest.split(['(', '<']).next()).filter(|_| marked) {
                names.insert(name.to_owned());
                marked = false;
            }
            marked |= ["#[test]", "#[tokio::test", "#[rstest]"].iter().any(|mark| line.starts_with(mark));
            // Attributes, comments and the cases of a table stand between the mark and its function.
            marked |= line.starts_with("proptest! {");
        }
        // Every further property of a `proptest!` block has no mark of its own.
        let blocks = text.split("proptest! {").skip(1).flat_map(str::lines).map(str::trim);
        names.extend(blocks.filter_map(|line| line.strip_prefix("fn ")?.split('(').next()).map(str::to_owned));
    }
    names
}

/// The items of lists in module documentation that begin with "Never", each with its continuation lines.
fn invariants(text: &str) -> Vec<String> {
    let (mut found, mut open) = (Vec::<String>::new(), false);
    for line in text.lines() {
        let Some(line) = line.strip_prefix("//!") else { break };
        if line.starts_with(" - ") {
            open = line.starts_with(" - Never");
            if open {
                found.push(String::new());
            }
        } else if !line.starts_with("   ") {
            open = false;
        }
        if let Some(last) = found.last_mut().filter(|_| open) {
            last.push_str(line);
        }
    }
    found
}

/// What stands between backticks and looks like the name of a test.
fn named(text: &str) -> Vec<&str> {
    let is_name =
        |word: &&str| word.contains('_') && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    text.split('`').skip(1).step_by(2).filter(is_name).collect()
}

/// Every invariant of a machine names the test that holds it, and every test that is named exists.
#[test]
fn every_invariant_names_a_test_that_exists() {
    let (tests, source) = (tests(), root().join("core/src"));
    let machines = ["session", "lifecycle", "generation"].map(|machine| source.join(machine));
    let mut count = 0;
    for (path, text) in sources(&source) {
        for invariant in invariants(&text) {
            let held = invariant.rsplit_once('(').map(|(_, held)| named(held)).unwrap_or_default();
            let required = machines.iter().any(|machine| path.starts_with(machine));
            assert!(!held.is_empty() || !required, "{}: no test is named for{invariant}", path.display());
            for test in held {
                assert!(tests.contains(test), "{}: there is no test {test}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 40, "only {count} tests are named");
}

/// Every promise has its line in the documentation of the crate, with tests that exist.
#[test]
fn every_promise_names_tests_that_exist() {
    let tests = tests();
    let text = std::fs::read_to_string(root().join("core/src/lib.rs")).expect("UTF-8");
    for promise in 1..=16 {
        let row = text.lines().find(|line| line.starts_with(&format!("//! | {promise} | ")));
        let named = named(row.unwrap_or_else(|| panic!("promise {promise} has no line")));
        assert!(!named.is_empty(), "promise {promise} names no test");
        for test in named {
            assert!(tests.contains(test), "promise {promise}: there is no test {test}");
        }
    }
}

/// E11. The core never reads a clock: the lint forbids it, and no source names one.
#[test]
fn the_core_reads_no_clock() {
    let lint = std::fs::read_to_string(root().join("core/clippy.toml")).expect("the crate's own lints");
    for clock in ["std::time::SystemTime::now", "std::time::Instant::now"] {
        assert!(lint.contains(&format!("path = \"{clock}\"")), "{clock} is not forbidden");
    }
    for (path, text) in sources(&root().join("core/src")) {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let clock = code.into_iter().find(|line| line.contains("std::time") || line.contains("SystemTime"));
        assert_eq!(clock, None, "{}", path.display());
    }
}
