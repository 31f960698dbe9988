//! Lines over time as SVG, without inline styles: classes of the style sheet set the colours, so a picture follows the scheme.
//!
//! A line has at most one median, minimum and maximum for each column of pixels, so its size does not grow with its points.

mod axis;
mod position;
mod reduce;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::time::Duration;

use maud::{Markup, html};

pub(crate) use axis::Quantity;
use axis::{time_ticks, value_ticks};
use position::position;
use reduce::{Column, MarkAt, MarkKind, Reduced, reduce};

use crate::format;
use crate::view::Line;

/// Size of a picture in its own units; the page scales the picture to its width.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 248.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 10.0;
/// Narrow screens show letters of 20 units: the unit above the labels of the axis needs 20 units, a label 15.
const TOP: f64 = 34.0;
const BOTTOM: f64 = 32.0;
/// Width of a column of a line. Columns of one pixel would make the page of a line with many points twice as long.
const COLUMN_WIDTH: f64 = 2.0;
/// Number of columns of a line.
const COLUMNS: usize = ((WIDTH - LEFT - RIGHT) / COLUMN_WIDTH) as usize;
/// Range around a prediction in which a measurement needs no explanation.
const PREDICTED_BAND: f64 = 0.1;

/// A picture of one or two lines.
pub(crate) struct Chart<'a> {
    /// Prefix of the identifiers in the page.
    pub id: &'static str,
    pub title: String,
    pub quantity: Quantity,
    pub since: Duration,
    pub until: Duration,
    pub line: &'a Line,
    /// Name of the line in the legend.
    pub name: &'static str,
    /// A second line, drawn dashed, with its name.
    pub second: Option<(&'a Line, &'static str)>,
}

/// Positions of values in a picture.
struct Frame {
    since: Duration,
    span: f64,
    max: f64,
}

impl Frame {
    fn x(&self, column: usize) -> f64 {
        LEFT + COLUMN_WIDTH * column as f64
    }

    fn time_x(&self, time: Duration) -> f64 {
        LEFT + (time.saturating_sub(self.since).as_secs_f64() / self.span).min(1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - (value / self.max).clamp(0.0, 1.0)) * (HEIGHT - TOP - BOTTOM)
    }
}

impl Chart<'_> {
    /// Returns the picture with its legend, or a sentence if there is nothing to draw.
    pub fn render(&self) -> Markup {
        let main = reduce(self.line, self.since, self.until, COLUMNS);
        let second = self.second.map(|(line, name)| (reduce(line, self.since, self.until, COLUMNS), name));
        if main.is_empty() {
            return html! { p.none { "No " (self.name) " in this time." } };
        }
        // Marked samples of the second line show more: the load of a test raises the median RTT, not the minimum.
        let marks = second.as_ref().map_or(&main.marks, |(line, _)| &line.marks);
        let highest =
            second.iter().map(|(line, _)| line.highest()).fold(main.highest().max(main.predicted_max()), f64::max);
        let values = value_ticks(self.quantity, highest);
        let frame = Frame {
            since: self.since,
            span: self.until.saturating_sub(self.since).as_secs_f64().max(1.0),
            max: values.max,
        };
        let (title, description) = (format!("{}-title", self.id), format!("{}-desc", self.id));
        html! {
            figure.chart {
                svg id=(self.id) role="img" aria-labelledby={ (title) " " (description) }
                    viewBox={ "0 0 " (WIDTH) " " (HEIGHT) }
                    data-since=(self.since.as_millis()) data-until=(self.until.as_millis()) data-max=(values.max / values.scale)
                    data-unit=(values.unit) data-left=(LEFT) data-right=(WIDTH - RIGHT) data-top=(TOP)
                    data-bottom=(HEIGHT - BOTTOM) {
                    title id=(title) { (self.title) }
                    desc id=(description) { (self.description(&main, &values)) }
                    (self.axes(&frame, &values))
                    @if let Some(band) = band_path(&main, &frame) { path.band d=(band) {} }
                    @if let Some(range) = range_path(&main, &frame) { path.range d=(range) {} }
                    @if let Some((line, _)) = &second { path.second d=(line_path(line, &frame)) {} }
                    path.line d=(line_path(&main, &frame)) {}
                    @for (kind, d) in mark_paths(marks, &frame) { path class=(kind.class()) d=(d) {} }
                }
                (self.legend(&main, second.as_ref().map(|(_, name)| *name)))
                p.readout id={ (self.id) "-readout" } aria-live="polite" {}
            }
        }
    }

    fn description(&self, main: &Reduced, values: &axis::ValueTicks) -> String {
        let shown = |value: f64| format!("{} {}", axis::number(value / values.scale), values.unit);
        let samples = format::count(main.samples, "measurement");
        let mut text = format!(
            "{samples} from {} to {} UTC: minimum {}, median {}, maximum {}.",
            format::minute(self.since),
            format::minute(self.until),
            shown(main.min),
            shown(main.median),
            shown(main.max)
        );
        // Writing to a string cannot fail.
        if main.gaps > 0 {
            let _ = write!(text, " {}.", format::count(main.gaps, "gap"));
        }
        for kind in MarkKind::ALL {
            let number = main.marks.iter().filter(|mark| mark.kind == kind).count();
            if number > 0 {
                let _ = write!(text, " {}: {number} places.", kind.word());
            }
        }
        text
    }

    fn axes(&self, frame: &Frame, values: &axis::ValueTicks) -> Markup {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        html! {
            g.axis {
                @for tick in &values.ticks {
                    @let y = position(frame.y(*tick));
                    path.grid d={ "M" (LEFT) " " (y) "H" (right) } {}
                    text x=(LEFT - 6.0) y=(y) dy="0.35em" text-anchor="end" { (axis::number(tick / values.scale)) }
                }
                text.unit x="4" y="16" { (values.unit) }
                @for tick in time_ticks(self.since, self.until) {
                    @let x = position(frame.time_x(tick.time));
                    // A label at the right edge would lose its end on narrow screens.
                    @let anchor = if frame.time_x(tick.time) > WIDTH - 28.0 { "end" } else { "middle" };
                    path.grid d={ "M" (x) " " (TOP) "V" (bottom) } {}
                    text x=(x) y=(HEIGHT - 8.0) text-anchor=(anchor) { (tick.label) }
                }
            }
        }
    }

    fn legend(&self, main: &Reduced, second: Option<&str>) -> Markup {
        let key = |class: &str, d: &str, text: &str| {
            html! { li { svg.key viewBox="0 0 24 12" aria-hidden="true" { path class=(class) d=(d) {} } (text) } }
        };
        html! {
            ul.keys {
                (key("line", "M1 6H23", self.name))
                @if let Some(name) = second { (key("second", "M1 6H23", name)) }
                @if main.is_aggregated() { (key("range", "M1 2H23V10H1Z", "minimum to maximum")) }
                @if main.predicted_max() > 0.0 { (key("band", "M1 2H23V10H1Z", "predicted, ±10 %")) }
                @for kind in MarkKind::ALL {
                    @if main.marks.iter().any(|mark| mark.kind == kind) {
                        (key(kind.class(), &kind.path(12.0, 6.0), kind.word()))
                    }
                }
            }
        }
    }
}

/// Returns the medians as a line with gaps. A column without neighbours is a dot, because its line has round ends.
fn line_path(line: &Reduced, frame: &Frame) -> String {
    let mut path = String::new();
    for segment in &line.segments {
        let mut earlier = None;
        for column in segment {
            let (x, y) = (position(frame.x(column.at)), position(frame.y(column.median)));
            // Writing to a string cannot fail.
            let _ = match earlier {
                None => write!(path, "M{x} {y}"),
                Some(y_before) if y_before == y => write!(path, "H{x}"),
                Some(_) => write!(path, "L{x} {y}"),
            };
            earlier = Some(y);
        }
        if segment.len() == 1 {
            path.push_str("h0");
        }
    }
    path
}

/// Returns the area between minimum and maximum of each column; `None` if every column has one value.
fn range_path(line: &Reduced, frame: &Frame) -> Option<String> {
    line.is_aggregated().then(|| {
        let spread = |columns: &[Column]| columns.iter().any(|column| column.min < column.max);
        let segments = line.segments.iter().filter(|segment| spread(segment));
        segments.map(|segment| area(segment, frame, |column| Some((column.min, column.max)))).collect()
    })
}

/// Returns the area around the predictions; `None` without a prediction.
fn band_path(line: &Reduced, frame: &Frame) -> Option<String> {
    let band = |column: &Column| {
        column.predicted.map(|predicted| (predicted * (1.0 - PREDICTED_BAND), predicted * (1.0 + PREDICTED_BAND)))
    };
    let path: String = line.segments.iter().map(|segment| area(segment, frame, band)).collect();
    (!path.is_empty()).then_some(path)
}

/// Returns a closed area between two values of each column. Columns without values are skipped.
fn area(segment: &[Column], frame: &Frame, values: impl Fn(&Column) -> Option<(f64, f64)>) -> String {
    let bounds: Vec<(usize, f64, f64)> =
        segment.iter().filter_map(|column| values(column).map(|(low, high)| (column.at, low, high))).collect();
    let (Some((first, low, high)), Some((last, ..))) = (bounds.first(), bounds.last()) else { return String::new() };
    if first == last {
        let (x, low, high) = (frame.x(*first), position(frame.y(*low)), position(frame.y(*high)));
        return format!("M{} {high}H{}V{low}H{}Z", position(x - 2.0), position(x + 2.0), position(x - 2.0));
    }
    let mut path = String::new();
    let upper = bounds.iter().map(|(at, _, high)| (*at, position(frame.y(*high))));
    let lower = bounds.iter().rev().map(|(at, low, _)| (*at, position(frame.y(*low))));
    let points: Vec<(usize, String)> = upper.chain(lower).collect();
    for (place, (at, y)) in points.iter().enumerate() {
        // A point between two points of the same height adds nothing.
        let is_straight = place > 0
            && points.get(place + 1).is_some_and(|(_, next)| next == y)
            && points.get(place - 1).is_some_and(|(_, before)| before == y);
        if !is_straight {
            // Writing to a string cannot fail.
            let _ = write!(path, "{}{} {y}", if place == 0 { 'M' } else { 'L' }, position(frame.x(*at)));
        }
    }
    path.push('Z');
    path
}

/// Returns the marked samples of each kind as one path.
fn mark_paths(marks: &[MarkAt], frame: &Frame) -> Vec<(MarkKind, String)> {
    let paths = MarkKind::ALL.into_iter().map(|kind| {
        let marks = marks.iter().filter(|mark| mark.kind == kind);
        let place = |value: Option<f64>| value.map_or(HEIGHT - BOTTOM - 6.0, |value| frame.y(value));
        (kind, marks.map(|mark| kind.path(frame.x(mark.at), place(mark.value))).collect::<String>())
    });
    paths.filter(|(_, path)| !path.is_empty()).collect()
}
