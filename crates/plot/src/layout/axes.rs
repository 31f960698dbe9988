//! The axes of a panel: places of values in pixels.

use crate::model::Point;
use crate::scale::Scale;
use crate::scene::{Pixel, Rect, pixel};

/// Axes of a panel at their place.
pub struct Axes {
    pub plot: Rect,
    pub x: Scale,
    pub y: Scale,
}

impl Axes {
    /// Returns the horizontal place of a value, in pixels.
    pub fn column(&self, value: f64) -> f64 {
        self.plot.left + self.x.place(value) * self.plot.width()
    }

    /// Returns the vertical place of a value, in pixels.
    pub fn row(&self, value: f64) -> f64 {
        self.plot.bottom - self.y.place(value) * self.plot.height()
    }

    /// Returns the place of a point.
    pub fn at(&self, point: Point) -> Pixel {
        pixel(self.column(point.x), self.row(point.y))
    }

    /// Returns true if a place is inside of the plot, or on its border.
    pub fn has(&self, at: Pixel) -> bool {
        let Rect { left, top, right, bottom } = self.plot;
        (left - 0.5..=right + 0.5).contains(&at.x) && (top - 0.5..=bottom + 0.5).contains(&at.y)
    }
}
