//! Groups of requests with a common prefix, such as many questions to one document.

use servesim_engine::content::Run;

use super::arrivals::{Made, Numbered};

/// The settings of the generator. Requests take the groups in turn: request `i` is of group `i mod groups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPrefix {
    /// How many groups, at least 1.
    pub groups: u32,
    /// Requests in each group.
    pub requests_per_group: u32,
    /// Tokens that all prompts of a group start with. `groups` times this is at most 2^31.
    pub prefix_tokens: u32,
    /// Tokens that only one prompt has, at least 1.
    pub suffix_tokens: u32,
    /// Output tokens, at least 1. Suffix and output together are at most 2^31.
    pub output_tokens: u32,
}

/// Token ids of prefixes lie below this. Suffixes and outputs lie above; the ids start again after 2^31 tokens.
const FIRST_OWN_TOKEN: u64 = 1 << 31;

impl Numbered for SharedPrefix {
    fn requests(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.requests_per_group)
    }

    fn make(&self, index: u64) -> Made {
        let group = (index % u64::from(self.groups)) as u32;
        let own_tokens = u64::from(self.suffix_tokens) + u64::from(self.output_tokens);
        let rounds = (((1_u64 << 32) - FIRST_OWN_TOKEN) / own_tokens).max(1);
        let first = (FIRST_OWN_TOKEN + index % rounds * own_tokens) as u32;
        Made {
            shared: Run { first: group * self.prefix_tokens, count: self.prefix_tokens },
            own: Run { first, count: self.suffix_tokens },
            output: Run { first: first + self.suffix_tokens, count: self.output_tokens },
            session: group.into(),
            turn: (index / u64::from(self.groups)) as u32,
            ends_session: index + u64::from(self.groups) >= self.requests(),
        }
    }
}

#[cfg(test)]
mod tests {
    use servesim_engine::content::Contents;

    use super::*;
    use crate::generate::arrivals::Arrivals;
    use crate::workload::Workload;
    use crate::workload::lanes::{InTurn, Lanes};

    #[test]
    fn prompts_of_a_group_share_their_prefix_and_nothing_else() {
        let config =
            SharedPrefix { groups: 2, requests_per_group: 3, prefix_tokens: 100, suffix_tokens: 10, output_tokens: 5 };
        let mut contents = Contents::default();
        let mut lanes = Lanes::new(InTurn(Arrivals::new(config)), 6, None);
        let mut jobs = Vec::new();
        lanes.take_due(0, &mut contents, &mut jobs).expect("bounded");
        assert_eq!((jobs.len(), lanes.jobs_total()), (6, Some(6)));
        for a in &jobs {
            for b in jobs.iter().filter(|b| b.request.tag != a.request.tag) {
                let common = contents.common(a.request.content, b.request.content, 0, 115);
                assert_eq!(common, if a.session == b.session { 100 } else { 0 });
            }
        }
    }

    #[test]
    fn ids_stay_below_two_to_the_32() {
        let config = SharedPrefix {
            groups: 1,
            requests_per_group: u32::MAX,
            prefix_tokens: 1,
            suffix_tokens: 1 << 30,
            output_tokens: 1 << 30,
        };
        let made = config.make(u32::MAX.into());
        assert_eq!(u64::from(made.output.first) + u64::from(made.output.count), 1 << 32);
    }
}
