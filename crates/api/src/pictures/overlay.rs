//! Charts of several runs in the same plots.

use lfn_plot::{Axis, MAX_LINE_LOOKS, Panel, Point, Series, Shape, Unit, cdf, line_look};

use super::course::RunCourse;
use super::run::{MIN_INTERVALS, distribution, goodput_distribution};
use super::{Album, highest, line};

/// Returns the charts of several runs in the same plots. More runs than a reader can distinguish are not drawn.
pub(super) fn overlay(mut runs: Vec<RunCourse>) -> Album {
    let hidden = runs.len().saturating_sub(MAX_LINE_LOOKS);
    runs.truncate(MAX_LINE_LOOKS);
    let summaries: Vec<_> = runs.iter().map(|run| format!("{}: {}", run.name, run.summary)).collect();
    let mut lines = vec![summaries.join("; ")];
    if hidden > 0 {
        lines.push(format!("the first {MAX_LINE_LOOKS} runs; {hidden} more are not drawn"));
    }
    let mut album = Album { title: "Several results".into(), lines, ..Album::default() };
    let goodput = Axis::from_zero("goodput", Unit::BitsPerSecond, 0.0);
    add(&mut album, &runs, "goodput", "Goodput over time", goodput, |run| &run.goodput);
    let rtt = Axis::from_zero("RTT, largest of the streams", Unit::Seconds, 0.0);
    add(&mut album, &runs, "rtt", "Round-trip time", rtt, |run| &run.rtt);
    let window = Axis::from_zero("bytes, sum of the streams", Unit::Bytes, 0.0);
    add(&mut album, &runs, "window", "Congestion window", window, |run| &run.congestion_window);
    add_distributions(&mut album, &runs);
    album
}

/// Adds a chart with a line for each run that has the figure.
fn add(album: &mut Album, runs: &[RunCourse], stem: &str, name: &str, y: Axis, figure: fn(&RunCourse) -> &[Point]) {
    let end = runs.iter().flat_map(figure).map(|point| point.x).filter(|x| x.is_finite()).fold(0.0, f64::max);
    if end <= 0.0 {
        return;
    }
    let mut panel = Panel::new(name, Axis::exact("time since the first byte", Unit::Seconds, 0.0, end), y);
    panel.y.high = highest(runs.iter().flat_map(figure));
    for (number, run) in runs.iter().enumerate().filter(|(_, run)| !figure(run).is_empty()) {
        let look = line_look(number);
        let shape = Shape::Line { points: figure(run).to_vec(), width: 2.0, dash: look.dash };
        panel.series.push(Series { name: run.name.clone(), color: look.color, shape });
    }
    let words: Vec<_> = runs.iter().map(|run| format!("{}: {}.", run.name, run.summary)).collect();
    album.push(stem, panel, words.join(" "));
}

/// Adds the distributions of the RTT and of the goodput of the intervals.
fn add_distributions(album: &mut Album, runs: &[RunCourse]) {
    let rtts: Vec<Vec<f64>> = runs.iter().map(|run| run.rtt.iter().map(|point| point.y).collect()).collect();
    let panel = distribution("Distribution of the round-trip time", "smoothed RTT", 0.0);
    add_distribution(album, "rtt-distribution", panel, runs, &rtts);
    let is_long = |run: &RunCourse| run.rates.len() >= MIN_INTERVALS;
    let rates: Vec<Vec<f64>> =
        runs.iter().map(|run| if is_long(run) { run.rates.clone() } else { Vec::new() }).collect();
    let panel = goodput_distribution("Distribution of the goodput of the intervals");
    add_distribution(album, "goodput-distribution", panel, runs, &rates);
}

/// Adds the distribution of the values of each run that has values.
fn add_distribution(album: &mut Album, stem: &str, mut panel: Panel, runs: &[RunCourse], values: &[Vec<f64>]) {
    panel.x.high = values.iter().flatten().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    if panel.x.high <= 0.0 {
        return;
    }
    for (number, (run, values)) in runs.iter().zip(values).enumerate().filter(|(_, (_, values))| !values.is_empty()) {
        let look = line_look(number);
        panel.series.push(line(run.name.clone(), look.color, look.dash, cdf(values)));
    }
    album.push(stem, panel, "Values of the intervals of each result.".into());
}
