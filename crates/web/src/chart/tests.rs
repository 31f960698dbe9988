use std::time::Duration;

use lfn_mesh::entry::Marks;

use super::axis::{time_ticks, value_ticks};
use super::*;
use crate::view::Sample;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn sample(time: u64, value: f64) -> Sample {
    Sample { time: at(time), value: Some(value), predicted: None, marks: Marks::default() }
}

fn line(samples: Vec<Sample>, max_gap: u64) -> Line {
    Line { samples, max_gap: at(max_gap) }
}

fn render(line: &Line, until: u64) -> String {
    let chart = Chart {
        id: "goodput",
        title: "Goodput of <a>".to_owned(),
        quantity: Quantity::BitsPerSecond,
        since: at(0),
        until: at(until),
        line,
        name: "goodput",
        second: None,
    };
    chart.render().into_string()
}

/// Returns the path of a class of the picture.
fn path<'a>(svg: &'a str, class: &str) -> &'a str {
    let rest = svg.split(&format!("<path class=\"{class}\" d=\"")).nth(1).unwrap_or_else(|| panic!("{class}: {svg}"));
    rest.split('"').next().unwrap()
}

#[test]
fn gap_stays_a_gap() {
    let samples = [0, 10, 20, 60, 70].map(|time| sample(time, 1e6)).to_vec();
    let svg = render(&line(samples, 20), 100);
    assert_eq!(path(&svg, "line").matches('M').count(), 2);
    assert!(svg.contains("1 gap."), "{svg}");
}

#[test]
fn failed_measurement_is_a_cross_and_ends_the_line() {
    let failed = Sample { value: None, ..sample(20, 0.0) };
    let svg = render(&line(vec![sample(0, 1e6), sample(10, 1e6), failed, sample(30, 1e6)], 100), 100);
    assert_eq!(path(&svg, "line").matches('M').count(), 2);
    assert_eq!(path(&svg, "mark failed").matches('M').count(), 1);
}

#[test]
fn marked_samples_are_shapes_outside_of_the_line() {
    let marked = |time, marks| Sample { marks, ..sample(time, 9e9) };
    let own_load = marked(10, Marks { own_load: true, ..Marks::default() });
    let maintenance = marked(20, Marks { maintenance: true, ..Marks::default() });
    let reduced = reduce(&line(vec![sample(0, 1e6), own_load, maintenance, sample(30, 1e6)], 15), at(0), at(100), 100);
    assert_eq!((reduced.max, reduced.segments.len(), reduced.gaps), (1e6, 1, 0));
    let kinds: Vec<_> = reduced.marks.iter().map(|mark| (mark.at, mark.kind)).collect();
    assert_eq!(kinds, [(10, MarkKind::OwnLoad), (20, MarkKind::Maintenance)]);
}

#[test]
fn column_keeps_minimum_median_and_maximum() {
    let samples = [5.0, 1.0, 3.0].iter().enumerate().map(|(place, value)| sample(place as u64, *value)).collect();
    let reduced = reduce(&line(samples, 10), at(0), at(1000), 10);
    let column = &reduced.segments[0][0];
    assert_eq!((column.min, column.median, column.max), (1.0, 3.0, 5.0));
}

#[test]
fn picture_of_90_days_is_at_most_40_kilobytes() {
    let noise = |place: u64| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1 << 24) as f64;
    for interval in [60, 900, 3600] {
        let samples = (0..90 * 86_400 / interval).map(|place| {
            let marks = Marks { own_load: place % 3 == 0, maintenance: place % 7 == 0, ..Marks::default() };
            let predicted = Some(9e8 + 1e8 * noise(place + 1));
            Sample { predicted, marks, ..sample(place * interval, 1e9 * noise(place)) }
        });
        let svg = render(&line(samples.collect(), 2 * interval), 90 * 86_400);
        assert!(svg.len() <= 40_000, "{} bytes at {interval} s", svg.len());
    }
}

#[test]
fn title_is_escaped_and_named_by_the_picture() {
    let svg = render(&line(vec![sample(1, 1e6)], 10), 10);
    assert!(svg.contains("<title id=\"goodput-title\">Goodput of &lt;a&gt;</title>"), "{svg}");
    assert!(svg.contains("aria-labelledby=\"goodput-title goodput-desc\"") && !svg.contains("style="));
    assert!(path(&svg, "line").ends_with("h0"), "a single sample is a dot");
}

#[test]
fn line_without_samples_is_a_sentence() {
    assert_eq!(render(&Line::default(), 10), "<p class=\"none\">No goodput in this time.</p>");
}

#[test]
fn value_labels_are_round_and_include_the_maximum() {
    for (quantity, highest, unit) in [
        (Quantity::BitsPerSecond, 135e6, "Mb/s"),
        (Quantity::BitsPerSecond, 0.0, "b/s"),
        (Quantity::Seconds, 0.0413, "ms"),
        (Quantity::Ratio, 0.0, "%"),
        (Quantity::Ratio, 1.0, "%"),
    ] {
        let ticks = value_ticks(quantity, highest);
        assert!(ticks.max >= highest * 0.999 && ticks.ticks.len() <= 7 && ticks.unit == unit, "{ticks:?}");
    }
    assert_eq!(value_ticks(Quantity::BitsPerSecond, 135e6).ticks, [0.0, 50e6, 100e6, 150e6]);
}

#[test]
fn time_labels_are_full_hours_or_days() {
    let labels =
        |since, until| -> Vec<String> { time_ticks(at(since), at(until)).into_iter().map(|tick| tick.label).collect() };
    assert_eq!(labels(1800, 86_400 + 1800), ["03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00", "01-02"]);
    assert_eq!(labels(0, 7 * 86_400).len(), 8);
    assert!(labels(5, 90 * 86_400).len() <= 9 && labels(0, 400 * 86_400).len() <= 9);
}

proptest::proptest! {
    #[test]
    fn any_samples_make_a_picture(
        values in proptest::collection::vec((0_u64..200, proptest::option::of(proptest::num::f64::ANY)), 0..50),
        gap in 0_u64..50,
    ) {
        let mut samples: Vec<Sample> =
            values.into_iter().map(|(time, value)| Sample { value, ..sample(time, 0.0) }).collect();
        samples.sort_by_key(|sample| sample.time);
        let svg = render(&line(samples, gap), 100);
        proptest::prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
    }
}
