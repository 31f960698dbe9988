//! Laws of the link, whatever its settings and the arrivals: in virtual time, against a naive reference.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lfn_core::link::{Count, Direction, DropCause, Event, Link, LinkConfig, LinkError, LossModel, Packet};
use lfn_core::sim::{Arrival, run};
use lfn_core::time::Instant;
use lfn_core::units::{BitRate, Bytes, Ratio};
use proptest::prelude::*;
use support::{link, poll_as_told, poll_seldom, singles, stamp_late};

/// What became of one virtual packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Forwarded, alone or last in its range.
    Due(Instant),
    /// Forwarded in a range whose last virtual packet is due then.
    Before(Instant),
    Dropped(DropCause),
}

impl Fate {
    fn cause(self) -> Option<DropCause> {
        match self {
            Fate::Dropped(cause) => Some(cause),
            _ => None,
        }
    }
}

/// Settings, and arrivals at about the rate of the line: so that the queue fills, overflows and runs dry.
fn scenario() -> impl Strategy<Value = (LinkConfig, Vec<Arrival>)> {
    let rates = prop_oneof![Just(135_000_000), Just(1_000_000_000), 10_000_u64..100_000_000_000, 1_u64..10_000_000];
    let loss = prop_oneof![3 => Just(0.0), 1 => 0.0..0.01, 1 => 0.0..1.0, 1 => Just(1.0)];
    let config = (rates, 0_u64..600_000_000, 0_u64..200_000, loss, any::<u64>(), 0_u64..2_000_000).prop_map(
        |(rate, delay, queue, loss, seed, slice)| LinkConfig {
            rate: BitRate(rate).into(),
            delay: Duration::from_nanos(delay).into(),
            // No more than an hour of the line: what a link refuses is tested apart.
            queue: Bytes(queue.min(rate * 450)).into(),
            loss: Ratio::new(loss).unwrap().into(),
            seed,
            slice: Duration::from_nanos(slice),
            ..LinkConfig::default()
        },
    );
    // What the line takes for the packet, times 0 to 2.5, passes before the next one; often nothing at all.
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], 1_u32..9_014, 0.0..1.0, prop_oneof![Just(0.0), 0.0..2.5]);
    (config, prop::collection::vec(packet, 1..60)).prop_map(|(config, packets)| {
        let mut at = Instant::ZERO;
        let mut arrivals = Vec::new();
        for ((count, wire, last, load), id) in packets.into_iter().zip(0..) {
            let last_wire = ((f64::from(wire) * last) as u32).max(1);
            let packet = Packet::several(id, count, wire, last_wire);
            arrivals.push(Arrival { at, packet });
            let took = packet.bytes() as f64 * 8e9 / rate(&config).as_f64();
            at += Duration::from_nanos((took * load) as u64);
        }
        (config, arrivals)
    })
}

/// Of the line, which is constant here.
fn rate(config: &LinkConfig) -> BitRate {
    config.rate.as_constant().unwrap()
}

/// Of the queue, which is in bytes here.
fn room(config: &LinkConfig) -> u64 {
    config.queue.most_bytes(Bytes(0)).0
}

/// The fate of every virtual packet.
fn fates(arrivals: &[Arrival], events: &[Event]) -> Vec<Fate> {
    support::fates(arrivals, events, |event, index| match *event {
        Event::Forward { packet, due } if index + 1 == packet.count => Fate::Due(due),
        Event::Forward { due, .. } => Fate::Before(due),
        Event::Drop { cause, .. } => Fate::Dropped(cause),
        Event::Duplicate { .. } => panic!("nothing is duplicated here"),
    })
}

fn came(arrivals: &[Arrival]) -> BTreeMap<u64, Instant> {
    arrivals.iter().map(|arrival| (arrival.packet.id, arrival.at)).collect()
}

/// The link without loss, as simply as can be: one packet after the other, exact times as fractions over the rate.
fn reference(config: &LinkConfig, arrivals: &[Arrival]) -> Vec<Fate> {
    let rate = u128::from(rate(config).0);
    // Time × rate: nanoseconds times bits per second.
    let mut free = 0_u128;
    let mut queue: VecDeque<(u128, u64)> = VecDeque::new();
    let mut fates = Vec::new();
    for Arrival { at, packet } in singles(arrivals) {
        let now = u128::from(at.as_nanos()) * rate;
        queue.retain(|(finish, _)| *finish > now);
        let held: u64 = queue.iter().map(|(_, bytes)| bytes).sum();
        if held > 0 && held + packet.bytes() > room(config) {
            fates.push(Fate::Dropped(DropCause::Queue));
            continue;
        }
        free = free.max(now) + u128::from(packet.bytes()) * 8_000_000_000;
        queue.push_back((free, packet.bytes()));
        fates.push(Fate::Due(Instant::from_nanos(free.div_ceil(rate) as u64) + config.least_delay()));
    }
    fates
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn without_loss_the_link_is_the_reference((config, arrivals) in scenario()) {
        let config = LinkConfig { loss: LossModel::None, ..config };
        let expected = reference(&config, &arrivals);
        let actual = fates(&arrivals, &run(&mut link(&config), arrivals.iter().copied()));
        prop_assert_eq!(actual.len(), expected.len());
        for (actual, expected) in actual.iter().zip(&expected) {
            match (actual, expected) {
                // Held back to the end of its slice, never let out early.
                (Fate::Before(slice), Fate::Due(due)) => prop_assert!(slice >= due),
                (actual, expected) => prop_assert_eq!(actual, expected),
            }
        }
    }

    #[test]
    fn super_packets_and_single_packets_fare_alike((config, arrivals) in scenario()) {
        let apart = singles(&arrivals);
        let alone = fates(&apart, &run(&mut link(&config), apart.iter().copied()));
        let together = fates(&arrivals, &run(&mut link(&config), arrivals.iter().copied()));
        for (alone, together) in alone.iter().zip(&together) {
            prop_assert_eq!(alone.cause(), together.cause());
            if let Fate::Due(due) = together {
                prop_assert_eq!(&Fate::Due(*due), alone);
            }
        }
    }

    #[test]
    fn what_comes_out_is_what_went_in_in_order((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let events = run(&mut link, arrivals.iter().copied());
        fates(&arrivals, &events);
        let forwarded: Vec<_> = events.iter().filter_map(|event| match event {
            Event::Forward { packet, due } => Some((*due, packet.id, packet.first)),
            _ => None,
        }).collect();
        prop_assert!(forwarded.is_sorted());
        let stats = link.stats();
        let sum = |of: fn(&Count) -> u64| of(&stats.forwarded) + of(&stats.dropped.total());
        prop_assert_eq!(stats.offered.packets, arrivals.iter().map(|a| u64::from(a.packet.count)).sum::<u64>());
        prop_assert_eq!(stats.offered.packets, sum(|count| count.packets));
        prop_assert_eq!(stats.offered.bytes.0, sum(|count| count.bytes.0));
        prop_assert_eq!(stats.queued, Bytes(0));
    }

    #[test]
    fn never_early_and_never_above_the_rate((config, arrivals) in scenario()) {
        let came = came(&arrivals);
        let rate = rate(&config).0;
        let mut bytes = 0;
        // Bits sent less bits the line can send, at its lowest so far.
        let mut lowest: Option<i128> = None;
        for event in run(&mut link(&config), arrivals.iter().copied()) {
            let Event::Forward { packet, due } = event else { continue };
            let sending = Duration::from_nanos((packet.bytes() * 8_000_000_000).div_ceil(rate));
            prop_assert!(due >= came[&packet.id] + sending + config.least_delay());
            bytes += i128::from(packet.bytes());
            let excess = bytes * 8_000_000_000 - i128::from(rate) * i128::from(due.as_nanos());
            // What leaves after one range and up to another fits between them; due instants are rounded up to 1 ns.
            prop_assert!(excess - lowest.unwrap_or(excess) <= i128::from(rate));
            lowest = Some(lowest.map_or(excess, |lowest| lowest.min(excess)));
        }
    }

    #[test]
    fn a_slice_is_no_longer_than_asked_for((config, arrivals) in scenario()) {
        for event in run(&mut link(&config), arrivals.iter().copied()) {
            let Event::Forward { packet, .. } = event else { continue };
            prop_assert!(packet.count == 1 || rate(&config).time_for(Bytes(packet.bytes())) <= config.slice);
        }
    }

    #[test]
    fn the_queue_stays_within_its_limit((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let largest = arrivals.iter().map(|a| u64::from(a.packet.wire.max(a.packet.last_wire))).max().unwrap_or(0);
        let limit = room(&config).max(largest);
        let longest = Duration::from_nanos((limit * 8_000_000_000).div_ceil(rate(&config).0));
        let came = came(&arrivals);
        for event in run(&mut link, arrivals.iter().copied()) {
            let Event::Forward { packet, due } = event else { continue };
            prop_assert!(due <= came[&packet.id] + longest + config.longest_delay() + Duration::from_nanos(1));
        }
        prop_assert!(link.stats().queue_peak.0 <= limit);
    }

    #[test]
    fn polling_seldom_changes_nothing((config, arrivals) in scenario(), seldom in 1_usize..10) {
        let expected = fates(&arrivals, &run(&mut link(&config), arrivals.iter().copied()));
        let events = poll_seldom(&mut link(&config), &arrivals, seldom);
        prop_assert_eq!(fates(&arrivals, &events), expected);
    }

    /// Where no queue overflows, an arrival stamped before the last poll is as good as one told in time.
    #[test]
    fn late_stamps_are_honoured((config, arrivals) in scenario(), late in 0_u64..3_000_000) {
        let config = LinkConfig { queue: Bytes((60 * 64 * 9014).min(rate(&config).0 * 10_000)).into(), ..config };
        let mut punctual = link(&config);
        let expected = fates(&arrivals, &run(&mut punctual, arrivals.iter().copied()));
        if punctual.stats().dropped[DropCause::Queue].packets > 0 {
            return Ok(());
        }
        let events = stamp_late(&mut link(&config), &arrivals, Duration::from_nanos(late));
        prop_assert_eq!(fates(&arrivals, &events), expected);
    }

    /// Polling when told to moves on, and nothing leaves before that.
    #[test]
    fn next_is_when_something_leaves((config, arrivals) in scenario()) {
        poll_as_told(&mut link(&config), &arrivals)?;
    }
}

#[test]
fn an_idle_link_adds_sending_and_delay_and_no_more() {
    let delay = Duration::from_micros(269_500);
    let mut link =
        link(&LinkConfig { rate: BitRate(135_000_000).into(), delay: delay.into(), ..LinkConfig::default() });
    for second in 0..100 {
        let at = Instant::from_nanos(second * 1_000_000_000);
        let packet = Packet::single(second, 1514);
        // 12,112 bits at 135 Mb/s are 89,718.5 ns.
        let due = at + Duration::from_nanos(89_719) + delay;
        assert_eq!(run(&mut link, [Arrival { at, packet }]), [Event::Forward { packet, due }]);
    }
}

#[test]
fn a_busy_line_does_not_drift() {
    // 1,350,000 packets of 1,250 B at 135 Mb/s are 100 s to the nanosecond, though one takes 74,074.07… ns.
    let config =
        LinkConfig { rate: BitRate(135_000_000).into(), queue: Bytes(1 << 31).into(), ..LinkConfig::default() };
    let arrivals = (0..1_350_000).map(|id| Arrival { at: Instant::ZERO, packet: Packet::single(id, 1250) });
    let events = run(&mut link(&config), arrivals);
    assert_eq!(events.last().map(Event::at), Some(Instant::from_nanos(100_000_000_000)));
    assert_eq!(events.len(), 1_350_000);
}

#[test]
fn slices_follow_the_rate() {
    let largest = |rate: u64| {
        let config = LinkConfig { rate: BitRate(rate).into(), queue: Bytes(1 << 20).into(), ..LinkConfig::default() };
        let packet = Packet::several(0, 45, 1514, 1514);
        let events = run(&mut link(&config), [Arrival { at: Instant::ZERO, packet }]);
        let count = |event: &Event| match event {
            Event::Forward { packet, .. } | Event::Drop { packet, .. } | Event::Duplicate { packet, .. } => {
                packet.count
            }
        };
        events.iter().map(count).max()
    };
    assert_eq!([135_000_000, 1_000_000_000, 5_000_000_000].map(largest), [Some(1), Some(12), Some(45)]);
}

/// Indices lost of `count` packets, sent `size` to a super-packet.
fn lost(loss: f64, seed: u64, direction: Direction, count: u32, size: u32) -> Vec<u32> {
    let loss = Ratio::new(loss).unwrap().into();
    let config = LinkConfig { rate: BitRate(1_000_000_000_000).into(), loss, seed, direction, ..LinkConfig::default() };
    let arrivals = (0..count / size).map(|id| Arrival {
        at: Instant::from_nanos(u64::from(id) * 1_000_000),
        packet: Packet::several(u64::from(id), size, 1514, 1514),
    });
    let mut lost = Vec::new();
    for event in run(&mut link(&config), arrivals) {
        if let Event::Drop { packet, cause, .. } = event {
            assert_eq!(cause, DropCause::Loss);
            let first = packet.id as u32 * size + packet.first;
            lost.extend(first..first + packet.count);
        }
    }
    lost
}

#[test]
fn losses_are_as_many_and_as_far_apart_as_chance_makes_them() {
    const COUNT: u32 = 1_000_000;
    for (loss, seed) in [(1e-4, 1), (1e-3, 2), (0.01, 3), (0.1, 4), (0.5, 5), (0.9, 6)] {
        let lost = lost(loss, seed, Direction::Forward, COUNT, 40);
        // Binomial, two-sided 99.9 %: 3.29 standard deviations, and half a packet for what cannot be halved.
        let within = |seen: usize, of: f64, probability: f64| {
            let deviation = 3.29 * (of * probability * (1.0 - probability)).sqrt() + 0.5;
            assert!((seen as f64 - of * probability).abs() < deviation, "{loss}: {seen} of {of} at {probability}");
        };
        within(lost.len(), f64::from(COUNT), loss);
        // Independent: as often right after a loss as anywhere.
        let adjacent = lost.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        within(adjacent, lost.len() as f64, loss);
        // And the median gap of a geometric distribution.
        let median = (0.5_f64.ln() / (-loss).ln_1p()).ceil();
        let reach = 1.0 - (1.0 - loss).powf(median);
        let short = lost.windows(2).filter(|pair| f64::from(pair[1] - pair[0]) <= median).count();
        within(short, lost.len() as f64, reach);
    }
}

#[test]
fn the_seed_decides_and_the_direction_too() {
    let drops = |seed, direction| lost(0.01, seed, direction, 100_000, 1);
    let first = drops(7, Direction::Forward);
    assert_eq!(first, drops(7, Direction::Forward));
    assert_eq!(first, lost(0.01, 7, Direction::Forward, 100_000, 50));
    for other in [drops(8, Direction::Forward), drops(7, Direction::Return)] {
        // About 10 of 1,000 coincide by chance.
        let same = first.iter().filter(|index| other.contains(index)).count();
        assert!(same < 40, "{same}");
    }
    assert_eq!(lost(1.0, 1, Direction::Forward, 1000, 10).len(), 1000);
}

#[test]
fn settings_without_meaning_are_refused_by_name() {
    let refused = |config: LinkConfig| Link::new(&config).err().map(|error| error.to_string());
    let base = LinkConfig::default;
    assert_eq!(refused(base()), None);
    assert_eq!(Link::new(&LinkConfig { rate: BitRate(0).into(), ..base() }).err(), Some(LinkError::ZeroRate));
    for (config, words) in [
        (LinkConfig { rate: BitRate(u64::MAX).into(), ..base() }, "above 10 Tb/s"),
        (LinkConfig { delay: Duration::from_secs(1 << 40).into(), ..base() }, "one-way delay"),
        (LinkConfig { queue: Bytes(u64::MAX).into(), ..base() }, "a queue of"),
        (
            LinkConfig { rate: BitRate(1).into(), queue: Bytes(1 << 20).into(), ..base() },
            "1 MiB takes more than 24 h to send at 1 b/s",
        ),
        (LinkConfig { slice: Duration::from_secs(60), ..base() }, "a slice of 60 s"),
    ] {
        let error = refused(config).unwrap_or_default();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn the_path_of_acts_needs_its_bytes_and_little_more() {
    let config = LinkConfig {
        rate: BitRate(135_000_000).into(),
        delay: Duration::from_micros(269_500).into(),
        queue: Bytes(9_095_625).into(),
        ..LinkConfig::default()
    };
    let needed = Link::memory_needed(&config).0;
    assert!((13_643_437..13_643_437 + 300_000).contains(&needed), "{needed}");
    let absurd = LinkConfig {
        rate: BitRate(u64::MAX).into(),
        delay: Duration::MAX.into(),
        queue: Bytes(u64::MAX).into(),
        ..config
    };
    assert_eq!(Link::memory_needed(&absurd), Bytes(u64::MAX));
}
