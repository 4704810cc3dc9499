//! Making a failing scenario smaller.

use servesim_engine::content::Run;
use servesim_scenarios::case::{Case, CaseConfig, CaseRequest};

/// How often all ways of shrinking are gone through at most.
const MOST_ROUNDS: usize = 12;

/// A change of one request.
type RequestChange = fn(&mut CaseRequest);
/// A change of the settings.
type ConfigChange = fn(&mut CaseConfig);

/// Makes a failing case smaller while it still fails: drops lanes, requests, arrivals and cancellations, shortens prompts and
/// answers, moves everything earlier, and sets settings back to their defaults.
pub fn shrink(case: Case, fails: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut best = Shrunk { case, fails };
    for _ in 0..MOST_ROUNDS {
        let before = best.case.clone();
        best.drop_parts();
        best.reset_settings();
        best.shorten_requests();
        best.move_earlier();
        if best.case == before {
            break;
        }
    }
    best.case
}

/// The smallest case so far that still fails.
struct Shrunk<'f> {
    case: Case,
    fails: &'f mut dyn FnMut(&Case) -> bool,
}

impl Shrunk<'_> {
    fn try_change(&mut self, change: impl FnOnce(&mut Case)) -> bool {
        let mut smaller = self.case.clone();
        change(&mut smaller);
        if smaller != self.case && (self.fails)(&smaller) {
            self.case = smaller;
            return true;
        }
        false
    }

    fn drop_parts(&mut self) {
        self.drop_from(|case| &mut case.lanes);
        for lane in 0..self.case.lanes.len() {
            self.drop_from(move |case| &mut case.lanes[lane]);
        }
        self.try_change(|case| case.lanes.retain(|lane| !lane.is_empty()));
        self.drop_from(|case| &mut case.arrivals);
        self.drop_from(|case| &mut case.aborts);
    }

    /// Drops stretches of a list, long ones first.
    fn drop_from<T>(&mut self, list: impl Fn(&mut Case) -> &mut Vec<T>) {
        let mut size = list(&mut self.case).len();
        while size > 0 {
            let mut start = 0;
            while start < list(&mut self.case).len() {
                let dropped = self.try_change(|case| {
                    let items = list(case);
                    let end = (start + size).min(items.len());
                    items.drain(start..end);
                });
                if !dropped {
                    start += size;
                }
            }
            size /= 2;
        }
    }

    fn reset_settings(&mut self) {
        for change in SETTINGS {
            self.try_change(|case| change(&mut case.config));
        }
    }

    fn shorten_requests(&mut self) {
        for change in REQUEST {
            // All at once first: most cases do not need what is taken away.
            if self.try_change(|case| each_request(case).for_each(change)) {
                continue;
            }
            let count = each_request(&mut self.case).count();
            for index in 0..count {
                while self.try_change(|case| {
                    if let Some(request) = each_request(case).nth(index) {
                        change(request);
                    }
                }) {}
            }
        }
    }

    fn move_earlier(&mut self) {
        for index in 0..self.case.arrivals.len() {
            self.earlier(|case| &mut case.arrivals[index].at_pass);
        }
        for index in 0..self.case.aborts.len() {
            self.earlier(|case| &mut case.aborts[index].at_pass);
        }
    }

    fn earlier(&mut self, time: impl Fn(&mut Case) -> &mut u64) {
        while self.try_change(|case| *time(case) /= 2) {}
        while self.try_change(|case| {
            let time = time(case);
            *time = time.saturating_sub(1);
        }) {}
    }
}

fn each_request(case: &mut Case) -> impl Iterator<Item = &mut CaseRequest> {
    case.lanes.iter_mut().flatten().chain(case.arrivals.iter_mut().map(|arrival| &mut arrival.request))
}

fn halve(runs: &mut [Run]) {
    runs.iter_mut().for_each(|run| run.count = (run.count / 2).max(1));
}

fn take_one(runs: &mut [Run]) {
    runs.iter_mut().for_each(|run| run.count = (run.count - 1).max(1));
}

/// What may be taken from a request; each leaves one that is still well formed.
const REQUEST: &[RequestChange] = &[
    |request| request.priority = None,
    |request| request.extra_key = None,
    |request| request.routing_key = None,
    |request| request.stop_at_end = None,
    |request| request.hold = request.hold.map(|_| 0),
    |request| {
        if request.input.len() > 1 {
            request.input.pop();
        }
    },
    |request| {
        if request.input.len() > 1 {
            request.input.remove(0);
        }
    },
    |request| halve(&mut request.input),
    |request| {
        halve(&mut request.output);
        request.max_new_tokens /= 2;
    },
    |request| take_one(&mut request.input),
    |request| {
        take_one(&mut request.output);
        request.max_new_tokens = request.max_new_tokens.saturating_sub(1);
    },
];

/// The defaults, one setting at a time.
const SETTINGS: &[ConfigChange] = &[
    |config| {
        config.role = None;
    },
    |config| config.overlap = false,
    |config| config.mixed_chunk = None,
    |config| config.disable_radix_cache = None,
    |config| {
        config.priority_scheduling = None;
        config.priority_preemption = None;
        config.preemption_threshold = None;
        config.low_priority_values_first = None;
    },
    |config| config.priority_preemption = Some(false),
    |config| config.low_priority_values_first = None,
    |config| config.preemption_threshold = None,
    |config| config.retraction_policy = None,
    |config| config.prefill_decode_interval = None,
    |config| config.max_queued_requests = None,
    |config| config.intake = None,
    |config| config.clip_max_new_tokens = None,
    |config| config.schedule_policy = "fcfs".to_string(),
    |config| {
        config.eviction_policy = "lru".to_string();
        config.eviction_policy_config = None;
    },
    |config| config.schedule_conservativeness = 1.0,
    |config| config.decode_log_interval = 40,
    |config| config.max_prefill_tokens = 16_384,
    |config| config.chunked_prefill_size = 8192 / i64::from(config.page_size) * i64::from(config.page_size),
    |config| config.chunked_prefill_size = -1,
    |config| config.max_running_requests = 64,
    |config| config.max_context_len = 8192,
    |config| {
        // A smaller page still divides the pool and the chunk.
        config.page_size = 1;
    },
];
