//! How members are read and written where serde's defaults are too generous.
//!
//! A derived structure accepts a JSON array, an `Option` takes an absent member for `null`, a `Cow` inside a
//! list never borrows, and the default number reader is not exact. Each function here closes one of these gaps, for
//! `serde_json` and for the [`super::reader`] alike: what the reader must know of a value it knows by the name of a
//! newtype, which `serde_json` does not care for.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{self, Serialize, Serializer};
use serde_json::value::RawValue;

use super::payload::Text;
use super::reader::{BASE64, NUMBER, OPAQUE};
use super::violation::Reason;
use crate::limits::FRAME_MAX_DEPTH;

/// Gives types with `#[serde(remote = "Self")]` their `Deserialize` and `Serialize`: objects only.
macro_rules! objects {
    ($($name:ident $(<$life:lifetime>)?),+ $(,)?) => { $(
        $crate::wire::json::objects!(@read $name $(<$life>)?);

        impl $(<$life>)? serde::Serialize for $name $(<$life>)? {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }
    )+ };
    (@read $name:ident $(<$life:lifetime>)?) => {
        impl<'de $(: $life, $life)?> serde::Deserialize<'de> for $name $(<$life>)? {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members<T>(std::marker::PhantomData<T>);
                impl<'de $(: $life, $life)?> serde::de::Visitor<'de> for Members<$name $(<$life>)?> {
                    type Value = $name $(<$life>)?;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
                        $name::deserialize(serde::de::value::MapAccessDeserializer::new(members))
                    }
                }
                deserializer.deserialize_map(Members(std::marker::PhantomData::<Self>))
            }
        }
    };
}
pub(super) use objects;

pub(super) use crate::strict::{nullable, present};

/// A string that borrows wherever it stands.
#[derive(serde::Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

pub(super) fn present_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'de>>, D::Error> {
    Borrowed::deserialize(deserializer).map(|text| Some(text.0))
}

pub(super) fn nullable_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'de>>, D::Error> {
    Ok(Option::<Borrowed<'_>>::deserialize(deserializer)?.map(|text| text.0))
}

pub(super) fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Text<'de>>, D::Error> {
    Ok(Vec::<Borrowed<'_>>::deserialize(deserializer)?.into_iter().map(|text| text.0).collect())
}

pub(super) fn nullable_texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Text<'de>>>, D::Error> {
    let list = Option::<Vec<Borrowed<'_>>>::deserialize(deserializer)?;
    Ok(list.map(|texts| texts.into_iter().map(|text| text.0).collect()))
}

/// A number read exactly as the nearest double.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Literal;
        impl<'de> Visitor<'de> for Literal {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
                Ok(Number(value))
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Number, D::Error> {
                Number::parse(<&RawValue>::deserialize(deserializer)?.get()).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_newtype_struct(NUMBER, Literal)
    }
}

impl Number {
    fn parse(literal: &str) -> Result<Self, Reason> {
        if !literal.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return Err(Reason::WrongType);
        }
        match literal.parse() {
            Ok(value) if f64::is_finite(value) => Ok(Self(value)),
            Ok(_) | Err(_) => Err(Reason::NumberRange),
        }
    }
}

pub(super) fn present_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Number::deserialize(deserializer).map(|number| Some(number.0))
}

pub(super) fn nullable_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(Option::<Number>::deserialize(deserializer)?.map(|number| number.0))
}

/// An integer from 0 to 2^63 − 1.
pub(super) mod natural {
    use super::{Deserialize, Deserializer, Reason, Serialize, Serializer, de, ser};

    const MAX: u64 = i64::MAX.cast_unsigned();

    pub(in crate::wire) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let value = u64::deserialize(deserializer)?;
        if value <= MAX { Ok(value) } else { Err(de::Error::custom(Reason::NumberRange)) }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(in crate::wire) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        if *value <= MAX { value.serialize(serializer) } else { Err(ser::Error::custom(Reason::NumberRange)) }
    }
}

/// Canonical padded standard base64, nullable.
pub(super) mod base64 {
    use std::fmt;

    use base64_simd::{AsOut as _, STANDARD};

    use super::{
        BASE64, Borrowed, Cow, Deserialize, Deserializer, RawValue, Reason, Serialize, Serializer, Visitor, de,
    };

    pub(in crate::wire) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Cow<'de, [u8]>>, D::Error> {
        deserializer.deserialize_newtype_struct(BASE64, Letters)
    }

    struct Letters;

    impl<'de> Visitor<'de> for Letters {
        type Value = Option<Cow<'de, [u8]>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("base64 or null")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_borrowed_bytes<E: de::Error>(self, letters: &'de [u8]) -> Result<Self::Value, E> {
            let decoded = STANDARD.decode_to_vec(letters).map_err(|_| E::custom(Reason::Base64))?;
            Ok(Some(Cow::Owned(decoded)))
        }

        fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            let literal = <&RawValue>::deserialize(deserializer)?.get();
            if literal == "null" {
                return Ok(None);
            }
            if !literal.starts_with('"') {
                return Err(de::Error::custom(Reason::WrongType));
            }
            let decoded =
                serde_json::from_str(literal).ok().and_then(|Borrowed(text)| STANDARD.decode_to_vec(&*text).ok());
            decoded.map(|bytes| Some(Cow::Owned(bytes))).ok_or_else(|| de::Error::custom(Reason::Base64))
        }
    }

    #[allow(clippy::ref_option, reason = "serde gives this reference")]
    pub(in crate::wire) fn serialize<S: Serializer>(
        value: &Option<Cow<'_, [u8]>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(bytes) => serializer.serialize_newtype_struct(BASE64, &Encoded(bytes)),
            None => serializer.serialize_none(),
        }
    }

    /// Writes bytes as base64 piece by piece, so that the whole text never stands in memory beside the frame.
    struct Encoded<'a>(&'a [u8]);

    impl Serialize for Encoded<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl fmt::Display for Encoded<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let mut text = [0; 4_096];
            // Three bytes are four letters; only the last piece is padded.
            self.0
                .chunks(text.len() / 4 * 3)
                .try_for_each(|piece| f.write_str(STANDARD.encode_as_str(piece, text.as_mut_slice().as_out())))
        }
    }
}

/// Levels of a frame around `Instance.ProviderState`.
const PROVIDER_STATE_DEPTH: usize = 4;
/// Levels of a frame around `ObservationTarget.TokenUsage`.
const TOKEN_USAGE_DEPTH: usize = 3;
/// Levels of a frame around `Configuration.Parameters` and `Attachment.Native`.
const WORKSPACE_DEPTH: usize = 5;

/// Any JSON value, carried unchanged.
pub(super) mod provider_state {
    use super::{Deserializer, PROVIDER_STATE_DEPTH, Serializer, Text, read_opaque, write_opaque};

    pub(in crate::wire) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text<'de>, D::Error> {
        read_opaque(deserializer, PROVIDER_STATE_DEPTH).map(Text::Borrowed)
    }

    pub(in crate::wire) fn serialize<S: Serializer>(text: &Text<'_>, serializer: S) -> Result<S::Ok, S::Error> {
        write_opaque(text, serializer, PROVIDER_STATE_DEPTH, false)
    }
}

/// A JSON object, carried unchanged.
pub(super) mod opaque_object {
    use super::{Deserializer, Reason, Serializer, Text, WORKSPACE_DEPTH, de, read_opaque, write_opaque};

    pub(in crate::wire) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text<'de>, D::Error> {
        let text = read_opaque(deserializer, WORKSPACE_DEPTH)?;
        if text.starts_with('{') { Ok(Text::Borrowed(text)) } else { Err(de::Error::custom(Reason::WrongType)) }
    }

    pub(in crate::wire) fn serialize<S: Serializer>(text: &Text<'_>, serializer: S) -> Result<S::Ok, S::Error> {
        write_opaque(text, serializer, WORKSPACE_DEPTH, true)
    }
}

/// `TokenUsage` as "does it hold anything but null?".
pub(super) mod token_usage {
    use super::{Deserializer, Reason, Serializer, TOKEN_USAGE_DEPTH, read_opaque, ser};

    pub(in crate::wire) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
        read_opaque(deserializer, TOKEN_USAGE_DEPTH).map(|text| text != "null")
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(in crate::wire) fn serialize<S: Serializer>(present: &bool, serializer: S) -> Result<S::Ok, S::Error> {
        if *present { Err(ser::Error::custom(Reason::TokenUsage)) } else { serializer.serialize_none() }
    }
}

fn read_opaque<'de, D: Deserializer<'de>>(deserializer: D, around: usize) -> Result<&'de str, D::Error> {
    struct Raw;
    impl<'de> Visitor<'de> for Raw {
        type Value = &'de str;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }
        fn visit_borrowed_str<E>(self, text: &'de str) -> Result<&'de str, E> {
            Ok(text)
        }
        fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'de str, D::Error> {
            Ok(<&RawValue>::deserialize(deserializer)?.get())
        }
    }
    let text = deserializer.deserialize_newtype_struct(OPAQUE, Raw)?;
    if depth(text) + around > FRAME_MAX_DEPTH {
        return Err(de::Error::custom(Reason::TooDeep));
    }
    Ok(text)
}

fn write_opaque<S: Serializer>(text: &str, serializer: S, around: usize, object: bool) -> Result<S::Ok, S::Error> {
    let value: &RawValue = serde_json::from_str(text).map_err(|_| ser::Error::custom(Reason::NotJson))?;
    if object && !value.get().starts_with('{') {
        return Err(ser::Error::custom(Reason::WrongType));
    }
    if depth(value.get()) + around > FRAME_MAX_DEPTH {
        return Err(ser::Error::custom(Reason::TooDeep));
    }
    serializer.serialize_newtype_struct(OPAQUE, value)
}

/// Deepest nesting of arrays and objects in a JSON text that is known to be well formed.
fn depth(text: &str) -> usize {
    let (mut level, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                level += 1;
                deepest = deepest.max(level);
            }
            b'}' | b']' if !quoted => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
