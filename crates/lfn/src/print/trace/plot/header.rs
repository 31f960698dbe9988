//! Header of a picture: its title, the ends of the connection, and the main figures in words.

use std::time::Duration;

use lfn_base::units::show_duration;
use plotters::style::text_anchor::HPos;

use super::layout::{MARGIN, WIDTH};
use super::steps::idle_share;
use super::view::View;
use crate::print::svg::{self, Canvas, Drawn, INK, SMALL_FONT, TITLE_FONT};

/// Height of the title and the three lines below it.
pub const HEADER: i32 = 112;
/// Smallest font of a line that is too long for the picture. Beyond it, the line is cut.
const MIN_FONT: f64 = 11.0;

/// Draws the title and the three lines.
pub fn draw(canvas: &Canvas<'_>, title: &str, view: &View<'_>) -> Drawn {
    svg::write(canvas, title, (MARGIN, 24), TITLE_FONT, INK, HPos::Left)?;
    write_fitted(canvas, &ends(view), 52)?;
    write_fitted(canvas, view.name, 75)?;
    write_fitted(canvas, &facts(view), 98)
}

/// Returns the header in words, without the title.
pub fn describe(view: &View<'_>) -> String {
    format!("{}. {}: {}.", ends(view), shorten(view.name, 200), facts(view))
}

/// Returns the sender and the receiver.
fn ends(view: &View<'_>) -> String {
    format!("{} → {}", view.evidence.sender, view.evidence.receiver)
}

/// Returns the main figures of the shown time.
fn facts(view: &View<'_>) -> String {
    let span = Duration::from_secs_f64(view.to - view.from);
    let bytes = view.acknowledged();
    let mut facts = format!("{} acknowledged in {}, {}", bytes.decimal(), show_duration(span), bytes.per(span));
    if !view.evidence.rtt.base.is_zero() {
        facts += &format!(", base RTT {}", show_duration(view.evidence.rtt.base));
    }
    if let Some(idle) = idle_share(view) {
        facts += &format!(", nearly idle {:.0} % of the time", idle * 100.0);
    }
    facts
}

/// Writes a line in a font that is small enough. The middle of a longer line is replaced by an ellipsis.
fn write_fitted(canvas: &Canvas<'_>, text: &str, y: i32) -> Drawn {
    let width = WIDTH - 2 * MARGIN;
    let size = SMALL_FONT.min(SMALL_FONT * f64::from(width) / f64::from(svg::text_width(text, SMALL_FONT).max(1)));
    let size = (size * 10.0).floor().max(10.0 * MIN_FONT) / 10.0;
    svg::write(canvas, &fitted(text, width, size), (MARGIN, y), size, INK, HPos::Left)
}

/// Returns the text, or its beginning and its end, so that it is at most `width` pixels long.
fn fitted(text: &str, width: i32, size: f64) -> String {
    let (mut fits, mut too_long) = (1, text.chars().count() + 1);
    while too_long - fits > 1 {
        let middle = fits.midpoint(too_long);
        if svg::text_width(&shorten(text, middle), size) <= width {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    shorten(text, fits)
}

/// Returns the text with at most this number of characters; an ellipsis replaces the middle.
fn shorten(text: &str, max_characters: usize) -> String {
    let count = text.chars().count();
    if count <= max_characters {
        return text.to_owned();
    }
    let half = max_characters.saturating_sub(1) / 2;
    let head = text.chars().take(half);
    head.chain(['…']).chain(text.chars().skip(count - half)).collect()
}
