//! Random segments, and more connections than the limits permit.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_packet::{SackRange, TcpFlags, TcpOptions, TcpSegment, Timestamps};
use lfn_results::diagnose::diagnose;
use lfn_results::evidence::Evidence;
use lfn_results::evidence::capture::CaptureEvidence;
use lfn_trace::{Analysis, AnalysisOptions, CaptureSide, OffsetEstimate, PairMatcher};
use proptest::prelude::*;

use crate::support::{endpoint, sack, segment};

/// A segment, and the step from the time of the segment before in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Step {
    segment: TcpSegment,
    nanos: i64,
}

/// Returns sequence numbers of which many are near each other, near a wrap, or at the edge of the comparison.
fn sequence() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => (0..20_u32).prop_map(|number| number * 1000),
        2 => (0..20_u32).prop_map(|number| (number * 1000).wrapping_sub(10_000)),
        1 => prop::sample::select(vec![0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX]),
        1 => any::<u32>(),
    ]
}

fn flags() -> impl Strategy<Value = TcpFlags> {
    prop_oneof![6 => Just(TcpFlags::ACK), 1 => Just(TcpFlags::SYN), 2 => any::<u16>().prop_map(TcpFlags)]
}

fn payload() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0), 1 => Just(1), 6 => Just(1000), 2 => 0..70_000_u32, 1 => any::<u32>()]
}

fn options() -> impl Strategy<Value = TcpOptions> {
    let ranges = prop::collection::vec((sequence(), sequence()), 0..4);
    let stamps = prop::option::of((sequence(), sequence()));
    let scale = prop::option::of(any::<u8>());
    (ranges, stamps, scale, prop::option::of(any::<u16>()), any::<bool>()).prop_map(
        |(ranges, stamps, window_scale, mss, is_truncated)| {
            let timestamps = stamps.map(|(value, echo)| Timestamps { value, echo });
            let mut options = TcpOptions { mss, window_scale, timestamps, is_truncated, ..TcpOptions::default() };
            let ranges: Vec<_> = ranges.into_iter().map(|(start, end)| SackRange { start, end }).collect();
            sack(&mut options, &ranges);
            options
        },
    )
}

fn nanos() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0..50_000_000_i64,
        2 => -50_000_000..50_000_000_i64,
        2 => 0..5_000_000_000_i64,
        1 => any::<i64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let header = (any::<bool>(), 0..2_u16, prop::option::of(0..8_u16), 0..4_u8, any::<u16>());
    (header, sequence(), sequence(), flags(), payload(), options(), nanos()).prop_map(
        |((is_reverse, port, ip_id, ecn, window), sequence, acknowledgement, flags, payload, options, nanos)| {
            let (mut source, mut destination) = (endpoint(1, 40_000 + port), endpoint(2, 5001));
            if is_reverse {
                std::mem::swap(&mut source, &mut destination);
            }
            let changed =
                TcpSegment { source, destination, ip_id, ecn, window, sequence, acknowledgement, ..segment(flags) };
            Step { segment: TcpSegment { payload, options, ..changed }, nanos }
        },
    )
}

fn assert_sound(evidence: &CaptureEvidence) {
    let mut end = Duration::ZERO;
    for period in &evidence.periods {
        assert_eq!(period.start, end, "{:?}", evidence.periods);
        assert!(period.start <= period.end, "{:?}", evidence.periods);
        end = period.end;
    }
    assert!(end <= evidence.duration, "{end:?} of {:?}", evidence.duration);
    assert!(evidence.active <= evidence.duration, "{:?} of {:?}", evidence.active, evidence.duration);
    let rtt = &evidence.rtt;
    assert!(rtt.base <= rtt.median && rtt.median <= rtt.p80 && rtt.p80 <= rtt.p95 && rtt.p95 <= rtt.max, "{rtt:?}");
    let shares = [
        evidence.loss.share,
        evidence.loss.at_flat_rtt_share,
        evidence.window.full_share,
        evidence.window.binding_share,
        evidence.window.shrunk_share,
        evidence.queue.standing_share,
        evidence.queue.plateau_share,
        evidence.queue.unused_share,
        evidence.application.short_packet_share,
        evidence.application.pushed_share,
        evidence.window.unread_share,
    ];
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    diagnose(&Evidence::of_capture(evidence.clone()));
}

/// Analyzes the segments with these limits, and checks the evidence.
fn assert_sound_analysis(steps: &[Step], start: u64, options: AnalysisOptions) {
    let mut analysis = Analysis::new(options);
    let mut at = start;
    for (number, step) in steps.iter().enumerate() {
        at = at.saturating_add_signed(step.nanos);
        analysis.add(Instant::from_nanos(at), &step.segment);
        if number % 16 == 0 {
            analysis.add_too_big(step.segment.source, step.segment.destination, step.segment.payload);
        }
    }
    let finished = analysis.finish();
    let totals = finished.totals;
    assert_eq!(totals.segments, steps.len() as u64);
    assert_eq!(totals.connections, totals.unlisted + finished.connections.len() as u64);
    for connection in &finished.connections {
        assert_sound(&connection.evidence);
        // Small connections lose their points when there are many.
        let points =
            connection.series.as_ref().map_or(0, |series| series.rtts().len() + series.acknowledgements().len());
        assert!(points <= 2 * options.series_points);
    }
}

/// Returns times of the first segment: at both ends of the range, and now.
fn start() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 1_700_000_000_000_000_000, u64::MAX - 1_000_000_000])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_segments_give_sound_evidence(steps in prop::collection::vec(step(), 1..200), start in start()) {
        let options = AnalysisOptions { series_points: 10, max_open: 4, max_finished: 50, ..AnalysisOptions::default() };
        assert_sound_analysis(&steps, start, options);
    }

    #[test]
    fn random_pairs_of_captures_give_finite_delays(
        steps in prop::collection::vec((step(), any::<bool>()), 1..100),
        start in start(),
    ) {
        let mut estimate = OffsetEstimate::default();
        let mut at = start;
        let mut segments = Vec::new();
        for (step, is_near) in &steps {
            at = at.saturating_add_signed(step.nanos);
            let side = if *is_near { CaptureSide::Near } else { CaptureSide::Far };
            segments.push((side, Instant::from_nanos(at), step.segment));
            if side == CaptureSide::Near && step.segment.window % 2 == 0 {
                segments.push((CaptureSide::Far, Instant::from_nanos(at.saturating_add(5_000_000)), step.segment));
            }
        }
        for (side, at, segment) in &segments {
            estimate.add(*side, *at, segment);
        }
        let mut matcher = PairMatcher::new(estimate.offset().unwrap_or_default());
        for (side, at, segment) in &segments {
            matcher.add(*side, *at, segment);
        }
        let evidence = matcher.finish();
        prop_assert_eq!(evidence.near_packets + evidence.far_packets, segments.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn long_random_connections_give_sound_evidence(steps in prop::collection::vec(step(), 3000), start in start()) {
        // Two connections only, so that the bounded lists overflow.
        let is_kept = |step: &&Step| !step.segment.flags.contains(TcpFlags::SYN);
        let steps: Vec<Step> = steps.iter().filter(is_kept).copied().collect();
        let options = AnalysisOptions { series_points: 50, ..AnalysisOptions::default() };
        assert_sound_analysis(&steps, start, options);
    }
}

#[test]
fn the_result_of_200_000_connections_is_bounded() {
    let options = AnalysisOptions { max_open: 1000, max_finished: 500, ..AnalysisOptions::default() };
    let mut analysis = Analysis::new(options);
    for number in 0..200_000_u32 {
        let mut segment = segment(TcpFlags::ACK);
        segment.source = endpoint((number >> 16) as u8, number as u16);
        segment.payload = 1 + number % 100;
        analysis.add(Instant::from_nanos(u64::from(number) * 1000), &segment);
    }
    let finished = analysis.finish();
    assert_eq!(finished.totals.connections, 200_000);
    assert!((199_000..200_000).contains(&finished.totals.evicted), "{}", finished.totals.evicted);
    assert_eq!((finished.connections.len(), finished.totals.unlisted), (500, 199_500));
    assert!(finished.connections.iter().all(|connection| connection.evidence.payload.0 == 100));
}
