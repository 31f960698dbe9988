//! Legend of a panel: a sample of each series, guide and band with its name, in rows below the plot.

use super::bands::draw_band;
use super::page::{MARGIN, Page};
use super::{map, marks};
use crate::color::Color;
use crate::font::{fitted, printable, shorten, text_width};
use crate::model::{BandKind, Guide, Map, Panel, Series, Shape};
use crate::scene::{Anchor, Item, Rect, Stroke, pixel};

/// Width of a sample, in font sizes.
const SAMPLE: f64 = 1.9;
/// Distance of two entries, in font sizes.
const GAP: f64 = 1.3;
/// Maximum characters of a name.
const MAX_NAME: usize = 70;
/// Height of a row, in font sizes.
pub const ROW: f64 = 1.6;

/// Entry of a legend.
enum Entry<'a> {
    Series(&'a Series),
    Guide(&'a Guide),
    Band(&'a BandKind),
    Arrows(&'a Map),
    /// Number of the entries that have no room.
    More(usize),
}

impl Entry<'_> {
    fn name(&self) -> String {
        match self {
            Entry::Series(series) => printable(&shorten(&series.name, MAX_NAME)),
            Entry::Guide(guide) => printable(&shorten(&guide.name, MAX_NAME)),
            Entry::Band(kind) => printable(&shorten(&kind.name, MAX_NAME)),
            Entry::Arrows(map) => printable(&shorten(&map.arrow_name, MAX_NAME)),
            Entry::More(count) => format!("and {count} more"),
        }
    }

    /// Returns the width of the sample and the name in pixels.
    fn width(&self, page: &Page) -> f64 {
        self.sample_width(page.font) + text_width(&self.name(), page.font)
    }

    fn sample_width(&self, font: f64) -> f64 {
        if matches!(self, Entry::More(_)) { 0.0 } else { (SAMPLE + 0.5) * font }
    }
}

/// Rows of entries with their places.
pub struct Legend<'a> {
    rows: Vec<Vec<(f64, Entry<'a>)>>,
    /// Right end of the entries.
    right: f64,
}

impl<'a> Legend<'a> {
    /// Lays out the legend of a panel within its area in at most `max_rows` rows. The last entry counts those without room.
    pub fn new(panel: &'a Panel, page: &Page, area: &Rect, max_rows: usize) -> Self {
        let flow = Flow { left: area.left + MARGIN, right: area.right - MARGIN, gap: GAP * page.font };
        let series = panel.series.iter().filter(|series| !series.name.is_empty()).map(Entry::Series);
        let guides = panel.guides.iter().filter(|guide| !guide.name.is_empty()).map(Entry::Guide);
        let bands = panel.band_kinds.iter().filter(|kind| !kind.name.is_empty()).map(Entry::Band);
        let arrows = panel.map.iter().filter(|map| !map.arrow_name.is_empty()).map(Entry::Arrows);
        let entries: Vec<(f64, Entry<'a>)> =
            series.chain(guides).chain(bands).chain(arrows).map(|entry| (entry.width(page), entry)).collect();
        let widths: Vec<f64> = entries.iter().map(|(width, _)| *width).collect();
        let mut shown = flow.shown_entries(&widths, max_rows);
        let count = entries.len();
        let mut more = None;
        while shown < count {
            let rest = Entry::More(count - shown);
            let with_rest: Vec<f64> = widths[..shown].iter().copied().chain([rest.width(page)]).collect();
            if shown == 0 || flow.shown_entries(&with_rest, max_rows) == with_rest.len() {
                more = Some((rest.width(page), rest));
                break;
            }
            shown -= 1;
        }
        Legend { rows: flow.rows(entries.into_iter().take(shown).chain(more)), right: flow.right }
    }

    /// Returns the height in pixels.
    pub fn height(&self, page: &Page) -> f64 {
        self.rows.len() as f64 * ROW * page.font
    }

    /// Draws the legend below `top`.
    pub fn draw(&self, page: &mut Page, top: f64) {
        let font = page.font;
        for (number, row) in self.rows.iter().enumerate() {
            let middle = top + (number as f64 + 0.5) * ROW * font;
            for (x, entry) in row {
                let area =
                    Rect { left: *x, right: x + SAMPLE * font, top: middle - 0.5 * font, bottom: middle + 0.5 * font };
                draw_sample(page, entry, area);
                let x = x + entry.sample_width(font);
                let name = fitted(&entry.name(), self.right - x, font);
                let text = page.text(&name, x, middle, Anchor::Start);
                page.write(text);
            }
        }
    }
}

/// Rows between two sides, with the gap of two entries in pixels.
struct Flow {
    left: f64,
    right: f64,
    gap: f64,
}

impl Flow {
    /// Returns the number of entries, from the first one, that have room.
    fn shown_entries(&self, widths: &[f64], max_rows: usize) -> usize {
        let (mut x, mut rows) = (f64::INFINITY, 0);
        for (place, width) in widths.iter().enumerate() {
            if x + width > self.right {
                (x, rows) = (self.left, rows + 1);
            }
            if rows > max_rows {
                return place;
            }
            x += width + self.gap;
        }
        widths.len()
    }

    /// Places entries with their widths in rows.
    fn rows<'a>(&self, entries: impl Iterator<Item = (f64, Entry<'a>)>) -> Vec<Vec<(f64, Entry<'a>)>> {
        let mut rows: Vec<Vec<(f64, Entry<'a>)>> = Vec::new();
        let mut x = f64::INFINITY;
        for (width, entry) in entries {
            if x + width > self.right {
                rows.push(Vec::new());
                x = self.left;
            }
            if let Some(row) = rows.last_mut() {
                row.push((x, entry));
            }
            x += width + self.gap;
        }
        rows
    }
}

fn draw_sample(page: &mut Page, entry: &Entry<'_>, area: Rect) {
    let y = (area.top + area.bottom) / 2.0;
    let middle = pixel((area.left + area.right) / 2.0, y);
    let across = vec![pixel(area.left, y), pixel(area.right, y)];
    match entry {
        Entry::Guide(guide) => page.line(across, Stroke { color: guide.color, width: 2.0, dash: guide.dash }),
        Entry::Band(kind) => draw_band(page, kind, area),
        Entry::Arrows(_) => {
            let half = map::ARROW * page.font / 2.0;
            map::draw_arrow(page, [pixel(middle.x - half, y), pixel(middle.x + half, y)]);
        }
        Entry::More(_) => {}
        Entry::Series(Series { color, shape, .. }) => match shape {
            Shape::Line { width, dash, .. } => page.line(across, Stroke { color: *color, width: *width, dash: *dash }),
            Shape::Area { .. } => {
                page.rect(area, color.with_opacity(0.25));
                let top = [pixel(area.left, area.top), pixel(area.right, area.top)].to_vec();
                page.line(top, Stroke::solid(*color, 2.0));
            }
            Shape::Bars { .. } => page.rect(area, color.with_opacity(0.55)),
            Shape::Marks { mark, .. } => marks::draw(page, *mark, middle, 0.36 * page.font, *color),
            Shape::Whiskers { mark, .. } => {
                whisker(page, middle.x, area.top, area.bottom, *color);
                marks::draw(page, *mark, middle, 0.3 * page.font, *color);
            }
        },
    }
}

/// Draws an interval: a vertical line with its ends.
pub fn whisker(page: &mut Page, x: f64, top: f64, bottom: f64, color: Color) {
    let stroke = Stroke::solid(color, 2.0);
    page.line(vec![pixel(x, top), pixel(x, bottom)], stroke);
    for y in [top, bottom] {
        page.line(vec![pixel(x - 4.0, y), pixel(x + 4.0, y)], stroke);
    }
}

/// Returns the corners of the area below a line.
pub fn area_below(line: &[crate::scene::Pixel], bottom: f64, color: Color) -> Option<Item> {
    let (first, last) = (line.first()?, line.last()?);
    let corners = [pixel(first.x, bottom)].into_iter().chain(line.iter().copied()).chain([pixel(last.x, bottom)]);
    Some(Item::Polygon { corners: corners.collect(), fill: color.with_opacity(0.25) })
}
