//! The members around a payload: one structure per frame type (wire §1.1).

use std::fmt;

use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::frame::{Announcement, Frame, Request, Response};
use super::json::objects;
use super::payload::{Deployment, Exchange, GenerationReference, Health, Identity, Retention, Text};
use super::violation::{Reason, Violation};
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

            /// The beginning of a frame as [`super::encode`] writes it.
            const fn opening(self) -> &'static str {
                match self { $(Self::$name => concat!("{\"version\":6,\"type\":\"", $text, "\"")),+ }
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
        let written = |kind: &Self| text.as_bytes().starts_with(kind.opening().as_bytes());
        if let Some(kind) = Self::ALL.iter().copied().find(written) {
            return Ok(kind);
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let Opening { version, kind } = deserializer.deserialize_map(OpeningVisitor)?;
        if version != Some(PROTOCOL_VERSION) {
            return Err(Violation::frame(Reason::Version));
        }
        kind.and_then(|name| Self::ALL.iter().copied().find(|kind| kind.name() == name))
            .ok_or(Violation::frame(Reason::Type))
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
        struct Name<'a>(#[serde(borrow)] Text<'a>);

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

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PROTOCOL_VERSION.serialize(serializer)
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
#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct Asking {
    id: Id,
    sequence: Sequence,
    connection_id: Id,
    owner_epoch: OwnerEpoch,
    references: Vec<GenerationReference>,
}

/// `control` of `retention_ack` (wire §2.14).
#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct Granting {
    id: Id,
    sequence: Sequence,
    connection_id: Id,
    owner_epoch: OwnerEpoch,
    retentions: Vec<Retention>,
}

objects!(Asking, Granting);

/// Decodes the members of one frame type.
pub(super) fn read(kind: Kind, text: &str) -> Result<Frame<'_>, Violation> {
    Ok(match kind {
        Kind::Hello => {
            let HelloFrame { identity, health, .. } = whole(text)?;
            Frame::Hello { identity, health }
        }
        Kind::Welcome => Frame::Welcome(whole::<AnnouncementFrame>(text)?.into()),
        Kind::Heartbeat => {
            let HeartbeatFrame { connection_id, owner_epoch, health, .. } = whole(text)?;
            Frame::Heartbeat { connection_id, owner_epoch, health }
        }
        Kind::HeartbeatAck => Frame::HeartbeatAck(whole::<AnnouncementFrame>(text)?.into()),
        Kind::Retention => {
            let RetentionFrame { control, .. } = whole(text)?;
            let Asking { id, sequence, connection_id, owner_epoch, references } = control;
            Frame::Retention { exchange: Exchange { id, sequence, connection_id, owner_epoch }, references }
        }
        Kind::RetentionAck => {
            let RetentionAckFrame { control, deployment, .. } = whole(text)?;
            let Granting { id, sequence, connection_id, owner_epoch, retentions } = control;
            Frame::RetentionAck {
                exchange: Exchange { id, sequence, connection_id, owner_epoch },
                retentions,
                deployment,
            }
        }
        Kind::Request => Frame::Request(whole::<RequestFrame<'_>>(text)?.request),
        Kind::Response => Frame::Response(whole::<ResponseFrame<'_>>(text)?.response),
    })
}

/// One value and nothing behind it.
fn whole<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Violation> {
    Ok(serde_json::from_str(text)?)
}

impl From<AnnouncementFrame> for Announcement {
    fn from(frame: AnnouncementFrame) -> Self {
        let AnnouncementFrame { connection_id, owner_epoch, deployment, .. } = frame;
        Self { connection_id, owner_epoch, deployment }
    }
}

/// Room for what stands around the long content of a frame.
const REST_BYTES: usize = 1_024;

/// What stands behind `version` and `type` in each frame, for writing.
#[derive(Serialize)]
#[serde(untagged)]
enum Members<'f, 'a> {
    Hello { identity: &'f Identity<'a>, health: &'f Health<'a> },
    Announcement { connection_id: Id, owner_epoch: OwnerEpoch, deployment: Deployment },
    Heartbeat { connection_id: Id, owner_epoch: OwnerEpoch, health: &'f Health<'a> },
    Retention { control: Asking },
    RetentionAck { deployment: Deployment, control: Granting },
    Request { request: &'f Request<'a> },
    Response { response: &'f Response<'a> },
}

#[derive(Serialize)]
struct Writing<'f, 'a> {
    version: Version,
    r#type: &'static str,
    #[serde(flatten)]
    members: Members<'f, 'a>,
}

/// Appends the frame's JSON text.
pub(super) fn write(frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
    let writing = Writing { version: Version, r#type: frame.kind().name(), members: members(frame) };
    Ok(serde_json::to_writer(out, &writing)?)
}

fn members<'f, 'a>(frame: &'f Frame<'a>) -> Members<'f, 'a> {
    match frame {
        Frame::Hello { identity, health } => Members::Hello { identity, health },
        Frame::Welcome(announcement) | Frame::HeartbeatAck(announcement) => {
            let Announcement { connection_id, owner_epoch, deployment } = *announcement;
            Members::Announcement { connection_id, owner_epoch, deployment }
        }
        Frame::Heartbeat { connection_id, owner_epoch, health } => {
            Members::Heartbeat { connection_id: *connection_id, owner_epoch: *owner_epoch, health }
        }
        Frame::Retention { exchange, references } => {
            let Exchange { id, sequence, connection_id, owner_epoch } = *exchange;
            let references = references.clone();
            Members::Retention { control: Asking { id, sequence, connection_id, owner_epoch, references } }
        }
        Frame::RetentionAck { exchange, retentions, deployment } => {
            let Exchange { id, sequence, connection_id, owner_epoch } = *exchange;
            let retentions = retentions.clone();
            let control = Granting { id, sequence, connection_id, owner_epoch, retentions };
            Members::RetentionAck { deployment: *deployment, control }
        }
        Frame::Request(request) => Members::Request { request },
        Frame::Response(response) => Members::Response { response },
    }
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
