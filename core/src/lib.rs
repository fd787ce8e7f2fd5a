//! Every rule of Palisade, and no I/O.
//!
//! The crate holds the frame grammar, the provider outcomes, both halves of a connection, the node's
//! generation table, the deployment rules and the owner's lifecycle as pure step functions. It has no
//! socket, file, clock, thread, random number, environment variable or async runtime: time and random
//! identifiers come in as values, effects go out as values.
//!
//! # Driving a machine
//!
//! Every machine obeys one loop: **one mutation, then drain**.
//!
//! ```text
//! loop {
//!     machine.handle_*(now, input);                    // exactly one
//!     while let Some(action) = machine.poll_action() { perform(action) }
//!     wait for the next input, or until machine.poll_timeout()
//! }
//! ```
//!
//! | Machine | Its diagram, its invariants, an example that drives it |
//! | --- | --- |
//! | a node's half of its connections | [`session::node`] |
//! | Core's half of one connection | [`session::hub`], [`session::hub::reservations`] |
//! | presence and readiness in Core's records | [`session::hub::presence`] |
//! | the lanes of a node | [`session::lanes`] |
//! | the generation table of a node | [`generation`] |
//! | what follows a crash, from the facts on disk | [`generation::recovery`] |
//! | what the owner does for one environment | [`lifecycle`], [`lifecycle::Resumed`] |
//! | a reset of the deployment | [`deployment::reset`] |
//!
//! All of them can be cloned, compared and hashed, so that a model checker and a simulation can hold their states. With the
//! feature `testing`, the module `testing` has plain values for tests and examples.
//!
//! # Promises
//!
//! What this system never does, and the tests that hold it: units beside their function, both sides against each other,
//! exhaustive models, and the same rules with real parts. `palisade sim` searches for a history that breaks one.
//!
//! | | Never, or always | Held by |
//! | --- | --- | --- |
//! | 1 | Never are two connections of one node identity accepted; the second gets 409 and does not disturb the first | `second_connection_of_one_identity_gets_conflict_in_every_phase`, `one_connection_and_one_epoch_count`, `simultaneous_dials_of_one_identity_give_one_connection` |
//! | 2 | Never is a request of a lower owner epoch than the highest seen carried out, and never does a process that lost its lease record anything | `a_lower_epoch_ends_the_connection`, `an_epoch_that_is_still_being_stored_fences_already`, `a_lost_lease_records_nothing_in_the_transaction_that_would_record`, `one_connection_and_one_epoch_count_across_crashes` |
//! | 3 | Never does a request sequence rise by anything but one: a gap or a repetition closes | `sequence_starts_at_one_and_follows_the_wire_order`, `a_repeated_sequence_ends_the_connection`, `a_gap_in_the_sequence_and_a_foreign_request_end_the_connection` |
//! | 4 | Never is a mutation of unknown outcome replayed by either side | `no_history_sends_twice_or_releases_early`, `a_lost_connection_neither_cancels_nor_replays`, `lost_answer_is_uncertain_and_never_replayed`, `nothing_is_lost_or_run_twice_when_node_and_core_are_killed` |
//! | 5 | Never does a stale, partial or mixed-epoch retention answer delete anything | `a_retention_answer_must_match_the_whole_request`, `every_entry_of_a_retention_answer_counts`, `forged_and_late_answers_delete_nothing`, `a_stale_connection_changes_nothing` |
//! | 6 | Never is a dropped generation prepared again, and never does a number get another digest | `a_dropped_generation_is_never_prepared_again_at_any_crash_point`, `a_conflicting_digest_is_refused_and_changes_nothing` |
//! | 7 | Never is anything collected while a shared lease on it is held | `a_held_lease_blocks_preparation_and_collection`, `no_facts_admit_a_helper_that_must_not_be`, `a_lease_record_names_the_locked_inode` |
//! | 8 | Never does an expired budget start an operation; the time in line is part of the budget | `every_history_keeps_order_bounds_and_budgets`, `a_budget_that_ends_in_the_queue_is_answered_and_never_executed`, `expired_budget_never_starts_an_operation` |
//! | 9 | Never does a 33rd request wait, and never does a 9th observation, byte 32 769 of a control frame or another version pass | `thirty_third_pending_request_is_unavailable`, `more_than_eight_observations_or_a_repeated_generation_are_refused`, `control_frame_above_its_limit_closes`, `only_the_current_version_is_decoded` |
//! | 10 | Always is a heartbeat sent on time, whatever the provider does | `heartbeats_come_every_ten_seconds`, `heartbeats_are_on_time_whatever_hangs` |
//! | 11 | Never is anything but Core's own 401 final for a node | `only_cores_own_401_is_final`, `a_node_retries_a_conflict_for_ever_with_jitter`, `a_conflict_is_retried_and_a_rejected_credential_ends_the_node` |
//! | 12 | Never is an unknown error code anything but an unknown outcome | `failure_with_a_foreign_result_or_an_unknown_code_is_unknown` |
//! | 13 | Always has the same specification the same bytes and digest, here and in WASM | `every_vector_has_its_verdict_bytes_and_digest`, `the_stored_form_reads_back_to_the_same_specification` |
//! | 14 | Never does a missing observation say that a generation is gone | `readiness_belongs_to_one_connection_and_epoch`, `a_report_is_recorded_completely_or_not_at_all` |
//! | 15 | Never does a start begin empty: it finds the old state or the new one, or names what is damaged | `no_facts_start_a_node_that_is_empty_or_damaged`, `a_crash_at_any_step_leaves_the_old_bytes_or_the_new`, `a_refused_start_names_the_path` |
//! | 16 | Never is anything on a host touched that is not ours | `foreign_container_of_our_name_is_refused_by_every_operation`, `foreign_volume_blocks_create_and_kill`, `no_facts_lead_to_a_deletion_that_must_not_be` |

#![forbid(unsafe_code)]

pub mod admin;
pub mod deployment;
pub mod distribution;
pub mod generation;
pub mod hosted;
pub mod install;
pub mod lifecycle;
pub mod limits;
pub mod microsandbox;
pub mod operation;
pub mod outcome;
pub mod sandbox_io;
pub mod session;
pub mod strict;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod units;
pub mod wire;
