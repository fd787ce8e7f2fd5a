//! Strict JSON: what serde's derive leaves open (decision 5).
//!
//! A derived struct with `deny_unknown_fields` refuses unknown, repeated and wrongly cased members, but it takes an
//! array for an object and `null` for an optional member. These pieces close both gaps.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A value that is written as a JSON object and never read from an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, rename = "{T}")]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// Reads exactly one JSON object and nothing after it.
pub fn object<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<T> {
    serde_json::from_slice::<Object<T>>(bytes).map(|object| object.0)
}

/// `deserialize_with` beside `default`: the member may be absent, and is never `null`.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// `deserialize_with` without `default`: the member is required, and may be `null`.
pub fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// `deserialize_with` for a nested struct that is required: an object, never an array.
pub fn nested<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|object| object.0)
}

/// `deserialize_with` beside `default` for a nested struct: absent or an object, never `null`.
pub fn present_nested<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    nested(deserializer).map(Some)
}

/// `deserialize_with` for an object with any members, each at most once.
pub fn each_once<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Members<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
        type Value = BTreeMap<String, T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = BTreeMap::new();
            while let Some((name, value)) = map.next_entry()? {
                if members.insert(name, value).is_some() {
                    return Err(de::Error::custom("a member is repeated"));
                }
            }
            Ok(members)
        }
    }
    deserializer.deserialize_map(Members(PhantomData))
}

/// Reads an object whose members stand in a table of names, each at most once.
///
/// The values come back in the table's order, whatever order they had in the text.
pub struct Table<'n, T, const N: usize> {
    names: [&'n str; N],
    value: PhantomData<T>,
}

impl<'n, T, const N: usize> Table<'n, T, N> {
    /// A reader of objects with these members.
    #[must_use]
    pub const fn new(names: [&'n str; N]) -> Self {
        Self { names, value: PhantomData }
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> DeserializeSeed<'de> for Table<'_, T, N> {
    type Value = [Option<T>; N];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Table<'_, T, N> {
    type Value = [Option<T>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with members from {}", self.names.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [const { None }; N];
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let Some(at) = self.names.iter().position(|known| **known == *name) else {
                return Err(de::Error::custom(format_args!("unknown member; expected only {}", self.names.join(", "))));
            };
            if values[at].is_some() {
                return Err(de::Error::custom(format_args!("member {} is repeated", self.names[at])));
            }
            values[at] = Some(map.next_value()?);
        }
        Ok(values)
    }
}

/// An integer literal that fits 64 bits, signed or not; what exceeds the signed range saturates. Fractions, exponents
/// and `-0` are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub struct Integer(pub i64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Literal;
        impl Visitor<'_> for Literal {
            type Value = Integer;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer")
            }
            fn visit_u64<E>(self, value: u64) -> Result<Integer, E> {
                Ok(Integer(i64::try_from(value).unwrap_or(i64::MAX)))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Integer, E> {
                Ok(Integer(value))
            }
        }
        deserializer.deserialize_any(Literal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default, deserialize_with = "present")]
        maybe: Option<u8>,
        #[serde(deserialize_with = "nullable")]
        certain: Option<u8>,
    }

    fn read(text: &str) -> Option<Sample> {
        object(text.as_bytes()).ok()
    }

    #[test]
    fn arrays_nulls_and_repeated_members_are_refused() {
        assert_eq!(read(r#"{"maybe":1,"certain":null}"#), Some(Sample { maybe: Some(1), certain: None }));
        assert_eq!(read(r#"{"certain":2}"#), Some(Sample { maybe: None, certain: Some(2) }));
        for text in [
            "[1,2]",
            r#"{"maybe":null,"certain":2}"#,
            r#"{"maybe":1}"#,
            r#"{"certain":2,"certain":2}"#,
            r#"{"Certain":2}"#,
            r#"{"certain":2,"other":1}"#,
            r#"{"certain":2}{}"#,
            "\u{feff}{\"certain\":2}",
            "null",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn an_integer_is_a_literal_without_fraction() {
        let read = |text| serde_json::from_str::<Integer>(text).ok().map(|integer| integer.0);
        assert_eq!(read("18446744073709551615"), Some(i64::MAX));
        assert_eq!(read("-1"), Some(-1));
        for text in ["2.0", "2e0", "-0", "\"2\"", "true", "null", "[]"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    /// An error says what stands where something else was expected.
    #[test]
    fn a_wrong_type_is_answered_with_the_expected_one() {
        let array = object::<Sample>(b"[]").unwrap_err().to_string();
        assert!(array.contains("expected an object"), "{array}");
        let mut text = serde_json::Deserializer::from_str("7");
        let members = each_once::<_, u8>(&mut text).unwrap_err().to_string();
        assert!(members.contains("expected an object"), "{members}");
        let integer = serde_json::from_str::<Integer>("true").unwrap_err().to_string();
        assert!(integer.contains("expected an integer"), "{integer}");
        let mut text = serde_json::Deserializer::from_str("7");
        let table = Table::<u8, 2>::new(["a", "b"]).deserialize(&mut text).unwrap_err().to_string();
        assert!(table.contains("expected an object with members from a, b"), "{table}");
    }
}
