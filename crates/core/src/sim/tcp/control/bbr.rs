//! BBR, version 1, as Linux has it: a model of the path instead of a reaction to loss.
//!
//! It sends at the largest delivery rate seen in ten round trips, probes for more in one of eight phases, and empties
//! the queue every ten seconds to see the least round trip anew (Cardwell et al., "BBR: Congestion-Based Congestion
//! Control", 2016; draft-cardwell-iccrg-bbr-congestion-control-00; the constants of `tcp_bbr.c`). Left out of Linux'
//! version: the sampling of token-bucket policers and the allowance for aggregated acknowledgements.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Acknowledged, Control};
use crate::time::Instant;

/// What it believes of the path, and what it is doing.
pub(super) struct Bbr {
    mode: Mode,
    window: f64,
    initial_window: f64,
    /// Segments that leave together.
    quantum: f64,
    rate: MostRecent,
    rounds: Rounds,
    least_rtt: Option<(Duration, Instant)>,
    /// Segments a second at which they leave; none before the first round trip.
    pace: Option<f64>,
    pipe: FullPipe,
    phase: usize,
    phase_began: Instant,
    probe: Probe,
    /// True in the first round trip of a repair: as much leaves as arrives.
    conserving: bool,
    repairing: bool,
    /// The window before a repair or a probe of the round trip.
    saved: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeRate,
    ProbeRoundTrip,
}

/// The largest value of the last rounds, seconds and segments.
#[derive(Debug, Default)]
struct MostRecent(VecDeque<(u64, f64)>);

/// Counts round trips by what has been delivered.
#[derive(Debug, Default)]
struct Rounds {
    count: u64,
    /// The round ends when something is acknowledged that was sent after so many were delivered.
    end: u64,
    /// True if the present acknowledgement begins one.
    begins: bool,
}

/// Whether start-up still finds more.
#[derive(Debug, Default)]
struct FullPipe {
    most: f64,
    rounds: u32,
    full: bool,
}

/// The state of a probe of the round trip.
#[derive(Debug, Default)]
struct Probe {
    until: Option<Instant>,
    round_done: bool,
}

/// 2/ln 2: the least that doubles each round trip.
const HIGH_GAIN: f64 = 2.885;
const PHASES: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const PROBE_RATE_WINDOW: f64 = 2.0;
const RATE_ROUNDS: u64 = 10;
const LEAST_RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_TIME: Duration = Duration::from_millis(200);
const LEAST: f64 = 4.0;
/// Start-up is over after three rounds that did not find a quarter more.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Paced a little below the estimate, so that no queue stands.
const PACE_SHARE: f64 = 0.99;

impl Bbr {
    pub(super) fn new(initial_window: f64, grain: u32, stream: u32) -> Self {
        Bbr {
            mode: Mode::Startup,
            window: initial_window,
            initial_window,
            quantum: f64::from(grain),
            rate: MostRecent::default(),
            rounds: Rounds::default(),
            least_rtt: None,
            pace: None,
            pipe: FullPipe::default(),
            // Streams probe at different times, and none begins by draining; Linux draws the phase.
            phase: (2 + stream as usize % 7) % PHASES.len(),
            phase_began: Instant::ZERO,
            probe: Probe::default(),
            conserving: false,
            repairing: false,
            saved: initial_window,
        }
    }

    fn update_rate(&mut self, ack: &Acknowledged) {
        let sending = ack.stamp.sent.saturating_since(ack.stamp.first_sent);
        let arriving = ack.now.saturating_since(ack.stamp.delivered_at);
        let interval = sending.max(arriving);
        let too_short = self.least_rtt.is_some_and(|(least, _)| interval < least);
        if interval.is_zero() || too_short {
            return;
        }
        let rate = ack.delivered.saturating_sub(ack.stamp.delivered) as f64 / interval.as_secs_f64();
        if !ack.stamp.limited || rate >= self.rate.most() {
            self.rate.add(self.rounds.count, rate);
        }
    }

    fn look_for_the_full_pipe(&mut self, ack: &Acknowledged) {
        if self.pipe.full || !self.rounds.begins || ack.stamp.limited {
            return;
        }
        if self.rate.most() >= self.pipe.most * FULL_GROWTH {
            self.pipe = FullPipe { most: self.rate.most(), ..FullPipe::default() };
        } else {
            self.pipe.rounds += 1;
            self.pipe.full = self.pipe.rounds >= FULL_ROUNDS;
        }
    }

    fn change_mode(&mut self, ack: &Acknowledged) {
        if self.mode == Mode::Startup && self.pipe.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.flying as f64 <= self.product(1.0) {
            self.probe_rate(ack.now);
        }
        if self.mode == Mode::ProbeRate && self.phase_is_over(ack) {
            self.phase = (self.phase + 1) % PHASES.len();
            self.phase_began = ack.now;
        }
    }

    fn probe_rate(&mut self, now: Instant) {
        self.mode = Mode::ProbeRate;
        self.phase_began = now;
    }

    fn phase_is_over(&self, ack: &Acknowledged) -> bool {
        let least = self.least_rtt.map_or(Duration::ZERO, |(least, _)| least);
        let long_enough = ack.now.saturating_since(self.phase_began) > least;
        let (gain, flying) = (PHASES[self.phase], ack.flying as f64);
        if gain > 1.0 {
            long_enough && (ack.lost > 0 || flying + ack.count as f64 >= self.product(gain))
        } else if gain < 1.0 {
            long_enough || flying <= self.product(1.0)
        } else {
            long_enough
        }
    }

    fn update_least_rtt(&mut self, ack: &Acknowledged) {
        let expired = self.least_rtt.is_some_and(|(_, at)| ack.now.saturating_since(at) > LEAST_RTT_AGE);
        if let Some(rtt) = ack.rtt
            && self.least_rtt.is_none_or(|(least, _)| rtt < least || expired)
        {
            self.least_rtt = Some((rtt, ack.now));
        }
        if expired && self.mode != Mode::ProbeRoundTrip {
            self.mode = Mode::ProbeRoundTrip;
            self.saved = if self.repairing { self.saved } else { self.window };
            self.probe = Probe::default();
        }
        if self.mode == Mode::ProbeRoundTrip {
            self.probe_round_trip(ack);
        }
    }

    fn probe_round_trip(&mut self, ack: &Acknowledged) {
        match self.probe.until {
            None if ack.flying as f64 <= LEAST => {
                self.probe = Probe { until: Some(ack.now + PROBE_TIME), round_done: false };
                self.rounds.end = ack.delivered;
            }
            None => {}
            Some(until) => {
                self.probe.round_done |= self.rounds.begins;
                if self.probe.round_done && ack.now > until {
                    self.least_rtt = self.least_rtt.map(|(least, _)| (least, ack.now));
                    self.window = self.window.max(self.saved);
                    if self.pipe.full { self.probe_rate(ack.now) } else { self.mode = Mode::Startup }
                }
            }
        }
    }

    fn set_pace(&mut self, ack: &Acknowledged) {
        let gain = match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeRate => PHASES[self.phase],
            Mode::ProbeRoundTrip => 1.0,
        };
        let rate = match (self.rate.most(), ack.rtt.or(self.least_rtt.map(|(least, _)| least))) {
            (0.0, Some(rtt)) => self.window / rtt.as_secs_f64().max(1e-6),
            (0.0, None) => return,
            (rate, _) => rate,
        };
        let pace = rate * gain * PACE_SHARE;
        // In start-up an estimate that falls is one that has not seen enough.
        if self.pipe.full || self.pace.is_none_or(|before| pace > before) {
            self.pace = Some(pace);
        }
    }

    fn set_window(&mut self, ack: &Acknowledged) {
        let count = ack.count as f64;
        self.follow_repair(ack, count);
        if self.conserving {
            self.window = self.window.max(ack.flying as f64 + count);
        } else {
            let gain = if self.mode == Mode::ProbeRate { PROBE_RATE_WINDOW } else { HIGH_GAIN };
            let target = self.product(gain) + 3.0 * self.quantum;
            if self.pipe.full {
                self.window = (self.window + count).min(target);
            } else if self.window < target || (ack.delivered as f64) < self.initial_window {
                self.window += count;
            }
        }
        self.window = self.window.max(LEAST);
        if self.mode == Mode::ProbeRoundTrip {
            self.window = self.window.min(LEAST);
        }
    }

    fn follow_repair(&mut self, ack: &Acknowledged, count: f64) {
        if ack.lost > 0 {
            self.window = (self.window - ack.lost as f64).max(1.0);
        }
        match (self.repairing, ack.repairing) {
            (false, true) => {
                self.conserving = true;
                self.rounds.end = ack.delivered;
                self.window = ack.flying as f64 + count;
            }
            (true, false) => {
                self.conserving = false;
                self.window = self.window.max(self.saved);
            }
            _ if self.rounds.begins => self.conserving = false,
            _ => {}
        }
        self.repairing = ack.repairing;
    }

    /// Segments in flight that fill the path, times `gain`; the initial window before anything is known.
    fn product(&self, gain: f64) -> f64 {
        match self.least_rtt {
            Some((rtt, _)) if self.rate.most() > 0.0 => gain * self.rate.most() * rtt.as_secs_f64(),
            _ => self.initial_window * gain,
        }
    }
}

impl Control for Bbr {
    fn window(&self) -> f64 {
        self.window
    }

    fn acknowledged(&mut self, ack: &Acknowledged) {
        self.rounds.update(ack);
        self.update_rate(ack);
        self.look_for_the_full_pipe(ack);
        self.change_mode(ack);
        self.update_least_rtt(ack);
        self.set_pace(ack);
        self.set_window(ack);
    }

    fn congested(&mut self) -> Option<f64> {
        if self.mode != Mode::ProbeRoundTrip {
            self.saved = self.window;
        }
        None
    }

    fn timed_out(&mut self, again: bool) {
        if !again && !self.repairing && self.mode != Mode::ProbeRoundTrip {
            self.saved = self.window;
        }
        self.pipe.most = 0.0;
        self.window = 1.0;
    }

    fn undo(&mut self) {
        self.window = self.window.max(self.saved);
        self.pipe.most = 0.0;
        self.pipe.rounds = 0;
    }

    fn is_starting(&self) -> bool {
        !self.pipe.full || self.mode == Mode::Drain
    }

    fn pace(&self) -> Option<f64> {
        self.pace
    }
}

impl Rounds {
    fn update(&mut self, ack: &Acknowledged) {
        self.begins = ack.stamp.delivered >= self.end;
        if self.begins {
            self.end = ack.delivered;
            self.count += 1;
        }
    }
}

impl MostRecent {
    fn add(&mut self, round: u64, value: f64) {
        while self.0.back().is_some_and(|(_, before)| *before <= value) {
            self.0.pop_back();
        }
        self.0.push_back((round, value));
        while self.0.front().is_some_and(|(before, _)| before + RATE_ROUNDS < round) {
            self.0.pop_front();
        }
    }

    fn most(&self) -> f64 {
        self.0.front().map_or(0.0, |(_, value)| *value)
    }
}
