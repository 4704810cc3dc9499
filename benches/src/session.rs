//! Sessions of a given number of turns, and the cost of one turn more.
//!
//! A turn's prompt is all that was said before and 200 new tokens; 16 tokens are produced. Each session's first turns are
//! played unmeasured, a few around the wanted number are measured, and the next session begins; the cache forgets old ones.

use std::time::{Duration, Instant};

use servesim_engine::config::EngineConfig;
use servesim_engine::content::{Namespace, Run, StreamKey};
use servesim_engine::request::RequestSpec;
use servesim_engine::worker::Worker;

use crate::{FreshIds, worker};

/// The prompt that all sessions share.
const SYSTEM: Run = Run { first: 1, count: 1_008 };
/// Prompt tokens that a turn adds.
const ASKED: u32 = 200;
/// Tokens that a turn produces.
const ANSWERED: u32 = 16;

/// A worker that plays one session after the other.
pub struct Sessions {
    worker: Worker,
    ids: FreshIds,
    turns: u32,
    stream: StreamKey,
    played: u32,
}

impl Sessions {
    /// Sessions of about `turns` turns, in a cache that is full of such sessions.
    pub fn new(turns: u32, page_size: u32) -> Sessions {
        let config = EngineConfig {
            page_size,
            max_total_tokens: 1 << 20,
            disable_overlap_schedule: true,
            ..EngineConfig::default()
        };
        let mut worker = worker(config);
        let stream = open(&mut worker);
        let mut sessions = Sessions { worker, ids: FreshIds::new(), turns, stream, played: 0 };
        while sessions.worker.tree().evicted_tokens() < 1 << 20 {
            sessions.next_turn();
        }
        sessions
    }

    /// How far from the wanted number of turns a measured turn may be: a tenth of it in all.
    fn window(&self) -> std::ops::Range<u32> {
        let half = self.turns / 20;
        self.turns - half..self.turns + half + 1
    }

    /// Measures `count` turns near the wanted number.
    pub fn measure(&mut self, count: u64) -> Duration {
        let mut took = Duration::ZERO;
        let mut measured = 0;
        while measured < count {
            let measures = self.window().contains(&self.played);
            let started = Instant::now();
            self.play_turn();
            let turn_took = started.elapsed();
            if measures {
                took += turn_took;
                measured += 1;
            }
            self.close_if_over();
        }
        took
    }

    fn next_turn(&mut self) {
        self.play_turn();
        self.close_if_over();
    }

    /// From what is appended to the content to the end of the request.
    fn play_turn(&mut self) {
        let said = [self.ids.take(ASKED), self.ids.take(ANSWERED)];
        let contents = self.worker.contents_mut();
        for run in said {
            contents.append(self.stream, run).expect("ids and lengths are within bounds");
        }
        let prompt = contents.len(self.stream) - ANSWERED;
        let request = RequestSpec::new(0, self.stream, prompt, ANSWERED);
        self.worker.submit(request).expect("the content is as long as said");
        while self.worker.advance(u64::MAX, u64::MAX).expect("the model takes every pass").finished.is_empty() {}
        self.played += 1;
    }

    fn close_if_over(&mut self) {
        if self.played == self.window().end {
            self.worker.contents_mut().release(self.stream);
            self.stream = open(&mut self.worker);
            self.played = 0;
        }
    }
}

fn open(worker: &mut Worker) -> StreamKey {
    let contents = worker.contents_mut();
    let stream = contents.create(Namespace::default());
    contents.append(stream, SYSTEM).expect("ids and lengths are within bounds");
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_closed_after_the_turns_that_are_measured() {
        let mut sessions = Sessions::new(5, 16);
        sessions.measure(3);
        assert!(sessions.played <= 5 && sessions.worker.contents().len(sessions.stream) <= 1_008 + 5 * 216);
        assert_eq!(Sessions::new(200, 16).window(), 190..211);
    }
}
