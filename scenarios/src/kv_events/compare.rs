//! Compares two streams batch by batch: their counts, and the first difference. Times, sequence numbers, ranks and removal
//! reasons may differ, since a recorded stream has those of its own run. A medium or token ids that only one stream has are no
//! difference either: the older form has no medium, and token ids need not be emitted.

use serde::Serialize;

use super::batch::{BlockStored, KvEvent, KvEventBatch};
use super::error::KvEventError;
use super::info::{InfoTally, StreamInfo};
use super::reader::EventReader;

/// Where two streams differ first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The batch, from 0, by its place in the stream.
    pub batch: u64,
    /// The event in it, from 0; none if the batches differ as a whole.
    pub event: Option<u64>,
    /// The field.
    pub field: String,
    /// What the first stream has.
    pub left: String,
    /// What the second stream has.
    pub right: String,
}

/// What a comparison came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whether the streams are equal, as far as both could be read.
    pub equal: bool,
    /// Where they differ first.
    pub difference: Option<Difference>,
    /// What the first stream holds.
    pub left: StreamInfo,
    /// What the second stream holds.
    pub right: StreamInfo,
}

/// Compares two streams to their ends. What could be read of a stream that is broken off is compared, and the error handed
/// out beside.
pub fn compare(left: &mut EventReader, right: &mut EventReader) -> (Comparison, Vec<KvEventError>) {
    let (mut left_tally, mut right_tally) = (InfoTally::default(), InfoTally::default());
    let mut errors = Vec::new();
    let mut difference = None;
    let mut batch = 0;
    loop {
        let a = left.next_batch().unwrap_or_else(|error| broken_off(&mut errors, error));
        let b = right.next_batch().unwrap_or_else(|error| broken_off(&mut errors, error));
        a.into_iter().for_each(|sent| left_tally.add(sent));
        b.into_iter().for_each(|sent| right_tally.add(sent));
        if difference.is_none() {
            difference = match (a, b) {
                (Some(a), Some(b)) => first_difference(batch, &a.batch, &b.batch),
                (None, None) => None,
                // A stream that could not be read on is no shorter one.
                _ if !errors.is_empty() => None,
                (a, b) => {
                    let text = |there: bool| if there { "a batch" } else { "the end" }.to_owned();
                    let (left, right) = (text(a.is_some()), text(b.is_some()));
                    Some(Difference { batch, event: None, field: "stream".into(), left, right })
                }
            };
        }
        if (a.is_none() && b.is_none()) || !errors.is_empty() {
            break;
        }
        batch += 1;
    }
    let equal = difference.is_none() && errors.is_empty();
    (Comparison { equal, difference, left: left_tally.info(None), right: right_tally.info(None) }, errors)
}

fn broken_off<T>(errors: &mut Vec<KvEventError>, error: KvEventError) -> Option<T> {
    errors.push(error);
    None
}

/// The first difference of two batches at the same place.
fn first_difference(batch: u64, left: &KvEventBatch, right: &KvEventBatch) -> Option<Difference> {
    for (index, (a, b)) in left.events.iter().zip(&right.events).enumerate() {
        if let Some((field, left, right)) = event_difference(a, b) {
            return Some(Difference { batch, event: Some(index as u64), field, left, right });
        }
    }
    let (left, right) = (left.events.len(), right.events.len());
    let difference =
        Difference { batch, event: None, field: "events".into(), left: left.to_string(), right: right.to_string() };
    (left != right).then_some(difference)
}

/// A field with what each side has there.
type FieldDifference = (String, String, String);

fn event_difference(left: &KvEvent, right: &KvEvent) -> Option<FieldDifference> {
    match (left, right) {
        (KvEvent::AllBlocksCleared, KvEvent::AllBlocksCleared) => None,
        (KvEvent::BlockRemoved(a), KvEvent::BlockRemoved(b)) => list("block_hashes", &a.block_hashes, &b.block_hashes)
            .or_else(|| where_both("medium", &a.medium, &b.medium)),
        (KvEvent::BlockStored(a), KvEvent::BlockStored(b)) => stored_difference(a, b),
        (a, b) => value("type", &a.type_name(), &b.type_name()),
    }
}

fn stored_difference(a: &BlockStored, b: &BlockStored) -> Option<FieldDifference> {
    let with_tokens = !a.token_ids.is_empty() && !b.token_ids.is_empty();
    value("parent_block_hash", &a.parent_block_hash, &b.parent_block_hash)
        .or_else(|| list("block_hashes", &a.block_hashes, &b.block_hashes))
        .or_else(|| value("block_size", &a.block_size, &b.block_size))
        .or_else(|| if with_tokens { list("token_ids", &a.token_ids, &b.token_ids) } else { None })
        .or_else(|| value("lora_id", &a.lora_id, &b.lora_id))
        .or_else(|| where_both("medium", &a.medium, &b.medium))
        .or_else(|| value("cache_salt", &a.cache_salt, &b.cache_salt))
        .or_else(|| value("session_id", &a.session_id, &b.session_id))
}

fn value<T: PartialEq + Serialize>(field: &str, left: &T, right: &T) -> Option<FieldDifference> {
    // What these fields hold can always be put in JSON, which reads as a person writes it.
    let text = |value: &T| serde_json::to_string(value).unwrap_or_default();
    (left != right).then(|| (field.to_owned(), text(left), text(right)))
}

fn where_both<T: PartialEq + Serialize>(field: &str, left: &Option<T>, right: &Option<T>) -> Option<FieldDifference> {
    value(field, left.as_ref()?, right.as_ref()?)
}

fn list<T: PartialEq + ToString>(field: &str, left: &[T], right: &[T]) -> Option<FieldDifference> {
    let at = left.iter().zip(right).position(|(a, b)| a != b);
    if at.is_none() && left.len() == right.len() {
        return None;
    }
    let at = at.unwrap_or(left.len().min(right.len()));
    let text = |values: &[T]| values.get(at).map_or("the end".to_owned(), T::to_string);
    Some((format!("{field}[{at}]"), text(left), text(right)))
}
