//! The crash table of a download (node-host §3.3, step 14): its process is killed, or the power fails, at every system call
//! that changes the disk, and the real downloader goes on from what is left.

use std::collections::BTreeMap;
use std::path::Path;

use rstest::rstest;

use super::*;
use crate::download::part::{Part, Place};
use crate::files::disk::{Disk, System};
use crate::files::faults::{Faults, Stop};
use crate::generations::testing::{self, argument};

const VERSION: &str = "\"v1\"";

/// What a download does to the disk between its requests, when a server sends `content` in two pieces: a part is continued
/// like one that the server still has the version of. The tables of preparation and repair bring their files with it.
pub(crate) fn bring(disk: &mut dyn Disk, root: &Path, path: &str, content: &[u8]) -> Result<(), DownloadError> {
    let place = Place::new(root, path);
    place.make_folders(disk, root)?;
    let mut part = Part::on(disk, &place, content.len() as u64)?;
    match receive(&mut part, content) {
        Ok(()) => part.publish(),
        Err(error) if error.spoils_the_part() => part.discard().and(Err(error)),
        Err(error) => Err(error),
    }
}

fn receive(part: &mut Part<&mut dyn Disk>, content: &[u8]) -> Result<(), DownloadError> {
    while part.digest() != Digest::of(content) {
        let from = usize::try_from(part.len()).unwrap();
        if from == content.len() {
            part.restart()?;
        } else if part.validator().is_none() {
            part.begin(Some(VERSION.to_owned()))?;
        } else {
            let rest = &content[from..];
            for piece in rest.chunks(rest.len().div_ceil(2)) {
                part.append(piece).map_err(DownloadError::disk(Path::new("a part")))?;
            }
        }
    }
    Ok(())
}

/// What unpacking an archive does to the disk: nothing is continued.
pub(crate) fn unpack(disk: &mut dyn Disk, root: &Path, path: &str, content: &[u8]) -> Result<(), DownloadError> {
    let place = Place::new(root, path);
    place.clear(disk)?;
    if place.holds(content.len() as u64, Digest::of(content))? {
        return Ok(());
    }
    let mut part = Part::on(disk, &place, 0)?;
    part.begin(None)?;
    match part.append(content) {
        Ok(()) => part.publish(),
        Err(error) => Err(part.release(error)),
    }
}

/// How the run of a row ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// The power fails, and all but so many changed names are lost, with everything that was not synced.
    Power(usize),
    /// The power fails within a write, and every name is there.
    Torn,
    /// SIGKILL.
    Kill,
}

fn calls(start: Start) -> Vec<String> {
    let (home, mut disk) = (tempfile::tempdir().unwrap(), Faults::none());
    let root = home.path().join("root");
    crate::files::ensure_private_directory(&root).unwrap();
    start.leave(&root);
    bring(&mut disk, &root, PROGRAM, &content(SIZE)).unwrap();
    disk.calls
}

const SIZE: usize = 1000;

/// What a run begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Nothing.
    Nothing,
    /// The part of an earlier run, which is continued.
    Part,
    /// A part without a version, which is begun anew.
    Unknown,
}

impl Start {
    fn leave(self, root: &Path) {
        if self == Self::Nothing {
            return;
        }
        let place = Place::new(root, PROGRAM);
        place.make_folders(&mut System, root).unwrap();
        let mut part = Part::open(&place, SIZE as u64).unwrap();
        part.begin((self == Self::Part).then(|| VERSION.to_owned())).unwrap();
        part.append(&content(SIZE)[..300]).unwrap();
    }
}

impl How {
    fn end(self, start: Start, lab: &Lab, calls: usize) {
        start.leave(&lab.root());
        let attic = lab.home.path().join("attic");
        std::fs::create_dir(&attic).unwrap();
        let (stop, kept) = match self {
            Self::Power(kept) => (Stop::Power, kept),
            Self::Torn => (Stop::Torn, usize::MAX),
            Self::Kill => return kill(start, &lab.root(), calls),
        };
        let mut disk = Faults::after(calls, stop).remembering(&attic);
        bring(&mut disk, &lab.root(), PROGRAM, &content(SIZE)).unwrap_err();
        disk.lose(kept);
    }
}

/// H 5, H 9, H 147. E28, E36. At whatever system call a download ends, nothing unverified has the name of the file, and the
/// next one goes on: it resumes what is left, verifies what is whole, or begins anew; nothing but the file stays.
#[rstest]
#[tokio::test]
async fn every_crash_of_a_download_is_recovered_from(
    #[values(Start::Nothing, Start::Part, Start::Unknown)] start: Start,
) {
    let bytes = content(SIZE);
    let mut met = BTreeMap::new();
    for (number, call) in calls(start).into_iter().enumerate() {
        for how in [How::Power(0), How::Power(1), How::Torn, How::Kill] {
            let served = bytes.clone();
            let lab = Lab::new(move |asked| Answer::good(asked, &served, VERSION)).await;
            how.end(start, &lab, number);
            let published = lab.path(PROGRAM).exists();
            assert!(!published || lab.bytes(PROGRAM) == bytes, "nothing unverified has the name");
            lab.fetch(&program(&bytes)).await.unwrap();
            assert_eq!((lab.bytes(PROGRAM), lab.files()), (bytes.clone(), vec![PROGRAM.to_owned()]), "{how:?} {call}");
            let asked = lab.server.asked();
            let next = match asked.last().map(Asked::from) {
                None if published => "kept",
                None => "verified without a request",
                Some(0) => "begun anew",
                Some(_) => "resumed",
            };
            println!("{:<12} {start:?} · {how:?} · call {number:>3} {call:<32} {next}", "download");
            *met.entry(next).or_insert(0) += 1;
        }
    }
    let met: Vec<_> = met.into_keys().collect();
    assert_eq!(met, ["begun anew", "kept", "resumed", "verified without a request"]);
}

fn kill(start: Start, root: &Path, calls: usize) {
    let mut process = testing::process(
        "download::tests::crashes::a_download_that_kills_itself",
        &[("PALISADE_TEST_ROOT", root.to_str().unwrap()), ("PALISADE_TEST_CALLS", &calls.to_string())],
    );
    let ended = process.stdout(std::process::Stdio::null()).status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9), "{start:?}: killed before its end");
}

#[test]
#[ignore = "the download of the test here, started by it as a process of its own"]
fn a_download_that_kills_itself() {
    let root = argument("PALISADE_TEST_ROOT");
    let calls = argument("PALISADE_TEST_CALLS").parse().unwrap();
    bring(&mut Faults::after(calls, Stop::Kill), Path::new(&root), PROGRAM, &content(SIZE)).unwrap();
}
