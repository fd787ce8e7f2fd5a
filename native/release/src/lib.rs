//! The Runtime release: what a node needs to run sandboxes, built from files and found again by identity.
//!
//! * A release is a function of its input files: the same files give the same bytes, whoever builds it and when.
//! * Both identities of its image are proven from the archive, by every byte that counts.
//! * A published file is never written again: a release adds what is missing, or nothing when anything differs.
//! * An image is never found by a tag, only by its configuration or manifest digest, and the engine's own answer
//!   decides (node-host §5.6).
//!
//! [`build()`] writes a release folder (node-host §5.2), [`Release::open`] reads one back, [`publish()`] adds it to a payload
//! folder (node-host §5.8), and [`engine::ensure`] brings its image into a Docker engine. [`checkout`] does all of it for
//! the tests of this source tree.

#![forbid(unsafe_code)]

mod archive;
mod build;
pub mod checkout;
mod durable;
mod elf;
pub mod engine;
mod folder;
mod image;
mod proof;
mod publish;
mod rootfs;
mod source;

pub use build::{Inputs, build};
pub use folder::Release;
pub use image::{Image, RUNTIME_UID};
pub use palisade_core::distribution::manifest::{Artifact, Manifest, Microsandbox, Runtime};
pub use proof::{Identities, prove};
pub use publish::{Contents, Published, publish};
pub use source::Source;

/// The system-call filter of every sandbox: ordinary programs work, the kernel's dangerous doors stay shut.
///
/// It allows what a program without capabilities uses and answers "not permitted" to the rest: mounting, namespaces,
/// kernel modules, keyrings, tracing, `bpf`, `io_uring`, `userfaultfd`, clocks, reboot. `clone3` answers "not implemented", so
/// that a C library falls back to `clone`, whose flags can be checked.
pub const SECCOMP_PROFILE: &str = include_str!("seccomp.json");

/// Why a release could not be built, read or loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {error}", path = .path.display())]
    File {
        /// Which file.
        path: std::path::PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// An input or a file of the release is not what it must be.
    #[error("{path}: {problem}", path = .path.display())]
    Unusable {
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Files of the payload differ from the release.
    #[error(
        "{} of the same release, but with other bytes; nothing was added: find out which files are right, and move the others away",
        listed(.paths)
    )]
    Conflict {
        /// The files.
        paths: Vec<std::path::PathBuf>,
    },
    /// The source tree cannot be identified.
    #[error("cannot tell the source commit of {path}: {problem}; pass --source-commit and --source-tree", path = .path.display())]
    Source {
        /// Which folder.
        path: std::path::PathBuf,
        /// What `git` said.
        problem: String,
    },
    /// The engine did not answer or refused.
    #[error("the Docker engine failed to {action}: {error}")]
    Engine {
        /// What was asked.
        action: &'static str,
        /// What it answered.
        error: Box<bollard::errors::Error>,
    },
    /// The engine has an image under one of the release's digests that is not the release's image.
    #[error(
        "the Docker engine answers {found} for image {asked}: expected one of the release's digests on linux/amd64"
    )]
    ForeignImage {
        /// The digest that was asked for.
        asked: String,
        /// Identity and platform in the engine's answer.
        found: String,
    },
    /// A load that succeeded left no image under either digest.
    #[error("the Docker engine loaded the archive, but knows neither {image_id} nor {manifest_digest}")]
    NotLoaded {
        /// Configuration digest of the release.
        image_id: String,
        /// Manifest digest of the release.
        manifest_digest: String,
    },
}

impl Error {
    fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, error }
    }

    fn unusable(path: &std::path::Path, problem: &str) -> Self {
        Self::Unusable { path: path.to_owned(), problem: problem.to_owned() }
    }
}

fn listed(paths: &[std::path::PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("{} {}", paths.join(", "), if paths.len() == 1 { "is" } else { "are" })
}
