//! Properties of every discipline, rate, limit and layer.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_link::{Discipline, DropCause, LinkConfig, LinkEvent, QueueLimit};
use lfn_packet::Ecn;
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use super::reference::{Integral, cost};
use super::scenario::{Outcome, outcomes, scenario};
use crate::support::{link, poll_at_event_times, poll_every, singles};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn super_packets_and_singles_have_equal_outcomes((config, arrivals) in scenario()) {
        let apart = singles(&arrivals);
        let alone = outcomes(&apart, &run_link(&mut link(&config), apart.iter().copied()));
        let together = outcomes(&arrivals, &run_link(&mut link(&config), arrivals.iter().copied()));
        for (index, (alone, together)) in alone.iter().zip(&together).enumerate() {
            prop_assert_eq!(alone.kind(), together.kind(), "virtual packet {}", index);
            let (Outcome::Forwarded { due: own, waited: own_wait, .. }, Outcome::Forwarded { due, is_last, waited, .. }) =
                (alone, together) else { continue };
            // A slice may leave late, but never early.
            prop_assert!(due >= own && (!is_last || due == own), "virtual packet {} due {:?} not {:?}", index, due, own);
            if waited.is_some() {
                prop_assert_eq!(waited, own_wait, "virtual packet {}", index);
            }
        }
    }

    #[test]
    fn each_flow_leaves_in_order((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let events = run_link(&mut link, arrivals.iter().copied());
        outcomes(&arrivals, &events);
        prop_assert!(events.iter().map(LinkEvent::at).is_sorted());
        let is_fair = matches!(config.discipline, Discipline::FqCoDel(_));
        let mut last = BTreeMap::new();
        for event in &events {
            let LinkEvent::Forward { packet, .. } = event else { continue };
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
    fn only_ecn_capable_packets_are_marked_with_ecn_on((config, arrivals) in scenario()) {
        let capable: BTreeMap<u64, Ecn> = arrivals.iter().map(|a| (a.packet.id, a.packet.ecn)).collect();
        let mut aqm_drops = 0;
        for event in run_link(&mut link(&config), arrivals.iter().copied()) {
            match event {
                LinkEvent::Forward { packet, .. } if packet.changes.is_marked => {
                    prop_assert!(config.ecn && capable[&packet.id] == Ecn::Capable && packet.ecn == Ecn::Congested);
                }
                LinkEvent::Drop { packet, cause: DropCause::Aqm, .. } => {
                    aqm_drops += packet.count;
                    // Above its upper threshold, RED drops every packet.
                    let is_red = matches!(config.discipline, Discipline::Red(_));
                    prop_assert!(is_red || !config.ecn || capable[&packet.id] == Ecn::NotCapable);
                }
                _ => {}
            }
        }
        prop_assert!(aqm_drops == 0 || config.discipline != Discipline::DropTail);
    }

    #[test]
    fn slices_respect_the_maximum_time((config, arrivals) in scenario()) {
        let integral = Integral::new(&config);
        for event in run_link(&mut link(&config), arrivals.iter().copied()) {
            let LinkEvent::Forward { packet, due } = event else { continue };
            if packet.count > 1 {
                // The work of the line in the time of a slice before the end suffices for the whole slice.
                let began = Instant::from_nanos(due.as_nanos().saturating_sub(config.slice.as_nanos() as u64));
                let work = integral.at(due) - integral.at(began);
                prop_assert!(cost(&config, &packet) <= work, "{packet:?}");
            }
        }
    }

    #[test]
    fn queue_stays_within_its_limit((config, arrivals) in scenario()) {
        let mut link = link(&config);
        run_link(&mut link, arrivals.iter().copied());
        let largest = arrivals.iter().map(|a| cost(&config, &a.packet.clone()) / u128::from(a.packet.count)).max();
        let most = match config.queue {
            QueueLimit::Bytes(limit) => limit,
            QueueLimit::Packets(limit) => Bytes(u64::from(limit.max(1)) * 1584),
        };
        // A packet that finds an empty queue is always accepted.
        prop_assert!(link.stats().queue_peak <= most.max(Bytes(1584)), "{largest:?}");
    }

    #[test]
    fn poll_frequency_does_not_change_outcomes((config, arrivals) in scenario(), every in 1_usize..10) {
        let expected = run_link(&mut link(&config), arrivals.iter().copied());
        let events = poll_every(&mut link(&config), &arrivals, every);
        for (index, (actual, expected)) in outcomes(&arrivals, &events).iter().zip(outcomes(&arrivals, &expected)).enumerate() {
            prop_assert_eq!(*actual, expected, "virtual packet {}", index);
        }
    }

    /// A poll at the event time moves the link forward, and no packet leaves earlier.
    #[test]
    fn next_event_time_is_exact((config, arrivals) in scenario()) {
        for (polled_at, event) in poll_at_event_times(&mut link(&config), &arrivals)? {
            // The model itself reports no event late.
            prop_assert_eq!(event.at(), polled_at);
        }
    }

    #[test]
    fn line_is_busy_while_packets_wait((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let events = run_link(&mut link, arrivals.iter().copied());
        let integral = Integral::new(&config);
        let work: u128 = events.iter().map(|event| match event {
            LinkEvent::Forward { packet, .. } => cost(&config, packet),
            _ => 0,
        }).sum();
        let busy = link.stats().busy;
        let last = events.iter().rev().find(|event| matches!(event, LinkEvent::Forward { .. })).map(LinkEvent::at);
        prop_assert!(busy <= last.unwrap_or(Instant::ZERO).saturating_since(Instant::ZERO));
        if config.rate.as_constant().is_some() {
            // The time is rounded up to a nanosecond when the line was idle before or after.
            let exact = Duration::from_nanos((work / u128::from(integral.rate())) as u64);
            prop_assert!(busy >= exact && busy <= exact + Duration::from_nanos(events.len() as u64 + 1));
        }
    }
}

#[test]
fn queue_delay_is_reported() {
    // Three packets at once at 12 Mb/s take 1 ms each.
    let config = LinkConfig { rate: lfn_base::units::BitRate(12_000_000).into(), ..LinkConfig::default() };
    let arrivals = (0..3).map(|id| ScriptedArrival { at: Instant::ZERO, packet: lfn_link::Packet::single(id, 1500) });
    let waited: Vec<_> = run_link(&mut link(&config), arrivals)
        .into_iter()
        .filter_map(|event| match event {
            LinkEvent::Forward { packet, .. } => Some(packet.queue_delay),
            _ => None,
        })
        .collect();
    assert_eq!(waited, [0, 1, 2].map(Duration::from_millis));
}
