//! The line: rates by timetable, the overhead of layers, and drop-tail queues in bytes and in packets.

use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{Discipline, LinkConfig, LinkError, LinkEvent, Packet, QueueLimit, Timetable};
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use super::reference::{DropTail, Expected, Integral, cost, expect};
use super::scenario::{Outcome, outcomes, scenario};
use crate::support::link;

/// Compares the outcomes of the link with the expected ones.
pub fn compare(actual: &[Outcome], expected: &[Expected]) -> Result<(), TestCaseError> {
    prop_assert_eq!(actual.len(), expected.len());
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        match (*actual, *expected) {
            (
                Outcome::Forwarded { marked, due, is_last, waited },
                Expected::Forwarded { marked: is_marked, due: own, waited: own_wait },
            ) => {
                prop_assert_eq!(marked, is_marked, "virtual packet {} marked", index);
                prop_assert!(
                    due >= own && (!is_last || due == own),
                    "virtual packet {}: {:?} not {:?}",
                    index,
                    due,
                    own
                );
                prop_assert!(waited.is_none_or(|waited| waited == own_wait), "virtual packet {} waited", index);
            }
            (Outcome::Dropped { cause, at }, Expected::Dropped { cause: own_cause, at: own }) => {
                prop_assert_eq!((cause, at), (own_cause, own), "virtual packet {}", index);
            }
            _ => prop_assert!(false, "virtual packet {index}: {actual:?} not {expected:?}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn drop_tail_queue_matches_the_reference((config, arrivals) in scenario()) {
        let config = LinkConfig { discipline: Discipline::DropTail, ..config };
        let expected = expect(&config, &arrivals, &mut DropTail::new(&config));
        compare(&outcomes(&arrivals, &run_link(&mut link(&config), arrivals.iter().copied())), &expected)?;
    }

    /// Over any interval, the delivered bits equal the work of the line, within one packet.
    #[test]
    fn delivery_matches_the_integral_of_the_timetable((config, arrivals) in scenario()) {
        // All packets arrive at once, so the line is never idle, and they are sent one by one.
        let queue = QueueLimit::Bytes(Bytes(100_000_000));
        let config = LinkConfig { queue, discipline: Discipline::DropTail, slice: Duration::ZERO, ..config };
        let arrivals: Vec<_> = arrivals.into_iter().map(|arrival| ScriptedArrival { at: Instant::ZERO, ..arrival }).collect();
        let integral = Integral::new(&config);
        let mut sent = 0;
        for event in run_link(&mut link(&config), arrivals) {
            let LinkEvent::Forward { packet, due } = event else { continue };
            sent += cost(&config, &packet);
            // Times are rounded up: the work is done at this time, and not a nanosecond earlier.
            prop_assert!(integral.at(due) >= sent);
            let before = Instant::from_nanos(due.as_nanos() - 1);
            prop_assert!(integral.at(before) < sent);
        }
    }
}

/// Returns the arrival of a single packet.
fn one(id: u64, wire: u32) -> ScriptedArrival {
    ScriptedArrival { at: Instant::ZERO, packet: Packet::single(id, wire) }
}

fn dues(events: &[LinkEvent]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| match event {
            LinkEvent::Forward { due, .. } => Some(due.as_nanos()),
            _ => None,
        })
        .collect()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn packet_is_sent_across_steps() {
    // 12,000 bits: 3 ms at 1 Mb/s carry 3,000 bits, a stall of 2 ms nothing, and 9,000 bits are sent at 12 Mb/s.
    let steps = vec![(ms(0), BitRate(1_000_000)), (ms(3), BitRate(0)), (ms(5), BitRate(12_000_000))];
    let config = LinkConfig { rate: Timetable::new(steps, None).unwrap(), ..LinkConfig::default() };
    assert_eq!(dues(&run_link(&mut link(&config), [one(0, 1500), one(1, 1500)])), [5_750_000, 6_750_000]);
    // The epoch moves the whole timetable. Before the epoch the first step applies.
    let later = LinkConfig { epoch: Instant::from_nanos(1_000_000), ..config };
    assert_eq!(dues(&run_link(&mut link(&later), [one(0, 1500)])), [6_666_667]);
}

#[test]
fn stall_delays_packets_until_it_ends() {
    let steps = vec![(ms(0), BitRate(12_000_000)), (ms(10), BitRate(0)), (ms(20), BitRate(12_000_000))];
    let config = LinkConfig { rate: Timetable::new(steps, Some(ms(30))).unwrap(), ..LinkConfig::default() };
    let arrival = ScriptedArrival { at: Instant::from_nanos(12_000_000), packet: Packet::single(0, 1500) };
    let mut link = link(&config);
    link.push(arrival.packet, arrival.at);
    let events: Vec<_> = run_link(&mut link, []);
    let waited = match events[..] {
        [LinkEvent::Forward { packet, due }] => {
            assert_eq!(due, Instant::from_nanos(21_000_000));
            packet.queue_delay
        }
        _ => panic!("{events:?}"),
    };
    assert_eq!(waited, ms(8));
}

#[test]
fn varying_rate_does_not_drift_in_eight_hours() {
    // 7 ms at 1,000,003 b/s and 11 ms at 999,983 b/s, repeated: 7,000,021 + 10,999,813 = 17,999,834 bit·ms/s per
    // period.
    let steps = vec![(ms(0), BitRate(1_000_003)), (ms(7), BitRate(999_983))];
    let config = LinkConfig {
        rate: Timetable::new(steps, Some(ms(18))).unwrap(),
        queue: Bytes(1 << 32).into(),
        ..LinkConfig::default()
    };
    // 2,400,000 packets of 1,500 bytes: 28.8e9 bits, 1,600,014 periods of 17,999.834 bits and a remainder.
    let packets = 2_400_000_u64;
    let arrivals = (0..packets / 60)
        .map(|id| ScriptedArrival { at: Instant::ZERO, packet: Packet::super_packet(id, 60, 1500, 1500) });
    let events = run_link(&mut link(&config), arrivals);
    let work = u128::from(packets) * 12_000 * 1_000_000_000;
    let round = 17_999_834_u128 * 1_000_000;
    let (rounds, rest) = (work / round, work % round);
    let first = 7_000_000 * 1_000_003;
    let nanos = if rest <= first { rest.div_ceil(1_000_003) } else { 7_000_000 + (rest - first).div_ceil(999_983) };
    let due = rounds * 18_000_000 + nanos;
    assert_eq!(events.last().map(|event| u128::from(event.at().as_nanos())), Some(due));
}

#[test]
fn packet_longer_than_the_timetable_skips_periods() {
    // A timetable of a microsecond and 20 minutes of line time: computed at once, without two billion steps.
    let steps = vec![(Duration::ZERO, BitRate(20)), (Duration::from_nanos(500), BitRate(0))];
    let rate = Timetable::new(steps, Some(Duration::from_nanos(1000))).unwrap();
    let config = LinkConfig { rate, queue: Bytes(10_000).into(), ..LinkConfig::default() };
    // 12,000 bits at 10 b/s on average. The last half nanosecond-period is a stall.
    assert_eq!(dues(&run_link(&mut link(&config), [one(0, 1500)])), [1_200 * 1_000_000_000 - 500]);
}

#[test]
fn each_virtual_packet_has_the_layer_overhead() {
    for (layer, bytes) in [
        (Layer::EthernetHeader, 1514),
        (Layer::Ethernet, 1538),
        (Layer::Ip, 1500),
        // 1,516 bytes with LLC/SNAP and trailer: 32 cells of 48 bytes.
        (Layer::AtmAal5, 1536),
        (Layer::PppHdlc, 1509),
        (Layer::Ppp, 1508),
        (Layer::Hippi, 1544),
    ] {
        let config = LinkConfig { rate: BitRate(8_000_000).into(), layer, ..LinkConfig::default() };
        let arrival = ScriptedArrival { at: Instant::ZERO, packet: Packet::super_packet(0, 40, 1514, 1514) };
        let mut link = link(&config);
        let events = run_link(&mut link, [arrival]);
        // A byte takes a microsecond.
        assert_eq!(dues(&events).last(), Some(&(40 * bytes * 1000)), "{layer}");
        assert_eq!(link.stats().queue_peak, Bytes(40 * bytes), "{layer}");
    }
    // At 135.63 Mb/s of cell payload, an acknowledgement of 40 bytes takes two cells.
    let config = LinkConfig { rate: BitRate(135_631_698).into(), layer: Layer::AtmAal5, ..LinkConfig::default() };
    assert_eq!(dues(&run_link(&mut link(&config), [one(0, 54)])), [(96 * 8_000_000_000_u64).div_ceil(135_631_698)]);
}

#[test]
fn queue_in_packets_ignores_their_length() {
    let config = LinkConfig { queue: QueueLimit::Packets(10), ..LinkConfig::default() };
    for wire in [60, 1514] {
        let mut link = link(&config);
        let events =
            run_link(&mut link, [ScriptedArrival { at: Instant::ZERO, packet: Packet::super_packet(0, 45, wire, 40) }]);
        let stats = link.stats();
        assert_eq!((stats.forwarded.packets, stats.dropped.total().packets), (10, 35), "{events:?}");
    }
}

#[test]
fn line_that_never_sends_again_is_refused() {
    let refused = |steps, period| {
        let rate = Timetable::new(steps, period).unwrap();
        lfn_link::Link::new(&LinkConfig { rate, ..LinkConfig::default() }).err()
    };
    let (go, stop) = (BitRate(1_000_000), BitRate(0));
    assert_eq!(refused(vec![(ms(0), go), (ms(5), stop)], None), Some(LinkError::ZeroRate));
    assert_eq!(refused(vec![(ms(0), stop), (ms(5), stop)], Some(ms(9))), Some(LinkError::ZeroRate));
    assert_eq!(refused(vec![(ms(0), go), (ms(5), stop)], Some(ms(9))), None);
    assert_eq!(refused(vec![(ms(0), stop), (ms(5), go)], None), None);
}
