//! The fast road for a frame that is right.
//!
//! A [`Reader`] drives the same structures as `serde_json` does, in one pass, and takes nothing that `serde_json` would
//! not take. It never says why it refuses: `serde_json` reads a refused frame again and has the last word, so every
//! verdict is its verdict. What it saves is the work on long strings (their end is found and their characters are
//! checked many at a time) and the text of base64, which its decoder checks by itself.
//!
//! Whatever is rare is left to `serde_json` here too: escapes in strings, opaque values.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::envelope::Whole;
use super::scan;

/// A newtype of this name is a JSON value that is carried unchanged: the visitor gets its text.
pub(super) const OPAQUE: &str = "palisade: opaque";
/// A newtype of this name is base64 or `null`: the visitor gets the characters as bytes, or none.
pub(super) const BASE64: &str = "palisade: base64";
/// A newtype of this name is a number: the visitor gets the nearest double.
pub(super) const NUMBER: &str = "palisade: number";

/// How many entries a list has room for at first. Most lists of the protocol hold at most eight.
const LIST_ROOM: usize = 8;

/// The bytes of a message, and what makes texts of them.
pub(super) trait Source<'a>: Copy {
    /// All of them.
    fn bytes(self) -> &'a [u8];
    /// A part of them, unless it is no UTF-8.
    fn text(self, from: usize, to: usize) -> Option<&'a str>;
}

/// Bytes that nobody has checked yet.
impl<'a> Source<'a> for &'a [u8] {
    fn bytes(self) -> &'a [u8] {
        self
    }

    fn text(self, from: usize, to: usize) -> Option<&'a str> {
        std::str::from_utf8(self.get(from..to)?).ok()
    }
}

impl<'a> Source<'a> for &'a str {
    fn bytes(self) -> &'a [u8] {
        self.as_bytes()
    }

    fn text(self, from: usize, to: usize) -> Option<&'a str> {
        self.get(from..to)
    }
}

/// The frame is not read here; `serde_json` says why, or reads it.
#[derive(Debug)]
pub(super) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not read on the fast road")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }

    fn invalid_type(_: de::Unexpected<'_>, _: &dyn de::Expected) -> Self {
        Self
    }

    fn invalid_value(_: de::Unexpected<'_>, _: &dyn de::Expected) -> Self {
        Self
    }

    fn invalid_length(_: usize, _: &dyn de::Expected) -> Self {
        Self
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self
    }

    fn missing_field(_: &'static str) -> Self {
        Self
    }

    fn duplicate_field(_: &'static str) -> Self {
        Self
    }
}

type Read<T> = Result<T, Refused>;

/// Reads one JSON text.
pub(super) struct Reader<'a, S> {
    source: S,
    bytes: &'a [u8],
    at: usize,
}

/// A message that is read on the fast road.
#[derive(Clone, Copy)]
pub(super) struct Fast<S>(pub(super) S);

impl<'a, S: Source<'a>> Whole<'a> for Fast<S> {
    type Error = Refused;

    fn whole<T: Deserialize<'a>>(self) -> Read<T> {
        let mut reader = Reader { source: self.0, bytes: self.0.bytes(), at: 0 };
        let value = T::deserialize(&mut reader)?;
        match reader.peek() {
            None => Ok(value),
            Some(_) => Err(Refused),
        }
    }
}

impl<'a, S: Source<'a>> Reader<'a, S> {
    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Takes the next byte that is no white space, which has to be this one.
    fn take(&mut self, byte: u8) -> Read<()> {
        if self.peek() != Some(byte) {
            return Err(Refused);
        }
        self.at += 1;
        Ok(())
    }

    /// Takes `word`, when it stands here.
    fn takes(&mut self, word: &[u8]) -> bool {
        let stands = self.bytes[self.at..].starts_with(word);
        if stands {
            self.at += word.len();
        }
        stands
    }

    /// The characters up to the next quote; none of them matters to JSON if they are known to the caller.
    fn quoted(&mut self) -> Read<&'a [u8]> {
        self.take(b'"')?;
        let rest = &self.bytes[self.at..];
        let length = scan::quote(rest).ok_or(Refused)?;
        self.at += length + 1;
        Ok(&rest[..length])
    }

    fn string<V: Visitor<'a>>(&mut self, visitor: V) -> Read<V::Value> {
        self.take(b'"')?;
        let start = self.at;
        let end = start + scan::plain(&self.bytes[start..]);
        match self.bytes.get(end) {
            Some(b'"') => {
                self.at = end + 1;
                visitor.visit_borrowed_str(self.source.text(start, end).ok_or(Refused)?)
            }
            Some(b'\\') => self.escaped(start, end, visitor),
            Some(_) | None => Err(Refused),
        }
    }

    /// A string with an escape: the first one is at `escape`.
    #[cold]
    fn escaped<V: Visitor<'a>>(&mut self, start: usize, mut escape: usize, visitor: V) -> Read<V::Value> {
        let end = loop {
            // The escaped character itself is skipped: it may be a quote.
            let rest = self.bytes.get(escape + 2..).ok_or(Refused)?;
            let next = escape + 2 + memchr::memchr2(b'"', b'\\', rest).ok_or(Refused)?;
            match self.bytes[next] {
                b'"' => break next,
                _ => escape = next,
            }
        };
        self.at = end + 1;
        visitor.visit_string(serde_json::from_slice(&self.bytes[start - 1..=end]).map_err(|_| Refused)?)
    }

    /// Digits without a leading zero, and nothing behind them that would make the number another one.
    fn digits(&mut self) -> Read<u64> {
        let start = self.at;
        let mut value = 0_u64;
        let end = loop {
            match self.bytes.get(self.at) {
                Some(digit @ b'0'..=b'9') => {
                    let more = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
                    value = more.ok_or(Refused)?;
                    self.at += 1;
                }
                end => break end,
            }
        };
        let length = self.at - start;
        if length == 0 || length > 1 && self.bytes[start] == b'0' || matches!(end, Some(b'.' | b'e' | b'E')) {
            return Err(Refused);
        }
        Ok(value)
    }

    fn integer<V: Visitor<'a>>(&mut self, visitor: V) -> Read<V::Value> {
        if self.peek() != Some(b'-') {
            return visitor.visit_u64(self.digits()?);
        }
        self.at += 1;
        match 0_i64.checked_sub_unsigned(self.digits()?) {
            Some(negative) if negative < 0 => visitor.visit_i64(negative),
            Some(_) | None => Err(Refused),
        }
    }

    fn number<V: Visitor<'a>>(&mut self, visitor: V) -> Read<V::Value> {
        self.peek();
        let rest = &self.bytes[self.at..];
        let length = scan::number(rest).ok_or(Refused)?;
        let literal = self.source.text(self.at, self.at + length).ok_or(Refused)?;
        self.at += length;
        match literal.parse() {
            Ok(value) if f64::is_finite(value) => visitor.visit_f64(value),
            Ok(_) | Err(_) => Err(Refused),
        }
    }

    fn opaque<V: Visitor<'a>>(&mut self, visitor: V) -> Read<V::Value> {
        self.peek();
        let mut values = serde_json::Deserializer::from_slice(&self.bytes[self.at..]).into_iter::<&RawValue>();
        let value = values.next().ok_or(Refused)?.map_err(|_| Refused)?;
        self.at += values.byte_offset();
        visitor.visit_borrowed_str(value.get())
    }

    fn base64<V: Visitor<'a>>(&mut self, visitor: V) -> Read<V::Value> {
        if self.peek() == Some(b'n') {
            return if self.takes(b"null") { visitor.visit_none() } else { Err(Refused) };
        }
        visitor.visit_borrowed_bytes(self.quoted()?)
    }

    /// Whether another entry of a list or object follows, which ends with `end`.
    fn follows(&mut self, first: &mut bool, end: u8) -> Read<bool> {
        match self.peek() {
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') if !*first => {
                self.at += 1;
                Ok(true)
            }
            Some(_) if std::mem::replace(first, false) => Ok(true),
            Some(_) | None => Err(Refused),
        }
    }
}

impl<'a, S: Source<'a>> Deserializer<'a> for &mut Reader<'a, S> {
    type Error = Refused;

    fn deserialize_any<V: Visitor<'a>>(self, _: V) -> Read<V::Value> {
        Err(Refused)
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.peek();
        if self.takes(b"true") {
            visitor.visit_bool(true)
        } else if self.takes(b"false") {
            visitor.visit_bool(false)
        } else {
            Err(Refused)
        }
    }

    fn deserialize_u32<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.integer(visitor)
    }

    fn deserialize_u64<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.integer(visitor)
    }

    fn deserialize_i64<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.integer(visitor)
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.string(visitor)
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.string(visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        if self.peek() == Some(b'n') {
            return if self.takes(b"null") { visitor.visit_none() } else { Err(Refused) };
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, name: &'static str, visitor: V) -> Read<V::Value> {
        match name {
            OPAQUE => self.opaque(visitor),
            BASE64 => self.base64(visitor),
            NUMBER => self.number(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.take(b'[')?;
        visitor.visit_seq(Entries { reader: self, first: true })
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.take(b'{')?;
        visitor.visit_map(Entries { reader: self, first: true })
    }

    /// Only `type` is ignored, whose text is known already.
    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Read<V::Value> {
        self.string(visitor)
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'a>>
        i8 i16 i32 i128 u8 u16 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct struct enum
        identifier
    }
}

/// The entries of a list, or the members of an object.
struct Entries<'r, 'a, S> {
    reader: &'r mut Reader<'a, S>,
    first: bool,
}

impl<'a, S: Source<'a>> SeqAccess<'a> for Entries<'_, 'a, S> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Read<Option<T::Value>> {
        if !self.reader.follows(&mut self.first, b']')? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(LIST_ROOM)
    }
}

impl<'a, S: Source<'a>> MapAccess<'a> for Entries<'_, 'a, S> {
    type Error = Refused;

    /// A name is compared with the known ones as it stands; an escaped one is read by `serde_json`.
    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Read<Option<K::Value>> {
        if !self.reader.follows(&mut self.first, b'}')? {
            return Ok(None);
        }
        let name = self.reader.quoted()?;
        seed.deserialize(de::value::BorrowedBytesDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Read<V::Value> {
        self.reader.take(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}
