//! Labels in a plot: the names of guides, and texts at points. Lines and marks stay visible where the plot has room.

use super::axes::Axes;
use super::lines::{clip, clipped};
use super::page::{Page, text_at};
use crate::color::Color;
use crate::font::CAPITAL;
use crate::model::{Guide, GuideAt, Label, Panel, Point, Shape};
use crate::scene::{Anchor, Pixel, Rect, Text, pixel};

/// Maximum number of lines that labels avoid.
const MAX_OBSTACLES: usize = 20_000;
/// Pixels between the label of a guide and its line.
const GAP: f64 = 5.0;
/// Size of a label, in usual font sizes.
const SIZE: f64 = 0.93;
/// Half of the side of a mark, in usual font sizes.
const MARK: f64 = 0.4;

/// Writes the labels of a panel, each at the free place that covers the fewest lines and marks.
pub fn write(page: &mut Page, panel: &Panel, axes: &Axes) {
    let font = SIZE * page.font;
    let guides = panel.guides.iter().filter(|guide| !guide.label.is_empty());
    let guides = guides.map(|guide| around_guide(axes, guide, font));
    let points = panel.labels.iter().map(|label| around_point(axes, label, font));
    let labels: Vec<Vec<Text>> = guides.chain(points).collect();
    if labels.is_empty() {
        return;
    }
    let obstacles = obstacles(panel, axes, MARK * page.font);
    for mut places in labels {
        places.sort_by_cached_key(|place| covered(&place.area(), &obstacles));
        page.write_at_free_place(&places, &axes.plot);
    }
}

/// Returns the places along the line of a guide.
fn around_guide(axes: &Axes, guide: &Guide, font: f64) -> Vec<Text> {
    let plot = axes.plot;
    let text = |x: f64, y: f64, anchor: Anchor| colored(text_at(&guide.label, x, y, anchor, font), guide.color);
    match guide.at {
        GuideAt::X(value) => {
            let x = axes.column(value);
            let rows = (0..5).map(|row| plot.top + font * (0.8 + 1.4 * f64::from(row)));
            rows.flat_map(|y| [text(x + GAP, y, Anchor::Start), text(x - GAP, y, Anchor::End)]).collect()
        }
        GuideAt::Y(value) => {
            let y = axes.row(value);
            let rows = [y - 0.8 * font, y + 0.8 * font].into_iter();
            let ends = |y| [text(plot.right - GAP, y, Anchor::End), text(plot.left + GAP, y, Anchor::Start)];
            rows.flat_map(ends).collect()
        }
    }
}

/// Returns the places around the point of a label.
fn around_point(axes: &Axes, label: &Label, font: f64) -> Vec<Text> {
    let (at, plot) = (axes.at(label.at), axes.plot);
    let top = (plot.top + CAPITAL * font).min(plot.bottom);
    let inside = pixel(at.x.clamp(plot.left, plot.right), at.y.clamp(top, plot.bottom));
    let (dx, dy) = (0.65 * font, 0.9 * font);
    let around = [
        (dx, dy, Anchor::Start),
        (dx, -dy, Anchor::Start),
        (-dx, -dy, Anchor::End),
        (-dx, dy, Anchor::End),
        (0.0, -1.5 * dy, Anchor::Middle),
        (0.0, 1.5 * dy, Anchor::Middle),
        (dx, 2.4 * dy, Anchor::Start),
        (-dx, 2.4 * dy, Anchor::End),
    ];
    let text = |(dx, dy, anchor)| text_at(&label.text, inside.x + dx, inside.y + dy, anchor, font);
    around.map(|place| colored(text(place), label.color)).to_vec()
}

/// Returns the lines and the marks of a panel, each as a line. `half` is half of the side of a mark in pixels.
fn obstacles(panel: &Panel, axes: &Axes, half: f64) -> Vec<[Pixel; 2]> {
    let plot = axes.plot;
    let across = |guide: &Guide| match guide.at {
        GuideAt::X(value) => [pixel(axes.column(value), plot.top), pixel(axes.column(value), plot.bottom)],
        GuideAt::Y(value) => [pixel(plot.left, axes.row(value)), pixel(plot.right, axes.row(value))],
    };
    let mut obstacles: Vec<[Pixel; 2]> = panel.guides.iter().map(across).collect();
    let line = |points: &[Point]| -> Vec<[Pixel; 2]> {
        let parts = clipped(points.iter().map(|point| axes.at(*point)), &plot);
        parts.iter().flat_map(|part| part.windows(2).map(|ends| [ends[0], ends[1]])).collect()
    };
    let mark = |x: f64, low: f64, high: f64| {
        let (top, bottom) = (axes.at(Point { x, y: high }), axes.at(Point { x, y: low }));
        [pixel(top.x, top.y - half), pixel(bottom.x, bottom.y + half)]
    };
    for series in &panel.series {
        match &series.shape {
            Shape::Line { points, .. } | Shape::Area { points } => obstacles.extend(line(points)),
            Shape::Marks { points, .. } => obstacles.extend(points.iter().map(|at| mark(at.x, at.y, at.y))),
            Shape::Bars { points } | Shape::Whiskers { points, .. } => {
                obstacles.extend(points.iter().map(|at| mark(at.x, at.low, at.high)));
            }
        }
        obstacles.truncate(MAX_OBSTACLES);
    }
    obstacles
}

/// Returns the number of lines through an area.
fn covered(area: &Rect, obstacles: &[[Pixel; 2]]) -> usize {
    let Rect { left, right, top, bottom } = *area;
    let padded =
        Rect { left: left - GAP / 2.0, right: right + GAP / 2.0, top: top - GAP / 2.0, bottom: bottom + GAP / 2.0 };
    obstacles.iter().filter(|[from, to]| clip(*from, *to, &padded).is_some()).count()
}

fn colored(text: Text, color: Color) -> Text {
    Text { color, ..text }
}
