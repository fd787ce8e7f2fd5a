//! Every limit of the protocol, with its name and unit. Wire §0.1 unless noted.

/// The one protocol version that is spoken and decoded.
pub const PROTOCOL_VERSION: u64 = 6;
/// Longest control frame: every frame but `request` and `response`.
pub const CONTROL_FRAME_MAX_BYTES: usize = 32_768;
/// Longest `request` or `response` frame, 72 MiB.
pub const CALL_FRAME_MAX_BYTES: usize = 75_497_472;
/// Deepest nesting of a frame, opaque values included.
pub const FRAME_MAX_DEPTH: usize = 128;
/// Largest fragment of an outgoing message; larger messages are split (decision 29).
pub const FRAGMENT_MAX_BYTES: usize = 256 * 1024;

/// Time for `hello` in Core and for `welcome` on the node.
pub const HELLO_TIMEOUT_MS: u64 = 15_000;
/// Silence after which either side closes.
pub const IDLE_TIMEOUT_MS: u64 = 35_000;
/// Bound for one whole message, however many fragments (decision 29).
pub const MESSAGE_TIMEOUT_MS: u64 = 120_000;
/// Interval between heartbeats; the first follows `welcome` by one interval.
pub const HEARTBEAT_INTERVAL_MS: u64 = 10_000;
/// Deadline for writing one fragment.
pub const WRITE_TIMEOUT_MS: u64 = 10_000;
/// A node whose last heartbeat is this old is offline.
pub const ONLINE_AGE_MS: u64 = 45_000;
/// TCP, TLS and upgrade together.
pub const DIAL_TIMEOUT_MS: u64 = 10_000;
/// How long a stopping node waits, after the last budget, for what still executes to end: commands are being ended in
/// their sandboxes then. An engine that never answers is not waited for.
pub const STOP_GRACE_MS: u64 = 11_000;
/// First reconnect delay; doubles up to [`RECONNECT_MAX_MS`].
pub const RECONNECT_MIN_MS: u64 = 1_000;
/// Longest reconnect delay.
pub const RECONNECT_MAX_MS: u64 = 30_000;
/// An attempt that lasted this long resets the back-off.
pub const RECONNECT_RESET_MS: u64 = 30_000;
/// Bound for each of Core's storage callbacks.
pub const CALLBACK_TIMEOUT_MS: u64 = 5_000;
/// Provider readiness probe.
pub const PROBE_TIMEOUT_MS: u64 = 5_000;

/// How long a Turn stays in line while its node is offline (decision 40).
pub const TURN_OFFLINE_MAX_MS: u64 = 300_000;
/// First pause of the owner after a question without an answer; doubles up to [`ASK_AGAIN_MAX_MS`].
pub const ASK_AGAIN_MIN_MS: u64 = 1_000;
/// Longest pause of the owner between two questions.
pub const ASK_AGAIN_MAX_MS: u64 = 30_000;
/// Budget of the owner's create.
pub const CREATE_BUDGET_MS: u64 = 120_000;
/// Budget of the owner's kill; it may wait behind a running command.
pub const KILL_BUDGET_MS: u64 = 60_000;
/// Budget of the owner's suspend and resume: both move the whole memory of a sandbox.
pub const CAPTURE_BUDGET_MS: u64 = 120_000;
/// How long the owner asks what came of a resume or, when everything is to go, of a suspend, before it removes what there
/// may be. By then the original can no longer begin: its own budget is over.
pub const CAPTURE_UNKNOWN_MAX_MS: u64 = 300_000;
/// Age of the last confirmation at which the owner looks whether a running sandbox is still there.
pub const CONFIRM_INTERVAL_MS: u64 = 300_000;
/// How long the command of an archived session may still end by itself before its sandbox is removed, counted from the
/// archive (deployment §0).
pub const DRAIN_MAX_MS: u64 = 20_000;
/// Wait after which the owner says what it waits for, and whom.
pub const HINT_AFTER_MS: u64 = 30_000;

/// Pending requests per connection in Core.
pub const PENDING_MAX: usize = 32;
/// Operations executing at once on a node (decision 8).
pub const EXECUTING_MAX: usize = 32;
/// Operations waiting on a node (decision 8).
pub const WAITING_MAX: usize = 32;
/// Request and response bodies in flight over all connections in Core (decision 30).
pub const HUB_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Request and response bodies in flight on a node (decision 30).
pub const NODE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Smallest and largest `timeout_ms`.
pub const BUDGET_MIN_MS: u64 = 1;
/// See [`BUDGET_MIN_MS`].
pub const BUDGET_MAX_MS: u64 = 120_000;
/// Budget of a call whose caller has none.
pub const BUDGET_DEFAULT_MS: u64 = 30_000;
/// Generation observations per frame.
pub const OBSERVATIONS_MAX: usize = 8;
/// References per retention request.
pub const REFERENCES_MAX: usize = 8;
/// Largest `Command.Stdin` after decoding, 50 MiB + 32.
pub const STDIN_MAX_BYTES: usize = 52_428_832;
/// Largest `Stdout` or `Stderr` of a command result.
pub const STREAM_MAX_BYTES: usize = 1_048_576;
/// Longest checkpoint token.
pub const CHECKPOINT_TOKEN_MAX_BYTES: usize = 256;
/// Longest preparation key (decision 14).
pub const PREPARATION_KEY_MAX_BYTES: usize = 256;
/// Longest diagnostic code.
pub const DIAGNOSTIC_MAX_BYTES: usize = 64;
/// Longest reason of an unsupported operation.
pub const REASON_MAX_BYTES: usize = 96;
/// Largest integer of a health report, 2^53 − 1.
pub const SAFE_INTEGER_MAX: u64 = 9_007_199_254_740_991;
/// Enrollment request and answer bodies, and the identity file.
pub const ENROLLMENT_MAX_BYTES: usize = 16_384;

/// One readiness probe starts per interval (node-host §4.4).
pub const PROBE_INTERVAL_MS: u64 = 1_000;
/// One attempt to prepare or repair a generation.
pub const PREPARATION_TIMEOUT_MS: u64 = 1_800_000;
/// Wait after the first, second, … failed preparation; the last value repeats.
pub const PREPARATION_RETRY_MS: [u64; 5] = [60_000, 120_000, 300_000, 600_000, 1_800_000];
/// One removal of a generation.
pub const COLLECTION_TIMEOUT_MS: u64 = 120_000;
/// Largest configuration of a generation, alone or as the plan of a `.preparing` journal (node-host §1.5).
pub const PLAN_MAX_BYTES: usize = 16_384;
/// Largest `.collecting`, `.dropped` and `.lease-identity` record (node-host §1.5).
pub const MARKER_MAX_BYTES: usize = 4_096;
/// Longest path of a microsandbox store; sockets are made below it (node-host §1.6).
pub const STORE_PATH_MAX_BYTES: usize = 48;
/// Longest name of an image in a microsandbox store.
pub const MICROSANDBOX_IMAGE_NAME_MAX_BYTES: usize = 255;
/// Largest answer of `msb` to a question, 64 KiB (node-host §8.8, §8.9).
pub const MSB_ANSWER_MAX_BYTES: usize = 65_536;
/// Largest list of images or sandboxes of `msb`, 4 MiB.
pub const MSB_LIST_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Largest request to a microsandbox helper, 72 MiB (node-host §8.2).
pub const HELPER_REQUEST_MAX_BYTES: usize = 75_497_472;
/// Largest answer of a microsandbox helper, 16 MiB (node-host §8.2).
pub const HELPER_RESPONSE_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Exit status of a preparer whose artifact transfer, checksum or provenance failed (node-host §3.1).
pub const PREPARER_TRANSFER_FAILED: i32 = 65;
/// Largest bootstrap file of a sandbox (node-host §10.1).
pub const SANDBOX_IO_MAX_BYTES: usize = 16_384;
/// Longest credential in a bootstrap file (node-host §10.1).
pub const LINK_CREDENTIAL_MAX_BYTES: usize = 4_096;

/// Longest node name in bytes (deployment §0).
pub const NODE_NAME_MAX_BYTES: usize = 128;
/// Shortest and longest node credential in bytes (deployment §0).
pub const NODE_CREDENTIAL_BYTES: std::ops::RangeInclusive<usize> = 32..=256;
/// Largest approved capacity of a node (deployment §0).
pub const CAPACITY_MAX: u32 = 1_000_000;
/// Approved sandboxes at once when nothing else is known (deployment §0).
pub const CAPACITY_ACTIVE_DEFAULT: u32 = 2;
/// Approved sandboxes with the suspended ones when nothing else is known (deployment §0).
pub const CAPACITY_RETAINED_DEFAULT: u32 = 8;
/// Superseded generations deleted in one pass (deployment §0).
pub const COLLECTION_MAX: usize = 32;
/// Time that a reset waits for busy sessions when the request names none, in seconds (deployment §0).
pub const RESET_DEADLINE_DEFAULT_S: u32 = 3600;
/// Shortest time that a reset may wait for busy sessions, in seconds (deployment §0).
pub const RESET_DEADLINE_MIN_S: u32 = 300;
/// Longest time that a reset may wait for busy sessions, in seconds (deployment §0).
pub const RESET_DEADLINE_MAX_S: u32 = 86_400;
/// Sessions that a reset archives in one pass (deployment §0).
pub const RESET_PAGE_MAX: usize = 32;
/// How long an allocation without a node counts as held after it was confirmed last (deployment §0).
pub const NODELESS_LEASE_MS: u64 = 3_600_000;
/// Longest E2B key in bytes (deployment §1.2.1).
pub const API_KEY_MAX_BYTES: usize = 4096;
/// Arguments of a public command.
pub const COMMAND_ARGS_MAX: usize = 4096;
/// Bytes of all arguments of a public command together.
pub const COMMAND_ARGS_MAX_BYTES: usize = 128 * 1024;
/// Longest working directory of a public command.
pub const COMMAND_DIRECTORY_MAX_BYTES: usize = 4096;
/// Longest `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_MAX_BYTES: usize = 255;
/// Longest body of a posted event: the largest standard input in base64, and room for everything else.
pub const EVENT_BODY_MAX_BYTES: usize = STDIN_MAX_BYTES.div_ceil(3) * 4 + 1024 * 1024;
/// How far a sample may lie in Core's future: clocks of hosts differ, and a sample is taken after the question.
pub const SAMPLE_AHEAD_MAX_MS: i64 = 60_000;
/// Observations in one page (deployment §1.12).
pub const OBSERVATIONS_LISTED_MAX: usize = 100;
/// Observations in a page that names no number (deployment §1.12).
pub const OBSERVATIONS_LISTED_DEFAULT: usize = 20;
/// Time that a runtime observation may take.
pub const OBSERVATION_BUDGET_MS: u64 = 5_000;
/// Largest manifest, list of checksums, profile and other small file of a release.
pub const METADATA_MAX_BYTES: usize = 1024 * 1024;
/// Largest installer that a console offers (node-host §5.7, §6.3).
pub const INSTALLER_MAX_BYTES: usize = 1024 * 1024;
/// Longest id of an installation in a command that only shows logs.
pub const INSTALLATION_SHOWN_MAX_BYTES: usize = 128;
/// Largest pointer to the release that is offered now.
pub const POINTER_MAX_BYTES: usize = 256;
/// Largest file that a release may declare.
pub const ARTIFACT_MAX_BYTES: u64 = 8 * 1024 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits that are computed from others, as the numbers that the rest of the world counts with.
    #[test]
    fn computed_limits_have_their_values() {
        assert_eq!(FRAGMENT_MAX_BYTES, 262_144);
        assert_eq!(HUB_BYTES_MAX, 536_870_912);
        assert_eq!(NODE_BYTES_MAX, 268_435_456);
        assert_eq!(COMMAND_ARGS_MAX_BYTES, 131_072);
        assert_eq!(METADATA_MAX_BYTES, 1_048_576);
        assert_eq!(INSTALLER_MAX_BYTES, 1_048_576);
        assert_eq!(MSB_LIST_MAX_BYTES, 4_194_304);
        assert_eq!(HELPER_RESPONSE_MAX_BYTES, 16_777_216);
        assert_eq!(ARTIFACT_MAX_BYTES, 8_589_934_592);
        let largest_input_in_base64 = 69_905_112;
        assert_eq!(EVENT_BODY_MAX_BYTES, largest_input_in_base64 + 1_048_576);
    }
}
