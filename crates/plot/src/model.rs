//! A picture as data: titles, panels with axes, series, bands and guides.

use crate::color::{Color, Dash};
use crate::scale::Axis;

/// A picture: its titles, and panels one below the other, or in two columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    pub title: String,
    /// Lines below the title.
    pub lines: Vec<String>,
    /// Reason why the figures are not reliable. It is marked in red.
    pub warning: Option<String>,
    /// The picture in words, for readers that cannot see it.
    pub description: String,
    pub panels: Vec<Panel>,
}

/// A plot with its axes and its legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Name above the plot, if the picture has several panels.
    pub name: String,
    pub x: Axis,
    pub y: Axis,
    /// Values as colours, with the same scale for both axes.
    pub map: Option<Map>,
    /// Kinds of bands, in the order of the legend.
    pub band_kinds: Vec<BandKind>,
    pub bands: Vec<Band>,
    pub guides: Vec<Guide>,
    pub series: Vec<Series>,
    /// Labels in the plot. A label without free room is not drawn.
    pub labels: Vec<Label>,
    /// Text in the middle of a plot that has nothing to show.
    pub note: Option<String>,
}

impl Panel {
    /// Creates a panel without content.
    pub fn new(name: &str, x: Axis, y: Axis) -> Self {
        Panel {
            name: name.to_owned(),
            x,
            y,
            map: None,
            band_kinds: Vec::new(),
            bands: Vec::new(),
            guides: Vec::new(),
            series: Vec::new(),
            labels: Vec::new(),
            note: None,
        }
    }
}

/// A point of a plot, in the units of the axes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

/// Returns a point in the units of its axes.
pub const fn point(x: f64, y: f64) -> Point {
    Point { x, y }
}

/// A point with the range of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RangePoint {
    pub x: f64,
    pub low: f64,
    pub y: f64,
    pub high: f64,
}

/// Values of a plot with their look.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend; empty for a series without an entry.
    pub name: String,
    pub color: Color,
    pub shape: Shape,
}

/// Shape of a series. A point that is no number interrupts a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Line {
        points: Vec<Point>,
        width: f64,
        dash: Dash,
    },
    /// Line with the area below it.
    Area {
        points: Vec<Point>,
    },
    /// Vertical bars from the minimum to the maximum.
    Bars {
        points: Vec<RangePoint>,
    },
    Marks {
        points: Vec<Point>,
        mark: Mark,
    },
    /// Marks with an interval: a point, and a line from `low` to `high`. `shift` moves them to the right, in font sizes, so
    /// that they do not cover those of another series.
    Whiskers {
        points: Vec<RangePoint>,
        mark: Mark,
        shift: f64,
    },
}

/// Shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Dot,
    Ring,
    Cross,
    Triangle,
    Square,
    Diamond,
}

/// Marks of several series in a plot, so that they differ without colours.
pub const MARKS: [Mark; 6] = [Mark::Dot, Mark::Triangle, Mark::Square, Mark::Diamond, Mark::Ring, Mark::Cross];

/// A line across the plot with an entry in the legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Guide {
    pub at: GuideAt,
    /// Name in the legend; empty for a line without an entry.
    pub name: String,
    /// Text at the line; empty for none.
    pub label: String,
    pub color: Color,
    pub dash: Dash,
}

/// Place of a guide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GuideAt {
    /// Vertical line at a value of the horizontal axis.
    X(f64),
    /// Horizontal line at a value of the vertical axis.
    Y(f64),
}

/// Kind of a band: a limit or an activity.
#[derive(Clone, Debug, PartialEq)]
pub struct BandKind {
    /// Name in the legend.
    pub name: String,
    /// Name in the strip above the plot, where the band is wide enough.
    pub label: String,
    pub color: Color,
    pub hatch: Hatch,
}

/// Hatching of a band, so that bands differ without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hatch {
    None,
    Rising,
    Falling,
    Crossed,
    Vertical,
    Horizontal,
    Grid,
}

/// Time of a kind, from `from` to `to` on the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    pub from: f64,
    pub to: f64,
    /// Place of the kind in [`Panel::band_kinds`].
    pub kind: usize,
}

/// A text at a point of the plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    pub at: Point,
    pub text: String,
    pub color: Color,
}

/// Values of a rectangle as colours, with arrows. The colours are around zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    /// Name of the values with their unit, above the scale.
    pub name: String,
    /// Corners with the lowest and the highest values of both axes.
    pub low: Point,
    pub high: Point,
    /// Number of cells along the horizontal axis.
    pub columns: usize,
    /// Values of the cells, in rows along the horizontal axis, beginning at `low`. A cell that is no number stays white.
    pub values: Vec<f64>,
    /// Absolute value at the ends of the colours, so that several maps have the same colours; 0 for that of the values.
    pub scale_end: f64,
    pub arrows: Vec<Arrow>,
    /// Name of the arrows in the legend, which shows the longest one.
    pub arrow_name: String,
}

/// An arrow of a map, with the same unit in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrow {
    /// Place of the middle of the arrow.
    pub at: Point,
    /// Part along the horizontal axis.
    pub east: f64,
    /// Part along the vertical axis.
    pub north: f64,
}
