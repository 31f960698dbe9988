//! FQ-CoDel against the text of its RFC, and its effect on sharing.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{CoDel, Discipline, DropCause, FqCoDel, LinkConfig, LinkEvent, Packet};
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use super::line::compare;
use super::reference::{FqCodel, expect};
use super::scenario::{outcomes, scenario};
use crate::support::link;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn matches_the_rfc_reference(
        (config, arrivals) in scenario(),
        target in 1_u32..100,
        times in 1.5..20.0,
        flows in 1_u32..20,
        quantum in 256_u64..6000,
    ) {
        let target = config.rate.values().max().unwrap().time_for(Bytes(1500)) * target;
        let codel = CoDel { target, interval: target.mul_f64(times) + Duration::from_nanos(1) };
        let discipline = Discipline::FqCoDel(FqCoDel { codel, flows, quantum: Bytes(quantum) });
        let config = LinkConfig { discipline, ..config };
        let expected = expect(&config, &arrivals, &mut FqCodel::new(&config));
        compare(&outcomes(&arrivals, &run_link(&mut link(&config), arrivals.iter().copied())), &expected)?;
    }

    /// While both flows have packets, the difference of their shares is at most a quantum and a packet.
    #[test]
    fn two_backlogged_flows_share_within_a_quantum(
        sizes in prop::array::uniform2(64_u32..1515),
        counts in prop::array::uniform2(1_u32..64),
        quantum in 256_u64..20_000,
    ) {
        let mut id = 0;
        let mut arrivals = Vec::new();
        for _ in 0..20 {
            for flow in 0..2 {
                let packet = Packet::super_packet(id, counts[flow], sizes[flow], sizes[flow]);
                arrivals.push(ScriptedArrival { at: Instant::ZERO, packet: Packet { flow: flow as u32, ..packet } });
                id += 1;
            }
        }
        let total = |flow: usize| 20 * u64::from(counts[flow]) * u64::from(sizes[flow]);
        let mut sent = [0_u64; 2];
        for event in run_link(&mut link(&fair(quantum)), arrivals) {
            let LinkEvent::Forward { packet, .. } = event else { continue };
            let flow = packet.flow as usize;
            sent[flow] += packet.bytes();
            if sent[0] == total(0) || sent[1] == total(1) {
                break;
            }
            let ahead = sent[0].abs_diff(sent[1]);
            // The first packet finds an idle line and takes no turn.
            prop_assert!(ahead <= quantum + 2 * 1514, "{sent:?}");
        }
    }

    /// A flow with occasional packets waits for the packet on the line, and not for the queue of another flow.
    #[test]
    fn sparse_flow_is_not_delayed_by_backlogged_flow(quantum in 1514_u64..20_000, every in 3_u64..50) {
        let quantum_time = Duration::from_nanos(quantum * 8_000_000_000 / 12_000_000);
        let mut arrivals: Vec<_> = (0..200)
            .map(|id| ScriptedArrival { at: Instant::ZERO, packet: Packet { flow: 1, ..Packet::super_packet(id, 10, 1500, 1500) } })
            .collect();
        for id in 200..220 {
            let at = Instant::from_nanos((id - 199) * every * 1_000_000 + 1);
            arrivals.push(ScriptedArrival { at, packet: Packet { flow: 2, ..Packet::single(id, 200) } });
        }
        for event in run_link(&mut link(&fair(quantum)), arrivals) {
            if let LinkEvent::Forward { packet: Packet { flow: 2, queue_delay, .. }, .. } = event {
                // At most the packet on the line, which takes a millisecond, or a quantum if the flow is new too often.
                prop_assert!(queue_delay <= Duration::from_millis(1).max(quantum_time), "{queue_delay:?}");
            }
        }
    }
}

/// Returns a link of 12 Mb/s on which CoDel never drops.
fn fair(quantum: u64) -> LinkConfig {
    let codel = CoDel { target: Duration::from_secs(1000), interval: Duration::from_secs(2000) };
    LinkConfig {
        rate: BitRate(12_000_000).into(),
        queue: Bytes(100_000_000).into(),
        discipline: Discipline::FqCoDel(FqCoDel { codel, flows: 1024, quantum: Bytes(quantum) }),
        ..LinkConfig::default()
    }
}

#[test]
fn full_queue_drops_from_front_of_fattest_flow() {
    let config = LinkConfig { queue: Bytes(150_000).into(), ..fair(1514) };
    let fat = (0..10).map(|id| (id, 1, 10));
    let thin = (10..20).map(|id| (id, 2, 1));
    let arrivals = fat.chain(thin).map(|(id, flow, count)| ScriptedArrival {
        at: Instant::ZERO,
        packet: Packet { flow, ..Packet::super_packet(id, count, 1500, 1500) },
    });
    let mut dropped = BTreeMap::new();
    for event in run_link(&mut link(&config), arrivals) {
        if let LinkEvent::Drop { packet, cause, .. } = event {
            assert_eq!((packet.flow, cause), (1, DropCause::Queue));
            dropped.insert((packet.id, packet.first), packet.count);
        }
    }
    // The first packet is on the line. The ten packets after it make room for the thin flow.
    assert_eq!(dropped.keys().copied().collect::<Vec<_>>()[..2], [(0, 1), (0, 2)]);
    assert_eq!(dropped.values().sum::<u32>(), 10);
}

#[test]
fn single_flow_keeps_its_super_packets() {
    let config = LinkConfig { rate: BitRate(10_000_000_000).into(), ..fair(1514) };
    let packet = |id, flow| ScriptedArrival {
        at: Instant::ZERO,
        packet: Packet { flow, ..Packet::super_packet(id, 45, 1514, 1514) },
    };
    let largest = |arrivals: Vec<ScriptedArrival>| {
        let events = run_link(&mut link(&config), arrivals);
        events
            .iter()
            .filter_map(|event| match event {
                LinkEvent::Forward { packet, .. } => Some(packet.count),
                _ => None,
            })
            .max()
    };
    assert_eq!(largest((0..10).map(|id| packet(id, 1)).collect()), Some(45));
}

#[test]
fn full_queue_keeps_ranges_together() {
    let queue = Bytes(100 * 1514).into();
    let config = LinkConfig { rate: BitRate(10_000_000_000).into(), queue, ..fair(1514) };
    let arrivals =
        (0..10).map(|id| ScriptedArrival { at: Instant::ZERO, packet: Packet::super_packet(id, 45, 1514, 1514) });
    let events = run_link(&mut link(&config), arrivals);
    let dropped = events.iter().filter(|event| matches!(event, LinkEvent::Drop { .. })).count();
    // 350 of 450 virtual packets are dropped: two or three pieces of each super-packet.
    assert!(dropped <= 20 && events.len() - dropped <= 10, "{dropped} drops, {} events", events.len());
}
