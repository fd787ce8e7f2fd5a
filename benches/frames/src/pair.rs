//! What is measured beside what: each pair is our work and the work of somebody else that nobody can do without.

use std::hint::black_box;

use base64_simd::STANDARD;
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::specification::Specification;
use palisade_core::units::Digest;
use palisade_core::wire::{decode, encode_into};
use serde::{Deserialize, Serialize};

use crate::{plain, sample};

const MIB: usize = 1 << 20;
const LARGE_REQUEST: usize = 64 * MIB;
const LARGE_RESPONSE: usize = 32 * MIB;

/// Something that can be done again and again.
pub type Work = Box<dyn FnMut()>;

/// Our work, its peer, and the largest allowed ratio between them.
pub struct Pair {
    /// What is done.
    pub name: &'static str,
    /// What it is compared with.
    pub against: &'static str,
    /// Prepares our work.
    pub ours: fn() -> Work,
    /// Prepares the peer's.
    pub peer: fn() -> Work,
    /// The ratio that was asked for.
    pub target: f64,
    /// The ratio of instructions above which the gate closes: a little above what was measured last.
    pub ceiling: f64,
    /// Whether memory, not instructions, decides how long it takes.
    pub large: bool,
}

/// `serde_json` into the same shape, without one of our rules.
const PLAIN: &str = "serde_json, no rules";
/// `serde_json` into a buffer that has the room.
const RESERVED: &str = "serde_json, room reserved";

/// Reads a frame into its plain shape.
macro_rules! decoding_plain {
    ($shape:ident, $text:expr) => {{
        let text = $text;
        Box::new(move || {
            black_box(&serde_json::from_slice::<plain::$shape<'_>>(black_box(text.as_bytes())).expect("a valid frame"));
        })
    }};
}

/// Every pair, in the order of the table.
pub const PAIRS: [Pair; 11] = [
    Pair {
        name: "decode a heartbeat of eight",
        against: PLAIN,
        ours: || decoding(sample::heartbeat()),
        peer: || decoding_plain!(Heartbeat, sample::heartbeat()),
        target: 1.15,
        ceiling: 0.85,
        large: false,
    },
    Pair {
        name: "decode a small request",
        against: PLAIN,
        ours: || decoding(sample::small_request()),
        peer: || decoding_plain!(RequestFrame, sample::small_request()),
        target: 1.25,
        ceiling: 0.8,
        large: false,
    },
    Pair {
        name: "decode a small response",
        against: PLAIN,
        ours: || decoding(sample::small_response()),
        peer: || decoding_plain!(ResponseFrame, sample::small_response()),
        target: 1.25,
        ceiling: 0.75,
        large: false,
    },
    Pair {
        name: "decode a request of 64 MiB",
        against: "base64 decoding alone",
        ours: || decoding(sample::command_request(LARGE_REQUEST)),
        peer: base64_alone,
        target: 1.5,
        ceiling: 1.2,
        large: true,
    },
    Pair {
        name: "decode a response of 32 MiB",
        against: "from_utf8 and one memchr2",
        ours: || decoding(sample::command_response(LARGE_RESPONSE)),
        peer: utf8_and_scan_alone,
        target: 1.5,
        ceiling: 1.45,
        large: true,
    },
    Pair {
        name: "encode a heartbeat of eight",
        against: RESERVED,
        ours: || encoding(sample::heartbeat()),
        peer: || encoding_plain::<plain::Heartbeat<'_>>(sample::heartbeat()),
        target: 1.1,
        ceiling: 0.85,
        large: false,
    },
    Pair {
        name: "encode a small request",
        against: RESERVED,
        ours: || encoding(sample::small_request()),
        peer: || encoding_plain::<plain::RequestFrame<'_>>(sample::small_request()),
        target: 1.1,
        ceiling: 0.65,
        large: false,
    },
    Pair {
        name: "encode a small response",
        against: RESERVED,
        ours: || encoding(sample::small_response()),
        peer: || encoding_plain::<plain::ResponseFrame<'_>>(sample::small_response()),
        target: 1.1,
        ceiling: 0.7,
        large: false,
    },
    Pair {
        name: "encode a request of 64 MiB",
        against: RESERVED,
        ours: || encoding(sample::command_request(LARGE_REQUEST)),
        peer: || encoding_plain::<plain::RequestFrame<'_>>(sample::command_request(LARGE_REQUEST)),
        target: 1.1,
        ceiling: 0.15,
        large: true,
    },
    Pair {
        name: "encode a response of 32 MiB",
        against: RESERVED,
        ours: || encoding(sample::command_response(LARGE_RESPONSE)),
        peer: || encoding_plain::<plain::ResponseFrame<'_>>(sample::command_response(LARGE_RESPONSE)),
        target: 1.1,
        ceiling: 0.1,
        large: true,
    },
    Pair {
        name: "digest of a specification",
        against: "its canonical bytes' hash",
        ours: || {
            let specification = specification();
            Box::new(move || {
                black_box(black_box(&specification).digest());
            })
        },
        peer: || {
            let canonical = specification().canonical();
            Box::new(move || {
                black_box(Digest::of(black_box(&canonical)));
            })
        },
        target: 1.5,
        ceiling: 1.3,
        large: false,
    },
];

fn specification() -> Specification {
    let text = r#"{"resources":{"cpus":2,"memory_mib":4096}}"#;
    Specification::parse(Provider::E2b, text.as_bytes()).expect("a valid specification")
}

fn decoding(text: String) -> Work {
    Box::new(move || {
        black_box(&decode(black_box(text.as_bytes())).expect("a valid frame"));
    })
}

fn base64_alone() -> Work {
    let text = sample::base64(LARGE_REQUEST);
    Box::new(move || {
        black_box(&STANDARD.decode_to_vec(black_box(&text)).expect("base64"));
    })
}

/// The scan knows no control characters: it is what any reader of JSON strings must do at least.
fn utf8_and_scan_alone() -> Work {
    let text = sample::command_response(LARGE_RESPONSE);
    Box::new(move || {
        let text = std::str::from_utf8(black_box(text.as_bytes())).expect("UTF-8");
        black_box(memchr::memchr2_iter(b'"', b'\\', text.as_bytes()).count());
    })
}

fn encoding(text: String) -> Work {
    let (frame, mut out) = (decode(text.leak().as_bytes()).expect("a valid frame"), Vec::new());
    Box::new(move || {
        encode_into(black_box(&frame), &mut out).expect("a valid frame");
        black_box(&out);
    })
}

fn encoding_plain<P: Serialize + Deserialize<'static> + 'static>(text: String) -> Work {
    let mut out = Vec::with_capacity(text.len());
    let frame: P = serde_json::from_str(text.leak()).expect("a valid frame");
    Box::new(move || {
        out.clear();
        serde_json::to_writer(&mut out, black_box(&frame)).expect("a valid frame");
        black_box(&out);
    })
}
