//! Pictures of an emulation: throughput, queue and drops over time, and the queueing delay and the lateness of the packets.

use lfn_base::units::show_duration;
use lfn_emulate::{AccuracyReport, CourseSample, DirectionCourse, EmulatedPathReport, QueueingDelay, RunOutcome};
use lfn_plot::{Axis, BLUE, Color, Dash, Guide, GuideAt, INK, ORANGE, Panel, Point, Unit, cdf_of_bins, point};

use super::run::distribution;
use super::{Album, Step, highest, line, step_line};

/// Returns the charts of an emulation. The charts over time need the course of the run.
pub fn of_emulation(outcome: &RunOutcome) -> Album {
    let report = &outcome.accuracy_report;
    let mut album = Album { title: "Emulated path".into(), ..Album::default() };
    for (number, path) in report.paths.iter().enumerate() {
        let links = path.links.join("; ");
        album.lines.push(if report.paths.len() > 1 { format!("path {}: {links}", number + 1) } else { links });
    }
    album.warning = report.inaccuracies().first().map(|first| format!("{}: {}", first.direction, first.cause));
    for (number, path) in report.paths.iter().enumerate() {
        let (prefix, suffix) = match report.paths.len() {
            1 => (String::new(), String::new()),
            _ => (format!("path-{}-", number + 1), format!(", path {}", number + 1)),
        };
        if !outcome.course.is_empty() {
            add_course(&mut album, &outcome.course, number, path, &prefix, &suffix);
        }
        add_queueing_delay(&mut album, path, &prefix, &suffix);
        add_lateness(&mut album, path, &prefix, &suffix);
    }
    add_note_without_packets(&mut album, report);
    album
}

/// Looks of the two directions.
const DIRECTIONS: [(&str, Color, Dash); 2] = [("near to far", BLUE, Dash::Solid), ("far to near", ORANGE, Dash::Short)];

fn add_course(
    album: &mut Album,
    course: &[CourseSample],
    number: usize,
    path: &EmulatedPathReport,
    prefix: &str,
    suffix: &str,
) {
    let figures = |figure: fn(&DirectionCourse) -> f64| -> [Vec<Point>; 2] {
        let steps = |direction: usize| {
            let step = |sample: &CourseSample| {
                let path = sample.paths.get(number)?;
                let value = figure(if direction == 0 { &path.near_to_far } else { &path.far_to_near });
                Some(Step { from: sample.start, to: sample.end, value })
            };
            step_line(&course.iter().filter_map(step).collect::<Vec<_>>())
        };
        [steps(0), steps(1)]
    };
    let end = course.last().map_or(0.0, |last| last.end);
    let over_time = |name: &str, y: Axis, lines: [Vec<Point>; 2]| {
        let x = Axis::exact("time since the start of the link", Unit::Seconds, 0.0, end);
        let high = highest(lines.iter().flatten());
        let mut panel = Panel::new(&format!("{name}{suffix}"), x, Axis { high, ..y });
        for ((name, color, dash), points) in DIRECTIONS.into_iter().zip(lines) {
            panel.series.push(line(name, color, dash, points));
        }
        panel
    };
    let rates = figures(|direction| direction.throughput.as_f64());
    let throughput = Axis::from_zero("throughput", Unit::BitsPerSecond, 0.0);
    let mut panel = over_time("Throughput over time", throughput, rates);
    let capacity = path.path.capacity;
    panel.y.high = panel.y.high.max(capacity.as_f64().min(3.0 * panel.y.high));
    panel.guides.push(Guide {
        at: GuideAt::Y(capacity.as_f64()),
        name: format!("capacity {capacity}"),
        label: String::new(),
        color: INK,
        dash: Dash::Dots,
    });
    add_changes(&mut panel, path);
    album.push(format!("{prefix}throughput"), panel, format!("Capacity {capacity}."));

    let delay = Axis::from_zero("delay of the queue", Unit::Seconds, 0.0);
    let panel = over_time("Queue over time", delay, figures(|direction| direction.queue_delay));
    let words = format!("Highest delay of the queue {}.", time(panel.y.high));
    album.push(format!("{prefix}queue"), panel, words);
    let drops = figures(|direction| direction.dropped as f64);
    if highest(drops.iter().flatten()) > 0.0 {
        let count = Axis::from_zero("dropped packets in each interval", Unit::Count, 0.0);
        let panel = over_time("Dropped packets over time", count, drops);
        album.push(format!("{prefix}drops"), panel, String::new());
    }
}

/// Marks the changes of the running link.
fn add_changes(panel: &mut Panel, path: &EmulatedPathReport) {
    for change in &path.changes {
        panel.guides.push(Guide {
            at: GuideAt::X(change.at),
            name: String::new(),
            label: change.settings.clone(),
            color: INK,
            dash: Dash::Short,
        });
    }
}

/// Adds the distribution of the time that packets waited in queues.
fn add_queueing_delay(album: &mut Album, path: &EmulatedPathReport, prefix: &str, suffix: &str) {
    let top = path.directions().map(|(_, report)| report.queueing_delay.max).into_iter().fold(0.0, f64::max);
    let mut panel = distribution(&format!("Distribution of the queueing delay{suffix}"), "queueing delay", top);
    let mut words = Vec::new();
    for (number, (direction, report)) in path.directions().into_iter().enumerate() {
        let delay = &report.queueing_delay;
        if delay.histogram.is_empty() {
            continue;
        }
        let (_, color, dash) = DIRECTIONS[number];
        let name = format!("{direction}: median {}, p99 {}", time(delay.p50), time(delay.p99));
        panel.series.push(line(name.clone(), color, dash, steps_of_bins(delay)));
        words.push(format!("{name}."));
    }
    album.push(format!("{prefix}queueing-delay"), panel, words.join(" "));
}

/// Returns the distribution of bins of the same width. It is flat over the bins without packets.
fn steps_of_bins(delay: &QueueingDelay) -> Vec<Point> {
    let bins: Vec<(f64, u64)> = delay.histogram.iter().map(|bin| (bin.0, bin.1)).collect();
    let width = bins.last().map_or(0.0, |last| last.0 / 100.0);
    let mut points = vec![point(0.0, 0.0)];
    for upper in cdf_of_bins(&bins) {
        let before = points.last().map_or(0.0, |last| last.y);
        points.push(point((upper.x - width).max(0.0), before));
        points.push(point(upper.x.min(delay.max), upper.y));
    }
    points
}

fn add_lateness(album: &mut Album, path: &EmulatedPathReport, prefix: &str, suffix: &str) {
    let bins = |number: usize| -> Vec<(f64, u64)> {
        let (_, report) = path.directions()[number];
        report.lateness.histogram.iter().map(|bin| (bin.0, bin.1)).collect()
    };
    let all = [bins(0), bins(1)];
    let bounds = all.iter().flatten().map(|(bound, _)| *bound).filter(|bound| *bound > 0.0);
    let limit = path.lateness_limit().as_secs_f64();
    let (low, high) = bounds.fold((limit, limit), |(low, high), bound| (low.min(bound / 2.0), high.max(bound)));
    let x = Axis::logarithmic("lateness of a packet", Unit::Seconds, low.max(1e-7), high);
    let share = Axis::from_zero("share that is not later", Unit::Percent, 100.0);
    let mut panel = Panel::new(&format!("Distribution of the lateness{suffix}"), x, share);
    for (number, bins) in all.iter().enumerate().filter(|(_, bins)| !bins.is_empty()) {
        let (_, color, dash) = DIRECTIONS[number];
        let (direction, report) = path.directions()[number];
        let name = format!("{direction}: p99 {}", time(report.lateness.p99));
        let points = cdf_of_bins(bins);
        let start = points.first().map(|first| point(first.x / 2.0, 0.0));
        let points = start.into_iter().chain(points).collect();
        panel.series.push(line(name, color, dash, points));
    }
    let name = format!("limit of the 99th percentile {}", time(limit));
    panel.guides.push(Guide { at: GuideAt::X(limit), name, label: String::new(), color: INK, dash: Dash::Dots });
    let p99 = path.directions().map(|(name, report)| format!("{name} {}", time(report.lateness.p99)));
    album.push(format!("{prefix}lateness"), panel, format!("99th percentile: {}.", p99.join(", ")));
}

fn time(seconds: f64) -> String {
    show_duration(std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Says that a run without packets has nothing to show.
fn add_note_without_packets(album: &mut Album, report: &AccuracyReport) {
    if report.paths.iter().flat_map(|path| path.directions()).all(|(_, direction)| direction.forwarded == 0) {
        for chart in &mut album.charts {
            chart.panel.note = Some("no packet crossed the link".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use lfn_emulate::HistogramBin;

    use super::*;

    #[test]
    fn distribution_is_flat_where_no_packet_waited() {
        let histogram = vec![HistogramBin(0.001, 60), HistogramBin(0.1, 40)];
        let delay = QueueingDelay { max: 0.1, histogram, ..QueueingDelay::default() };
        let points = steps_of_bins(&delay);
        assert_eq!(points[0], point(0.0, 0.0));
        assert!(points.contains(&point(0.001, 60.0)) && points.contains(&point(0.099, 60.0)), "{points:?}");
        assert_eq!(points.last(), Some(&point(0.1, 100.0)));
    }
}
