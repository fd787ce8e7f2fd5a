//! The table: what the peer sends, what is reported, what the peer gets.

use palisade_socket::{Closed, Incoming};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::raw::{
    BINARY, CLOSE, CONTINUATION, Form, Frame, LAST, PATIENCE, PING, PONG, ROLES, Role, TEXT, close, connected, frame,
    receive_all, reports,
};

/// How the connection ended for the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The peer was content, and hung up without a Close.
    Lost,
    ByPeer,
    Violation,
    InvalidText,
    TooLarge,
}

struct Case {
    name: &'static str,
    sent: Vec<Frame>,
    /// The messages that were reported; `None` is a binary one.
    reported: Vec<Option<String>>,
    /// Pongs and the Close that the peer got.
    answered: Vec<(u8, Vec<u8>)>,
    end: End,
}

fn case(name: &'static str, sent: Vec<Frame>) -> Case {
    Case { name, sent, reported: Vec::new(), answered: Vec::new(), end: End::Lost }
}

impl Case {
    fn reports(mut self, text: impl Into<String>) -> Self {
        self.reported.push(Some(text.into()));
        self
    }

    fn reports_binary(mut self) -> Self {
        self.reported.push(None);
        self
    }

    fn pongs(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.answered.push((LAST | PONG, payload.as_ref().to_vec()));
        self
    }

    fn closes(mut self, end: End, payload: impl AsRef<[u8]>) -> Self {
        self.answered.push((LAST | CLOSE, payload.as_ref().to_vec()));
        Self { end, ..self }
    }

    fn violates(self) -> Self {
        self.closes(End::Violation, 1002_u16.to_be_bytes())
    }

    fn lacks_utf8(self) -> Self {
        self.closes(End::InvalidText, 1007_u16.to_be_bytes())
    }

    fn exceeds(self) -> Self {
        self.closes(End::TooLarge, 1009_u16.to_be_bytes())
    }
}

const LIMIT: u64 = palisade_core::limits::CALL_FRAME_MAX_BYTES as u64;

/// W 186 is the second part of "whole-2": a binary message is reported as such.
fn messages() -> Vec<Case> {
    let long = "y".repeat(65_536);
    vec![
        case("whole-1 an empty text", vec![frame(LAST | TEXT, "")]).reports(""),
        case("whole-2 a binary message is reported as one", vec![frame(LAST | BINARY, [0, 1])]).reports_binary(),
        case("whole-3 two messages in one packet", vec![frame(LAST | TEXT, "{}"), frame(LAST | TEXT, "[]")])
            .reports("{}")
            .reports("[]"),
        case("length-1 125 bytes in the short form", vec![frame(LAST | TEXT, &long[..125])]).reports(&long[..125]),
        case("length-2 126 bytes in two", vec![frame(LAST | TEXT, &long[..126])]).reports(&long[..126]),
        case("length-3 65,535 bytes in two", vec![frame(LAST | TEXT, &long[..65_535])]).reports(&long[..65_535]),
        case("length-4 65,536 bytes in eight", vec![frame(LAST | TEXT, &long)]).reports(&long),
        case("length-5 five bytes in two", vec![frame(LAST | TEXT, "12345").form(Form::Two)]).violates(),
        case("length-6 125 bytes in two", vec![frame(LAST | TEXT, &long[..125]).form(Form::Two)]).violates(),
        case("length-7 five bytes in eight", vec![frame(LAST | TEXT, "12345").form(Form::Eight)]).violates(),
        case("length-8 65,535 bytes in eight", vec![frame(LAST | TEXT, &long[..65_535]).form(Form::Eight)]).violates(),
        case("length-9 the top bit of eight", vec![frame(LAST | TEXT, "").form(Form::Declared(1 << 63))]).violates(),
        case("length-10 all bits of eight", vec![frame(LAST | TEXT, "").form(Form::Declared(u64::MAX))]).violates(),
        case("length-11 63 bits", vec![frame(LAST | TEXT, "").form(Form::Declared(u64::MAX >> 1))]).exceeds(),
        case("limit-1 one byte more", vec![frame(LAST | TEXT, "").form(Form::Declared(LIMIT + 1))]).exceeds(),
        case(
            "limit-2 one byte more in a continuation",
            vec![frame(TEXT, "1"), frame(LAST | CONTINUATION, "").form(Form::Declared(LIMIT))],
        )
        .exceeds(),
        case("limit-3 a binary message", vec![frame(BINARY, "").form(Form::Declared(LIMIT + 1))]).exceeds(),
        case("mask-1 in the wrong direction", vec![frame(LAST | TEXT, "{}").wrong_mask()]).violates(),
        case("mask-2 of a ping", vec![frame(LAST | PING, "").wrong_mask()]).violates(),
        case("mask-3 of a later frame", vec![frame(LAST | TEXT, "{}"), frame(LAST | TEXT, "[]").wrong_mask()])
            .reports("{}")
            .violates(),
        case("mask-4 of a close", vec![close(1000, "").wrong_mask()]).violates(),
    ]
}

fn fragments() -> Vec<Case> {
    let parts = |parts: &[&str]| {
        let last = parts.len() - 1;
        let first =
            |index: usize| (if index == last { LAST } else { 0 }) | if index == 0 { TEXT } else { CONTINUATION };
        parts.iter().enumerate().map(|(index, part)| frame(first(index), part)).collect::<Vec<_>>()
    };
    let hello = parts(&["hel", "lo"]);
    let between = |between: Frame| vec![hello[0].clone(), between, hello[1].clone()];
    vec![
        case("fragment-1 two", hello.clone()).reports("hello"),
        case("fragment-2 one byte each", parts(&["h", "e", "l", "l", "o"])).reports("hello"),
        case("fragment-3 empty ones", parts(&["", "", "hello", "", ""])).reports("hello"),
        case("fragment-4 only empty ones", parts(&["", "", ""])).reports(""),
        case("fragment-5 a binary one", vec![frame(BINARY, "a"), frame(LAST | CONTINUATION, "b")]).reports_binary(),
        case("fragment-6 a ping between", between(frame(LAST | PING, "here?"))).pongs("here?").reports("hello"),
        case("fragment-7 a pong between", between(frame(LAST | PONG, "unasked"))).reports("hello"),
        case("fragment-8 a close between", between(close(1001, "bye")))
            .closes(End::ByPeer, [&1001_u16.to_be_bytes()[..], b"bye"].concat()),
        case("fragment-9 a lone continuation", vec![frame(CONTINUATION, "lo")]).violates(),
        case("fragment-10 a lone last continuation", vec![frame(LAST | CONTINUATION, "lo")]).violates(),
        case("fragment-11 a continuation after a whole message", vec![frame(LAST | TEXT, "{}"), hello[1].clone()])
            .reports("{}")
            .violates(),
        case("fragment-12 a new text inside", between(frame(LAST | TEXT, "new"))).violates(),
        case("fragment-13 a new binary inside", between(frame(BINARY, "new"))).violates(),
        case("fragment-14 a message after a fragmented one", [hello.clone(), vec![frame(LAST | TEXT, "{}")]].concat())
            .reports("hello")
            .reports("{}"),
        case("fragment-15 never finished", vec![hello[0].clone()]),
    ]
}

fn utf8() -> Vec<Case> {
    let text = |bytes: &[u8]| vec![frame(LAST | TEXT, bytes)];
    let cut = |left: &[u8], right: &[u8]| vec![frame(TEXT, left), frame(LAST | CONTINUATION, right)];
    vec![
        case("utf8-1 of every width", text("aä€🦀".as_bytes())).reports("aä€🦀"),
        case("utf8-2 the last code point", text(b"\xf4\x8f\xbf\xbf")).reports("\u{10ffff}"),
        case("utf8-3 a character cut by a fragment", cut(b"\xf0\x9f", b"\xa6\x80")).reports("🦀"),
        case(
            "utf8-4 a character in single bytes",
            [
                vec![frame(TEXT, b"\xf0"), frame(CONTINUATION, b"\x9f"), frame(CONTINUATION, "")],
                vec![frame(CONTINUATION, b"\xa6"), frame(LAST | CONTINUATION, b"\x80")],
            ]
            .concat(),
        )
        .reports("🦀"),
        case("utf8-5 a lone byte", text(b"{\xff}")).lacks_utf8(),
        case("utf8-6 an overlong form", text(b"\xc0\xaf")).lacks_utf8(),
        case("utf8-7 a surrogate", text(b"\xed\xa0\x80")).lacks_utf8(),
        case("utf8-8 above the last code point", text(b"\xf4\x90\x80\x80")).lacks_utf8(),
        case("utf8-9 half a character at the end", text(b"a\xc3")).lacks_utf8(),
        case("utf8-10 half a character at the end of the fragments", cut(b"a\xc3", b"")).lacks_utf8(),
        case("utf8-11 wrong across two fragments", cut(b"\xc3", b"\x28")).lacks_utf8(),
        case("utf8-12 refused before the message ends", vec![frame(TEXT, b"\xff"), frame(CONTINUATION, "a")])
            .lacks_utf8(),
        case("utf8-13 a binary message need not be any", vec![frame(LAST | BINARY, b"\xff")]).reports_binary(),
    ]
}

fn reserved() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, bits) in [
        ("reserved-1 bit 1", 0x40),
        ("reserved-2 bit 2", 0x20),
        ("reserved-3 bit 3", 0x10),
        ("reserved-4 all bits", 0x70),
    ] {
        for opcode in [LAST | TEXT, TEXT, LAST | PING, LAST | CLOSE] {
            cases.push(case(name, vec![frame(bits | opcode, "")]).violates());
        }
        cases.push(case(name, vec![frame(TEXT, "a"), frame(bits | LAST | CONTINUATION, "b")]).violates());
    }
    for opcode in (0x3..=0x7).chain(0xb..=0xf) {
        cases.push(case("opcode-1 a reserved one", vec![frame(LAST | opcode, "")]).violates());
        cases.push(case("opcode-2 a reserved one with payload", vec![frame(LAST | opcode, "abc")]).violates());
        let after = vec![frame(LAST | PING, "1"), frame(LAST | opcode, ""), frame(LAST | PING, "2")];
        cases.push(case("opcode-3 a reserved one after a ping", after).pongs("1").violates());
    }
    cases
}

fn controls() -> Vec<Case> {
    let (most, more) = ("p".repeat(125), "p".repeat(126));
    vec![
        case("ping-1 empty", vec![frame(LAST | PING, "")]).pongs(""),
        case("ping-2 of 125 bytes", vec![frame(LAST | PING, &most)]).pongs(&most),
        case("ping-3 that is no text", vec![frame(LAST | PING, b"\xff\x00")]).pongs(b"\xff\x00"),
        case("ping-4 of 126 bytes", vec![frame(LAST | PING, &more)]).violates(),
        case("ping-5 of 72 MiB is refused by its header", vec![frame(LAST | PING, "").form(Form::Declared(LIMIT))])
            .violates(),
        case("ping-6 in the form of two bytes", vec![frame(LAST | PING, "1").form(Form::Two)]).violates(),
        case("ping-7 fragmented", vec![frame(PING, "1"), frame(LAST | CONTINUATION, "2")]).violates(),
        case("pong-1 unasked", vec![frame(LAST | PONG, "")]),
        case("pong-2 of 126 bytes", vec![frame(LAST | PONG, &more)]).violates(),
        case("pong-3 fragmented", vec![frame(PONG, "1")]).violates(),
        case("close-size-1 of 126 bytes", vec![close(1000, &more[..124])]).violates(),
        case("close-size-2 fragmented", vec![frame(CLOSE, 1000_u16.to_be_bytes())]).violates(),
    ]
}

/// RFC 6455 §7.4. A Close is answered with its own code; one that must not be sent is answered with 1002.
fn closes() -> Vec<Case> {
    let wrong = 1002_u16.to_be_bytes();
    let mut cases = vec![
        case("close-1 without a code", vec![frame(LAST | CLOSE, "")]).closes(End::ByPeer, ""),
        case("close-2 with a reason", vec![close(1000, "bye")])
            .closes(End::ByPeer, [&1000_u16.to_be_bytes()[..], b"bye"].concat()),
        case("close-3 with the longest reason", vec![close(1000, "r".repeat(123))])
            .closes(End::ByPeer, [1000_u16.to_be_bytes().to_vec(), vec![b'r'; 123]].concat()),
        case("close-4 with half a code", vec![frame(LAST | CLOSE, [3])]).violates(),
        case("close-5 with a reason that is no text", vec![close(1000, b"\xff")]).lacks_utf8(),
        case("close-6 after a message", vec![frame(LAST | TEXT, "{}"), close(1000, "")])
            .reports("{}")
            .closes(End::ByPeer, 1000_u16.to_be_bytes()),
        case("close-7 followed by a message", vec![close(1000, ""), frame(LAST | TEXT, "late")])
            .closes(End::ByPeer, 1000_u16.to_be_bytes()),
        case("close-8 followed by a ping", vec![close(1000, ""), frame(LAST | PING, "late")])
            .closes(End::ByPeer, 1000_u16.to_be_bytes()),
        case("close-9 twice", vec![close(1000, ""), close(1001, "")]).closes(End::ByPeer, 1000_u16.to_be_bytes()),
        case("close-10 followed by rubbish", vec![close(1000, ""), frame(0x7f, "late").wrong_mask()])
            .closes(End::ByPeer, 1000_u16.to_be_bytes()),
    ];
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 3000, 3999, 4000, 4999] {
        cases.push(case("code-1 that may be sent", vec![close(code, "")]).closes(End::ByPeer, code.to_be_bytes()));
    }
    for code in [0, 1, 999, 1004, 1005, 1006, 1014, 1015, 1016, 2000, 2999, 5000, 65_535] {
        let answer = [&wrong[..], b"Protocol violation"].concat();
        cases.push(case("code-2 that must not be sent", vec![close(code, "")]).closes(End::ByPeer, answer));
    }
    cases
}

/// How the peer's bytes come.
#[derive(Debug, Clone, Copy)]
enum Delivery {
    OnePiece,
    ByteByByte,
}

async fn run(case: &Case, role: Role, delivery: Delivery) {
    let told = format!("{} for {role:?} with {delivery:?}", case.name);
    let (socket, mut peer) = connected(role, 256 * 1024).await;
    let bytes: Vec<u8> = case.sent.iter().flat_map(|frame| frame.bytes(role)).collect();
    let (mut reader, _writer) = socket.split();
    let feeding = async {
        let size = match delivery {
            Delivery::OnePiece => bytes.len(),
            Delivery::ByteByByte => 1,
        };
        for piece in bytes.chunks(size) {
            // A shell that has refused does not take the rest.
            if peer.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = peer.shutdown().await;
    };
    let ((), (reported, closed)) = timeout(PATIENCE, async { tokio::join!(feeding, reports(&mut reader)) })
        .await
        .unwrap_or_else(|_| panic!("{told}: the shell hangs"));
    let reported: Vec<_> = reported.iter().map(shown).collect();
    let answered = receive_all(&mut peer, role).await;
    assert_eq!(reported, case.reported, "{told}: reported");
    assert_eq!(answered, case.answered, "{told}: answered");
    assert_eq!(end(&closed), case.end, "{told}: {closed}");
}

fn shown(incoming: &Incoming) -> Option<String> {
    match incoming {
        Incoming::Text(text) => Some(text.to_string()),
        Incoming::Binary => None,
        Incoming::Fragment | Incoming::Closed(_) => panic!("{incoming:?} is no message"),
    }
}

fn end(closed: &Closed) -> End {
    match closed {
        Closed::ByPeer => End::ByPeer,
        Closed::Lost(_) => End::Lost,
        Closed::TooLarge => End::TooLarge,
        Closed::InvalidText => End::InvalidText,
        Closed::Violation(_) => End::Violation,
        Closed::Stalled | Closed::Unsent(_) | Closed::Aborted => panic!("{closed}"),
    }
}

async fn run_all(cases: Vec<Case>) {
    for case in cases {
        for role in ROLES {
            run(&case, role, Delivery::OnePiece).await;
            run(&case, role, Delivery::ByteByByte).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_lengths_and_masks() {
    run_all(messages()).await;
}

#[tokio::test(start_paused = true)]
async fn fragmented_messages() {
    run_all(fragments()).await;
}

#[tokio::test(start_paused = true)]
async fn text_is_utf8() {
    run_all(utf8()).await;
}

#[tokio::test(start_paused = true)]
async fn reserved_bits_and_opcodes() {
    run_all(reserved()).await;
}

#[tokio::test(start_paused = true)]
async fn control_frames() {
    run_all(controls()).await;
}

#[tokio::test(start_paused = true)]
async fn close_frames() {
    run_all(closes()).await;
}
