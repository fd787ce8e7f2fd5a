//! Why a frame is refused. Never holds content of the frame.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// The rule that a frame broke; [`Reason::text`] is stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name),+ }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The stable text.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// The reason that a message begins with.
            pub(super) fn stated(message: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| message.starts_with(reason.text()))
            }
        }
    };
}

reasons! {
    /// Longer than its type may be.
    TooLong = "longer than a frame of its type may be",
    /// The bytes are no UTF-8.
    NotUtf8 = "not UTF-8",
    /// No JSON, an unpaired surrogate included.
    NotJson = "not JSON",
    /// The JSON text ends inside a value.
    Truncated = "the JSON text ends early",
    /// Something follows the frame's object.
    TrailingText = "text after the end of the object",
    /// More than 128 levels.
    TooDeep = "nested deeper than 128 levels",
    /// Another protocol version, or none.
    Version = "not protocol version 6",
    /// A type that does not exist, or none.
    Type = "not a frame type",
    /// A member that this object does not have.
    UnknownMember = "unknown member",
    /// A member that stands twice.
    RepeatedMember = "repeated member",
    /// A required member is absent.
    MissingMember = "missing member",
    /// `null` where it is not allowed.
    Null = "null where it is not allowed",
    /// Another JSON type than the member has.
    WrongType = "another JSON type than the member has",
    /// A number outside its range, `-0` and fractions of an integer member included.
    NumberRange = "a number outside its range",
    /// Not a canonical UUID.
    Uuid = "expected a canonical lower-case UUID that is not nil",
    /// Not a digest.
    Digest = "expected 64 lower-case hexadecimal characters",
    /// Not a time.
    Time = "expected an RFC 3339 time",
    /// Not canonical base64.
    Base64 = "expected canonical padded base64",
    /// More memory available than there is.
    MemoryAboveTotal = "more memory available than the total",
    /// Too many entries, or none where one is required.
    ListLength = "a list with too many or no entries",
    /// Two entries for one generation.
    RepeatedGeneration = "a generation that stands twice",
    /// A state that does not exist.
    State = "not a state of a generation",
    /// A diagnostic that is not declared.
    Diagnostic = "not a declared diagnostic class",
    /// A diagnostic or checkpoint beside a state that does not have it.
    StateMember = "a member that the state does not have",
    /// A checkpoint token that is empty or too long.
    CheckpointToken = "expected a checkpoint token of 1 to 256 bytes",
    /// An `error_code` that is empty.
    EmptyErrorCode = "an error code that is empty",
    /// An outgoing response that was not addressed to a connection.
    NotAddressed = "a response without a connection",
    /// Token usage in an outgoing request.
    TokenUsage = "token usage does not travel",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Where a frame broke a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The frame as a whole.
    Frame,
    /// A member, named from the frame's payload object.
    Member(&'static str),
    /// A column of a line, both counted from 1.
    Text {
        /// The line.
        line: usize,
        /// The column, in bytes.
        column: usize,
    },
}

/// An invalid frame: the connection closes, nothing is answered (wire §0.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The rule.
    pub reason: Reason,
    /// Where.
    pub place: Place,
}

impl Violation {
    pub(super) const fn frame(reason: Reason) -> Self {
        Self { reason, place: Place::Frame }
    }

    pub(super) const fn member(reason: Reason, member: &'static str) -> Self {
        Self { reason, place: Place::Member(member) }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        match self.place {
            Place::Frame => Ok(()),
            Place::Member(member) => write!(f, ", at {member}"),
            Place::Text { line, column } => write!(f, ", at line {line} column {column}"),
        }
    }
}

impl std::error::Error for Violation {}

impl From<serde_json::Error> for Violation {
    fn from(error: serde_json::Error) -> Self {
        let place = match error.line() {
            0 => Place::Frame,
            line => Place::Text { line, column: error.column() },
        };
        Self { reason: read(&error), place }
    }
}

/// serde keeps only the message of an error; ours are the texts above, serde's own begin as listed.
fn read(error: &serde_json::Error) -> Reason {
    use serde_json::error::Category;

    const SERDE: [(&str, Reason); 8] = [
        ("unknown field", Reason::UnknownMember),
        ("duplicate field", Reason::RepeatedMember),
        ("missing field", Reason::MissingMember),
        ("invalid type: null", Reason::Null),
        ("invalid type: floating point", Reason::NumberRange),
        ("invalid value: integer", Reason::NumberRange),
        ("number out of range", Reason::NumberRange),
        ("trailing characters", Reason::TrailingText),
    ];
    let message = error.to_string();
    let known = SERDE.into_iter().find(|(start, _)| message.starts_with(start)).map(|(_, reason)| reason);
    let ours = || Reason::stated(&message);
    match error.classify() {
        Category::Eof => Reason::Truncated,
        Category::Syntax | Category::Io => known.unwrap_or(Reason::NotJson),
        Category::Data if message.starts_with("expected an integer from 1") => Reason::NumberRange,
        Category::Data => known.or_else(ours).unwrap_or(Reason::WrongType),
    }
}
