//! Counts the data fragments that a stream has received.
//!
//! The WebSocket library assembles messages out of sight. The meter follows the frame headers of the same bytes, so
//! that the shell can tell a fragment that has arrived from silence, and from a ping.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the received bytes amount to so far. Judges nothing: refusing is the library's part.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    phase: Phase,
    /// Complete data frames, control frames not included.
    pub(crate) fragments: u64,
    /// Messages whose first header has arrived.
    pub(crate) begun: u64,
    /// Whether a message has begun and its last fragment has not arrived.
    pub(crate) open: bool,
}

#[derive(Debug)]
enum Phase {
    Header { bytes: [u8; 10], len: usize },
    Payload { remaining: u64, kind: Kind },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Control,
    Data { last: bool },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Header { bytes: [0; 10], len: 0 }
    }
}

impl Meter {
    pub(crate) fn observe(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            match &mut self.phase {
                Phase::Header { bytes: header, len } => {
                    header[*len] = *first;
                    *len += 1;
                    bytes = rest;
                    let header = (*header, *len);
                    self.header(&header.0[..header.1]);
                }
                Phase::Payload { remaining, kind } => {
                    let step = usize::try_from(*remaining).unwrap_or(usize::MAX).min(bytes.len());
                    *remaining -= step as u64;
                    bytes = &bytes[step..];
                    let (remaining, kind) = (*remaining, *kind);
                    self.payload(remaining, kind);
                }
            }
        }
    }

    fn header(&mut self, header: &[u8]) {
        let Some(length) = payload_length(header) else { return };
        let mask = if header[1] & 0x80 == 0 { 0 } else { 4 };
        let kind = match header[0] & 0x0f {
            0x8.. => Kind::Control,
            _ => Kind::Data { last: header[0] & 0x80 != 0 },
        };
        if kind != Kind::Control && !self.open {
            self.begun += 1;
            self.open = true;
        }
        let remaining = length.saturating_add(mask);
        self.phase = Phase::Payload { remaining, kind };
        self.payload(remaining, kind);
    }

    fn payload(&mut self, remaining: u64, kind: Kind) {
        if remaining > 0 {
            return;
        }
        self.phase = Phase::default();
        if let Kind::Data { last } = kind {
            self.fragments += 1;
            self.open = !last;
        }
    }
}

/// `None` while the header is too short to tell. The mask is counted as payload.
fn payload_length(header: &[u8]) -> Option<u64> {
    let short = header.get(1)? & 0x7f;
    match short {
        126 => Some(u64::from(u16::from_be_bytes(header.get(2..4)?.try_into().ok()?))),
        127 => Some(u64::from_be_bytes(header.get(2..10)?.try_into().ok()?)),
        _ => Some(u64::from(short)),
    }
}

/// A stream whose received bytes pass a [`Meter`].
#[derive(Debug)]
pub(crate) struct Metered<S> {
    stream: S,
    pub(crate) meter: Meter,
}

impl<S> Metered<S> {
    /// `already_read` came off the stream before it was wrapped and is read from elsewhere.
    pub(crate) fn new(stream: S, already_read: &[u8]) -> Self {
        let mut meter = Meter::default();
        meter.observe(already_read);
        Self { stream, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.meter.observe(&buf.filled()[before..]);
        polled
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

    fn frame(first: u8, payload: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut bytes = vec![first];
        match payload {
            0..126 => bytes.push(mask | u8::try_from(payload).unwrap()),
            126..65536 => {
                bytes.push(mask | 0x7e);
                bytes.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(mask | 0x7f);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend(std::iter::repeat_n(0x81, payload + if masked { 4 } else { 0 }));
        bytes
    }

    #[test]
    fn fragments_count_and_pings_do_not() {
        let mut meter = Meter::default();
        meter.observe(&frame(0x01, 70_000, true));
        assert_eq!((meter.fragments, meter.begun, meter.open), (1, 1, true));
        meter.observe(&frame(0x89, 125, true));
        assert_eq!((meter.fragments, meter.begun, meter.open), (1, 1, true));
        meter.observe(&frame(0x80, 0, false));
        assert_eq!((meter.fragments, meter.begun, meter.open), (2, 1, false));
    }

    proptest! {
        #[test]
        fn reads_of_any_size_give_the_same_count(
            frames in prop::collection::vec((prop::sample::select(vec![0x01, 0x00, 0x80, 0x81, 0x89, 0x8a]),
                prop::sample::select(vec![0, 1, 125, 126, 200, 65_535, 65_536]), any::<bool>()), 1..6),
            step in 1_usize..5000,
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(first, payload, masked)| frame(*first, *payload, *masked)).collect();
            let mut meter = Meter::default();
            bytes.chunks(step).for_each(|chunk| meter.observe(chunk));
            let data = frames.iter().filter(|(first, ..)| first & 0x08 == 0).count();
            prop_assert_eq!(meter.fragments, data as u64);
        }
    }
}
