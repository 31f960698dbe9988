//! CUBIC congestion control (RFC 9438).

use lfn_base::time::Instant;

use super::algorithm::{AckSample, CongestionControl, MIN_WINDOW};
use super::hystart::{Growth, HyStart};

/// A window that grows with the cube of the time since it last had its size before the last loss.
pub(super) struct Cubic {
    state: State,
    /// State before the last reduction.
    before: State,
    hystart: Option<HyStart>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    window: f64,
    /// The window up to which slow start grows.
    threshold: f64,
    /// W_max: the window where the cubic function is flat.
    w_max: f64,
    /// Window at the last reduction.
    prior: f64,
    /// Current epoch of congestion avoidance, if it has begun.
    epoch: Option<Epoch>,
    /// True if the next epoch follows slow start without a loss, or a timeout. Its W_max is then its first window (§4.8
    /// and §4.10).
    starts_at_w_max: bool,
}

/// An epoch of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began: Instant,
    /// K: seconds until the window reaches W_max.
    seconds_to_w_max: f64,
    /// W_est: the window that Reno would have.
    w_est: f64,
}

/// C of §5, in segments per second cubed.
const C: f64 = 0.4;
/// Multiplicative decrease of §4.6.
const BETA: f64 = 0.7;
/// Increase of §4.3 that makes W_est as fair to Reno as Reno itself.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

impl Cubic {
    pub(super) fn new(initial_window: f64, hystart: bool) -> Self {
        let state = State {
            window: initial_window,
            threshold: f64::INFINITY,
            w_max: 0.0,
            prior: f64::INFINITY,
            epoch: None,
            starts_at_w_max: true,
        };
        Cubic { state, before: state, hystart: hystart.then(HyStart::new) }
    }

    /// Grows the window in slow start. Returns the acknowledged segments that remain for congestion avoidance.
    fn slow_start(&mut self, ack: &AckSample) -> f64 {
        let (count, state) = (ack.count as f64, &mut self.state);
        let room = state.threshold - state.window;
        if room <= 0.0 {
            return count;
        }
        // Only the first slow start has no known threshold.
        let growth = self.hystart.as_mut().filter(|_| room.is_infinite()).map(|hystart| hystart.on_ack(ack));
        match growth.unwrap_or(Growth::Share(1.0)) {
            Growth::Share(share) => {
                state.window += (count * share).min(room);
                (count - room / share).max(0.0)
            }
            Growth::Over => {
                state.threshold = state.window;
                count
            }
        }
    }

    fn avoid_congestion(&mut self, count: f64, ack: &AckSample) {
        let state = &mut self.state;
        let epoch = match &mut state.epoch {
            Some(epoch) => epoch,
            None => {
                if state.starts_at_w_max {
                    state.w_max = state.window;
                }
                let seconds_to_w_max = libm::cbrt((state.w_max - state.window).max(0.0) / C);
                state.epoch.insert(Epoch { began: ack.now, seconds_to_w_max, w_est: state.window })
            }
        };
        let rtt = ack.rtt.map_or(0.0, |rtt| rtt.as_secs_f64());
        let since = ack.now.saturating_since(epoch.began).as_secs_f64();
        let cubic = |at: f64| {
            let past = at - epoch.seconds_to_w_max;
            C * past * past * past + state.w_max
        };
        // §4.3: as fast as Reno once W_est has reached the window before the loss.
        let alpha = if epoch.w_est < state.prior { ALPHA } else { 1.0 };
        epoch.w_est += alpha * count / state.window;
        if cubic(since) < epoch.w_est {
            state.window = state.window.max(epoch.w_est);
        } else {
            let target = cubic(since + rtt).clamp(state.window, 1.5 * state.window);
            state.window += (target - state.window) / state.window * count;
        }
    }

    fn reduce(&mut self) {
        self.before = self.state;
        let state = &mut self.state;
        // §4.7, fast convergence: a shrinking window leaves room for other flows.
        let shrinks = state.window < state.w_max;
        state.w_max = if shrinks { state.window * (1.0 + BETA) / 2.0 } else { state.window };
        state.prior = state.window;
        state.threshold = (state.window * BETA).max(MIN_WINDOW);
        state.window = state.threshold;
        state.epoch = None;
        state.starts_at_w_max = false;
    }
}

impl CongestionControl for Cubic {
    fn window(&self) -> f64 {
        self.state.window
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if ack.in_recovery {
            return;
        }
        if !ack.full {
            // §5.8: the window must not grow for time in which it did not limit the sender.
            if let Some(epoch) = &mut self.state.epoch {
                epoch.began = epoch.began.max(ack.now);
                epoch.seconds_to_w_max = libm::cbrt((self.state.w_max - self.state.window).max(0.0) / C);
            }
            return;
        }
        let left = self.slow_start(ack);
        if left > 0.0 {
            self.avoid_congestion(left, ack);
        }
    }

    fn on_congestion(&mut self) -> Option<f64> {
        self.reduce();
        Some(self.state.window)
    }

    fn on_timeout(&mut self, is_repeated: bool) {
        if !is_repeated {
            self.reduce();
        }
        self.state.window = 1.0;
        self.state.starts_at_w_max = true;
    }

    fn undo(&mut self) {
        let window = self.state.window.max(self.before.window);
        self.state = State { window, epoch: None, ..self.before };
    }

    fn is_starting(&self) -> bool {
        self.state.threshold.is_infinite()
    }
}
