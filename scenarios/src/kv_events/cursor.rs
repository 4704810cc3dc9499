//! Reads msgpack values one after the other and knows where each one starts, so that an error can say where it is.

use rmp::Marker;
use rmp::decode::{Bytes, NumValueReadError, RmpRead, read_array_len, read_f32, read_f64, read_int, read_map_len};

use super::error::PayloadError;
use crate::trace::field::Fault;

/// A place in a payload.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'b> {
    bytes: Bytes<'b>,
}

impl<'b> Cursor<'b> {
    /// At the start of `bytes`.
    pub fn new(bytes: &'b [u8]) -> Cursor<'b> {
        Cursor { bytes: Bytes::new(bytes) }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.bytes.position()
    }

    /// Bytes that are left.
    pub fn left(&self) -> &'b [u8] {
        self.bytes.remaining_slice()
    }

    /// The error of the value that starts at `offset`.
    pub fn wrong(offset: u64, field: &str, found: impl Into<String>, expected: &str) -> PayloadError {
        PayloadError { offset, fault: Fault::new(field, found, expected), cut_off: false }
    }

    /// What the next value is, without reading it.
    fn marker(&self, field: &str, expected: &str) -> Result<Marker, PayloadError> {
        let first = self.left().first().ok_or_else(|| self.cut_off(field, expected))?;
        Ok(Marker::from_u8(*first))
    }

    fn cut_off(&self, field: &str, expected: &str) -> PayloadError {
        let fault = Fault::new(field, "the end of the data", expected);
        PayloadError { offset: self.offset(), fault, cut_off: true }
    }

    /// What to say of a value that is not as expected: one of the wrong kind, or one that is cut off.
    fn refused(&self, field: &str, expected: &str, fits: impl Fn(Marker) -> bool) -> PayloadError {
        match self.marker(field, expected) {
            Ok(marker) if fits(marker) => self.cut_off(field, expected),
            Ok(marker) => Self::wrong(self.offset(), field, kind(marker), expected),
            Err(error) => error,
        }
    }

    /// The length of an array.
    ///
    /// # Errors
    /// Anything else.
    pub fn array(&mut self, field: &str) -> Result<u32, PayloadError> {
        let before = *self;
        read_array_len(&mut self.bytes).map_err(|_| {
            let fits = |marker| matches!(marker, Marker::FixArray(_) | Marker::Array16 | Marker::Array32);
            before.refused(field, "an array", fits)
        })
    }

    /// Whether the next value is an array; `expected` says what it may be.
    ///
    /// # Errors
    /// The end of the data.
    pub fn is_array(&self, field: &str, expected: &str) -> Result<bool, PayloadError> {
        let marker = self.marker(field, expected)?;
        Ok(matches!(marker, Marker::FixArray(_) | Marker::Array16 | Marker::Array32))
    }

    /// The number of keys of a map; `expected` says what else the value might have been.
    ///
    /// # Errors
    /// Anything else.
    pub fn map(&mut self, field: &str, expected: &str) -> Result<u32, PayloadError> {
        let before = *self;
        read_map_len(&mut self.bytes).map_err(|_| {
            let fits = |marker| matches!(marker, Marker::FixMap(_) | Marker::Map16 | Marker::Map32);
            before.refused(field, expected, fits)
        })
    }

    /// A whole number; `expected` names its bounds.
    ///
    /// # Errors
    /// Anything else, or a number that `T` cannot hold.
    pub fn whole<T: TryFrom<i128>>(&mut self, field: &str, expected: &str) -> Result<T, PayloadError> {
        let before = *self;
        let number = if before.marker(field, expected)? == Marker::U64 {
            read_int::<u64, _>(&mut self.bytes).map(i128::from)
        } else {
            read_int::<i64, _>(&mut self.bytes).map(i128::from)
        };
        let number = number.map_err(|error| match error {
            NumValueReadError::TypeMismatch(_) => before.refused(field, expected, |_| false),
            _ => before.refused(field, expected, |_| true),
        })?;
        T::try_from(number).map_err(|_| Self::wrong(before.offset(), field, number.to_string(), expected))
    }

    /// A number, whole or not.
    ///
    /// # Errors
    /// Anything else.
    pub fn number(&mut self, field: &str) -> Result<f64, PayloadError> {
        const EXPECTED: &str = "a number";
        let before = *self;
        match before.marker(field, EXPECTED)? {
            Marker::F64 => read_f64(&mut self.bytes).map_err(|_| before.cut_off(field, EXPECTED)),
            Marker::F32 => read_f32(&mut self.bytes).map(f64::from).map_err(|_| before.cut_off(field, EXPECTED)),
            _ => self.whole::<i64>(field, EXPECTED).map(|number| number as f64),
        }
    }

    /// Whether a nil comes next; if so, it is read.
    ///
    /// # Errors
    /// The end of the data.
    pub fn nil(&mut self, field: &str) -> Result<bool, PayloadError> {
        let is_nil = self.marker(field, "a value or nil")? == Marker::Null;
        if is_nil {
            self.skip(1);
        }
        Ok(is_nil)
    }

    fn skip(&mut self, bytes: usize) {
        for _ in 0..bytes {
            let read = self.bytes.read_u8();
            debug_assert!(read.is_ok(), "the caller has looked at these bytes");
        }
    }

    /// A text.
    ///
    /// # Errors
    /// Anything else, or bytes that are no UTF-8.
    pub fn text(&mut self, field: &str) -> Result<&'b str, PayloadError> {
        const EXPECTED: &str = "a string";
        let before = *self;
        let len = rmp::decode::read_str_len(&mut self.bytes).map_err(|_| {
            let fits = |marker| matches!(marker, Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32);
            before.refused(field, EXPECTED, fits)
        })? as usize;
        let bytes = self.left().get(..len).ok_or_else(|| before.cut_off(field, EXPECTED))?;
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Self::wrong(before.offset(), field, "bytes that are no UTF-8", EXPECTED))?;
        self.skip(len);
        Ok(text)
    }
}

/// A kind of value, for people.
fn kind(marker: Marker) -> &'static str {
    match marker {
        Marker::Null => "nil",
        Marker::True | Marker::False => "a boolean",
        Marker::F32 | Marker::F64 => "a floating-point number",
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => "a string",
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => "bytes",
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => "an array",
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => "a map",
        Marker::FixPos(_)
        | Marker::FixNeg(_)
        | Marker::U8
        | Marker::U16
        | Marker::U32
        | Marker::U64
        | Marker::I8
        | Marker::I16
        | Marker::I32
        | Marker::I64 => "a whole number",
        _ => "an extension value",
    }
}
