//! Goodput over time, with the limit of each period.

use std::fmt::Write as _;

use lfn_base::units::{BitRate, show_duration};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axes::{Axes, Scale};
use super::bands;
use super::legend::{self, Sample};
use super::view::View;
use crate::print::svg::{self, BLUE, Canvas, Drawn, INK, SMALL_FONT};

/// Maximum number of steps of the line.
const MAX_STEPS: usize = 200;
const MIN_STEPS: usize = 10;
/// A step of this share of the base RTT shows each flight.
const SHORT_STEP: f64 = 0.2;
/// Highest step relative to the 95th percentile that the plot shows. A jump of the acknowledgements after a loss is higher
/// than the path.
const MAX_PEAK: f64 = 2.5;
/// Maximum number of periods in the description.
const MAX_DESCRIBED: usize = 20;

/// Goodput of successive steps.
struct Steps {
    /// Bounds of the steps in seconds.
    bounds: Vec<f64>,
    /// Goodput of each step in bit/s.
    rates: Vec<f64>,
}

impl Steps {
    fn new(view: &View<'_>) -> Self {
        let span = view.to - view.from;
        let length = step_length(view);
        // The rest of the time belongs to the last step.
        let count = ((span / length + 1e-6) as usize).max(1);
        let bounds: Vec<f64> = (0..count).map(|step| view.from + step as f64 * length).chain([view.to]).collect();
        let mut rates = vec![0.0; count];
        for point in view.acknowledgements().filter(|point| point.value.acknowledged > 0) {
            let (start, end) = (view.seconds(point.start), view.seconds(point.end));
            let bits = point.value.acknowledged as f64 * 8.0;
            let step = |time: f64| (((time - view.from) / length) as usize).min(count - 1);
            let (first, last) = (step(start), step(end));
            for number in first..=last {
                let (from, to) = (bounds[number], bounds[number + 1]);
                let share = match first == last {
                    true => 1.0,
                    false => ((end.min(to) - start.max(from)) / (end - start)).clamp(0.0, 1.0),
                };
                rates[number] += bits * share / (to - from);
            }
        }
        Steps { bounds, rates }
    }

    /// Returns the highest goodput, and the highest value that the plot has.
    fn heights(&self) -> (f64, f64) {
        let mut sorted: Vec<f64> = self.rates.iter().copied().filter(|rate| *rate > 0.0).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let Some(peak) = sorted.last().copied() else { return (0.0, 1e3) };
        let usual = sorted[(sorted.len() - 1) * 95 / 100];
        let shown = if peak > MAX_PEAK * usual { 1.5 * usual } else { peak };
        (peak, shown)
    }
}

/// Returns the length of a step in seconds. Steps are much shorter than the base RTT, or a multiple of the base RTT. With
/// other steps, the number of flights in a step varies.
fn step_length(view: &View<'_>) -> f64 {
    let count = (view.acknowledgements().count() / 2).clamp(MIN_STEPS, MAX_STEPS);
    let (span, rtt) = (view.to - view.from, view.evidence.rtt.base.as_secs_f64());
    let length = span / count as f64;
    let rtts = (length / rtt - 1e-6).ceil();
    let is_short = length <= SHORT_STEP * rtt;
    if is_short || rtt == 0.0 || rtts * rtt > span { length } else { rtts * rtt }
}

/// Draws the panel.
pub fn draw(view: &View<'_>, canvas: &Canvas<'_>) -> Drawn {
    let steps = Steps::new(view);
    let (peak, shown) = steps.heights();
    let axes = Axes::new(canvas, view, Scale::quantity(0.0, shown, "b/s"), bands::STRIP);
    bands::draw(&axes, view)?;
    axes.draw("goodput")?;
    let ends = steps.bounds.windows(2);
    let corners = ends.zip(&steps.rates).flat_map(|(ends, &rate)| [(ends[0], rate), (ends[1], rate)]);
    for line in axes.lines(corners) {
        let ends = [line.first(), line.last()].map(|pixel| pixel.map_or(axes.left, |(x, _)| *x));
        let area = [(ends[0], axes.bottom)].into_iter().chain(line.iter().copied()).chain([(ends[1], axes.bottom)]);
        canvas.draw(&Polygon::new(area.collect::<Vec<_>>(), BLUE.mix(0.25).filled()))?;
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
        entries.push((Sample::Limit(limit), format!("{} {:.0} %", bands::name(limit), share * 100.0)));
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
        show_duration(std::time::Duration::from_secs_f64(step_length(view))),
        BitRate(steps.heights().0 as u64)
    );
    let shares: Vec<_> = bands::shares(view)
        .iter()
        .map(|(limit, share)| format!("{} {:.0} %", bands::name(*limit), share * 100.0))
        .collect();
    if !shares.is_empty() {
        let _ = write!(text, " Limits by time: {}.", shares.join(", "));
    }
    let periods = &view.evidence.periods;
    if periods.len() <= MAX_DESCRIBED {
        for period in periods {
            let [start, end] = [period.start, period.end].map(show_duration);
            let _ = write!(text, " From {start} to {end}: {}.", bands::name(period.limit));
        }
    }
    text
}
