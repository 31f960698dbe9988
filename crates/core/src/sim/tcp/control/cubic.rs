//! CUBIC: RFC 9438.

use super::hystart::{Growth, HyStart};
use super::{Acknowledged, Control, LEAST_WINDOW};
use crate::time::Instant;

/// A window that grows with the cube of the time since it was last as large as at the last loss.
pub(super) struct Cubic {
    state: State,
    /// As it was before the last reduction.
    before: State,
    hystart: Option<HyStart>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    window: f64,
    /// Slow start below.
    threshold: f64,
    /// W_max: where the cubic is flat.
    plateau: f64,
    /// The window at the last reduction.
    prior: f64,
    /// The stage of congestion avoidance, once begun.
    stage: Option<Stage>,
    /// True if the next stage comes after slow start without a loss, or after a timeout: then its plateau is where it
    /// begins (§4.8 and §4.10).
    fresh: bool,
}

/// A stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Stage {
    began: Instant,
    /// Seconds until the plateau: K.
    until_plateau: f64,
    /// W_est: what Reno would have.
    reno: f64,
}

/// §5: C, in segments a second cubed.
const C: f64 = 0.4;
/// §4.6.
const BETA: f64 = 0.7;
/// §4.3: what makes W_est as fair to Reno as Reno is.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

impl Cubic {
    pub(super) fn new(initial_window: f64, hystart: bool) -> Self {
        let state = State {
            window: initial_window,
            threshold: f64::INFINITY,
            plateau: 0.0,
            prior: f64::INFINITY,
            stage: None,
            fresh: true,
        };
        Cubic { state, before: state, hystart: hystart.then(HyStart::new) }
    }

    /// How many of `count` acknowledged segments slow start leaves.
    fn slow_start(&mut self, ack: &Acknowledged) -> f64 {
        let (count, state) = (ack.count as f64, &mut self.state);
        let room = state.threshold - state.window;
        if room <= 0.0 {
            return count;
        }
        // Only the first slow start is one into the unknown.
        let growth = self.hystart.as_mut().filter(|_| room.is_infinite()).map(|hystart| hystart.acknowledged(ack));
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

    fn avoid(&mut self, count: f64, ack: &Acknowledged) {
        let state = &mut self.state;
        let stage = match &mut state.stage {
            Some(stage) => stage,
            None => {
                if state.fresh {
                    state.plateau = state.window;
                }
                let until_plateau = libm::cbrt((state.plateau - state.window).max(0.0) / C);
                state.stage.insert(Stage { began: ack.now, until_plateau, reno: state.window })
            }
        };
        let rtt = ack.rtt.map_or(0.0, |rtt| rtt.as_secs_f64());
        let since = ack.now.saturating_since(stage.began).as_secs_f64();
        let cubic = |at: f64| {
            let past = at - stage.until_plateau;
            C * past * past * past + state.plateau
        };
        // §4.3: once it is where the loss was, as fast as Reno.
        let alpha = if stage.reno < state.prior { ALPHA } else { 1.0 };
        stage.reno += alpha * count / state.window;
        if cubic(since) < stage.reno {
            state.window = state.window.max(stage.reno);
        } else {
            let target = cubic(since + rtt).clamp(state.window, 1.5 * state.window);
            state.window += (target - state.window) / state.window * count;
        }
    }

    fn reduce(&mut self) {
        self.before = self.state;
        let state = &mut self.state;
        // §4.7, fast convergence: one that shrinks makes room for others.
        let shrinks = state.window < state.plateau;
        state.plateau = if shrinks { state.window * (1.0 + BETA) / 2.0 } else { state.window };
        state.prior = state.window;
        state.threshold = (state.window * BETA).max(LEAST_WINDOW);
        state.window = state.threshold;
        state.stage = None;
        state.fresh = false;
    }
}

impl Control for Cubic {
    fn window(&self) -> f64 {
        self.state.window
    }

    fn acknowledged(&mut self, ack: &Acknowledged) {
        if ack.repairing {
            return;
        }
        if !ack.full {
            // §5.8: time in which the window was not what held back is not time in which it may grow.
            if let Some(stage) = &mut self.state.stage {
                stage.began = stage.began.max(ack.now);
                stage.until_plateau = libm::cbrt((self.state.plateau - self.state.window).max(0.0) / C);
            }
            return;
        }
        let left = self.slow_start(ack);
        if left > 0.0 {
            self.avoid(left, ack);
        }
    }

    fn congested(&mut self) -> Option<f64> {
        self.reduce();
        Some(self.state.window)
    }

    fn timed_out(&mut self, again: bool) {
        if !again {
            self.reduce();
        }
        self.state.window = 1.0;
        self.state.fresh = true;
    }

    fn undo(&mut self) {
        let window = self.state.window.max(self.before.window);
        self.state = State { window, stage: None, ..self.before };
    }

    fn is_starting(&self) -> bool {
        self.state.threshold.is_infinite()
    }
}
