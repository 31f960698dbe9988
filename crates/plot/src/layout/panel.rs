//! A panel: axes and their names, bands, guides, series, labels and the legend.

use super::axes::Axes;
use super::legend::{self, Legend, area_below};
use super::lines::{clipped, runs};
use super::page::{LINE, MARGIN, Page, text_at};
use super::{bands, labels, map, marks};
use crate::color::{Color, INK};
use crate::font::{fitted, text_width};
use crate::model::{Guide, GuideAt, Panel, Point, RangePoint, Series, Shape};
use crate::scale::{Axis, AxisKind, Scale};
use crate::scene::{Anchor, Pixel, Rect, Stroke, pixel};

/// Maximum share of a panel that the legend takes.
const MAX_LEGEND_SHARE: f64 = 0.34;
/// Minimum height of a plot, in font sizes.
const MIN_PLOT: f64 = 2.0;
/// Distance of two labels of the vertical axis, in font sizes.
const ROW_OF_LABELS: f64 = 2.2;
/// The same in a small plot, so that a rounded axis has few values above the highest one.
const MIN_ROW_OF_LABELS: f64 = 1.5;
/// Height of the name of the vertical axis, in font sizes. The highest label is partly above the plot.
const Y_NAME: f64 = 2.0;
/// Maximum number of intervals between the labels of an axis.
const MAX_INTERVALS: f64 = 12.0;
/// Minimum room for the name of a column, in font sizes.
const MIN_NAME: f64 = 2.5;

/// Draws a panel in its area. `name` pixels at the top are for its name.
pub fn draw(page: &mut Page, panel: &Panel, area: Rect, name: f64) {
    let font = page.font;
    if name > 0.0 {
        let text = fitted(&panel.name, area.width() - 2.0 * MARGIN, 1.15 * font);
        page.write(text_at(&text, area.left + MARGIN, area.top + name / 2.0, Anchor::Start, 1.15 * font));
    }
    let top = area.top + name;
    let height = area.bottom - top;
    let strip_height = if panel.bands.is_empty() { 0.0 } else { bands::STRIP * font };
    let plot_top = top + Y_NAME * font + strip_height;
    let below = 0.9 * font + 2.0 * LINE * font + MARGIN / 2.0;
    let room = area.bottom - below - plot_top - MIN_PLOT * font;
    let max_rows = (MAX_LEGEND_SHARE * height).min(room) / (legend::ROW * font);
    let legend = Legend::new(panel, page, &area, max_rows.max(1.0) as usize);
    let plot_bottom = (area.bottom - below - legend.height(page)).max(plot_top + MIN_PLOT * font);

    let height_in_fonts = (plot_bottom - plot_top) / font;
    let rows = (height_in_fonts / ROW_OF_LABELS).max((height_in_fonts / MIN_ROW_OF_LABELS).min(3.0));
    let rows = rows.clamp(1.0, MAX_INTERVALS);
    let y = Scale::new(&panel.y, rows as usize);
    let label_width = y.ticks.iter().map(|tick| text_width(&tick.label, font)).fold(0.0, f64::max);
    let left = (area.left + MARGIN + label_width + 8.0).min(area.left + 0.4 * area.width());
    let right = if panel.map.is_some() { map::SCALE_ROOM } else { 2.2 };
    let mut plot = Rect { left, top: plot_top, right: area.right - right * font, bottom: plot_bottom };
    if panel.map.is_some() {
        // A small picture has no room next to the scale.
        plot.right = plot.right.max(plot.left);
        plot.bottom = plot.bottom.max(plot.top);
        plot = map::with_equal_axes(panel, plot, font);
    }
    let x = fitting_scale(&panel.x, plot.width(), font);
    let axes = Axes { plot, x, y };

    if strip_height > 0.0 {
        let strip = Rect { top: plot.top - strip_height + 2.0, bottom: plot.top - 4.0, ..plot };
        bands::draw(page, panel, &axes.x, &plot, &strip);
    }
    axes.draw_grid(page, matches!(panel.x.kind, AxisKind::Categories(_)));
    if let Some(map) = &panel.map {
        map::draw(page, map, &axes);
    }
    for guide in &panel.guides {
        axes.draw_guide(page, guide);
    }
    for series in &panel.series {
        axes.draw_series(page, series);
    }
    axes.draw_frame(page);
    axes.draw_names(page, panel, &area, top + 0.7 * font);
    legend.draw(page, plot.bottom + 0.9 * font + 2.0 * LINE * font);
    if let Some(note) = &panel.note {
        let (middle_x, middle_y) = ((plot.left + plot.right) / 2.0, (plot.top + plot.bottom) / 2.0);
        let note = fitted(note, plot.width() - 8.0, font);
        page.write(text_at(&note, middle_x, middle_y, Anchor::Middle, font));
    }
    labels::write(page, panel, &axes);
}

/// Returns the horizontal scale with as many labels as fit.
fn fitting_scale(axis: &Axis, width: f64, font: f64) -> Scale {
    if matches!(axis.kind, AxisKind::Categories(_)) {
        return fitting_names(Scale::new(axis, 1), width, font);
    }
    let mut intervals = (width / (3.0 * font)).clamp(1.0, MAX_INTERVALS) as usize;
    loop {
        let scale = Scale::new(axis, intervals);
        let center = |value: f64| scale.place(value) * width;
        let fits = scale.ticks.windows(2).all(|pair| {
            let half = (text_width(&pair[0].label, font) + text_width(&pair[1].label, font)) / 2.0;
            center(pair[1].value) - center(pair[0].value) >= half + font
        });
        if fits || intervals == 1 {
            return scale;
        }
        intervals -= 1;
    }
}

/// Shortens the names of columns. In columns narrower than `MIN_NAME`, only some columns have names.
fn fitting_names(mut scale: Scale, width: f64, font: f64) -> Scale {
    let column = width / scale.ticks.len().max(1) as f64;
    let stride = ((MIN_NAME + 1.0) * font / column).ceil().max(1.0);
    let room = stride * column - font;
    for (place, tick) in scale.ticks.iter_mut().enumerate() {
        let is_named = place % stride as usize == 0;
        tick.label = if is_named { fitted(&tick.label, room, font) } else { String::new() };
    }
    scale
}

impl Axes {
    fn draw_grid(&self, page: &mut Page, has_columns: bool) {
        let plot = self.plot;
        let grid = Stroke::solid(INK.with_opacity(0.12), 1.0);
        let font = page.font;
        for tick in &self.y.ticks {
            let y = self.row(tick.value);
            page.line(vec![pixel(plot.left, y), pixel(plot.right, y)], grid);
            let label = page.text(&tick.label, plot.left - 7.0, y, Anchor::End);
            page.write(label);
        }
        for tick in &self.x.ticks {
            let x = self.column(tick.value);
            // A line between two columns of names, otherwise at the value.
            let border = if has_columns { self.column(tick.value + 0.5) } else { x };
            page.line(vec![pixel(border, plot.top), pixel(border, plot.bottom)], grid);
            page.line(vec![pixel(border, plot.bottom), pixel(border, plot.bottom + 5.0)], Stroke::solid(INK, 1.0));
            let label = page.text(&tick.label, x, plot.bottom + 0.9 * font + LINE * font / 2.0 - 2.0, Anchor::Middle);
            page.write(label);
        }
    }

    /// Draws the lines of both axes.
    fn draw_frame(&self, page: &mut Page) {
        let Rect { left, top, right, bottom } = self.plot;
        page.line(vec![pixel(left, top), pixel(left, bottom), pixel(right, bottom)], Stroke::solid(INK, 1.0));
    }

    fn draw_names(&self, page: &mut Page, panel: &Panel, area: &Rect, y_name: f64) {
        let font = page.font;
        let (left, right) = (area.left + MARGIN, area.right - MARGIN);
        let width = right - left;
        let name = fitted(&axis_name(&panel.y, &self.y), width, font);
        let text = page.text(&name, left, y_name, Anchor::Start);
        page.write(text);
        let name = fitted(&axis_name(&panel.x, &self.x), width, font);
        let half = text_width(&name, font) / 2.0;
        let middle = ((self.plot.left + self.plot.right) / 2.0).min(right - half).max(left + half);
        let row = self.plot.bottom + 0.9 * font + 1.5 * LINE * font - 4.0;
        let text = page.text(&name, middle, row, Anchor::Middle);
        page.write(text);
    }

    fn draw_guide(&self, page: &mut Page, guide: &Guide) {
        let plot = self.plot;
        let stroke = Stroke { color: guide.color, width: 1.6, dash: guide.dash };
        let ends = match guide.at {
            GuideAt::X(value) => [pixel(self.column(value), plot.bottom), pixel(self.column(value), plot.top)],
            GuideAt::Y(value) => [pixel(plot.left, self.row(value)), pixel(plot.right, self.row(value))],
        };
        if ends.iter().all(|end| self.has(*end)) {
            page.line(ends.to_vec(), stroke);
        }
    }

    fn draw_series(&self, page: &mut Page, series: &Series) {
        let color = series.color;
        match &series.shape {
            Shape::Line { points, width, dash } => {
                let stroke = Stroke { color, width: *width, dash: *dash };
                for part in clipped(points.iter().map(|point| self.at(*point)), &self.plot) {
                    page.line(part, stroke);
                }
                self.draw_single_points(page, points, *width, color);
            }
            Shape::Area { points } => {
                let top = self.y.high();
                let bounded = points.iter().map(|point| self.at(Point { y: point.y.min(top), ..*point }));
                for part in clipped(bounded, &self.plot) {
                    if let Some(area) = area_below(&part, self.plot.bottom, color) {
                        page.add(area);
                    }
                }
                for part in clipped(points.iter().map(|point| self.at(*point)), &self.plot) {
                    page.line(part, Stroke::solid(color, 2.0));
                }
            }
            Shape::Bars { points } => self.draw_bars(page, points, color),
            Shape::Marks { points, mark } => {
                let radius = 0.32 * page.font;
                for at in distinct(points.iter().map(|point| self.at(*point)).filter(|at| self.has(*at)), radius) {
                    marks::draw(page, *mark, at, radius, color);
                }
            }
            Shape::Whiskers { points, mark, shift } => {
                for point in points {
                    let at = self.at(Point { x: point.x, y: point.y });
                    if self.has(at) {
                        let x = (at.x + shift * page.font).clamp(self.plot.left, self.plot.right);
                        let at = pixel(x, at.y);
                        let [top, bottom] =
                            [point.high, point.low].map(|y| self.row(y).clamp(self.plot.top, self.plot.bottom));
                        legend::whisker(page, at.x, top, bottom, color);
                        marks::draw(page, *mark, at, 0.33 * page.font, color);
                    }
                }
            }
        }
    }

    /// Draws a dot for each point of a line that has no neighbour, which has no line.
    fn draw_single_points(&self, page: &mut Page, points: &[Point], width: f64, color: Color) {
        let pixels = points.iter().map(|point| self.at(*point));
        for run in runs(pixels) {
            if let [at] = run[..]
                && self.has(at)
            {
                marks::draw(page, crate::model::Mark::Dot, at, width.max(2.0) * 1.2, color);
            }
        }
    }

    /// Draws a vertical bar for each column of pixels.
    fn draw_bars(&self, page: &mut Page, points: &[RangePoint], color: Color) {
        let mut columns: Vec<(f64, f64, f64)> = Vec::new();
        for point in points {
            let x = self.column(point.x).round();
            let [top, bottom] = [point.high, point.low].map(|y| self.row(y));
            let is_visible = x.is_finite()
                && self.has(pixel(x, self.plot.top))
                && top <= self.plot.bottom
                && bottom >= self.plot.top;
            if !is_visible {
                continue;
            }
            let (top, bottom) = (top.max(self.plot.top), bottom.min(self.plot.bottom));
            match columns.last_mut().filter(|(column, ..)| *column == x) {
                Some(column) => *column = (x, column.1.min(top), column.2.max(bottom)),
                None => columns.push((x, top, bottom)),
            }
        }
        for (x, top, bottom) in columns {
            page.rect(
                Rect { left: x - 1.5, right: x + 1.5, top: top - 1.0, bottom: bottom + 1.0 },
                color.with_opacity(0.55),
            );
        }
    }
}

/// Returns the name of an axis with its unit.
fn axis_name(axis: &Axis, scale: &Scale) -> String {
    let kind = if axis.kind == AxisKind::Logarithmic { " (logarithmic)" } else { "" };
    match scale.unit.as_str() {
        "" => format!("{}{kind}", axis.name),
        unit => format!("{}, {unit}{kind}", axis.name),
    }
}

/// Returns the places of marks. Marks that would cover each other are drawn once.
fn distinct(places: impl Iterator<Item = Pixel>, radius: f64) -> Vec<Pixel> {
    let mut seen = std::collections::BTreeSet::new();
    let cell = |at: &Pixel| ((at.x / radius).round() as i64, (at.y / radius).round() as i64);
    places.filter(|at| seen.insert(cell(at))).collect()
}
