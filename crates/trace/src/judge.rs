//! The limit of each round trip, and the periods with one limit.

use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_results::evidence::capture::{Period, PeriodLimit, StartupEvidence};

use crate::half::Round;

/// Maximum number of periods. Beyond it, the shortest are merged with their neighbours.
const MAX_PERIODS: usize = 64;
/// Growth of the bytes in flight in one RTT of slow start. Delayed acknowledgements give 1.5, the RFC 9406 less.
const SLOW_START_GROWTH: f64 = 1.2;
/// Round trips without growth that end slow start.
const MAX_FLAT_ROUNDS: u32 = 2;
/// Minimum share of a round trip with a full window, for a round trip that the receiver limits.
const MIN_FULL_SHARE: f64 = 0.5;
/// Maximum RTT of a path without a queue, relative to the base RTT.
pub(crate) const MAX_FLAT_RTT: f64 = 1.25;
/// Jitter that is added to this limit, nanoseconds.
pub(crate) const RTT_JITTER: u64 = 2_000_000;
/// A pause that is longer than this share of the RTT is a limit of the application.
const MIN_PAUSE_SHARE: f64 = 0.1;
/// Minimum length of a pause, nanoseconds.
const MIN_PAUSE: u64 = 1_000_000;

/// Figures of the whole direction that the judgement of one round trip needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedDirection {
    /// First packet of the connection, nanoseconds since 1970.
    pub(crate) start: u64,
    /// Last packet of the connection.
    pub(crate) end: u64,
    pub(crate) base_rtt: u64,
    pub(crate) mss: u32,
    /// Much of the time passed in waits of lock-step.
    pub(crate) is_lockstep: bool,
    /// The window is known.
    pub(crate) has_window: bool,
}

/// Periods and slow start of a direction.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) periods: Vec<Period>,
    pub(crate) startup: StartupEvidence,
    /// End of the round trip with the losses that ended the first slow start, nanoseconds since 1970.
    /// `None` if no loss ended it.
    pub(crate) startup_loss: Option<u64>,
}

impl JudgedDirection {
    /// Returns true if an RTT is near the base RTT; an unknown RTT is.
    pub(crate) fn is_flat(&self, rtt: u64) -> bool {
        rtt as f64 <= MAX_FLAT_RTT * self.base_rtt as f64 + RTT_JITTER as f64
    }

    fn is_pause(&self, pause: u64) -> bool {
        pause > MIN_PAUSE.max((self.base_rtt as f64 * MIN_PAUSE_SHARE) as u64)
    }

    /// Returns true if the receive window limited the round trip: it was full, and no queue shows that the path was full
    /// too.
    pub(crate) fn is_window_limited(&self, round: &Round) -> bool {
        let share = |time: u64| time as f64 >= MIN_FULL_SHARE * round.time().max(1) as f64;
        share(round.closed) || (self.has_window && share(round.full) && self.is_flat(round.rtt))
    }
}

/// Finds the limit of each round trip.
pub(crate) fn judge(rounds: &[Round], direction: &JudgedDirection) -> Judged {
    let starts = slow_starts(rounds, direction);
    let mut periods = Periods::new(direction.start, direction.end);
    if let Some(first) = rounds.first() {
        periods.add(PeriodLimit::StartUp, first.start.saturating_sub(first.pause.total()), 0);
    }
    let mut peak = 0;
    for (round, in_startup) in rounds.iter().zip(&starts.rounds) {
        // In lock-step, the bytes in flight grow to the size of a block, and slow start has no visible end.
        let is_growing = round.in_flight as f64 >= SLOW_START_GROWTH * peak as f64;
        peak = peak.max(round.in_flight);
        let blocked = if direction.is_pause(round.pause.blocked) { round.pause.blocked } else { 0 };
        if direction.is_pause(round.pause.application()) {
            periods.add(PeriodLimit::Application, round.start - blocked, 0);
        }
        if blocked > 0 {
            periods.add(PeriodLimit::Receiver, round.start, 0);
        }
        let limit = if round.timeout > 0 || (round.resent > 0 && !*in_startup) {
            PeriodLimit::Recovery
        } else if direction.is_window_limited(round) {
            PeriodLimit::Receiver
        } else if direction.is_lockstep && (round.is_drained || !is_growing) {
            PeriodLimit::Application
        } else if *in_startup {
            PeriodLimit::StartUp
        } else {
            PeriodLimit::Path
        };
        periods.add(limit, round.end, round.acknowledged);
    }
    Judged { periods: periods.finish(), startup: starts.evidence, startup_loss: starts.loss }
}

struct SlowStarts {
    /// For each round trip, whether it is part of a slow start.
    rounds: Vec<bool>,
    evidence: StartupEvidence,
    loss: Option<u64>,
}

/// Finds the slow start at the beginning, and those after pauses.
fn slow_starts(rounds: &[Round], direction: &JudgedDirection) -> SlowStarts {
    let restart = direction.base_rtt * 2 + 200_000_000;
    let mut flags = Vec::with_capacity(rounds.len());
    let mut evidence = StartupEvidence::default();
    let mut end = direction.start;
    let mut loss = None;
    let mut is_first = true;
    let mut state = Some(Growth::default());
    let mut time = rounds.first().map_or(0, |first| first.start.saturating_sub(direction.start));
    for (number, round) in rounds.iter().enumerate() {
        if number > 0 && round.pause.total() > restart {
            is_first = is_first && state.is_some();
            state = Some(Growth::default());
        }
        let Some(growth) = &mut state else {
            flags.push(false);
            continue;
        };
        let outcome = growth.update(round, direction);
        match outcome {
            GrowthEnd::None => {}
            ended => {
                if is_first {
                    end = round.start;
                    // The recovery of the first losses finds more of them.
                    let recovery = rounds[number..].iter().take_while(|round| round.resent > 0);
                    loss = recovery.last().map(|last| last.end);
                    evidence.peak_in_flight = Bytes(growth.peak);
                    evidence.is_early_exit = ended == GrowthEnd::Flat;
                }
                is_first = false;
                state = None;
                flags.push(false);
                continue;
            }
        }
        flags.push(!growth.is_path_full);
        if growth.is_path_full {
            continue;
        }
        time += round.time();
        evidence.payload = Bytes(evidence.payload.0 + round.acknowledged);
    }
    evidence.time = Duration::from_nanos(time);
    if is_first && state.is_some() {
        evidence.is_unfinished = true;
        end = rounds.last().map_or(end, |last| last.end);
    }
    let later = rounds.iter().filter(|round| round.start >= end).map(|round| round.in_flight).max();
    evidence.later_in_flight = Bytes(later.unwrap_or(0));
    SlowStarts { rounds: flags, evidence, loss }
}

/// Growth of the bytes in flight.
#[derive(Default)]
struct Growth {
    peak: u64,
    flat: u32,
    peak_rate: f64,
    /// A queue grows, and the rate does not.
    is_path_full: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GrowthEnd {
    None,
    /// A loss, a full window, or a queue.
    Reason,
    /// The bytes in flight grew no more, for no visible reason.
    Flat,
}

impl Growth {
    fn update(&mut self, round: &Round, direction: &JudgedDirection) -> GrowthEnd {
        if round.resent > 0 {
            return GrowthEnd::Reason;
        }
        // A growing window can be full for a single round trip.
        let is_window_limited = direction.is_window_limited(round);
        let is_growing = round.in_flight as f64 >= SLOW_START_GROWTH * self.peak as f64;
        let is_faster = round.rate() >= SLOW_START_GROWTH * self.peak_rate;
        self.is_path_full |= !direction.is_flat(round.rtt) && !is_faster && round.rtt > 0;
        self.peak_rate = self.peak_rate.max(round.rate());
        let is_small = round.in_flight <= u64::from(direction.mss) * 10;
        self.peak = self.peak.max(round.in_flight);
        if is_growing || is_small || round.is_drained {
            self.flat = 0;
            return GrowthEnd::None;
        }
        self.flat += 1;
        match self.flat < MAX_FLAT_ROUNDS {
            true => GrowthEnd::None,
            false if direction.is_flat(round.rtt) && !is_window_limited => GrowthEnd::Flat,
            false => GrowthEnd::Reason,
        }
    }
}

/// Builds periods from parts in order.
struct Periods {
    start: u64,
    /// Maximum end: the last acknowledgement reaches the sender after the last packet of the capture.
    end: u64,
    at: u64,
    periods: Vec<Period>,
}

impl Periods {
    fn new(start: u64, end: u64) -> Self {
        Periods { start, end, at: start, periods: Vec::new() }
    }

    /// Adds a part from the end of the last one to `end`.
    fn add(&mut self, limit: PeriodLimit, end: u64, payload: u64) {
        let end = end.min(self.end).max(self.at);
        let since = |at: u64| Duration::from_nanos(at - self.start);
        match self.periods.last_mut() {
            Some(last) if last.limit == limit => {
                last.end = since(end);
                last.payload = Bytes(last.payload.0 + payload);
            }
            _ if end == self.at && payload == 0 => {}
            _ => {
                let (start, end) = (since(self.at), since(end));
                self.periods.push(Period { limit, start, end, payload: Bytes(payload) });
            }
        }
        self.at = end;
    }

    fn finish(mut self) -> Vec<Period> {
        while self.periods.len() > MAX_PERIODS {
            let shortest = (1..self.periods.len())
                .min_by_key(|number| self.periods[*number].end.saturating_sub(self.periods[*number].start))
                .unwrap_or(1);
            let removed = self.periods.remove(shortest);
            let before = &mut self.periods[shortest - 1];
            before.end = removed.end;
            before.payload = Bytes(before.payload.0 + removed.payload.0);
            if let Some(after) = self.periods.get(shortest).copied()
                && after.limit == self.periods[shortest - 1].limit
            {
                self.periods.remove(shortest);
                let before = &mut self.periods[shortest - 1];
                before.end = after.end;
                before.payload = Bytes(before.payload.0 + after.payload.0);
            }
        }
        self.periods
    }
}
