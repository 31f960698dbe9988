//! The map of a panel: coloured bands of its values, the scale of the colours at its right side, and its arrows.

use super::axes::Axes;
use super::page::{MARGIN, Page};
use crate::color::{Color, INK, WHITE, band_color};
use crate::font::{fitted, text_width};
use crate::model::{Map, Panel};
use crate::scale::{Axis, Scale, Unit};
use crate::scene::{Anchor, Item, Pixel, Rect, Stroke, pixel};

/// Room at the right side of a map for its scale, in font sizes.
pub const SCALE_ROOM: f64 = 6.0;
/// Distance of the scale from the map, and width of the scale, in font sizes.
const SCALE_GAP: f64 = 1.0;
const SCALE_WIDTH: f64 = 1.1;
/// Distance of two labels of the scale, in font sizes.
const LABEL_ROW: f64 = 1.5;
/// Maximum number of bands.
const MAX_BANDS: f64 = 20.0;
/// Side of the squares that are drawn, in pixels of a picture with the usual font.
const SQUARE: f64 = 3.0;
/// Overlap of neighbouring areas in pixels, so that a viewer shows no seam between them.
const OVERLAP: f64 = 0.6;
/// Length of the longest arrow, in font sizes. The legend shows an arrow of this length.
pub const ARROW: f64 = 1.9;

/// Minimum width and height of a map with equal axes, in font sizes.
const MIN_SIDE: f64 = 4.0;

/// Returns the part of a plot in which both axes have the same scale, at the upper left corner. A map that would be very thin has
/// the whole plot instead.
pub fn with_equal_axes(panel: &Panel, plot: Rect, font: f64) -> Rect {
    let spans = [panel.x.high - panel.x.low, panel.y.high - panel.y.low];
    let ratio = spans[1] / spans[0];
    if !ratio.is_finite() || ratio <= 0.0 {
        return plot;
    }
    let width = plot.width().min(plot.height() / ratio);
    if width.min(width * ratio) < MIN_SIDE * font {
        return plot;
    }
    Rect { right: plot.left + width, bottom: plot.top + (width * ratio).min(plot.height()), ..plot }
}

/// Draws the map and its scale.
pub fn draw(page: &mut Page, map: &Map, axes: &Axes) {
    let Some(bands) = Bands::new(map, axes.plot.height() / (LABEL_ROW * page.font)) else { return };
    draw_values(page, map, axes, &bands);
    draw_scale(page, map, axes, &bands);
    let longest = map.longest_arrow();
    for arrow in map.arrows.iter().filter(|_| longest > 0.0) {
        let length = ARROW * page.font / longest;
        let (dx, dy) = (arrow.east * length, -arrow.north * length);
        let at = axes.at(arrow.at);
        let ends = [pixel(at.x - dx / 2.0, at.y - dy / 2.0), pixel(at.x + dx / 2.0, at.y + dy / 2.0)];
        if ends.iter().all(|end| axes.has(*end)) {
            draw_arrow(page, ends);
        }
    }
}

/// Draws an arrow from the first to the second place, with a bright rim.
pub fn draw_arrow(page: &mut Page, [from, to]: [Pixel; 2]) {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy);
    if length < 1.0 || !length.is_finite() {
        return;
    }
    let head = (0.32 * page.font).min(length);
    let (x, y) = (dx / length, dy / length);
    let base = pixel(to.x - head * x, to.y - head * y);
    let half = 0.45 * head;
    let corners = vec![to, pixel(base.x - half * y, base.y + half * x), pixel(base.x + half * y, base.y - half * x)];
    page.line(vec![from, to], Stroke::solid(WHITE.with_opacity(0.7), 3.0));
    page.line(vec![from, base], Stroke::solid(INK, 1.3));
    page.add(Item::Polygon { corners, fill: INK });
}

/// Bands of values with the same colour, around zero.
struct Bands {
    scale: Scale,
    /// Ticks from one label to the next.
    stride: usize,
}

impl Bands {
    /// Returns the bands of a map with room for this number of labels; `None` for a map without values.
    fn new(map: &Map, labels: f64) -> Option<Self> {
        let largest = map.values.iter().filter(|value| value.is_finite()).map(|value| value.abs()).reduce(f64::max)?;
        let largest = largest.max(map.scale_end);
        let axis = Axis::between("", Unit::Count, -largest, largest);
        let scale = Scale::new(&axis, (2.0 * labels).clamp(2.0, MAX_BANDS) as usize);
        let stride = (scale.ticks.len() as f64 / labels.max(1.0)).ceil() as usize;
        Some(Bands { scale, stride: stride.max(1) })
    }

    /// Returns the number of bands.
    fn count(&self) -> usize {
        self.scale.ticks.len().saturating_sub(1).max(1)
    }

    /// Returns the band of a value.
    fn of(&self, value: f64) -> usize {
        let place = self.scale.place(value) * self.count() as f64;
        (place.max(0.0) as usize).min(self.count() - 1)
    }

    /// Returns the colour of a band: white in the middle, darker towards the ends.
    fn color(&self, band: usize) -> Color {
        band_color(2.0 * (band as f64 + 0.5) / self.count() as f64 - 1.0)
    }
}

/// Draws an area for neighbouring squares of the same band in each row.
fn draw_values(page: &mut Page, map: &Map, axes: &Axes, bands: &Bands) {
    let [left, right] = [map.low.x, map.high.x].map(|x| axes.column(x));
    let [bottom, top] = [map.low.y, map.high.y].map(|y| axes.row(y));
    let count = |length: f64| (length / SQUARE).ceil().clamp(1.0, 1000.0) as usize;
    let (columns, rows) = (count(right - left), count(bottom - top));
    let edge = |low: f64, high: f64, share: f64| low + (high - low) * share;
    for row in 0..rows {
        let share = (row as f64 + 0.5) / rows as f64;
        let at = |column: usize| map.value_at((column as f64 + 0.5) / columns as f64, 1.0 - share);
        let mut start = 0;
        while start < columns {
            let band = at(start).map(|value| bands.of(value));
            let same = (start..columns).take_while(|column| at(*column).map(|value| bands.of(value)) == band);
            let end = start + same.count().max(1);
            if let Some(band) = band {
                let area = Rect {
                    left: edge(left, right, start as f64 / columns as f64),
                    right: (edge(left, right, end as f64 / columns as f64) + OVERLAP).min(right),
                    top: edge(top, bottom, row as f64 / rows as f64),
                    bottom: (edge(top, bottom, (row + 1) as f64 / rows as f64) + OVERLAP).min(bottom),
                };
                page.rect(area, bands.color(band));
            }
            start = end;
        }
    }
}

fn draw_scale(page: &mut Page, map: &Map, axes: &Axes, bands: &Bands) {
    let (font, plot) = (page.font, axes.plot);
    let left = plot.right + SCALE_GAP * font;
    let bar = Rect { left, right: left + SCALE_WIDTH * font, ..plot };
    let row = |place: f64| bar.bottom - place * bar.height();
    for band in 0..bands.count() {
        let [low, high] = [band, band + 1].map(|edge| edge as f64 / bands.count() as f64);
        let top = row(high);
        page.rect(Rect { top, bottom: (row(low) + OVERLAP).min(bar.bottom), ..bar }, bands.color(band));
    }
    let corners = [(bar.left, bar.top), (bar.right, bar.top), (bar.right, bar.bottom), (bar.left, bar.bottom)];
    let rim = corners.iter().chain(&corners[..1]).map(|(x, y)| pixel(*x, *y)).collect();
    page.line(rim, Stroke::solid(INK, 1.0));
    let zero = bands.scale.ticks.iter().position(|tick| tick.value >= -f64::EPSILON).unwrap_or(0);
    for (number, tick) in bands.scale.ticks.iter().enumerate() {
        let y = row(bands.scale.place(tick.value));
        page.line(vec![pixel(bar.right, y), pixel(bar.right + 4.0, y)], Stroke::solid(INK, 1.0));
        if number.abs_diff(zero) % bands.stride > 0 {
            continue;
        }
        let label = page.text(&tick.label, bar.right + 7.0, y, Anchor::Start);
        page.write(label);
    }
    let right = (bar.right + (SCALE_ROOM - SCALE_GAP - SCALE_WIDTH) * font).min(page.width - MARGIN);
    let name = fitted(&map.name, 0.6 * (right - plot.left), font);
    let middle = (bar.left + bar.right) / 2.0;
    let half = text_width(&name, font) / 2.0;
    let x = middle.min(right - half);
    let text = page.text(&name, x, plot.top - 1.3 * font, Anchor::Middle);
    page.write(text);
}

impl Map {
    /// Returns the number of rows.
    fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Returns the length of the longest arrow, in the units of the arrows.
    pub fn longest_arrow(&self) -> f64 {
        self.arrows
            .iter()
            .map(|arrow| arrow.east.hypot(arrow.north))
            .filter(|length| length.is_finite())
            .fold(0.0, f64::max)
    }

    /// Returns the value at a place, as shares of the width and the height from the lower left corner. Between the middles of
    /// cells it changes linearly. `None` at a cell without a value.
    fn value_at(&self, x: f64, y: f64) -> Option<f64> {
        let (columns, rows) = (self.columns, self.rows());
        if columns == 0 || rows == 0 {
            return None;
        }
        let cells = |share: f64, count: usize| (share * count as f64 - 0.5).clamp(0.0, count as f64 - 1.0);
        let (x, y) = (cells(x, columns), cells(y, rows));
        let (column, row) = (x as usize, y as usize);
        let (next_column, next_row) = ((column + 1).min(columns - 1), (row + 1).min(rows - 1));
        let value = |row: usize, column: usize| self.values[row * columns + column];
        let nearest = value(y.round() as usize, x.round() as usize);
        if !nearest.is_finite() {
            return None;
        }
        let (x, y) = (x - column as f64, y - row as f64);
        let low = value(row, column) * (1.0 - x) + value(row, next_column) * x;
        let high = value(next_row, column) * (1.0 - x) + value(next_row, next_column) * x;
        let mixed = low * (1.0 - y) + high * y;
        Some(if mixed.is_finite() { mixed } else { nearest })
    }
}
