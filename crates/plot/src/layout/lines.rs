//! Lines within the plot: a bounded number of points, and no point outside of the plot.

use crate::scene::{Pixel, Rect, pixel};

/// Returns the parts of a line within the area. A point that is no number interrupts the line.
pub fn clipped(points: impl IntoIterator<Item = Pixel>, area: &Rect) -> Vec<Vec<Pixel>> {
    let mut parts: Vec<Vec<Pixel>> = Vec::new();
    for run in runs(points) {
        let mut part: Vec<Pixel> = Vec::new();
        for ends in run.windows(2) {
            let Some((from, to)) = clip(ends[0], ends[1], area) else { continue };
            if part.last() != Some(&from) {
                parts.push(std::mem::take(&mut part));
                part.push(from);
            }
            part.push(to);
        }
        parts.push(part);
    }
    parts.retain(|part| part.len() > 1);
    parts
}

/// Returns the uninterrupted parts of a line. In each column of pixels only the first, the lowest, the highest and the last
/// point remain.
pub fn runs(points: impl IntoIterator<Item = Pixel>) -> Vec<Vec<Pixel>> {
    let mut runs: Vec<Vec<Pixel>> = Vec::new();
    let mut run: Vec<Pixel> = Vec::new();
    let mut column: Vec<Pixel> = Vec::new();
    for point in points {
        if !point.x.is_finite() || !point.y.is_finite() {
            finish_column(&mut run, &mut column);
            runs.push(std::mem::take(&mut run));
            continue;
        }
        if column.first().is_some_and(|first| first.x.round() != point.x.round()) {
            finish_column(&mut run, &mut column);
        }
        column.push(point);
        if column.len() > 64 {
            thin_out(&mut column);
        }
    }
    finish_column(&mut run, &mut column);
    runs.push(run);
    runs.retain(|run| !run.is_empty());
    runs
}

fn finish_column(run: &mut Vec<Pixel>, column: &mut Vec<Pixel>) {
    thin_out(column);
    run.append(column);
}

/// Keeps the first, the lowest, the highest and the last point, in their order.
fn thin_out(column: &mut Vec<Pixel>) {
    if column.len() <= 4 {
        return;
    }
    let places = 0..column.len();
    let low = places.clone().min_by(|a, b| column[*a].y.total_cmp(&column[*b].y)).unwrap_or(0);
    let high = places.clone().max_by(|a, b| column[*a].y.total_cmp(&column[*b].y)).unwrap_or(0);
    let last = column.len() - 1;
    let mut place = 0;
    column.retain(|_| {
        let is_kept = [0, low, high, last].contains(&place);
        place += 1;
        is_kept
    });
}

/// Returns the part of a segment within the area (Liang and Barsky).
pub fn clip(from: Pixel, to: Pixel, area: &Rect) -> Option<(Pixel, Pixel)> {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let (mut start, mut end) = (0.0_f64, 1.0_f64);
    let sides =
        [(-dx, from.x - area.left), (dx, area.right - from.x), (-dy, from.y - area.top), (dy, area.bottom - from.y)];
    for (step, distance) in sides {
        if step == 0.0 {
            if distance < 0.0 {
                return None;
            }
            continue;
        }
        let place = distance / step;
        if step < 0.0 {
            start = start.max(place);
        } else {
            end = end.min(place);
        }
    }
    let at = |share: f64| pixel(from.x + share * dx, from.y + share * dy);
    let unchanged = |share: f64, whole: f64, point: Pixel| if share == whole { point } else { at(share) };
    (start <= end).then(|| (unchanged(start, 0.0, from), unchanged(end, 1.0, to)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AREA: Rect = Rect { left: 10.0, top: 10.0, right: 110.0, bottom: 60.0 };

    #[test]
    fn line_above_the_plot_has_two_parts() {
        let points = [pixel(10.0, 50.0), pixel(40.0, 20.0), pixel(60.0, -20.0), pixel(80.0, 20.0), pixel(90.0, 30.0)];
        let parts = clipped(points, &AREA);
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0], [pixel(10.0, 50.0), pixel(40.0, 20.0), pixel(45.0, 10.0)]);
    }

    #[test]
    fn unknown_values_interrupt_a_line() {
        let points =
            [pixel(20.0, 20.0), pixel(30.0, 20.0), pixel(40.0, f64::NAN), pixel(50.0, 30.0), pixel(60.0, 30.0)];
        assert_eq!(clipped(points, &AREA).len(), 2);
    }

    proptest! {
        #[test]
        fn clipped_lines_are_short_and_inside(ys in prop::collection::vec(-1e9..1e9_f64, 0..3000)) {
            let points = ys.iter().enumerate().map(|(n, y)| pixel(n as f64 / 20.0, *y));
            let parts = clipped(points, &AREA);
            let slack = Rect { left: 9.9, top: 9.9, right: 110.1, bottom: 60.1 };
            let is_inside = |at: &Pixel| slack.contains(&Rect { left: at.x, top: at.y, right: at.x, bottom: at.y });
            prop_assert!(parts.iter().flatten().all(is_inside));
            prop_assert!(parts.iter().map(Vec::len).sum::<usize>() <= 10 * 152);
        }
    }
}
