//! Limits of the microsandbox provider alone; the protocol's stand in `palisade_core::limits`.

use std::time::Duration;

/// How often a lock that somebody else has is tried again (node-host §8.4).
pub(crate) const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// How long `msb` may take to answer a question.
pub(crate) const QUESTION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long `msb` may take to remove an image.
pub(crate) const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long `msb` may take to load an image (node-host §8.10).
pub(crate) const LOAD_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How long the output of a helper may go on after its end, while a child that it left has it open.
pub(crate) const OUTPUT_TAIL: Duration = Duration::from_secs(1);
/// How often a program is started again that somebody has open for writing.
pub(crate) const BUSY_RETRIES: u32 = 40;
/// How long between two such attempts.
pub(crate) const BUSY_INTERVAL: Duration = Duration::from_millis(5);
/// What `/proc/meminfo` may have.
pub(crate) const MEMINFO_MAX_BYTES: u64 = 64 * 1024;
