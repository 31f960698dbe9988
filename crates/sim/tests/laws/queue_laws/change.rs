//! Changes of settings while packets are queued and on the line.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{Discipline, DropCause, Link, LinkConfig, LinkEvent, Packet, Timetable};
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use super::scenario::{outcomes, scenario, settings};
use crate::support::{END, link, singles};

/// Strategy for arrivals, and for changes of the settings between them.
fn changes() -> impl Strategy<Value = (LinkConfig, Vec<ScriptedArrival>, Vec<(usize, LinkConfig)>)> {
    (scenario(), prop::collection::vec((any::<prop::sample::Index>(), settings()), 0..6)).prop_map(
        |((config, arrivals), changes)| {
            let mut changes: Vec<_> =
                changes.into_iter().map(|(index, config)| (index.index(arrivals.len()), config)).collect();
            changes.sort_by_key(|(index, _)| *index);
            (config, arrivals, changes)
        },
    )
}

/// Pushes the arrivals. Each change comes just before the arrival of its index.
fn run_changing(link: &mut Link, arrivals: &[ScriptedArrival], changes: &[(usize, LinkConfig)]) -> Vec<LinkEvent> {
    let mut events = Vec::new();
    let mut changes = changes.iter().peekable();
    for (index, ScriptedArrival { at, packet }) in arrivals.iter().enumerate() {
        while let Some(next) = link.next_event_at().filter(|next| next <= at) {
            events.extend(std::iter::from_fn(|| link.poll(next)));
        }
        while let Some((_, config)) = changes.next_if(|(before, _)| *before == index) {
            link.set(0, config, *at).unwrap();
        }
        link.push(*packet, *at);
    }
    while let Some(next) = link.next_event_at() {
        events.extend(std::iter::from_fn(|| link.poll(next)));
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_packet_comes_out_once_across_changes((config, arrivals, changes) in changes()) {
        let mut link = link(&config);
        let events = run_changing(&mut link, &arrivals, &changes);
        outcomes(&arrivals, &events);
        prop_assert_eq!(link.stats().queued, Bytes(0));
        for pair in events.windows(2) {
            prop_assert!(pair[0].at() <= pair[1].at(), "{pair:?}");
        }
    }

    /// Queued packets stay, whatever the new limit is. Only arrivals after the change, and active queue management,
    /// cause drops.
    #[test]
    fn smaller_limit_keeps_queued_packets((config, arrivals, _) in changes(), limit in 0_u64..5000) {
        let config = LinkConfig { discipline: Discipline::DropTail, queue: Bytes(100_000_000).into(), ..config };
        let mut link = link(&config);
        let arrivals: Vec<_> = arrivals.into_iter().map(|arrival| ScriptedArrival { at: Instant::ZERO, ..arrival }).collect();
        for arrival in &arrivals {
            link.push(arrival.packet, arrival.at);
        }
        link.set(0, &LinkConfig { queue: Bytes(limit).into(), ..config }, Instant::from_nanos(1)).unwrap();
        let events: Vec<_> = std::iter::from_fn(|| link.poll(END)).collect();
        outcomes(&arrivals, &events);
        prop_assert_eq!(link.stats().dropped.total().packets, 0);
    }

    /// Setting the same values again cuts a slice, and changes nothing else.
    #[test]
    fn setting_same_values_changes_nothing((config, arrivals, changes) in changes()) {
        let same: Vec<_> = changes.into_iter().map(|(index, _)| (index, config.clone())).collect();
        let expected = outcomes(&arrivals, &run_link(&mut link(&config), arrivals.iter().copied()));
        let actual = outcomes(&arrivals, &run_changing(&mut link(&config), &arrivals, &same));
        for (index, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
            prop_assert_eq!(actual.kind(), expected.kind(), "virtual packet {}", index);
        }
    }

    #[test]
    fn super_packets_equal_singles_across_changes((config, arrivals, changes) in changes()) {
        let together = outcomes(&arrivals, &run_changing(&mut link(&config), &arrivals, &changes));
        let apart = singles(&arrivals);
        let firsts: Vec<_> = arrivals.iter().scan(0, |sum, arrival| {
            let first = *sum;
            *sum += arrival.packet.count as usize;
            Some(first)
        }).collect();
        let changes: Vec<_> = changes.into_iter().map(|(index, config)| (firsts[index], config)).collect();
        let alone = outcomes(&apart, &run_changing(&mut link(&config), &apart, &changes));
        for (index, (alone, together)) in alone.iter().zip(&together).enumerate() {
            prop_assert_eq!(alone.kind(), together.kind(), "virtual packet {}", index);
        }
    }

    /// A change of the rate equals a step of a timetable at that instant, to the nanosecond.
    #[test]
    fn new_rate_applies_at_once(
        (config, arrivals) in scenario(),
        rate in 1_000_000_u64..20_000_000_000,
        at in 0_u64..20_000_000,
    ) {
        let before = config.rate.values().max().unwrap();
        let config = LinkConfig { rate: before.into(), discipline: Discipline::DropTail, ..config };
        let config = LinkConfig { slice: Duration::ZERO, epoch: Instant::ZERO, ..config };
        let after = LinkConfig { rate: BitRate(rate).into(), ..config.clone() };
        let mut changed = link(&config);
        let mut events = Vec::new();
        let mut is_set = false;
        for arrival in &arrivals {
            if !is_set && arrival.at.as_nanos() >= at {
                changed.set(0, &after, Instant::from_nanos(at)).unwrap();
                is_set = true;
            }
            events.extend(std::iter::from_fn(|| changed.poll(arrival.at)));
            changed.push(arrival.packet, arrival.at);
        }
        if !is_set {
            changed.set(0, &after, Instant::from_nanos(at).max(arrivals.last().unwrap().at)).unwrap();
            return Ok(());
        }
        events.extend(std::iter::from_fn(|| changed.poll(END)));
        let steps = vec![(Duration::ZERO, before), (Duration::from_nanos(at.max(1)), BitRate(rate))];
        let table = LinkConfig { rate: Timetable::new(steps, None).unwrap(), ..config };
        let expected = outcomes(&arrivals, &run_link(&mut link(&table), arrivals.iter().copied()));
        if at > 0 {
            prop_assert_eq!(outcomes(&arrivals, &events), expected);
        }
    }
}

#[test]
fn packet_on_the_line_continues_at_the_new_rate() {
    let slow = LinkConfig { rate: BitRate(1).into(), queue: Bytes(3000).into(), ..LinkConfig::default() };
    let mut link = link(&slow);
    link.push(Packet::single(0, 1500), Instant::ZERO);
    assert_eq!(link.next_event_at(), Some(Instant::from_nanos(12_000_000_000_000)));
    // 2,000 of 12,000 bits are sent by then. The remaining 10,000 bits are sent at 10 Mb/s.
    let now = Instant::from_nanos(2_000_000_000_000);
    link.set(0, &LinkConfig { rate: BitRate(10_000_000).into(), ..slow }, now).unwrap();
    assert_eq!(link.next_event_at(), Some(now + Duration::from_millis(1)));
}

#[test]
fn slice_is_cut_when_the_line_becomes_slow() {
    let fast = LinkConfig { rate: BitRate(10_000_000_000).into(), ..LinkConfig::default() };
    let mut link = link(&fast);
    link.push(Packet::super_packet(0, 40, 1500, 1500), Instant::ZERO);
    // A packet takes 1,200 ns: the fifth is on the line.
    let now = Instant::from_nanos(5_000);
    link.set(0, &LinkConfig { rate: BitRate(12_000_000).into(), ..fast }, now).unwrap();
    let first = link.next_event_at().unwrap();
    let Some(LinkEvent::Forward { packet, due }) = link.poll(first) else { panic!("nothing at {first:?}") };
    // The rest of the fifth packet, 1,000 of 1,200 ns at 10 Gb/s, now takes 833,333 ns.
    assert_eq!((packet.first, packet.count, due), (0, 5, Instant::from_nanos(5_000 + 833_334)));
    assert_eq!(link.next_event_at(), Some(Instant::from_nanos(5_000 + 1_833_334)));
}

#[test]
fn change_of_rate_ends_a_stall() {
    let steps = vec![(Duration::ZERO, BitRate(0)), (Duration::from_secs(10), BitRate(12_000_000))];
    let still = LinkConfig { rate: Timetable::new(steps, None).unwrap(), ..LinkConfig::default() };
    let mut link = link(&still);
    link.push(Packet::single(0, 1500), Instant::from_nanos(1_000_000));
    let now = Instant::from_nanos(5_000_000);
    link.set(0, &LinkConfig { rate: BitRate(12_000_000).into(), ..still }, now).unwrap();
    assert_eq!(link.next_event_at(), Some(Instant::from_nanos(6_000_000)));
    let Some(LinkEvent::Forward { packet, .. }) = link.poll(END) else { panic!("nothing came") };
    assert_eq!(packet.queue_delay, Duration::from_millis(4));
}

#[test]
fn queue_keeps_packets_when_discipline_changes() {
    let config =
        LinkConfig { rate: BitRate(12_000_000).into(), queue: Bytes(1_000_000).into(), ..LinkConfig::default() };
    let mut link = link(&config);
    for id in 0..100 {
        link.push(Packet { flow: id as u32 % 3, ..Packet::single(id, 1500) }, Instant::from_nanos(id));
    }
    let mut ids = Vec::new();
    for (index, text) in
        ["fq-codel:target=10s:interval=20s", "red:min=400kB:max=800kB", "codel:target=10s:interval=20s", "drop-tail"]
            .iter()
            .enumerate()
    {
        let at = Instant::from_nanos((index as u64 + 1) * 10_500_000);
        while let Some(event) = link.poll(at) {
            ids.extend(matches!(event, LinkEvent::Forward { .. }).then_some(event));
        }
        link.set(0, &LinkConfig { discipline: text.parse().unwrap(), ..config.clone() }, at).unwrap();
    }
    ids.extend(std::iter::from_fn(|| link.poll(END)));
    assert_eq!(ids.len(), 100);
    assert_eq!(link.stats().dropped[DropCause::Aqm].packets + link.stats().dropped[DropCause::Queue].packets, 0);
}
