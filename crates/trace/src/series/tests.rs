//! Bounds and sums of the points, whatever the order and the number of the segments.

use proptest::prelude::*;

use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

#[test]
fn few_points_keep_their_times_and_ranges() {
    let mut series = Series::new(10);
    series.add_data(at(1), 0, 1000, SentKind::New);
    series.add_data(at(2), 1000, 1000, SentKind::New);
    series.add_data(at(9), 0, 1000, SentKind::Retransmission);
    series.add_data(at(12), 500, 100, SentKind::FillsGap);
    let [first, second] = series.data(SentKind::New) else { panic!("two points") };
    assert_eq!((first.start, first.end), (at(1), at(1)));
    assert_eq!(second.value, SentRange { start: 1000, end: 2000, bytes: 1000, segments: 1 });
    assert_eq!(series.data(SentKind::Retransmission).len(), 1);
    assert_eq!(series.data(SentKind::FillsGap).len(), 1);
}

#[test]
fn merged_rtt_keeps_minimum_mean_and_maximum() {
    let mut series = Series::new(1);
    for (time, rtt) in [(1, 50), (2, 90), (3, 40)] {
        series.add_rtt(at(time), Duration::from_millis(rtt));
    }
    let [point] = series.rtts() else { panic!("one point") };
    assert_eq!((point.start, point.end), (at(1), at(3)));
    let millis = [point.value.min, point.value.mean(), point.value.max].map(|rtt| rtt.as_millis());
    assert_eq!(millis, [40, 60, 90]);
}

#[test]
fn merged_acknowledgements_keep_the_last_values() {
    let mut series = Series::new(1);
    series.add_data(at(0), 0, 9000, SentKind::New);
    series.add_acknowledgement(at(1), 3000, 8000, 6000);
    series.add_acknowledgement(at(2), 9000, 0, 0);
    series.add_acknowledgement(at(3), 9000, 500, 100);
    let [point] = series.acknowledgements() else { panic!("one point") };
    assert_eq!((point.value.offset, point.value.acknowledged, point.value.window_end), (9000, 9000, 11_000));
    assert_eq!(point.value.window, Extent { min: 0, max: 8000, last: 500 });
    assert_eq!(point.value.in_flight, Extent { min: 0, max: 6000, last: 100 });
}

#[test]
fn data_before_the_capture_is_not_acknowledged_data() {
    let mut series = Series::new(10);
    series.add_data(at(0), 5_000_000, 1000, SentKind::New);
    series.add_acknowledgement(at(1), 4_000_000, 8000, 6000);
    series.add_acknowledgement(at(2), 5_001_000, 8000, 6000);
    let bytes: Vec<u64> = series.acknowledgements().iter().map(|point| point.value.acknowledged).collect();
    assert_eq!(bytes, [0, 1000]);
}

#[test]
fn limited_series_keeps_all_points_of_its_time() {
    let mut series = Series::new(10).limited_to(at(5000), at(5009));
    for millis in 0..10_000 {
        series.add_acknowledgement(at(millis), 1000 * millis, 64_000, 1000);
        series.add_rtt(at(millis), Duration::from_millis(20));
        series.add_data(at(millis), 1000 * millis, 1000, SentKind::New);
    }
    for count in [series.acknowledgements().len(), series.rtts().len(), series.data(SentKind::New).len()] {
        assert_eq!(count, 10);
    }
    assert!(series.acknowledgements().iter().all(|point| point.value.acknowledged == 1000));
}

#[test]
fn series_without_capacity_keeps_nothing() {
    let mut series = Series::new(0);
    series.add_rtt(at(1), Duration::from_millis(20));
    series.add_data(at(1), 0, 1000, SentKind::New);
    assert!(series.rtts().is_empty() && series.data(SentKind::New).is_empty());
}

#[test]
fn points_remain_dense_after_many_merges() {
    let mut series = Series::new(1000);
    for micros in 0..300_000 {
        series.add_rtt(Instant::from_nanos(micros * 10_000), Duration::from_millis(20));
    }
    let count = series.rtts().len();
    assert!((300..=1000).contains(&count), "{count}");
}

proptest! {
    #[test]
    fn sums_and_bounds_hold_for_any_segments(
        capacity in 1_usize..50,
        segments in prop::collection::vec((0_u64..u64::MAX, 0_u64..1 << 40, 0_u32..70_000), 1..400),
    ) {
        let mut series = Series::new(capacity);
        for (nanos, offset, length) in &segments {
            let time = Instant::from_nanos(*nanos);
            series.add_data(time, *offset, *length, SentKind::New);
            series.add_acknowledgement(time, *offset, u64::from(*length), *nanos >> 40);
            series.add_rtt(time, Duration::from_nanos(*nanos >> 20));
        }
        let data = series.data(SentKind::New);
        prop_assert!(data.len() <= capacity && series.rtts().len() <= capacity);
        prop_assert!(series.acknowledgements().len() <= capacity);
        prop_assert_eq!(
            data.iter().map(|point| point.value.bytes).sum::<u64>(),
            segments.iter().map(|(_, _, length)| u64::from(*length)).sum::<u64>()
        );
        prop_assert_eq!(data.iter().map(|point| point.value.segments).sum::<u64>(), segments.len() as u64);
        let highest = segments.iter().map(|(_, offset, _)| *offset).max().unwrap_or(0);
        let acknowledged: u64 = series.acknowledgements().iter().map(|point| point.value.acknowledged).sum();
        prop_assert_eq!(acknowledged, highest - segments[0].1);
        prop_assert!(data.iter().all(|point| point.start <= point.end && point.value.start <= point.value.end));
        prop_assert!(data.windows(2).all(|pair| pair[0].end < pair[1].start));
        prop_assert_eq!(series.rtts().iter().map(|point| point.value.count as usize).sum::<usize>(), segments.len());
        prop_assert!(series.rtts().iter().all(|p| p.value.min <= p.value.mean() && p.value.mean() <= p.value.max));
    }

    #[test]
    fn last_values_are_those_of_the_last_segment(capacity in 1_usize..20, values in prop::collection::vec(0_u64..1 << 50, 1..300)) {
        let mut series = Series::new(capacity);
        for (millis, value) in (0..).zip(&values) {
            series.add_acknowledgement(at(millis), 0, *value, *value / 2);
        }
        let last = series.acknowledgements().last().unwrap().value;
        prop_assert_eq!(last.window.last, *values.last().unwrap());
        prop_assert_eq!(last.in_flight.last, *values.last().unwrap() / 2);
    }
}
