//! How the files of a release reach a node (node-host §5): what there is, what it is called, and what is believed.
//!
//! - A file is taken for what the manifest declares only when its size and SHA-256 say so.
//! - A manifest is believed only when `SHA256SUMS` lists it, and only for the commit that was asked for.
//! - No name that a file declares can leave its folder, and no answer can lead a download to plain http.
//!
//! [`catalogue`] says which files each provider's nodes need, [`manifest`] and [`sums`] read the metadata, [`route`] names
//! every file on the server's side, [`address`] judges addresses, and [`answer`] judges what a server answers to a
//! download.

pub mod address;
pub mod answer;
pub mod catalogue;
pub mod manifest;
pub mod route;
pub mod sums;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Malformed;

/// The commit that a release was built from: 40 lower-case hexadecimal characters. It names the release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Commit(String);

impl Commit {
    const EXPECTED: Malformed = Malformed("40 lower-case hexadecimal characters");

    /// Reads exactly 40 lower-case hexadecimal characters.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        text.to_owned().try_into()
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Commit {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Malformed> {
        let good = text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if good { Ok(Self(text)) } else { Err(Self::EXPECTED) }
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `active.json`: which release a payload folder offers first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pointer {
    /// The release.
    pub source_commit: Commit,
}

impl Pointer {
    /// Reads at most [`crate::limits::POINTER_MAX_BYTES`] of exactly one object.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= crate::limits::POINTER_MAX_BYTES).then(|| crate::strict::object(bytes).ok()).flatten()
    }

    /// The bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("{{\"source_commit\":\"{}\"}}\n", self.source_commit).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_lower_case_commits_are_taken() {
        let good = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(Commit::parse(good).unwrap().to_string(), good);
        for bad in ["", &good[1..], &good.to_uppercase(), &format!("{good}0"), &format!("{}\n", &good[1..]), "latest"] {
            assert!(Commit::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// H 33. The pointer is one small object with one commit, or it is none.
    #[test]
    fn a_pointer_is_one_commit_and_nothing_else() {
        let commit = Commit::parse(&"ab".repeat(20)).unwrap();
        let pointer = Pointer { source_commit: commit };
        assert_eq!(Pointer::parse(&pointer.to_bytes()), Some(pointer.clone()));
        let text = String::from_utf8(pointer.to_bytes()).unwrap();
        for bad in [
            String::new(),
            "{}".to_owned(),
            "null".to_owned(),
            format!("[{text}]"),
            text.replace('a', "A"),
            text.replace('}', ",\"x\":1}"),
            format!("{text}{text}"),
            format!("{text}{}", " ".repeat(256)),
        ] {
            assert_eq!(Pointer::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
