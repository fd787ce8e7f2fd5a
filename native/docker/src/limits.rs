//! Limits of the Docker provider alone; the protocol's stand in `palisade_core::limits`.

use std::time::Duration;

/// The oldest engine API that is spoken, major and minor.
pub(crate) const API_VERSION_MIN: (usize, usize) = (1, 41);
/// Memory of a sandbox without managed resources, in bytes.
pub(crate) const DEFAULT_MEMORY_BYTES: i64 = 2 << 30;
/// CPU of a sandbox without managed resources, in billionths of a core.
pub(crate) const DEFAULT_NANO_CPUS: i64 = 2_000_000_000;
/// Processes and threads of a sandbox.
pub(crate) const PIDS_MAX: i64 = 128;
/// Longest seccomp profile, in bytes.
pub(crate) const SECCOMP_MAX_BYTES: u64 = 1 << 20;
/// Creations whose end this process remembers; the oldest is forgotten first and then counts as one before a restart.
pub(crate) const REMEMBERED_CREATIONS_MAX: usize = 65_536;
/// How long everything must be absent at every look before a creation of an earlier process counts as ended.
pub(crate) const ABSENCE_SETTLES_AFTER: Duration = Duration::from_secs(5 * 60);
/// Longest single argument of a command, in bytes: Linux's `MAX_ARG_STRLEN` without the NUL at its end. The engine
/// starts a process before the kernel refuses a longer one, and shows the refusal as the command's own exit.
pub(crate) const ARGUMENT_MAX_BYTES: usize = 131_071;
/// All arguments of a command with what the kernel adds to each, in bytes: a quarter of the usual stack of 8 MiB, with
/// room for the environment.
pub(crate) const ARGUMENTS_MAX_BYTES: usize = 2 * 1024 * 1024 - 64 * 1024;
/// What the kernel adds to an argument, in bytes: a NUL and a pointer.
pub(crate) const ARGUMENT_COST_BYTES: usize = 9;
/// Bytes of standard input that are written at once.
pub(crate) const STDIN_CHUNK_BYTES: usize = 64 * 1024;
/// How long the rest of the input may take after the output has ended.
pub(crate) const INPUT_TAIL: Duration = Duration::from_secs(1);
/// First and longest interval between looks at a command whose output has ended.
pub(crate) const EXIT_POLL_MIN: Duration = Duration::from_millis(2);
/// See [`EXIT_POLL_MIN`].
pub(crate) const EXIT_POLL_MAX: Duration = Duration::from_millis(100);
/// Everything that stopping a command may take, beyond its budget.
pub(crate) const STOP_BUDGET: Duration = Duration::from_secs(10);
/// How long a command may take to end after it was asked to.
pub(crate) const END_GRACE: Duration = Duration::from_secs(2);
/// How long the kernel may take to end a process that was killed.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(1);
/// A request that nobody bounds in time: creations are never cancelled. In seconds.
pub(crate) const UNBOUNDED_SECS: u64 = 10 * 365 * 24 * 3600;
/// Bytes of an image archive that are passed on at once.
pub(crate) const IMPORT_CHUNK_BYTES: usize = 256 * 1024;
/// How long the engine may take to say what it has.
pub(crate) const QUESTION_SECS: u64 = 30;
