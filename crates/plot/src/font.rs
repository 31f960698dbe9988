//! The font of all pictures: widths for the layout, and outlines for PNG.
//!
//! Arimo has the widths of Arial, Helvetica and Liberation Sans. `font/README.md` has its source and its licence.

use std::sync::OnceLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

static BYTES: &[u8] = include_bytes!("../font/Arimo.ttf");

/// Fonts that an SVG names, the best one first.
pub const FAMILIES: &str = "Arimo, Arial, 'Liberation Sans', Helvetica, sans-serif";

/// Height of a text above its baseline, in font sizes. Capitals with accents are not higher.
pub const ASCENT: f64 = 0.92;
/// Depth of a text below its baseline, in font sizes.
pub const DESCENT: f64 = 0.22;
/// Height of capitals, in font sizes.
pub const CAPITAL: f64 = 0.72;
/// Width of a character that the font lacks, in font sizes: that of wide characters.
const UNKNOWN: f64 = 1.0;

fn face() -> Option<&'static Face<'static>> {
    static FACE: OnceLock<Option<Face<'static>>> = OnceLock::new();
    FACE.get_or_init(|| Face::parse(BYTES, 0).ok()).as_ref()
}

fn units() -> f64 {
    face().map_or(2048.0, |face| f64::from(face.units_per_em()))
}

fn advance(glyph: GlyphId) -> f64 {
    let advance = face().and_then(|face| face.glyph_hor_advance(glyph));
    advance.map_or(UNKNOWN, |advance| f64::from(advance) / units())
}

/// Returns the width of a text in pixels, for a font of `size` pixels.
pub fn text_width(text: &str, size: f64) -> f64 {
    let glyph = |character| face().and_then(|face| face.glyph_index(character));
    size * text.chars().map(|character| glyph(character).map_or(UNKNOWN, advance)).sum::<f64>()
}

/// Draws the outlines of a text from `(x, baseline)` to the right. A character that the font lacks is an empty box.
pub(crate) fn outline(text: &str, x: f64, baseline: f64, size: f64, builder: &mut impl OutlineBuilder) {
    let Some(face) = face() else { return };
    let scale = size / units();
    let mut left = x;
    for character in text.chars() {
        let glyph = face.glyph_index(character);
        let mut placed = Placed { builder, scale, left, baseline };
        face.outline_glyph(glyph.unwrap_or(GlyphId(0)), &mut placed);
        left += size * glyph.map_or(UNKNOWN, advance);
    }
}

/// Moves an outline to its place in the picture.
struct Placed<'a, B> {
    builder: &'a mut B,
    scale: f64,
    left: f64,
    baseline: f64,
}

impl<B> Placed<'_, B> {
    fn x(&self, x: f32) -> f32 {
        (self.left + f64::from(x) * self.scale) as f32
    }

    fn y(&self, y: f32) -> f32 {
        (self.baseline - f64::from(y) * self.scale) as f32
    }
}

impl<B: OutlineBuilder> OutlineBuilder for Placed<'_, B> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.builder.move_to(self.x(x), self.y(y));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.builder.line_to(self.x(x), self.y(y));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.builder.quad_to(self.x(x1), self.y(y1), self.x(x), self.y(y));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.builder.curve_to(self.x(x1), self.y(y1), self.x(x2), self.y(y2), self.x(x), self.y(y));
    }

    fn close(&mut self) {
        self.builder.close();
    }
}

/// Returns the text in one line: control characters and characters that XML forbids become `?` or a space.
pub fn printable(text: &str) -> String {
    let replaced = |character: char| match character {
        '\n' | '\r' | '\t' => ' ',
        character if character.is_control() || is_invisible(character) => '?',
        character => character,
    };
    text.chars().map(replaced).collect()
}

/// Returns true for noncharacters, and for characters that change the direction of a text or have no width.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(character, '\u{fdd0}'..='\u{fdef}')
        || u32::from(character) & 0xfffe == 0xfffe
}

/// Returns the text, or its beginning and its end with an ellipsis between them, so that it is at most `width` pixels
/// long. Empty if not even one character fits.
pub fn fitted(text: &str, width: f64, size: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let (mut fits, mut too_long) = (0, text.chars().count());
    while too_long - fits > 1 {
        let middle = fits.midpoint(too_long);
        if text_width(&shorten(text, middle), size) <= width {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    if fits == 0 { String::new() } else { shorten(text, fits) }
}

/// Returns the text with at most this number of characters; an ellipsis replaces the middle.
pub fn shorten(text: &str, max_characters: usize) -> String {
    let count = text.chars().count();
    if count <= max_characters {
        return text.to_owned();
    }
    let tail = max_characters.saturating_sub(1) / 2;
    let head = max_characters.saturating_sub(1) - tail;
    text.chars().take(head).chain(['…']).chain(text.chars().skip(count - tail)).collect()
}

/// Returns the text in lines of at most `width` pixels. A longer word is shortened.
pub fn wrapped(text: &str, width: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = lines.last().map(|line| format!("{line} {word}"));
        match longer.filter(|line| text_width(line, size) <= width) {
            Some(longer) => {
                lines.pop();
                lines.push(longer);
            }
            None => lines.push(fitted(word, width, size)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_arial() {
        // Advance widths of Arial: 0 is 1139, W is 1933 and i is 455 of 2048.
        for (text, units) in [("0", 1139.0), ("W", 1933.0), ("i", 455.0), ("0Wi", 3527.0)] {
            assert!((text_width(text, 2048.0) - units).abs() < 1.0, "{text}: {}", text_width(text, 2048.0));
        }
        assert_eq!(text_width("漢", 10.0), 10.0);
    }

    #[test]
    fn long_text_keeps_its_start_and_its_end() {
        let text = "[2001:db8::1]:40000 → [2001:db8::2]:7323";
        for width in 0..400 {
            let fits = fitted(text, f64::from(width), 12.0);
            assert!(text_width(&fits, 12.0) <= f64::from(width), "{width}: {fits}");
        }
        let short = fitted(text, 150.0, 12.0);
        assert!(short.starts_with("[2001:") && short.ends_with(":7323") && short.contains('…'), "{short}");
    }

    #[test]
    fn wrapped_lines_fit_and_keep_their_words() {
        let text = "far to near: p99 lateness 12.5 ms is above 5.39 ms";
        let lines = wrapped(text, 120.0, 12.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| text_width(line, 12.0) <= 120.0), "{lines:?}");
        assert_eq!(lines.join(" "), text);
    }

    #[test]
    fn hostile_characters_are_replaced() {
        assert_eq!(printable("a\u{1b}[2J\n\u{202e}b\u{ffff}\u{0}"), "a?[2J ?b??");
    }
}
