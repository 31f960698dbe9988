//! The page of a picture: its shapes, and the areas that its texts take.

use crate::color::{Color, INK, WHITE};
use crate::font::printable;
use crate::scene::{Anchor, Item, Pixel, Rect, Stroke, Text, pixel};

/// Height of a line of text, in font sizes.
pub const LINE: f64 = 1.5;
/// Pixels between a text and the side of the picture.
pub const MARGIN: f64 = 12.0;
/// Size of the usual font in a picture of the default size, in pixels.
pub const DEFAULT_FONT: f64 = 15.0;
/// Pixels that stay free between two texts.
const GAP: f64 = 2.0;

/// Shapes of a picture that is being laid out.
#[derive(Debug)]
pub struct Page {
    pub width: f64,
    /// Size of the usual font in pixels.
    pub font: f64,
    items: Vec<Item>,
    /// Areas of the texts so far.
    taken: Vec<Rect>,
}

impl Page {
    /// Creates an empty page.
    pub fn new(width: f64, font: f64) -> Self {
        Page { width, font, items: Vec::new(), taken: Vec::new() }
    }

    /// Returns the shapes in the order of drawing.
    pub fn into_items(self) -> Vec<Item> {
        self.items
    }

    /// Adds a shape above those before it.
    pub fn add(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Adds a line through these points. Its width is for the usual font of a picture of the default size.
    pub fn line(&mut self, points: Vec<Pixel>, stroke: Stroke) {
        if points.len() > 1 {
            let width = stroke.width * (self.font / DEFAULT_FONT).clamp(0.75, 1.8);
            self.add(Item::Line { points, stroke: Stroke { width, ..stroke } });
        }
    }

    /// Adds a filled rectangle.
    pub fn rect(&mut self, area: Rect, fill: Color) {
        if area.width() > 0.0 && area.height() > 0.0 {
            self.add(Item::Rect { area, fill });
        }
    }

    /// Writes a text if it fits into the page and overlaps no other text. Returns false otherwise.
    pub fn write(&mut self, text: Text) -> bool {
        let text = Text { text: printable(&text.text), ..text };
        if text.text.trim().is_empty() || !self.is_free(&text.area()) {
            return false;
        }
        self.taken.push(text.area());
        self.add(Item::Text(text));
        true
    }

    /// Writes a text with a white background at the first of these places that is free and inside of `within`.
    pub fn write_at_free_place(&mut self, places: &[Text], within: &Rect) -> bool {
        let fits = |text: &&Text| within.contains(&text.area()) && self.is_free(&text.area());
        let Some(text) = places.iter().find(fits).cloned() else { return false };
        let area = text.area();
        let behind = Rect { left: area.left - GAP, right: area.right + GAP, ..area };
        self.rect(behind, WHITE.with_opacity(0.8));
        self.write(text)
    }

    /// Returns true if a text may have this area.
    fn is_free(&self, area: &Rect) -> bool {
        let padded = Rect { left: area.left - GAP, right: area.right + GAP, ..*area };
        area.left >= 0.0
            && area.right <= self.width
            && area.top >= 0.0
            && !self.taken.iter().any(|taken| taken.overlaps(&padded))
    }

    /// Returns a text in the usual font at the vertical centre `middle`.
    pub fn text(&self, text: &str, x: f64, middle: f64, anchor: Anchor) -> Text {
        text_at(text, x, middle, anchor, self.font)
    }
}

/// Returns a text whose capitals are centred at the height `middle`.
pub fn text_at(text: &str, x: f64, middle: f64, anchor: Anchor, size: f64) -> Text {
    let at = pixel(x, middle + crate::font::CAPITAL / 2.0 * size);
    Text { text: printable(text), at, anchor, size, color: INK }
}
