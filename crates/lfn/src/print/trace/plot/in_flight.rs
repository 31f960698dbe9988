//! Bytes in flight and the receive window over time.

use lfn_base::units::Bytes;
use lfn_trace::Extent;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axes::{Axes, Scale};
use super::legend::{self, Sample};
use super::view::View;
use crate::print::svg::{self, BLUE, Canvas, Drawn, INK, SMALL_FONT};

/// Highest window relative to the bytes in flight that the plot shows. A larger window does not limit.
const MAX_WINDOW: f64 = 2.5;

/// Draws the panel on its canvas.
pub fn draw(view: &View<'_>, canvas: &Canvas<'_>) -> Drawn {
    let (in_flight, window) = (highest(view, Figure::InFlight), highest(view, Figure::Window));
    let high = (in_flight as f64 * 1.05).max((window as f64).min(in_flight as f64 * MAX_WINDOW)).max(1000.0);
    let axes = Axes::new(canvas, view, Scale::quantity(0.0, high, "B"), 0);
    axes.draw("bytes")?;
    for line in axes.lines(line(view, Figure::InFlight)) {
        canvas.draw(&PathElement::new(line, BLUE.stroke_width(2)))?;
    }
    for line in axes.lines(line(view, Figure::Window)) {
        legend::draw_dashes(canvas, &line, INK)?;
    }
    if !axes.has(window as f64) {
        let label = format!("the window is above: up to {}", Bytes(window).decimal());
        svg::write(canvas, &label, (axes.right - 6, axes.top + 12), SMALL_FONT, INK, HPos::Right)?;
    }
    if view.acknowledgements().next().is_none() {
        axes.write_empty("no acknowledgements in this time")?;
    }
    let entries =
        [(Sample::Line(BLUE, 2), "bytes in flight".to_owned()), (Sample::Dashes(INK), "receive window".to_owned())];
    legend::draw(&axes, &entries)
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
fn line(view: &View<'_>, figure: Figure) -> Vec<(f64, f64)> {
    let mut line: Vec<(f64, f64)> = Vec::new();
    for point in view.shown(view.series.acknowledgements()) {
        let [start, end] = [point.start, point.end].map(|at| view.seconds(at));
        let [max, min, last] = {
            let extent = figure.of(&point.value);
            [extent.max, extent.min, extent.last].map(|bytes| bytes as f64)
        };
        if let Some((_, before)) = line.last().copied() {
            line.push((start, before));
        }
        line.extend([(start, max), ((start + end) / 2.0, min), (end, last)]);
    }
    line
}

/// Returns the panel in words.
pub fn describe(view: &View<'_>) -> String {
    let [in_flight, window] = [Figure::InFlight, Figure::Window].map(|figure| Bytes(highest(view, figure)).decimal());
    format!("At most {in_flight} in flight. The receive window is at most {window}.")
}
