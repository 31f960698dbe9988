//! Filled outlines as pixels, with the exact coverage of each pixel.
//!
//! Each edge adds its signed area to a buffer of differences; the sum along a row is the coverage of each pixel (the
//! algorithm of font-rs and FreeType). Overlapping parts with the same orientation count once.

use crate::color::Color;
use crate::scene::{Pixel, Stroke, pixel};

/// Pixels of a picture: red, green and blue.
#[derive(Debug)]
pub struct Raster {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<u8>,
}

/// Edges of closed outlines.
#[derive(Debug, Default)]
pub struct Outline {
    edges: Vec<[Pixel; 2]>,
}

/// Corners of the circles of a round end, and of circles.
const CIRCLE_CORNERS: u32 = 24;
/// Angle between two segments of a line from which a round join is visible, as the product of their directions.
const MAX_STRAIGHT: f64 = 0.999;

impl Outline {
    /// Adds an edge. The edges of an outline must be closed.
    pub fn edge(&mut self, from: Pixel, to: Pixel) {
        if [from.x, from.y, to.x, to.y].iter().all(|value| value.is_finite()) {
            self.edges.push([from, to]);
        }
    }

    /// Adds a closed polygon.
    pub fn polygon(&mut self, corners: &[Pixel]) {
        let Some(last) = corners.last() else { return };
        let mut before = *last;
        for corner in corners {
            self.edge(before, *corner);
            before = *corner;
        }
    }

    /// Adds a circle as a polygon.
    pub fn circle(&mut self, center: Pixel, radius: f64) {
        self.polygon(&circle(center, radius));
    }

    /// Removes a circle from a larger one.
    pub fn hole(&mut self, center: Pixel, radius: f64) {
        let corners: Vec<Pixel> = circle(center, radius.max(0.0)).into_iter().rev().collect();
        self.polygon(&corners);
    }

    /// Adds the area of a line with round joins, or of its dashes.
    pub fn stroke(&mut self, line: &[Pixel], stroke: &Stroke) {
        match stroke.dash.lengths() {
            None => self.solid_stroke(line, stroke.width / 2.0),
            Some(lengths) => {
                for dash in dashes(line, lengths.map(|length| length * stroke.width)) {
                    self.solid_stroke(&dash, stroke.width / 2.0);
                }
            }
        }
    }

    /// Adds a rectangle for each segment, all with the same orientation, and circles at the corners.
    fn solid_stroke(&mut self, line: &[Pixel], half: f64) {
        let mut before: Option<Pixel> = None;
        for ends in line.windows(2) {
            let [from, to] = [ends[0], ends[1]];
            let (dx, dy) = (to.x - from.x, to.y - from.y);
            let length = dx.hypot(dy);
            if length < 1e-9 {
                continue;
            }
            let (x, y) = (-dy / length * half, dx / length * half);
            let corners = [
                pixel(from.x - x, from.y - y),
                pixel(to.x - x, to.y - y),
                pixel(to.x + x, to.y + y),
                pixel(from.x + x, from.y + y),
            ];
            self.polygon(&corners);
            let direction = pixel(dx / length, dy / length);
            let is_corner = before.is_some_and(|last| last.x * direction.x + last.y * direction.y < MAX_STRAIGHT);
            if is_corner && half > 0.6 {
                self.circle(from, half);
            }
            before = Some(direction);
        }
    }

    /// Returns left, top, right and bottom of the outlines in whole pixels, with a pixel around them.
    fn bounds(&self) -> Option<[i64; 4]> {
        let mut ends = self.edges.iter().flatten();
        let first = ends.next()?;
        let [mut left, mut top, mut right, mut bottom] = [first.x, first.y, first.x, first.y];
        for end in ends {
            (left, right) = (left.min(end.x), right.max(end.x));
            (top, bottom) = (top.min(end.y), bottom.max(end.y));
        }
        Some([left.floor() as i64 - 1, top.floor() as i64 - 1, right.ceil() as i64 + 2, bottom.ceil() as i64 + 1])
    }
}

/// Returns the corners of a circle.
fn circle(center: Pixel, radius: f64) -> Vec<Pixel> {
    let corner = |number: u32| {
        let angle = std::f64::consts::TAU * f64::from(number) / f64::from(CIRCLE_CORNERS);
        pixel(center.x + radius * angle.cos(), center.y + radius * angle.sin())
    };
    (0..CIRCLE_CORNERS).map(corner).collect()
}

/// Returns the dashes of a line, for a dash and a gap of these lengths.
fn dashes(line: &[Pixel], [dash, gap]: [f64; 2]) -> Vec<Vec<Pixel>> {
    let mut dashes: Vec<Vec<Pixel>> = Vec::new();
    let Some(first) = line.first().filter(|_| dash > 0.0 && gap > 0.0) else { return dashes };
    let (mut is_dash, mut rest) = (true, dash);
    let mut part = vec![*first];
    for ends in line.windows(2) {
        let [mut from, to] = [ends[0], ends[1]];
        let mut length = (to.x - from.x).hypot(to.y - from.y);
        while length > rest {
            let share = rest / length;
            from = pixel(from.x + share * (to.x - from.x), from.y + share * (to.y - from.y));
            length -= rest;
            part.push(from);
            if is_dash {
                dashes.push(std::mem::take(&mut part));
            }
            part.clear();
            part.push(from);
            is_dash = !is_dash;
            rest = if is_dash { dash } else { gap };
        }
        rest -= length;
        part.push(to);
    }
    if is_dash {
        dashes.push(part);
    }
    dashes
}

impl Raster {
    /// Creates a white picture.
    pub fn white(width: usize, height: usize) -> Self {
        Raster { width, height, pixels: vec![255; width * height * 3] }
    }

    /// Fills outlines with a colour. Parts outside of the picture are skipped.
    pub fn fill(&mut self, outline: &Outline, color: Color) {
        let Some([left, top, right, bottom]) = outline.bounds() else { return };
        let (left, right) = (left.clamp(-8, self.width as i64), right.clamp(0, self.width as i64 + 8));
        let (top, bottom) = (top.clamp(0, self.height as i64), bottom.clamp(0, self.height as i64));
        if left >= right || top >= bottom {
            return;
        }
        let (width, height) = ((right - left) as usize, (bottom - top) as usize);
        let mut coverage = Coverage { width, height, differences: vec![0.0; (width + 2) * height] };
        for edge in &outline.edges {
            let moved = edge.map(|at| {
                let x = (at.x - left as f64).clamp(0.0, width as f64);
                pixel(x, at.y - top as f64)
            });
            coverage.add_edge(moved[0], moved[1]);
        }
        for row in 0..height {
            let mut sum = 0.0_f32;
            for column in 0..width {
                sum += coverage.differences[row * (width + 2) + column];
                let covered = sum.abs().min(1.0);
                let (x, y) = (left + column as i64, top as usize + row);
                if covered > 0.002 && x >= 0 && (x as usize) < self.width {
                    self.blend(x as usize, y, color, covered);
                }
            }
        }
    }

    fn blend(&mut self, x: usize, y: usize, color: Color, covered: f32) {
        let at = (y * self.width + x) * 3;
        let share = covered * color.opacity;
        for (place, new) in [color.red, color.green, color.blue].into_iter().enumerate() {
            let old = f32::from(self.pixels[at + place]);
            self.pixels[at + place] = (old + share * (f32::from(new) - old)).round() as u8;
        }
    }
}

/// Differences of the covered area between neighbouring pixels of a row.
struct Coverage {
    width: usize,
    height: usize,
    differences: Vec<f32>,
}

impl Coverage {
    /// Adds the area to the right of an edge. The x of both ends must be within the rows.
    fn add_edge(&mut self, from: Pixel, to: Pixel) {
        if from.y == to.y {
            return;
        }
        let (sign, from, to) = if from.y < to.y { (1.0, from, to) } else { (-1.0, to, from) };
        let slope = (to.x - from.x) / (to.y - from.y);
        let first = from.y.floor().max(0.0) as usize;
        let last = (to.y.ceil().max(0.0) as usize).min(self.height);
        for row in first..last {
            let (top, bottom) = ((row as f64).max(from.y), (row as f64 + 1.0).min(to.y));
            let at = |y: f64| (from.x + (y - from.y) * slope).clamp(0.0, self.width as f64);
            self.add_row(row, at(top), at(bottom), (bottom - top) * sign);
        }
    }

    /// Adds the part of an edge in one row, from column `x` to column `next`. `height` has the sign of the edge.
    fn add_row(&mut self, row: usize, x: f64, next: f64, height: f64) {
        let cells = &mut self.differences[row * (self.width + 2)..(row + 1) * (self.width + 2)];
        let (left, right) = (x.min(next), x.max(next));
        let (first, last) = (left.floor() as usize, (right.ceil() as usize).max(left.floor() as usize + 1));
        if last == first + 1 {
            let right_part = 0.5 * (left + right) - left.floor();
            cells[first] += (height * (1.0 - right_part)) as f32;
            cells[first + 1] += (height * right_part) as f32;
            return;
        }
        // The area to the right of the edge in each column, up to this column.
        let per_column = 1.0 / (right - left);
        let covered = |column: usize| {
            // Mean over the column of the share of the height that lies left of each place.
            let (from, to) = (column as f64, column as f64 + 1.0);
            let inside = |place: f64| ((place - left) * per_column).clamp(0.0, 1.0);
            let (start, end) = (from.max(left).min(to), to.min(right).max(from));
            (start - from) * inside(from)
                + (end - start) * 0.5 * (inside(start) + inside(end))
                + (to - end) * inside(to)
        };
        let mut before = 0.0;
        for (column, cell) in cells.iter_mut().enumerate().take(last + 1).skip(first) {
            let area = covered(column);
            *cell += (height * (area - before)) as f32;
            before = area;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::color::{Dash, INK};

    /// Returns the sum of the coverage of all pixels: the area of the outlines.
    fn area(raster: &Raster) -> f64 {
        let color = f64::from(INK.red);
        raster.pixels.iter().step_by(3).map(|red| (255.0 - f64::from(*red)) / (255.0 - color)).sum()
    }

    fn filled(outline: &Outline) -> Raster {
        let mut raster = Raster::white(100, 100);
        raster.fill(outline, INK);
        raster
    }

    proptest! {
        #[test]
        fn triangles_have_their_area(corners in prop::collection::vec((2.0..98.0_f64, 2.0..98.0_f64), 3)) {
            let corners: Vec<Pixel> = corners.into_iter().map(|(x, y)| pixel(x, y)).collect();
            let [a, b, c] = corners[..] else { return Ok(()) };
            let expected = ((b.x - a.x) * (c.y - a.y) - (c.x - a.x) * (b.y - a.y)).abs() / 2.0;
            let mut outline = Outline::default();
            outline.polygon(&corners);
            let found = area(&filled(&outline));
            prop_assert!((found - expected).abs() < 0.6 + 0.01 * expected, "{found} {expected}");
        }

        #[test]
        fn shapes_outside_of_the_picture_are_cut(x in -500.0..500.0_f64, y in -500.0..500.0_f64, size in 0.1..400.0_f64) {
            let mut outline = Outline::default();
            outline.circle(pixel(x, y), size);
            outline.polygon(&[pixel(x, y), pixel(x + size, y), pixel(x + size, y + size), pixel(x, y + size)]);
            filled(&outline);
        }
    }

    #[test]
    fn rectangle_covers_parts_of_its_border_pixels() {
        let mut outline = Outline::default();
        outline.polygon(&[pixel(10.5, 20.0), pixel(12.0, 20.0), pixel(12.0, 21.5), pixel(10.5, 21.5)]);
        let raster = filled(&outline);
        let red = |x: usize, y: usize| raster.pixels[(y * 100 + x) * 3];
        assert_eq!((red(11, 20), red(9, 20), red(12, 20)), (30, 255, 255));
        assert!(red(10, 20).abs_diff(143) <= 1 && red(11, 21).abs_diff(143) <= 1 && red(10, 21).abs_diff(199) <= 1);
    }

    #[test]
    fn overlapping_segments_of_a_line_count_once() {
        let mut outline = Outline::default();
        let stroke = Stroke::solid(INK, 4.0);
        outline.stroke(&[pixel(10.0, 50.0), pixel(90.0, 50.0), pixel(10.0, 50.0)], &stroke);
        let found = area(&filled(&outline));
        assert!((found - 320.0).abs() < 8.0, "{found}");
    }

    #[test]
    fn dashes_and_gaps_have_their_lengths() {
        let line = [pixel(0.0, 0.0), pixel(20.0, 0.0), pixel(20.0, 30.0)];
        let parts = dashes(&line, [8.0, 4.0]);
        let length = |part: &Vec<Pixel>| -> f64 {
            part.windows(2).map(|ends| (ends[1].x - ends[0].x).hypot(ends[1].y - ends[0].y)).sum()
        };
        assert_eq!(parts.iter().map(length).collect::<Vec<_>>(), [8.0, 8.0, 8.0, 8.0, 2.0]);
        let mut outline = Outline::default();
        outline.stroke(&[pixel(0.0, 50.0), pixel(96.0, 50.0)], &Stroke { color: INK, width: 2.0, dash: Dash::Long });
        assert!(area(&filled(&outline)) < 150.0);
    }
}
