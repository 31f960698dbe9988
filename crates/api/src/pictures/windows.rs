//! The receive window in a chart of windows, and the distribution of the RTT.

use lfn_base::units::Bytes;
use lfn_plot::{BLUE, Dash, GREEN, Mark, ORANGE, Panel, Point, Series, Shape, cdf, point};
use lfn_results::latency::RttDistribution;

use super::{highest, line, seconds};

/// Maximum height of the receive window over the other lines, for an axis that reaches it.
const MAX_AXIS_FACTOR: f64 = 1.5;
/// Free room above the highest line.
const ROOM: f64 = 1.05;

/// Adds the congestion window and the data in flight, and chooses the axis from them.
pub(super) fn add_congestion(panel: &mut Panel, congestion: Vec<Point>, unacknowledged: Vec<Point>) {
    panel.y.high = highest(&congestion).max(highest(&unacknowledged)) * ROOM;
    panel.series.push(line("congestion window", BLUE, Dash::Solid, congestion));
    if !unacknowledged.is_empty() {
        panel.series.push(line("not yet acknowledged", GREEN, Dash::Dots, unacknowledged));
    }
}

/// Adds the receive window. The axis reaches the window if it is near the other lines. A window that is above the axis
/// everywhere is only in the legend.
pub(super) fn add_receive_window(panel: &mut Panel, receive: Vec<Point>) {
    let high = highest(&receive);
    if panel.y.high <= 0.0 || high * ROOM <= MAX_AXIS_FACTOR * panel.y.high {
        panel.y.high = panel.y.high.max(high * ROOM);
    }
    let low = receive.iter().map(|at| at.y).filter(|y| y.is_finite()).fold(f64::INFINITY, f64::min);
    let (name, points) = match panel.y.high {
        top if low.is_finite() && low > top => (format!("receive window: above {}", two_digits(low)), Vec::new()),
        top if high > top => ("receive window (in part above)".into(), receive),
        _ => ("receive window".into(), receive),
    };
    panel.series.push(line(name, ORANGE, Dash::Long, points));
}

/// Formats a number of bytes, rounded down to two digits.
fn two_digits(bytes: f64) -> String {
    let digit = 10f64.powf((bytes.max(1.0).log10().floor() - 1.0).max(0.0));
    Bytes(((bytes / digit).floor() * digit) as u64).decimal().to_string()
}

/// Adds the distribution of the smoothed RTT of a sender.
pub(super) fn add_smoothed_rtt(panel: &mut Panel, rtts: &[f64]) {
    panel.series.push(line(format!("smoothed RTT, {} samples", rtts.len()), BLUE, Dash::Solid, cdf(rtts)));
}

/// Adds the known quantiles of the probes. No line connects them, because the values between them are unknown.
pub(super) fn add_quantiles(panel: &mut Panel, rtt: &RttDistribution) {
    let known = [(rtt.min, 0.0), (rtt.p50, 50.0), (rtt.p90, 90.0), (rtt.p99, 99.0), (rtt.max, 100.0)];
    let points: Vec<Point> = known.map(|(rtt, share)| point(seconds(rtt), share)).to_vec();
    panel.x.high = panel.x.high.max(seconds(rtt.max));
    let name = "probes: minimum, 50 %, 90 %, 99 %, maximum".into();
    panel.series.push(Series { name, color: ORANGE, shape: Shape::Marks { points, mark: Mark::Diamond } });
}

#[cfg(test)]
mod tests {
    use lfn_plot::{Axis, Unit};

    use super::*;

    /// Returns the axis, the name of the receive window and the number of its points, with a congestion window of 4 MB.
    fn drawn(receive: &[f64]) -> (f64, String, usize) {
        let points = |values: &[f64]| values.iter().enumerate().map(|(at, value)| point(at as f64, *value)).collect();
        let bytes = Axis::from_zero("bytes", Unit::Bytes, 0.0);
        let mut panel = Panel::new("windows", Axis::from_zero("time", Unit::Seconds, 1.0), bytes);
        add_congestion(&mut panel, points(&[1e6, 4e6]), Vec::new());
        add_receive_window(&mut panel, points(receive));
        let window = panel.series.pop().unwrap();
        let Shape::Line { points, .. } = window.shape else { panic!("a line") };
        ((panel.y.high / 1e5).round() * 1e5, window.name, points.len())
    }

    #[test]
    fn a_receive_window_far_above_is_only_in_the_legend() {
        assert_eq!(drawn(&[12.58e6, 12.6e6]), (4.2e6, "receive window: above 12 MB".into(), 0));
    }

    #[test]
    fn the_axis_reaches_a_receive_window_that_is_near() {
        assert_eq!(drawn(&[5e6, 5.5e6]), (5.8e6, "receive window".into(), 2));
        assert_eq!(drawn(&[1e6, 2e6]), (4.2e6, "receive window".into(), 2));
        assert_eq!(drawn(&[]), (4.2e6, "receive window".into(), 0));
    }

    #[test]
    fn a_receive_window_that_leaves_the_chart_is_drawn() {
        assert_eq!(drawn(&[65_535.0, 12.6e6]), (4.2e6, "receive window (in part above)".into(), 2));
    }
}
