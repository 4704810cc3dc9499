//! Decodes a msgpack payload into a batch. Takes both forms that are about: events as maps of `type` and fields (SGLang
//! v0.5.21), and the older one, events as arrays of the type's name and the fields by position; batches with and without
//! `attn_dp_rank`. An unknown field, a field that is there twice or missing, and a value of the wrong type are errors.

use super::batch::{BlockRemoved, BlockStored, KvEvent, KvEventBatch, Medium};
use super::cursor::Cursor;
use super::error::PayloadError;

const HASH: &str = "a 64-bit signed integer";
const TOKEN: &str = "a token id from 0 to 4294967295";
const EVENT: &str = "a map or an array";
const TYPES: &str = "BlockStored, BlockRemoved or AllBlocksCleared";
const STORED_FIELDS: [&str; 8] =
    ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "cache_salt", "session_id"];
/// Fields of [`STORED_FIELDS`] without a default: those must be there.
const STORED_REQUIRED: usize = 5;
const REMOVED_FIELDS: [&str; 2] = ["block_hashes", "medium"];
const REMOVED_REQUIRED: usize = 1;

/// Decodes the payload at the start of `bytes` into `batch`, and says how many bytes it has.
///
/// # Errors
/// The first value that is wrong; what `batch` then holds is of no use.
pub fn decode(bytes: &[u8], batch: &mut KvEventBatch) -> Result<usize, PayloadError> {
    let mut cursor = Cursor::new(bytes);
    let start = cursor.offset();
    let fields = cursor.array("batch")?;
    if !(2..=3).contains(&fields) {
        let found = format!("an array of {fields} values");
        return Err(Cursor::wrong(start, "batch", found, "[ts, events] or [ts, events, attn_dp_rank]"));
    }
    batch.ts_ns = time(&mut cursor)?;
    batch.events.clear();
    for index in 0..cursor.array("events")? {
        let event = event(&mut cursor).map_err(|error| inside(error, index))?;
        batch.events.push(event);
    }
    batch.attn_dp_rank = None;
    if fields == 3 && !cursor.nil("attn_dp_rank")? {
        batch.attn_dp_rank = Some(cursor.whole("attn_dp_rank", "a whole number from 0 to 4294967295, or nil")?);
    }
    Ok(cursor.offset() as usize)
}

/// Decodes a payload that has nothing behind it.
///
/// # Errors
/// As [`decode`], or bytes that are left over.
pub fn decode_whole(bytes: &[u8], batch: &mut KvEventBatch) -> Result<(), PayloadError> {
    let end = decode(bytes, batch)?;
    if end < bytes.len() {
        let found = format!("{} bytes more", bytes.len() - end);
        return Err(Cursor::wrong(end as u64, "payload", found, "the end of the payload"));
    }
    Ok(())
}

fn inside(mut error: PayloadError, index: u32) -> PayloadError {
    error.fault.field = format!("events[{index}].{}", error.fault.field);
    error
}

fn time(cursor: &mut Cursor) -> Result<u64, PayloadError> {
    let start = cursor.offset();
    let seconds = cursor.number("ts")?;
    let ts_ns = (seconds * 1e9).round();
    // 2^63 ns are about 292 years; a larger value of the cast would be cut.
    if !(0.0..9.2e18).contains(&ts_ns) {
        return Err(Cursor::wrong(start, "ts", format!("{seconds}"), "seconds from 0 to 9.2e9"));
    }
    Ok(ts_ns as u64)
}

fn event(cursor: &mut Cursor) -> Result<KvEvent, PayloadError> {
    if cursor.is_array("event", EVENT)? { event_of_array(cursor) } else { event_of_map(cursor) }
}

/// The older form: the type's name and then its fields by position.
fn event_of_array(cursor: &mut Cursor) -> Result<KvEvent, PayloadError> {
    let start = cursor.offset();
    let values = cursor.array("event")? as usize;
    if values == 0 {
        return Err(Cursor::wrong(start, "event", "an empty array", "an array that starts with the type"));
    }
    let mut event = empty_event(cursor)?;
    let (fields, required) = fields_of(&event);
    if !(required..=fields.len()).contains(&(values - 1)) {
        let found = format!("{} fields of {}", values - 1, event.type_name());
        let expected = format!("{required} to {}", fields.len());
        return Err(Cursor::wrong(start, "event", found, &expected));
    }
    for field in &fields[..values - 1] {
        read_field(cursor, &mut event, field)?;
    }
    check_tokens(start, &event)?;
    Ok(event)
}

/// A map whose first key is `type`, as msgspec writes it and all readers of unions want it.
fn event_of_map(cursor: &mut Cursor) -> Result<KvEvent, PayloadError> {
    let start = cursor.offset();
    let keys = cursor.map("event", EVENT)?;
    let at_key = cursor.offset();
    let first = if keys == 0 { "nothing" } else { cursor.text("type")? };
    if first != "type" {
        return Err(Cursor::wrong(at_key, "event", format!("`{first}`"), "`type` as the first key"));
    }
    let mut event = empty_event(cursor)?;
    let (fields, required) = fields_of(&event);
    let mut seen = [false; STORED_FIELDS.len()];
    for _ in 1..keys {
        let at_key = cursor.offset();
        let name = cursor.text("key")?;
        let Some(index) = fields.iter().position(|field| *field == name) else {
            let expected = if fields.is_empty() { "no other field".to_owned() } else { fields.join(", ") };
            return Err(Cursor::wrong(at_key, event.type_name(), format!("unknown field `{name}`"), &expected));
        };
        if std::mem::replace(&mut seen[index], true) {
            return Err(Cursor::wrong(at_key, name, "the field twice", "it once"));
        }
        read_field(cursor, &mut event, name)?;
    }
    if let Some(missing) = seen[..required].iter().position(|seen| !seen) {
        return Err(Cursor::wrong(start, fields[missing], "nothing", &format!("a field of {}", event.type_name())));
    }
    check_tokens(start, &event)?;
    Ok(event)
}

fn empty_event(cursor: &mut Cursor) -> Result<KvEvent, PayloadError> {
    let start = cursor.offset();
    match cursor.text("type")? {
        "BlockStored" => Ok(KvEvent::BlockStored(BlockStored::default())),
        "BlockRemoved" => Ok(KvEvent::BlockRemoved(BlockRemoved::default())),
        "AllBlocksCleared" => Ok(KvEvent::AllBlocksCleared),
        other => Err(Cursor::wrong(start, "type", format!("`{other}`"), TYPES)),
    }
}

/// The fields of an event in order, and how many of them must be there.
fn fields_of(event: &KvEvent) -> (&'static [&'static str], usize) {
    match event {
        KvEvent::BlockStored(_) => (&STORED_FIELDS, STORED_REQUIRED),
        KvEvent::BlockRemoved(_) => (&REMOVED_FIELDS, REMOVED_REQUIRED),
        KvEvent::AllBlocksCleared => (&[], 0),
    }
}

fn read_field(cursor: &mut Cursor, event: &mut KvEvent, field: &str) -> Result<(), PayloadError> {
    match event {
        KvEvent::BlockStored(stored) => read_stored(cursor, stored, field),
        KvEvent::BlockRemoved(removed) => match field {
            "block_hashes" => numbers(cursor, field, HASH, &mut removed.block_hashes),
            _ => optional(cursor, field, medium).map(|medium| removed.medium = medium),
        },
        KvEvent::AllBlocksCleared => Ok(()),
    }
}

fn read_stored(cursor: &mut Cursor, stored: &mut BlockStored, field: &str) -> Result<(), PayloadError> {
    let number = |cursor: &mut Cursor, field: &str| cursor.whole(field, HASH);
    let text = |cursor: &mut Cursor, field: &str| cursor.text(field).map(str::to_owned);
    match field {
        "block_hashes" => numbers(cursor, field, HASH, &mut stored.block_hashes)?,
        "parent_block_hash" => stored.parent_block_hash = optional(cursor, field, number)?,
        "token_ids" => numbers(cursor, field, TOKEN, &mut stored.token_ids)?,
        "block_size" => stored.block_size = cursor.whole(field, "a whole number from 0 to 4294967295")?,
        "lora_id" => stored.lora_id = optional(cursor, field, number)?,
        "medium" => stored.medium = optional(cursor, field, medium)?,
        "cache_salt" => stored.cache_salt = optional(cursor, field, text)?,
        _ => stored.session_id = optional(cursor, field, text)?,
    }
    Ok(())
}

fn optional<T>(
    cursor: &mut Cursor,
    field: &str,
    read: impl Fn(&mut Cursor, &str) -> Result<T, PayloadError>,
) -> Result<Option<T>, PayloadError> {
    if cursor.nil(field)? { Ok(None) } else { read(cursor, field).map(Some) }
}

fn medium(cursor: &mut Cursor, field: &str) -> Result<Medium, PayloadError> {
    let start = cursor.offset();
    let word = cursor.text(field)?;
    let expected = Medium::ALL.map(Medium::as_str).join(", ");
    Medium::from_wire(word).ok_or_else(|| Cursor::wrong(start, field, format!("`{word}`"), &expected))
}

fn numbers<T: TryFrom<i128>>(
    cursor: &mut Cursor,
    field: &str,
    expected: &str,
    numbers: &mut Vec<T>,
) -> Result<(), PayloadError> {
    let len = cursor.array(field)? as usize;
    // A number has at least a byte, so a length that the data cannot hold does not ask for memory.
    numbers.reserve(len.min(cursor.left().len()));
    for _ in 0..len {
        numbers.push(cursor.whole(field, expected)?);
    }
    Ok(())
}

/// Token ids, where there are any, are those of the blocks.
fn check_tokens(start: u64, event: &KvEvent) -> Result<(), PayloadError> {
    let KvEvent::BlockStored(stored) = event else { return Ok(()) };
    stored.check_tokens().map_err(|fault| PayloadError { offset: start, fault, cut_off: false })
}
