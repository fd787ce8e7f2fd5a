//! Bodies of the hosted-session routes.

use std::borrow::Cow;

use base64_simd::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::admin::error::{Code, Fault};
use crate::deployment::node::valid_name;
use crate::limits;
use crate::strict::{self, Integer};

/// The one environment type that runs here.
pub const HOSTED: &str = "openai_hosted";

/// `{name}` of a project or a key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// 1 to 128 bytes, not blank.
    pub name: String,
}

impl Named {
    /// 400 `invalid_request`, or `invalid_name` with its bound.
    pub fn parse(body: &[u8]) -> Result<Self, Fault> {
        let named: Self = strict::object(body).map_err(|_| Code::InvalidRequest)?;
        if valid_name(named.name.as_bytes()) {
            return Ok(named);
        }
        Err(Fault::of(Code::InvalidName, "name").detail("max_length", limits::NODE_NAME_MAX_BYTES as u64))
    }
}

/// A new session as it is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Where it runs.
    #[serde(deserialize_with = "strict::nested")]
    environment: NewEnvironment,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewEnvironment {
    #[schemars(extend("const" = HOSTED))]
    r#type: String,
}

/// Checks the body of a new session: `{"environment":{"type":"openai_hosted"}}`.
pub fn check_session(body: &[u8]) -> Result<(), Fault> {
    let body: NewSession = strict::object(body).map_err(|_| Code::InvalidRequest)?;
    if body.environment.r#type == HOSTED { Ok(()) } else { Err(invalid("environment.type")) }
}

/// An event that a client posts to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Run a command: makes a Turn.
    Message(Message),
    /// End what waits and what runs.
    Cancel,
}

/// A command to run. `Debug` shows sizes, never content.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// At least one, the first not empty, none with NUL.
    pub args: Vec<String>,
    /// Empty or absolute.
    pub directory: String,
    /// Standard input, at most 50 MiB + 32.
    pub stdin: Option<Vec<u8>>,
    /// The whole budget from the dispatch on, 1 to 120 000.
    pub timeout_ms: u64,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stdin = self.stdin.as_ref().map(Vec::len);
        f.debug_struct("Message").field("args", &self.args.len()).field("stdin_bytes", &stdin).finish_non_exhaustive()
    }
}

/// An event as it is sent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Event")]
pub struct EventBody<'a> {
    /// `message` runs the command, `cancel` ends what waits and what runs.
    #[schemars(extend("enum" = ["message", "cancel"]))]
    r#type: String,
    /// Only of a message.
    #[serde(borrow, default, deserialize_with = "strict::present_nested")]
    command: Option<CommandBody<'a>>,
    /// The whole budget of the command from its dispatch on, in milliseconds.
    #[serde(default, deserialize_with = "strict::present")]
    #[schemars(range(min = limits::BUDGET_MIN_MS, max = limits::BUDGET_MAX_MS))]
    timeout_ms: Option<Integer>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Command")]
struct CommandBody<'a> {
    /// The program, then its arguments.
    #[schemars(length(min = 1, max = limits::COMMAND_ARGS_MAX))]
    args: Vec<String>,
    /// Empty or absolute.
    #[serde(default, deserialize_with = "strict::present")]
    directory: Option<String>,
    /// Standard input in base64.
    #[serde(borrow, default, deserialize_with = "strict::present")]
    #[schemars(with = "String", extend("contentEncoding" = "base64"))]
    stdin: Option<&'a RawValue>,
}

impl Event {
    /// 400 `invalid_request` for the shape, `invalid_request_error` with the member for its value.
    pub fn parse(body: &[u8]) -> Result<Self, Fault> {
        let body: EventBody = strict::object(body).map_err(|_| Code::InvalidRequest)?;
        match (body.r#type.as_str(), body.command) {
            ("message", Some(command)) => command.check(body.timeout_ms).map(Self::Message),
            ("message", None) => Err(invalid("command")),
            ("cancel", None) if body.timeout_ms.is_none() => Ok(Self::Cancel),
            ("cancel", _) => Err(Code::InvalidRequest.into()),
            _ => Err(invalid("type")),
        }
    }
}

impl CommandBody<'_> {
    fn check(self, timeout_ms: Option<Integer>) -> Result<Message, Fault> {
        let bytes: usize = self.args.iter().map(String::len).sum();
        let valid = self.args.first().is_some_and(|program| !program.is_empty())
            && self.args.len() <= limits::COMMAND_ARGS_MAX
            && bytes <= limits::COMMAND_ARGS_MAX_BYTES
            && !self.args.iter().any(|argument| argument.contains('\0'));
        if !valid {
            return Err(invalid("command.args"));
        }
        let directory = self.directory.unwrap_or_default();
        let absolute = directory.is_empty() || directory.starts_with('/');
        if !absolute || directory.len() > limits::COMMAND_DIRECTORY_MAX_BYTES || directory.contains('\0') {
            return Err(invalid("command.directory"));
        }
        let stdin = self.stdin.map(stdin).transpose()?;
        let timeout_ms = timeout_ms.map_or(Some(limits::BUDGET_DEFAULT_MS), |Integer(value)| {
            u64::try_from(value).ok().filter(|ms| (limits::BUDGET_MIN_MS..=limits::BUDGET_MAX_MS).contains(ms))
        });
        Ok(Message { args: self.args, directory, stdin, timeout_ms: timeout_ms.ok_or_else(|| invalid("timeout_ms"))? })
    }
}

/// Canonical padded standard base64. Only `/` is ever escaped in it, by some encoders.
fn stdin(raw: &RawValue) -> Result<Vec<u8>, Fault> {
    let literal = raw.get();
    let inner = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or(Code::InvalidRequest)?;
    let text = if inner.contains('\\') {
        Cow::Owned(serde_json::from_str::<String>(literal).map_err(|_| Code::InvalidRequest)?)
    } else {
        Cow::Borrowed(inner)
    };
    let decoded = STANDARD.decode_to_vec(text.as_bytes()).ok();
    decoded.filter(|bytes| bytes.len() <= limits::STDIN_MAX_BYTES).ok_or_else(|| invalid("command.stdin"))
}

/// An archive request as it is sent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveRequest {
    /// The generation that the administrator saw.
    #[schemars(range(min = 1))]
    expected_generation: u64,
}

/// Body of an archive request: `{expected_generation}`, at least 1.
pub fn archive_generation(body: &[u8]) -> Result<u64, Fault> {
    let body: ArchiveRequest = strict::object(body).map_err(|_| Code::InvalidRequest)?;
    if body.expected_generation >= 1 { Ok(body.expected_generation) } else { Err(Code::InvalidRequest.into()) }
}

/// Whether an idempotency key has 1 to 255 printable ASCII characters.
#[must_use]
pub fn valid_idempotency_key(key: &str) -> bool {
    (1..=limits::IDEMPOTENCY_KEY_MAX_BYTES).contains(&key.len()) && key.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
}

const fn invalid(param: &'static str) -> Fault {
    Fault::of(Code::InvalidRequestError, param)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn event(text: &str) -> Result<Event, (Code, Option<&'static str>)> {
        Event::parse(text.as_bytes()).map_err(|fault| (fault.code, fault.param))
    }

    fn message(rest: &str) -> Result<Event, (Code, Option<&'static str>)> {
        event(&format!(r#"{{"type":"message","command":{{"args":["true"]}}{rest}}}"#))
    }

    #[test]
    fn a_message_carries_a_command_with_its_defaults() {
        let expected = Message {
            args: vec!["cat".to_owned(), String::new()],
            directory: "/tmp".to_owned(),
            stdin: Some(b"\xff\xef".to_vec()),
            timeout_ms: 120_000,
        };
        let text = r#"{"type":"message","command":{"args":["cat",""],"directory":"/tmp","stdin":"\/+8="},"timeout_ms":120000}"#;
        assert_eq!(event(text), Ok(Event::Message(expected.clone())));
        assert!(!format!("{expected:?}").contains("cat"));
        let Ok(Event::Message(bare)) = message("") else { panic!("a message") };
        assert_eq!((bare.timeout_ms, bare.directory.as_str(), bare.stdin), (30_000, "", None));
        assert_eq!(event(r#"{"type":"cancel"}"#), Ok(Event::Cancel));
    }

    /// D 13. Bodies of these routes are strict at every depth.
    #[rstest]
    #[case(r#"{"type":"message","command":{"args":"true"}}"#)]
    #[case(r#"{"type":"message","command":{"args":["true",null]}}"#)]
    #[case(r#"{"type":"message","command":[["true"]]}"#)]
    #[case(r#"{"type":"message","command":null}"#)]
    #[case(r#"{"type":"message","command":{"args":["true"],"stdin":null}}"#)]
    #[case(r#"{"type":"message","command":{"args":["true"],"stdin":5}}"#)]
    #[case(r#"{"type":"message","command":{"args":["true"],"env":{}}}"#)]
    #[case(r#"{"type":"message","command":{"args":["true"],"args":["true"]}}"#)]
    #[case(r#"{"type":"message","command":{"args":["true"]},"timeout_ms":"5"}"#)]
    #[case(r#"{"type":"message","command":{"args":["true"]},"timeout_ms":1.5}"#)]
    #[case(r#"{"type":"message","Command":{"args":["true"]}}"#)]
    #[case(r#"{"type":"cancel","command":{"args":["true"]}}"#)]
    #[case(r#"{"command":{"args":["true"]}}"#)]
    #[case("[]")]
    #[case("")]
    fn a_malformed_event_is_refused(#[case] text: &str) {
        assert_eq!(event(text), Err((Code::InvalidRequest, None)));
    }

    #[rstest]
    #[case(r#"{"type":"message"}"#, "command")]
    #[case(r#"{"type":"tool_result"}"#, "type")]
    #[case(r#"{"type":"message","command":{"args":[]}}"#, "command.args")]
    #[case(r#"{"type":"message","command":{"args":[""]}}"#, "command.args")]
    #[case(r#"{"type":"message","command":{"args":["a\u0000"]}}"#, "command.args")]
    #[case(r#"{"type":"message","command":{"args":["a"],"directory":"tmp"}}"#, "command.directory")]
    #[case(r#"{"type":"message","command":{"args":["a"],"stdin":"AA"}}"#, "command.stdin")]
    #[case(r#"{"type":"message","command":{"args":["a"],"stdin":"AA=\n"}}"#, "command.stdin")]
    fn a_wrong_value_is_named(#[case] text: &str, #[case] param: &'static str) {
        assert_eq!(event(text), Err((Code::InvalidRequestError, Some(param))));
    }

    /// The bounds of `timeout_ms`, decision 40.
    #[test]
    fn a_budget_is_one_millisecond_to_two_minutes() {
        for (value, valid) in [("0", false), ("1", true), ("120000", true), ("120001", false), ("-1", false)] {
            assert_eq!(message(&format!(r#","timeout_ms":{value}"#)).is_ok(), valid, "{value}");
        }
    }

    #[test]
    fn standard_input_ends_at_its_limit() {
        let text = |bytes: usize| {
            let stdin = STANDARD.encode_to_string(vec![0; bytes]);
            format!(r#"{{"type":"message","command":{{"args":["cat"],"stdin":"{stdin}"}}}}"#)
        };
        assert!(event(&text(limits::STDIN_MAX_BYTES)).is_ok());
        let long = event(&text(limits::STDIN_MAX_BYTES + 1));
        assert_eq!(long, Err((Code::InvalidRequestError, Some("command.stdin"))));
    }

    #[test]
    fn session_name_and_archive_bodies_are_strict() {
        let session = |text: &str| check_session(text.as_bytes()).map_err(|fault| (fault.code, fault.param));
        assert_eq!(session(r#"{"environment":{"type":"openai_hosted"}}"#), Ok(()));
        let other = Err((Code::InvalidRequestError, Some("environment.type")));
        assert_eq!(session(r#"{"environment":{"type":"self_hosted"}}"#), other);
        for text in [
            "{}",
            r#"{"environment":null}"#,
            r#"{"environment":{}}"#,
            r#"{"environment":["openai_hosted"]}"#,
            r#"{"environment":{"type":"openai_hosted","x":1}}"#,
        ] {
            assert_eq!(session(text), Err((Code::InvalidRequest, None)), "{text}");
        }
        assert!(Named::parse(br#"{"name":"p"}"#).is_ok());
        assert_eq!(Named::parse(br#"{"name":" "}"#).unwrap_err().code, Code::InvalidName);
        assert_eq!(Named::parse(br#"{"name":null}"#).unwrap_err().code, Code::InvalidRequest);
        assert_eq!(archive_generation(br#"{"expected_generation":1}"#), Ok(1));
        for text in [
            "{}",
            r#"{"expected_generation":0}"#,
            r#"{"expected_generation":null}"#,
            r#"{"expected_generation":1,"clear":"auto"}"#,
        ] {
            assert!(archive_generation(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_idempotency_key_is_short_and_printable() {
        for (key, valid) in
            [("", false), ("k", true), (&"k".repeat(255), true), (&"k".repeat(256), false), ("k\n", false)]
        {
            assert_eq!(valid_idempotency_key(key), valid, "{key:?}");
        }
    }

    /// Each limit holds to the byte, and on its own.
    #[test]
    fn a_working_directory_ends_at_its_limit() {
        let directory = |text: &str| {
            event(&format!(r#"{{"type":"message","command":{{"args":["true"],"directory":"{text}"}}}}"#)).err()
        };
        let longest = format!("/{}", "d".repeat(limits::COMMAND_DIRECTORY_MAX_BYTES - 1));
        let refused = Some((Code::InvalidRequestError, Some("command.directory")));
        assert_eq!(directory(&longest[1..]), refused);
        assert_eq!(directory(&longest), None);
        assert_eq!(directory(&format!("{longest}d")), refused);
        assert_eq!(directory(&format!("{longest}dd")), refused);
        assert_eq!(directory(r"/a\u0000b"), refused);
    }

    #[test]
    fn a_cancellation_has_no_budget() {
        assert_eq!(event(r#"{"type":"cancel","timeout_ms":1}"#), Err((Code::InvalidRequest, None)));
        assert_eq!(event(r#"{"type":"cancel","command":{"args":["true"]}}"#), Err((Code::InvalidRequest, None)));
    }

    #[test]
    fn a_message_shows_sizes_only() {
        let text = r#"{"type":"message","command":{"args":["secret","x"],"directory":"/secret","stdin":"QUJD"}}"#;
        let Ok(Event::Message(message)) = event(text) else { panic!("a message") };
        assert_eq!(format!("{message:?}"), "Message { args: 2, stdin_bytes: Some(3), .. }");
    }
}
