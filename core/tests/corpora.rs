//! What fuzzing found worth keeping, replayed by a stable compiler: `fuzz/corpora` holds one line of base64 for each
//! input, `scripts/fuzz` looks for more.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "it is a library to the fuzz binaries")]
mod fuzz;

/// Runs every input of a corpus; the input that breaks a promise is in the message.
fn replay(target: fn(&[u8]), corpus: &str) {
    let mut replayed = 0;
    for line in corpus.lines() {
        let input = base64_simd::STANDARD.decode_to_vec(line).unwrap();
        let outcome = std::panic::catch_unwind(|| target(&input));
        assert!(outcome.is_ok(), "the promise above is broken by {line}");
        replayed += 1;
    }
    assert!(replayed > 50, "only {replayed} inputs");
}

/// E38. Any bytes are a frame or a refusal, within memory that the input accounts for.
#[test]
fn any_bytes_are_decoded_or_refused_within_bounds() {
    replay(fuzz::decode::run, include_str!("../fuzz/corpora/decode.txt"));
}

/// E38. What decodes encodes to the same frame, and from then on to the same bytes.
#[test]
fn what_decodes_is_written_as_it_was_read() {
    replay(fuzz::roundtrip::run, include_str!("../fuzz/corpora/roundtrip.txt"));
}

/// Promises 2, 3, 5, 7 and 8, over histories of the node's half.
#[test]
fn no_history_makes_a_node_break_a_promise() {
    replay(fuzz::node::run, include_str!("../fuzz/corpora/node.txt"));
}

/// Promises 1, 3, 4 and 9, over histories of Core's half.
#[test]
fn no_history_makes_a_connection_of_core_break_a_promise() {
    replay(fuzz::hub::run, include_str!("../fuzz/corpora/hub.txt"));
}

/// Promises 6, 7 and 15, over any facts and any bytes on the disk.
#[test]
fn no_disk_makes_a_recovery_break_a_promise() {
    replay(fuzz::recovery::run, include_str!("../fuzz/corpora/recovery.txt"));
}

/// Promise 13. One specification has one digest, in whatever order it was written.
#[test]
fn a_specification_has_one_digest_in_every_order() {
    replay(fuzz::specification::run, include_str!("../fuzz/corpora/specification.txt"));
}
