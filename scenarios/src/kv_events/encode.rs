//! Encodes a batch as the msgpack payload that SGLang v0.5.21 sends: an array `[ts, events, attn_dp_rank]`, each event a map of
//! `type` and its fields in the order of their declaration. Fields that are optional and not set are left out; those without
//! a default (`parent_block_hash`, `token_ids`, `lora_id`) always stand, as nil or as an empty array. Numbers take their
//! shortest form. The removal reason is never on the wire.

use rmp::encode as msgpack;

use super::batch::{BlockRemoved, BlockStored, KvEvent, KvEventBatch};

/// Appends the payload of a batch to `bytes`.
pub fn encode(batch: &KvEventBatch, bytes: &mut Vec<u8>) {
    written(msgpack::write_array_len(bytes, 3));
    written(msgpack::write_f64(bytes, seconds(batch.ts_ns)));
    array(bytes, batch.events.len());
    for event in &batch.events {
        match event {
            KvEvent::BlockStored(stored) => encode_stored(stored, bytes),
            KvEvent::BlockRemoved(removed) => encode_removed(removed, bytes),
            KvEvent::AllBlocksCleared => {
                written(msgpack::write_map_len(bytes, 1));
                text(bytes, "type", event.type_name());
            }
        }
    }
    match batch.attn_dp_rank {
        None => written(msgpack::write_nil(bytes)),
        Some(rank) => written(msgpack::write_uint(bytes, u64::from(rank))),
    }
}

fn encode_stored(stored: &BlockStored, bytes: &mut Vec<u8>) {
    let optional = [stored.medium.is_some(), stored.cache_salt.is_some(), stored.session_id.is_some()];
    let fields = 6 + optional.into_iter().filter(|set| *set).count() as u32;
    written(msgpack::write_map_len(bytes, fields));
    text(bytes, "type", "BlockStored");
    hashes(bytes, &stored.block_hashes);
    key(bytes, "parent_block_hash");
    number_or_nil(bytes, stored.parent_block_hash);
    key(bytes, "token_ids");
    array(bytes, stored.token_ids.len());
    for &token in &stored.token_ids {
        written(msgpack::write_uint(bytes, u64::from(token)));
    }
    key(bytes, "block_size");
    written(msgpack::write_uint(bytes, u64::from(stored.block_size)));
    key(bytes, "lora_id");
    number_or_nil(bytes, stored.lora_id);
    if let Some(medium) = stored.medium {
        text(bytes, "medium", medium.as_str());
    }
    if let Some(cache_salt) = &stored.cache_salt {
        text(bytes, "cache_salt", cache_salt);
    }
    if let Some(session_id) = &stored.session_id {
        text(bytes, "session_id", session_id);
    }
}

fn encode_removed(removed: &BlockRemoved, bytes: &mut Vec<u8>) {
    written(msgpack::write_map_len(bytes, 2 + u32::from(removed.medium.is_some())));
    text(bytes, "type", "BlockRemoved");
    hashes(bytes, &removed.block_hashes);
    if let Some(medium) = removed.medium {
        text(bytes, "medium", medium.as_str());
    }
}

/// Nanoseconds as the wire's seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn hashes(bytes: &mut Vec<u8>, hashes: &[i64]) {
    key(bytes, "block_hashes");
    array(bytes, hashes.len());
    for &hash in hashes {
        written(msgpack::write_sint(bytes, hash));
    }
}

fn number_or_nil(bytes: &mut Vec<u8>, number: Option<i64>) {
    match number {
        None => written(msgpack::write_nil(bytes)),
        Some(number) => written(msgpack::write_sint(bytes, number)),
    }
}

fn key(bytes: &mut Vec<u8>, name: &str) {
    written(msgpack::write_str(bytes, name));
}

fn text(bytes: &mut Vec<u8>, name: &str, value: &str) {
    key(bytes, name);
    key(bytes, value);
}

fn array(bytes: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).expect("a pool of at most 2^40 tokens is not published in one event of 2^32 blocks");
    written(msgpack::write_array_len(bytes, len));
}

fn written<T, E: std::fmt::Debug>(result: Result<T, E>) {
    result.expect("a vector takes all bytes");
}
