//! Checks of the encodings, the files and the consumer, without a worker.
//!
//! - Golden: payloads against bytes written by hand from the wire's description.
//! - Property: random batches come back from each file form as they went in, whole or cut anywhere.
//! - Bad input: every wrong value is named with its place.
//! - Oracle: the checks find each problem that a stream is given, and nothing else.

use std::io::Cursor;

use proptest::prelude::*;

use super::batch::*;
use super::check::Check;
use super::compare::compare;
use super::decode::{decode, decode_whole};
use super::encode::encode;
use super::error::Place;
use super::frames::write_frame;
use super::json_lines::{read_line, write_line};
use super::mirror::{block_digest, hash_of};
use super::reader::{EventReader, FileForm};

fn stored(block_hashes: &[i64], parent_block_hash: Option<i64>) -> KvEvent {
    let (block_hashes, medium) = (block_hashes.to_vec(), Some(Medium::Gpu));
    KvEvent::BlockStored(BlockStored {
        block_hashes,
        parent_block_hash,
        block_size: 1,
        medium,
        ..BlockStored::default()
    })
}

fn removed(block_hashes: &[i64]) -> KvEvent {
    let (block_hashes, medium) = (block_hashes.to_vec(), Some(Medium::Gpu));
    KvEvent::BlockRemoved(BlockRemoved { block_hashes, medium, reason: None })
}

fn sent(sequence: u64, events: Vec<KvEvent>) -> SentBatch {
    let batch = KvEventBatch { ts_ns: sequence * 1_000_000, events, attn_dp_rank: Some(0) };
    SentBatch { sequence, why: Some(PublishReason::Prefill), batch }
}

fn payload(batch: &KvEventBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(batch, &mut bytes);
    bytes
}

fn frames(batches: &[SentBatch]) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), Vec::new());
    for sent in batches {
        write_frame(&mut bytes, sent.sequence, &sent.batch, &mut buffer).expect("memory takes all");
    }
    bytes
}

fn lines(batches: &[SentBatch]) -> Vec<u8> {
    let mut bytes = Vec::new();
    batches.iter().for_each(|sent| write_line(&mut bytes, sent).expect("memory takes all"));
    bytes
}

fn reader(bytes: &[u8]) -> EventReader {
    EventReader::new("t", Cursor::new(bytes.to_vec())).expect("a known form")
}

/// All batches of a file, and the error that ended it.
fn read(bytes: &[u8]) -> (Vec<SentBatch>, Option<super::error::KvEventError>) {
    let (mut reader, mut batches) = (reader(bytes), Vec::new());
    loop {
        match reader.next_batch() {
            Ok(Some(sent)) => batches.push(sent.clone()),
            Ok(None) => return (batches, None),
            Err(error) => return (batches, Some(error)),
        }
    }
}

/// A fixstr.
fn text(text: &str) -> Vec<u8> {
    [&[0xa0 | text.len() as u8], text.as_bytes()].concat()
}

/// `[1.5, [AllBlocksCleared, BlockStored, BlockRemoved], 0]`, byte by byte.
fn by_hand() -> Vec<u8> {
    let mut bytes = vec![0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x93];
    bytes.extend([&[0x81][..], &text("type"), &text("AllBlocksCleared")].concat());
    bytes.extend([&[0x87][..], &text("type"), &text("BlockStored"), &text("block_hashes")].concat());
    // -1, 127, 128, -2^63.
    bytes.extend([0x94, 0xff, 0x7f, 0xcc, 0x80, 0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([&text("parent_block_hash")[..], &[0xd0, 0xdf], &text("token_ids")].concat());
    // 5, 300, 70,000, 2^32 - 1.
    bytes.extend([0x94, 0x05, 0xcd, 0x01, 0x2c, 0xce, 0x00, 0x01, 0x11, 0x70, 0xce, 0xff, 0xff, 0xff, 0xff]);
    bytes.extend([&text("block_size")[..], &[0x01], &text("lora_id"), &[0xc0]].concat());
    bytes.extend([text("medium"), text("GPU")].concat());
    bytes.extend([&[0x83][..], &text("type"), &text("BlockRemoved"), &text("block_hashes"), &[0x91, 0x07]].concat());
    bytes.extend([text("medium"), text("GPU")].concat());
    bytes.push(0x00);
    bytes
}

fn of_hand() -> KvEventBatch {
    let KvEvent::BlockStored(mut first) = stored(&[-1, 127, 128, i64::MIN], Some(-33)) else { unreachable!() };
    first.token_ids = vec![5, 300, 70_000, u32::MAX];
    let events = vec![KvEvent::AllBlocksCleared, KvEvent::BlockStored(first), removed(&[7])];
    KvEventBatch { ts_ns: 1_500_000_000, events, attn_dp_rank: Some(0) }
}

#[test]
fn a_payload_is_the_one_written_by_hand() {
    assert_eq!(payload(&of_hand()), by_hand());
    let mut batch = KvEventBatch::default();
    decode_whole(&by_hand(), &mut batch).expect("valid");
    assert_eq!(batch, of_hand());
}

#[test]
fn fields_without_a_default_always_stand_and_a_reason_never_does() {
    let KvEvent::BlockStored(mut plain) = stored(&[3], None) else { unreachable!() };
    plain.medium = None;
    let reason = Some(RemovalReason::Eviction);
    let gone = KvEvent::BlockRemoved(BlockRemoved { block_hashes: vec![3], medium: None, reason });
    let batch = KvEventBatch { ts_ns: 0, events: vec![KvEvent::BlockStored(plain), gone], attn_dp_rank: None };
    let mut bytes = vec![0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x92, 0x86];
    bytes.extend([&text("type")[..], &text("BlockStored"), &text("block_hashes"), &[0x91, 0x03]].concat());
    bytes.extend([&text("parent_block_hash")[..], &[0xc0], &text("token_ids"), &[0x90]].concat());
    bytes.extend([&text("block_size")[..], &[0x01], &text("lora_id"), &[0xc0]].concat());
    bytes.extend(
        [&[0x82][..], &text("type"), &text("BlockRemoved"), &text("block_hashes"), &[0x91, 0x03, 0xc0]].concat(),
    );
    assert_eq!(payload(&batch), bytes);
}

#[test]
fn the_older_form_reads_as_the_same_events() {
    // [1.5, [["AllBlocksCleared"], ["BlockStored", [1, 2], nil, [8, 9], 1, nil], ["BlockRemoved", [1]]]]
    let mut bytes = vec![0x92, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x93, 0x91];
    bytes.extend(text("AllBlocksCleared"));
    bytes.extend([&[0x96][..], &text("BlockStored"), &[0x92, 1, 2, 0xc0, 0x92, 8, 9, 1, 0xc0]].concat());
    bytes.extend([&[0x92][..], &text("BlockRemoved"), &[0x91, 1]].concat());
    let mut batch = KvEventBatch::default();
    decode_whole(&bytes, &mut batch).expect("valid");
    let KvEvent::BlockStored(mut first) = stored(&[1, 2], None) else { unreachable!() };
    (first.medium, first.token_ids) = (None, vec![8, 9]);
    let gone = BlockRemoved { block_hashes: vec![1], ..BlockRemoved::default() };
    let events = vec![KvEvent::AllBlocksCleared, KvEvent::BlockStored(first), KvEvent::BlockRemoved(gone)];
    assert_eq!(batch, KvEventBatch { ts_ns: 1_500_000_000, events, attn_dp_rank: None });
    // Its own form in a file: no difference from the newer one.
    let newer = payload(&batch);
    let (comparison, errors) = compare(&mut reader(&bytes), &mut reader(&newer));
    assert!(comparison.equal && errors.is_empty(), "{comparison:?}");
}

#[test]
fn what_is_wrong_in_a_payload_is_named_with_its_offset() {
    let good = by_hand();
    let at = |part: &[u8]| good.windows(part.len()).position(|window| window == part).expect("it is there");
    let replaced = |part: &[u8], by: &[u8]| {
        let (start, mut bytes) = (at(part), good.clone());
        bytes.splice(start..start + part.len(), by.iter().copied());
        bytes
    };
    let cases: Vec<(Vec<u8>, usize, &str, &str)> = vec![
        (replaced(b"\xa6medium", b"\xa6medion"), at(b"\xa6medium"), "events[1].BlockStored", "unknown field `medion`"),
        (replaced(b"AllBlocksCleared", b"AllBlocksClearex"), at(b"\xb0All"), "events[0].type", "`AllBlocksClearex`"),
        (replaced(b"\xa3GPU", b"\xa3TPU"), at(b"\xa3GPU"), "events[1].medium", "`TPU`"),
        (
            replaced(b"block_size\x01", b"block_size\xa0"),
            at(b"block_size\x01") + 10,
            "events[1].block_size",
            "a string",
        ),
        (replaced(b"block_size\x01", b"block_size\x00"), at(b"\x87\xa4type"), "events[1].block_size", "0"),
        (replaced(b"block_size\x01", b"block_size\x02"), at(b"\x87\xa4type"), "events[1].token_ids", "4 token ids"),
        (replaced(b"token_ids\x94\x05", b"token_ids\x94\xff"), at(b"token_ids\x94") + 10, "events[1].token_ids", "-1"),
        (replaced(b"lora_id", b"block_size"[..7].as_ref()), at(b"\xa7lora_id"), "events[1].BlockStored", "unknown"),
        (replaced(b"\x83\xa4type", b"\x83\xa4tipe"), at(b"\x83\xa4type") + 1, "events[2].event", "`tipe`"),
        (replaced(b"\x93\xcb\x3f\xf8", b"\x94\xcb\x3f\xf8"), 0, "batch", "an array of 4 values"),
        (replaced(b"\xcb\x3f\xf8", b"\xcb\xbf\xf8"), 1, "ts", "-1.5"),
        (replaced(b"\xcb\x3f\xf8", b"\xcb\x7f\xf8"), 1, "ts", "NaN"),
        ([&good[..], &[0]].concat(), good.len(), "payload", "1 bytes more"),
    ];
    for (bytes, offset, field, found) in cases {
        let error = decode_whole(&bytes, &mut KvEventBatch::default()).expect_err(field);
        assert_eq!((error.offset, error.fault.field.as_str()), (offset as u64, field), "{error}");
        assert!(error.fault.found.starts_with(found) && !error.cut_off, "{error}");
    }
    for end in 0..good.len() {
        let error = decode(&good[..end], &mut KvEventBatch::default()).expect_err("it is cut off");
        assert!(error.cut_off && error.offset <= end as u64, "{end}: {error}");
    }
}

#[test]
fn a_length_that_the_data_cannot_hold_asks_for_no_memory() {
    let mut bytes = vec![0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x82];
    bytes.extend([&text("type")[..], &text("BlockRemoved"), &text("block_hashes"), &[0xdd; 5]].concat());
    let error = decode(&bytes, &mut KvEventBatch::default()).expect_err("it is cut off");
    assert!(error.cut_off, "{error}");
    let (batches, error) = read(&[&[0; 8][..], &[0xff; 4], &[0x93]].concat());
    assert_eq!((batches.len(), error.expect("it is cut off").place), (0, Place::Byte(13)));
}

#[test]
fn wrong_lines_are_named_and_those_before_are_handed_out() {
    let good = lines(&[sent(0, vec![stored(&[1], None)]), sent(1, vec![removed(&[1])])]);
    let good = String::from_utf8(good).expect("JSON is UTF-8");
    let cases = [
        (r#""sequence":1"#, r#""sequenze":1"#, "line", "unknown field `sequenze`"),
        (r#""sequence":1"#, r#""sequence":-1"#, "line", "invalid value: integer `-1`"),
        (r#""BlockRemoved""#, r#""BlockLost""#, "line", "unknown variant `BlockLost`"),
        (r#""block_hashes":[1],"medium":"GPU"}]}"#, r#""medium":"GPU"}]}"#, "events[0].block_hashes", "nothing"),
        (r#"[1],"medium":"GPU"}]}"#, r#"[1],"token_ids":[]}]}"#, "events[0].token_ids", "a value"),
        (r#"[1],"medium":"GPU"}]}"#, r#"[1"#, "line", "a line cut off after "),
        (r#"[1],"medium":"GPU"}]}"#, r#"[1],"reason":"boredom"}]}"#, "line", "unknown variant `boredom`"),
    ];
    for (part, by, field, found) in cases {
        let start = good.rfind(part).expect("the second line has it");
        let bad = format!("{}{by}{}", &good[..start], &good[start + part.len()..]);
        let (batches, error) = read(bad.as_bytes());
        let error = error.expect(by);
        assert_eq!((batches.len(), error.place, error.fault.field.as_str()), (1, Place::Line(2), field), "{error}");
        assert!(error.fault.found.starts_with(found), "{error}");
        assert!(error.to_string().starts_with("t:2: "), "{error}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_and_an_empty_one_is_no_batch() {
    let error = EventReader::new("t", Cursor::new(b"sequence,events\n".to_vec())).err().expect("no such form");
    assert_eq!(
        error.to_string(),
        "t: file: found a file that starts with byte 0x73, expected KV events: JSON lines, frames, or msgpack payloads"
    );
    assert_eq!(read(b""), (vec![], None));
}

/// A stream without a fault: a chain of three blocks with their tokens, a fork of it, and the fork's removal.
fn clean() -> Vec<SentBatch> {
    let mut digest = None;
    let mut hashes = Vec::new();
    for token in [10, 11, 12] {
        let next = block_digest(digest.as_ref(), &[token]);
        hashes.push(hash_of(&next));
        digest = Some(next);
    }
    let fork = hash_of(&block_digest(Some(&block_digest(None, &[10])), &[20]));
    let with_tokens = |event: KvEvent, token_ids: &[u32]| match event {
        KvEvent::BlockStored(stored) => KvEvent::BlockStored(BlockStored { token_ids: token_ids.to_vec(), ..stored }),
        other => other,
    };
    vec![
        sent(0, vec![KvEvent::AllBlocksCleared, with_tokens(stored(&hashes, None), &[10, 11, 12])]),
        sent(1, vec![with_tokens(stored(&[fork], Some(hashes[0])), &[20])]),
        sent(2, vec![removed(&[fork])]),
    ]
}

fn checked(batches: &[SentBatch]) -> super::check::CheckReport {
    let mut check = Check::default();
    batches.iter().for_each(|sent| check.add(sent));
    check.report()
}

#[test]
fn a_clean_stream_has_no_problem_and_its_hashes_are_recomputed() {
    let report = checked(&clean());
    assert_eq!((report.problems.total(), report.verified_blocks), (0, 4), "{report:?}");
    assert_eq!((report.peak_blocks, report.last_blocks), (4, 3));
    assert_eq!(report.mirror.iter().map(|size| size.blocks).collect::<Vec<u64>>(), [3, 4, 3]);
}

#[test]
fn each_problem_is_found_where_it_is() {
    let change = |batch: usize, event: usize, change: &dyn Fn(&mut KvEvent)| {
        let mut batches = clean();
        change(&mut batches[batch].batch.events[event]);
        checked(&batches)
    };
    let store = |event: &mut KvEvent, change: &dyn Fn(&mut BlockStored)| match event {
        KvEvent::BlockStored(stored) => change(stored),
        _ => unreachable!("the event stores"),
    };
    let report = change(1, 0, &|event| store(event, &|stored| stored.parent_block_hash = Some(99)));
    assert_eq!((report.problems.unknown_parents, report.problems.total()), (1, 1));
    assert_eq!((report.first_problems[0].sequence, report.first_problems[0].event), (1, Some(0)));
    let report = change(0, 1, &|event| store(event, &|stored| stored.token_ids[1] = 77));
    // The block with the other token, and the one below it.
    assert_eq!((report.problems.broken_chains, report.problems.total()), (2, 2));
    let report = change(2, 0, &|event| *event = removed(&[5]));
    assert_eq!((report.problems.unknown_removals, report.problems.total(), report.last_blocks), (1, 1, 4));
    let mut batches = clean();
    batches.insert(2, SentBatch { sequence: 2, ..batches[1].clone() });
    batches[3].sequence = 3;
    let report = checked(&batches);
    assert_eq!((report.problems.duplicate_stores, report.problems.total()), (1, 1));
    let mut batches = clean();
    batches.remove(1);
    let report = checked(&batches);
    assert_eq!((report.problems.sequence_gaps, report.problems.unknown_removals, report.problems.total()), (1, 1, 2));
    assert!(report.first_problems[0].problem.contains("1 batches from 1 on are missing"), "{report:?}");
    let mut batches = clean();
    batches[2].sequence = 1;
    assert_eq!(checked(&batches).problems.sequence_repeats, 1);
}

#[test]
fn sizes_of_a_long_stream_are_thinned_out_evenly() {
    let batches: Vec<SentBatch> = (0..1000).map(|number| sent(number, vec![stored(&[number as i64], None)])).collect();
    let report = checked(&batches);
    assert!((33..=65).contains(&report.mirror.len()), "{}", report.mirror.len());
    let blocks: Vec<u64> = report.mirror.iter().map(|size| size.blocks).collect();
    assert!(blocks.windows(3).all(|sizes| sizes[1] - sizes[0] == 16), "{blocks:?}");
    assert_eq!(blocks.last(), Some(&1000));
}

#[test]
fn the_first_difference_is_named_and_both_are_counted_to_the_end() {
    let left = clean();
    let mut right = clean();
    right[1].batch.ts_ns += 5;
    let (comparison, _) = compare(&mut reader(&lines(&left)), &mut reader(&frames(&right)));
    assert!(comparison.equal, "{comparison:?}");
    let KvEvent::BlockStored(stored) = &mut right[0].batch.events[1] else { unreachable!() };
    stored.block_hashes[2] = 5;
    let (comparison, errors) = compare(&mut reader(&lines(&left)), &mut reader(&frames(&right)));
    let difference = comparison.difference.expect("they differ");
    assert_eq!((difference.batch, difference.event, difference.field.as_str()), (0, Some(1), "block_hashes[2]"));
    assert_eq!((difference.right.as_str(), errors.len()), ("5", 0));
    assert_eq!((comparison.left.stored.blocks, comparison.right.batches), (4, 3));
    let (comparison, _) = compare(&mut reader(&lines(&left)), &mut reader(&lines(&left[..2])));
    let difference = comparison.difference.expect("one is shorter");
    assert_eq!((difference.batch, difference.left.as_str(), difference.right.as_str()), (2, "a batch", "the end"));
    let cut = frames(&left);
    let (comparison, errors) = compare(&mut reader(&cut[..cut.len() - 1]), &mut reader(&cut));
    assert!(!comparison.equal && comparison.difference.is_none() && errors.len() == 1, "{comparison:?}");
}

fn any_event() -> impl Strategy<Value = KvEvent> {
    let hashes = || proptest::collection::vec(any::<i64>(), 0..40);
    let medium = || proptest::option::of(proptest::sample::select(Medium::ALL.to_vec()));
    let label = || proptest::option::of("[a-z\"\\\\é]{0,40}");
    let tokens = (any::<bool>(), 1_u32..5);
    let stores =
        (hashes(), any::<Option<i64>>(), tokens, any::<Option<i64>>(), medium(), label(), label(), any::<u32>());
    let stores =
        stores.prop_map(|(block_hashes, parent, (emit, block_size), lora_id, medium, salt, session, first)| {
            let count = if emit { block_hashes.len() as u32 * block_size } else { 0 };
            KvEvent::BlockStored(BlockStored {
                block_hashes,
                parent_block_hash: parent,
                token_ids: (0..count).map(|index| first.wrapping_mul(index + 1)).collect(),
                block_size,
                lora_id,
                medium,
                cache_salt: salt,
                session_id: session,
            })
        });
    let removes = (hashes(), medium())
        .prop_map(|(block_hashes, medium)| KvEvent::BlockRemoved(BlockRemoved { block_hashes, medium, reason: None }));
    prop_oneof![4 => stores, 3 => removes, 1 => Just(KvEvent::AllBlocksCleared)]
}

fn any_stream() -> impl Strategy<Value = Vec<SentBatch>> {
    // Times up to 2^50 ns, 13 days, which seconds on the wire hold to the nanosecond.
    let batch = (0_u64..1 << 50, proptest::collection::vec(any_event(), 0..6), any::<Option<u32>>());
    proptest::collection::vec(batch, 1..8).prop_map(|batches| {
        let number = |(index, (ts_ns, events, attn_dp_rank))| {
            let batch = KvEventBatch { ts_ns, events, attn_dp_rank };
            SentBatch { sequence: index as u64, why: None, batch }
        };
        batches.into_iter().enumerate().map(number).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_comes_back_from_every_form_as_it_went_in(batches in any_stream()) {
        let payloads: Vec<u8> = batches.iter().flat_map(|sent| payload(&sent.batch)).collect();
        for (bytes, form) in
            [(lines(&batches), FileForm::JsonLines), (frames(&batches), FileForm::Frames), (payloads, FileForm::Payloads)]
        {
            prop_assert_eq!(reader(&bytes).form(), form);
            let (found, error) = read(&bytes);
            prop_assert_eq!(error, None);
            prop_assert_eq!(&found, &batches);
        }
    }

    #[test]
    fn a_file_cut_anywhere_hands_out_what_is_whole(batches in any_stream(), cut in any::<proptest::sample::Index>()) {
        let payloads: Vec<u8> = batches.iter().flat_map(|sent| payload(&sent.batch)).collect();
        for bytes in [frames(&batches), payloads, lines(&batches)] {
            let cut = 1 + cut.index(bytes.len() - 1);
            let (found, error) = read(&bytes[..cut]);
            prop_assert_eq!(&found[..], &batches[..found.len()]);
            match error {
                // A cut between batches cannot be seen; nor can one before a line's end.
                None => prop_assert!(found.len() < batches.len() || bytes[cut..] == *b"\n" || cut == bytes.len()),
                Some(error) => match error.place {
                    Place::Byte(offset) => prop_assert!(offset <= cut as u64),
                    place => prop_assert_eq!(place, Place::Line(found.len() as u64 + 1)),
                },
            }
        }
    }

    #[test]
    fn no_bytes_make_the_decoders_fail_otherwise_than_by_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let whole = [&[0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0][..], &bytes].concat();
        if let Ok(used) = decode(&whole, &mut KvEventBatch::default()) {
            prop_assert!(used <= whole.len());
        }
        let framed = [&[0; 12][..], &bytes].concat();
        prop_assert!(read(&framed).0.len() <= framed.len());
        let _ = read_line(&bytes);
    }
}
