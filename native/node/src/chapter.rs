//! The operator's page of refusals: what ends a start or a download has its row there, in the words of the code.

use std::io;
use std::path::{Path, PathBuf};

use palisade_core::generation::configuration::InvalidConfiguration;
use palisade_core::generation::recovery::{Cause, IllegalName, Object, Refusal, Refused};
use palisade_core::units::Malformed;

use crate::configuration::ConfigurationError;
use crate::discovery::DiscoveryError;
use crate::download::DownloadError;
use crate::enrollment::EnrollmentError;
use crate::files::FileError;
use crate::generations::RecordsError;
use crate::identity::IdentityError;
use crate::origin::Origin;
use crate::run::RunError;

const CHAPTER: &str = include_str!("../../../docs/refusals.md");

/// Whether a row begins with a phrase of this message.
fn has_a_row(message: &str) -> bool {
    let first_cells = CHAPTER.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    first_cells.map(|(phrase, _)| phrase).any(|phrase| message.contains(phrase))
}

fn file() -> FileError {
    FileError::new(Path::new("/root/file"), io::Error::from(io::ErrorKind::PermissionDenied))
}

fn starts() -> Vec<RunError> {
    let refusal = Refusal { object: Object::Base, cause: Cause::Missing };
    vec![
        RunError::Layout,
        Malformed("an https origin").into(),
        ConfigurationError::File(file()).into(),
        ConfigurationError::Invalid(InvalidConfiguration::Native).into(),
        ConfigurationError::NoProvider("microsandbox").into(),
        IdentityError::File(file()).into(),
        IdentityError::InUse(PathBuf::from("/state")).into(),
        IdentityError::Damaged { path: PathBuf::from("/state/identity.json"), reason: "it is cut off" }.into(),
        IdentityError::Foreign("installation").into(),
        IdentityError::Unregistered(PathBuf::from("/state")).into(),
        IdentityError::Insecure(Origin::parse("http://core.example").unwrap()).into(),
        DiscoveryError::Refused(Refused { generation: None, refusal }).into(),
        DiscoveryError::from(RecordsError::Name { path: PathBuf::from("/root/07.json"), error: IllegalName }).into(),
        DiscoveryError::from(RecordsError::List {
            path: PathBuf::from("/root"),
            error: io::ErrorKind::PermissionDenied.into(),
        })
        .into(),
        EnrollmentError::Unauthorized { secret: "node credential", code: None }.into(),
        EnrollmentError::Refused { status: 409, code: None }.into(),
        EnrollmentError::Unreachable("no connection".to_owned()).into(),
        EnrollmentError::Foreign("installation").into(),
        EnrollmentError::Malformed("no object".to_owned()).into(),
        EnrollmentError::Capacity.into(),
        EnrollmentError::Client("no certificates".to_owned()).into(),
        RunError::System(io::Error::from(io::ErrorKind::Other)),
    ]
}

#[test]
fn every_end_of_a_start_has_a_row() {
    for error in starts() {
        assert!(has_a_row(&error.to_string()), "no row says: {error}");
    }
}

#[test]
fn every_end_of_a_download_has_a_row() {
    let name = || "artifacts/file".to_owned();
    let kept = 7;
    let ends = [
        DownloadError::Unreachable { file: name(), what: "no connection" },
        DownloadError::Status { file: name(), status: 404 },
        DownloadError::Redirect { file: name(), allowed: "is not allowed" },
        DownloadError::Interrupted { file: name(), kept },
        DownloadError::Stalled { file: name(), kept },
        DownloadError::TooLong(name()),
        DownloadError::Mismatch(name()),
        DownloadError::Conflict(PathBuf::from("/root/file")),
        DownloadError::Client("no certificates".to_owned()),
        DownloadError::Metadata { file: name(), problem: "no list of checksums".to_owned() },
        FileError::expected(Path::new("/root/file"), "a file with one name").into(),
    ];
    for error in ends {
        assert!(has_a_row(&error.to_string()), "no row says: {error}");
    }
}

#[test]
fn everything_that_a_file_may_fail_to_be_has_a_row() {
    for expected in [
        "a directory of mode 0700",
        "a directory that belongs to the account of this process",
        "a directory, not a link or another file",
        "a file of mode 0600",
        "a file that belongs to the account of this process",
        "a file that nobody but its owner can use",
        "a file that only its owner can write",
        "a file with one name",
        "a file, not a symbolic link",
        "a path inside the installation",
        "a regular file",
        "a regular file, and no link on the way to it",
        "a smaller file",
        "its parent to exist; make that first",
        "nothing mounted on it or below it",
        "the recorded content; it is kept as it is",
    ] {
        let told = FileError::expected(Path::new("/root/file"), expected).to_string();
        assert!(has_a_row(&told), "no row says: {told}");
    }
    let named = RecordsError::Name { path: PathBuf::from("/root/07.json"), error: IllegalName }.to_string();
    assert!(CHAPTER.contains("| `expected a number without") && has_a_row(&named), "{named}");
}

#[test]
fn a_message_that_nobody_wrote_has_none() {
    assert!(!has_a_row("the moon is full"));
}
