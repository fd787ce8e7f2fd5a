//! A release folder: reproducible, verified when it is read, and refused when an input cannot run in a sandbox.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "a test writes throw-away files")]

use std::path::{Path, PathBuf};

use palisade_core::units::Digest;
use palisade_release::{Error, Inputs, Release, Source, build};

/// The smallest file that passes for a static program.
fn static_program(folder: &Path, name: &str) -> PathBuf {
    let mut bytes = [b"\x7fELF\x02\x01", &[0; 122][..]].concat();
    bytes[18] = 62;
    bytes.extend_from_slice(name.as_bytes());
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn inputs(node_program: &Path) -> Inputs {
    let folder = node_program.parent().unwrap();
    let source = Source::new(&"a1".repeat(20), &"b2".repeat(20)).unwrap();
    Inputs {
        source,
        guest: static_program(folder, "guest"),
        busybox: static_program(folder, "busybox"),
        node_program: node_program.to_owned(),
        artifact_base_url: String::new(),
    }
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn built() -> (tempfile::TempDir, PathBuf, Release) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::write(&program, "a node program").unwrap();
    let at = folder.path().join("release");
    let release = build(&inputs(&program), &at).unwrap();
    (folder, at, release)
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let (_keep, first, _) = built();
    let (_keep, second, _) = built();
    let names: Vec<_> = files(&first).into_iter().map(|(path, _)| path.display().to_string()).collect();
    let commit = "a1".repeat(20);
    let artifact = |suffix: &str| format!("artifacts/oac-{commit}-linux-amd64-{suffix}");
    let mut expected = vec![artifact("runtime.tar.gz"), artifact("sandbox-node"), artifact("seccomp.json")];
    expected.extend(["SHA256SUMS", "manifest.json", "node-install", "runtime/seccomp.json"].map(String::from));
    expected.sort();
    let mut sorted = names;
    sorted.sort();
    assert_eq!(sorted, expected);
    assert!(files(&first) == files(&second), "two builds differ");
}

#[test]
fn the_manifest_describes_its_files() {
    let (_keep, folder, release) = built();
    for artifact in release.manifest().artifacts.values() {
        let bytes = std::fs::read(folder.join("artifacts").join(&artifact.filename)).unwrap();
        assert_eq!((artifact.size, artifact.sha256), (bytes.len() as u64, Digest::of(&bytes)));
    }
    let text = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    assert!(text.starts_with("{\n  \"artifact_base_url\": \"\",\n") && text.ends_with("}\n"), "{text}");
    let runtime = release.runtime();
    assert_eq!(runtime.microsandbox_ref, format!("oac-runtime@{}", runtime.image_manifest_digest));
}

#[test]
fn a_changed_file_is_refused_when_it_is_read() {
    let (_keep, folder, release) = built();
    assert!(Release::open(&folder).is_ok());
    let archive = &release.manifest().artifacts["images/runtime.tar.gz"].filename;
    std::fs::write(folder.join("artifacts").join(archive), "changed").unwrap();
    assert!(matches!(release.image_archive(), Err(Error::Unusable { .. })));
    std::fs::write(folder.join("runtime/seccomp.json"), "{}").unwrap();
    assert!(matches!(Release::open(&folder), Err(Error::Unusable { .. })));
}

#[test]
fn a_second_release_does_not_overwrite_the_first() {
    let (keep, folder, _) = built();
    let refused = build(&inputs(&keep.path().join("program")), &folder);
    assert!(refused.unwrap_err().to_string().contains("holds a release already"));
}

#[test]
fn a_program_that_needs_a_loader_is_refused() {
    let (keep, _, _) = built();
    let mut inputs = inputs(&keep.path().join("program"));
    inputs.guest = std::env::current_exe().unwrap();
    let refused = build(&inputs, &keep.path().join("other")).unwrap_err().to_string();
    assert!(refused.contains("linked dynamically"), "{refused}");
    inputs.guest = keep.path().join("program");
    let refused = build(&inputs, &keep.path().join("other")).unwrap_err().to_string();
    assert!(refused.contains("is no x86-64 program"), "{refused}");
}
