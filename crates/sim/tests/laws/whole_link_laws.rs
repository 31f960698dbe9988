//! Properties of a link with all stages, in one hop and in several hops, for all settings and arrivals.
//!
//! Each stage has its own tests. These tests combine the stages, with settings as text like those of a user.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_link::settings::HopSettings;
use lfn_link::{Discipline, DropCause, EmulatedPath, Link, LinkConfig, LinkEvent, Packet};
use lfn_packet::{Corruption, Ecn};
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use crate::support::{all_outcomes, drain, poll_at_event_times, poll_every, singles};

/// Exit of a virtual packet from the link. A virtual packet has one exit, and one more for each copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exit {
    Dropped(DropCause),
    /// Time, whether it is a copy, whether it is marked, and the random number and kind of its corruption.
    Forwarded(Option<Instant>, bool, bool, Option<(u64, bool)>),
}

/// All exits of every virtual packet.
type Outcomes = Vec<Vec<Exit>>;

/// Strategy for the value of each setting. Most settings can be `none`.
fn settings() -> impl Strategy<Value = HopSettings> {
    let one_of = |values: &'static [&'static str]| prop::sample::select(values);
    let choices: Vec<(&str, &'static [&'static str])> = vec![
        ("rate", &["1mbit", "10mbit", "135mbit", "1gbit"]),
        ("rtt", &["1us", "1ms", "20ms"]),
        ("queue", &["20kB", "200kB", "1bdp", "30p", "10ms"]),
        ("overhead", &["ethernet-header", "ethernet", "ip", "atm-aal5"]),
        ("aqm", &["drop-tail", "codel", "codel:target=1ms:interval=10ms", "fq-codel", "red"]),
        ("loss", &["0", "0", "1%", "20%", "gilbert:loss=5%:burst=4", "nth:7", "burst:1%:3", "at:5ms:4"]),
        ("policer", &["none", "none", "5mbit:40kB", "100mbit:100kB"]),
        ("shaper", &["none", "none", "5mbit:40kB", "100mbit:20kB:60kB"]),
        ("path-mtu", &["none", "none", "none", "1400", "1000:black-hole"]),
        ("outage", &["none", "none", "at:2ms:5ms", "every:20ms:3ms", "flap:up=20ms:down=5ms"]),
        ("jitter", &["none", "none", "1ms", "normal:1ms:corr=50%", "pareto:100us:reorder", "2ms:reorder"]),
        ("reorder", &["none", "none", "2%:3", "30%:10"]),
        ("duplicate", &["0", "0", "1%", "50%"]),
        ("corrupt", &["0", "0", "1%", "40%"]),
        ("corrupt-hidden", &["0", "0", "1%", "40%"]),
    ];
    let values: Vec<_> = choices.iter().map(|(_, values)| one_of(values)).collect();
    (values, any::<bool>()).prop_map(move |(values, ecn)| {
        let mut hop = HopSettings::default();
        for ((key, _), value) in choices.iter().zip(&values).filter(|(_, value)| **value != "none") {
            hop.set(key, value).unwrap();
        }
        // A discipline without early drops cannot mark.
        if !values.contains(&"drop-tail") {
            hop.set("ecn", if ecn { "on" } else { "off" }).unwrap();
        }
        hop
    })
}

fn hops(most: usize) -> impl Strategy<Value = Vec<LinkConfig>> {
    (prop::collection::vec(settings(), 1..=most), any::<u64>()).prop_filter_map(
        "settings that contradict each other",
        |(settings, seed)| {
            let path = EmulatedPath::new(&settings, 1500).ok()?;
            let [forward, _] = path.seeded_hops(0, seed);
            Some(forward)
        },
    )
}

fn single_slices(hops: &[LinkConfig]) -> Vec<LinkConfig> {
    hops.iter().map(|hop| LinkConfig { slice: Duration::ZERO, ..hop.clone() }).collect()
}

/// Strategy for super-packets of a few flows, close together and with gaps.
fn arrivals() -> impl Strategy<Value = Vec<ScriptedArrival>> {
    let ecn = prop_oneof![Just(Ecn::NotCapable), Just(Ecn::Capable), Just(Ecn::Congested)];
    let packet = (prop_oneof![Just(1_u32), 1_u32..45], 60_u32..1514, 0.1..1.0, 0_u32..3, ecn, any::<bool>());
    let gap = prop_oneof![2 => Just(0_u64), 2 => 0_u64..500_000, 1 => 0_u64..20_000_000];
    prop::collection::vec((packet, gap), 1..50).prop_map(|packets| {
        let mut at = Instant::ZERO;
        let mut arrivals = Vec::new();
        for (((count, wire, last, flow, ecn, has_payload), gap), id) in packets.into_iter().zip(0..) {
            let last_wire = ((f64::from(wire) * last) as u32).max(60);
            let wire = wire.max(last_wire);
            at += Duration::from_nanos(gap);
            let packet = Packet { flow, ecn, has_payload, ..Packet::super_packet(id, count, wire, last_wire) };
            arrivals.push(ScriptedArrival { at, packet });
        }
        arrivals
    })
}

fn outcomes(arrivals: &[ScriptedArrival], events: &[LinkEvent], timed: bool) -> Outcomes {
    let mut outcomes = all_outcomes(arrivals, events, |event, _| match *event {
        LinkEvent::Forward { packet, due } => {
            let damage = packet.changes.corruption.map(|Corruption { random: draw, is_hidden: hidden }| (draw, hidden));
            Some(Exit::Forwarded(timed.then_some(due), packet.changes.is_copy, packet.changes.is_marked, damage))
        }
        LinkEvent::Drop { cause, .. } => Some(Exit::Dropped(cause)),
        LinkEvent::Duplicate { .. } => None,
    });
    outcomes.iter_mut().for_each(|exits| exits.sort_unstable());
    outcomes
}

fn outcome(hops: &[LinkConfig], arrivals: &[ScriptedArrival], timed: bool) -> Outcomes {
    let mut link = Link::chain(hops).unwrap();
    let events = run_link(&mut link, arrivals.iter().copied());
    outcomes(arrivals, &events, timed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_packet_and_copy_comes_out_once(hops in hops(3), arrivals in arrivals()) {
        let mut link = Link::chain(&hops).unwrap();
        let events = run_link(&mut link, arrivals.iter().copied());
        let stats = link.stats();
        let offered: u64 = arrivals.iter().map(|arrival| u64::from(arrival.packet.count)).sum();
        prop_assert_eq!(stats.offered.packets, offered);
        let out = stats.forwarded.packets + stats.dropped.total().packets;
        prop_assert_eq!(stats.offered.packets + stats.duplicated.packets, out);
        let out = stats.forwarded.bytes.0 + stats.dropped.total().bytes.0;
        prop_assert_eq!(stats.offered.bytes.0 + stats.duplicated.bytes.0, out);
        prop_assert_eq!(stats.queued.0, 0);
        let outcomes = outcomes(&arrivals, &events, false);
        prop_assert!(outcomes.iter().all(|exits| !exits.is_empty()));
        prop_assert_eq!(outcomes.iter().map(|exits| exits.len() as u64 - 1).sum::<u64>(), stats.duplicated.packets);
    }

    #[test]
    fn packets_leave_in_time_order_after_min_delay(hops in hops(3), arrivals in arrivals()) {
        let came: BTreeMap<u64, Instant> = arrivals.iter().map(|arrival| (arrival.packet.id, arrival.at)).collect();
        let least: Duration = hops.iter().map(LinkConfig::min_delay).sum();
        let mut before = Instant::ZERO;
        for event in run_link(&mut Link::chain(&hops).unwrap(), arrivals.iter().copied()) {
            let LinkEvent::Forward { packet, due } = event else { continue };
            prop_assert!(due >= came[&packet.id] + least, "{packet:?} {due:?}");
            prop_assert!(due >= before);
            before = due;
        }
    }

    /// If every packet is sent alone, super-packets and single packets have equal times, to the nanosecond.
    #[test]
    fn super_packets_equal_their_single_packets(hops in hops(3), arrivals in arrivals()) {
        let hops = single_slices(&hops);
        prop_assert_eq!(outcome(&hops, &arrivals, true), outcome(&hops, &singles(&arrivals), true));
    }

    /// With slices, packets leave together, but the same packets are dropped, copied, marked and corrupted.
    ///
    /// This holds up to the first stage that depends on the times of a slice: a small queue behind a shaper, or packets
    /// that overtake each other by time and are then drawn for in another order.
    #[test]
    fn slices_do_not_change_outcomes(mut hops in hops(1), arrivals in arrivals()) {
        let hop = &mut hops[0];
        hop.jitter.reorder = false;
        hop.reorder.hold = Duration::from_secs(60);
        if hop.shaper.is_some() {
            (hop.queue, hop.discipline) = (Bytes(10_000_000).into(), Discipline::DropTail);
        }
        prop_assert_eq!(outcome(&hops, &arrivals, false), outcome(&hops, &singles(&arrivals), false));
    }

    #[test]
    fn poll_frequency_does_not_change_outcomes(hops in hops(3), arrivals in arrivals(), every in 1_usize..10) {
        let expected = outcome(&hops, &arrivals, true);
        let events = poll_every(&mut Link::chain(&hops).unwrap(), &arrivals, every);
        prop_assert_eq!(outcomes(&arrivals, &events, true), expected);
    }

    #[test]
    fn next_event_time_is_exact(hops in hops(3), arrivals in arrivals()) {
        poll_at_event_times(&mut Link::chain(&hops).unwrap(), &arrivals)?;
    }

    /// Setting the present values again is not a change.
    #[test]
    fn setting_same_values_changes_nothing(hops in hops(2), arrivals in arrivals(), often in 1_usize..10) {
        let hops = single_slices(&hops);
        let expected = outcome(&hops, &arrivals, true);
        let mut link = Link::chain(&hops).unwrap();
        let mut events = Vec::new();
        for (index, ScriptedArrival { at, packet }) in arrivals.iter().enumerate() {
            if index % often == 0 {
                for (hop, config) in hops.iter().enumerate() {
                    link.set(hop, config, *at).unwrap();
                }
            }
            link.push(*packet, *at);
            events.extend(std::iter::from_fn(|| link.poll(*at)));
        }
        events.extend(drain(&mut link));
        prop_assert_eq!(outcomes(&arrivals, &events, true), expected);
    }
}
