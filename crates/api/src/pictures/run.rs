//! Charts of one run of a test: goodput with the limit of each interval, RTT, windows, and the distributions of the RTT and
//! of the goodput of the intervals.

use std::collections::BTreeMap;

use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::show_duration;
use lfn_plot::{
    Axis, BLUE, Dash, Guide, GuideAt, INK, MAX_LINE_LOOKS, ORANGE, PURPLE, Panel, Point, SKY, Series, Shape, Unit, cdf,
    line_look, point,
};
use lfn_results::measure::{Interval, TestDirection};
use lfn_results::report::Run;

use super::{Album, Step, counted, highest, limits, line, seconds, step_line, windows};

/// Minimum number of intervals that have a distribution.
pub(super) const MIN_INTERVALS: usize = 3;

/// Adds the charts of a run. `prefix` precedes the stems and `suffix` follows the names, if an album has several runs.
pub(super) fn add(album: &mut Album, run: &Run, prefix: &str, suffix: &str) {
    add_goodput(album, run, prefix, suffix);
    let samples = samples(run);
    if !samples.is_empty() || run.evidence.latency.is_some() {
        add_rtt(album, run, &samples, prefix, suffix);
    }
    if !samples.is_empty() {
        add_windows(album, run, &samples, prefix, suffix);
        add_rtt_cdf(album, run, &samples, prefix, suffix);
    }
    add_goodput_cdf(album, run, prefix, suffix);
}

/// Returns the name of a direction.
pub(super) fn direction_name(direction: TestDirection) -> &'static str {
    match direction {
        TestDirection::Forward => "near to far",
        TestDirection::Reverse => "far to near",
    }
}

/// Returns the main figures of a run in one line.
pub(super) fn facts(run: &Run) -> String {
    let time = show_duration(std::time::Duration::from_millis(run.elapsed.as_millis() as u64));
    let streams = counted(run.evidence.receiver().streams.len().max(1), "stream");
    let mut text = format!("{}: {} in {time}, {streams}", direction_name(run.direction), run.goodput);
    if !run.base_rtt.is_zero() {
        text += &format!(", base RTT {}", show_duration(run.base_rtt));
    }
    if !run.diagnosis.verdict.summary.is_empty() {
        text += &format!("; {}", run.diagnosis.verdict.summary);
    }
    text
}

fn time_axis(run: &Run) -> Axis {
    let intervals = run.intervals.iter().map(|interval| seconds(interval.end));
    Axis::exact("time since the first byte", Unit::Seconds, 0.0, intervals.fold(seconds(run.elapsed), f64::max))
}

/// Bytes of each stream in the intervals of the receiver, as rates.
fn stream_rates(intervals: &[Interval]) -> BTreeMap<u16, Vec<Step>> {
    let mut rates: BTreeMap<u16, Vec<Step>> = BTreeMap::new();
    for interval in intervals {
        let (from, to) = (seconds(interval.start), seconds(interval.end));
        for stream in interval.streams.iter().filter(|_| to > from) {
            let value = stream.bytes as f64 * 8.0 / (to - from);
            rates.entry(stream.stream).or_default().push(Step { from, to, value });
        }
    }
    rates
}

fn add_goodput(album: &mut Album, run: &Run, prefix: &str, suffix: &str) {
    let steps = |interval: &lfn_results::report::GoodputInterval| Step {
        from: seconds(interval.start),
        to: seconds(interval.end),
        value: interval.goodput.as_f64(),
    };
    let total = step_line(&run.intervals.iter().map(steps).collect::<Vec<_>>());
    let prediction = run.diagnosis.predicted.as_ref().map(|predicted| predicted.goodput);
    let top = highest(&total).max(prediction.map_or(0.0, |rate| rate.as_f64()));
    let mut panel = Panel::new(
        &format!("Goodput over time{suffix}"),
        time_axis(run),
        Axis::from_zero("goodput", Unit::BitsPerSecond, top),
    );
    let streams = stream_rates(&run.evidence.receiver().intervals);
    if streams.len() > 1 {
        panel.series.push(line(format!("all {} streams", streams.len()), INK, Dash::Solid, total));
        add_streams(&mut panel, streams.values().map(|steps| step_line(steps)).collect());
    } else {
        panel.series.push(Series { name: "goodput".into(), color: BLUE, shape: Shape::Area { points: total } });
    }
    if let Some(predicted) = prediction {
        panel.guides.push(guide(predicted.as_f64(), format!("predicted {predicted}"), Dash::Short));
    }
    let periods = limits::of_evidence(&run.evidence, prediction.or(run.possible_goodput));
    limits::add(&mut panel, &periods);
    if run.intervals.is_empty() {
        panel.note = Some("the test has no intervals".into());
    }
    let rates = run.intervals.iter().map(|interval| interval.goodput);
    let range = rates.clone().min().zip(rates.max());
    let words = range.map_or_else(String::new, |(low, high)| format!("Intervals from {low} to {high}."));
    let words = format!("Goodput {}. {words}{}", run.goodput, limits::in_words(&panel, &periods));
    album.push(format!("{prefix}goodput"), panel, words);
}

/// Adds a line for each stream. More streams than a reader can distinguish have the same look.
fn add_streams(panel: &mut Panel, streams: Vec<Vec<Point>>) {
    let count = streams.len();
    let is_many = count > MAX_LINE_LOOKS - 1;
    for (number, points) in streams.into_iter().enumerate() {
        let look = line_look(number);
        let (color, dash) = if is_many { (SKY.with_opacity(0.6), Dash::Solid) } else { (look.color, look.dash) };
        let name = match (is_many, number) {
            (false, _) => format!("stream {number}"),
            (true, 0) => format!("each of {count} streams"),
            (true, _) => String::new(),
        };
        let width = if is_many { 1.0 } else { 1.8 };
        panel.series.push(Series { name, color, shape: Shape::Line { points, width, dash } });
    }
}

fn guide(value: f64, name: String, dash: Dash) -> Guide {
    Guide { at: GuideAt::Y(value), name, label: String::new(), color: INK, dash }
}

/// A sample of a socket of the sender.
pub(super) struct Sample<'a> {
    at: f64,
    stream: u16,
    info: &'a TcpInfo,
}

fn samples(run: &Run) -> Vec<Sample<'_>> {
    let intervals = run.evidence.sender().intervals.iter();
    let samples = intervals.flat_map(|interval| {
        let at = seconds(interval.placed().1);
        interval
            .streams
            .iter()
            .filter_map(move |stream| Some(Sample { at, stream: stream.stream, info: stream.tcp_info.as_ref()? }))
    });
    samples.collect()
}

fn add_rtt(album: &mut Album, run: &Run, samples: &[Sample<'_>], prefix: &str, suffix: &str) {
    let mut streams: BTreeMap<u16, Vec<Point>> = BTreeMap::new();
    for sample in samples {
        streams.entry(sample.stream).or_default().push(point(sample.at, seconds(sample.info.rtt)));
    }
    let mut panel =
        Panel::new(&format!("Round-trip time{suffix}"), time_axis(run), Axis::from_zero("RTT", Unit::Seconds, 0.0));
    let count = streams.len();
    if count == 1 {
        let points = streams.into_values().next().unwrap_or_default();
        panel.series.push(line("smoothed RTT of the sender", BLUE, Dash::Solid, points));
    } else {
        add_streams(&mut panel, streams.into_values().collect());
    }
    if let Some(latency) = &run.evidence.latency {
        let quantile = |figure: fn(&lfn_results::latency::RttDistribution) -> std::time::Duration| {
            let at = |interval: &lfn_results::latency::LatencyInterval| {
                let (from, to) = (seconds(interval.start), seconds(interval.end));
                Step { from, to, value: interval.trips.rtt.as_ref().map_or(f64::NAN, |rtt| seconds(figure(rtt))) }
            };
            step_line(&latency.intervals.iter().map(at).collect::<Vec<_>>())
        };
        panel.series.push(line("probes, median", ORANGE, Dash::Solid, quantile(|rtt| rtt.p50)));
        panel.series.push(line("probes, 99th percentile", PURPLE, Dash::Short, quantile(|rtt| rtt.p99)));
    }
    let base = seconds(run.base_rtt);
    if base > 0.0 {
        panel.guides.push(guide(base, format!("base RTT {}", show_duration(run.base_rtt)), Dash::Dots));
    }
    panel.y.high = all_points(&panel).map(|point| point.y).filter(|y| y.is_finite()).fold(base, f64::max) * 1.02;
    let top = std::time::Duration::try_from_secs_f64(panel.y.high / 1.02).unwrap_or_default();
    let words = format!("Base RTT {}, highest {}.", show_duration(run.base_rtt), show_duration(top));
    album.push(format!("{prefix}rtt"), panel, words);
}

/// Returns the points of all lines.
pub(super) fn all_points(panel: &Panel) -> impl Iterator<Item = &Point> {
    panel.series.iter().flat_map(|series| match &series.shape {
        Shape::Line { points, .. } | Shape::Area { points } | Shape::Marks { points, .. } => points.as_slice(),
        Shape::Bars { .. } | Shape::Whiskers { .. } => &[],
    })
}

fn add_windows(album: &mut Album, run: &Run, samples: &[Sample<'_>], prefix: &str, suffix: &str) {
    let sum = |figure: fn(&TcpInfo) -> Option<f64>| -> Vec<Point> {
        let mut sums: Vec<Point> = Vec::new();
        for (at, value) in samples.iter().filter_map(|sample| Some((sample.at, figure(sample.info)?))) {
            match sums.last_mut().filter(|last| last.x == at) {
                Some(last) => last.y += value,
                None => sums.push(point(at, value)),
            }
        }
        sums
    };
    let congestion = sum(|info| Some(info.cwnd().0 as f64));
    let receive = sum(|info| info.snd_wnd_bytes.map(f64::from));
    let unacknowledged = sum(|info| Some(f64::from(info.unacked_segments) * f64::from(info.snd_mss_bytes)));
    let top = highest(&congestion);
    let streams = run.evidence.sender().streams.len();
    let of_all = if streams > 1 { format!(", sum of {streams} streams") } else { String::new() };
    let mut panel = Panel::new(
        &format!("Congestion window and receive window{suffix}"),
        time_axis(run),
        Axis::from_zero(&format!("bytes{of_all}"), Unit::Bytes, top),
    );
    windows::add_congestion(&mut panel, congestion, unacknowledged);
    if let Some(bdp) = run.bdp.filter(|bdp| bdp.0 as f64 <= panel.y.high * 2.0) {
        panel.y.high = panel.y.high.max(bdp.0 as f64 * 1.05);
        panel.guides.push(guide(bdp.0 as f64, format!("BDP {}", bdp.decimal()), Dash::Short));
    }
    windows::add_receive_window(&mut panel, receive);
    let words = format!("The congestion window is at most {}.", lfn_base::units::Bytes(top as u64).decimal());
    album.push(format!("{prefix}window"), panel, words);
}

fn add_rtt_cdf(album: &mut Album, run: &Run, samples: &[Sample<'_>], prefix: &str, suffix: &str) {
    let rtts: Vec<f64> = samples.iter().map(|sample| seconds(sample.info.rtt)).filter(|rtt| *rtt > 0.0).collect();
    let top = rtts.iter().copied().fold(seconds(run.base_rtt), f64::max);
    let mut panel = distribution(&format!("Distribution of the round-trip time{suffix}"), "RTT", top);
    windows::add_smoothed_rtt(&mut panel, &rtts);
    if let Some(rtt) = run.evidence.latency.as_ref().and_then(|latency| latency.loaded.rtt) {
        windows::add_quantiles(&mut panel, &rtt);
    }
    if !run.base_rtt.is_zero() {
        let name = format!("base RTT {}", show_duration(run.base_rtt));
        panel.guides.push(Guide {
            at: GuideAt::X(seconds(run.base_rtt)),
            name,
            label: String::new(),
            color: INK,
            dash: Dash::Dots,
        });
    }
    let words = format!("{} samples of the smoothed RTT.", rtts.len());
    album.push(format!("{prefix}rtt-distribution"), panel, words);
}

/// Adds the distribution of the goodput of the intervals: of all streams together, and of each stream.
fn add_goodput_cdf(album: &mut Album, run: &Run, prefix: &str, suffix: &str) {
    let all: Vec<f64> = run.intervals.iter().map(|interval| interval.goodput.as_f64()).collect();
    if all.len() < MIN_INTERVALS {
        return;
    }
    let streams = stream_rates(&run.evidence.receiver().intervals);
    let mut panel = goodput_distribution(&format!("Distribution of the goodput of the intervals{suffix}"));
    if streams.len() > 1 {
        panel.series.push(line(format!("all {} streams", streams.len()), INK, Dash::Solid, cdf(&all)));
        let rates = |steps: &Vec<Step>| steps.iter().map(|step| step.value).collect::<Vec<f64>>();
        add_streams(&mut panel, streams.values().map(|steps| cdf(&rates(steps))).collect());
    } else {
        panel.series.push(line(format!("{} intervals", all.len()), BLUE, Dash::Solid, cdf(&all)));
    }
    panel.x.high = all_points(&panel).map(|point| point.x).fold(0.0, f64::max);
    if let Some(predicted) = run.diagnosis.predicted.as_ref().map(|predicted| predicted.goodput) {
        panel.x.high = panel.x.high.max(predicted.as_f64());
        let (at, name) = (GuideAt::X(predicted.as_f64()), format!("predicted {predicted}"));
        panel.guides.push(Guide { at, name, label: String::new(), color: INK, dash: Dash::Short });
    }
    album.push(format!("{prefix}goodput-distribution"), panel, format!("{} intervals.", all.len()));
}

/// Returns an empty plot of a distribution of goodput.
pub(super) fn goodput_distribution(name: &str) -> Panel {
    let x = Axis::from_zero("goodput of an interval", Unit::BitsPerSecond, 0.0);
    Panel::new(name, x, Axis::from_zero("share that is not higher", Unit::Percent, 100.0))
}

/// Returns an empty plot of a distribution of times up to `top` seconds.
pub(super) fn distribution(name: &str, figure: &str, top: f64) -> Panel {
    let x = Axis::from_zero(figure, Unit::Seconds, top);
    Panel::new(name, x, Axis::from_zero("share that is not longer", Unit::Percent, 100.0))
}
