//! Laws of a whole link with every stage at work, in one hop and in several: whatever the settings and the arrivals.
//!
//! Each stage's own laws are tried beside it; here they meet. Settings are given as text, as a user gives them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_core::link::settings::HopSettings;
use lfn_core::link::{Damage, Discipline, DropCause, Ecn, EmulatedPath, Event, Link, LinkConfig, Packet};
use lfn_core::sim::{Arrival, run};
use lfn_core::time::Instant;
use lfn_core::units::Bytes;
use proptest::prelude::*;
use support::{all_fates, poll_as_told, poll_seldom, rest, singles};

/// One way out of the link. A virtual packet has one, and one more for each copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exit {
    Dropped(DropCause),
    /// When, whether it is a copy, marked, and damaged by which draw.
    Forwarded(Option<Instant>, bool, bool, Option<(u64, bool)>),
}

/// The ways out of every virtual packet.
type Fates = Vec<Vec<Exit>>;

/// Values of each setting; none is one of them for most.
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
        // Whoever never drops early cannot mark.
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
            let [forward, _] = path.numbered(0, seed);
            Some(forward)
        },
    )
}

fn single_slices(hops: &[LinkConfig]) -> Vec<LinkConfig> {
    hops.iter().map(|hop| LinkConfig { slice: Duration::ZERO, ..hop.clone() }).collect()
}

/// Super-packets of a few flows, close together and with gaps.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
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
            let packet = Packet { flow, ecn, has_payload, ..Packet::several(id, count, wire, last_wire) };
            arrivals.push(Arrival { at, packet });
        }
        arrivals
    })
}

fn fates(arrivals: &[Arrival], events: &[Event], timed: bool) -> Fates {
    let mut fates = all_fates(arrivals, events, |event, _| match *event {
        Event::Forward { packet, due } => {
            let damage = packet.changes.damage.map(|Damage { draw, hidden }| (draw, hidden));
            Some(Exit::Forwarded(timed.then_some(due), packet.changes.is_copy, packet.changes.congestion, damage))
        }
        Event::Drop { cause, .. } => Some(Exit::Dropped(cause)),
        Event::Duplicate { .. } => None,
    });
    fates.iter_mut().for_each(|exits| exits.sort_unstable());
    fates
}

fn outcome(hops: &[LinkConfig], arrivals: &[Arrival], timed: bool) -> Fates {
    let mut link = Link::chain(hops).unwrap();
    let events = run(&mut link, arrivals.iter().copied());
    fates(arrivals, &events, timed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_packet_comes_out_once_and_every_copy_too(hops in hops(3), arrivals in arrivals()) {
        let mut link = Link::chain(&hops).unwrap();
        let events = run(&mut link, arrivals.iter().copied());
        let stats = link.stats();
        let offered: u64 = arrivals.iter().map(|arrival| u64::from(arrival.packet.count)).sum();
        prop_assert_eq!(stats.offered.packets, offered);
        let out = stats.forwarded.packets + stats.dropped.total().packets;
        prop_assert_eq!(stats.offered.packets + stats.duplicated.packets, out);
        let out = stats.forwarded.bytes.0 + stats.dropped.total().bytes.0;
        prop_assert_eq!(stats.offered.bytes.0 + stats.duplicated.bytes.0, out);
        prop_assert_eq!(stats.queued.0, 0);
        let fates = fates(&arrivals, &events, false);
        prop_assert!(fates.iter().all(|exits| !exits.is_empty()));
        prop_assert_eq!(fates.iter().map(|exits| exits.len() as u64 - 1).sum::<u64>(), stats.duplicated.packets);
    }

    #[test]
    fn nothing_leaves_before_it_came_or_out_of_order_of_time(hops in hops(3), arrivals in arrivals()) {
        let came: BTreeMap<u64, Instant> = arrivals.iter().map(|arrival| (arrival.packet.id, arrival.at)).collect();
        let least: Duration = hops.iter().map(LinkConfig::least_delay).sum();
        let mut before = Instant::ZERO;
        for event in run(&mut Link::chain(&hops).unwrap(), arrivals.iter().copied()) {
            let Event::Forward { packet, due } = event else { continue };
            prop_assert!(due >= came[&packet.id] + least, "{packet:?} {due:?}");
            prop_assert!(due >= before);
            before = due;
        }
    }

    /// Where every packet is sent alone, it makes no difference at all whether it came alone: not to the nanosecond.
    #[test]
    fn super_packets_are_their_packets(hops in hops(3), arrivals in arrivals()) {
        let hops = single_slices(&hops);
        prop_assert_eq!(outcome(&hops, &arrivals, true), outcome(&hops, &singles(&arrivals), true));
    }

    /// Where they are sent in slices they leave together, but the same ones are dropped, copied, marked and damaged.
    ///
    /// That holds up to the first stage that goes by when packets leave a slice: a queue with too little room behind a
    /// shaper, and packets that overtake each other by time and are then drawn for in another order.
    #[test]
    fn slices_change_no_fate(mut hops in hops(1), arrivals in arrivals()) {
        let hop = &mut hops[0];
        hop.jitter.reorder = false;
        hop.reorder.hold = Duration::from_secs(60);
        if hop.shaper.is_some() {
            (hop.queue, hop.discipline) = (Bytes(10_000_000).into(), Discipline::DropTail);
        }
        prop_assert_eq!(outcome(&hops, &arrivals, false), outcome(&hops, &singles(&arrivals), false));
    }

    #[test]
    fn polling_seldom_changes_nothing(hops in hops(3), arrivals in arrivals(), seldom in 1_usize..10) {
        let expected = outcome(&hops, &arrivals, true);
        let events = poll_seldom(&mut Link::chain(&hops).unwrap(), &arrivals, seldom);
        prop_assert_eq!(fates(&arrivals, &events, true), expected);
    }

    #[test]
    fn next_is_when_something_leaves(hops in hops(3), arrivals in arrivals()) {
        poll_as_told(&mut Link::chain(&hops).unwrap(), &arrivals)?;
    }

    /// Setting what is set already is no change.
    #[test]
    fn setting_the_same_changes_nothing(hops in hops(2), arrivals in arrivals(), often in 1_usize..10) {
        let hops = single_slices(&hops);
        let expected = outcome(&hops, &arrivals, true);
        let mut link = Link::chain(&hops).unwrap();
        let mut events = Vec::new();
        for (index, Arrival { at, packet }) in arrivals.iter().enumerate() {
            if index % often == 0 {
                for (hop, config) in hops.iter().enumerate() {
                    link.set(hop, config, *at).unwrap();
                }
            }
            link.push(*packet, *at);
            events.extend(std::iter::from_fn(|| link.poll(*at)));
        }
        events.extend(rest(&mut link));
        prop_assert_eq!(fates(&arrivals, &events, true), expected);
    }
}
