//! Goodput over time, with the limit of each period.

use std::fmt::Write as _;

use lfn_base::units::{BitRate, show_duration};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axes::{Axes, Scale};
use super::bands;
use super::legend::{self, Sample};
use super::steps::Steps;
use super::view::View;
use crate::print::svg::{self, BLUE, Canvas, Drawn, INK, SMALL_FONT};
use crate::print::trace::share::limit_and_share;

/// Highest step relative to the 95th percentile that the plot shows. A jump of the acknowledgements after a loss is higher
/// than the path.
const MAX_PEAK: f64 = 2.5;
/// Maximum number of periods in the description.
const MAX_DESCRIBED: usize = 20;

/// Draws the panel on its canvas.
pub fn draw(view: &View<'_>, canvas: &Canvas<'_>) -> Drawn {
    let steps = Steps::new(view);
    let peak = steps.peak();
    let usual = steps.usual_maximum();
    let shown = if peak > MAX_PEAK * usual { 1.5 * usual } else { peak };
    let axes = Axes::new(canvas, view, Scale::quantity(0.0, shown.max(1e3), "b/s"), bands::STRIP);
    bands::draw(&axes, view)?;
    axes.draw("goodput")?;
    let ends = steps.bounds.windows(2);
    let corners: Vec<_> = ends.zip(&steps.rates).flat_map(|(ends, &rate)| [(ends[0], rate), (ends[1], rate)]).collect();
    // The area reaches the top of the plot where the line leaves the plot.
    let bounded = corners.iter().map(|&(time, rate)| (time, rate.min(axes.highest())));
    for line in axes.lines(bounded) {
        let ends = [line.first(), line.last()].map(|pixel| pixel.map_or(axes.left, |(x, _)| *x));
        let area = [(ends[0], axes.bottom)].into_iter().chain(line.iter().copied()).chain([(ends[1], axes.bottom)]);
        canvas.draw(&Polygon::new(area.collect::<Vec<_>>(), BLUE.mix(0.25).filled()))?;
    }
    for line in axes.lines(corners) {
        canvas.draw(&PathElement::new(line, BLUE.stroke_width(2)))?;
    }
    if peak == 0.0 {
        axes.write_empty("no acknowledged data in this time")?;
    }
    if !axes.has(peak) {
        let place = steps.rates.iter().position(|rate| *rate == peak).unwrap_or(0);
        write_peak(&axes, steps.bounds[place], peak)?;
    }
    let mut entries = vec![(Sample::Area(BLUE), "goodput".to_owned())];
    for (limit, share) in bands::shares(view) {
        entries.push((Sample::Limit(limit), limit_and_share(limit, share)));
    }
    legend::draw(&axes, &entries)
}

/// Writes the highest goodput at the top of the plot.
fn write_peak(axes: &Axes<'_, '_>, time: f64, peak: f64) -> Drawn {
    let label = format!("peak {}", BitRate(peak as u64));
    let half = svg::text_width(&label, SMALL_FONT) / 2;
    let x = axes.x(time).clamp(axes.left + half, axes.right - half);
    let y = axes.top + 14;
    axes.canvas.draw(&Rectangle::new([(x - half, y - 10), (x + half, y + 11)], WHITE.mix(0.85).filled()))?;
    svg::write(axes.canvas, &label, (x, y), SMALL_FONT, INK, HPos::Center)
}

/// Returns the panel in words.
pub fn describe(view: &View<'_>) -> String {
    let steps = Steps::new(view);
    let mut text = format!(
        "Highest goodput of a step of {}: {}.",
        show_duration(std::time::Duration::from_secs_f64(steps.length())),
        BitRate(steps.peak() as u64)
    );
    let shares: Vec<_> = bands::shares(view).iter().map(|(limit, share)| limit_and_share(*limit, *share)).collect();
    if !shares.is_empty() {
        let _ = write!(text, " Limits by time: {}.", shares.join(", "));
    }
    let periods = &view.evidence.periods;
    if periods.len() <= MAX_DESCRIBED {
        for period in periods {
            let [start, end] = [period.start, period.end].map(show_duration);
            let _ = write!(text, " From {start} to {end}: {}.", period.limit.name());
        }
    }
    text
}
