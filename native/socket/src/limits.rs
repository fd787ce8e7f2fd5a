//! Limits of the shell. The protocol's own limits are in `palisade_core::limits`.

/// Read buffer of a connection, and most that one read takes: the largest part of what an idle connection costs. A
/// heartbeat fits into it.
pub(crate) const READ_BUFFER_BYTES: usize = 4 * 1024;
/// What the write buffer holds above the fragment being written: headers, pongs and a Close.
pub(crate) const WRITE_BUFFER_SPARE_BYTES: usize = 1024;
/// Longest body that is read of an answer that refuses an upgrade.
pub(crate) const REFUSAL_BODY_MAX_BYTES: usize = 16 * 1024;
/// Time for the stream to end after the peer's Close frame, and for the peer's Close after ours.
pub(crate) const CLOSE_TIMEOUT_MS: u64 = 10_000;
