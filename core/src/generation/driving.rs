//! What the table and its driver say to each other.

use crate::operation::Declaration;
use crate::units::Generation;
use crate::wire::payload::{Checkpoint, Diagnostic, GenerationReference};

/// What the node found on its disk for one generation at start (node-host §3.10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Found {
    /// A provider was constructed; it is `preparing` until a probe answers.
    Provider(Declaration),
    /// Its files are missing or its preparation is unfinished: repaired before anything else.
    Recovery,
    /// A collection is unfinished: retention candidate only.
    Collecting,
}

/// Why an announcement or a grant is an ownership violation (wire §4.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The serving pin is above the target.
    #[error("serving generation {serving} is above target {target}")]
    ServingAboveTarget {
        /// The pin.
        serving: Generation,
        /// The target.
        target: Generation,
    },
    /// A known number came with another digest.
    #[error("generation {0} is known with another specification digest")]
    DigestChanged(Generation),
    /// The target or the serving pin is being collected here.
    #[error("generation {0} is being collected on this node")]
    Collected(Generation),
}

/// Background work that the table asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Prepare or repair it; answer with [`super::Table::handle_prepared`].
    Prepare(GenerationReference),
    /// End the running preparation; it still answers with [`super::Table::handle_prepared`].
    CancelPreparation(Generation),
    /// Probe it, within [`crate::limits::PROBE_TIMEOUT_MS`]; answer with [`super::Table::handle_probed`].
    Probe(Generation),
}

/// What a probe came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Probed {
    /// A sandbox could be created now.
    Ready(Option<Checkpoint<'static>>),
    /// It could not, for this declared class.
    NotReady(Diagnostic),
    /// The probe was given up; nothing changes.
    Cancelled,
}

/// What became of a drop grant (wire §7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drop {
    /// Nobody can use it from here on; remove it, and answer with [`super::Table::handle_removed`].
    Remove,
    /// It is not known here.
    Unknown,
    /// The digest is not ours: never our generation.
    Foreign,
    /// Held, prepared, being removed, the target or the serving pin; or another one is prepared, which needs the same lock
    /// of the installation: asked again later.
    Busy,
}

/// Why the table wants to be driven again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wake {
    /// The next probe is due.
    Probe,
    /// A preparation may be tried again.
    Prepare,
    /// The running preparation, or the running removal, used up its time.
    Deadline,
}
