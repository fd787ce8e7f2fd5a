//! What `palisade node doctor` looks at. Each look is a question of its own; none of them changes anything, holds a lock
//! or disturbs a running node.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use palisade_core::generation::recovery::Local;
use palisade_core::units::Generation;
use palisade_docker::Installation;
use palisade_provider::NotReady;

use crate::configuration::{Configuration, ConfigurationError};
use crate::enrollment::Enrollment;
use crate::files::{self, FileError};
use crate::generations::{Layout, Records};
use crate::identity;
use crate::{EnrollmentError, IdentityError};

pub use palisade_docker::About;

/// One installation, by the folder of its provider.json.
#[derive(Debug, Clone)]
pub struct Examination {
    layout: Layout,
}

/// What the enrolled configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// Its file.
    pub file: PathBuf,
    /// `docker` or `microsandbox`.
    pub provider: &'static str,
    /// Generation that the node was enrolled with.
    pub generation: Generation,
    /// Address of the engine, when the provider has one.
    pub engine: Option<String>,
}

/// What came of a question to Core.
#[derive(Debug)]
pub struct Asked {
    /// Core's origin.
    pub core_url: String,
    /// Whether Core has a live connection of this node, when it says so.
    pub connected: Result<Option<bool>, EnrollmentError>,
    /// How many seconds this host's clock is ahead of the clock of whoever answered; below zero when it is behind.
    pub clock_ahead_seconds: Option<i64>,
}

impl Examination {
    /// Looks at nothing yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { layout: Layout::new(root) }
    }

    /// The private state of the node.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.layout.state()
    }

    /// Whether the root belongs to this user, who alone may enter it: a node does not start otherwise.
    ///
    /// # Errors
    /// What is not as expected, with its path.
    pub fn root(&self) -> Result<(), FileError> {
        files::require_private_directory(self.layout.root())
    }

    /// Reads the enrolled configuration as a node does: owner, mode and content.
    ///
    /// # Errors
    /// What a node would say when it refuses to start.
    pub fn configuration(&self) -> Result<Configured, ConfigurationError> {
        let configuration = Configuration::load(&self.layout.base())?;
        Ok(Configured {
            file: self.layout.base(),
            provider: configuration.kind().name(),
            generation: configuration.generation(),
            engine: configuration.engine(),
        })
    }

    /// Probes every generation that could serve, as the running node does: `Err` says why no sandbox can be created now.
    /// Without readable configuration or records there is none.
    pub async fn readiness(&self) -> Vec<(Generation, Result<(), String>)> {
        let mut found = Vec::new();
        for configuration in self.configurations() {
            found.push((configuration.generation(), ready(&configuration).await));
        }
        found
    }

    fn configurations(&self) -> Vec<Configuration> {
        let Ok(base) = Configuration::load(&self.layout.base()) else { return Vec::new() };
        let Ok(records) = Records::read(&self.layout.generations(), &base.record) else { return Vec::new() };
        let configured = records.locals().unwrap_or_default().into_iter().filter(|(_, at)| *at == Local::Configured);
        configured.filter_map(|(generation, _)| records.of(generation).configuration).map(Configuration::from).collect()
    }

    /// Asks Core for the node's identity with the node's own credential, which changes nothing there.
    ///
    /// # Errors
    /// There is no identity to ask with, or it cannot be used.
    pub async fn core(&self) -> Result<Asked, IdentityError> {
        let state = self.state();
        let stored = identity::peek(&state)?.ok_or(IdentityError::Unregistered(state))?;
        let core_url = stored.core_url.to_string();
        let enrollment = match Enrollment::new(&stored.core_url) {
            Ok(enrollment) => enrollment,
            Err(error) => return Ok(Asked { core_url, connected: Err(error), clock_ahead_seconds: None }),
        };
        let before = now();
        let (connected, date) = enrollment.look(&stored).await;
        let here = before.as_millisecond().midpoint(now().as_millisecond());
        let clock_ahead_seconds = date.and_then(|date| ahead(here, &date));
        Ok(Asked { core_url, connected, clock_ahead_seconds })
    }
}

/// Who the engine at this address is.
///
/// # Errors
/// Why it does not answer.
pub async fn engine(host: &str) -> Result<About, String> {
    Installation::new(host).about().await.map_err(|error| error.to_string())
}

async fn ready(configuration: &Configuration) -> Result<(), String> {
    let backend = configuration.backend().map_err(|error| error.to_string())?;
    let probed = backend.provider.probe().await;
    probed.map(drop).map_err(|NotReady { diagnostic, detail }| format!("{}: {detail}", diagnostic.code()))
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or_default()
}

/// A `Date` names its second's beginning, so that its middle is the best guess.
fn ahead(here_ms: i64, date: &str) -> Option<i64> {
    let there = rfc2822::parse(date).ok()?.timestamp().as_millisecond() + 500;
    Some((here_ms - there) / 1000)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(784_111_777_500, Some(0))]
    #[case(784_111_778_400, Some(0))]
    #[case(784_111_837_500, Some(60))]
    #[case(784_111_717_500, Some(-60))]
    fn a_clock_is_compared_with_the_middle_of_the_second(#[case] here_ms: i64, #[case] expected: Option<i64>) {
        assert_eq!(ahead(here_ms, "Sun, 06 Nov 1994 08:49:37 GMT"), expected);
        assert_eq!(ahead(here_ms, "yesterday"), None);
    }
}
