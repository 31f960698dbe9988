//! Bands: a strip with hatching and names above the plot, and a light tint in the plot.

use super::page::{Page, text_at};
use crate::color::{INK, WHITE};
use crate::font::text_width;
use crate::model::{Band, BandKind, Hatch, Panel};
use crate::scale::Scale;
use crate::scene::{Anchor, Pixel, Rect, Stroke, pixel};

/// Height of the strip, in font sizes.
pub const STRIP: f64 = 1.7;
/// Pixels between two lines of the hatching.
const HATCH: f64 = 7.0;

/// Draws the strip and the tint of the plot.
pub fn draw(page: &mut Page, panel: &Panel, x: &Scale, plot: &Rect, strip: &Rect) {
    let font = 0.87 * page.font;
    for (left, right, kind) in columns(panel, x, plot) {
        let Some(kind) = panel.band_kinds.get(kind) else { continue };
        page.rect(Rect { left, right, ..*plot }, kind.color.with_opacity(0.14));
        let band = Rect { left, right, ..*strip };
        draw_band(page, kind, band);
        let width = text_width(&kind.label, font);
        if right - left > width + 8.0 {
            let middle = (left + right) / 2.0;
            let behind = Rect {
                left: middle - width / 2.0 - 3.0,
                right: middle + width / 2.0 + 3.0,
                top: strip.top + 3.0,
                bottom: strip.bottom - 3.0,
            };
            page.rect(behind, WHITE.with_opacity(0.9));
            let height = (strip.top + strip.bottom) / 2.0;
            page.write(text_at(&kind.label, middle, height, Anchor::Middle, font));
        }
    }
}

/// Returns the columns of each band. A column with several kinds has the kind of most of its width.
fn columns(panel: &Panel, x: &Scale, plot: &Rect) -> Vec<(f64, f64, usize)> {
    let mut sorted = panel.bands.clone();
    sorted.retain(|band| band.from < band.to && band.kind < panel.band_kinds.len());
    sorted.sort_by(|one, other| one.from.total_cmp(&other.from));
    let value = |column: f64| x.value_at((column - plot.left) / plot.width());
    let mut columns: Vec<(f64, f64, usize)> = Vec::new();
    let mut first = 0;
    let mut left = plot.left;
    while left < plot.right {
        let right = (left + 1.0).min(plot.right);
        let (from, to) = (value(left), value(right));
        while sorted.get(first).is_some_and(|band| band.to <= from) {
            first += 1;
        }
        if let Some(kind) = main_kind(&sorted[first..], from, to, panel.band_kinds.len()) {
            match columns.last_mut().filter(|(_, end, last)| *end == left && *last == kind) {
                Some(last) => last.1 = right,
                None => columns.push((left, right, kind)),
            }
        }
        left = right;
    }
    columns
}

/// Returns the kind of most of the range.
fn main_kind(bands: &[Band], from: f64, to: f64, kinds: usize) -> Option<usize> {
    let mut shares = vec![0.0; kinds];
    for band in bands.iter().take_while(|band| band.from < to) {
        shares[band.kind] += (band.to.min(to) - band.from.max(from)).max(0.0);
    }
    let longest = shares.into_iter().enumerate().max_by(|one, other| one.1.total_cmp(&other.1))?;
    (longest.1 > 0.0).then_some(longest.0)
}

/// Draws a band with the colour and the hatching of its kind.
pub fn draw_band(page: &mut Page, kind: &BandKind, area: Rect) {
    page.rect(area, kind.color.with_opacity(0.55));
    let lines: Vec<[Pixel; 2]> = match kind.hatch {
        Hatch::None => Vec::new(),
        Hatch::Falling => falling(&area),
        Hatch::Rising => rising(&area),
        Hatch::Crossed => falling(&area).into_iter().chain(rising(&area)).collect(),
        Hatch::Vertical => vertical(&area),
        Hatch::Horizontal => horizontal(&area),
        Hatch::Grid => vertical(&area).into_iter().chain(horizontal(&area)).collect(),
    };
    for line in lines {
        page.line(line.to_vec(), Stroke::solid(INK.with_opacity(0.55), 1.0));
    }
}

/// Returns distances from `first` to less than `last`.
fn distances(first: f64, last: f64) -> impl Iterator<Item = f64> {
    let count = ((last - first) / HATCH).ceil().clamp(0.0, 2000.0) as u32;
    (0..count).map(move |number| first + f64::from(number) * HATCH)
}

fn vertical(area: &Rect) -> Vec<[Pixel; 2]> {
    let lines = distances(area.left + 3.0, area.right);
    lines.map(|x| [pixel(x, area.top), pixel(x, area.bottom)]).collect()
}

fn horizontal(area: &Rect) -> Vec<[Pixel; 2]> {
    let lines = distances(area.top + 3.0, area.bottom);
    lines.map(|y| [pixel(area.left, y), pixel(area.right, y)]).collect()
}

fn falling(area: &Rect) -> Vec<[Pixel; 2]> {
    // The lines of neighbouring bands meet, because they begin at multiples of the distance.
    let first = ((area.left - area.height()) / HATCH).floor() * HATCH;
    let line = |start: f64| {
        let (left, right) = (start.max(area.left), (start + area.height()).min(area.right));
        (left < right).then(|| [pixel(left, area.top + left - start), pixel(right, area.top + right - start)])
    };
    distances(first, area.right).filter_map(line).collect()
}

fn rising(area: &Rect) -> Vec<[Pixel; 2]> {
    let turned = |[from, to]: [Pixel; 2]| [from, to].map(|at| pixel(at.x, area.top + area.bottom - at.y));
    falling(area).into_iter().map(turned).collect()
}
