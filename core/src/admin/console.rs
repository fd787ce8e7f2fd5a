//! What a console is told of this Core (node-host §5.7).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Validate, rule};
use crate::strict;
use crate::units::Digest;

/// What `GET /console/config` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsoleConfig {
    /// An installer is offered for download.
    pub node_installer: bool,
    /// Its SHA-256; `null` exactly when there is none.
    #[serde(deserialize_with = "strict::nullable")]
    pub node_installer_sha256: Option<Digest>,
    /// Providers whose nodes find every file, sorted; perhaps none.
    pub node_artifacts: Vec<String>,
}

impl Validate for ConsoleConfig {
    fn validate(&self) -> Result<(), Invalid> {
        rule(self.node_installer == self.node_installer_sha256.is_some(), "an installer has a digest")?;
        rule(self.node_artifacts.is_sorted_by(|one, next| one < next), "providers are sorted, each once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::read;

    #[test]
    fn an_installer_has_a_digest_and_every_member_is_there() {
        let none = br#"{"node_installer":false,"node_installer_sha256":null,"node_artifacts":[]}"#;
        let config: ConsoleConfig = read(none).unwrap();
        assert_eq!(serde_json::to_vec(&config).unwrap(), none);
        let digest = "ab".repeat(32);
        let told = |installer: bool, digest: &str, artifacts: &str| {
            format!(r#"{{"node_installer":{installer},"node_installer_sha256":{digest},"node_artifacts":{artifacts}}}"#)
        };
        let quoted = format!("\"{digest}\"");
        assert!(read::<ConsoleConfig>(told(true, &quoted, r#"["docker","microsandbox"]"#).as_bytes()).is_ok());
        for bad in [
            told(true, "null", "[]"),
            told(false, &quoted, "[]"),
            told(true, "\"AB\"", "[]"),
            told(false, "null", "null"),
            told(false, "null", r#"["docker","docker"]"#),
            told(false, "null", r#"["microsandbox","docker"]"#),
            r#"{"node_installer":false,"node_artifacts":[]}"#.to_owned(),
        ] {
            assert!(read::<ConsoleConfig>(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
