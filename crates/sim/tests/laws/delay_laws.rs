//! Delays in virtual time: their values, their distribution and the order of packets.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{JitterDistribution, Link, LinkConfig, LinkEvent, LinkJitter, Packet, Timetable};
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use crate::support::{link, poll_at_event_times, singles};

const MS: Duration = Duration::from_millis(1);
const COUNT: u64 = 1_000_000;
/// Critical value of the Kolmogorov-Smirnov statistic at 99.9 %, times the root of the number of values.
const KOLMOGOROV: f64 = 1.95;

/// Returns a configuration with a negligible sending time.
fn base() -> LinkConfig {
    LinkConfig { rate: BitRate(10_000_000_000_000).into(), queue: Bytes(1 << 40).into(), ..LinkConfig::default() }
}

fn jitter(text: &str) -> LinkJitter {
    text.parse().unwrap()
}

/// Returns packets of one byte, which take a nanosecond to send. With `gap` between them no packet reaches the one
/// before it.
fn apart(count: u64, gap: Duration) -> impl Iterator<Item = ScriptedArrival> {
    (0..count).map(move |id| ScriptedArrival { at: Instant::ZERO + gap * id as u32, packet: Packet::single(id, 1) })
}

/// Returns the forwarded packets with their times.
fn forwarded(events: &[LinkEvent]) -> Vec<(Packet, Instant)> {
    events
        .iter()
        .filter_map(|event| match *event {
            LinkEvent::Forward { packet, due } => Some((packet, due)),
            _ => None,
        })
        .collect()
}

/// Returns the delays of `COUNT` packets in the order of arrival, as spreads from the configured delay.
fn draws(text: &str, seed: u64) -> Vec<f64> {
    let (delay, spread) = (100 * MS, jitter(text).spread);
    // The gap exceeds every tail, so no packet waits for another one even if the order is kept.
    let gap = 200 * MS;
    let config = LinkConfig { delay: delay.into(), jitter: jitter(text), seed, ..base() };
    let events = run_link(&mut link(&config), apart(COUNT, gap));
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

/// Returns the correlation of neighbouring values.
fn correlation(values: &[f64]) -> f64 {
    let (mean, deviation) = (mean(values), deviation(values));
    let products = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean));
    products.sum::<f64>() / (values.len() - 1) as f64 / (deviation * deviation)
}

/// Returns the rank of each value among all values, from 0 to 1.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    for (rank, index) in order.into_iter().enumerate() {
        ranks[index] = rank as f64 / values.len() as f64;
    }
    ranks
}

/// Returns the maximum distance between the observed and the expected distribution, times the root of the number of
/// values.
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

/// Normal distribution by Simpson's rule, which is independent of the tested formula.
fn normal(value: f64) -> f64 {
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let steps = 200;
    let step = value / f64::from(steps);
    let weight = |index: i32| if index == 0 || index == steps { 1.0 } else { f64::from(2 + 2 * (index % 2)) };
    0.5 + (0..=steps).map(|index| weight(index) * density(f64::from(index) * step)).sum::<f64>() * step / 3.0
}

/// Pareto distribution of shape 3 from 1 to 20, shifted and scaled to a mean of 0 and a deviation of 1.
fn pareto(value: f64) -> f64 {
    let whole = 1.0 - 20_f64.powi(-3);
    let mean = 1.5 * (1.0 - 20_f64.powi(-2)) / whole;
    let deviation = (3.0 * (1.0 - 1.0 / 20.0) / whole - mean * mean).sqrt();
    ((1.0 - (value * deviation + mean).powi(-3)) / whole).clamp(0.0, 1.0)
}

#[test]
fn delays_follow_their_distribution() {
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
        // The square of a Pareto variable of shape 3 has a variance only because the tail is limited.
        let deviation = deviation(&drawn);
        assert!((deviation - deviation_wanted).abs() < 0.02, "{text}: deviation {deviation}");
        let (low, high) = jitter(text).max_change();
        let within = |value: &f64| *value * 5e6 >= -(low.as_nanos() as f64) && *value * 5e6 <= high.as_nanos() as f64;
        assert!(drawn.iter().all(within), "{text}");
        assert!(correlation(&drawn).abs() < 0.004, "{text}: {}", correlation(&drawn));
    }
}

#[test]
fn correlation_keeps_the_delay_distribution() {
    for (text, wanted, cumulative) in [
        ("5ms:corr=25%", 0.25_f64, uniform as fn(f64) -> f64),
        ("5ms:corr=90%", 0.9, uniform),
        ("normal:5ms:corr=75%", 0.75, normal),
        ("pareto:5ms:corr=50%", 0.5, pareto),
    ] {
        let drawn = draws(text, 2);
        // Neighbours are similar, so the number of independent values is about (1 − r)/(1 + r) of the number of
        // packets.
        let distance = kolmogorov(&drawn, cumulative) * ((1.0 - wanted) / (1.0 + wanted)).sqrt();
        assert!(distance < KOLMOGOROV, "{text}: {distance}");
        let (measured, of) = match jitter(text).distribution {
            JitterDistribution::Normal => (correlation(&drawn), "delays"),
            _ => (correlation(&ranks(&drawn)), "ranks"),
        };
        assert!((measured - wanted).abs() < 0.006, "{text}: correlation of {of} {measured}");
        if jitter(text).distribution == JitterDistribution::Uniform {
            assert!((correlation(&drawn) - wanted).abs() < 0.006, "{text}: {}", correlation(&drawn));
        }
    }
}

#[test]
fn no_delay_is_below_zero() {
    let config = LinkConfig { delay: MS.into(), jitter: jitter("10ms:reorder"), ..base() };
    let gap = 30 * MS;
    let events = run_link(&mut link(&config), apart(100_000, gap));
    let took = |&(packet, due): &(Packet, Instant)| due - (Instant::ZERO + gap * packet.id as u32);
    let at_once = forwarded(&events).iter().filter(|forwarded| took(forwarded) == Duration::from_nanos(1)).count();
    // 9 ms of the range of 20 ms are below zero.
    assert!((44_000..46_000).contains(&at_once), "{at_once}");
}

#[test]
fn order_is_kept_unless_reorder_is_set() {
    let gap = Duration::from_micros(100);
    let ids = |text: &str| {
        let config = LinkConfig { delay: (20 * MS).into(), jitter: jitter(text), ..base() };
        let events = run_link(&mut link(&config), apart(100_000, gap));
        forwarded(&events).iter().map(|(packet, _)| packet.id).collect::<Vec<_>>()
    };
    for text in ["5ms", "normal:5ms", "pareto:5ms:corr=50%"] {
        assert!(ids(text).is_sorted(), "{text}");
    }
    let ids = ids("5ms:reorder");
    // 100 packets arrive within the spread, so almost no two neighbours leave as neighbours.
    let inversions = ids.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!((45_000..55_000).contains(&inversions), "{inversions}");
    let farthest = ids.iter().enumerate().map(|(place, id)| (*id as i64 - place as i64).abs()).max().unwrap();
    assert!((50..=100).contains(&farthest), "{farthest}");
}

#[test]
fn delay_timetable_is_exact_and_keeps_order() {
    let steps = vec![(Duration::ZERO, 30 * MS), (100 * MS, 10 * MS), (200 * MS, 50 * MS)];
    let delay = Timetable::new(steps, Some(300 * MS)).unwrap();
    let epoch = Instant::from_nanos(5_000_000_000);
    let config = LinkConfig { delay: delay.clone(), epoch, ..base() };
    let run = |config: &LinkConfig| {
        let arrivals =
            (0..1000_u64).map(|id| ScriptedArrival { at: epoch + MS * id as u32, packet: Packet::single(id, 1) });
        forwarded(&run_link(&mut link(config), arrivals))
    };
    let mut latest = Instant::ZERO;
    for (packet, due) in run(&config) {
        let sent = epoch + MS * packet.id as u32 + Duration::from_nanos(1);
        latest = latest.max(sent + delay.value_at(sent - epoch));
        assert_eq!(due, latest, "{packet:?}");
    }
    // With different paths a packet sent after the drop arrives before a packet sent ahead of it.
    let overtaking = run(&LinkConfig { jitter: jitter("0:reorder"), ..config });
    for (packet, due) in &overtaking {
        let sent = epoch + MS * packet.id as u32 + Duration::from_nanos(1);
        assert_eq!(*due, sent + delay.value_at(sent - epoch), "{packet:?}");
    }
    assert!(!overtaking.iter().map(|(packet, _)| packet.id).is_sorted());
}

#[test]
fn packets_in_flight_survive_setting_changes() {
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
    for ScriptedArrival { at, packet } in apart(6000, Duration::from_micros(100)) {
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
    // Packets that arrived while the order was kept did not overtake.
    for kept in [0_u64..2000, 3000..4000, 5000..6000] {
        assert!(ids.iter().filter(|id| kept.contains(*id)).is_sorted());
    }
    assert!(!ids.is_sorted());
    ids.sort_unstable();
    assert_eq!(ids, (0..6000).collect::<Vec<_>>());
}

/// Strategy for arrivals of single packets and super-packets, often at the same time.
fn arrivals() -> impl Strategy<Value = Vec<ScriptedArrival>> {
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], prop_oneof![Just(0), 0_u64..3_000_000]);
    prop::collection::vec(packet, 1..60).prop_map(|packets| {
        let mut at = Instant::ZERO;
        let mut arrivals = Vec::new();
        for ((count, gap), id) in packets.into_iter().zip(0..) {
            at += Duration::from_nanos(gap);
            arrivals.push(ScriptedArrival { at, packet: Packet::super_packet(id, count, 1514, 1514) });
        }
        arrivals
    })
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let kind = prop_oneof![
        Just(JitterDistribution::Uniform),
        Just(JitterDistribution::Normal),
        Just(JitterDistribution::Pareto)
    ];
    let jitter =
        (0_u64..20_000_000, kind, 0.0..0.99, any::<bool>()).prop_map(|(spread, distribution, corr, reorder)| {
            LinkJitter {
                spread: Duration::from_nanos(spread),
                distribution,
                correlation: Ratio::new(corr).unwrap(),
                reorder,
            }
        });
    (prop::collection::vec(0_u64..40_000_000, 1..4), jitter, any::<u64>()).prop_map(|(delays, jitter, seed)| {
        let steps = delays.into_iter().zip(0..).map(|(delay, index)| (MS * index * 20, Duration::from_nanos(delay)));
        LinkConfig { delay: Timetable::new(steps.collect(), None).unwrap(), jitter, seed, ..base() }
    })
}

/// Returns the time at which every virtual packet leaves, in the order of arrival.
fn instants(arrivals: &[ScriptedArrival], config: &LinkConfig) -> Vec<(u64, u32, Instant)> {
    let events = run_link(&mut link(config), arrivals.iter().copied());
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
    fn every_packet_leaves_within_the_delay_bounds((config, arrivals) in (config(), arrivals())) {
        let instants = instants(&arrivals, &config);
        prop_assert_eq!(instants.len(), arrivals.iter().map(|arrival| arrival.packet.count as usize).sum::<usize>());
        // At 10 Tb/s the sending of the longest super-packet takes 2 µs, and all of them take at most this time.
        let sending = Duration::from_micros(6);
        let last = arrivals.last().unwrap().at;
        for (id, _, due) in instants {
            prop_assert!(due >= arrivals[id as usize].at + config.min_delay());
            let latest = if config.jitter.reorder { arrivals[id as usize].at } else { last };
            prop_assert!(due <= latest + config.max_delay() + sending);
        }
    }

    /// The n-th virtual packet gets the n-th draw, in single packets and in super-packets.
    #[test]
    fn super_packets_jitter_like_singles((config, arrivals) in (config(), arrivals())) {
        // Complete super-packets arrive at one instant, so the line adds nothing.
        let config = LinkConfig { slice: Duration::from_secs(1), ..config };
        let together = instants(&arrivals, &config);
        let alone = instants(&singles(&arrivals), &config);
        for ((_, _, together), (_, _, alone)) in together.iter().zip(&alone) {
            // The last bit of a super-packet is sent up to 64 packets of 1.2 ns after the last bit of a single packet.
            let apart = together.saturating_since(*alone).max(alone.saturating_since(*together));
            let delays_differ = config.delay.as_constant().is_none();
            prop_assert!(apart <= Duration::from_nanos(200) || delays_differ, "{apart:?}");
        }
    }

    #[test]
    fn next_event_time_is_exact((config, arrivals) in (config(), arrivals())) {
        poll_at_event_times(&mut link(&config), &arrivals)?;
    }
}
