//! Laws of the modelled transfer, whatever the link: everything arrives, everything is accounted for, and the same
//! settings give the same to the nanosecond.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::slice::from_ref;
use std::time::Duration;

use lfn_core::link::{Direction, LinkConfig, LossModel, Reorder, Varying};
use lfn_core::path::PathProfile;
use lfn_core::sim::tcp::{Ended, MOST_WINDOW, Settings};
use lfn_core::sim::transfer::{Load, Outcome, Report, Transfer, TransferError, grain};
use lfn_core::tcp_model::{Congestion, Flow};
use lfn_core::units::{BitRate, Bytes, Ratio};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Scenario {
    load: Load,
    rtt: Duration,
    forward: LinkConfig,
    back: LinkConfig,
}

impl Scenario {
    fn run(&self) -> Report {
        let mut transfer = Transfer::new(self.load, self.rtt, from_ref(&self.forward), from_ref(&self.back)).unwrap();
        transfer.advance(u64::MAX);
        transfer.report()
    }
}

fn loss(share: f64) -> LossModel {
    LossModel::Independent(Varying::constant(Ratio::new(share).unwrap()))
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let congestion = prop_oneof![Just(Congestion::Reno), Just(Congestion::Cubic), Just(Congestion::Bbr)];
    let path = (100_000_u64..10_000_000_000, 0_u64..600_000, 0.01..3.0, prop_oneof![Just(0.0), 0.0..0.2]);
    let window = prop_oneof![2 => Just(MOST_WINDOW), 1 => (1_u64..1_000_000).prop_map(Bytes)];
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
        let back = LinkConfig { direction: Direction::Return, loss: loss(lossy_back), ..forward.clone() };
        let settings = Settings { congestion, window, ack_every, grain, hystart, ..Settings::default() };
        Scenario { load: Load { size: Bytes(size), streams, settings }, rtt, forward, back }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn everything_arrives_and_is_accounted_for(scenario in scenario()) {
        let report = scenario.run();
        if matches!(report.outcome, Some(Outcome::GaveUp(_))) {
            // Sixteen losses in a row, at a fifth each, do not happen; seven SYNs in a row may.
            prop_assert_eq!(report.outcome, Some(Outcome::GaveUp(Ended::NoAnswer)));
            return Ok(());
        }
        prop_assert_eq!(report.outcome, Some(Outcome::Complete));
        prop_assert_eq!(report.arrived, scenario.load.size);
        let segments = scenario.load.size.0.div_ceil(1448);
        let sent = report.links[0].offered.packets;
        // SYNs go the same way, and may have to be repeated.
        let syns = sent - segments - report.senders.retransmitted;
        prop_assert!((1..=u64::from(scenario.load.streams) * 7).contains(&syns), "{syns}");
        // Nothing arrives faster than the line carries it.
        let wire = (segments * 66 + scenario.load.size.0) * 8;
        let least = Duration::from_secs_f64(wire as f64 / scenario.forward.rate.at(Duration::ZERO).as_f64() * 0.999) + scenario.rtt;
        prop_assert!(report.time >= least, "{:?} {:?}", report.time, least);
        // What is sent again was lost, or may have been for all the sender could know.
        if report.links[1].dropped.total().packets == 0 && report.senders.timeouts == 0 {
            prop_assert!(report.senders.retransmitted <= report.links[0].dropped.total().packets + 3);
        }
    }

    #[test]
    fn the_same_again_is_the_same_to_the_nanosecond(scenario in scenario()) {
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
    let back = LinkConfig { direction: Direction::Return, ..forward.clone() };
    let settings = Settings { congestion, ..Settings::of(&path) };
    Scenario { load: Load { size: Bytes(size), streams: 1, settings }, rtt: path.base_rtt, forward, back }
}

/// Neighbours that travel together arrive together: a coarse grain may change the time a little, not the picture.
#[test]
fn the_grain_changes_little() {
    for congestion in [Congestion::Reno, Congestion::Cubic, Congestion::Bbr] {
        let mut scenario = acts(300_000_000, congestion);
        let mut time = |grain| {
            scenario.load.settings.grain = grain;
            scenario.run().time.as_secs_f64()
        };
        // 1/256 of what is in flight.
        let (fine, coarse) = (time(1), time(23));
        assert!((coarse / fine - 1.0).abs() < 0.01, "{congestion}: {coarse} s, not {fine} s");
    }
}

#[test]
fn a_path_this_machine_cannot_carry_costs_a_million_ranges() {
    // 100 Gb/s × 500 ms: 6.25 GB in flight. One connection's window holds 1.07 GB, so it takes six and more to fill.
    let path = PathProfile::new(BitRate(100_000_000_000), Duration::from_millis(500));
    let size = Bytes(200_000_000_000);
    let flow = Flow { streams: 8, ..Flow::default() };
    let mut scenario = acts(size.0, Congestion::Cubic);
    scenario.rtt = path.base_rtt;
    scenario.load =
        Load { size, streams: 8, settings: Settings { grain: grain(&path, &flow, size), ..Settings::of(&path) } };
    for link in [&mut scenario.forward, &mut scenario.back] {
        (link.rate, link.delay, link.queue) = (path.capacity.into(), (path.base_rtt / 2).into(), path.bdp().into());
    }
    let report = scenario.run();
    assert_eq!(report.outcome, Some(Outcome::Complete));
    assert!(report.steps < 2_000_000, "{}", report.steps);
    let (_, goodput) = report.steady.unwrap();
    assert!(goodput.as_f64() > 0.95 * path.payload_capacity().as_f64(), "{goodput}");
    // Alone it is held by its window.
    scenario.load.streams = 1;
    let (_, alone) = scenario.run().steady.unwrap();
    let window = MOST_WINDOW.0 as f64 * 8.0 / 0.5;
    assert!((alone.as_f64() / window - 1.0).abs() < 0.05, "{alone}");
}

#[test]
fn nobody_answers_on_a_dead_path() {
    let mut scenario = acts(1_000_000, Congestion::Cubic);
    scenario.forward.loss = loss(1.0);
    let report = scenario.run();
    assert_eq!((report.outcome, report.arrived), (Some(Outcome::GaveUp(Ended::NoAnswer)), Bytes(0)));
    // 1 + 2 + 4 + … + 64 s.
    assert_eq!(report.time, Duration::from_secs(127));
}

/// What is merely late is not lost: a sender that took it for lost takes that back.
#[test]
fn reordering_costs_little() {
    let clean = acts(100_000_000, Congestion::Cubic).run();
    let mut scenario = acts(100_000_000, Congestion::Cubic);
    scenario.forward.reorder = "1%:30".parse::<Reorder>().unwrap();
    let reordered = scenario.run();
    assert_eq!(reordered.outcome, Some(Outcome::Complete));
    assert!(reordered.senders.undone > 0, "{reordered:?}");
    assert!(reordered.time < clean.time.mul_f64(1.1), "{:?}, in order {:?}", reordered.time, clean.time);
}

#[test]
fn what_cannot_be_moved_is_refused() {
    let scenario = acts(1, Congestion::Cubic);
    let refused = |load| Transfer::new(load, scenario.rtt, &[], &[]).err();
    assert_eq!(refused(Load { size: Bytes(0), ..scenario.load }), Some(TransferError::Nothing));
    assert_eq!(refused(Load { streams: 0, ..scenario.load }), Some(TransferError::Streams { streams: 0 }));
    assert_eq!(refused(Load { streams: 5000, ..scenario.load }), Some(TransferError::Streams { streams: 5000 }));
}
