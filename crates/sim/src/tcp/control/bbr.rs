//! BBR, version 1, as in Linux: a model of the path instead of a reaction to loss.
//!
//! BBR sends at the maximum delivery rate of the last ten round trips. It probes for more in one of eight phases, and
//! every ten seconds it empties the queue to measure the minimum RTT again (Cardwell et al., "BBR: Congestion-Based
//! Congestion Control", 2016; draft-cardwell-iccrg-bbr-congestion-control-00; constants of `tcp_bbr.c`). Two parts of
//! Linux's version are missing: the detection of token-bucket policers and the allowance for aggregated
//! acknowledgements.

use std::collections::VecDeque;
use std::time::Duration;

use lfn_base::time::Instant;

use super::algorithm::{AckSample, CongestionControl};

/// Estimates of the path, and the current mode.
pub(super) struct Bbr {
    mode: Mode,
    window: f64,
    initial_window: f64,
    /// Segments that leave together.
    quantum: f64,
    rate: WindowedMax,
    rounds: Rounds,
    min_rtt: Option<(Duration, Instant)>,
    /// Pacing rate in segments per second; `None` before the first round trip.
    pace: Option<f64>,
    pipe: FullPipe,
    phase: usize,
    phase_began: Instant,
    probe: Probe,
    /// True in the first round trip of a recovery: as many segments leave as arrive.
    conserving: bool,
    in_recovery: bool,
    /// Window before a recovery or an RTT probe.
    saved_window: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// Maximum of a rate over the last rounds.
#[derive(Debug, Default)]
struct WindowedMax(VecDeque<(u64, f64)>);

/// Counts round trips by delivered segments.
#[derive(Debug, Default)]
struct Rounds {
    count: u64,
    /// The round ends with the acknowledgement of a segment that was sent after this many were delivered.
    end: u64,
    /// True if the current acknowledgement begins a round.
    begins: bool,
}

/// Detects whether start-up still finds more bandwidth.
#[derive(Debug, Default)]
struct FullPipe {
    peak: f64,
    rounds: u32,
    full: bool,
}

/// State of an RTT probe.
#[derive(Debug, Default)]
struct Probe {
    until: Option<Instant>,
    round_done: bool,
}

/// 2/ln 2: the minimum gain that doubles the rate in each round trip.
const HIGH_GAIN: f64 = 2.885;
const PACING_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const PROBE_BANDWIDTH_GAIN: f64 = 2.0;
const BANDWIDTH_ROUNDS: u64 = 10;
const MAX_MIN_RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const MIN_WINDOW: f64 = 4.0;
/// Start-up ends after three rounds without a quarter more bandwidth.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Paces slightly below the estimate, so that no standing queue builds up.
const PACE_SHARE: f64 = 0.99;

impl Bbr {
    pub(super) fn new(initial_window: f64, grain: u32, stream: u32) -> Self {
        Bbr {
            mode: Mode::Startup,
            window: initial_window,
            initial_window,
            quantum: f64::from(grain),
            rate: WindowedMax::default(),
            rounds: Rounds::default(),
            min_rtt: None,
            pace: None,
            pipe: FullPipe::default(),
            // Streams probe at different times, and none begins by draining. Linux draws the phase at random.
            phase: (2 + stream as usize % 7) % PACING_GAINS.len(),
            phase_began: Instant::ZERO,
            probe: Probe::default(),
            conserving: false,
            in_recovery: false,
            saved_window: initial_window,
        }
    }

    fn update_rate(&mut self, ack: &AckSample) {
        let sending = ack.stamp.sent.saturating_since(ack.stamp.first_sent);
        let arriving = ack.now.saturating_since(ack.stamp.delivered_at);
        let interval = sending.max(arriving);
        let too_short = self.min_rtt.is_some_and(|(shortest, _)| interval < shortest);
        if interval.is_zero() || too_short {
            return;
        }
        let rate = ack.delivered.saturating_sub(ack.stamp.delivered) as f64 / interval.as_secs_f64();
        if !ack.stamp.limited || rate >= self.rate.peak() {
            self.rate.add(self.rounds.count, rate);
        }
    }

    fn detect_full_pipe(&mut self, ack: &AckSample) {
        if self.pipe.full || !self.rounds.begins || ack.stamp.limited {
            return;
        }
        if self.rate.peak() >= self.pipe.peak * FULL_GROWTH {
            self.pipe = FullPipe { peak: self.rate.peak(), ..FullPipe::default() };
        } else {
            self.pipe.rounds += 1;
            self.pipe.full = self.pipe.rounds >= FULL_ROUNDS;
        }
    }

    fn change_mode(&mut self, ack: &AckSample) {
        if self.mode == Mode::Startup && self.pipe.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.in_flight as f64 <= self.target_in_flight(1.0) {
            self.probe_bandwidth(ack.now);
        }
        if self.mode == Mode::ProbeBandwidth && self.phase_is_over(ack) {
            self.phase = (self.phase + 1) % PACING_GAINS.len();
            self.phase_began = ack.now;
        }
    }

    fn probe_bandwidth(&mut self, now: Instant) {
        self.mode = Mode::ProbeBandwidth;
        self.phase_began = now;
    }

    fn phase_is_over(&self, ack: &AckSample) -> bool {
        let shortest = self.min_rtt.map_or(Duration::ZERO, |(shortest, _)| shortest);
        let long_enough = ack.now.saturating_since(self.phase_began) > shortest;
        let (gain, in_flight) = (PACING_GAINS[self.phase], ack.in_flight as f64);
        if gain > 1.0 {
            long_enough && (ack.lost > 0 || in_flight + ack.count as f64 >= self.target_in_flight(gain))
        } else if gain < 1.0 {
            long_enough || in_flight <= self.target_in_flight(1.0)
        } else {
            long_enough
        }
    }

    fn update_min_rtt(&mut self, ack: &AckSample) {
        let expired = self.min_rtt.is_some_and(|(_, at)| ack.now.saturating_since(at) > MAX_MIN_RTT_AGE);
        if let Some(rtt) = ack.rtt
            && self.min_rtt.is_none_or(|(shortest, _)| rtt < shortest || expired)
        {
            self.min_rtt = Some((rtt, ack.now));
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.saved_window = if self.in_recovery { self.saved_window } else { self.window };
            self.probe = Probe::default();
        }
        if self.mode == Mode::ProbeRtt {
            self.probe_rtt(ack);
        }
    }

    fn probe_rtt(&mut self, ack: &AckSample) {
        match self.probe.until {
            None if ack.in_flight as f64 <= MIN_WINDOW => {
                self.probe = Probe { until: Some(ack.now + PROBE_RTT_TIME), round_done: false };
                self.rounds.end = ack.delivered;
            }
            None => {}
            Some(until) => {
                self.probe.round_done |= self.rounds.begins;
                if self.probe.round_done && ack.now > until {
                    self.min_rtt = self.min_rtt.map(|(shortest, _)| (shortest, ack.now));
                    self.window = self.window.max(self.saved_window);
                    if self.pipe.full { self.probe_bandwidth(ack.now) } else { self.mode = Mode::Startup }
                }
            }
        }
    }

    fn set_pace(&mut self, ack: &AckSample) {
        let gain = match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBandwidth => PACING_GAINS[self.phase],
            Mode::ProbeRtt => 1.0,
        };
        let rate = match (self.rate.peak(), ack.rtt.or(self.min_rtt.map(|(shortest, _)| shortest))) {
            (0.0, Some(rtt)) => self.window / rtt.as_secs_f64().max(1e-6),
            (0.0, None) => return,
            (rate, _) => rate,
        };
        let pace = rate * gain * PACE_SHARE;
        // In start-up, a lower estimate is only an incomplete one.
        if self.pipe.full || self.pace.is_none_or(|before| pace > before) {
            self.pace = Some(pace);
        }
    }

    fn set_window(&mut self, ack: &AckSample) {
        let count = ack.count as f64;
        self.follow_recovery(ack, count);
        if self.conserving {
            self.window = self.window.max(ack.in_flight as f64 + count);
        } else {
            let gain = if self.mode == Mode::ProbeBandwidth { PROBE_BANDWIDTH_GAIN } else { HIGH_GAIN };
            let target = self.target_in_flight(gain) + 3.0 * self.quantum;
            if self.pipe.full {
                self.window = (self.window + count).min(target);
            } else if self.window < target || (ack.delivered as f64) < self.initial_window {
                self.window += count;
            }
        }
        self.window = self.window.max(MIN_WINDOW);
        if self.mode == Mode::ProbeRtt {
            self.window = self.window.min(MIN_WINDOW);
        }
    }

    fn follow_recovery(&mut self, ack: &AckSample, count: f64) {
        if ack.lost > 0 {
            self.window = (self.window - ack.lost as f64).max(1.0);
        }
        match (self.in_recovery, ack.in_recovery) {
            (false, true) => {
                self.conserving = true;
                self.rounds.end = ack.delivered;
                self.window = ack.in_flight as f64 + count;
            }
            (true, false) => {
                self.conserving = false;
                self.window = self.window.max(self.saved_window);
            }
            _ if self.rounds.begins => self.conserving = false,
            _ => {}
        }
        self.in_recovery = ack.in_recovery;
    }

    /// Returns the segments in flight that fill the path, times `gain`; before any measurement, the initial window
    /// times `gain`.
    fn target_in_flight(&self, gain: f64) -> f64 {
        match self.min_rtt {
            Some((rtt, _)) if self.rate.peak() > 0.0 => gain * self.rate.peak() * rtt.as_secs_f64(),
            _ => self.initial_window * gain,
        }
    }
}

impl CongestionControl for Bbr {
    fn window(&self) -> f64 {
        self.window
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.rounds.update(ack);
        self.update_rate(ack);
        self.detect_full_pipe(ack);
        self.change_mode(ack);
        self.update_min_rtt(ack);
        self.set_pace(ack);
        self.set_window(ack);
    }

    fn on_congestion(&mut self) -> Option<f64> {
        if self.mode != Mode::ProbeRtt {
            self.saved_window = self.window;
        }
        None
    }

    fn on_timeout(&mut self, is_repeated: bool) {
        if !is_repeated && !self.in_recovery && self.mode != Mode::ProbeRtt {
            self.saved_window = self.window;
        }
        self.pipe.peak = 0.0;
        self.window = 1.0;
    }

    fn undo(&mut self) {
        self.window = self.window.max(self.saved_window);
        self.pipe.peak = 0.0;
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
    fn update(&mut self, ack: &AckSample) {
        self.begins = ack.stamp.delivered >= self.end;
        if self.begins {
            self.end = ack.delivered;
            self.count += 1;
        }
    }
}

impl WindowedMax {
    fn add(&mut self, round: u64, value: f64) {
        while self.0.back().is_some_and(|(_, before)| *before <= value) {
            self.0.pop_back();
        }
        self.0.push_back((round, value));
        while self.0.front().is_some_and(|(before, _)| before + BANDWIDTH_ROUNDS < round) {
            self.0.pop_front();
        }
    }

    fn peak(&self) -> f64 {
        self.0.front().map_or(0.0, |(_, value)| *value)
    }
}
