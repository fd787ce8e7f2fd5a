//! Installations for tests, in temporary folders.

mod site;
mod world;

use std::path::PathBuf;
use std::process::Command;

use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::Owner;
use palisade_core::units::Generation;
use palisade_core::wire::payload::GenerationReference;
use serde_json::json;
use tempfile::TempDir;

use super::layout::Layout;
use super::lease::{Held, Lease};
use crate::files::disk::System;
use crate::files::writer;
use crate::testing::configuration;

pub(crate) use site::Site;
pub(crate) use world::{content, target};

/// ROOT of a node that was enrolled with generation 3.
pub(crate) struct Place {
    _folder: TempDir,
    pub(crate) layout: Layout,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path());
        writer::record(&mut System, folder.path(), Layout::BASE, &numbered(3).to_bytes()).unwrap();
        writer::ensure_private_directories(&mut System, folder.path(), &layout.generations()).unwrap();
        Self { _folder: folder, layout }
    }

    /// One that has the lease of its enrolled generation, as an installer leaves it.
    pub(crate) fn enrolled() -> Self {
        let place = Self::new();
        place.lease(3);
        place
    }

    /// Makes a lease with its record.
    pub(crate) fn lease(&self, generation: u64) {
        let directory = self.layout.generations();
        let Held::Yes(lease) = Lease::create(&mut System, &directory, number(generation)).unwrap() else {
            panic!("nobody knows the lease")
        };
        lease.record(&mut System, &directory, &owner(generation)).unwrap();
    }

    /// Where a file of `generations/` is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.layout.generations().join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: &[u8]) {
        writer::record(&mut System, &self.layout.generations(), name, contents).unwrap();
    }
}

pub(crate) fn number(generation: u64) -> Generation {
    Generation::new(generation).unwrap()
}

/// The test's configuration under another number.
pub(crate) fn numbered(generation: u64) -> Configuration {
    let mut document = configuration();
    document["generation"] = json!(generation);
    Configuration::parse(document.to_string().as_bytes()).unwrap()
}

pub(crate) fn owner(generation: u64) -> Owner {
    Owner::of(&numbered(generation).envelope)
}

pub(crate) fn reference(generation: u64) -> GenerationReference {
    GenerationReference { generation: number(generation), specification_digest: owner(generation).specification_digest }
}

/// One function of this test program as a process of its own. `role` is the path of an ignored test.
pub(crate) fn process(role: &str, arguments: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--ignored", "--nocapture"]);
    command.envs(arguments.iter().copied());
    command
}

/// What [`process`] was given.
pub(crate) fn argument(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is given by the test that starts this process"))
}
