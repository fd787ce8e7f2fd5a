//! The members around a payload: one structure per frame type (wire §1.1).

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::frame::{Announcement, Frame, Request, Response};
use super::json::objects;
use super::payload::{Deployment, Exchange, GenerationReference, Health, Identity, Retention, Text};
use super::violation::{Reason, Violation};
use super::writer;
use crate::limits::{CALL_FRAME_MAX_BYTES, CONTROL_FRAME_MAX_BYTES, PROTOCOL_VERSION};
use crate::units::{Id, OwnerEpoch, Sequence};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// The type of a frame.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[$doc])* $name),+ }

        impl Kind {
            /// All types.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The value of `type`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

        }
    };
}

kinds! {
    /// First frame of a node.
    Hello = "hello",
    /// Core's answer to it.
    Welcome = "welcome",
    /// Every ten seconds.
    Heartbeat = "heartbeat",
    /// Core's answer to it.
    HeartbeatAck = "heartbeat_ack",
    /// Which generations must be kept?
    Retention = "retention",
    /// Core's answer to it.
    RetentionAck = "retention_ack",
    /// A call.
    Request = "request",
    /// Its outcome.
    Response = "response",
}

/// The beginning of a frame, up to the name of its type.
const OPENING: &[u8] = br#"{"version":6,"type":""#;
/// Bytes of the longest name.
const LONGEST_NAME: usize = "heartbeat_ack".len();

impl Kind {
    /// The longest frame of this type, in bytes of JSON text.
    #[must_use]
    pub const fn limit(self) -> usize {
        match self {
            Self::Request | Self::Response => CALL_FRAME_MAX_BYTES,
            Self::Hello
            | Self::Welcome
            | Self::Heartbeat
            | Self::HeartbeatAck
            | Self::Retention
            | Self::RetentionAck => CONTROL_FRAME_MAX_BYTES,
        }
    }

    /// Reads version and type, in whatever order the members stand.
    pub(super) fn read(text: &str) -> Result<Self, Violation> {
        if let Some(kind) = Self::written(text.as_bytes()) {
            return Ok(kind);
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let Opening { version, kind } = deserializer.deserialize_map(OpeningVisitor)?;
        if version != Some(PROTOCOL_VERSION) {
            return Err(Violation::frame(Reason::Version));
        }
        kind.and_then(|name| Self::named(name.as_bytes())).ok_or(Violation::frame(Reason::Type))
    }

    fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name().as_bytes() == name)
    }

    /// The type of a frame that begins as [`super::encode`] begins it.
    pub(super) fn written(message: &[u8]) -> Option<Self> {
        let name = message.strip_prefix(OPENING)?;
        let end = name.iter().take(LONGEST_NAME + 1).position(|byte| *byte == b'"')?;
        Self::named(&name[..end])
    }
}

/// The first `version` and `type` of a frame; the strict pass refuses a second one.
#[derive(Default)]
struct Opening<'a> {
    version: Option<u64>,
    kind: Option<Text<'a>>,
}

struct OpeningVisitor;

impl<'de> Visitor<'de> for OpeningVisitor {
    type Value = Opening<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Opening<'de>, A::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        let mut opening = Opening::default();
        while let Some(Name(name)) = members.next_key()? {
            match &*name {
                "version" if opening.version.is_none() => opening.version = Some(members.next_value()?),
                "type" if opening.kind.is_none() => opening.kind = Some(members.next_value::<Name<'de>>()?.0),
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(opening)
    }
}

/// Version and type, which [`Kind::read`] has already read.
struct Version;

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            PROTOCOL_VERSION => Ok(Self),
            _ => Err(de::Error::custom(Reason::Version)),
        }
    }
}

/// Declares the structures for reading: `version`, `type` and the members of the frame.
macro_rules! reading {
    ($($name:ident $(<$life:lifetime>)? { $($(#[$attribute:meta])* $member:ident: $type:ty),+ $(,)? })+) => { $(
        #[derive(Deserialize)]
        #[serde(remote = "Self", deny_unknown_fields)]
        struct $name $(<$life>)? {
            #[serde(rename = "version")]
            _version: Version,
            #[serde(rename = "type")]
            _kind: IgnoredAny,
            $($(#[$attribute])* $member: $type),+
        }
        objects!(@read $name $(<$life>)?);
    )+ };
}

reading! {
    HelloFrame<'a> { #[serde(borrow)] identity: Identity<'a>, #[serde(borrow)] health: Health<'a> }
    AnnouncementFrame { connection_id: Id, owner_epoch: OwnerEpoch, deployment: Deployment }
    HeartbeatFrame<'a> { connection_id: Id, owner_epoch: OwnerEpoch, #[serde(borrow)] health: Health<'a> }
    RetentionFrame { control: Asking }
    RetentionAckFrame { control: Granting, deployment: Deployment }
    RequestFrame<'a> { #[serde(borrow)] request: Box<Request<'a>> }
    ResponseFrame<'a> { #[serde(borrow)] response: Box<Response<'a>> }
}

/// `control` of `retention` (wire §2.14).
#[derive(Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct Asking {
    id: Id,
    sequence: Sequence,
    connection_id: Id,
    owner_epoch: OwnerEpoch,
    references: Vec<GenerationReference>,
}

/// `control` of `retention_ack` (wire §2.14).
#[derive(Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct Granting {
    id: Id,
    sequence: Sequence,
    connection_id: Id,
    owner_epoch: OwnerEpoch,
    retentions: Vec<Retention>,
}

objects!(@read Asking);
objects!(@read Granting);

/// A message that can be read as one value with nothing behind it.
pub(super) trait Whole<'a>: Copy {
    /// Why it could not.
    type Error;
    /// Reads it.
    fn whole<T: Deserialize<'a>>(self) -> Result<T, Self::Error>;
}

/// Read by `serde_json`, which knows what is wrong and where.
#[derive(Clone, Copy)]
pub(super) struct Exact<'a>(pub(super) &'a str);

impl<'a> Whole<'a> for Exact<'a> {
    type Error = Violation;
    fn whole<T: Deserialize<'a>>(self) -> Result<T, Violation> {
        Ok(serde_json::from_str(self.0)?)
    }
}

/// Decodes the members of one frame type.
pub(super) fn read<'a, M: Whole<'a>>(kind: Kind, message: M) -> Result<Frame<'a>, M::Error> {
    Ok(match kind {
        Kind::Hello => {
            let HelloFrame { identity, health, .. } = message.whole()?;
            Frame::Hello { identity, health }
        }
        Kind::Welcome => Frame::Welcome(message.whole::<AnnouncementFrame>()?.into()),
        Kind::Heartbeat => {
            let HeartbeatFrame { connection_id, owner_epoch, health, .. } = message.whole()?;
            Frame::Heartbeat { connection_id, owner_epoch, health }
        }
        Kind::HeartbeatAck => Frame::HeartbeatAck(message.whole::<AnnouncementFrame>()?.into()),
        Kind::Retention => {
            let RetentionFrame { control, .. } = message.whole()?;
            let Asking { id, sequence, connection_id, owner_epoch, references } = control;
            Frame::Retention { exchange: Exchange { id, sequence, connection_id, owner_epoch }, references }
        }
        Kind::RetentionAck => {
            let RetentionAckFrame { control, deployment, .. } = message.whole()?;
            let Granting { id, sequence, connection_id, owner_epoch, retentions } = control;
            Frame::RetentionAck {
                exchange: Exchange { id, sequence, connection_id, owner_epoch },
                retentions,
                deployment,
            }
        }
        Kind::Request => Frame::Request(message.whole::<RequestFrame<'_>>()?.request),
        Kind::Response => Frame::Response(message.whole::<ResponseFrame<'_>>()?.response),
    })
}

impl From<AnnouncementFrame> for Announcement {
    fn from(frame: AnnouncementFrame) -> Self {
        let AnnouncementFrame { connection_id, owner_epoch, deployment, .. } = frame;
        Self { connection_id, owner_epoch, deployment }
    }
}

/// Room for what stands around the long content of a frame.
const REST_BYTES: usize = 1_024;

/// `control` of either frame of an exchange, for writing (wire §2.14).
#[derive(Serialize)]
struct Control<'f> {
    id: Id,
    sequence: Sequence,
    connection_id: Id,
    owner_epoch: OwnerEpoch,
    #[serde(skip_serializing_if = "Option::is_none")]
    references: Option<&'f [GenerationReference]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retentions: Option<&'f [Retention]>,
}

impl Control<'_> {
    const fn of(exchange: &Exchange) -> Self {
        let Exchange { id, sequence, connection_id, owner_epoch } = *exchange;
        Self { id, sequence, connection_id, owner_epoch, references: None, retentions: None }
    }
}

/// Appends the frame's JSON text.
pub(super) fn write(frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
    out.extend_from_slice(OPENING);
    out.extend_from_slice(frame.kind().name().as_bytes());
    out.push(b'"');
    match frame {
        Frame::Hello { identity, health } => {
            member(out, "identity", identity)?;
            member(out, "health", health)?;
        }
        Frame::Welcome(announcement) | Frame::HeartbeatAck(announcement) => {
            fencing(out, &announcement.connection_id, announcement.owner_epoch)?;
            member(out, "deployment", &announcement.deployment)?;
        }
        Frame::Heartbeat { connection_id, owner_epoch, health } => {
            fencing(out, connection_id, *owner_epoch)?;
            member(out, "health", health)?;
        }
        Frame::Retention { exchange, references } => {
            member(out, "control", &Control { references: Some(references), ..Control::of(exchange) })?;
        }
        Frame::RetentionAck { exchange, retentions, deployment } => {
            member(out, "deployment", deployment)?;
            member(out, "control", &Control { retentions: Some(retentions), ..Control::of(exchange) })?;
        }
        Frame::Request(request) => member(out, "request", &**request)?,
        Frame::Response(response) => member(out, "response", &**response)?,
    }
    out.push(b'}');
    Ok(())
}

fn fencing(out: &mut Vec<u8>, connection_id: &Id, owner_epoch: OwnerEpoch) -> Result<(), Violation> {
    member(out, "connection_id", connection_id)?;
    member(out, "owner_epoch", &owner_epoch)
}

fn member(out: &mut Vec<u8>, name: &str, value: &impl Serialize) -> Result<(), Violation> {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    writer::write(value, out)
}

impl Frame<'_> {
    /// The frame's type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello { .. } => Kind::Hello,
            Self::Welcome(_) => Kind::Welcome,
            Self::Heartbeat { .. } => Kind::Heartbeat,
            Self::HeartbeatAck(_) => Kind::HeartbeatAck,
            Self::Retention { .. } => Kind::Retention,
            Self::RetentionAck { .. } => Kind::RetentionAck,
            Self::Request(_) => Kind::Request,
            Self::Response(_) => Kind::Response,
        }
    }

    /// About how many bytes of text its long content takes, so that a buffer grows once. Zero for a short frame.
    pub(super) fn long_content(&self) -> usize {
        match self {
            Self::Request(request) => {
                let stdin = request.command.as_ref().and_then(|command| command.stdin.as_deref());
                stdin.map_or(0, |bytes| bytes.len().div_ceil(3) * 4 + REST_BYTES)
            }
            Self::Response(response) => {
                let result = response.command.as_ref();
                result.map_or(0, |result| result.stdout.len() + result.stderr.len() + REST_BYTES)
            }
            Self::Hello { .. }
            | Self::Welcome(_)
            | Self::Heartbeat { .. }
            | Self::HeartbeatAck(_)
            | Self::Retention { .. }
            | Self::RetentionAck { .. } => 0,
        }
    }
}
