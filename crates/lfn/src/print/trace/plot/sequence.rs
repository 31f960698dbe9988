//! Time-sequence: sent data, acknowledgements and the end of the window, with marks for retransmissions.

use std::collections::BTreeSet;

use lfn_trace::{Point, SentKind, SentRange};
use plotters::prelude::*;

use super::axes::{Axes, Scale};
use super::legend::{self, Sample};
use super::view::View;
use crate::print::svg::{BLUE, Canvas, Drawn, GREEN, INK, ORANGE, Pixel, RED};

/// Maximum height of the window above the data, relative to the height of the data.
const MAX_ABOVE: f64 = 0.4;
/// Width of the lines, pixels.
const DATA_WIDTH: u32 = 4;
const ACKNOWLEDGED_WIDTH: u32 = 2;
/// Side of the squares that have at most one mark of a kind.
const MARK_GRID: i32 = 5;

/// Draws the panel on its canvas.
pub fn draw(view: &View<'_>, canvas: &Canvas<'_>) -> Drawn {
    let (low, data_high) = extent(view);
    let window_high = view.acknowledgements().map(|point| point.value.window_end as f64).fold(0.0, f64::max);
    let high = window_high.min(data_high + MAX_ABOVE * (data_high - low)).max(data_high).max(low + 1000.0);
    let axes = Axes::new(canvas, view, Scale::quantity(low, high, "B"), 0);
    axes.draw("byte of the stream")?;

    let acknowledgements = view.shown(view.series.acknowledgements());
    let mut window: Vec<(f64, f64)> = Vec::new();
    let mut acknowledged: Vec<(f64, f64)> = Vec::new();
    for point in acknowledgements {
        let times = [point.start, point.end].map(|at| view.seconds(at));
        step(&mut window, times, point.value.window_end as f64);
        step(&mut acknowledged, times, point.value.offset as f64);
    }
    for line in axes.lines(acknowledged) {
        canvas.draw(&PathElement::new(line, GREEN.stroke_width(ACKNOWLEDGED_WIDTH)))?;
    }
    let sent = view.shown(view.series.data(SentKind::New)).iter().flat_map(|point| {
        [(view.seconds(point.start), point.value.start as f64), (view.seconds(point.end), point.value.end as f64)]
    });
    for line in axes.lines(sent) {
        canvas.draw(&PathElement::new(line, BLUE.stroke_width(DATA_WIDTH)))?;
    }
    // The data reaches the end of a full window, so the window is drawn above the data.
    for line in axes.lines(window) {
        legend::draw_dashes(canvas, &line, INK)?;
    }
    for at in marks(&axes, view, SentKind::FillsGap) {
        legend::draw_ring(canvas, at, ORANGE)?;
    }
    for at in marks(&axes, view, SentKind::Retransmission) {
        legend::draw_cross(canvas, at, RED)?;
    }
    if view.shown(view.series.data(SentKind::New)).is_empty() && acknowledgements.is_empty() {
        axes.write_empty("no data in this time")?;
    }
    draw_legend(view, &axes, window_high)
}

fn draw_legend(view: &View<'_>, axes: &Axes<'_, '_>, window_high: f64) -> Drawn {
    let window = if axes.has(window_high) { "end of the window" } else { "end of the window (in part above)" };
    let mut entries = vec![
        (Sample::Line(BLUE, DATA_WIDTH), "data".to_owned()),
        (Sample::Line(GREEN, ACKNOWLEDGED_WIDTH), "acknowledgements".to_owned()),
        (Sample::Dashes(INK), window.to_owned()),
    ];
    let retransmissions = segments(view, SentKind::Retransmission);
    if retransmissions > 0 {
        entries.push((Sample::Cross(RED), format!("retransmissions ({retransmissions})")));
    }
    let fills = segments(view, SentKind::FillsGap);
    if fills > 0 {
        entries.push((Sample::Ring(ORANGE), format!("fills a gap ({fills})")));
    }
    legend::draw(axes, &entries)
}

/// Continues a line at its last value up to a point, then draws it to the value of this point.
pub fn step(line: &mut Vec<(f64, f64)>, [start, end]: [f64; 2], value: f64) {
    if let Some((_, before)) = line.last().copied() {
        line.push((start, before));
    }
    line.push((end, value));
}

/// Returns the lowest and the highest byte of the data and the acknowledgements.
fn extent(view: &View<'_>) -> (f64, f64) {
    let acknowledged = view.acknowledgements().map(|point| (point.value.offset, point.value.offset));
    let kinds = [SentKind::New, SentKind::Retransmission, SentKind::FillsGap];
    let sent = kinds.into_iter().flat_map(|kind| inside(view, kind)).map(|point| (point.value.start, point.value.end));
    let all = acknowledged.chain(sent).fold(None, |all: Option<(u64, u64)>, (low, high)| {
        let (lowest, highest) = all.unwrap_or((low, high));
        Some((lowest.min(low), highest.max(high)))
    });
    all.map_or((0.0, 1000.0), |(low, high)| (low as f64, high as f64))
}

/// Returns the sent data of a kind within the shown time.
fn inside<'a>(view: &'a View<'a>, kind: SentKind) -> impl Iterator<Item = &'a Point<SentRange>> {
    view.shown(view.series.data(kind)).iter().filter(|point| view.seconds(point.end) >= view.from)
}

fn segments(view: &View<'_>, kind: SentKind) -> u64 {
    inside(view, kind).map(|point| point.value.segments).sum()
}

/// Returns the places of the marks of a kind. Marks that would cover each other are drawn once.
fn marks(axes: &Axes<'_, '_>, view: &View<'_>, kind: SentKind) -> BTreeSet<Pixel> {
    let places = inside(view, kind).map(|point| {
        let middle = (point.value.start as f64 + point.value.end as f64) / 2.0;
        (axes.x(view.seconds(point.start)), axes.y(middle))
    });
    places.map(|(x, y)| (x / MARK_GRID * MARK_GRID, y / MARK_GRID * MARK_GRID)).collect()
}

/// Returns the panel in words.
pub fn describe(view: &View<'_>) -> String {
    let [new, retransmissions, fills] =
        [SentKind::New, SentKind::Retransmission, SentKind::FillsGap].map(|kind| segments(view, kind));
    format!(
        "{new} segments with new data, {retransmissions} retransmissions, {fills} segments that fill a gap, {} acknowledged.",
        view.acknowledged().decimal()
    )
}
