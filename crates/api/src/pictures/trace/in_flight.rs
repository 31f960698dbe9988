//! Bytes in flight and the receive window over time.

use lfn_base::units::Bytes;
use lfn_plot::{Axis, BLUE, Dash, INK, Label, Panel, Point, Unit, point};
use lfn_trace::Extent;

use super::view::View;
use crate::pictures::line;

/// Highest window relative to the bytes in flight that the plot shows. A larger window does not limit.
const MAX_WINDOW: f64 = 2.5;

/// Returns the bytes in flight and the windows over time.
pub(super) fn panel(view: &View<'_>) -> Panel {
    let (in_flight, window) = (highest(view, Figure::InFlight), highest(view, Figure::Window));
    let high = (in_flight as f64 * 1.05).max((window as f64).min(in_flight as f64 * MAX_WINDOW)).max(1000.0);
    let mut panel = view.panel("Bytes in flight and receive window", Axis::from_zero("bytes", Unit::Bytes, high));
    panel.series.push(line("bytes in flight", BLUE, Dash::Solid, steps(view, Figure::InFlight)));
    panel.series.push(line("receive window", INK, Dash::Long, steps(view, Figure::Window)));
    if window as f64 > 1.3 * high {
        let text = format!("the window is above: up to {}", Bytes(window).decimal());
        panel.labels.push(Label { at: point(view.to, f64::from(u32::MAX) * high), text, color: INK });
    }
    if view.acknowledgements().next().is_none() {
        panel.note = Some("no acknowledgements in this time".into());
    }
    panel
}

/// Figure of the acknowledgements that the panel shows.
#[derive(Clone, Copy)]
enum Figure {
    InFlight,
    Window,
}

impl Figure {
    fn of(self, point: &lfn_trace::AcknowledgedRange) -> Extent {
        match self {
            Figure::InFlight => point.in_flight,
            Figure::Window => point.window,
        }
    }
}

fn highest(view: &View<'_>, figure: Figure) -> u64 {
    view.acknowledgements().map(|point| figure.of(&point.value).max).max().unwrap_or(0)
}

/// Returns a line with steps. A merged point has its maximum, its minimum and its last value.
fn steps(view: &View<'_>, figure: Figure) -> Vec<Point> {
    let mut line: Vec<Point> = Vec::new();
    for acknowledged in view.shown(view.series.acknowledgements()) {
        let [start, end] = [acknowledged.start, acknowledged.end].map(|at| view.seconds(at));
        let extent = figure.of(&acknowledged.value);
        let [max, min, last] = [extent.max, extent.min, extent.last].map(|bytes| bytes as f64);
        line.extend(line.last().map(|before| point(start, before.y)));
        line.extend([point(start, max), point((start + end) / 2.0, min), point(end, last)]);
    }
    line
}

/// Returns the panel in words.
pub(super) fn describe(view: &View<'_>) -> String {
    let [in_flight, window] = [Figure::InFlight, Figure::Window].map(|figure| Bytes(highest(view, figure)).decimal());
    format!("At most {in_flight} in flight. The receive window is at most {window}.")
}
