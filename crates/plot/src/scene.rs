//! Shapes of a picture at their places, in pixels from the upper left corner. SVG and PNG have the same shapes.

use crate::color::{Color, Dash};
use crate::font::{ASCENT, DESCENT, text_width};

/// A place in a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pixel {
    pub x: f64,
    pub y: f64,
}

/// Returns a place in pixels from the upper left corner.
pub const fn pixel(x: f64, y: f64) -> Pixel {
    Pixel { x, y }
}

/// A rectangle with its sides along the axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Rect {
    /// Returns the width in pixels.
    pub fn width(&self) -> f64 {
        self.right - self.left
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> f64 {
        self.bottom - self.top
    }

    /// Returns true if both rectangles have a common area.
    pub fn overlaps(&self, other: &Rect) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    /// Returns true if `inner` is inside of this rectangle.
    pub fn contains(&self, inner: &Rect) -> bool {
        self.left <= inner.left && inner.right <= self.right && self.top <= inner.top && inner.bottom <= self.bottom
    }
}

/// Size of a picture in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

/// Line of a shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stroke {
    pub color: Color,
    /// Width of the line in pixels.
    pub width: f64,
    pub dash: Dash,
}

impl Stroke {
    /// Returns a solid line.
    pub const fn solid(color: Color, width: f64) -> Self {
        Stroke { color, width, dash: Dash::Solid }
    }
}

/// Horizontal place of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A line of text.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub text: String,
    /// The left end, the middle or the right end of the baseline.
    pub at: Pixel,
    pub anchor: Anchor,
    /// Size of the font in pixels.
    pub size: f64,
    pub color: Color,
}

impl Text {
    /// Returns the area of the text.
    pub fn area(&self) -> Rect {
        let width = text_width(&self.text, self.size);
        let left = match self.anchor {
            Anchor::Start => self.at.x,
            Anchor::Middle => self.at.x - width / 2.0,
            Anchor::End => self.at.x - width,
        };
        let (top, bottom) = (self.at.y - ASCENT * self.size, self.at.y + DESCENT * self.size);
        Rect { left, top, right: left + width, bottom }
    }
}

/// A shape of a drawing.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Rect { area: Rect, fill: Color },
    Polygon { corners: Vec<Pixel>, fill: Color },
    Line { points: Vec<Pixel>, stroke: Stroke },
    Circle { center: Pixel, radius: f64, fill: Option<Color>, stroke: Option<Stroke> },
    Text(Text),
}

/// A picture: its shapes in the order of drawing.
#[derive(Clone, Debug)]
pub struct Drawing {
    pub(crate) size: Size,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) items: Vec<Item>,
}

impl Drawing {
    /// Returns the size in pixels.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the texts of the picture, in the order of drawing.
    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        self.items.iter().filter_map(|item| if let Item::Text(text) = item { Some(text) } else { None })
    }
}
