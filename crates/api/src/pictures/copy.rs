//! Pictures of a copy: goodput with the limit of each interval, the time of the activities, RTT and windows.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_copy::{PartCourse, PartSample};
use lfn_plot::{
    AMBER, Axis, BLUE, Dash, GREEN, GREY, Guide, GuideAt, INK, ORANGE, PURPLE, Panel, Point, RED, SKY, Series, Shape,
    Unit, point,
};
use lfn_results::evidence::{ProgressSample, SocketEvidence, StreamTime};

use super::run::distribution;
use super::{Album, Chart, Step, counted, highest, limits, line, seconds, step_line, windows};
use crate::copy::CopyResult;
use crate::documents::FinishedCopy;

/// Returns the charts of a finished copy.
pub fn of_copy(result: &CopyResult, document: &FinishedCopy) -> Album {
    let sources = document.sources.join(" ");
    let time = show_duration(Duration::from_millis(document.time.as_millis() as u64));
    let mut lines = vec![
        format!("{sources} → {}", document.destination),
        format!(
            "{} in {time}: {}, {}",
            document.moved_bytes.decimal(),
            document.goodput,
            counted(document.streams.into(), "stream")
        ),
        document.verdict.summary.clone(),
    ];
    if let Some(ranks) = &document.ranks {
        let time = show_duration(Duration::from_millis(ranks.time.as_millis() as u64));
        let all = counted(ranks.ranks.len(), "rank");
        lines[1] = format!("rank {}: {}", ranks.rank, lines[1]);
        lines.insert(1, format!("{all}: {} in {time}, {}", ranks.bytes.decimal(), ranks.goodput));
    }
    let predicted = document.predicted.as_ref().map(|predicted| predicted.average_goodput);
    let mut album = charts(lines, &result.outcome.samples, document.streams, predicted);
    if let (Some(ranks), Some(options)) = (&document.ranks, &result.prepared.options.rank) {
        let names = ranks.ranks.iter().map(|rank| format!("rank {}", rank.rank)).collect();
        Parts { kind: "rank", quantity: "goodput", names }.add_to(&mut album, &options.board.course());
    }
    if document.stripes.len() > 1 {
        let names = document.stripes.iter().map(|stripe| stripe.stripe.clone()).collect();
        Parts { kind: "stripe", quantity: "throughput", names }.add_to(&mut album, &result.stripe_course);
    }
    album
}

/// Maximum number of parts with a name of their own in the legend.
const MAX_NAMED_PARTS: usize = 8;

/// The parts of a copy: its ranks or its stripes.
struct Parts {
    kind: &'static str,
    quantity: &'static str,
    names: Vec<String>,
}

impl Parts {
    /// Adds the rate of all parts together, and of each part, as the first chart.
    fn add_to(&self, album: &mut Album, course: &PartCourse) {
        let Parts { kind, quantity, names } = self;
        let end = course.samples().last().map_or(Duration::ZERO, |last| last.at);
        let rates = |bytes: &dyn Fn(&PartSample) -> u64| {
            let mut earlier = (Duration::ZERO, 0);
            let steps = course.samples().iter().filter(|sample| sample.at > Duration::ZERO).map(|sample| {
                let now = (sample.at, bytes(sample));
                let before = std::mem::replace(&mut earlier, now);
                let moved = Bytes(now.1.saturating_sub(before.1));
                let value = moved.per(now.0.saturating_sub(before.0)).as_f64();
                Step { from: seconds(before.0), to: seconds(now.0), value }
            });
            step_line(&steps.collect::<Vec<_>>())
        };
        let total = rates(&|sample| sample.bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(bytes.0)));
        let time = Axis::exact("time since the start", Unit::Seconds, 0.0, seconds(end).max(1e-3));
        let title = format!("The {quantity} of all {kind}s and of each {kind}");
        let mut panel = Panel::new(&title, time, Axis::from_zero(quantity, Unit::BitsPerSecond, highest(&total)));
        if total.is_empty() {
            panel.note = Some("the copy was too short for samples".into());
        }
        panel.series.push(Series {
            name: format!("all {}", counted(names.len(), kind)),
            color: SKY,
            shape: Shape::Area { points: total },
        });
        let colors = [BLUE, ORANGE, GREEN, PURPLE, AMBER, INK, GREY, RED];
        for (number, name) in names.iter().enumerate() {
            let points = rates(&|sample| sample.bytes.get(number).map_or(0, |bytes| bytes.0));
            let is_named = names.len() <= MAX_NAMED_PARTS;
            let (name, color) = match number {
                _ if is_named => (name.clone(), colors[number % colors.len()]),
                0 => (format!("each {kind}"), GREY),
                _ => (String::new(), GREY),
            };
            let dash = if number % 2 == 0 { Dash::Solid } else { Dash::Short };
            let (dash, width) = if is_named { (dash, 1.6) } else { (Dash::Solid, 0.8) };
            panel.series.push(Series { name, color, shape: Shape::Line { points, width, dash } });
        }
        album.charts.insert(0, Chart { stem: format!("{kind}s"), panel, description: String::new() });
    }
}

/// Returns the charts of the samples of a copy.
fn charts(lines: Vec<String>, samples: &[ProgressSample], streams: u16, predicted: Option<BitRate>) -> Album {
    let mut album = Album { title: "Copy".into(), lines, ..Album::default() };
    let end = seconds(limits::end_of(samples));
    let over_time = |name: &str, y: Axis| {
        Panel::new(name, Axis::exact("time since the start", Unit::Seconds, 0.0, end.max(1e-3)), y)
    };
    add_goodput(&mut album, &over_time, samples, streams, predicted);
    add_activities(&mut album, &over_time, samples);
    let sockets: Vec<(f64, SocketEvidence)> =
        samples.iter().filter_map(|sample| Some((seconds(sample.at), sample.sockets?))).collect();
    if sockets.is_empty() {
        return album;
    }
    let figure = |figure: fn(&SocketEvidence) -> f64| -> Vec<Point> {
        sockets.iter().map(|(at, sockets)| point(*at, figure(sockets))).collect()
    };
    let rtt = figure(|sockets| sockets.rtt_seconds);
    let mut panel = over_time("Round-trip time", Axis::from_zero("RTT", Unit::Seconds, highest(&rtt) * 1.02));
    panel.series.push(line("smoothed RTT, largest of the streams", BLUE, Dash::Solid, rtt.clone()));
    album.push("rtt", panel, String::new());

    let (congestion, receive) =
        (figure(|sockets| sockets.congestion_window.0 as f64), figure(|sockets| sockets.receive_window.0 as f64));
    let bytes = Axis::from_zero("bytes, sum of the streams", Unit::Bytes, 0.0);
    let mut panel = over_time("Congestion window and receive window", bytes);
    windows::add_congestion(&mut panel, congestion, Vec::new());
    windows::add_receive_window(&mut panel, receive);
    album.push("window", panel, String::new());

    let rtts: Vec<f64> = rtt.iter().map(|point| point.y).filter(|rtt| *rtt > 0.0).collect();
    let top = rtts.iter().copied().fold(0.0, f64::max);
    let mut panel = distribution("Distribution of the round-trip time", "RTT", top);
    windows::add_smoothed_rtt(&mut panel, &rtts);
    album.push("rtt-distribution", panel, String::new());
    album
}

fn add_goodput(
    album: &mut Album,
    over_time: &dyn Fn(&str, Axis) -> Panel,
    samples: &[ProgressSample],
    streams: u16,
    predicted: Option<BitRate>,
) {
    let mut earlier = ProgressSample::default();
    let mut steps = Vec::new();
    for sample in samples.iter().filter(|sample| !sample.at.is_zero()) {
        let moved = Bytes(sample.bytes.0.saturating_sub(earlier.bytes.0));
        let value = moved.per(sample.at.saturating_sub(earlier.at)).as_f64();
        steps.push(Step { from: seconds(earlier.at), to: seconds(sample.at), value });
        earlier = *sample;
    }
    let points = step_line(&steps);
    let top = highest(&points).max(predicted.map_or(0.0, |rate| rate.as_f64()));
    let mut panel = over_time("Goodput over time", Axis::from_zero("goodput", Unit::BitsPerSecond, top));
    if points.is_empty() {
        panel.note = Some("the copy was too short for samples".into());
    }
    panel.series.push(Series { name: "goodput".into(), color: BLUE, shape: Shape::Area { points } });
    if let Some(predicted) = predicted {
        let (name, at) = (format!("predicted {predicted}"), GuideAt::Y(predicted.as_f64()));
        panel.guides.push(Guide { at, name, label: String::new(), color: INK, dash: Dash::Short });
    }
    let periods = limits::of_samples(samples, streams, predicted);
    limits::add(&mut panel, &periods);
    let words = limits::in_words(&panel, &periods).trim_start().to_owned();
    album.push("goodput", panel, words);
}

/// Adds the share of the time of the threads in each activity of both sides.
fn add_activities(album: &mut Album, over_time: &dyn Fn(&str, Axis) -> Panel, samples: &[ProgressSample]) {
    type Activity = (&'static str, fn(&ProgressSample) -> &StreamTime, fn(&StreamTime) -> f64);
    let activities: [Activity; 6] = [
        ("sender: disk", |sample| &sample.sender, |time| time.disk),
        ("sender: hash", |sample| &sample.sender, |time| time.hash),
        ("sender: network", |sample| &sample.sender, |time| time.network),
        ("receiver: disk", |sample| &sample.receiver, |time| time.disk),
        ("receiver: hash", |sample| &sample.receiver, |time| time.hash),
        ("receiver: network", |sample| &sample.receiver, |time| time.network),
    ];
    let colors = [AMBER, PURPLE, BLUE];
    let busy = Axis::from_zero("busy threads", Unit::Count, 0.0);
    let mut panel = over_time("Time of the threads by activity", busy);
    for (number, (name, side, figure)) in activities.into_iter().enumerate() {
        let mut earlier = ProgressSample::default();
        let mut steps = Vec::new();
        for sample in samples.iter().filter(|sample| !sample.at.is_zero()) {
            let (from, to) = (seconds(earlier.at), seconds(sample.at));
            let value = (figure(side(sample)) - figure(side(&earlier))).max(0.0) / (to - from).max(1e-9);
            steps.push(Step { from, to, value });
            earlier = *sample;
        }
        let dash = if number < 3 { Dash::Solid } else { Dash::Short };
        let color = if number == 5 { GREEN } else { colors[number % 3] };
        let points = step_line(&steps);
        if highest(&points) > 0.0 {
            panel.series.push(line(name, color, dash, points));
        }
    }
    if panel.series.is_empty() {
        return;
    }
    panel.y.high = highest(super::run::all_points(&panel));
    album.push("activities", panel, String::new());
}
