//! Lists of block ids as runs: `[5, 6, 7, 9]` and `[[5, 3], [9, 1]]` are the same four blocks.

use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::field::{Fault, Scalar};

/// `count` consecutive block ids from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The first block id.
    pub first: u32,
    /// How many blocks, at least 1.
    pub count: u32,
}

/// A list of block ids as it stands in a row, neighbours joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashIds {
    /// The blocks in order, up to the first that cannot be used.
    pub runs: Vec<BlockRun>,
    /// How many blocks the runs hold.
    pub blocks: u64,
    /// The first element that is no block id, as found.
    pub bad: Option<String>,
    /// Whether the field was there as a list.
    pub present: bool,
}

impl HashIds {
    fn push(&mut self, first: u64, count: u64) {
        let end = first.checked_add(count).filter(|end| *end <= 1 << 32);
        if count == 0 || end.is_none() {
            let found = if count == 1 { first.to_string() } else { format!("[{first}, {count}]") };
            self.bad.get_or_insert(found);
            return;
        }
        self.blocks += count;
        match self.runs.last_mut() {
            Some(last) if u64::from(last.first) + u64::from(last.count) == first => last.count += count as u32,
            _ => self.runs.push(BlockRun { first: first as u32, count: count as u32 }),
        }
    }

    /// The runs, if there are exactly `blocks` blocks and every id's tokens end at or below `most_tokens`.
    ///
    /// # Errors
    /// No list, an element that is no id, an id too large, or more or fewer ids than `blocks`.
    pub fn checked(
        self,
        input_tokens: u32,
        blocks: u64,
        block_size: u32,
        most_tokens: u64,
    ) -> Result<Box<[BlockRun]>, Fault> {
        let ids = "hash_ids";
        let largest = most_tokens / u64::from(block_size) - 1;
        let bound = || format!("block ids from 0 to {largest}, plain or as runs [first, count]");
        if !self.present {
            return Err(Fault::new(ids, "nothing", bound()));
        }
        if let Some(bad) = self.bad {
            return Err(Fault::new(ids, bad, bound()));
        }
        if let Some(run) = self.runs.iter().find(|run| u64::from(run.first) + u64::from(run.count) - 1 > largest) {
            let id = u64::from(run.first) + u64::from(run.count) - 1;
            return Err(Fault::new(ids, id.to_string(), bound()));
        }
        if self.blocks != blocks {
            let expected = format!("{blocks} for {input_tokens} input tokens in blocks of {block_size}");
            return Err(Fault::new(ids, format!("{} ids", self.blocks), expected));
        }
        Ok(self.runs.into_boxed_slice())
    }
}

impl<'de> Deserialize<'de> for HashIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdsVisitor)
    }
}

/// A value that stands where a list should.
fn no_list(found: String) -> HashIds {
    HashIds { bad: Some(found), present: true, ..HashIds::default() }
}

struct IdsVisitor;

impl<'de> Visitor<'de> for IdsVisitor {
    type Value = HashIds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of block ids")
    }

    fn visit_unit<E: de::Error>(self) -> Result<HashIds, E> {
        Ok(HashIds::default())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<HashIds, E> {
        Ok(no_list(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<HashIds, E> {
        Ok(no_list(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<HashIds, E> {
        Ok(no_list(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<HashIds, E> {
        Ok(no_list(value.to_string()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<HashIds, E> {
        Ok(no_list(format!("\"{text}\"")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<HashIds, A::Error> {
        let mut ids = HashIds { present: true, ..HashIds::default() };
        while let Some(element) = list.next_element::<Element>()? {
            match element {
                Element::Id(id) => ids.push(id, 1),
                Element::Run(first, count) => ids.push(first, count),
                Element::Bad(found) => {
                    ids.bad.get_or_insert(found);
                }
            }
        }
        Ok(ids)
    }
}

/// One element of the list.
enum Element {
    Id(u64),
    Run(u64, u64),
    Bad(String),
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block id or a run of them")
    }

    fn visit_u64<E: de::Error>(self, id: u64) -> Result<Element, E> {
        Ok(Element::Id(id))
    }

    fn visit_i64<E: de::Error>(self, id: i64) -> Result<Element, E> {
        Ok(Element::Bad(id.to_string()))
    }

    fn visit_f64<E: de::Error>(self, id: f64) -> Result<Element, E> {
        Ok(Element::Bad(id.to_string()))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Element, E> {
        Ok(Element::Bad(format!("\"{text}\"")))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Element, E> {
        Ok(Element::Bad(value.to_string()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Element, E> {
        Ok(Element::Bad("null".into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element, A::Error> {
        let mut parts = [Scalar::Missing, Scalar::Missing];
        let mut count = 0;
        while let Some(part) = list.next_element::<Scalar<'de>>()? {
            if let Some(slot) = parts.get_mut(count) {
                *slot = part;
            }
            count += 1;
        }
        match &parts {
            [Scalar::Int(first), Scalar::Int(blocks)] if count == 2 && *first >= 0 && *blocks >= 0 => {
                Ok(Element::Run(*first as u64, *blocks as u64))
            }
            _ if count == 2 => Ok(Element::Bad(format!("[{}, {}]", parts[0], parts[1]))),
            _ => Ok(Element::Bad(format!("a list of {count}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(json: &str) -> HashIds {
        serde_json::from_str(json).expect("valid JSON")
    }

    #[test]
    fn plain_ids_and_runs_are_the_same() {
        assert_eq!(ids("[5,6,7,9]"), ids("[[5,3],[9,1]]"));
        assert_eq!(ids("[5,6,[7,2],20]").runs, [BlockRun { first: 5, count: 4 }, BlockRun { first: 20, count: 1 }]);
    }

    #[test]
    fn what_is_no_id_is_found() {
        let cases = [
            ("[1,9223372036854775808]", "9223372036854775808"),
            ("[1,-2]", "-2"),
            ("[[1,0]]", "[1, 0]"),
            ("[[1,-1]]", "[1, -1]"),
            ("[[1,2,3]]", "a list of 3"),
            ("[\"x\"]", "\"x\""),
        ];
        for (json, found) in cases {
            let fault = ids(json).checked(64, 1, 64, 1 << 31).expect_err(json);
            assert_eq!((fault.field.as_str(), fault.found.as_str()), ("hash_ids", found));
        }
    }

    #[test]
    fn the_number_of_ids_must_fit_the_input_length() {
        for json in ["[1]", "[1,2,3]"] {
            let fault = ids(json).checked(128, 2, 64, 1 << 31).expect_err(json);
            assert_eq!(fault.expected, "2 for 128 input tokens in blocks of 64");
        }
        assert_eq!(ids("[33554431]").checked(64, 1, 64, 1 << 31).expect("the largest id").len(), 1);
        assert!(ids("[33554432]").checked(64, 1, 64, 1 << 31).is_err());
        assert!(ids("null").checked(0, 0, 64, 1 << 31).is_err());
    }
}
