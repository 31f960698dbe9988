//! Laws of the delay: how long packets take, how often, and who overtakes whom, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::time::Duration;

use lfn_core::link::{Distribution, Event, Jitter, Link, LinkConfig, Packet, Varying};
use lfn_core::sim::{Arrival, run};
use lfn_core::time::Instant;
use lfn_core::units::{BitRate, Bytes, Ratio};
use proptest::prelude::*;
use support::{link, poll_as_told, singles};

const MS: Duration = Duration::from_millis(1);
const COUNT: u64 = 1_000_000;
/// Critical value of Kolmogorov and Smirnov's statistic at 99.9 %, times the root of the number of values.
const KOLMOGOROV: f64 = 1.95;

/// So fast that sending takes no time to speak of.
fn base() -> LinkConfig {
    LinkConfig { rate: BitRate(10_000_000_000_000).into(), queue: Bytes(1 << 40).into(), ..LinkConfig::default() }
}

fn jitter(text: &str) -> Jitter {
    text.parse().unwrap()
}

/// Packets of one byte, which take a nanosecond to send, so far apart that none catches up with another.
fn apart(count: u64, gap: Duration) -> impl Iterator<Item = Arrival> {
    (0..count).map(move |id| Arrival { at: Instant::ZERO + gap * id as u32, packet: Packet::single(id, 1) })
}

/// What came out, as (id, first, count, due).
fn forwarded(events: &[Event]) -> Vec<(Packet, Instant)> {
    events
        .iter()
        .filter_map(|event| match *event {
            Event::Forward { packet, due } => Some((packet, due)),
            _ => None,
        })
        .collect()
}

/// The delays of `COUNT` packets in the order of arrival, in spreads from the delay that was set.
fn draws(text: &str, seed: u64) -> Vec<f64> {
    let (delay, spread) = (100 * MS, jitter(text).spread);
    // Far apart for any tail: with order kept, too, nobody waits for another.
    let gap = 200 * MS;
    let config = LinkConfig { delay: delay.into(), jitter: jitter(text), seed, ..base() };
    let events = run(&mut link(&config), apart(COUNT, gap));
    forwarded(&events)
        .into_iter()
        .map(|(packet, due)| {
            let took = due - (Instant::ZERO + gap * packet.id as u32) - Duration::from_nanos(1);
            (took.as_secs_f64() - delay.as_secs_f64()) / spread.as_secs_f64()
        })
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// Of neighbours.
fn correlation(values: &[f64]) -> f64 {
    let (mean, deviation) = (mean(values), deviation(values));
    let products = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean));
    products.sum::<f64>() / (values.len() - 1) as f64 / (deviation * deviation)
}

/// Where each value stands among all, from 0 to 1.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    for (rank, index) in order.into_iter().enumerate() {
        ranks[index] = rank as f64 / values.len() as f64;
    }
    ranks
}

/// The greatest distance between how often values come and how often they should, times the root of their number.
fn kolmogorov(values: &[f64], cumulative: impl Fn(f64) -> f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let distance = sorted.iter().enumerate().map(|(index, value)| {
        let expected = cumulative(*value);
        (expected - index as f64 / count).abs().max((expected - (index + 1) as f64 / count).abs())
    });
    distance.fold(0.0, f64::max) * count.sqrt()
}

fn uniform(value: f64) -> f64 {
    ((value + 1.0) / 2.0).clamp(0.0, 1.0)
}

/// The normal distribution, by Simpson's rule: no formula shared with what is tested.
fn normal(value: f64) -> f64 {
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let steps = 200;
    let step = value / f64::from(steps);
    let weight = |index: i32| if index == 0 || index == steps { 1.0 } else { f64::from(2 + 2 * (index % 2)) };
    0.5 + (0..=steps).map(|index| weight(index) * density(f64::from(index) * step)).sum::<f64>() * step / 3.0
}

/// Shape 3, from 1 to 20, then moved and scaled to a mean of 0 and a deviation of 1.
fn pareto(value: f64) -> f64 {
    let whole = 1.0 - 20_f64.powi(-3);
    let mean = 1.5 * (1.0 - 20_f64.powi(-2)) / whole;
    let deviation = (3.0 * (1.0 - 1.0 / 20.0) / whole - mean * mean).sqrt();
    ((1.0 - (value * deviation + mean).powi(-3)) / whole).clamp(0.0, 1.0)
}

#[test]
fn delays_come_as_often_as_their_distribution_says() {
    for (text, deviation_wanted, cumulative) in [
        ("5ms", 1.0 / 3_f64.sqrt(), uniform as fn(f64) -> f64),
        ("normal:5ms", 1.0, normal),
        ("pareto:5ms", 1.0, pareto),
        ("pareto:5ms:reorder", 1.0, pareto),
    ] {
        let drawn = draws(text, 1);
        assert_eq!(drawn.len() as u64, COUNT);
        let distance = kolmogorov(&drawn, cumulative);
        assert!(distance < KOLMOGOROV, "{text}: {distance}");
        assert!(mean(&drawn).abs() < 0.005, "{text}: mean {}", mean(&drawn));
        // The square of a Pareto variable of shape 3 has no variance but for the end of the tail.
        let deviation = deviation(&drawn);
        assert!((deviation - deviation_wanted).abs() < 0.02, "{text}: deviation {deviation}");
        let (low, high) = jitter(text).reach();
        let within = |value: &f64| *value * 5e6 >= -(low.as_nanos() as f64) && *value * 5e6 <= high.as_nanos() as f64;
        assert!(drawn.iter().all(within), "{text}");
        assert!(correlation(&drawn).abs() < 0.004, "{text}: {}", correlation(&drawn));
    }
}

#[test]
fn a_correlation_changes_the_order_of_delays_and_not_how_often_they_come() {
    for (text, wanted, cumulative) in [
        ("5ms:corr=25%", 0.25_f64, uniform as fn(f64) -> f64),
        ("5ms:corr=90%", 0.9, uniform),
        ("normal:5ms:corr=75%", 0.75, normal),
        ("pareto:5ms:corr=50%", 0.5, pareto),
    ] {
        let drawn = draws(text, 2);
        // Neighbours are alike, so that there are fewer independent values than packets: about (1 − r)/(1 + r) of them.
        let distance = kolmogorov(&drawn, cumulative) * ((1.0 - wanted) / (1.0 + wanted)).sqrt();
        assert!(distance < KOLMOGOROV, "{text}: {distance}");
        let (measured, of) = match jitter(text).distribution {
            Distribution::Normal => (correlation(&drawn), "delays"),
            _ => (correlation(&ranks(&drawn)), "ranks"),
        };
        assert!((measured - wanted).abs() < 0.006, "{text}: correlation of {of} {measured}");
        if jitter(text).distribution == Distribution::Uniform {
            assert!((correlation(&drawn) - wanted).abs() < 0.006, "{text}: {}", correlation(&drawn));
        }
    }
}

#[test]
fn no_delay_is_below_zero() {
    let config = LinkConfig { delay: MS.into(), jitter: jitter("10ms:reorder"), ..base() };
    let gap = 30 * MS;
    let events = run(&mut link(&config), apart(100_000, gap));
    let took = |&(packet, due): &(Packet, Instant)| due - (Instant::ZERO + gap * packet.id as u32);
    let at_once = forwarded(&events).iter().filter(|forwarded| took(forwarded) == Duration::from_nanos(1)).count();
    // 9 of the 20 ms between the least and the most lie below zero.
    assert!((44_000..46_000).contains(&at_once), "{at_once}");
}

#[test]
fn order_is_kept_unless_it_need_not_be() {
    let gap = Duration::from_micros(100);
    let ids = |text: &str| {
        let config = LinkConfig { delay: (20 * MS).into(), jitter: jitter(text), ..base() };
        let events = run(&mut link(&config), apart(100_000, gap));
        forwarded(&events).iter().map(|(packet, _)| packet.id).collect::<Vec<_>>()
    };
    for text in ["5ms", "normal:5ms", "pareto:5ms:corr=50%"] {
        assert!(ids(text).is_sorted(), "{text}");
    }
    let ids = ids("5ms:reorder");
    // 100 packets in the time that delays differ by: hardly any leaves next to the one it came next to.
    let inversions = ids.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!((45_000..55_000).contains(&inversions), "{inversions}");
    let farthest = ids.iter().enumerate().map(|(place, id)| (*id as i64 - place as i64).abs()).max().unwrap();
    assert!((50..=100).contains(&farthest), "{farthest}");
}

#[test]
fn a_timetable_is_followed_to_the_instant_and_nothing_overtakes_when_the_delay_drops() {
    let steps = vec![(Duration::ZERO, 30 * MS), (100 * MS, 10 * MS), (200 * MS, 50 * MS)];
    let delay = Varying::new(steps, Some(300 * MS)).unwrap();
    let epoch = Instant::from_nanos(5_000_000_000);
    let config = LinkConfig { delay: delay.clone(), epoch, ..base() };
    let run = |config: &LinkConfig| {
        let arrivals = (0..1000_u64).map(|id| Arrival { at: epoch + MS * id as u32, packet: Packet::single(id, 1) });
        forwarded(&run(&mut link(config), arrivals))
    };
    let mut latest = Instant::ZERO;
    for (packet, due) in run(&config) {
        let sent = epoch + MS * packet.id as u32 + Duration::from_nanos(1);
        latest = latest.max(sent + delay.at(sent - epoch));
        assert_eq!(due, latest, "{packet:?}");
    }
    // As it is where paths differ: what is sent after the drop comes before what was sent ahead of it.
    let overtaking = run(&LinkConfig { jitter: jitter("0:reorder"), ..config });
    for (packet, due) in &overtaking {
        let sent = epoch + MS * packet.id as u32 + Duration::from_nanos(1);
        assert_eq!(*due, sent + delay.at(sent - epoch), "{packet:?}");
    }
    assert!(!overtaking.iter().map(|(packet, _)| packet.id).is_sorted());
}

#[test]
fn what_is_in_flight_stays_in_flight_when_settings_change() {
    let config = |delay: Duration, text: &str| LinkConfig { delay: delay.into(), jitter: jitter(text), ..base() };
    let settings = [
        config(20 * MS, "0"),
        config(5 * MS, "0"),
        config(20 * MS, "5ms:reorder"),
        config(2 * MS, "normal:1ms"),
        config(30 * MS, "0:reorder"),
        config(MS, "0"),
    ];
    let mut link = Link::new(&settings[0]).unwrap();
    let mut events = Vec::new();
    for Arrival { at, packet } in apart(6000, Duration::from_micros(100)) {
        if packet.id % 1000 == 0 {
            link.set(0, &settings[packet.id as usize / 1000], at).unwrap();
        }
        link.push(packet, at);
        events.extend(std::iter::from_fn(|| link.poll(at)));
    }
    events.extend(std::iter::from_fn(|| link.poll(Instant::from_nanos(u64::MAX))));
    let forwarded = forwarded(&events);
    assert!(forwarded.is_sorted_by_key(|(_, due)| *due));
    let mut ids: Vec<_> = forwarded.iter().map(|(packet, _)| packet.id).collect();
    // Whatever came while order was kept did not overtake.
    for kept in [0_u64..2000, 3000..4000, 5000..6000] {
        assert!(ids.iter().filter(|id| kept.contains(*id)).is_sorted());
    }
    assert!(!ids.is_sorted());
    ids.sort_unstable();
    assert_eq!(ids, (0..6000).collect::<Vec<_>>());
}

/// Arrivals of single and super-packets, often at once.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], prop_oneof![Just(0), 0_u64..3_000_000]);
    prop::collection::vec(packet, 1..60).prop_map(|packets| {
        let mut at = Instant::ZERO;
        let mut arrivals = Vec::new();
        for ((count, gap), id) in packets.into_iter().zip(0..) {
            at += Duration::from_nanos(gap);
            arrivals.push(Arrival { at, packet: Packet::several(id, count, 1514, 1514) });
        }
        arrivals
    })
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let kind = prop_oneof![Just(Distribution::Uniform), Just(Distribution::Normal), Just(Distribution::Pareto)];
    let jitter =
        (0_u64..20_000_000, kind, 0.0..0.99, any::<bool>()).prop_map(|(spread, distribution, corr, reorder)| Jitter {
            spread: Duration::from_nanos(spread),
            distribution,
            correlation: Ratio::new(corr).unwrap(),
            reorder,
        });
    (prop::collection::vec(0_u64..40_000_000, 1..4), jitter, any::<u64>()).prop_map(|(delays, jitter, seed)| {
        let steps = delays.into_iter().zip(0..).map(|(delay, index)| (MS * index * 20, Duration::from_nanos(delay)));
        LinkConfig { delay: Varying::new(steps.collect(), None).unwrap(), jitter, seed, ..base() }
    })
}

/// When every virtual packet leaves, in the order of arrival.
fn instants(arrivals: &[Arrival], config: &LinkConfig) -> Vec<(u64, u32, Instant)> {
    let events = run(&mut link(config), arrivals.iter().copied());
    let mut all = Vec::new();
    for (packet, due) in forwarded(&events) {
        all.extend((packet.first..packet.first + packet.count).map(|index| (packet.id, index, due)));
    }
    all.sort_unstable_by_key(|(id, index, _)| (*id, *index));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_packet_is_lost_early_or_too_late((config, arrivals) in (config(), arrivals())) {
        let instants = instants(&arrivals, &config);
        prop_assert_eq!(instants.len(), arrivals.iter().map(|arrival| arrival.packet.count as usize).sum::<usize>());
        // 10 Tb/s: 2 µs for the longest super-packet, and all of them at most.
        let sending = Duration::from_micros(6);
        let last = arrivals.last().unwrap().at;
        for (id, _, due) in instants {
            prop_assert!(due >= arrivals[id as usize].at + config.least_delay());
            let latest = if config.jitter.reorder { arrivals[id as usize].at } else { last };
            prop_assert!(due <= latest + config.longest_delay() + sending);
        }
    }

    /// The n-th virtual packet has the n-th draw, whatever it came in.
    #[test]
    fn super_packets_jitter_as_single_packets_do((config, arrivals) in (config(), arrivals())) {
        // Whole super-packets at an instant each, with nothing of the line's in it.
        let config = LinkConfig { slice: Duration::from_secs(1), ..config };
        let together = instants(&arrivals, &config);
        let alone = instants(&singles(&arrivals), &config);
        for ((_, _, together), (_, _, alone)) in together.iter().zip(&alone) {
            // A super-packet's last bit was sent up to 64 packets of 1.2 ns after a single one's.
            let apart = together.saturating_since(*alone).max(alone.saturating_since(*together));
            let delays_differ = config.delay.as_constant().is_none();
            prop_assert!(apart <= Duration::from_nanos(200) || delays_differ, "{apart:?}");
        }
    }

    #[test]
    fn next_is_when_something_leaves((config, arrivals) in (config(), arrivals())) {
        poll_as_told(&mut link(&config), &arrivals)?;
    }
}
