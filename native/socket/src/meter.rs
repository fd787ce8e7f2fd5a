//! Follows the frame headers of the bytes that a stream receives, before the WebSocket library sees them.
//!
//! The library assembles messages out of sight, and judges a frame when all of it has arrived. The meter tells a
//! fragment that has arrived from silence and from a ping, and refuses by its header what must not be held first:
//! nobody makes us keep 72 MiB of a ping.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use palisade_core::limits::CALL_FRAME_MAX_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tungstenite::protocol::Role;

use crate::reader::Closed;

/// Longest payload of a Close, a ping or a pong (RFC 6455 §5.5).
const CONTROL_PAYLOAD_MAX_BYTES: u64 = 125;
/// The length byte before a length of two bytes.
const TWO_BYTES: u8 = 126;
/// The length byte before a length of eight bytes.
const EIGHT_BYTES: u8 = 127;

/// What the received bytes amount to so far.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Our own side; the peer has the other one.
    role: Role,
    phase: Phase,
    /// Complete data frames, control frames not included.
    pub(crate) fragments: u64,
    /// Messages whose first header has arrived.
    pub(crate) begun: u64,
    /// Whether a message has begun and its last fragment has not arrived.
    pub(crate) open: bool,
    /// What the headers of the open message have announced so far.
    message_bytes: u64,
    /// Whether the next data frame must be a continuation.
    continues: bool,
    /// Why no further byte is let through.
    pub(crate) refused: Option<Closed>,
}

#[derive(Debug)]
enum Phase {
    Header {
        bytes: [u8; 10],
        len: usize,
    },
    Payload {
        remaining: u64,
        kind: Kind,
    },
    /// The peer has sent its Close; nothing may follow.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    PingOrPong,
    Close,
    Data { last: bool },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Header { bytes: [0; 10], len: 0 }
    }
}

impl Meter {
    pub(crate) const fn new(role: Role) -> Self {
        Self {
            role,
            phase: Phase::Header { bytes: [0; 10], len: 0 },
            fragments: 0,
            begun: 0,
            open: false,
            message_bytes: 0,
            continues: false,
            refused: None,
        }
    }

    /// How many of the bytes may be seen by the library: all, or those before the header that is refused.
    pub(crate) fn observe(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while self.refused.is_none()
            && let Some((first, tail)) = rest.split_first()
        {
            match &mut self.phase {
                Phase::Header { bytes: header, len } => {
                    header[*len] = *first;
                    *len += 1;
                    let (header, len) = (*header, *len);
                    match self.header(&header[..len]) {
                        Ok(()) => rest = tail,
                        Err(closed) => self.refused = Some(closed),
                    }
                }
                Phase::Payload { remaining, kind } => {
                    let step = usize::try_from(*remaining).unwrap_or(usize::MAX).min(rest.len());
                    *remaining -= step as u64;
                    rest = &rest[step..];
                    let (remaining, kind) = (*remaining, *kind);
                    self.payload(remaining, kind);
                }
                Phase::Over => self.refused = Some(violation("a frame after its close frame")),
            }
        }
        bytes.len() - rest.len()
    }

    /// Takes what has arrived of a header, and refuses it as soon as it shows why.
    fn header(&mut self, header: &[u8]) -> Result<(), Closed> {
        let kind = self.kind(header[0])?;
        let Some(second) = header.get(1) else { return Ok(()) };
        let masked = self.is_masked(*second)?;
        if kind.is_control() && u64::from(second & 0x7f) > CONTROL_PAYLOAD_MAX_BYTES {
            return Err(violation("a control frame of more than 125 bytes"));
        }
        let Some(length) = payload_length(header)? else { return Ok(()) };
        if let Kind::Data { last } = kind {
            self.begin_data(length, last)?;
        }
        // The mask is counted as payload.
        let remaining = length.saturating_add(if masked { 4 } else { 0 });
        self.phase = Phase::Payload { remaining, kind };
        self.payload(remaining, kind);
        Ok(())
    }

    fn kind(&self, first: u8) -> Result<Kind, Closed> {
        let last = first & 0x80 != 0;
        if first & 0x70 != 0 {
            return Err(violation("a reserved bit without an extension"));
        }
        match first & 0x0f {
            0x0 if !self.continues => Err(violation("a continuation without a beginning")),
            0x1 | 0x2 if self.continues => Err(violation("a new message inside a fragmented one")),
            0x0..=0x2 => Ok(Kind::Data { last }),
            0x8..=0xa if !last => Err(violation("a fragmented control frame")),
            0x8 => Ok(Kind::Close),
            0x9 | 0xa => Ok(Kind::PingOrPong),
            _ => Err(violation("a reserved opcode")),
        }
    }

    fn is_masked(&self, second: u8) -> Result<bool, Closed> {
        match (self.role, second & 0x80 != 0) {
            (Role::Server, true) => Ok(true),
            (Role::Client, false) => Ok(false),
            (Role::Server, false) => Err(violation("a frame of a client without a mask")),
            (Role::Client, true) => Err(violation("a masked frame of a server")),
        }
    }

    fn begin_data(&mut self, length: u64, last: bool) -> Result<(), Closed> {
        if !self.continues {
            self.begun += 1;
            self.message_bytes = 0;
        }
        self.message_bytes = self.message_bytes.saturating_add(length);
        if self.message_bytes > CALL_FRAME_MAX_BYTES as u64 {
            return Err(Closed::TooLarge);
        }
        (self.open, self.continues) = (true, !last);
        Ok(())
    }

    fn payload(&mut self, remaining: u64, kind: Kind) {
        if remaining > 0 {
            return;
        }
        self.phase = match kind {
            Kind::Close => Phase::Over,
            Kind::PingOrPong | Kind::Data { .. } => Phase::default(),
        };
        if let Kind::Data { last } = kind {
            self.fragments += 1;
            self.open = !last;
        }
    }
}

impl Kind {
    const fn is_control(self) -> bool {
        matches!(self, Self::PingOrPong | Self::Close)
    }
}

fn violation(what: &str) -> Closed {
    Closed::Violation(what.to_owned())
}

/// `None` while the header is too short to tell. Only the shortest form of a length is one (RFC 6455 §5.2).
fn payload_length(header: &[u8]) -> Result<Option<u64>, Closed> {
    let Some(short) = header.get(1).map(|byte| byte & 0x7f) else { return Ok(None) };
    let (length, least) = match short {
        TWO_BYTES => {
            (header.get(2..4).and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes).map(u64::from), 126)
        }
        EIGHT_BYTES => (header.get(2..10).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes), 1 << 16),
        length => (Some(u64::from(length)), 0),
    };
    match length {
        Some(length) if length >> 63 != 0 => Err(violation("a length above 63 bits")),
        Some(length) if length < least => Err(violation("a length that is not written in its shortest form")),
        length => Ok(length),
    }
}

/// A stream whose received bytes pass a [`Meter`].
#[derive(Debug)]
pub(crate) struct Metered<S> {
    stream: S,
    pub(crate) meter: Meter,
}

impl<S> Metered<S> {
    /// `already_read` came off the stream before it was wrapped; gives how much of it may be read from elsewhere.
    pub(crate) fn new(stream: S, role: Role, already_read: &[u8]) -> (Self, usize) {
        let mut meter = Meter::new(role);
        let passed = meter.observe(already_read);
        (Self { stream, meter }, passed)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.meter.refused.is_none() {
            std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            let passed = self.meter.observe(&buf.filled()[before..]);
            buf.set_filled(before + passed);
        }
        match &self.meter.refused {
            // The library takes the error up; whoever sees it asks the meter for the reason.
            Some(closed) if buf.filled().len() == before => Poll::Ready(Err(io::Error::other(closed.clone()))),
            Some(_) | None => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(first: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload {
            0..126 => bytes.push(0x80 | u8::try_from(payload).unwrap()),
            126..65536 => {
                bytes.push(0x80 | TWO_BYTES);
                bytes.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(0x80 | EIGHT_BYTES);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend(std::iter::repeat_n(0x81, payload + 4));
        bytes
    }

    #[test]
    fn fragments_count_and_pings_do_not() {
        let mut meter = Meter::new(Role::Server);
        meter.observe(&frame(0x01, 70_000));
        assert_eq!((meter.fragments, meter.begun, meter.open), (1, 1, true));
        meter.observe(&frame(0x89, 125));
        assert_eq!((meter.fragments, meter.begun, meter.open), (1, 1, true));
        meter.observe(&frame(0x80, 0));
        assert_eq!((meter.fragments, meter.begun, meter.open), (2, 1, false));
        assert_eq!(meter.refused, None);
    }

    #[test]
    fn what_precedes_a_refused_header_is_let_through() {
        let mut meter = Meter::new(Role::Server);
        let bytes = [frame(0x81, 3), vec![0xc1]].concat();
        assert_eq!(meter.observe(&bytes), bytes.len() - 1);
        assert_eq!(meter.refused, Some(violation("a reserved bit without an extension")));
        assert_eq!(meter.observe(&frame(0x81, 3)), 0);
    }

    proptest! {
        /// However the bytes arrive, the same ones are let through, for the same reason.
        #[test]
        fn reads_of_any_size_are_judged_alike(
            frames in prop::collection::vec((prop::sample::select(vec![0x01, 0x00, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8a, 0x09, 0xc1, 0x83]),
                prop::sample::select(vec![0, 1, 125, 126, 200, 65_535, 65_536])), 1..6),
            step in 1_usize..5000,
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(first, payload)| frame(*first, *payload)).collect();
            let (mut whole, mut parts) = (Meter::new(Role::Server), Meter::new(Role::Server));
            let passed = whole.observe(&bytes);
            prop_assert_eq!(bytes.chunks(step).map(|chunk| parts.observe(chunk)).sum::<usize>(), passed);
            prop_assert_eq!(&whole.refused, &parts.refused);
            prop_assert_eq!((whole.fragments, whole.begun, whole.open), (parts.fragments, parts.begun, parts.open));
            prop_assert_eq!(whole.refused.is_none(), passed == bytes.len());
        }
    }
}
