//! Limits of the host side. The protocol's own limits are in `palisade_core::limits`.

/// Longest enrollment token, after trimming.
pub(crate) const TOKEN_MAX_BYTES: usize = 4096;
/// Longest token file: a token with white space around it.
pub(crate) const TOKEN_FILE_MAX_BYTES: usize = 8192;
/// Bound for one enrollment request, connect included.
pub(crate) const ENROLLMENT_TIMEOUT_MS: u64 = 15_000;
/// Longest display name of a node.
pub(crate) const NAME_MAX_BYTES: usize = 128;
/// Largest approved capacity.
pub(crate) const CAPACITY_MAX: i64 = 1_000_000;
/// Largest file that a measurement reads.
pub(crate) const MEASURED_FILE_MAX_BYTES: u64 = 1 << 20;
/// Deepest control group whose limits are read.
pub(crate) const CGROUP_LEVELS_MAX: usize = 128;
/// Longest measurement of the host; what takes longer is unknown, and the heartbeat is not late for it.
pub(crate) const MEASUREMENT_TIMEOUT_MS: u64 = 2_000;
/// What a provider's probe may take above its own limit before it is given up.
pub(crate) const PROBE_GRACE_MS: u64 = 1_000;
