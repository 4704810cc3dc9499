//! How long a pass takes: the question the worker asks, and the answers it can be given.

/// The shape of a pass, as exact sums over its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassShape {
    /// Prefill rows.
    pub extend_rows: u32,
    /// Tokens that the prefill rows compute.
    pub extend_tokens: u64,
    /// Tokens that the prefill rows find cached.
    pub cached_tokens: u64,
    /// Sum over prefill rows of new tokens times tokens of context after them, for attention.
    pub extend_attention: u128,
    /// Sum over prefill rows of new tokens squared. A causal mask leaves `extend_attention - (extend_squares -
    /// extend_tokens) / 2` pairs of a token and its context, exactly.
    pub extend_squares: u128,
    /// Decode rows.
    pub decode_rows: u32,
    /// KV tokens that the decode rows read, their new one included.
    pub decode_kv_tokens: u64,
}

/// Why a model gave no usable duration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TimingError {
    /// The shape lies outside what the model knows.
    #[error("the pass lies outside the model's range: {what}")]
    OutOfRange {
        /// What of it, and the range.
        what: String,
    },
    /// The duration is not a finite number.
    #[error("the model gave a duration that is not finite: {duration_ns} ns")]
    NotFinite {
        /// What it gave.
        duration_ns: f64,
    },
    /// The duration is negative.
    #[error("the model gave a negative duration: {duration_ns} ns")]
    Negative {
        /// What it gave.
        duration_ns: f64,
    },
    /// The clock would pass 2^64 - 1 ns.
    #[error("a pass of {duration_ns} ns at {now_ns} ns overflows the clock")]
    ClockOverflow {
        /// The clock before the pass.
        now_ns: u64,
        /// The duration.
        duration_ns: u64,
    },
}

/// A timing model. It is asked before a pass is committed, and may refuse: then the pass is undone. It should answer the same
/// shape alike: a refused pass that is tried again is asked for again, and so is one that a stride stopped short of.
pub trait TimingModel: Send + Sync {
    /// The duration of a pass in nanoseconds.
    ///
    /// # Errors
    /// The pass has no duration that the model stands for.
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError>;

    /// What the host spends on a pass before the device can start it, in nanoseconds: choosing the batch and launching it.
    /// Without overlap a pass takes both times; with overlap the host's part runs beside the pass before it.
    ///
    /// # Errors
    /// The pass has no host time that the model stands for.
    fn host_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        let _ = shape;
        Ok(0)
    }
}

impl<F> TimingModel for F
where
    F: FnMut(&PassShape) -> Result<u64, TimingError> + Send + Sync,
{
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        self(shape)
    }
}

/// Turns a model's floating-point answer into nanoseconds, rounded to the nearest.
///
/// # Errors
/// The number is not finite or negative; one too large for the clock saturates, and the clock then refuses it.
pub fn checked_ns(duration_ns: f64) -> Result<u64, TimingError> {
    if !duration_ns.is_finite() {
        return Err(TimingError::NotFinite { duration_ns });
    }
    if duration_ns < 0.0 {
        return Err(TimingError::Negative { duration_ns });
    }
    Ok(duration_ns.round() as u64)
}

/// Every extend pass takes one time, every decode pass another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Duration of an extend pass in nanoseconds.
    pub extend_ns: u64,
    /// Duration of a decode pass in nanoseconds.
    pub decode_ns: u64,
}

impl TimingModel for Constant {
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        Ok(if shape.extend_rows > 0 { self.extend_ns } else { self.decode_ns })
    }
}

/// The model of a worker.
pub(crate) struct Timing {
    pub(crate) model: Box<dyn TimingModel>,
}

impl Timing {
    /// What a pass takes, if its end fits the clock. `overlap` is the schedule.
    pub(crate) fn ask(&mut self, shape: &PassShape, clock: &Clock, overlap: bool) -> Result<PassTime, TimingError> {
        let time = PassTime { device_ns: self.model.duration_ns(shape)?, host_ns: self.model.host_ns(shape)? };
        let starts_ns = clock.device_starts_ns(time.host_ns, overlap);
        match starts_ns.checked_add(time.device_ns) {
            Some(_) => Ok(time),
            None => Err(TimingError::ClockOverflow { now_ns: starts_ns, duration_ns: time.device_ns }),
        }
    }
}

/// What a pass takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassTime {
    /// On the host, before the device can start it.
    pub(crate) host_ns: u64,
    /// On the device.
    pub(crate) device_ns: u64,
}

/// The simulated clock, in nanoseconds from the start of the run, and the iteration counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clock {
    /// Now. Never goes back. Under the overlap schedule a pass ends, and the clock moves to its end, in the iteration that
    /// takes its results: the one after it was launched. If the host needs longer to prepare that one, the clock moves to
    /// where it is done.
    pub now_ns: u64,
    /// The duration on the device of a pass that was launched and whose results are still to be taken; 0 without overlap.
    pub in_flight_ns: u64,
    /// Number of the iteration under way or next.
    pub iteration: u64,
    /// Decode batches whose results were taken.
    pub decode_batches: u64,
}

impl Clock {
    /// When the device starts a pass that the host begins to prepare now. With overlap the device may still be busy with the
    /// pass before, and starts when both are done. Saturates at the end of the clock.
    fn device_starts_ns(&self, host_ns: u64, overlap: bool) -> u64 {
        let wait_ns = if overlap { host_ns.max(self.in_flight_ns) } else { host_ns };
        self.now_ns.saturating_add(wait_ns)
    }

    /// Moves over a pass that was asked for. Without overlap that is to its end. With overlap it is to the start of its device
    /// part, since then the results of the pass before are there too, and the host goes on: in steady state a pass takes the
    /// longer of its device part and the next one's host part.
    pub(crate) fn pass(&mut self, time: PassTime, overlap: bool) {
        self.now_ns = self.device_starts_ns(time.host_ns, overlap);
        if overlap {
            self.in_flight_ns = time.device_ns;
        } else {
            self.now_ns += time.device_ns;
        }
    }
}
