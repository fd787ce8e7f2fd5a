//! The one form of an image's name that says which image it is.

use std::fmt;

use crate::limits::MICROSANDBOX_IMAGE_NAME_MAX_BYTES;
use crate::units::{Digest, Malformed};

/// `name@sha256:` and 64 lower-case hexadecimal digits: the digest of the image's manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageReference {
    name: String,
    digest: Digest,
}

impl ImageReference {
    const EXPECTED: Malformed = Malformed("an image pinned as name@sha256: and 64 lower-case hexadecimal digits");

    /// Reads the pinned form only; a tag, also beside a digest, is refused.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let (name, digest) = text.split_once("@sha256:").ok_or(Self::EXPECTED)?;
        let digest = Digest::parse(digest).map_err(|_| Self::EXPECTED)?;
        if is_name(name) { Ok(Self { name: name.to_owned(), digest }) } else { Err(Self::EXPECTED) }
    }

    /// The manifest's digest.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@sha256:{}", self.name, self.digest)
    }
}

/// Whether a program may be given this as the name of an image: it begins with a letter or digit, so that it is never
/// taken for an option, and holds nothing that a list of names is cut by.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    begins && text.bytes().all(plain)
}

/// A name without tag and digest: a colon may only stand before a port, that is, before a slash.
fn is_name(name: &str) -> bool {
    let lower = !name.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b'@');
    let last = name.rsplit('/').next().unwrap_or_default();
    let short = name.len() <= MICROSANDBOX_IMAGE_NAME_MAX_BYTES;
    is_reference(name) && short && lower && !last.is_empty() && !last.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "22860558310f5671c6c8a595156ac37f5d03940d4d4a768e1b56c91fc144f696";

    /// H 206. H 177. Only a complete lower-case digest pins an image, whatever else the name says.
    #[test]
    fn an_image_is_pinned_by_its_complete_digest() {
        for name in ["oac-runtime", "library/oac-runtime", "localhost:5000/oac/runtime"] {
            let text = format!("{name}@sha256:{HEX}");
            let image = ImageReference::parse(&text).unwrap();
            assert_eq!((image.to_string(), image.digest().to_string()), (text, HEX.to_owned()));
        }
        let upper = HEX.to_uppercase();
        for text in [
            "",
            "oac-runtime",
            "oac-runtime:latest",
            &format!("oac-runtime:latest@sha256:{HEX}"),
            &format!("@sha256:{HEX}"),
            &format!("oac-runtime@sha256:{}", &HEX[1..]),
            &format!("oac-runtime@sha256:{HEX}0"),
            &format!("oac-runtime@sha256:{upper}"),
            &format!("oac-runtime@sha512:{HEX}"),
            &format!("oac-runtime@sha256:{HEX} "),
            &format!(" oac-runtime@sha256:{HEX}"),
            &format!("-f@sha256:{HEX}"),
            &format!("OAC-runtime@sha256:{HEX}"),
            &format!("oac-runtime/@sha256:{HEX}"),
            &format!("a@sha256:{HEX}@sha256:{HEX}"),
            &format!("a\nb@sha256:{HEX}"),
            &format!("sha256:{HEX}"),
        ] {
            assert_eq!(ImageReference::parse(text), Err(ImageReference::EXPECTED), "{text:?}");
        }
    }

    #[test]
    fn a_name_has_its_bound() {
        let named = |length| ImageReference::parse(&format!("{}@sha256:{HEX}", "n".repeat(length)));
        assert!(named(MICROSANDBOX_IMAGE_NAME_MAX_BYTES).is_ok());
        assert!(named(MICROSANDBOX_IMAGE_NAME_MAX_BYTES + 1).is_err());
        for option in ["--force", "-f", "", ".", "a b", "a\nb", "a\0"] {
            assert!(!is_reference(option), "{option:?}");
        }
        assert!(is_reference("oac-runtime:9ba4f2d09aa2"));
    }
}
