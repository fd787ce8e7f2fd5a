//! One WebSocket shell for both ends of a connection, generic over the stream.
//!
//! The shell moves whole text messages and nothing else: it never reads a frame's JSON, never decides that a
//! connection must end for what a message says, and never answers a ping by hand.
//!
//! # Who keeps which deadline
//!
//! | Deadline | Kept by |
//! | --- | --- |
//! | 15 s for `hello` or `welcome`, 35 s of silence | the session machine. [`Reader::next`] reports every message and, as [`Incoming::Fragment`], every fragment that did not complete one; both re-arm the 35 s. Pings and pongs are never reported |
//! | 120 s for one received message | [`Reader`]: only the shell sees where a message begins |
//! | 10 s for each written fragment | [`Writer`] |
//! | 10 s for the dial | whoever dials, around connect, TLS and [`Socket::client`] together |
//!
//! # How a connection ends
//!
//! A peer that violates RFC 6455 is told so by a Close (1002; 1007 for text that is not UTF-8, 1008 for a message that
//! takes too long, 1009 for one that is too large), as far as the stream takes it at once; nobody waits for a peer at
//! fault. What a frame's header shows is judged by the header, before anything of the payload is held: reserved bits
//! and opcodes, the mask, the order of fragments, sizes, and lengths that are not in their shortest form. Every case is
//! a row of `tests/conformance`.
//!
//! # Driving it
//!
//! ```text
//! let (mut reader, mut writer) = Socket::client(stream, request).await?.split();
//! loop {
//!     match reader.next().await {
//!         Incoming::Text(text) => machine.handle_message(now, text),
//!         Incoming::Fragment => machine.handle_fragment(now),
//!         Incoming::Binary => machine.handle_binary(now),
//!         Incoming::Closed(reason) => break,
//!     }
//! }
//! ```
//!
//! [`Writer::close`] says farewell and bounds the wait for the answer; from then on nothing is reported but the end.
//! The connection lives as long as both halves: dropping one, or [`Reader::abort`] and [`Writer::abort`], closes
//! the stream at once, without a close handshake, and wakes the other half.

#![forbid(unsafe_code)]

mod alarm;
mod limits;
mod meter;
mod reader;
mod shared;
mod socket;
mod stream;
mod upgrade;
mod writer;

pub use alarm::Alarm;
pub use reader::{Closed, Incoming, Reader};
pub use socket::Socket;
pub use tungstenite::Utf8Bytes;
pub use tungstenite::handshake::derive_accept_key as accept_key;
pub use upgrade::{Answer, UpgradeError};
pub use writer::{SendError, Writer};
