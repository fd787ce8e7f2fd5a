//! One verdict on one message, for people and other programs.

use super::{Frame, Kind, Violation, decode};
use crate::operation::{Call, Flaw};

/// How a message is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grade {
    /// It decodes and, if it is a request, is accepted.
    Ok,
    /// It closes the connection.
    InvalidFrame,
    /// It is a request that is answered `invalid`.
    InvalidRequest,
}

impl Grade {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::InvalidFrame => "invalid_frame",
            Self::InvalidRequest => "invalid_request",
        }
    }
}

/// What is said of a message; never holds content of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// See [`Grade::Ok`].
    Ok(Kind),
    /// See [`Grade::InvalidFrame`].
    InvalidFrame {
        /// The type, when it could be read.
        kind: Option<Kind>,
        /// The rule that was broken.
        violation: Violation,
    },
    /// See [`Grade::InvalidRequest`].
    InvalidRequest(Flaw),
}

impl Verdict {
    /// The grade alone.
    #[must_use]
    pub const fn grade(&self) -> Grade {
        match self {
            Self::Ok(_) => Grade::Ok,
            Self::InvalidFrame { .. } => Grade::InvalidFrame,
            Self::InvalidRequest(_) => Grade::InvalidRequest,
        }
    }

    /// The frame's type, when it could be read.
    #[must_use]
    pub const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Ok(kind) => Some(*kind),
            Self::InvalidFrame { kind, .. } => *kind,
            Self::InvalidRequest(_) => Some(Kind::Request),
        }
    }

    /// The reason with its place, for people; `None` when there is nothing to complain about.
    #[must_use]
    pub fn explanation(&self) -> Option<String> {
        match self {
            Self::Ok(_) => None,
            Self::InvalidFrame { violation, .. } => Some(violation.to_string()),
            Self::InvalidRequest(flaw) => Some(flaw.text().to_owned()),
        }
    }

    /// The stable reason, without a place; `None` when there is nothing to complain about.
    #[must_use]
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Ok(_) => None,
            Self::InvalidFrame { violation, .. } => Some(violation.reason.text()),
            Self::InvalidRequest(flaw) => Some(flaw.text()),
        }
    }
}

/// Judges one message as its receiver does.
#[must_use]
pub fn check(message: &[u8]) -> Verdict {
    match decode(message) {
        Ok(Frame::Request(request)) => match Call::accept(*request) {
            Ok(_) => Verdict::Ok(Kind::Request),
            Err(invalid) => Verdict::InvalidRequest(invalid.flaw),
        },
        Ok(frame) => Verdict::Ok(frame.kind()),
        Err(violation) => {
            let kind = std::str::from_utf8(message).ok().and_then(|text| Kind::read(text).ok());
            Verdict::InvalidFrame { kind, violation }
        }
    }
}
