//! What holds for every discipline, rate, limit and layer.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_core::link::{Discipline, DropCause, Ecn, Event, LinkConfig, QueueLimit};
use lfn_core::sim::{Arrival, run};
use lfn_core::time::Instant;
use lfn_core::units::Bytes;
use proptest::prelude::*;

use crate::reference::{Integral, cost};
use crate::scenario::{Fate, fates, scenario};
use crate::support::{link, poll_as_told, poll_seldom, singles};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn super_packets_and_single_packets_fare_alike((config, arrivals) in scenario()) {
        let apart = singles(&arrivals);
        let alone = fates(&apart, &run(&mut link(&config), apart.iter().copied()));
        let together = fates(&arrivals, &run(&mut link(&config), arrivals.iter().copied()));
        for (index, (alone, together)) in alone.iter().zip(&together).enumerate() {
            prop_assert_eq!(alone.kind(), together.kind(), "virtual packet {}", index);
            let (Fate::Forwarded { due: own, waited: own_wait, .. }, Fate::Forwarded { due, is_last, waited, .. }) =
                (alone, together) else { continue };
            // Held back to the end of its slice, never let out early.
            prop_assert!(due >= own && (!is_last || due == own), "virtual packet {} due {:?} not {:?}", index, due, own);
            if waited.is_some() {
                prop_assert_eq!(waited, own_wait, "virtual packet {}", index);
            }
        }
    }

    #[test]
    fn what_comes_out_is_what_went_in_each_flow_in_order((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let events = run(&mut link, arrivals.iter().copied());
        fates(&arrivals, &events);
        prop_assert!(events.iter().map(Event::at).is_sorted());
        let is_fair = matches!(config.discipline, Discipline::FqCoDel(_));
        let mut last = BTreeMap::new();
        for event in &events {
            let Event::Forward { packet, .. } = event else { continue };
            let place = (packet.id, packet.first);
            let before = last.insert(if is_fair { packet.flow } else { 0 }, place);
            prop_assert!(before.is_none_or(|before| before < place), "{:?} after {:?}", place, before);
        }
        let stats = link.stats();
        let sent = (stats.forwarded.packets + stats.dropped.total().packets, stats.forwarded.bytes.0 + stats.dropped.total().bytes.0);
        prop_assert_eq!((stats.offered.packets, stats.offered.bytes.0), sent);
        prop_assert_eq!(stats.queued, Bytes(0));
    }

    #[test]
    fn only_what_is_capable_is_marked_and_only_where_that_is_on((config, arrivals) in scenario()) {
        let capable: BTreeMap<u64, Ecn> = arrivals.iter().map(|a| (a.packet.id, a.packet.ecn)).collect();
        let mut aqm_drops = 0;
        for event in run(&mut link(&config), arrivals.iter().copied()) {
            match event {
                Event::Forward { packet, .. } if packet.changes.congestion => {
                    prop_assert!(config.ecn && capable[&packet.id] == Ecn::Capable && packet.ecn == Ecn::Congested);
                }
                Event::Drop { packet, cause: DropCause::Aqm, .. } => {
                    aqm_drops += packet.count;
                    // Above its upper threshold RED drops whatever comes.
                    let is_red = matches!(config.discipline, Discipline::Red(_));
                    prop_assert!(is_red || !config.ecn || capable[&packet.id] == Ecn::NotCapable);
                }
                _ => {}
            }
        }
        prop_assert!(aqm_drops == 0 || config.discipline != Discipline::DropTail);
    }

    #[test]
    fn a_slice_is_no_longer_than_asked_for((config, arrivals) in scenario()) {
        let integral = Integral::new(&config);
        for event in run(&mut link(&config), arrivals.iter().copied()) {
            let Event::Forward { packet, due } = event else { continue };
            if packet.count > 1 {
                // What the line can do in the time of a slice before the end is enough for all of it.
                let began = Instant::from_nanos(due.as_nanos().saturating_sub(config.slice.as_nanos() as u64));
                let work = integral.at(due) - integral.at(began);
                prop_assert!(cost(&config, &packet) <= work, "{packet:?}");
            }
        }
    }

    #[test]
    fn the_queue_stays_within_its_limit((config, arrivals) in scenario()) {
        let mut link = link(&config);
        run(&mut link, arrivals.iter().copied());
        let largest = arrivals.iter().map(|a| cost(&config, &a.packet.clone()) / u128::from(a.packet.count)).max();
        let most = match config.queue {
            QueueLimit::Bytes(limit) => limit,
            QueueLimit::Packets(limit) => Bytes(u64::from(limit.max(1)) * 1584),
        };
        // A packet that finds nothing is always taken.
        prop_assert!(link.stats().queue_peak <= most.max(Bytes(1584)), "{largest:?}");
    }

    #[test]
    fn polling_seldom_changes_nothing((config, arrivals) in scenario(), seldom in 1_usize..10) {
        let expected = run(&mut link(&config), arrivals.iter().copied());
        let events = poll_seldom(&mut link(&config), &arrivals, seldom);
        for (index, (actual, expected)) in fates(&arrivals, &events).iter().zip(fates(&arrivals, &expected)).enumerate() {
            prop_assert_eq!(*actual, expected, "virtual packet {}", index);
        }
    }

    /// Polling when told to moves on, and nothing leaves before that.
    #[test]
    fn next_is_when_something_leaves((config, arrivals) in scenario()) {
        for (told, event) in poll_as_told(&mut link(&config), &arrivals)? {
            // Told in time: nothing is late by the model's own doing.
            prop_assert_eq!(event.at(), told);
        }
    }

    #[test]
    fn the_line_is_busy_while_it_has_something_to_send((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let events = run(&mut link, arrivals.iter().copied());
        let integral = Integral::new(&config);
        let work: u128 = events.iter().map(|event| match event {
            Event::Forward { packet, .. } => cost(&config, packet),
            _ => 0,
        }).sum();
        let busy = link.stats().busy;
        let last = events.iter().rev().find(|event| matches!(event, Event::Forward { .. })).map(Event::at);
        prop_assert!(busy <= last.unwrap_or(Instant::ZERO).saturating_since(Instant::ZERO));
        if config.rate.as_constant().is_some() {
            // Rounded up to a nanosecond where the line was idle before or after.
            let exact = Duration::from_nanos((work / u128::from(integral.rate())) as u64);
            prop_assert!(busy >= exact && busy <= exact + Duration::from_nanos(events.len() as u64 + 1));
        }
    }
}

#[test]
fn what_waited_is_told() {
    // Three packets at once at 12 Mb/s: 1 ms each.
    let config = LinkConfig { rate: lfn_core::units::BitRate(12_000_000).into(), ..LinkConfig::default() };
    let arrivals = (0..3).map(|id| Arrival { at: Instant::ZERO, packet: lfn_core::link::Packet::single(id, 1500) });
    let waited: Vec<_> = run(&mut link(&config), arrivals)
        .into_iter()
        .filter_map(|event| match event {
            Event::Forward { packet, .. } => Some(packet.waited),
            _ => None,
        })
        .collect();
    assert_eq!(waited, [0, 1, 2].map(Duration::from_millis));
}
