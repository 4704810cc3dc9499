//! Token content as runs of consecutive ids, stored once and shared.
//!
//! A *stream* is an append-only token sequence. A prompt is a prefix of a stream, its output the tokens after it, and an edge
//! of the radix tree a slice of one. Two slices of the same stream at the same offset are equal without looking; slices of
//! different streams are compared run by run. Nothing is assumed about ids: real token ids are just short runs.

use std::cmp::min;

use serde::{Deserialize, Serialize};
use slotmap::{SlotMap, new_key_type};

new_key_type! {
    /// Names a content stream in a [`Contents`].
    pub struct StreamKey;
}

/// `count` consecutive token ids from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct Run {
    /// The first token id.
    pub first: u32,
    /// How many tokens, at least 1.
    pub count: u32,
}

impl Run {
    /// Its token ids in order.
    pub fn tokens(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |offset| self.first + offset)
    }
}

impl From<(u32, u32)> for Run {
    fn from((first, count): (u32, u32)) -> Self {
        Run { first, count }
    }
}

impl From<Run> for (u32, u32) {
    fn from(run: Run) -> Self {
        (run.first, run.count)
    }
}

/// An interned `extra_key`: content of different namespaces never shares cache. The default is no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Namespace(pub(crate) u32);

/// Why tokens could not be appended to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The ids of a run would pass 2^32 - 1.
    #[error("token ids {first} + {count} pass 2^32")]
    TokenIdTooLarge {
        /// First id of the run.
        first: u32,
        /// Its length in tokens.
        count: u32,
    },
    /// The stream would grow past 2^31 tokens.
    #[error("a sequence of {tokens} tokens is longer than 2^31")]
    TooLong {
        /// The length it would have had, in tokens.
        tokens: u64,
    },
}

/// A run inside a stream: `first` stands at offset `start`; it ends where the next piece starts.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u32,
    first: u32,
}

#[derive(Debug)]
struct Stream {
    pieces: Vec<Piece>,
    len: u32,
    namespace: Namespace,
    refs: u32,
    /// The stream that this one was forked from, and how many leading tokens they share.
    origin: (StreamKey, u32),
}

/// The longest stream, in tokens.
pub const MAX_STREAM_TOKENS: u32 = 1 << 31;

/// All content streams of a worker. Reads nothing else; the tree, the requests and the workload hold references.
#[derive(Debug, Default)]
pub struct Contents {
    streams: SlotMap<StreamKey, Stream>,
    /// Emptied piece lists, kept so that a new stream allocates nothing once warm.
    spare: Vec<Vec<Piece>>,
    extra_keys: Vec<String>,
}

impl Contents {
    /// Interns an `extra_key`; `None` is the namespace of requests without one.
    pub fn namespace(&mut self, extra_key: Option<&str>) -> Namespace {
        let Some(extra_key) = extra_key else {
            return Namespace::default();
        };
        let index = match self.extra_keys.iter().position(|known| known == extra_key) {
            Some(index) => index,
            None => {
                self.extra_keys.push(extra_key.to_owned());
                self.extra_keys.len() - 1
            }
        };
        Namespace(index as u32 + 1)
    }

    /// Whether any request ever named an `extra_key`.
    pub(crate) fn has_namespaces(&self) -> bool {
        !self.extra_keys.is_empty()
    }

    /// Makes an empty stream and hands the caller one reference to it.
    pub fn create(&mut self, namespace: Namespace) -> StreamKey {
        let pieces = self.spare.pop().unwrap_or_default();
        self.streams.insert(Stream { pieces, len: 0, namespace, refs: 1, origin: (StreamKey::default(), 0) })
    }

    /// Makes a stream that starts with the first `len` tokens of `stream` (cut to its length) and hands the caller one
    /// reference to it. Costs the runs copied.
    pub fn fork(&mut self, stream: StreamKey, len: u32) -> StreamKey {
        let mut pieces = self.spare.pop().unwrap_or_default();
        let parent = &self.streams[stream];
        let len = min(len, parent.len);
        let shared = parent.pieces.partition_point(|piece| piece.start < len);
        pieces.extend_from_slice(&parent.pieces[..shared]);
        let origin = if parent.origin.1 >= len { (parent.origin.0, len) } else { (stream, len) };
        let namespace = parent.namespace;
        self.streams.insert(Stream { pieces, len, namespace, refs: 1, origin })
    }

    /// Appends a run; a run that continues the last one is joined to it. An empty run changes nothing.
    ///
    /// # Errors
    /// Ids past 2^32 - 1, or a stream longer than 2^31 tokens; the stream is then unchanged.
    pub fn append(&mut self, stream: StreamKey, run: Run) -> Result<(), ContentError> {
        let Run { first, count } = run;
        if count == 0 {
            return Ok(());
        }
        if first.checked_add(count - 1).is_none() {
            return Err(ContentError::TokenIdTooLarge { first, count });
        }
        let stream = &mut self.streams[stream];
        let tokens = u64::from(stream.len) + u64::from(count);
        if tokens > u64::from(MAX_STREAM_TOKENS) {
            return Err(ContentError::TooLong { tokens });
        }
        let continues =
            stream.pieces.last().is_some_and(|last| last.first.checked_add(stream.len - last.start) == Some(first));
        if !continues {
            stream.pieces.push(Piece { start: stream.len, first });
        }
        stream.len += count;
        Ok(())
    }

    /// The length of a stream in tokens.
    pub fn len(&self, stream: StreamKey) -> u32 {
        self.streams[stream].len
    }

    /// The namespace of a stream.
    pub fn namespace_of(&self, stream: StreamKey) -> Namespace {
        self.streams[stream].namespace
    }

    /// How many streams live.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Every live stream with its length and its references, in no order that may be relied on.
    pub(crate) fn held(&self) -> impl Iterator<Item = (StreamKey, u32, u32)> + '_ {
        self.streams.iter().map(|(key, stream)| (key, stream.len, stream.refs))
    }

    /// How many runs all live streams hold.
    pub fn runs_held(&self) -> usize {
        self.streams.values().map(|stream| stream.pieces.len()).sum()
    }

    /// Adds a reference.
    pub fn retain(&mut self, stream: StreamKey) {
        self.streams[stream].refs += 1;
    }

    /// Gives a reference back; the last one frees the stream.
    pub fn release(&mut self, stream: StreamKey) {
        let held = &mut self.streams[stream];
        held.refs -= 1;
        if held.refs == 0 {
            let mut pieces = self.streams.remove(stream).expect("the stream was just read").pieces;
            pieces.clear();
            self.spare.push(pieces);
        }
    }

    /// The token at offset `at`, which must lie inside the stream.
    pub fn token(&self, stream: StreamKey, at: u32) -> u32 {
        let stream = &self.streams[stream];
        assert!(at < stream.len, "token {at} of a stream of {}", stream.len);
        let piece = stream.pieces[stream.piece_at(at)];
        piece.first + (at - piece.start)
    }

    /// The runs of `[start, end)`, joined and clipped.
    pub fn runs(&self, stream: StreamKey, start: u32, end: u32) -> impl Iterator<Item = Run> + '_ {
        let stream = &self.streams[stream];
        let end = min(end, stream.len);
        let mut index = if start < end { stream.piece_at(start) } else { stream.pieces.len() };
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let piece = stream.pieces[index];
            let stop = min(end, stream.piece_end(index));
            let run = Run { first: piece.first + (at - piece.start), count: stop - at };
            at = stop;
            index += 1;
            Some(run)
        })
    }

    /// The first offset in `[from, to)` at which the two streams differ, or `to`. Both must reach `to`.
    pub fn common(&self, left: StreamKey, right: StreamKey, from: u32, to: u32) -> u32 {
        self.common_counted(left, right, from, to, &mut 0)
    }

    /// The same, and adds how many pairs of runs were compared to `compared`.
    pub(crate) fn common_counted(
        &self,
        left: StreamKey,
        right: StreamKey,
        from: u32,
        to: u32,
        compared: &mut u64,
    ) -> u32 {
        if left == right || from >= to {
            return to;
        }
        let (a, b) = (&self.streams[left], &self.streams[right]);
        let mut at = from.max(min(to, shared_by_origin(left, a, right, b)));
        if at >= to {
            return to;
        }
        let (mut i, mut j) = (a.piece_at(at), b.piece_at(at));
        loop {
            *compared += 1;
            let (p, q) = (a.pieces[i], b.pieces[j]);
            if p.first + (at - p.start) != q.first + (at - q.start) {
                return at;
            }
            let (p_end, q_end) = (a.piece_end(i), b.piece_end(j));
            at = min(p_end, q_end);
            if at >= to {
                return to;
            }
            i += usize::from(p_end == at);
            j += usize::from(q_end == at);
        }
    }

    /// A hash of the content of `[start, start + tokens)`, equal for equal content whatever its streams.
    pub(crate) fn page_hash(&self, stream: StreamKey, start: u32, tokens: u32) -> u64 {
        let stream = &self.streams[stream];
        let end = start + tokens;
        debug_assert!(end <= stream.len);
        let mut hash = u64::from(stream.namespace.0);
        let mut index = stream.piece_at(start);
        let mut at = start;
        while at < end {
            let piece = stream.pieces[index];
            hash = mix(hash ^ (u64::from(piece.first + (at - piece.start)) << 32 | u64::from(at - start)));
            at = stream.piece_end(index);
            index += 1;
        }
        hash
    }
}

/// How many leading tokens two streams share because one was forked from the other, or both from a third.
fn shared_by_origin(left: StreamKey, a: &Stream, right: StreamKey, b: &Stream) -> u32 {
    if a.origin.0 == right {
        a.origin.1
    } else if b.origin.0 == left {
        b.origin.1
    } else if a.origin.0 == b.origin.0 {
        min(a.origin.1, b.origin.1)
    } else {
        0
    }
}

impl Stream {
    /// The index of the piece that holds offset `at`, which must be below `len`. The last piece is looked at first:
    /// sessions work at their end.
    fn piece_at(&self, at: u32) -> usize {
        let last = self.pieces.len() - 1;
        if self.pieces[last].start <= at {
            return last;
        }
        self.pieces.partition_point(|piece| piece.start <= at) - 1
    }

    fn piece_end(&self, index: usize) -> u32 {
        self.pieces.get(index + 1).map_or(self.len, |next| next.start)
    }
}

/// A fixed 64-bit finaliser (the constants are those of SplitMix64), so that no result depends on a hash seed.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(contents: &mut Contents, runs: &[(u32, u32)]) -> StreamKey {
        let key = contents.create(Namespace::default());
        for &run in runs {
            contents.append(key, run.into()).expect("small runs fit");
        }
        key
    }

    #[test]
    fn neighbouring_runs_join_and_slices_clip() {
        let mut contents = Contents::default();
        let key = stream(&mut contents, &[(10, 5), (15, 5), (100, 3)]);
        let runs: Vec<Run> = contents.runs(key, 2, 12).collect();
        assert_eq!(runs, [Run { first: 12, count: 8 }, Run { first: 100, count: 2 }]);
        assert_eq!(contents.token(key, 11), 101);
    }

    #[test]
    fn common_finds_the_first_difference_across_unlike_runs() {
        let mut contents = Contents::default();
        let a = stream(&mut contents, &[(10, 5), (50, 5), (90, 5)]);
        let b = stream(&mut contents, &[(10, 5), (50, 3), (70, 7)]);
        assert_eq!(contents.common(a, b, 0, 15), 8);
        assert_eq!(contents.common(a, b, 0, 8), 8);
        assert_eq!(contents.common(a, b, 9, 15), 9);
        assert_eq!(contents.page_hash(a, 4, 4), contents.page_hash(b, 4, 4));
        assert_ne!(contents.page_hash(a, 5, 4), contents.page_hash(b, 5, 4));
    }

    #[test]
    fn a_fork_equals_its_origin_up_to_the_fork() {
        let mut contents = Contents::default();
        let a = stream(&mut contents, &[(10, 5), (50, 5)]);
        let b = contents.fork(a, 7);
        contents.append(b, Run { first: 90, count: 3 }).expect("fits");
        let c = contents.fork(b, 6);
        contents.append(c, Run { first: 51, count: 4 }).expect("fits");
        assert_eq!(contents.common(a, b, 0, 10), 7);
        assert_eq!(contents.common(a, c, 0, 10), 10);
        assert_eq!(contents.common(b, c, 0, 10), 7);
    }

    #[test]
    fn bounds_are_errors_and_the_last_reference_frees() {
        let mut contents = Contents::default();
        let a = stream(&mut contents, &[(10, 5)]);
        let overflow = contents.append(a, Run { first: u32::MAX, count: 2 });
        assert_eq!(overflow, Err(ContentError::TokenIdTooLarge { first: u32::MAX, count: 2 }));
        let long = contents.append(a, Run { first: 0, count: MAX_STREAM_TOKENS });
        assert!(matches!(long, Err(ContentError::TooLong { .. })));
        assert_eq!(contents.len(a), 5);
        contents.retain(a);
        contents.release(a);
        contents.release(a);
        assert_eq!(contents.streams(), 0);
    }
}
