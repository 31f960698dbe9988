//! RTT over time, with the base RTT.

use std::collections::BTreeMap;

use lfn_base::units::show_duration;
use lfn_trace::{Point, RttSamples};
use plotters::prelude::*;

use super::axes::{Axes, Scale};
use super::legend::{self, Sample};
use super::view::View;
use crate::print::svg::{BLUE, Canvas, Drawn, INK, SKY};

/// Time without samples that interrupts the line, in base RTTs, and as a share of the shown time.
const MAX_GAP: f64 = 4.0;
const MAX_GAP_SHARE: f64 = 0.02;

/// Draws the panel on its canvas.
pub fn draw(view: &View<'_>, canvas: &Canvas<'_>) -> Drawn {
    let base = view.evidence.rtt.base;
    let highest = samples(view).map(|point| point.value.max).max().unwrap_or_default().max(base);
    let axes = Axes::new(canvas, view, Scale::duration(highest.as_secs_f64().max(1e-6)), 0);
    axes.draw("RTT")?;
    draw_range(&axes, view)?;
    for part in without_gaps(&axes, view) {
        for line in axes.lines(part) {
            canvas.draw(&PathElement::new(line, BLUE.stroke_width(2)))?;
        }
    }
    let mut entries = vec![
        (Sample::Line(BLUE, 2), "RTT, mean of the samples".to_owned()),
        (Sample::Bar(SKY), "minimum to maximum".to_owned()),
    ];
    if !base.is_zero() {
        let y = axes.y(base.as_secs_f64());
        legend::draw_dashes(canvas, &[(axes.left, y), (axes.right, y)], INK)?;
        entries.push((Sample::Dashes(INK), format!("base RTT {}", show_duration(base))));
    }
    if samples(view).next().is_none() {
        axes.write_empty("no RTT samples in this time")?;
    }
    legend::draw(&axes, &entries)
}

/// Returns the mean of the samples over time. A line does not cross a time without samples.
fn without_gaps(axes: &Axes<'_, '_>, view: &View<'_>) -> Vec<Vec<(f64, f64)>> {
    let max_gap = (MAX_GAP * view.evidence.rtt.base.as_secs_f64()).max(MAX_GAP_SHARE * (view.to - view.from));
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    for point in samples(view) {
        let (time, mean) = (view.seconds(point.start), point.value.mean().as_secs_f64());
        match parts.last_mut().filter(|part| part.last().is_some_and(|last| time - last.0 <= max_gap)) {
            Some(part) => part.push((time, mean)),
            None => parts.push(vec![(time, mean)]),
        }
    }
    // A single sample is a short line.
    for part in &mut parts {
        if let [(time, mean)] = part[..] {
            part.push((axes.time_at(axes.x(time) + 2), mean));
        }
    }
    parts
}

/// Draws the range of the samples of each column as a vertical bar.
fn draw_range(axes: &Axes<'_, '_>, view: &View<'_>) -> Drawn {
    let mut columns: BTreeMap<i32, [f64; 2]> = BTreeMap::new();
    for point in samples(view) {
        let [min, max] = [point.value.min, point.value.max].map(|rtt| rtt.as_secs_f64());
        let column = columns.entry(axes.x(view.seconds(point.start))).or_insert([min, max]);
        *column = [column[0].min(min), column[1].max(max)];
    }
    for (x, [min, max]) in columns {
        let bar = [(x - 1, axes.y(max) - 1), (x + 2, axes.y(min) + 1)];
        axes.canvas.draw(&Rectangle::new(bar, SKY.mix(0.6).filled()))?;
    }
    Ok(())
}

fn samples<'a>(view: &'a View<'a>) -> impl Iterator<Item = &'a Point<RttSamples>> {
    view.shown(view.series.rtts()).iter().filter(|point| view.seconds(point.end) >= view.from)
}

/// Returns the panel in words.
pub fn describe(view: &View<'_>) -> String {
    let lowest = samples(view).map(|point| point.value.min).min();
    let highest = samples(view).map(|point| point.value.max).max();
    let (Some(lowest), Some(highest)) = (lowest, highest) else { return "No RTT samples.".to_owned() };
    format!("RTT from {} to {}.", show_duration(lowest), show_duration(highest))
}
