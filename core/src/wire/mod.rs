//! The frame grammar: one type per frame and payload, strict decoding, encoding, limits.
//!
//! [`decode`] turns one message into one [`Frame`] or says why the connection must close; [`encode`] applies the
//! same rules before anything is sent. A request that decodes may still have to be answered `invalid`, which
//! [`crate::operation::Call::accept`] finds out. [`check`] gives both verdicts at once.

mod envelope;
pub mod frame;
mod json;
mod own;
pub mod payload;
mod reader;
mod rules;
mod scan;
mod shape;
#[cfg(test)]
mod tests;
pub mod time;
pub mod verdict;
pub mod violation;
mod writer;

pub use envelope::Kind;
pub use frame::Frame;
pub use own::IntoOwned;
pub use verdict::{Grade, Verdict, check};
pub use violation::{Place, Reason, Violation};

use crate::limits::{CALL_FRAME_MAX_BYTES, CONTROL_FRAME_MAX_BYTES};
use envelope::Exact;
use reader::{Fast, Source};

/// Decodes one message. An error closes the connection and is never answered (wire §0.3).
pub fn decode(message: &[u8]) -> Result<Frame<'_>, Violation> {
    // A length that no frame may have is refused before anything reads the bytes.
    if message.len() > CALL_FRAME_MAX_BYTES {
        return Err(Violation::frame(Reason::TooLong));
    }
    // Bytes of base64 are checked by its decoder alone; in a short message they are not worth an exception.
    if message.len() > CONTROL_FRAME_MAX_BYTES
        && let Some(frame) = fast(message)
    {
        return Ok(frame);
    }
    decode_text(std::str::from_utf8(message).map_err(|_| Violation::frame(Reason::NotUtf8))?)
}

/// [`decode`] for a message that is known to be UTF-8, as a WebSocket text message is.
pub fn decode_text(message: &str) -> Result<Frame<'_>, Violation> {
    if message.len() > CALL_FRAME_MAX_BYTES {
        return Err(Violation::frame(Reason::TooLong));
    }
    fast(message).map_or_else(|| exact(message), Ok)
}

/// Decodes a frame that is right and begins as [`encode`] begins it.
fn fast<'a, S: Source<'a>>(message: S) -> Option<Frame<'a>> {
    let kind = Kind::written(message.bytes())?;
    if message.bytes().len() > kind.limit() {
        return None;
    }
    let frame = envelope::read(kind, Fast(message)).ok()?;
    rules::frame(&frame).is_ok().then_some(frame)
}

/// Decodes whatever is right, and knows what is wrong with the rest.
#[cold]
fn exact(message: &str) -> Result<Frame<'_>, Violation> {
    let kind = Kind::read(message)?;
    if message.len() > kind.limit() {
        return Err(Violation::frame(Reason::TooLong));
    }
    let frame = envelope::read(kind, Exact(message))?;
    rules::frame(&frame)?;
    Ok(frame)
}

/// Room for a request or a response without long content, so that its buffer need not grow.
const SHORT_FRAME_BYTES: usize = 1024;

/// The JSON text of one frame. A frame that the peer would refuse fails here instead (wire §1.1).
pub fn encode(frame: &Frame<'_>) -> Result<Vec<u8>, Violation> {
    let mut out = Vec::with_capacity(frame.long_content().max(SHORT_FRAME_BYTES));
    encode_into(frame, &mut out)?;
    Ok(out)
}

/// [`encode`] into a buffer, which is cleared first and is empty after an error.
pub fn encode_into(frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
    out.clear();
    out.reserve(frame.long_content());
    let written = rules::frame(frame).and_then(|()| envelope::write(frame, out));
    let refused = match written {
        Ok(()) if out.len() <= frame.kind().limit() => return Ok(()),
        Ok(()) => Violation::frame(Reason::TooLong),
        Err(violation) => violation,
    };
    out.clear();
    Err(refused)
}
