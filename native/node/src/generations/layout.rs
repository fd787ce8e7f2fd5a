//! Where everything of an installation is (node-host §1.4, §1.5).

use std::path::{Path, PathBuf};

use palisade_core::units::Generation;

use super::records::GENERATIONS;

/// The root of one installation on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The file of the enrolled configuration, below ROOT.
    pub(crate) const BASE: &str = "provider.json";
    /// The lock of everything that changes the installation, below ROOT.
    pub(crate) const LOCK: &str = "install.lock";

    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The root whose configuration file and state directory these are; `None` when they do not belong together.
    pub(crate) fn of(config: &Path, state: &Path) -> Option<Self> {
        let layout = Self::new(config.parent()?);
        (layout.base() == config && layout.state() == state).then_some(layout)
    }

    /// ROOT.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The enrolled configuration.
    pub(crate) fn base(&self) -> PathBuf {
        self.root.join(Self::BASE)
    }

    /// The private state of the node.
    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state/node")
    }

    /// The folder of all releases but the one that the node was enrolled with.
    pub(crate) fn releases(&self) -> PathBuf {
        self.root.join("releases")
    }

    /// The folder of one release.
    pub(crate) fn release(&self, source: &str) -> PathBuf {
        self.releases().join(source)
    }

    /// The records of the generations.
    pub(crate) fn generations(&self) -> PathBuf {
        self.state().join(GENERATIONS)
    }
}

/// The name of a generation's file in `generations/`.
pub(crate) fn name(generation: Generation, suffix: &str) -> String {
    format!("{generation}.{suffix}")
}
