//! Charts and maps as data, their layout, and their output as SVG and PNG.
//!
//! A [`Picture`] has panels, and a [`Panel`] has axes, series, bands and guides in the units of the axes.
//! [`Picture::draw`] computes the places of all shapes. No two texts of a [`Drawing`] overlap, because the layout knows the
//! widths of the embedded font: a label without free room is not drawn, and a longer text is shortened.
//! [`Drawing::svg`] and [`Drawing::png`] have the same shapes. The crate knows nothing of results.
//!
//! Readers in print and colour-blind readers have the same information: the colours are those of Okabe and Ito, lines
//! differ by their dashes, points by their marks, and bands by their hatching.

#![forbid(unsafe_code)]

mod cdf;
mod color;
mod font;
mod layout;
mod model;
mod png;
mod raster;
mod scale;
mod scene;
mod svg;
mod sweep;
#[cfg(test)]
mod tests;

pub use cdf::{cdf, cdf_of_bins};
pub use color::{
    AMBER, BLUE, Color, Dash, GREEN, GREY, INK, LineLook, MAX_LINE_LOOKS, ORANGE, PURPLE, RED, SKY, YELLOW, line_look,
};
pub use font::{printable, shorten};
pub use layout::{DEFAULT_SIZE, MAX_PANELS, MAX_SIZE, MIN_SIZE};
pub use model::{
    Arrow, Band, BandKind, Guide, GuideAt, Hatch, Label, MARKS, Map, Mark, Panel, Picture, Point, RangePoint, Series,
    Shape, point,
};
pub use png::PNG_SCALE;
pub use scale::{Axis, AxisKind, Unit};
pub use scene::{Anchor, Drawing, Rect, Size, Text};
pub use sweep::{SweepChart, SweepPoint};
