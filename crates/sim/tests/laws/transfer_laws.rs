//! Properties of the simulated transfer over any link: all data arrives and is counted, and the same settings give the
//! same result to the nanosecond.

use std::slice::from_ref;
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::plan::MAX_WINDOW;
use lfn_base::tcp_model::{Congestion, FlowParameters};
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{LinkConfig, LinkDirection, LossModel, Reorder, Timetable};
use lfn_sim::tcp::{SendFailure, TcpSettings};
use lfn_sim::transfer::{
    Transfer, TransferError, TransferLoad, TransferOutcome, TransferReport, choose_range_segments,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Scenario {
    load: TransferLoad,
    rtt: Duration,
    forward: LinkConfig,
    back: LinkConfig,
}

impl Scenario {
    fn run(&self) -> TransferReport {
        let mut transfer = Transfer::new(self.load, self.rtt, from_ref(&self.forward), from_ref(&self.back)).unwrap();
        transfer.advance(u64::MAX);
        transfer.report()
    }
}

fn loss(share: f64) -> LossModel {
    LossModel::Independent(Timetable::constant(Ratio::new(share).unwrap()))
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let congestion = prop_oneof![Just(Congestion::Reno), Just(Congestion::Cubic), Just(Congestion::Bbr)];
    let path = (100_000_u64..10_000_000_000, 0_u64..600_000, 0.01..3.0, prop_oneof![Just(0.0), 0.0..0.2]);
    let window = prop_oneof![2 => Just(MAX_WINDOW), 1 => (1_u64..1_000_000).prop_map(Bytes)];
    let tcp = (congestion, window, 1_u32..5, 1_u32..30, any::<bool>());
    let rest = (1_u64..3_000_000, 1_u32..4, any::<u64>(), prop_oneof![Just(0.0), 0.0..0.2]);
    (path, tcp, rest).prop_map(|((rate, rtt, queue, lossy), (congestion, window, ack_every, grain, hystart), rest)| {
        let (size, streams, seed, lossy_back) = rest;
        let (rate, rtt) = (BitRate(rate), Duration::from_micros(rtt));
        let queue = Bytes((rate.times(rtt).0 as f64 * queue) as u64 + 15_140);
        let delay = (rtt / 2).into();
        let forward = LinkConfig {
            rate: rate.into(),
            delay,
            queue: queue.into(),
            loss: loss(lossy),
            seed,
            ..LinkConfig::default()
        };
        let back = LinkConfig { direction: LinkDirection::Return, loss: loss(lossy_back), ..forward.clone() };
        let settings =
            TcpSettings { congestion, window, ack_every, range_segments: grain, hystart, ..TcpSettings::default() };
        Scenario { load: TransferLoad { size: Bytes(size), streams, settings }, rtt, forward, back }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_data_arrives_and_is_counted(scenario in scenario()) {
        let report = scenario.run();
        if matches!(report.outcome, Some(TransferOutcome::GaveUp(_))) {
            // Sixteen successive losses at 20 % each do not happen here; seven lost SYNs may.
            prop_assert_eq!(report.outcome, Some(TransferOutcome::GaveUp(SendFailure::NoAnswer)));
            return Ok(());
        }
        prop_assert_eq!(report.outcome, Some(TransferOutcome::Complete));
        prop_assert_eq!(report.arrived, scenario.load.size);
        let segments = scenario.load.size.0.div_ceil(1448);
        let sent = report.links[0].offered.packets;
        // SYNs use the same direction, and may be repeated.
        let syns = sent - segments - report.senders.retransmitted;
        prop_assert!((1..=u64::from(scenario.load.streams) * 7).contains(&syns), "{syns}");
        // No transfer is faster than the line.
        let wire = (segments * 66 + scenario.load.size.0) * 8;
        let least = Duration::from_secs_f64(wire as f64 / scenario.forward.rate.value_at(Duration::ZERO).as_f64() * 0.999) + scenario.rtt;
        prop_assert!(report.time >= least, "{:?} {:?}", report.time, least);
        // Retransmitted data was lost, or may have been lost as far as the sender could know.
        if report.links[1].dropped.total().packets == 0 && report.senders.timeouts == 0 {
            prop_assert!(report.senders.retransmitted <= report.links[0].dropped.total().packets + 3);
        }
    }

    #[test]
    fn results_are_reproducible(scenario in scenario()) {
        prop_assert_eq!(scenario.run(), scenario.run());
    }
}

fn acts(size: u64, congestion: Congestion) -> Scenario {
    let path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
    let forward = LinkConfig {
        rate: path.capacity.into(),
        delay: (path.base_rtt / 2).into(),
        queue: path.bdp().into(),
        ..LinkConfig::default()
    };
    let back = LinkConfig { direction: LinkDirection::Return, ..forward.clone() };
    let settings = TcpSettings { congestion, ..TcpSettings::for_path(&path) };
    Scenario { load: TransferLoad { size: Bytes(size), streams: 1, settings }, rtt: path.base_rtt, forward, back }
}

/// Neighbouring segments that travel in one range arrive together. Coarse ranges may change the time slightly, but not
/// the result.
#[test]
fn range_size_changes_little() {
    for congestion in [Congestion::Reno, Congestion::Cubic, Congestion::Bbr] {
        let mut scenario = acts(300_000_000, congestion);
        let mut time = |grain| {
            scenario.load.settings.range_segments = grain;
            scenario.run().time.as_secs_f64()
        };
        // 1/256 of the bytes in flight.
        let (fine, coarse) = (time(1), time(23));
        assert!((coarse / fine - 1.0).abs() < 0.01, "{congestion}: {coarse} s, not {fine} s");
    }
}

#[test]
fn fast_long_path_needs_few_steps() {
    // 100 Gb/s × 500 ms: 6.25 GB in flight. The window of one connection holds 1.07 GB, so filling the path needs at
    // least six.
    let path = PathProfile::new(BitRate(100_000_000_000), Duration::from_millis(500));
    let size = Bytes(200_000_000_000);
    let flow = FlowParameters { streams: 8, ..FlowParameters::default() };
    let mut scenario = acts(size.0, Congestion::Cubic);
    scenario.rtt = path.base_rtt;
    scenario.load = TransferLoad {
        size,
        streams: 8,
        settings: TcpSettings {
            range_segments: choose_range_segments(&path, &flow, size),
            ..TcpSettings::for_path(&path)
        },
    };
    for link in [&mut scenario.forward, &mut scenario.back] {
        (link.rate, link.delay, link.queue) = (path.capacity.into(), (path.base_rtt / 2).into(), path.bdp().into());
    }
    let report = scenario.run();
    assert_eq!(report.outcome, Some(TransferOutcome::Complete));
    assert!(report.steps < 2_000_000, "{}", report.steps);
    let (_, goodput) = report.steady.unwrap();
    assert!(goodput.as_f64() > 0.95 * path.payload_capacity().as_f64(), "{goodput}");
    // A single stream is limited by its window.
    scenario.load.streams = 1;
    let (_, alone) = scenario.run().steady.unwrap();
    let window = MAX_WINDOW.0 as f64 * 8.0 / 0.5;
    assert!((alone.as_f64() / window - 1.0).abs() < 0.05, "{alone}");
}

#[test]
fn dead_path_times_out() {
    let mut scenario = acts(1_000_000, Congestion::Cubic);
    scenario.forward.loss = loss(1.0);
    let report = scenario.run();
    assert_eq!((report.outcome, report.arrived), (Some(TransferOutcome::GaveUp(SendFailure::NoAnswer)), Bytes(0)));
    // 1 + 2 + 4 + … + 64 s.
    assert_eq!(report.time, Duration::from_secs(127));
}

/// Late data is not lost: a sender that assumed a loss undoes its reduction.
#[test]
fn reordering_costs_little() {
    let clean = acts(100_000_000, Congestion::Cubic).run();
    let mut scenario = acts(100_000_000, Congestion::Cubic);
    scenario.forward.reorder = "1%:30".parse::<Reorder>().unwrap();
    let reordered = scenario.run();
    assert_eq!(reordered.outcome, Some(TransferOutcome::Complete));
    assert!(reordered.senders.undone_reductions > 0, "{reordered:?}");
    assert!(reordered.time < clean.time.mul_f64(1.1), "{:?}, in order {:?}", reordered.time, clean.time);
}

#[test]
fn invalid_loads_are_rejected() {
    let scenario = acts(1, Congestion::Cubic);
    let refused = |load| Transfer::new(load, scenario.rtt, &[], &[]).err();
    assert_eq!(refused(TransferLoad { size: Bytes(0), ..scenario.load }), Some(TransferError::Nothing));
    assert_eq!(refused(TransferLoad { streams: 0, ..scenario.load }), Some(TransferError::Streams { streams: 0 }));
    assert_eq!(
        refused(TransferLoad { streams: 5000, ..scenario.load }),
        Some(TransferError::Streams { streams: 5000 })
    );
}
