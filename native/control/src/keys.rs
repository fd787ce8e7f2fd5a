//! Core keys: who may administer this installation. Only SHA-256 digests are kept.

use std::fmt;

use palisade_core::units::Digest;
use subtle::{Choice, ConstantTimeEq as _};

/// The digests of the accepted Core keys.
#[derive(Clone)]
pub struct CoreKeys(Vec<Digest>);

/// Why keys were refused. Never holds a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// There is no key at all.
    #[error("no core key; expected at least one in --admin-key-file or one digest in OAC_CORE_KEY_SHA256S")]
    None,
    /// A key cannot be sent in a header, or is too easily guessed.
    #[error("line {line} of the core key file is no key; expected 16 to 256 printable ascii characters without space")]
    Key {
        /// Line of the file, from 1.
        line: usize,
    },
    /// The list of digests cannot be read.
    #[error("OAC_CORE_KEY_SHA256S is malformed; expected a json array of 64-character lower-case sha-256 digests")]
    Digests,
}

impl CoreKeys {
    /// Reads a key file, one key a line (empty lines are skipped), and a JSON array of digests; either may be absent.
    pub fn read(file: Option<&str>, digests: Option<&str>) -> Result<Self, KeysError> {
        let mut keys = file.map_or_else(|| Ok(Vec::new()), digest_lines)?;
        if let Some(text) = digests {
            let listed: Vec<Digest> = serde_json::from_str(text).map_err(|_| KeysError::Digests)?;
            keys.extend(listed);
        }
        if keys.is_empty() { Err(KeysError::None) } else { Ok(Self(keys)) }
    }

    /// The digest of the key that `bearer` is, if it is one. Takes the same time whichever key matches.
    #[must_use]
    pub fn matching(&self, bearer: &str) -> Option<Digest> {
        let digest = Digest::of(bearer.as_bytes());
        let found = self.0.iter().fold(Choice::from(0), |found, key| found | key.as_bytes().ct_eq(digest.as_bytes()));
        bool::from(found).then_some(digest)
    }
}

impl fmt::Debug for CoreKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CoreKeys({})", self.0.len())
    }
}

fn digest_lines(text: &str) -> Result<Vec<Digest>, KeysError> {
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, key)| !key.is_empty());
    lines
        .map(|(at, key)| {
            let valid = (16..=256).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
            if valid { Ok(Digest::of(key.as_bytes())) } else { Err(KeysError::Key { line: at + 1 }) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "a-core-key-of-some-length";

    #[test]
    fn keys_come_from_a_file_and_digests_from_the_environment() {
        let digests = format!(r#"["{}"]"#, Digest::of(b"another-core-key-altogether"));
        let keys = CoreKeys::read(Some(&format!("\n{KEY}\n")), Some(&digests)).unwrap();
        assert_eq!(keys.matching(KEY), Some(Digest::of(KEY.as_bytes())));
        assert!(keys.matching("another-core-key-altogether").is_some());
        assert_eq!(keys.matching("a-core-key-of-some-lengtH"), None);
        assert_eq!(keys.matching(""), None);
    }

    #[test]
    fn refusals_name_the_line_and_never_the_key() {
        assert_eq!(CoreKeys::read(None, None).unwrap_err(), KeysError::None);
        assert_eq!(CoreKeys::read(Some(" \n"), Some("[]")).unwrap_err(), KeysError::None);
        let error = CoreKeys::read(Some(&format!("{KEY}\nwith a space in the key\n")), None).unwrap_err();
        assert_eq!(error, KeysError::Key { line: 2 });
        assert!(!error.to_string().contains("with a space"));
        assert_eq!(CoreKeys::read(None, Some(r#"["ABC"]"#)).unwrap_err(), KeysError::Digests);
        assert!(!format!("{:?}", CoreKeys::read(Some(KEY), None).unwrap()).contains(KEY));
    }
}
