//! How often a frame asks for memory.

use allocation_counter::measure;
use palisade_core::wire::{decode, decode_text, encode_into};
use palisade_frame_benches::sample;

/// Nothing is asked for the frame itself: only the list of observations, and the box of a request or response, are owned.
#[test]
fn small_frames_ask_for_memory_only_where_something_is_owned() {
    for (text, owned) in [(sample::heartbeat(), 1), (sample::small_request(), 1), (sample::small_response(), 1)] {
        for asked in [
            measure(|| drop(decode(text.as_bytes()).expect("a valid frame"))),
            measure(|| drop(decode_text(&text).expect("a valid frame"))),
        ] {
            assert_eq!(asked.count_total, owned, "{text}");
        }
    }
}

#[test]
fn frames_are_written_into_a_buffer_with_room_without_asking_for_memory() {
    for text in [sample::heartbeat(), sample::small_request(), sample::small_response()] {
        let frame = decode_text(&text).expect("a valid frame");
        let mut out = Vec::with_capacity(text.len());
        let asked = measure(|| encode_into(&frame, &mut out).expect("a valid frame"));
        assert_eq!((asked.count_total, out.len()), (0, text.len()), "{text}");
    }
}

/// The decoded standard input and its request are all that a large frame asks for; its texts stay where they are.
#[test]
fn large_frames_ask_for_what_they_carry_once() {
    const LENGTH: usize = 1 << 20;
    let text = sample::command_request(LENGTH);
    let asked = measure(|| drop(decode(text.as_bytes()).expect("a valid frame")));
    // The box, the list of arguments, the bytes.
    assert_eq!(asked.count_total, 3);
    let carried = u64::try_from(LENGTH / 4 * 3).expect("small");
    assert!((carried..carried + 4_096).contains(&asked.bytes_max), "{} bytes for {carried}", asked.bytes_max);
    let text = sample::command_response(LENGTH);
    let asked = measure(|| drop(decode(text.as_bytes()).expect("a valid frame")));
    assert!((asked.count_total, asked.bytes_max) < (2, 4_096), "{} bytes", asked.bytes_max);
}
