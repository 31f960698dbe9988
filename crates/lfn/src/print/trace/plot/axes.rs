//! Axes of a panel: scales with SI units, the grid, and lines that stay within the plot.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::layout::{MARGIN, WIDTH};
use super::view::View;
use crate::print::svg::{self, Canvas, Drawn, INK, Pixel, SMALL_FONT};

/// Pixels left of the plot, for the labels of the vertical axis.
const LEFT: i32 = 84;
/// Pixels between the plot and the right side of the picture.
const RIGHT: i32 = 40;
/// Pixels above the plot, for the name of the vertical axis.
const TOP: i32 = 34;
/// Pixels from the bottom of the plot to the bottom of the panel, for the labels of time and the legend.
const BOTTOM: i32 = 124;
/// Maximum number of intervals on an axis.
const MAX_TICKS: f64 = 8.0;

/// From this value on, labels have an exponent.
const MAX_NUMBER: f64 = 1e7;

const PREFIXES: [(f64, &str); 5] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

/// Values of an axis, from the left to the right or from the bottom to the top.
#[derive(Clone, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    /// Distance of the labelled values.
    step: f64,
    /// Value of the unit, and its name.
    factor: f64,
    unit: String,
}

impl Scale {
    /// Returns the scale of time, exactly from the first to the last second.
    fn time(low: f64, high: f64) -> Self {
        let (factor, unit) = match high {
            high if high < 2e-3 => (1e-6, "µs"),
            high if high < 2.0 => (1e-3, "ms"),
            _ => (1.0, "s"),
        };
        Scale { low, high, step: round_step((high - low) / MAX_TICKS), factor, unit: unit.to_owned() }
    }

    /// Returns a scale of seconds from zero that includes `high`.
    pub fn duration(high: f64) -> Self {
        let Scale { factor, unit, .. } = Scale::time(0.0, high);
        Scale::from_values(0.0, high, factor, unit)
    }

    /// Returns a scale of bytes or bits per second that includes both values.
    pub fn quantity(low: f64, high: f64, unit: &str) -> Self {
        let (factor, prefix) = PREFIXES.into_iter().find(|(factor, _)| high >= *factor).unwrap_or((1.0, ""));
        Scale::from_values(low, high, factor, format!("{prefix}{unit}"))
    }

    fn from_values(low: f64, high: f64, factor: f64, unit: String) -> Self {
        let step = round_step((high - low).max(f64::MIN_POSITIVE.max(high * 1e-9)) / MAX_TICKS);
        let step = if step.is_finite() && step > 0.0 { step } else { factor };
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Scale { low, high: high.max(low + step), step, factor, unit }
    }

    /// Returns the place of a value, from 0 to 1 within the axis.
    fn place(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// Returns the labelled values with their labels.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let decimals = (-(self.step / self.factor).log10() - 1e-9).ceil().clamp(0.0, 9.0) as usize;
        let first = (self.low / self.step - 1e-6).ceil();
        let last = (self.high / self.step + 1e-6).floor();
        let count = (last - first).clamp(0.0, 2.0 * MAX_TICKS) as u32;
        (0..=count).map(move |number| {
            let value = (first + f64::from(number)) * self.step;
            // Zero has no sign.
            let number = value / self.factor + 0.0;
            let is_long = number.abs() >= MAX_NUMBER;
            (value, if is_long { format!("{number:.0e}") } else { format!("{number:.decimals$}") })
        })
    }
}

/// Returns the smallest of 1, 2 or 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|&round| round >= step * 0.999_999)
        .unwrap_or(step)
}

/// Axes of a panel on its canvas.
pub struct Axes<'a, 'b> {
    pub canvas: &'a Canvas<'b>,
    pub left: i32,
    pub right: i32,
    pub top: i32,
    pub bottom: i32,
    x: Scale,
    y: Scale,
}

impl<'a, 'b> Axes<'a, 'b> {
    /// Creates the axes of a panel. `strip` pixels above the plot stay free.
    pub fn new(canvas: &'a Canvas<'b>, view: &View<'_>, y: Scale, strip: i32) -> Self {
        let height = canvas.dim_in_pixel().1 as i32;
        let x = Scale::time(view.from, view.to);
        Axes { canvas, left: LEFT, right: WIDTH - RIGHT, top: TOP + strip, bottom: height - BOTTOM, x, y }
    }

    /// Draws the grid, the labels and the names of both axes.
    pub fn draw(&self, y_name: &str) -> Drawn {
        let grid = INK.mix(0.12).stroke_width(1);
        for (value, label) in self.y.ticks() {
            let y = self.y(value);
            self.canvas.draw(&PathElement::new([(self.left, y), (self.right, y)], grid))?;
            svg::write(self.canvas, &label, (self.left - 8, y), SMALL_FONT, INK, HPos::Right)?;
        }
        for (value, label) in self.x.ticks() {
            let x = self.x(value);
            self.canvas.draw(&PathElement::new([(x, self.top), (x, self.bottom)], grid))?;
            self.canvas.draw(&PathElement::new([(x, self.bottom), (x, self.bottom + 5)], INK.stroke_width(1)))?;
            svg::write(self.canvas, &label, (x, self.bottom + 18), SMALL_FONT, INK, HPos::Center)?;
        }
        let corner = [(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)];
        self.canvas.draw(&PathElement::new(corner, INK.stroke_width(1)))?;
        let time = format!("time since the first packet, {}", self.x.unit);
        svg::write(
            self.canvas,
            &time,
            ((self.left + self.right) / 2, self.bottom + 42),
            SMALL_FONT,
            INK,
            HPos::Center,
        )?;
        let name = format!("{y_name}, {}", self.y.unit);
        svg::write(self.canvas, &name, (MARGIN, TOP / 2 - 3), SMALL_FONT, INK, HPos::Left)
    }

    /// Writes that a panel has nothing to show.
    pub fn write_empty(&self, text: &str) -> Drawn {
        let middle = ((self.left + self.right) / 2, (self.top + self.bottom) / 2);
        svg::write(self.canvas, text, middle, SMALL_FONT, INK, HPos::Center)
    }

    /// Returns the column of a time in seconds, within the plot.
    pub fn x(&self, seconds: f64) -> i32 {
        let width = f64::from(self.right - self.left);
        self.left + (self.x.place(seconds).clamp(0.0, 1.0) * width).round() as i32
    }

    /// Returns the time in seconds at a column.
    pub fn time_at(&self, x: i32) -> f64 {
        self.x.low + (self.x.high - self.x.low) * f64::from(x - self.left) / f64::from(self.right - self.left)
    }

    /// Returns the row of a value, within the plot.
    pub fn y(&self, value: f64) -> i32 {
        let height = f64::from(self.bottom - self.top);
        self.bottom - (self.y.place(value).clamp(0.0, 1.0) * height).round() as i32
    }

    /// Returns the value at the top of the plot.
    pub fn highest(&self) -> f64 {
        self.y.high
    }

    /// Returns true if the plot has this value.
    pub fn has(&self, value: f64) -> bool {
        (0.0..=1.0).contains(&self.y.place(value))
    }

    /// Returns the lines through these points of time and value. Parts above the plot are skipped. Each column has at
    /// most four pixels, so a line has a bounded length.
    pub fn lines(&self, points: impl IntoIterator<Item = (f64, f64)>) -> Vec<Vec<Pixel>> {
        let mut lines: Vec<Vec<Pixel>> = vec![Vec::new()];
        let mut above: Option<Pixel> = None;
        for (time, value) in points {
            let pixel = (self.x(time), self.y(value));
            if value > self.y.high {
                if above.is_none() {
                    push(lines.last_mut(), pixel);
                    lines.push(Vec::new());
                }
                above = Some(pixel);
                continue;
            }
            if let Some(pixel) = above.take() {
                push(lines.last_mut(), pixel);
            }
            push(lines.last_mut(), pixel);
        }
        lines.retain(|line| line.len() > 1);
        lines
    }
}

/// Adds a pixel to a line. In a column, the first, the highest, the lowest and the last pixel remain.
fn push(line: Option<&mut Vec<Pixel>>, pixel: Pixel) {
    let Some(line) = line else { return };
    if line.last() == Some(&pixel) {
        return;
    }
    line.push(pixel);
    let in_column = line.iter().rev().take_while(|(x, _)| *x == pixel.0).count();
    if in_column < 5 {
        return;
    }
    let column = line.split_off(line.len() - in_column);
    let first = column[0];
    let low = column.iter().copied().min_by_key(|(_, y)| *y).unwrap_or(first);
    let high = column.iter().copied().max_by_key(|(_, y)| *y).unwrap_or(first);
    line.extend([first, low, high, pixel]);
}
