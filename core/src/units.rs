//! Small checked values. Once one of these exists, a wrong value cannot be written down.

mod hex;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// A point in time or a span, in whole milliseconds of the caller's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// The instant `ms` later, saturating.
    #[must_use]
    pub const fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`, 0 when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Why a value was refused by a checked constructor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("expected {0}")]
pub struct Malformed(pub &'static str);

/// A UUID in canonical lower-case hyphenated form that is not nil (wire §0.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
pub struct Id(#[schemars(with = "String", extend("format" = "uuid"))] Uuid);

impl Id {
    const EXPECTED: Malformed = Malformed("a canonical lower-case UUID that is not nil");

    /// Reads the canonical form only; braces, URNs, compact and upper-case forms are refused.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        // Eight words of four characters, with hyphens between some of them.
        let read = |text: &[u8; uuid::fmt::Hyphenated::LENGTH]| {
            let hyphens = [8, 13, 18, 23].iter().all(|at| text[*at] == b'-');
            let mut bytes = [0; 16];
            for (pair, at) in bytes.as_chunks_mut::<2>().0.iter_mut().zip([0, 4, 9, 14, 19, 24, 28, 32]) {
                *pair = hex::word([text[at], text[at + 1], text[at + 2], text[at + 3]])?;
            }
            (hyphens && bytes != [0; 16]).then_some(bytes)
        };
        let bytes = text.as_bytes().try_into().ok().and_then(read).ok_or(Self::EXPECTED)?;
        Ok(Self(Uuid::from_bytes(bytes)))
    }

    /// A version 4 identifier from random bytes that the caller supplies.
    #[must_use]
    pub const fn from_random(bytes: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    /// The sixteen bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.hyphenated().encode_lower(&mut [0; uuid::fmt::Hyphenated::LENGTH]))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Id::EXPECTED.0)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                Id::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

macro_rules! positive {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
        pub struct $name(#[schemars(range(min = 1, max = 9_223_372_036_854_775_807_i64))] u64);

        impl $name {
            /// The smallest value, 1.
            pub const FIRST: Self = Self(1);

            /// `None` outside 1 … 2^63 − 1.
            #[must_use]
            pub const fn new(value: u64) -> Option<Self> {
                if value >= 1 && value <= i64::MAX as u64 { Some(Self(value)) } else { None }
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The next value; `None` after 2^63 − 1.
            #[must_use]
            pub const fn next(self) -> Option<Self> {
                Self::new(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = u64::deserialize(deserializer)?;
                Self::new(value).ok_or_else(|| de::Error::custom("expected an integer from 1 to 2^63 - 1"))
            }
        }
    };
}

positive! {
    /// A deployment generation, 1 … 2^63 − 1.
    Generation
}
positive! {
    /// A sequence number of a connection, 1 … 2^63 − 1.
    Sequence
}
positive! {
    /// The fencing number of the process that owns execution, 1 … 2^63 − 1.
    OwnerEpoch
}

/// A SHA-256 digest, written as 64 lower-case hexadecimal characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
pub struct Digest(#[schemars(with = "String", regex(pattern = "^[0-9a-f]{64}$"))] [u8; 32]);

impl Digest {
    const EXPECTED: Malformed = Malformed("64 lower-case hexadecimal characters");
    /// Characters of a written digest.
    const LENGTH: usize = 64;

    /// The SHA-256 digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The digest with these bytes, from a hasher that saw its input in pieces.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads exactly 64 lower-case hexadecimal characters.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let text: &[u8; Self::LENGTH] = text.as_bytes().try_into().map_err(|_| Self::EXPECTED)?;
        let mut digest = [0; 32];
        for (pair, word) in digest.as_chunks_mut::<2>().0.iter_mut().zip(text.as_chunks().0) {
            *pair = hex::word(*word).ok_or(Self::EXPECTED)?;
        }
        Ok(Self(digest))
    }

    fn write<'a>(&self, text: &'a mut [u8; Self::LENGTH]) -> &'a str {
        for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(self.0) {
            *pair = hex::pair(byte);
        }
        std::str::from_utf8(text).expect("hexadecimal characters are ASCII")
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.write(&mut [0; Self::LENGTH]))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.write(&mut [0; Self::LENGTH]))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Digest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Digest::EXPECTED.0)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Digest, E> {
                Digest::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "21f2d3c4-b5a6-4798-8899-aabbccddeeff";
    const DIGEST: &str = "00123456789abcdef0112233445566778899aabbccddeeff0f1e2d3c4b5a6978";

    #[test]
    fn an_identifier_is_shown_and_stored_as_it_was_read() {
        let id = Id::parse(ID).unwrap();
        assert_eq!((id.to_string(), format!("{id:?}")), (ID.to_owned(), ID.to_owned()));
        let bytes = [0x21, 0xf2, 0xd3, 0xc4, 0xb5, 0xa6, 0x47, 0x98, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        assert_eq!(id.as_bytes(), &bytes);
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{ID}\""));
    }

    #[test]
    fn a_digest_is_shown_and_stored_as_it_was_read() {
        let digest = Digest::parse(DIGEST).unwrap();
        assert_eq!((digest.to_string(), format!("{digest:?}")), (DIGEST.to_owned(), DIGEST.to_owned()));
        assert_eq!(digest.as_bytes()[..4], [0x00, 0x12, 0x34, 0x56]);
        assert_eq!(digest.as_bytes()[31], 0x78);
    }

    #[test]
    fn a_wrong_type_is_answered_with_the_expected_form() {
        let id = serde_json::from_str::<Id>("7").unwrap_err().to_string();
        assert!(id.contains("expected a canonical lower-case UUID that is not nil"), "{id}");
        let digest = serde_json::from_str::<Digest>("7").unwrap_err().to_string();
        assert!(digest.contains("expected 64 lower-case hexadecimal characters"), "{digest}");
    }

    #[test]
    fn time_saturates_at_both_ends() {
        assert_eq!(Millis(u64::MAX).after(1), Millis(u64::MAX));
        assert_eq!((Millis(5).since(Millis(3)), Millis(3).since(Millis(5))), (2, 0));
    }

    /// However many characters are wrong, and wherever they stand.
    #[test]
    fn a_digest_with_other_characters_is_refused() {
        let with = |places: &[usize], other: u8| {
            let mut text = DIGEST.as_bytes().to_vec();
            for place in places {
                text[*place] = other;
            }
            Digest::parse(std::str::from_utf8(&text).unwrap())
        };
        for other in *b"gG AF`/:@" {
            for place in 0..64 {
                assert!(with(&[place], other).is_err(), "{place}");
                for second in 0..place {
                    assert!(with(&[place, second], other).is_err(), "{place} {second}");
                }
            }
            assert!(with(&[0, 1, 2, 3], other).is_err());
        }
    }
}
