//! Properties of the link for all settings and arrivals, in virtual time, against a simple reference.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{DropCause, Link, LinkConfig, LinkDirection, LinkError, LinkEvent, LossModel, Packet, PacketCount};
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use crate::support::{self, link, poll_at_event_times, poll_every, push_late, singles};

/// Outcome of one virtual packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Forwarded, alone or as the last of its range.
    Due(Instant),
    /// Forwarded in a range whose last virtual packet is due at this time.
    Before(Instant),
    Dropped(DropCause),
}

impl Outcome {
    fn cause(self) -> Option<DropCause> {
        match self {
            Outcome::Dropped(cause) => Some(cause),
            _ => None,
        }
    }
}

/// Strategy for settings and for arrivals at about the rate of the line, so that the queue fills, overflows and
/// empties.
fn scenario() -> impl Strategy<Value = (LinkConfig, Vec<ScriptedArrival>)> {
    let rates = prop_oneof![Just(135_000_000), Just(1_000_000_000), 10_000_u64..100_000_000_000, 1_u64..10_000_000];
    let loss = prop_oneof![3 => Just(0.0), 1 => 0.0..0.01, 1 => 0.0..1.0, 1 => Just(1.0)];
    let config = (rates, 0_u64..600_000_000, 0_u64..200_000, loss, any::<u64>(), 0_u64..2_000_000).prop_map(
        |(rate, delay, queue, loss, seed, slice)| LinkConfig {
            rate: BitRate(rate).into(),
            delay: Duration::from_nanos(delay).into(),
            // At most an hour of line time. Refused settings have their own test.
            queue: Bytes(queue.min(rate * 450)).into(),
            loss: Ratio::new(loss).unwrap().into(),
            seed,
            slice: Duration::from_nanos(slice),
            ..LinkConfig::default()
        },
    );
    // The time to the next packet is 0 to 2.5 times the line time of this packet, and often zero.
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], 1_u32..9_014, 0.0..1.0, prop_oneof![Just(0.0), 0.0..2.5]);
    (config, prop::collection::vec(packet, 1..60)).prop_map(|(config, packets)| {
        let mut at = Instant::ZERO;
        let mut arrivals = Vec::new();
        for ((count, wire, last, load), id) in packets.into_iter().zip(0..) {
            let last_wire = ((f64::from(wire) * last) as u32).max(1);
            let packet = Packet::super_packet(id, count, wire, last_wire);
            arrivals.push(ScriptedArrival { at, packet });
            let took = packet.bytes() as f64 * 8e9 / rate(&config).as_f64();
            at += Duration::from_nanos((took * load) as u64);
        }
        (config, arrivals)
    })
}

/// Returns the constant line rate.
fn rate(config: &LinkConfig) -> BitRate {
    config.rate.as_constant().unwrap()
}

/// Returns the queue limit in bytes.
fn room(config: &LinkConfig) -> u64 {
    config.queue.max_bytes(Bytes(0)).0
}

/// Returns the outcome of every virtual packet.
fn outcomes(arrivals: &[ScriptedArrival], events: &[LinkEvent]) -> Vec<Outcome> {
    support::outcomes(arrivals, events, |event, index| match *event {
        LinkEvent::Forward { packet, due } if index + 1 == packet.count => Outcome::Due(due),
        LinkEvent::Forward { due, .. } => Outcome::Before(due),
        LinkEvent::Drop { cause, .. } => Outcome::Dropped(cause),
        LinkEvent::Duplicate { .. } => panic!("nothing is duplicated here"),
    })
}

fn came(arrivals: &[ScriptedArrival]) -> BTreeMap<u64, Instant> {
    arrivals.iter().map(|arrival| (arrival.packet.id, arrival.at)).collect()
}

/// Reference of a link without loss: one packet after the other, with exact times as fractions of the rate.
fn reference(config: &LinkConfig, arrivals: &[ScriptedArrival]) -> Vec<Outcome> {
    let rate = u128::from(rate(config).0);
    // Time × rate: nanoseconds times bits per second.
    let mut free = 0_u128;
    let mut queue: VecDeque<(u128, u64)> = VecDeque::new();
    let mut outcomes = Vec::new();
    for ScriptedArrival { at, packet } in singles(arrivals) {
        let now = u128::from(at.as_nanos()) * rate;
        queue.retain(|(finish, _)| *finish > now);
        let held: u64 = queue.iter().map(|(_, bytes)| bytes).sum();
        if held > 0 && held + packet.bytes() > room(config) {
            outcomes.push(Outcome::Dropped(DropCause::Queue));
            continue;
        }
        free = free.max(now) + u128::from(packet.bytes()) * 8_000_000_000;
        queue.push_back((free, packet.bytes()));
        outcomes.push(Outcome::Due(Instant::from_nanos(free.div_ceil(rate) as u64) + config.min_delay()));
    }
    outcomes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn link_without_loss_matches_the_reference((config, arrivals) in scenario()) {
        let config = LinkConfig { loss: LossModel::None, ..config };
        let expected = reference(&config, &arrivals);
        let actual = outcomes(&arrivals, &run_link(&mut link(&config), arrivals.iter().copied()));
        prop_assert_eq!(actual.len(), expected.len());
        for (actual, expected) in actual.iter().zip(&expected) {
            match (actual, expected) {
                // A slice may leave late, but never early.
                (Outcome::Before(slice), Outcome::Due(due)) => prop_assert!(slice >= due),
                (actual, expected) => prop_assert_eq!(actual, expected),
            }
        }
    }

    #[test]
    fn super_packets_and_singles_have_equal_outcomes((config, arrivals) in scenario()) {
        let apart = singles(&arrivals);
        let alone = outcomes(&apart, &run_link(&mut link(&config), apart.iter().copied()));
        let together = outcomes(&arrivals, &run_link(&mut link(&config), arrivals.iter().copied()));
        for (alone, together) in alone.iter().zip(&together) {
            prop_assert_eq!(alone.cause(), together.cause());
            if let Outcome::Due(due) = together {
                prop_assert_eq!(&Outcome::Due(*due), alone);
            }
        }
    }

    #[test]
    fn output_is_the_input_in_order((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let events = run_link(&mut link, arrivals.iter().copied());
        outcomes(&arrivals, &events);
        let forwarded: Vec<_> = events.iter().filter_map(|event| match event {
            LinkEvent::Forward { packet, due } => Some((*due, packet.id, packet.first)),
            _ => None,
        }).collect();
        prop_assert!(forwarded.is_sorted());
        let stats = link.stats();
        let sum = |of: fn(&PacketCount) -> u64| of(&stats.forwarded) + of(&stats.dropped.total());
        prop_assert_eq!(stats.offered.packets, arrivals.iter().map(|a| u64::from(a.packet.count)).sum::<u64>());
        prop_assert_eq!(stats.offered.packets, sum(|count| count.packets));
        prop_assert_eq!(stats.offered.bytes.0, sum(|count| count.bytes.0));
        prop_assert_eq!(stats.queued, Bytes(0));
    }

    #[test]
    fn packets_are_never_early_or_above_the_rate((config, arrivals) in scenario()) {
        let came = came(&arrivals);
        let rate = rate(&config).0;
        let mut bytes = 0;
        // Bits sent minus bits that the line can send: the minimum so far.
        let mut lowest: Option<i128> = None;
        for event in run_link(&mut link(&config), arrivals.iter().copied()) {
            let LinkEvent::Forward { packet, due } = event else { continue };
            let sending = Duration::from_nanos((packet.bytes() * 8_000_000_000).div_ceil(rate));
            prop_assert!(due >= came[&packet.id] + sending + config.min_delay());
            bytes += i128::from(packet.bytes());
            let excess = bytes * 8_000_000_000 - i128::from(rate) * i128::from(due.as_nanos());
            // Bits between two ranges fit between their times. Times are rounded up to 1 ns.
            prop_assert!(excess - lowest.unwrap_or(excess) <= i128::from(rate));
            lowest = Some(lowest.map_or(excess, |lowest| lowest.min(excess)));
        }
    }

    #[test]
    fn slices_respect_the_maximum_time((config, arrivals) in scenario()) {
        for event in run_link(&mut link(&config), arrivals.iter().copied()) {
            let LinkEvent::Forward { packet, .. } = event else { continue };
            prop_assert!(packet.count == 1 || rate(&config).time_for(Bytes(packet.bytes())) <= config.slice);
        }
    }

    #[test]
    fn queue_stays_within_its_limit((config, arrivals) in scenario()) {
        let mut link = link(&config);
        let largest = arrivals.iter().map(|a| u64::from(a.packet.wire_len.max(a.packet.last_wire_len))).max().unwrap_or(0);
        let limit = room(&config).max(largest);
        let longest = Duration::from_nanos((limit * 8_000_000_000).div_ceil(rate(&config).0));
        let came = came(&arrivals);
        for event in run_link(&mut link, arrivals.iter().copied()) {
            let LinkEvent::Forward { packet, due } = event else { continue };
            prop_assert!(due <= came[&packet.id] + longest + config.max_delay() + Duration::from_nanos(1));
        }
        prop_assert!(link.stats().queue_peak.0 <= limit);
    }

    #[test]
    fn poll_frequency_does_not_change_outcomes((config, arrivals) in scenario(), every in 1_usize..10) {
        let expected = outcomes(&arrivals, &run_link(&mut link(&config), arrivals.iter().copied()));
        let events = poll_every(&mut link(&config), &arrivals, every);
        prop_assert_eq!(outcomes(&arrivals, &events), expected);
    }

    /// Without an overflow, an arrival with an early timestamp has the same outcome as an arrival pushed in time.
    #[test]
    fn late_arrivals_keep_their_timestamps((config, arrivals) in scenario(), late in 0_u64..3_000_000) {
        let config = LinkConfig { queue: Bytes((60 * 64 * 9014).min(rate(&config).0 * 10_000)).into(), ..config };
        let mut punctual = link(&config);
        let expected = outcomes(&arrivals, &run_link(&mut punctual, arrivals.iter().copied()));
        if punctual.stats().dropped[DropCause::Queue].packets > 0 {
            return Ok(());
        }
        let events = push_late(&mut link(&config), &arrivals, Duration::from_nanos(late));
        prop_assert_eq!(outcomes(&arrivals, &events), expected);
    }

    /// A poll at the event time moves the link forward, and no packet leaves earlier.
    #[test]
    fn next_event_time_is_exact((config, arrivals) in scenario()) {
        poll_at_event_times(&mut link(&config), &arrivals)?;
    }
}

#[test]
fn idle_link_adds_only_sending_time_and_delay() {
    let delay = Duration::from_micros(269_500);
    let mut link =
        link(&LinkConfig { rate: BitRate(135_000_000).into(), delay: delay.into(), ..LinkConfig::default() });
    for second in 0..100 {
        let at = Instant::from_nanos(second * 1_000_000_000);
        let packet = Packet::single(second, 1514);
        // 12,112 bits at 135 Mb/s are 89,718.5 ns.
        let due = at + Duration::from_nanos(89_719) + delay;
        assert_eq!(run_link(&mut link, [ScriptedArrival { at, packet }]), [LinkEvent::Forward { packet, due }]);
    }
}

#[test]
fn busy_line_does_not_drift() {
    // 1,350,000 packets of 1,250 B at 135 Mb/s take exactly 100 s, although one packet takes 74,074.07… ns.
    let config =
        LinkConfig { rate: BitRate(135_000_000).into(), queue: Bytes(1 << 31).into(), ..LinkConfig::default() };
    let arrivals = (0..1_350_000).map(|id| ScriptedArrival { at: Instant::ZERO, packet: Packet::single(id, 1250) });
    let events = run_link(&mut link(&config), arrivals);
    assert_eq!(events.last().map(LinkEvent::at), Some(Instant::from_nanos(100_000_000_000)));
    assert_eq!(events.len(), 1_350_000);
}

#[test]
fn slices_follow_the_rate() {
    let largest = |rate: u64| {
        let config = LinkConfig { rate: BitRate(rate).into(), queue: Bytes(1 << 20).into(), ..LinkConfig::default() };
        let packet = Packet::super_packet(0, 45, 1514, 1514);
        let events = run_link(&mut link(&config), [ScriptedArrival { at: Instant::ZERO, packet }]);
        let count = |event: &LinkEvent| match event {
            LinkEvent::Forward { packet, .. }
            | LinkEvent::Drop { packet, .. }
            | LinkEvent::Duplicate { packet, .. } => packet.count,
        };
        events.iter().map(count).max()
    };
    assert_eq!([135_000_000, 1_000_000_000, 5_000_000_000].map(largest), [Some(1), Some(12), Some(45)]);
}

/// Returns the indices of lost packets of `count` packets, with `size` packets per super-packet.
fn lost(loss: f64, seed: u64, direction: LinkDirection, count: u32, size: u32) -> Vec<u32> {
    let loss = Ratio::new(loss).unwrap().into();
    let config = LinkConfig { rate: BitRate(1_000_000_000_000).into(), loss, seed, direction, ..LinkConfig::default() };
    let arrivals = (0..count / size).map(|id| ScriptedArrival {
        at: Instant::from_nanos(u64::from(id) * 1_000_000),
        packet: Packet::super_packet(u64::from(id), size, 1514, 1514),
    });
    let mut lost = Vec::new();
    for event in run_link(&mut link(&config), arrivals) {
        if let LinkEvent::Drop { packet, cause, .. } = event {
            assert_eq!(cause, DropCause::Loss);
            let first = packet.id as u32 * size + packet.first;
            lost.extend(first..first + packet.count);
        }
    }
    lost
}

#[test]
fn independent_losses_match_the_probability() {
    const COUNT: u32 = 1_000_000;
    for (loss, seed) in [(1e-4, 1), (1e-3, 2), (0.01, 3), (0.1, 4), (0.5, 5), (0.9, 6)] {
        let lost = lost(loss, seed, LinkDirection::Forward, COUNT, 40);
        // Binomial, two-sided 99.9 %: 3.29 standard deviations, plus half a packet for rounding.
        let within = |seen: usize, of: f64, probability: f64| {
            let deviation = 3.29 * (of * probability * (1.0 - probability)).sqrt() + 0.5;
            assert!((seen as f64 - of * probability).abs() < deviation, "{loss}: {seen} of {of} at {probability}");
        };
        within(lost.len(), f64::from(COUNT), loss);
        // Independent losses: a loss follows a loss as often as any packet.
        let adjacent = lost.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        within(adjacent, lost.len() as f64, loss);
        // Half of the gaps are below the median of the geometric distribution.
        let median = (0.5_f64.ln() / (-loss).ln_1p()).ceil();
        let reach = 1.0 - (1.0 - loss).powf(median);
        let short = lost.windows(2).filter(|pair| f64::from(pair[1] - pair[0]) <= median).count();
        within(short, lost.len() as f64, reach);
    }
}

#[test]
fn seed_and_direction_determine_the_draws() {
    let drops = |seed, direction| lost(0.01, seed, direction, 100_000, 1);
    let first = drops(7, LinkDirection::Forward);
    assert_eq!(first, drops(7, LinkDirection::Forward));
    assert_eq!(first, lost(0.01, 7, LinkDirection::Forward, 100_000, 50));
    for other in [drops(8, LinkDirection::Forward), drops(7, LinkDirection::Return)] {
        // About 10 of 1,000 losses coincide by chance.
        let same = first.iter().filter(|index| other.contains(index)).count();
        assert!(same < 40, "{same}");
    }
    assert_eq!(lost(1.0, 1, LinkDirection::Forward, 1000, 10).len(), 1000);
}

#[test]
fn invalid_settings_are_refused() {
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
fn memory_of_acts_path_is_little_above_its_bytes() {
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
