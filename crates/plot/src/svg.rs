//! A drawing as SVG. The same drawing gives the same text.

use std::fmt::Write as _;

use crate::color::Color;
use crate::font::{FAMILIES, printable, text_width};
use crate::scene::{Anchor, Drawing, Item, Pixel, Stroke, Text};

impl Drawing {
    /// Returns the picture as SVG.
    ///
    /// Each text has its computed length, so a viewer with a wider font does not let labels overlap.
    pub fn svg(&self) -> String {
        let (width, height) = (self.size.width, self.size.height);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"title desc\" width=\"{width}\" \
             height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"{FAMILIES}\" font-kerning=\"none\" \
             stroke-linejoin=\"round\" xml:space=\"preserve\">\n<title id=\"title\">{}</title>\
             <desc id=\"desc\">{}</desc>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
            escape(&self.title),
            escape(&self.description)
        );
        for item in &self.items {
            push_item(&mut svg, item);
        }
        svg += "</svg>\n";
        svg
    }
}

fn push_item(svg: &mut String, item: &Item) {
    // Writing to a string cannot fail.
    let _ = match item {
        Item::Rect { area, fill } => writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}/>",
            number(area.left),
            number(area.top),
            number(area.width()),
            number(area.height()),
            filled(*fill)
        ),
        Item::Polygon { corners, fill } => {
            writeln!(svg, "<polygon points=\"{}\" {}/>", points(corners), filled(*fill))
        }
        Item::Line { points: line, stroke } => {
            writeln!(svg, "<polyline points=\"{}\" fill=\"none\" {}/>", points(line), stroked(stroke))
        }
        Item::Circle { center, radius, fill, stroke } => {
            let fill = fill.map_or_else(|| "fill=\"none\"".to_owned(), filled);
            let stroke = stroke.as_ref().map(stroked).unwrap_or_default();
            let [x, y, radius] = [center.x, center.y, *radius].map(number);
            writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" {fill} {stroke}/>")
        }
        Item::Text(text) => push_text(svg, text),
    };
}

fn push_text(svg: &mut String, text: &Text) -> std::fmt::Result {
    let anchor = match text.anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" font-size=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"{anchor} {}>{}</text>",
        number(text.at.x),
        number(text.at.y),
        number(text.size),
        number(text_width(&text.text, text.size)),
        filled(text.color),
        escape(&text.text)
    )
}

/// Returns a number with at most one decimal.
fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0 + 0.0;
    if rounded == rounded.trunc() { format!("{rounded:.0}") } else { format!("{rounded:.1}") }
}

fn points(line: &[Pixel]) -> String {
    line.iter().map(|at| format!("{},{}", number(at.x), number(at.y))).collect::<Vec<_>>().join(" ")
}

fn filled(color: Color) -> String {
    paint("fill", color)
}

fn stroked(stroke: &Stroke) -> String {
    let mut text = format!("{} stroke-width=\"{}\"", paint("stroke", stroke.color), number(stroke.width));
    if let Some(lengths) = stroke.dash.lengths() {
        let [dash, gap] = lengths.map(|length| number(length * stroke.width));
        let _ = write!(text, " stroke-dasharray=\"{dash} {gap}\"");
    }
    text
}

fn paint(attribute: &str, color: Color) -> String {
    let Color { red, green, blue, opacity } = color;
    let mut text = format!("{attribute}=\"#{red:02x}{green:02x}{blue:02x}\"");
    if opacity < 1.0 {
        let _ = write!(text, " {attribute}-opacity=\"{opacity:.2}\"");
    }
    text
}

/// Escapes a text for XML.
fn escape(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
