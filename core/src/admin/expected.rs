//! What a named parameter must be, for the one who sent another value.

/// After "must be"; `None` for a parameter that has its own code to say it.
#[must_use]
pub(super) fn of(param: &str) -> Option<&'static str> {
    let expected = match param {
        "expected_generation" => {
            "given once: the generation of the deployment as it was last read, an unsigned integer"
        }
        "clear" => "auto or force",
        "deadline_seconds" => "an integer from 300 to 86400, or absent; with force it is absent",
        "core_url" => "the address of core in the enrollment command",
        "environment.type" => "openai_hosted",
        "type" => "message or cancel",
        "command" => "an object with args",
        "command.args" => "1 to 4096 texts without nul, the first one not empty, of at most 128 KiB together",
        "command.directory" => "empty or an absolute path of at most 4096 bytes without nul",
        "command.stdin" => "padded standard base64 of at most 52428832 bytes",
        "timeout_ms" => "an integer from 1 to 120000",
        "limit" => "an integer from 1 to 100, at most once",
        "order" => "asc or desc, at most once",
        "after" | "before" => "an identifier of the list, at most once",
        "OpenAI-Beta" => "a header that names agents=v1",
        "Idempotency-Key" => "one header of 1 to 255 printable ascii characters",
        _ => return None,
    };
    Some(expected)
}

#[cfg(test)]
mod tests {
    use super::super::error::{Code, Fault};
    use super::*;
    use crate::limits;

    #[test]
    fn a_named_parameter_is_told_what_it_must_be() {
        let message = |fault: &Fault| fault.envelope().error.message;
        let fault = Fault::of(Code::InvalidRequestError, "clear");
        assert_eq!(message(&fault), "clear must be auto or force");
        assert_eq!(fault.plain_envelope().error.message, "clear must be auto or force");
        let elsewhere = Fault::of(Code::InvalidName, "name");
        assert_eq!(message(&elsewhere), Code::InvalidName.message());
        let unknown = Fault::of(Code::InvalidRequestError, "something");
        assert_eq!(message(&unknown), Code::InvalidRequestError.message());
    }

    /// Every parameter that an answer can name beside the general code is explained.
    #[test]
    fn no_named_parameter_stays_unexplained() {
        for (param, words) in [
            ("expected_generation", "the generation of the deployment as it was last read"),
            ("clear", "auto or force"),
            ("core_url", "the address of core"),
            ("environment.type", "openai_hosted"),
            ("type", "message or cancel"),
            ("command", "an object with args"),
            ("timeout_ms", "an integer"),
            ("order", "asc or desc"),
            ("after", "an identifier of the list"),
            ("before", "an identifier of the list"),
            ("OpenAI-Beta", "agents=v1"),
        ] {
            let message = Fault::of(Code::InvalidRequestError, param).envelope().error.message;
            assert!(message.starts_with(&format!("{param} must be ")) && message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_texts_name_the_limits_as_they_are() {
        let says =
            |param: &str, limit: u64| assert!(of(param).unwrap().contains(&limit.to_string()), "{param} {limit}");
        says("deadline_seconds", limits::RESET_DEADLINE_MIN_S.into());
        says("deadline_seconds", limits::RESET_DEADLINE_MAX_S.into());
        says("command.args", limits::COMMAND_ARGS_MAX as u64);
        says("command.args", limits::COMMAND_ARGS_MAX_BYTES as u64 / 1024);
        says("command.directory", limits::COMMAND_DIRECTORY_MAX_BYTES as u64);
        says("command.stdin", limits::STDIN_MAX_BYTES as u64);
        says("timeout_ms", limits::BUDGET_MAX_MS);
        says("limit", limits::OBSERVATIONS_LISTED_MAX as u64);
        says("Idempotency-Key", limits::IDEMPOTENCY_KEY_MAX_BYTES as u64);
    }
}
