//! Changes of the link to packets that it forwards: reordering, duplication, corruption. In virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{Link, LinkConfig, LinkEvent, LinkJitter, Packet, Reorder};
use lfn_packet::Changes;
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use crate::support::{link, poll_at_event_times, push_late};

const US: Duration = Duration::from_micros(1);

/// Returns a configuration with a negligible sending time, and with slices that keep super-packets complete.
fn base() -> LinkConfig {
    LinkConfig {
        rate: BitRate(10_000_000_000_000).into(),
        queue: Bytes(1 << 40).into(),
        slice: Duration::from_secs(1),
        ..LinkConfig::default()
    }
}

fn ratio(value: f64) -> Ratio {
    Ratio::new(value).unwrap()
}

/// Returns `count` virtual packets, `size` per super-packet, with `gap` between super-packets.
fn traffic(count: u64, size: u32, gap: Duration) -> impl Iterator<Item = ScriptedArrival> {
    (0..count / u64::from(size)).map(move |id| ScriptedArrival {
        at: Instant::ZERO + gap * id as u32,
        packet: Packet::super_packet(id, size, 1514, 1514),
    })
}

/// One virtual packet that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    /// Position in the order of arrival.
    place: u64,
    changes: Changes,
    due: Instant,
}

/// Returns every virtual packet of super-packets of `size`, in the order of leaving.
fn left(events: &[LinkEvent], size: u32) -> Vec<Left> {
    let mut all = Vec::new();
    for event in events {
        if let LinkEvent::Forward { packet, due } = *event {
            let first = packet.id * u64::from(size) + u64::from(packet.first);
            all.extend((first..first + u64::from(packet.count)).map(|place| Left {
                place,
                changes: packet.changes,
                due,
            }));
        }
    }
    all
}

fn pass(config: &LinkConfig, arrivals: impl IntoIterator<Item = ScriptedArrival>) -> Vec<LinkEvent> {
    let mut link = link(config);
    let events = run_link(&mut link, arrivals);
    assert_eq!(link.next_event_at(), None);
    events
}

fn leave_in_order(events: &[LinkEvent]) -> bool {
    events.iter().filter(|event| matches!(event, LinkEvent::Forward { .. })).map(LinkEvent::at).is_sorted()
}

/// Checks that the positions of events among `count` packets come from independent draws with `probability`: their
/// number, and the gaps between them by chi-square.
fn check_independent(places: &[u64], count: u64, probability: f64, what: &str) {
    let expected = count as f64 * probability;
    // 99.9 %, two-sided, of the normal approximation of the binomial distribution.
    let deviation = 3.29 * (expected * (1.0 - probability)).sqrt();
    assert!((places.len() as f64 - expected).abs() < deviation, "{what}: {} of {expected}", places.len());
    // Ten classes of gaps with equal probability, as far as whole numbers allow.
    const CLASSES: u64 = 10;
    let survival = |gap: u64| (1.0 - probability).powi(i32::try_from(gap).unwrap());
    let mut bounds: Vec<u64> = (1..CLASSES)
        .map(|class| ((1.0 - class as f64 / CLASSES as f64).ln() / (-probability).ln_1p()).ceil() as u64)
        .collect();
    bounds.dedup();
    let gaps: Vec<u64> = places.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
    let mut chi = 0.0;
    for class in 0..=bounds.len() {
        let (from, to) = (if class == 0 { 0 } else { bounds[class - 1] }, bounds.get(class).copied());
        let share = survival(from) - to.map_or(0.0, survival);
        let seen = gaps.iter().filter(|gap| **gap >= from && to.is_none_or(|to| **gap < to)).count() as f64;
        let expected = gaps.len() as f64 * share;
        chi += (seen - expected).powi(2) / expected;
    }
    // 99.9 % of chi-square with 9 degrees of freedom. Fewer classes have a lower limit.
    assert!(chi < 27.88, "{what}: chi-square {chi}");
}

const COUNT: u64 = 1_000_000;

#[test]
fn reordered_share_matches_setting_without_loss() {
    for (share, seed) in [(0.001, 1), (0.01, 2), (0.1, 3), (0.4, 4)] {
        // A distance of 1 swaps a packet with the next packet that does not wait. A packet behind a later one has
        // waited.
        let reorder = Reorder { share: ratio(share), distance: 1, ..Reorder::default() };
        let left = left(&pass(&LinkConfig { reorder, seed, ..base() }, traffic(COUNT, 1, US)), 1);
        assert_eq!(left.len() as u64, COUNT);
        let mut held = Vec::new();
        let mut farthest = 0;
        for one in &left {
            if one.place < farthest {
                held.push(one.place);
            }
            farthest = farthest.max(one.place);
        }
        held.sort_unstable();
        let mut places: Vec<_> = left.iter().map(|one| one.place).collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..COUNT));
        check_independent(&held, COUNT, share, "reordered");
    }
}

#[test]
fn reordering_distance_is_exact_under_traffic() {
    for (distance, size) in [(1, 1), (3, 1), (3, 40), (100, 40), (7, 3)] {
        let reorder = Reorder { share: ratio(0.02), distance, ..Reorder::default() };
        let count = 120_000;
        let left = left(&pass(&LinkConfig { reorder, seed: 9, ..base() }, traffic(count, size, US)), size);
        assert_eq!(left.len() as u64, count);
        let mut order = vec![0_usize; count as usize];
        left.iter().enumerate().for_each(|(index, one)| order[one.place as usize] = index);
        // A packet has waited if a later packet that did not wait passed it. The passing packets of the others are
        // counted.
        let mut held = vec![false; count as usize];
        let mut first_after = usize::MAX;
        for place in (0..order.len()).rev() {
            held[place] = order[place] > first_after;
            first_after = first_after.min(order[place]);
        }
        let (mut seen, mut others) = (0, 0);
        for place in (0..order.len()).filter(|place| held[*place]) {
            let later = place + 1..order.len().min(place + 20 * distance as usize + 50);
            let passers = later.filter(|later| !held[*later] && order[*later] < order[place]).count();
            if passers == distance as usize { seen += 1 } else { others += 1 }
        }
        // The last few packets leave by time.
        assert!(seen > 2000 && others <= 4, "{distance}, {size}: {seen} and {others} others");
        assert!(left.is_sorted_by_key(|one| one.due));
    }
}

#[test]
fn held_packets_leave_after_the_hold_time() {
    let hold = Duration::from_millis(20);
    let reorder = Reorder { share: ratio(1.0), distance: 3, hold };
    let gap = Duration::from_millis(1);
    let left = left(&pass(&LinkConfig { reorder, ..base() }, traffic(1000, 1, gap)), 1);
    assert_eq!(left.len(), 1000);
    for (one, place) in left.iter().zip(0..) {
        assert_eq!(one.place, place);
        let took = one.due - (Instant::ZERO + gap * place as u32);
        assert!(took >= hold && took < hold + US * 2, "{took:?}");
    }
    // A single packet takes at most the hold time.
    let half = LinkConfig { reorder: Reorder { share: ratio(0.5), ..reorder }, ..base() };
    let sparse = Duration::from_secs(1);
    let left = self::left(&pass(&half, traffic(1000, 1, sparse)), 1);
    let slow = left.iter().filter(|one| one.due - (Instant::ZERO + sparse * one.place as u32) >= hold).count();
    assert!((400..600).contains(&slow), "{slow}");
}

#[test]
fn duplicated_share_matches_and_copy_follows_at_once() {
    for (share, seed) in [(1e-3, 11), (0.05, 12), (0.5, 13)] {
        let config = LinkConfig { duplicate: ratio(share), delay: Duration::from_millis(5).into(), seed, ..base() };
        let left = left(&pass(&config, traffic(COUNT, 40, 10 * US)), 40);
        let mut copies = Vec::new();
        let mut before: Option<Left> = None;
        for one in left {
            if one.changes.is_copy {
                let original = before.unwrap();
                assert_eq!((original.place, original.due, original.changes.is_copy), (one.place, one.due, false));
                copies.push(one.place);
            } else {
                assert_eq!(one.place, before.map_or(0, |before| before.place + 1));
            }
            before = Some(one);
        }
        check_independent(&copies, COUNT, share, "duplicated");
    }
}

#[test]
fn copies_are_announced_before_originals_leave() {
    let hop = LinkConfig { duplicate: ratio(0.3), delay: Duration::from_millis(1).into(), ..base() };
    let hops = [hop.clone(), LinkConfig { loss: ratio(0.2).into(), hop: 1, ..hop }];
    let mut link = Link::chain(&hops).unwrap();
    let mut here: BTreeMap<(u64, u32), u32> = BTreeMap::new();
    let mut copies = 0;
    for event in run_link(&mut link, traffic(40_000, 8, 10 * US)) {
        match event {
            LinkEvent::Duplicate { packet, .. } => {
                copies += 1;
                // The first copy of a packet is the arrived packet.
                let count = here.entry((packet.id, packet.first)).or_insert(1);
                assert!(*count > 0, "{packet:?} is gone");
                *count += packet.count;
            }
            LinkEvent::Forward { packet, .. } | LinkEvent::Drop { packet, .. } => {
                for index in packet.first..packet.first + packet.count {
                    let count = here.entry((packet.id, index)).or_insert(1);
                    *count = count.checked_sub(1).unwrap();
                }
            }
        }
    }
    assert_eq!(here.len(), 40_000);
    assert!(here.values().all(|count| *count == 0));
    let stats = link.stats();
    assert_eq!(stats.duplicated.packets, copies);
    assert_eq!(stats.offered.packets + copies, stats.forwarded.packets + stats.dropped.total().packets);
    // The first hop copies a share of 0.3. The second hop copies 0.3 of the packets that remain after a loss of a
    // fifth.
    assert!((23_500..26_000).contains(&copies), "{copies}");
}

#[test]
fn corrupted_share_matches_and_packets_leave_alone() {
    let config = LinkConfig { corrupt: ratio(0.01), corrupt_hidden: ratio(0.03), seed: 6, ..base() };
    let mut link = link(&config);
    let events = run_link(&mut link, traffic(COUNT, 40, US));
    let (mut plain, mut hidden, mut draws) = (Vec::new(), Vec::new(), Vec::new());
    for event in &events {
        let LinkEvent::Forward { packet, .. } = event else { panic!("{event:?}") };
        let Some(damage) = packet.changes.corruption else { continue };
        assert_eq!(packet.count, 1);
        let place = packet.id * 40 + u64::from(packet.first);
        if damage.is_hidden {
            hidden.push(place)
        } else {
            plain.push(place)
        }
        draws.push(damage.random);
    }
    check_independent(&plain, COUNT, 0.01, "corrupted");
    // A packet with visible corruption gets no hidden one.
    check_independent(&hidden, COUNT, 0.03 * 0.99, "corrupted and hidden");
    assert_eq!(link.stats().corrupted.packets, draws.len() as u64);
    draws.sort_unstable();
    draws.dedup();
    assert_eq!(draws.len() as u64, link.stats().corrupted.packets, "bits drawn twice");
}

#[test]
fn hidden_corruption_skips_packets_without_payload() {
    let config = LinkConfig { corrupt_hidden: ratio(0.5), ..base() };
    let mixed = |with: bool| {
        traffic(10_000, 1, US).map(move |arrival| {
            let has_payload = with || arrival.packet.id % 2 == 0;
            ScriptedArrival { packet: Packet { has_payload, ..arrival.packet }, ..arrival }
        })
    };
    let damaged = |with| {
        let left = left(&pass(&config, mixed(with)), 1);
        left.iter().filter(|one| one.changes.corruption.is_some()).map(|one| one.place).collect::<Vec<_>>()
    };
    let (all, half) = (damaged(true), damaged(false));
    assert!(half.iter().all(|place| place % 2 == 0));
    assert!((2300..2700).contains(&half.len()) && (4800..5200).contains(&all.len()));
    // The same packets with payload are corrupted, with or without other packets between them.
    assert!(half.iter().map(|place| place / 2).eq(all.into_iter().filter(|place| *place < 5000)));
}

/// Strategy for all settings of this file, and arrivals of single packets and super-packets, often at the same time.
fn scenario() -> impl Strategy<Value = (LinkConfig, Vec<ScriptedArrival>)> {
    let share = || prop_oneof![2 => Just(0.0), 2 => 0.0..0.3, 1 => 0.0..1.0, 1 => Just(1.0)];
    let config = ((share(), 1_u32..20, 0_u64..5_000_000), share(), share(), share(), any::<u64>()).prop_map(
        |((share, distance, hold), duplicate, corrupt, corrupt_hidden, seed)| LinkConfig {
            reorder: Reorder { share: ratio(share), distance, hold: Duration::from_nanos(hold) },
            duplicate: ratio(duplicate),
            corrupt: ratio(corrupt),
            corrupt_hidden: ratio(corrupt_hidden),
            seed,
            ..base()
        },
    );
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], prop_oneof![Just(0), 0_u64..3_000_000]);
    (config, prop::collection::vec(packet, 1..40)).prop_map(|(config, packets)| {
        let mut at = Instant::ZERO;
        let mut arrivals = Vec::new();
        for ((count, gap), id) in packets.into_iter().zip(0..) {
            at += Duration::from_nanos(gap);
            arrivals.push(ScriptedArrival { at, packet: Packet::super_packet(id, count, 1514, 700) });
        }
        (config, arrivals)
    })
}

/// Returns the packets in the order of leaving, with their position in the order of arrival.
fn outcomes(config: &LinkConfig, arrivals: &[ScriptedArrival]) -> Vec<(u64, Changes)> {
    let mut base = 0;
    let first: Vec<u64> = arrivals
        .iter()
        .map(|arrival| {
            base += u64::from(arrival.packet.count);
            base - u64::from(arrival.packet.count)
        })
        .collect();
    let mut outcomes = Vec::new();
    for event in pass(config, arrivals.iter().copied()) {
        if let LinkEvent::Forward { packet, .. } = event {
            let first = first[packet.id as usize] + u64::from(packet.first);
            outcomes.extend((first..first + u64::from(packet.count)).map(|place| (place, packet.changes)));
        }
    }
    outcomes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn super_packets_and_singles_have_equal_outcomes((config, arrivals) in scenario()) {
        // Packets wait for other packets and not for a time, because the packets of a super-packet have different
        // sending times.
        let reorder = Reorder { hold: Duration::from_secs(60), ..config.reorder };
        let config = LinkConfig { reorder, ..config };
        let mut singles = Vec::new();
        for ScriptedArrival { at, packet } in &arrivals {
            for index in 0..packet.count {
                let wire = if index + 1 == packet.count { packet.last_wire_len } else { packet.wire_len };
                singles.push(ScriptedArrival { at: *at, packet: Packet::single(singles.len() as u64, wire) });
            }
        }
        prop_assert_eq!(outcomes(&config, &arrivals), outcomes(&config, &singles));
    }

    #[test]
    fn every_packet_comes_out_and_events_are_in_order((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let events = run_link(&mut link, arrivals.iter().copied());
        prop_assert!(leave_in_order(&events));
        let stats = link.stats();
        prop_assert_eq!(stats.offered.packets + stats.duplicated.packets, stats.forwarded.packets);
        prop_assert_eq!(stats.offered.bytes.0 + stats.duplicated.bytes.0, stats.forwarded.bytes.0);
        let mut seen = BTreeMap::new();
        for event in &events {
            let LinkEvent::Forward { packet, due } = event else { continue };
            let came = arrivals[packet.id as usize].at;
            prop_assert!(*due >= came && *due <= came + config.max_delay() + Duration::from_micros(6));
            for index in packet.first..packet.first + packet.count {
                *seen.entry((packet.id, index, packet.changes.is_copy)).or_insert(0) += 1;
            }
        }
        prop_assert!(seen.values().all(|count| *count == 1), "a packet, or its copy, twice");
    }

    /// Rare polls and late arrivals lose or add no packet, and time does not run backwards.
    #[test]
    fn late_arrivals_keep_order_and_counts((config, arrivals) in scenario(), late in 0_u64..3_000_000) {
        let mut link = link(&config);
        let events = push_late(&mut link, &arrivals, Duration::from_nanos(late));
        prop_assert!(leave_in_order(&events));
        let stats = link.stats();
        prop_assert_eq!(stats.offered.packets + stats.duplicated.packets, stats.forwarded.packets);
    }

    #[test]
    fn next_event_time_is_exact((config, arrivals) in scenario()) {
        poll_at_event_times(&mut link(&config), &arrivals)?;
    }
}

#[test]
fn seed_determines_the_draws() {
    let config = |seed| LinkConfig {
        reorder: Reorder { share: ratio(0.05), ..Reorder::default() },
        duplicate: ratio(0.05),
        corrupt: ratio(0.05),
        seed,
        ..base()
    };
    let run = |seed| left(&pass(&config(seed), traffic(10_000, 10, US)), 10);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn invalid_settings_are_refused() {
    let refused = |config: LinkConfig| Link::new(&config).err().map(|error| error.to_string()).unwrap_or_default();
    let reorder = Reorder { share: ratio(0.5), ..Reorder::default() };
    for (config, words) in [
        (LinkConfig { reorder: Reorder { distance: 0, ..reorder }, ..base() }, "a distance of 0 packets"),
        (LinkConfig { reorder: Reorder { hold: Duration::from_secs(61), ..reorder }, ..base() }, "61 s is above 60 s"),
        (
            LinkConfig { jitter: LinkJitter { spread: Duration::from_secs(7200), ..LinkJitter::default() }, ..base() },
            "a jitter of 2 h is above",
        ),
        (
            LinkConfig { jitter: LinkJitter { correlation: ratio(1.0), ..LinkJitter::default() }, ..base() },
            "correlation of 100 %",
        ),
    ] {
        let error = refused(config);
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(refused(LinkConfig { reorder, duplicate: ratio(1.0), corrupt: ratio(1.0), ..base() }), "");
}
