//! Legend of a panel: a sample of each line, mark and limit with its name.

use lfn_results::evidence::capture::PeriodLimit;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axes::Axes;
use super::bands;
use super::layout::{MARGIN, WIDTH};
use crate::print::svg::{self, Canvas, Drawn, INK, Pixel, SMALL_FONT};

/// Width of a sample.
const SAMPLE: i32 = 30;
/// Pixels between two entries.
const GAP: i32 = 20;
/// Height of a row. A panel has two rows.
const ROW: i32 = 27;
/// Pixels between the bottom of the plot and the middle of the first row.
const BELOW_PLOT: i32 = 74;

/// Sample of a line or a mark.
#[derive(Clone, Copy)]
pub enum Sample {
    Line(RGBColor, u32),
    Dashes(RGBColor),
    /// Filled area below a line.
    Area(RGBColor),
    /// Bar from a minimum to a maximum.
    Bar(RGBColor),
    Cross(RGBColor),
    Ring(RGBColor),
    Limit(PeriodLimit),
}

/// Draws the samples with their names below the axes.
pub fn draw(axes: &Axes<'_, '_>, entries: &[(Sample, String)]) -> Drawn {
    let mut x = MARGIN;
    let mut y = axes.bottom + BELOW_PLOT;
    for (sample, name) in entries {
        let width = SAMPLE + 8 + svg::text_width(name, SMALL_FONT);
        if x > MARGIN && x + width > WIDTH - MARGIN {
            x = MARGIN;
            y += ROW;
        }
        draw_sample(axes.canvas, *sample, (x, y))?;
        svg::write(axes.canvas, name, (x + SAMPLE + 8, y), SMALL_FONT, INK, HPos::Left)?;
        x += width + GAP;
    }
    Ok(())
}

fn draw_sample(canvas: &Canvas<'_>, sample: Sample, (x, y): Pixel) -> Drawn {
    let middle = (x + SAMPLE / 2, y);
    match sample {
        Sample::Line(color, width) => {
            canvas.draw(&PathElement::new([(x, y), (x + SAMPLE, y)], color.stroke_width(width)))
        }
        Sample::Dashes(color) => draw_dashes(canvas, &[(x, y), (x + SAMPLE, y)], color),
        Sample::Area(color) => {
            canvas.draw(&Rectangle::new([(x, y - 7), (x + SAMPLE, y + 8)], color.mix(0.25).filled()))?;
            canvas.draw(&PathElement::new([(x, y - 7), (x + SAMPLE, y - 7)], color.stroke_width(2)))
        }
        Sample::Bar(color) => canvas.draw(&Rectangle::new([(x, y - 7), (x + SAMPLE, y + 7)], color.mix(0.6).filled())),
        Sample::Cross(color) => draw_cross(canvas, middle, color),
        Sample::Ring(color) => draw_ring(canvas, middle, color),
        Sample::Limit(limit) => bands::draw_band(canvas, limit, [(x, y - 8), (x + SAMPLE, y + 8)]),
    }
}

/// Draws a dashed line.
pub fn draw_dashes(canvas: &Canvas<'_>, line: &[Pixel], color: RGBColor) -> Drawn {
    canvas.draw(&DashedPathElement::new(line.to_vec(), 8, 5, color.stroke_width(2)))
}

/// Draws the mark of a retransmission.
pub fn draw_cross(canvas: &Canvas<'_>, (x, y): Pixel, color: RGBColor) -> Drawn {
    let style = color.stroke_width(2);
    let path = [(x - 4, y - 4), (x + 4, y + 4), (x, y), (x - 4, y + 4), (x + 4, y - 4)];
    canvas.draw(&PathElement::new(path, style))
}

/// Draws the mark of data that fills a gap.
pub fn draw_ring(canvas: &Canvas<'_>, at: Pixel, color: RGBColor) -> Drawn {
    canvas.draw(&Circle::new(at, 4, color.stroke_width(2)))
}
