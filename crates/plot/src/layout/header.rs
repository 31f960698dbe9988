//! Header of a picture: its title, the lines below it, and the mark of figures that are not reliable.

use super::page::{LINE, MARGIN, Page, text_at};
use crate::color::RED;
use crate::font::{fitted, printable, text_width, wrapped};
use crate::model::Picture;
use crate::scene::{Anchor, Rect, Text};

/// Size of the title, in usual font sizes.
const TITLE: f64 = 1.45;
/// Smallest size of a line that is too long, in usual font sizes. A longer line is shortened.
const MIN_LINE: f64 = 0.75;
/// Maximum height of the header, as a share of the picture.
const MAX_SHARE: f64 = 0.36;
/// Maximum lines of the mark.
const MAX_WARNING_LINES: usize = 3;

/// Draws the header of a picture of this height, and returns its bottom.
pub fn draw(page: &mut Page, picture: &Picture, height: f64) -> f64 {
    let font = page.font;
    let width = page.width - 2.0 * MARGIN;
    let mut bottom = MARGIN / 2.0;
    if !picture.title.is_empty() {
        let row = TITLE * font * 1.35;
        write_fitted(page, &picture.title, bottom + row / 2.0, TITLE * font);
        bottom += row;
    }
    let mut warning: Vec<String> = Vec::new();
    if let Some(reason) = &picture.warning {
        warning = wrapped(&printable(&format!("NOT ACCURATE: {reason}")), width, font);
        warning.truncate(MAX_WARNING_LINES);
    }
    let row = LINE * font * 0.92;
    let room = MAX_SHARE * height - bottom - row * warning.len() as f64;
    let lines = (room / row).max(1.0) as usize;
    for line in picture.lines.iter().filter(|line| !line.is_empty()).take(lines) {
        write_fitted(page, line, bottom + row / 2.0, font);
        bottom += row;
    }
    if !warning.is_empty() {
        let area =
            Rect { left: 0.0, top: bottom + 2.0, right: page.width, bottom: bottom + 4.0 + row * warning.len() as f64 };
        page.rect(area, RED.with_opacity(0.1));
        for line in warning {
            let text = page.text(&line, MARGIN, bottom + 2.0 + row / 2.0, Anchor::Start);
            page.write(Text { color: RED, ..text });
            bottom += row;
        }
        bottom += 4.0;
    }
    bottom + MARGIN / 2.0
}

/// Writes a line in a font that is small enough. The middle of a longer line is replaced by an ellipsis.
fn write_fitted(page: &mut Page, text: &str, middle: f64, size: f64) {
    let (text, width) = (printable(text), page.width - 2.0 * MARGIN);
    let fits = size * width / text_width(&text, size).max(1.0);
    let size = size.min(fits.max(MIN_LINE * page.font));
    page.write(text_at(&fitted(&text, width, size), MARGIN, middle, Anchor::Start, size));
}
