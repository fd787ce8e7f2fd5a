//! The commands for a host's shell, as the command line prints them.

use palisade_core::install::{self, Refused};
use serde::Serialize;

/// A command, or the value that none is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Command {
    /// What to type; that of an installation holds a token.
    Text {
        /// Always true.
        ok: bool,
        /// Lines for a shell.
        command: String,
    },
    /// No command.
    Refused {
        /// Always false.
        ok: bool,
        /// What is wrong, for people.
        reason: String,
        /// The member that is wrong.
        #[serde(skip_serializing_if = "Option::is_none")]
        param: Option<&'static str>,
    },
}

/// The command that makes a host a node.
#[must_use]
pub fn install(json: &str) -> Command {
    let wanted: Result<install::Install<'_>, _> = serde_json::from_str(json);
    wanted.map_or_else(|_| malformed(), |wanted| install::install(&wanted).into())
}

/// The command that makes it none again.
#[must_use]
pub fn uninstall(json: &str) -> Command {
    let wanted: Result<install::Uninstall<'_>, _> = serde_json::from_str(json);
    wanted.map_or_else(|_| malformed(), |wanted| install::uninstall(&wanted).into())
}

/// The command that shows its log.
#[must_use]
pub fn log(installation_id: &str) -> Command {
    install::log(installation_id).into()
}

impl From<Result<String, Refused>> for Command {
    fn from(made: Result<String, Refused>) -> Self {
        match made {
            Ok(command) => Self::Text { ok: true, command },
            Err(refused) => Self::Refused { ok: false, reason: refused.to_string(), param: Some(refused.member) },
        }
    }
}

/// Of what the reader says nothing is repeated: it may quote a token.
fn malformed() -> Command {
    Command::Refused {
        ok: false,
        reason: "expected exactly the members of a command, as texts".to_owned(),
        param: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNINSTALL: &str = r#"{"installer_sha256":"SHA","source_url":"https://core.example",
        "installation_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e"}"#;

    #[test]
    fn a_command_is_the_text_of_the_core() {
        let sha = "ab".repeat(32);
        let wanted = install::Uninstall {
            installer_sha256: &sha,
            source_url: "https://core.example",
            installation_id: "3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e",
        };
        let command = install::uninstall(&wanted).unwrap();
        assert_eq!(uninstall(&UNINSTALL.replace("SHA", &sha)), Command::Text { ok: true, command });
        assert!(matches!(log("x"), Command::Text { ok: true, .. }));
    }

    #[test]
    fn a_wrong_value_is_named_and_a_wrong_form_is_not_quoted() {
        let Command::Refused { param, .. } = uninstall(UNINSTALL) else { panic!("SHA is no digest") };
        assert_eq!(param, Some("installer_sha256"));
        for json in ["", "[]", r#"{"token":"hunter2"}"#, r#"{"token":7}"#] {
            let Command::Refused { reason, param, .. } = install(json) else { panic!("{json}") };
            assert!(param.is_none() && !reason.contains("hunter2"), "{reason}");
        }
    }
}
