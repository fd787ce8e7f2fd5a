//! Limits of the host side. The protocol's own limits are in `palisade_core::limits`.

use std::time::Duration;

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

/// Time to connect for a download.
pub(crate) const CONNECT_TIMEOUT_MS: u64 = 15_000;
/// Time for one small file of a release, connect included.
pub(crate) const METADATA_TIMEOUT_MS: u64 = 60_000;
/// Time in which a download must bring [`STALL_BYTES`] (node-host §5.5).
pub(crate) const STALL_WINDOW: Duration = Duration::from_secs(60);
/// What must arrive within [`STALL_WINDOW`].
pub(crate) const STALL_BYTES: u64 = 64 * 1024;
/// How often one request may be sent on.
pub(crate) const REDIRECTS_MAX: usize = 5;
/// Longest address that a request is sent on to; storage services sign theirs.
pub(crate) const ADDRESS_MAX_BYTES: usize = 8192;
/// Longest name of a version, an `ETag` or a date.
pub(crate) const VALIDATOR_MAX_BYTES: usize = 1024;
/// Pieces of a download that wait for the disk; the network waits then.
pub(crate) const CHUNKS_QUEUED_MAX: usize = 32;
/// Pieces of a download that one thread hashes and writes before it asks for more.
pub(crate) const CHUNKS_AT_ONCE_MAX: usize = 32;
/// Bytes of a download after which those before are synced while more come.
pub(crate) const SYNC_BYTES: u64 = 32 * 1024 * 1024;
/// What an attempt must bring beyond all before it, so that the failed ones are forgotten.
pub(crate) const PROGRESS_AGAIN_BYTES: u64 = 1024 * 1024;
/// Bytes after which a download looks again whether the disk has room.
pub(crate) const ROOM_CHECK_BYTES: u64 = 16 * 1024 * 1024;
/// What a download leaves free for everybody else on the disk (node-host §5.5).
pub(crate) const DISK_RESERVE_BYTES: u64 = 256 * 1024 * 1024;
/// Inodes that a download leaves free.
pub(crate) const DISK_RESERVE_INODES: u64 = 256;
/// Size from which on a file has its progress shown.
pub(crate) const PROGRESS_FILE_BYTES: u64 = 50 * 1024 * 1024;
/// Bytes that are copied or hashed at once.
pub(crate) const COPY_BYTES: usize = 256 * 1024;
/// Longest owner record of a microsandbox store.
pub(crate) const OWNER_MAX_BYTES: usize = 4096;
/// Longest `runtime-artifacts.json`.
pub(crate) const ARTIFACTS_MAX_BYTES: usize = 16_384;
/// Longest `preparation.json`.
pub(crate) const SOURCE_MAX_BYTES: usize = 4096;
