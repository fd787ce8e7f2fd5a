//! Frames as JSON text: compact, like `serde_json`, which writes the numbers.
//!
//! Strings are looked at many characters at a time and copied in one piece up to the next one that needs an escape.
//! What needs none, base64 and values that are carried unchanged, is not looked at: such a value says so by the name of
//! its newtype, which `serde_json` does not care for.

use std::fmt::{self, Write as _};
use std::io;

use serde::ser::{self, Impossible, Serialize, Serializer};

use super::reader::{BASE64, OPAQUE};
use super::scan;
use super::violation::{Reason, Violation};

/// Appends `value` as JSON text.
pub(super) fn write<T: Serialize + ?Sized>(value: &T, out: &mut impl io::Write) -> Result<(), Violation> {
    value.serialize(Writer(out)).map_err(|Unwritable(reason)| Violation::frame(reason))
}

/// The rule that a value breaks.
#[derive(Debug)]
pub(super) struct Unwritable(Reason);

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unwritable {}

impl ser::Error for Unwritable {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(Reason::stated(&message.to_string()).unwrap_or(Reason::WrongType))
    }
}

type Written = Result<(), Unwritable>;

/// Writes one value.
struct Writer<'o, W>(&'o mut W);

fn put(out: &mut impl io::Write, bytes: &[u8]) -> Written {
    out.write_all(bytes).map_err(|_| Unwritable(Reason::TooLong))
}

/// Numbers, `true`, `false` and `null`.
fn put_plain(out: &mut impl io::Write, value: &impl Serialize) -> Written {
    serde_json::to_writer(out, value).map_err(ser::Error::custom)
}

fn put_text(out: &mut impl io::Write, text: &str) -> Written {
    put(out, b"\"")?;
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(scan::plain(rest));
        put(out, plain)?;
        let Some((character, behind)) = special.split_first() else {
            return put(out, b"\"");
        };
        put_escaped(out, *character)?;
        rest = behind;
    }
}

/// A quote, a backslash or a control character.
fn put_escaped(out: &mut impl io::Write, character: u8) -> Written {
    let short = match character {
        b'"' | b'\\' => character,
        b'\x08' => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        b'\x0c' => b'f',
        b'\r' => b'r',
        _ => {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
            return put(out, &[b'\\', b'u', b'0', b'0', digit(character >> 4), digit(character & 0xf)]);
        }
    };
    put(out, &[b'\\', short])
}

macro_rules! plain {
    ($($method:ident: $type:ty),+) => { $(
        fn $method(self, value: $type) -> Written {
            put_plain(self.0, &value)
        }
    )+ };
}

/// What no frame holds.
macro_rules! never {
    ($($method:ident($($argument:ty),*) -> $answer:ty;)+) => { $(
        fn $method(self, $(_: $argument),*) -> Result<$answer, Unwritable> {
            Err(Unwritable(Reason::WrongType))
        }
    )+ };
    (enums) => {
        never! {
            serialize_char(char) -> Self::Ok;
            serialize_bytes(&[u8]) -> Self::Ok;
            serialize_unit_struct(&'static str) -> Self::Ok;
            serialize_unit_variant(&'static str, u32, &'static str) -> Self::Ok;
            serialize_tuple(usize) -> Self::SerializeTuple;
            serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
            serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
            serialize_map(Option<usize>) -> Self::SerializeMap;
            serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
        }

        fn serialize_newtype_variant<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: &T,
        ) -> Written {
            Err(Unwritable(Reason::WrongType))
        }
    };
}

impl<'o, W: io::Write> Serializer for Writer<'o, W> {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Entries<'o, W>;
    type SerializeStruct = Entries<'o, W>;
    type SerializeTuple = Impossible<(), Unwritable>;
    type SerializeTupleStruct = Impossible<(), Unwritable>;
    type SerializeTupleVariant = Impossible<(), Unwritable>;
    type SerializeMap = Impossible<(), Unwritable>;
    type SerializeStructVariant = Impossible<(), Unwritable>;

    plain!(
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_u8: u8,
        serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32, serialize_f64: f64
    );
    never!(enums);

    fn serialize_bool(self, value: bool) -> Written {
        put(self.0, if value { b"true" } else { b"false" })
    }

    fn serialize_str(self, text: &str) -> Written {
        put_text(self.0, text)
    }

    fn serialize_unit(self) -> Written {
        put(self.0, b"null")
    }

    fn serialize_none(self) -> Written {
        put(self.0, b"null")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Written {
        match name {
            OPAQUE => value.serialize(Unescaped(self.0)),
            BASE64 => {
                put(self.0, b"\"")?;
                value.serialize(Unescaped(&mut *self.0))?;
                put(self.0, b"\"")
            }
            _ => value.serialize(self),
        }
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Entries<'o, W>, Unwritable> {
        put(self.0, b"[")?;
        Ok(Entries { out: self.0, first: true })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Entries<'o, W>, Unwritable> {
        put(self.0, b"{")?;
        Ok(Entries { out: self.0, first: true })
    }
}

/// The entries of a list, or the members of an object.
struct Entries<'o, W> {
    out: &'o mut W,
    first: bool,
}

impl<W: io::Write> Entries<'_, W> {
    fn comma(&mut self) -> Written {
        if std::mem::replace(&mut self.first, false) { Ok(()) } else { put(self.out, b",") }
    }
}

impl<W: io::Write> ser::SerializeSeq for Entries<'_, W> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.comma()?;
        value.serialize(Writer(&mut *self.out))
    }

    fn end(self) -> Written {
        put(self.out, b"]")
    }
}

impl<W: io::Write> ser::SerializeStruct for Entries<'_, W> {
    type Ok = ();
    type Error = Unwritable;

    /// The names of the protocol need no escape.
    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
        put(self.out, if std::mem::replace(&mut self.first, false) { b"\"" } else { b",\"" })?;
        put(self.out, name.as_bytes())?;
        put(self.out, b"\":")?;
        value.serialize(Writer(&mut *self.out))
    }

    fn end(self) -> Written {
        put(self.out, b"}")
    }
}

/// Writes a text as it stands, from whichever shape it comes in.
struct Unescaped<'o, W>(&'o mut W);

impl<W: io::Write> fmt::Write for Unescaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_all(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

impl<W: io::Write> Serializer for Unescaped<'_, W> {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Impossible<(), Unwritable>;
    type SerializeStruct = Self;
    type SerializeTuple = Impossible<(), Unwritable>;
    type SerializeTupleStruct = Impossible<(), Unwritable>;
    type SerializeTupleVariant = Impossible<(), Unwritable>;
    type SerializeMap = Impossible<(), Unwritable>;
    type SerializeStructVariant = Impossible<(), Unwritable>;

    never!(enums);
    never! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_unit() -> ();
        serialize_none() -> ();
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
    }

    fn serialize_str(self, text: &str) -> Written {
        put(self.0, text.as_bytes())
    }

    fn collect_str<T: fmt::Display + ?Sized>(mut self, value: &T) -> Written {
        write!(self, "{value}").map_err(|_| Unwritable(Reason::TooLong))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    /// `serde_json` gives a raw value as a structure with its text as the only member.
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unwritable> {
        Ok(self)
    }
}

impl<W: io::Write> ser::SerializeStruct for Unescaped<'_, W> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Written {
        value.serialize(Unescaped(&mut *self.0))
    }

    fn end(self) -> Written {
        Ok(())
    }
}
