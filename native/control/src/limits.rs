//! Limits that only Core's shells have. Those of the protocol are in [`palisade_core::limits`].

use std::time::Duration;

/// Largest body of an administrative request that names no other limit, in bytes.
pub const BODY_MAX_BYTES: usize = 64 * 1024;
/// Largest body of a reset or archive request, in bytes (deployment §0).
pub const RESET_BODY_MAX_BYTES: usize = 4096;
/// Time that a provider has to confirm a selection (deployment §0).
pub const CONFIRMATION_WAIT: Duration = Duration::from_secs(60);
/// Time that one pass of a reset may take (deployment §0).
pub const RESET_PASS_MAX: Duration = Duration::from_secs(5);
/// Interval of the passes while a reset is under way.
pub const RESET_INTERVAL: Duration = Duration::from_secs(1);
/// Largest request head, and what is read of a body at once.
pub const HEADER_MAX_BYTES: usize = 64 * 1024;
/// Time for a whole request head, and the longest that a connection is kept alive for its next request.
pub const HEADER_WAIT: Duration = Duration::from_secs(30);
/// Time for each [`BODY_WAIT_BYTES`] of a request body, and for the rest of it.
pub const BODY_WAIT: Duration = Duration::from_secs(30);
/// What of a body must arrive within [`BODY_WAIT`].
pub const BODY_WAIT_BYTES: usize = 1024 * 1024;
/// Time for which what a client sends after its answer is read and thrown away, so that the answer reaches it; less than what a
/// stop waits for.
pub const LINGER_WAIT: Duration = Duration::from_secs(5);
/// Bytes after which that ends.
pub const LINGER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Connections of one Core process to PostgreSQL.
pub const CONNECTIONS_MAX: u32 = 16;
/// Transactions of requests and of the owner that write to PostgreSQL at a time; well below [`CONNECTIONS_MAX`].
pub const WRITERS_MAX: usize = 4;
/// Connections that read SQLite, beside the one that writes.
pub const SQLITE_READERS_MAX: u32 = 4;
/// Pages in SQLite's log, of 4 KiB, at which a commit moves them into the database and everybody waits: some 40 MiB.
pub const SQLITE_CHECKPOINT_PAGES: u32 = 10_000;
/// Time a request waits for a database connection, and Core for its first one.
pub const CONNECTION_WAIT: Duration = Duration::from_secs(5);
/// Time an idle database connection has to prove that it lives before it serves again.
pub const CONNECTION_PROOF_WAIT: Duration = Duration::from_secs(1);
/// Time SQLite waits for another process that holds the database file.
pub const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Time that PostgreSQL has for one statement of a request; the largest stores 50 MiB.
pub const STATEMENT_WAIT: Duration = Duration::from_secs(30);
/// Time that a statement waits for a row that another transaction holds.
pub const LOCK_WAIT: Duration = Duration::from_secs(15);
/// Silence after which PostgreSQL ends a transaction, so that a process that is gone holds no row.
pub const TRANSACTION_SILENCE_MAX: Duration = Duration::from_secs(10);
/// Silence after which PostgreSQL ends the connection that holds the execution lease: some proofs of it are missing then.
pub const OWNER_SILENCE_MAX: Duration = Duration::from_secs(10);
/// Time over which calls of connections are gathered for one transaction; well below what a heartbeat may take. Whoever
/// comes while a transaction runs is in the next one anyway.
pub const GATHER_WAIT: Duration = Duration::from_millis(2);
/// Calls of connections in one transaction.
pub const GATHERED_MAX: usize = 256;
/// Bytes from which on a write is a large one, of which one runs at a time.
pub const LARGE_WRITE_BYTES: usize = 1024 * 1024;
/// Interval at which the owner proves that it still holds the execution lease, and at which a standby asks for it.
pub const LEASE_INTERVAL: Duration = Duration::from_secs(2);
/// Time that a proof of the lease or an attempt to get it may take; a proof that takes longer counts as a loss.
pub const LEASE_WAIT: Duration = Duration::from_secs(5);
/// Time that open requests have to end after a stop signal.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Time that the store has to close at the end; a database that does not answer is left alone.
pub const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Life of an enrollment token, in milliseconds of the database clock (deployment §0).
pub const ENROLLMENT_TOKEN_LIFE_MS: i64 = 10 * 60 * 1000;
/// Interval of host history sampling (deployment §0).
pub const HISTORY_INTERVAL: Duration = Duration::from_secs(30);
/// Hosts sampled in one transaction; the others follow in the next ones.
pub const HOSTS_SAMPLED_MAX: i64 = 256;
/// Age at which a host history sample is dropped, in milliseconds (deployment §0).
pub const HISTORY_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Host history samples dropped in one pass (deployment §0).
pub const HISTORY_PRUNED_MAX: i64 = 256;
/// Allocations in one answer of a node's allocation list (deployment §1.11).
pub const ALLOCATIONS_LISTED_MAX: i64 = 1000;
/// Sessions in one list, newest first.
pub const SESSIONS_LISTED_MAX: i64 = 1000;
/// Observations of one page that are sampled at the same time.
pub const OBSERVED_AT_ONCE: usize = 16;
/// Turns in one page; each may hold 2 MiB of output.
pub const TURNS_LISTED_MAX: usize = 100;
/// Turns of one session that wait or run.
pub const TURNS_OPEN_MAX: u64 = 64;
/// Interval at which a running Core reads the stored Core keys again: the longest that a revoked one is still accepted.
pub const KEYS_INTERVAL: Duration = Duration::from_secs(2);
/// Stored Core keys that are not revoked.
pub const CORE_KEYS_MAX: usize = 64;
/// Time that the store has to answer one who asks whether Core is ready, or for its metrics.
pub const PROBE_WAIT: Duration = Duration::from_secs(2);
/// Least budget for bodies in flight: below it the largest command would wait for ever.
pub const BODY_BUDGET_MIN_BYTES: u64 = 128 * 1024 * 1024;
/// Downloads of node files at once.
pub const DOWNLOADS_MAX: usize = 256;
/// Time after which somebody who takes nothing of a download gets no more.
pub const DOWNLOAD_STALL: Duration = Duration::from_secs(60);
/// Bytes of a download that are read at once.
pub const DOWNLOAD_PIECE_BYTES: usize = 256 * 1024;
