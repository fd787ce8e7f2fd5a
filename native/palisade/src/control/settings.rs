//! The settings of Core: one table for options, variables, file, defaults, and what is shown of them.

/// One setting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    /// Its name in the file.
    pub(super) key: &'static str,
    /// Its option; absent where an argument would show a secret or make no sense.
    pub(super) option: Option<&'static str>,
    /// Its environment variable.
    pub(super) variable: &'static str,
    pub(super) default: Option<&'static str>,
    /// Its value is never shown.
    pub(super) secret: bool,
    pub(super) form: Form,
}

/// How a value is written in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Integer,
    /// A list of texts; in a variable a JSON array of them.
    Texts,
}

impl Form {
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Text => "a text in quotes",
            Self::Integer => "an integer",
            Self::Texts => "a list of texts in quotes",
        }
    }
}

const fn text(key: &'static str, option: &'static str, variable: &'static str) -> Setting {
    Setting { key, option: Some(option), variable, default: None, secret: false, form: Form::Text }
}

/// In the order in which they are shown.
pub(super) const SETTINGS: [Setting; 13] = [
    Setting { default: Some("127.0.0.1:8080"), ..text("listen", "--listen", "OAC_CORE_LISTEN") },
    text("public_url", "--public-url", "OAC_PUBLIC_URL"),
    text("data", "--data", "OAC_CORE_DATA"),
    Setting { secret: true, ..text("database_url", "--database-url", "OAC_DATABASE_URL") },
    text("admin_key_file", "--admin-key-file", "OAC_CORE_KEY_FILE"),
    Setting {
        key: "admin_key_sha256s",
        option: None,
        variable: "OAC_CORE_KEY_SHA256S",
        default: None,
        secret: true,
        form: Form::Texts,
    },
    text("metrics_listen", "--metrics-listen", "OAC_CORE_METRICS_LISTEN"),
    Setting {
        default: Some("512"),
        form: Form::Integer,
        ..text("body_budget_mib", "--body-budget-mib", "OAC_CORE_BODY_BUDGET_MIB")
    },
    text("node_payload", "--node-payload", "OAC_CORE_NODE_PAYLOAD"),
    text("credential_key_file", "--credential-key-file", "OAC_CORE_CREDENTIAL_KEY_FILE"),
    Setting { option: None, secret: true, ..text("credential_key", "", "OAC_CORE_CREDENTIAL_KEY") },
    Setting { option: None, default: Some("info"), ..text("log", "", "PALISADE_LOG") },
    Setting { default: Some("text"), ..text("log_format", "--log-format", "PALISADE_LOG_FORMAT") },
];

pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
