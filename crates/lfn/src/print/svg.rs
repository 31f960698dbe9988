//! SVG pictures: the look that all pictures of the project share, and the texts for screen readers.
//!
//! Pictures are as wide as a column of text, and stay readable at half of this width.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::sanitize::one_line;

pub const TITLE_FONT: f64 = 26.0;
pub const FONT: f64 = 18.0;
pub const SMALL_FONT: f64 = 16.0;

// Colours that colour-blind readers can distinguish (Okabe and Ito). RED is darker, for text on white.
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
pub const ORANGE: RGBColor = RGBColor(213, 94, 0);
pub const GREEN: RGBColor = RGBColor(0, 158, 115);
pub const SKY: RGBColor = RGBColor(86, 180, 233);
pub const YELLOW: RGBColor = RGBColor(240, 228, 66);
pub const PURPLE: RGBColor = RGBColor(204, 121, 167);
pub const INK: RGBColor = RGBColor(30, 30, 30);
pub const RED: RGBColor = RGBColor(176, 0, 32);

/// Width of the characters of a wide sans-serif font (DejaVu Sans), relative to the size of the font.
const NARROW_CHARACTER: f64 = 0.4;
const USUAL_CHARACTER: f64 = 0.64;
const CAPITAL: f64 = 0.78;
const WIDE_CHARACTER: f64 = 1.0;

/// Area of a picture.
pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Result of drawing on a canvas.
pub type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
/// Column and row of a point.
pub type Pixel = (i32, i32);

/// Title and description of a picture, for readers that cannot see it.
#[derive(Debug)]
pub struct PictureText<'a> {
    pub title: &'a str,
    pub description: &'a str,
}

/// Size of a picture in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub width: i32,
    pub height: i32,
}

/// Returns a picture as SVG. The same drawing gives the same text.
pub fn picture(text: &PictureText<'_>, size: Size, draw: impl FnOnce(&Canvas<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    {
        let canvas = SVGBackend::with_string(&mut svg, (size.width as u32, size.height as u32)).into_drawing_area();
        let drawn = canvas.fill(&WHITE).and_then(|()| draw(&canvas)).and_then(|()| canvas.present());
        drawn.map_err(|error| anyhow::anyhow!("cannot draw the picture: {error}"))?;
    }
    Ok(with_description(&svg, text))
}

/// Returns the style of a text whose font has this size in pixels.
pub fn text_style(size: f64, color: RGBColor) -> TextStyle<'static> {
    // The SVG backend divides the size of a font by 1.24.
    ("sans-serif", size * 1.24).into_font().color(&color)
}

/// Writes a text. `at` is the left end, the centre or the right end, at half the height of the text.
pub fn write(canvas: &Canvas<'_>, text: &str, at: Pixel, size: f64, color: RGBColor, side: HPos) -> Drawn {
    let style = text_style(size, color).pos(Pos::new(side, VPos::Center));
    canvas.draw(&Text::new(printable(text), at, style))
}

/// Returns the maximum width of a text in pixels.
pub fn text_width(text: &str, size: f64) -> i32 {
    (size * text.chars().map(character_width).sum::<f64>()).ceil() as i32
}

/// Returns the width of a character, relative to the size of the font.
fn character_width(character: char) -> f64 {
    match character {
        'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | ' ' | '.' | ',' | ':' | ';' | '-' | '(' | ')' | '[' | ']' | '/' => {
            NARROW_CHARACTER
        }
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' | '→' => WIDE_CHARACTER,
        'A'..='Z' => CAPITAL,
        character if character.is_ascii() => USUAL_CHARACTER,
        _ => WIDE_CHARACTER,
    }
}

/// Returns the text in one line, with the characters that XML permits.
fn printable(text: &str) -> String {
    one_line(text).replace(['\u{fffe}', '\u{ffff}'], "?")
}

/// Inserts `<title>` and `<desc>`, which screen readers read and browsers show.
fn with_description(svg: &str, text: &PictureText<'_>) -> String {
    let [title, description] = [text.title, text.description].map(escape);
    let names = format!(r#"<title id="title">{title}</title><desc id="desc">{description}</desc>"#);
    let opened = svg.replacen("<svg ", r#"<svg role="img" aria-labelledby="title desc" "#, 1);
    // The first tag ends before its content begins.
    match opened.split_once('>') {
        Some((tag, content)) => format!("{tag}>\n{names}{content}"),
        None => opened,
    }
}

/// Escapes a text for XML.
fn escape(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Checks of pictures, for the tests of every picture.
#[cfg(test)]
pub mod check {
    use super::text_width;

    /// Returns the texts of the picture, without title and description.
    pub fn texts(svg: &str) -> Vec<&str> {
        let texts = svg.split("<text ").skip(1);
        texts.filter_map(|text| Some(text.split_once('>')?.1.split_once("</text>")?.0.trim())).collect()
    }

    /// Panics if a text leaves the picture. Turned texts are not checked.
    pub fn no_text_leaves(svg: &str) {
        let (width, height) = (number(svg, "width"), number(svg, "height"));
        for element in svg.split("<text ").skip(1).filter(|element| !element.contains("rotate")) {
            let text = texts(&format!("<text {element}"))[0].to_owned();
            let length = f64::from(text_width(&unescaped(&text), number(element, "font-size")));
            let left = match element {
                e if e.contains("\"start\"") => number(element, "x"),
                e if e.contains("\"end\"") => number(element, "x") - length,
                _ => number(element, "x") - length / 2.0,
            };
            assert!(left >= 0.0 && left + length <= width, "{text}: {left} + {length}");
            let (middle, half) = (number(element, "y"), number(element, "font-size") / 2.0);
            assert!(middle - half >= 0.0 && middle + half <= height, "{text}: {middle} of {height}");
        }
    }

    fn unescaped(text: &str) -> String {
        let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
        escapes.iter().fold(text.to_owned(), |text, (escape, character)| text.replace(escape, character))
    }

    fn number(element: &str, name: &str) -> f64 {
        let element = format!(" {element}");
        let (_, rest) = element.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_stay_texts() {
        let text = PictureText { title: "<script>&\u{1b}[2J", description: "a\u{ffff}\u{0}b\n</desc>" };
        let svg = picture(&text, Size { width: 100, height: 50 }, |canvas| {
            write(canvas, "</text>\u{8}", (1, 20), 10.0, INK, HPos::Left)
        })
        .unwrap();
        assert!(svg.contains(r#"<title id="title">&lt;script&gt;&amp;?[2J</title>"#), "{svg}");
        assert!(svg.contains(r#"<desc id="desc">a??b &lt;/desc&gt;</desc>"#), "{svg}");
        assert_eq!(check::texts(&svg), ["&lt;/text&gt;?"]);
    }
}
