//! Plays a case: who enters when, who cancels when, and when it is over.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use servesim_scenarios::case::{Abort, Arrival, Case, CaseRequest, PassLog};

use super::model::Model;
use super::settings::Settings;

/// After so many idle iterations in a row a run with nothing to come is over.
const IDLE_AT_END: u32 = 3;

/// A case in play.
#[derive(Clone, Debug)]
pub struct Player {
    /// The scheduler.
    pub model: Model,
    lanes: Vec<VecDeque<CaseRequest>>,
    arrivals: VecDeque<Arrival>,
    aborts: VecDeque<Abort>,
    in_flight: BTreeMap<String, usize>,
    idle: u32,
    over: bool,
}

impl Player {
    /// A case before its first iteration.
    ///
    /// # Errors
    /// Settings that the reference refuses.
    pub fn new(case: &Case) -> Result<Player, String> {
        let mut arrivals = case.arrivals.clone();
        arrivals.sort_by_key(|arrival| arrival.at_pass);
        let mut aborts = case.aborts.clone();
        aborts.sort_by_key(|abort| abort.at_pass);
        Ok(Player {
            model: Model::new(Settings::new(&case.config)?),
            lanes: case.lanes.iter().map(|lane| lane.iter().cloned().collect()).collect(),
            arrivals: arrivals.into(),
            aborts: aborts.into(),
            in_flight: BTreeMap::new(),
            idle: 0,
            over: false,
        })
    }

    /// Whether nothing is left to happen.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Plays one iteration.
    ///
    /// # Errors
    /// What the reference itself would fail at.
    pub fn next_pass(&mut self) -> Result<PassLog, String> {
        let submitted = self.enter();
        let abort_requested = self.cancel();
        let mut log = self.model.step()?;
        log.submitted = submitted;
        log.abort_requested = abort_requested;
        let finished = log.finished.iter().map(|(rid, _, _)| rid);
        for rid in finished.chain(&log.dropped).chain(&log.rejected) {
            self.in_flight.remove(rid);
        }
        self.idle = if log.batch.is_none() && log.submitted.is_empty() { self.idle + 1 } else { 0 };
        let to_come = !self.arrivals.is_empty() || !self.aborts.is_empty() || self.lanes.iter().any(|l| !l.is_empty());
        self.over = self.idle >= IDLE_AT_END && log.held.is_empty() && !to_come;
        Ok(log)
    }

    fn enter(&mut self) -> Vec<String> {
        let mut submitted = Vec::new();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if self.in_flight.values().any(|busy| *busy == index) {
                continue;
            }
            if let Some(request) = lane.pop_front() {
                self.in_flight.insert(request.rid.clone(), index);
                self.model.submit(&request);
                submitted.push(request.rid);
            }
        }
        while self.arrivals.front().is_some_and(|arrival| arrival.at_pass <= self.model.pass) {
            if let Some(arrival) = self.arrivals.pop_front() {
                self.model.submit(&arrival.request);
                submitted.push(arrival.request.rid);
            }
        }
        submitted
    }

    fn cancel(&mut self) -> Vec<String> {
        let mut requested = Vec::new();
        while self.aborts.front().is_some_and(|abort| abort.at_pass <= self.model.pass) {
            if let Some(abort) = self.aborts.pop_front() {
                self.model.cancel(&abort.rid);
                requested.push(abort.rid);
            }
        }
        requested
    }
}

/// Plays a whole case, at most so many iterations of it.
///
/// # Errors
/// The iteration and what the reference itself would fail at.
pub fn play(case: &Case, max_passes: u64) -> Result<Vec<PassLog>, String> {
    let mut player = Player::new(case)?;
    let mut passes = Vec::new();
    while !player.is_over() && player.model.pass < max_passes {
        let pass = player.model.pass;
        passes.push(player.next_pass().map_err(|error| format!("pass {pass}: {error}"))?);
    }
    Ok(passes)
}
