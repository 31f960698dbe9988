//! Goodput of successive steps of the shown time.

use super::view::View;

/// Maximum number of steps of the line.
const MAX_STEPS: usize = 200;
const MIN_STEPS: usize = 10;
/// A step of this share of the base RTT shows each flight.
const SHORT_STEP: f64 = 0.2;
/// Maximum shown time with steps that are short enough to show single gaps, in base RTTs.
const MAX_IDLE_SPAN: f64 = 50.0;
/// Steps of the base RTT that find idle time.
const IDLE_STEPS: f64 = 25.0;
/// Minimum acknowledgements in a base RTT. Fewer ones are apart although data arrives all the time.
const MIN_IDLE_ACKS: f64 = 10.0;
/// Goodput below this share of the usual maximum is nearly idle.
const IDLE_SHARE: f64 = 1.0 / 3.0;

/// Goodput of successive steps.
pub(super) struct Steps {
    /// Bounds of the steps in seconds.
    pub bounds: Vec<f64>,
    /// Goodput of each step in bit/s.
    pub rates: Vec<f64>,
}

impl Steps {
    /// Returns the steps of the picture. Steps are much shorter than the base RTT, or a multiple of the base RTT. With
    /// other steps, the number of flights in a step varies.
    pub fn new(view: &View<'_>) -> Self {
        Steps::with_length(view, step_length(view))
    }

    fn with_length(view: &View<'_>, length: f64) -> Self {
        // The rest of the time belongs to the last step.
        let count = (((view.to - view.from) / length + 1e-6) as usize).max(1);
        let bounds: Vec<f64> = (0..count).map(|step| view.from + step as f64 * length).chain([view.to]).collect();
        let mut rates = vec![0.0; count];
        for point in view.acknowledgements().filter(|point| point.value.acknowledged > 0) {
            let start = view.seconds(point.start);
            let end = view.seconds(point.end);
            let bits = point.value.acknowledged as f64 * 8.0;
            let step = |time: f64| (((time - view.from) / length) as usize).min(count - 1);
            let first = step(start);
            let last = step(end);
            for number in first..=last {
                let (from, to) = (bounds[number], bounds[number + 1]);
                let share = match first == last {
                    true => 1.0,
                    false => ((end.min(to) - start.max(from)) / (end - start)).clamp(0.0, 1.0),
                };
                rates[number] += bits * share / (to - from);
            }
        }
        Steps { bounds, rates }
    }

    /// Returns the highest goodput.
    pub fn peak(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the 95th percentile of the steps with data.
    pub fn usual_maximum(&self) -> f64 {
        let mut sorted: Vec<f64> = self.rates.iter().copied().filter(|rate| *rate > 0.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) * 95 / 100).copied().unwrap_or(0.0)
    }

    /// Returns the length of the first step in seconds.
    pub fn length(&self) -> f64 {
        self.bounds[1] - self.bounds[0]
    }
}

fn step_length(view: &View<'_>) -> f64 {
    let count = (view.acknowledgements().count() / 2).clamp(MIN_STEPS, MAX_STEPS);
    let span = view.to - view.from;
    let rtt = view.evidence.rtt.base.as_secs_f64();
    let length = span / count as f64;
    let rtts = (length / rtt - 1e-6).ceil();
    let is_short = length <= SHORT_STEP * rtt;
    if is_short || rtt == 0.0 || rtts * rtt > span { length } else { rtts * rtt }
}

/// Returns the share of the shown time with a goodput below a third of its usual maximum. None if the base RTT is
/// unknown, if the time is too long for single gaps, or if the acknowledgements are too few or too far apart.
pub(super) fn idle_share(view: &View<'_>) -> Option<f64> {
    let rtt = view.evidence.rtt.base.as_secs_f64();
    let span = view.to - view.from;
    if rtt == 0.0 || span > MAX_IDLE_SPAN * rtt || span < rtt {
        return None;
    }
    let mut points = view.acknowledgements();
    if points.any(|point| view.seconds(point.end) - view.seconds(point.start) > SHORT_STEP * rtt) {
        return None;
    }
    if (view.acknowledgements().count() as f64) < MIN_IDLE_ACKS * span / rtt {
        return None;
    }
    let steps = Steps::with_length(view, rtt / IDLE_STEPS);
    let limit = IDLE_SHARE * steps.usual_maximum();
    let idle = steps.rates.iter().filter(|rate| **rate <= limit).count();
    Some(idle as f64 / steps.rates.len() as f64)
}
