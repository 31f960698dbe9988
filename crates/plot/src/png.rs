//! A drawing as PNG (RFC 2083, W3C PNG third edition): 8-bit RGB, with the outlines of the embedded font.

use std::io::{self, Write};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use ttf_parser::OutlineBuilder;

use crate::font;
use crate::raster::{Outline, Raster};
use crate::scene::{Drawing, Item, Pixel, Stroke, Text, pixel};

/// Pixels of a PNG for each pixel of the picture, so that it is sharp in print.
pub const PNG_SCALE: u32 = 2;
/// Maximum pixels of a PNG with this scale. A larger picture has one pixel for each of its pixels.
const MAX_SCALED_PIXELS: u64 = 32_000_000;

const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];
/// 8 bits for each colour, RGB, and the only methods of compression, filtering and order.
const FORMAT: [u8; 5] = [8, 2, 0, 0, 0];
/// Filter of a row: the difference to the row above.
const FILTER_UP: u8 = 2;
/// Curves of a glyph become this number of lines.
const LINES_OF_A_CURVE: u32 = 6;

impl Drawing {
    /// Returns the picture as PNG, with [`PNG_SCALE`] pixels for each pixel of the picture in each direction.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        let size = self.size;
        let scaled = u64::from(size.width) * u64::from(size.height) * u64::from(PNG_SCALE * PNG_SCALE);
        let scale = if scaled <= MAX_SCALED_PIXELS { PNG_SCALE } else { 1 };
        let (width, height) = (size.width * scale, size.height * scale);
        let mut raster = Raster::white(width as usize, height as usize);
        for item in &self.items {
            draw(&mut raster, item, f64::from(scale));
        }
        encode(&raster, width, height)
    }
}

fn encode(raster: &Raster, width: u32, height: u32) -> io::Result<Vec<u8>> {
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::default());
    let length = raster.width * 3;
    let mut above = vec![0; length];
    let mut filtered = vec![FILTER_UP; length + 1];
    for row in raster.pixels.chunks_exact(length) {
        for (place, (new, old)) in row.iter().zip(&above).enumerate() {
            filtered[place + 1] = new.wrapping_sub(*old);
        }
        rows.write_all(&filtered)?;
        above.copy_from_slice(row);
    }
    let mut png = SIGNATURE.to_vec();
    let header: Vec<u8> = [width.to_be_bytes(), height.to_be_bytes()].concat().into_iter().chain(FORMAT).collect();
    push_chunk(&mut png, *b"IHDR", &header);
    push_chunk(&mut png, *b"IDAT", &rows.finish()?);
    push_chunk(&mut png, *b"IEND", &[]);
    Ok(png)
}

/// Adds a chunk: its length, its name, its content and the checksum of both.
fn push_chunk(png: &mut Vec<u8>, name: [u8; 4], content: &[u8]) {
    let mut checksum = Crc::new();
    checksum.update(&name);
    checksum.update(content);
    png.extend((content.len() as u32).to_be_bytes());
    png.extend(name);
    png.extend(content);
    png.extend(checksum.sum().to_be_bytes());
}

/// Draws a shape with all places multiplied by a scale.
fn draw(raster: &mut Raster, item: &Item, scale: f64) {
    let place = |at: &Pixel| pixel(at.x * scale, at.y * scale);
    let widened = |stroke: &Stroke| Stroke { width: stroke.width * scale, ..*stroke };
    let mut outline = Outline::default();
    match item {
        Item::Rect { area, fill } => {
            let corners =
                [(area.left, area.top), (area.right, area.top), (area.right, area.bottom), (area.left, area.bottom)];
            outline.polygon(&corners.map(|(x, y)| pixel(x * scale, y * scale)));
            raster.fill(&outline, *fill);
        }
        Item::Polygon { corners, fill } => {
            outline.polygon(&corners.iter().map(place).collect::<Vec<_>>());
            raster.fill(&outline, *fill);
        }
        Item::Line { points, stroke } => {
            outline.stroke(&points.iter().map(place).collect::<Vec<_>>(), &widened(stroke));
            raster.fill(&outline, stroke.color);
        }
        Item::Circle { center, radius, fill, stroke } => {
            let (center, radius) = (place(center), radius * scale);
            if let Some(fill) = fill {
                outline.circle(center, radius);
                raster.fill(&outline, *fill);
            }
            if let Some(stroke) = stroke {
                let half = stroke.width * scale / 2.0;
                let mut ring = Outline::default();
                ring.circle(center, radius + half);
                ring.hole(center, radius - half);
                raster.fill(&ring, stroke.color);
            }
        }
        Item::Text(text) => {
            raster.fill(&text_outline(text, scale), text.color);
        }
    }
}

fn text_outline(text: &Text, scale: f64) -> Outline {
    let mut glyphs = Glyphs::default();
    font::outline(&text.text, text.area().left * scale, text.at.y * scale, text.size * scale, &mut glyphs);
    glyphs.outline
}

/// Collects the outlines of glyphs.
#[derive(Default)]
struct Glyphs {
    outline: Outline,
    start: Option<Pixel>,
    last: Option<Pixel>,
}

impl Glyphs {
    fn go_to(&mut self, to: Pixel) {
        if let Some(last) = self.last {
            self.outline.edge(last, to);
        }
        self.last = Some(to);
    }

    /// Adds lines along a curve.
    fn curve(&mut self, at: impl Fn(Pixel, f64) -> Pixel) {
        let Some(from) = self.last else { return };
        for number in 1..=LINES_OF_A_CURVE {
            self.go_to(at(from, f64::from(number) / f64::from(LINES_OF_A_CURVE)));
        }
    }
}

/// Returns the place between two places.
fn between(from: Pixel, to: Pixel, share: f64) -> Pixel {
    pixel(from.x + share * (to.x - from.x), from.y + share * (to.y - from.y))
}

impl OutlineBuilder for Glyphs {
    fn move_to(&mut self, x: f32, y: f32) {
        let at = pixel(x.into(), y.into());
        (self.start, self.last) = (Some(at), Some(at));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.go_to(pixel(x.into(), y.into()));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let (control, end) = (pixel(x1.into(), y1.into()), pixel(x.into(), y.into()));
        self.curve(|from, share| between(between(from, control, share), between(control, end, share), share));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let [one, two, end] = [(x1, y1), (x2, y2), (x, y)].map(|(x, y)| pixel(x.into(), y.into()));
        self.curve(|from, share| {
            let [a, b, c] = [between(from, one, share), between(one, two, share), between(two, end, share)];
            between(between(a, b, share), between(b, c, share), share)
        });
    }

    fn close(&mut self) {
        if let Some(start) = self.start.take() {
            self.go_to(start);
        }
        self.last = None;
    }
}
