//! Pictures of modelled connections: texts, bounds, sizes, and names that try to leave the text.

use std::collections::VecDeque;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_results::evidence::capture::{CaptureEvidence, Period, PeriodLimit};
use lfn_trace::{SentKind, Series};

use lfn_plot::{DEFAULT_SIZE, Drawing};

use super::view::PlottedConnection;
use super::*;

const START: u64 = 1_700_000_000_000_000_000;
const SEGMENT: u64 = 1448;

/// A connection and its points.
struct Connection {
    evidence: CaptureEvidence,
    series: Series,
}

impl Connection {
    fn plotted<'a>(&'a self, name: &'a str) -> PlottedConnection<'a> {
        PlottedConnection { evidence: &self.evidence, series: &self.series, start: Instant::from_nanos(START), name }
    }
}

/// A modelled connection: slow start up to a window, over a bottleneck with one queue.
struct Model {
    /// Bits per second of the bottleneck.
    rate: u64,
    rtt: Duration,
    window: u64,
    duration: Duration,
    /// One of this number of segments is lost, and sent again one RTT later; 0 loses none.
    loss_interval: u64,
    points: usize,
}

const SHORT: Model = Model {
    rate: 100_000_000,
    rtt: Duration::from_millis(50),
    window: 300_000,
    duration: Duration::from_secs(4),
    loss_interval: 0,
    points: 1000,
};

impl Model {
    fn series(&self) -> Series {
        let start = Instant::from_nanos(START);
        let mut series = Series::new(self.points);
        let mut acknowledgements: VecDeque<(Instant, Instant, u64)> = VecDeque::new();
        let (mut now, mut free) = (start, start);
        let (mut sent, mut acknowledged, mut cwnd, mut segments) = (0, 0, 10 * SEGMENT, 0);
        while now < start + self.duration {
            while sent + SEGMENT <= acknowledged + cwnd.min(self.window) {
                segments += 1;
                series.add_data(now, sent, SEGMENT as u32, SentKind::New);
                free = free.max(now) + Duration::from_nanos(SEGMENT * 8_000_000_000 / self.rate);
                let is_lost = self.loss_interval > 0 && segments % self.loss_interval == 0;
                let delay = if is_lost { 2 * self.rtt } else { self.rtt };
                if is_lost {
                    series.add_data(now + self.rtt, sent, SEGMENT as u32, SentKind::Retransmission);
                    series.add_data(now + self.rtt, sent + 5 * SEGMENT, SEGMENT as u32, SentKind::FillsGap);
                }
                sent += SEGMENT;
                let before = acknowledgements.back().map_or(start, |(at, _, _)| *at);
                acknowledgements.push_back(((free + delay).max(before), now, sent));
            }
            let Some((at, sent_at, offset)) = acknowledgements.pop_front() else { break };
            now = at;
            cwnd += offset - acknowledged;
            acknowledged = offset;
            series.add_acknowledgement(now, acknowledged, self.window, sent - acknowledged);
            series.add_rtt(now, now - sent_at);
        }
        series
    }

    fn connection(&self) -> Connection {
        let mut evidence = CaptureEvidence {
            sender: "10.0.0.1:40000".into(),
            receiver: "10.0.0.2:5201".into(),
            duration: self.duration,
            ..CaptureEvidence::default()
        };
        evidence.rtt.base = self.rtt;
        evidence.periods = periods(
            &[(0.0, PeriodLimit::StartUp), (0.1, PeriodLimit::Receiver), (0.4, PeriodLimit::Path)],
            self.duration,
        );
        Connection { evidence, series: self.series() }
    }
}

/// Returns periods that begin at these shares of the duration.
fn periods(starts: &[(f64, PeriodLimit)], duration: Duration) -> Vec<Period> {
    let ends = starts.iter().skip(1).map(|(share, _)| *share).chain([1.0]);
    let periods = starts.iter().zip(ends).map(|((start, limit), end)| Period {
        limit: *limit,
        start: duration.mul_f64(*start),
        end: duration.mul_f64(end),
        payload: Bytes(1000),
    });
    periods.collect()
}

/// Returns the pictures and the overview of a connection.
fn all(connection: &Connection, name: &str, range: Option<TimeRange>) -> Vec<Drawing> {
    let album = charts(&connection.plotted(name), range);
    let stems: Vec<&str> = album.pictures().map(|(stem, _)| stem).collect();
    assert_eq!(stems, ["goodput", "time-sequence", "in-flight", "rtt"]);
    let pictures = album.pictures().map(|(_, picture)| picture).chain([album.overview()]);
    let drawings: Vec<_> = pictures.map(|picture| picture.draw(DEFAULT_SIZE)).collect();
    if let Ok(directory) = std::env::var("LFN_TEST_PICTURES") {
        for (number, drawing) in drawings.iter().enumerate() {
            let path = format!("{directory}/trace-{}-{number}", name.chars().take(20).collect::<String>());
            std::fs::write(format!("{path}.svg"), drawing.svg()).unwrap();
            std::fs::write(format!("{path}.png"), drawing.png().unwrap()).unwrap();
        }
    }
    drawings
}

fn texts(drawing: &Drawing) -> Vec<&str> {
    drawing.texts().map(|text| text.text.as_str()).collect()
}

#[test]
fn goodput_picture_has_limits_and_axes_with_units() {
    let drawing = &all(&SHORT.connection(), "goodput", None)[0];
    let texts = texts(drawing);
    for text in [
        "Goodput and its limit over time",
        "10.0.0.1:40000 → 10.0.0.2:5201",
        "goodput, Mb/s",
        "time since the first packet, s",
        "start-up 10 %",
        "receiver 30 %",
        "path 60 %",
        "receiver",
        "path",
    ] {
        assert!(texts.contains(&text), "{text} in {texts:?}");
    }
    assert!(
        drawing
            .svg()
            .contains("Limits by time: start-up 10 %, receiver 30 %, path 60 %. From 0 s to 400 ms: start-up.")
    );
}

#[test]
fn half_of_the_bdp_is_idle_half_of_the_time() {
    // The BDP is 625 kB.
    let range = TimeRange { from: Duration::from_secs(2), to: Duration::from_secs(3) };
    let connection = Model { window: 312_500, ..SHORT }.connection();
    let pictures = all(&connection, "half", Some(range));
    let text = &pictures[0].svg();
    assert!((48..=52).any(|idle| text.contains(&format!("nearly idle {idle} % of the time"))), "{text}");
    let whole = all(&Model { window: 700_000, ..SHORT }.connection(), "whole", Some(range));
    assert!(whole[0].svg().contains("nearly idle 0 % of the time"));
}

#[test]
fn retransmissions_and_filled_gaps_have_own_marks() {
    let connection = Model { loss_interval: 300, ..SHORT }.connection();
    let pictures = all(&connection, "loss", None);
    let texts = texts(&pictures[1]);
    assert!(texts.iter().any(|text| text.starts_with("retransmissions (")), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("fills a gap (")), "{texts:?}");
    assert!(pictures[1].svg().contains("<circle"));
}

#[test]
fn window_far_above_the_data_is_named() {
    let mut connection = SHORT.connection();
    let mut series = Series::new(100);
    let start = Instant::from_nanos(START);
    for n in 0..100 {
        series.add_data(start + Duration::from_millis(n * 40), n * 1000, 1000, SentKind::New);
        series.add_acknowledgement(start + Duration::from_millis(n * 40 + 20), n * 1000, 6_000_000, 1000);
    }
    connection.series = series;
    let pictures = all(&connection, "far", None);
    assert!(texts(&pictures[2]).contains(&"the window is above: up to 6 MB"));
    assert!(texts(&pictures[1]).contains(&"end of the window (in part above)"));
}

#[test]
fn rtt_picture_has_the_base_rtt() {
    let drawing = &all(&SHORT.connection(), "rtt", None)[3];
    assert!(texts(drawing).contains(&"base RTT 50 ms"));
    assert!(drawing.svg().contains("RTT from 50."));
}

#[test]
fn same_data_draws_the_same_pictures() {
    let model = Model { loss_interval: 100, ..SHORT };
    let svgs = || all(&model.connection(), "a", None).iter().map(Drawing::svg).collect::<Vec<_>>();
    assert_eq!(svgs(), svgs());
}

#[test]
fn pictures_of_long_connections_stay_small() {
    let mut many = Model { duration: Duration::from_secs(60), loss_interval: 3, points: 4000, ..SHORT }.connection();
    let limits = goodput::LIMITS.map(|(limit, ..)| limit);
    let starts: Vec<_> = (0..5000).map(|n| (f64::from(n) / 5000.0, limits[n as usize % 5])).collect();
    many.evidence.periods = periods(&starts, many.evidence.duration);
    let far = TimeRange { from: Duration::from_secs(1_000_000), to: Duration::MAX };
    for (range, name) in [(None, "many"), (Some(far), "beyond")] {
        for drawing in all(&many, name, range) {
            let length = drawing.svg().len();
            assert!(length < 700_000, "{length}");
        }
    }
}

#[test]
fn hostile_names_are_escaped_and_shortened() {
    let mut connection = SHORT.connection();
    connection.evidence.sender = format!("<b>{}&", "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535".repeat(20));
    let name = "</svg>\u{1b}[2J\n".repeat(100);
    for drawing in all(&connection, &name, None) {
        let svg = drawing.svg();
        assert!(!svg.contains('\u{1b}'));
        assert_eq!(svg.matches("</svg>").count(), 1);
        assert!(svg.contains('…'));
    }
}

#[test]
fn long_addresses_are_complete() {
    let mut connection = SHORT.connection();
    let end = "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
    (connection.evidence.sender, connection.evidence.receiver) = (end.into(), end.into());
    for drawing in all(&connection, "ipv6", None) {
        assert!(texts(&drawing).contains(&format!("{end} → {end}").as_str()));
    }
}

#[test]
fn empty_series_says_that_nothing_is_shown() {
    let mut connection = SHORT.connection();
    connection.series = Series::new(10);
    connection.evidence.duration = Duration::ZERO;
    connection.evidence.rtt.base = Duration::ZERO;
    connection.evidence.periods.clear();
    let pictures = all(&connection, "empty", None);
    for (drawing, note) in pictures.iter().zip([
        "no acknowledged data in this time",
        "no data in this time",
        "no acknowledgements in this time",
        "no RTT samples in this time",
    ]) {
        assert!(texts(drawing).contains(&note), "{note}");
    }
}

#[test]
fn hostile_figures_draw_bounded_pictures() {
    let mut connection = SHORT.connection();
    let mut series = Series::new(100);
    for n in 0..100_u64 {
        let at = Instant::from_nanos(START + n * 1_000_000);
        series.add_data(at, u64::MAX - n, u32::MAX, SentKind::New);
        series.add_acknowledgement(at, u64::MAX / (n + 1), u64::MAX, u64::MAX);
        series.add_rtt(at, Duration::from_nanos(u64::MAX));
    }
    connection.series = series;
    for drawing in all(&connection, "hostile", None) {
        let length = drawing.svg().len();
        assert!(length < 100_000, "{length}");
    }
}
