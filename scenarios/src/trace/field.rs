//! One value of a row: taken as it stands, checked later, so that an error can name the field and what it holds.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use crate::workload::InputError;

/// The longest time that a trace may hold, in nanoseconds (about 126 years).
pub const LONGEST_NS: u64 = 4_000_000_000_000_000_000;
/// The longest prompt or output that a trace may hold, in tokens.
pub const LONGEST_TOKENS: u64 = 1 << 30;

/// What is wrong with a field; the reader adds file and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field, dotted where it is nested.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

impl Fault {
    /// A fault of `field`.
    pub fn new(field: &str, found: impl Into<String>, expected: impl Into<String>) -> Fault {
        Fault { field: field.to_owned(), found: found.into(), expected: expected.into() }
    }

    /// The same fault inside the element `outer`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Fault {
        self.field = format!("{outer}.{}", self.field);
        self
    }

    /// The fault at a place in a file.
    pub fn at(self, file: &str, line: u64) -> InputError {
        InputError { file: file.to_owned(), line, field: self.field, found: self.found, expected: self.expected }
    }

    /// A row that is no valid JSON, or is cut off.
    pub fn json(error: &serde_json::Error, row: &[u8]) -> Fault {
        let found = if error.is_eof() {
            format!("a row cut off after {} bytes", row.len())
        } else {
            error.to_string().replace(" at line 1 column", " at column")
        };
        Fault::new("row", found, "one JSON object a line")
    }
}

/// Reads a row that is one JSON object.
///
/// # Errors
/// Any other row. A list is refused here, since it could be taken for the fields in their order.
pub fn object<'a, T: Deserialize<'a>>(row: &'a [u8]) -> Result<T, Fault> {
    match row.trim_ascii_start().first() {
        Some(b'[') => Err(Fault::new("row", "a list", "one JSON object a line")),
        // Text is checked once, not string by string. What is not UTF-8 fails at the string in which that stands.
        _ => match str::from_utf8(row) {
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(row),
        }
        .map_err(|error| Fault::json(&error, row)),
    }
}

/// A JSON value that may be anything; lists and objects are only named.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Scalar<'a> {
    /// The field is not there.
    #[default]
    Missing,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// `a list` or `an object`.
    Other(&'static str),
}

impl fmt::Display for Scalar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Missing => f.write_str("nothing"),
            Scalar::Null => f.write_str("null"),
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value}"),
            Scalar::Text(value) => write!(f, "\"{value}\""),
            Scalar::Other(what) => f.write_str(what),
        }
    }
}

impl Scalar<'_> {
    /// Whether the field is absent or `null`.
    pub fn is_absent(&self) -> bool {
        matches!(self, Scalar::Missing | Scalar::Null)
    }

    /// The value if it is a whole number, at least 0; `1.0` counts as 1.
    pub fn whole(&self) -> Option<u64> {
        match *self {
            Scalar::Int(value) => u64::try_from(value).ok(),
            Scalar::Float(value) if value.fract() == 0.0 && (0.0..9e15).contains(&value) => Some(value as u64),
            _ => None,
        }
    }

    /// The value as a whole number in `range`; `1.0` counts as 1.
    ///
    /// # Errors
    /// Any other value.
    pub fn integer(&self, field: &str, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        self.whole().filter(|value| range.contains(value)).ok_or_else(|| {
            Fault::new(field, self.to_string(), format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// The value as a number of tokens from `least` to [`LONGEST_TOKENS`].
    ///
    /// # Errors
    /// Any other value.
    pub fn tokens(&self, field: &str, least: u32) -> Result<u32, Fault> {
        self.integer(field, u64::from(least)..=LONGEST_TOKENS).map(|tokens| tokens as u32)
    }

    /// The value, a time in units of `unit_ns`, in nanoseconds rounded to the nearest.
    ///
    /// # Errors
    /// No number, one below 0, or a time past [`LONGEST_NS`].
    pub fn time_ns(&self, field: &str, unit_ns: u64) -> Result<u64, Fault> {
        let time_ns = match *self {
            Scalar::Int(value) => u64::try_from(value).ok().and_then(|value| value.checked_mul(unit_ns)),
            Scalar::Float(value) if value >= 0.0 => Some((value * unit_ns as f64).round() as u64),
            _ => None,
        };
        time_ns.filter(|time_ns| *time_ns <= LONGEST_NS).ok_or_else(|| {
            let unit = if unit_ns == 1_000_000 { "milliseconds" } else { "seconds" };
            Fault::new(field, self.to_string(), format!("{unit}, at least 0"))
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(PhantomData))
    }
}

struct ScalarVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for ScalarVisitor<'a> {
    type Value = Scalar<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Int(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Int(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Float(value))
    }

    fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Scalar<'a>, E> {
        Ok(Scalar::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar<'a>, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Scalar<'a>, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other("an object"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(json: &str) -> Scalar<'_> {
        serde_json::from_str(json).expect("valid JSON")
    }

    #[test]
    fn whole_numbers_are_taken_and_all_else_is_named() {
        assert_eq!(scalar("7").integer("n", 1..=9), Ok(7));
        assert_eq!(scalar("7.0").integer("n", 1..=9), Ok(7));
        for (json, found) in [("0", "0"), ("-3", "-3"), ("1.5", "1.5"), ("\"7\"", "\"7\""), ("[1]", "a list")] {
            let fault = scalar(json).integer("n", 1..=9).expect_err(json);
            assert_eq!((fault.field.as_str(), fault.found.as_str()), ("n", found));
        }
    }

    #[test]
    fn times_round_to_the_nearest_nanosecond() {
        assert_eq!(scalar("134.227").time_ns("t", 1_000_000_000), Ok(134_227_000_000));
        assert_eq!(scalar("3").time_ns("t", 1_000_000), Ok(3_000_000));
        for json in ["-1", "-0.5", "null", "1e30", "9223372036854775808"] {
            assert!(scalar(json).time_ns("t", 1_000_000).is_err(), "{json}");
        }
    }
}
