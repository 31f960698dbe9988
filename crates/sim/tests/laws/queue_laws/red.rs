//! RED: its average against a reference that uses the actual drops, and its drops against their probability.

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{Discipline, DropCause, LinkConfig, LinkEvent, Packet, QueueLimit, Red};
use lfn_packet::Ecn;
use lfn_sim::{ScriptedArrival, run_link};

use crate::support::link;

const PACKET: u32 = 1500;
/// A packet takes a millisecond at this rate.
const RATE: BitRate = BitRate(12_000_000);

fn config(red: Red, ecn: bool, seed: u64) -> LinkConfig {
    LinkConfig {
        rate: RATE.into(),
        queue: Bytes(3_000_000).into(),
        discipline: Discipline::Red(red),
        ecn,
        seed,
        ..LinkConfig::default()
    }
}

fn red(min: u64, max: u64, probability: f64, weight: f64) -> Red {
    Red {
        min: Some(QueueLimit::Bytes(Bytes(min))),
        max: Some(QueueLimit::Bytes(Bytes(max))),
        probability: Ratio::new(probability).unwrap(),
        weight: Ratio::new(weight).unwrap(),
    }
}

/// Expected average of RED for each packet, computed from the outcomes of earlier packets.
struct Seen {
    average: f64,
    cause: Option<DropCause>,
    marked: bool,
}

/// Sends packets at `load` times the line rate, and returns the expected state of RED for each.
fn overload(config: &LinkConfig, weight: f64, count: u64, load: f64, ecn: Ecn) -> Vec<Seen> {
    let gap = (1e6 / load) as u64;
    let times: Vec<_> = (0..count).map(|id| Instant::from_nanos(id * gap)).collect();
    observe(config, weight, &times, ecn)
}

/// Sends packets at these times, and returns the expected state of RED for each.
fn observe(config: &LinkConfig, weight: f64, times: &[Instant], ecn: Ecn) -> Vec<Seen> {
    let arrivals = times
        .iter()
        .zip(0..)
        .map(|(at, id)| ScriptedArrival { at: *at, packet: Packet { ecn, ..Packet::single(id, PACKET) } });
    let mut outcomes = vec![(None, false, Instant::ZERO); times.len()];
    for event in run_link(&mut link(config), arrivals) {
        match event {
            LinkEvent::Drop { packet, cause, at, .. } => outcomes[packet.id as usize] = (Some(cause), false, at),
            LinkEvent::Forward { packet, due } => outcomes[packet.id as usize] = (None, packet.changes.is_marked, due),
            LinkEvent::Duplicate { .. } => {}
        }
    }
    let (mut average, mut leaving) = (0.0, std::collections::VecDeque::new());
    let mut idle_since = Some(Instant::ZERO);
    let mut seen = Vec::new();
    for ((cause, marked, at), &now) in outcomes.into_iter().zip(times) {
        while let Some(&left) = leaving.front().filter(|due| **due <= now) {
            leaving.pop_front();
            idle_since = leaving.is_empty().then_some(left);
        }
        match idle_since {
            // A small packet, of 1,000 bytes, takes two thirds of a millisecond.
            Some(since) => {
                average *= (1.0 - weight).powf(now.saturating_since(since).as_secs_f64() * 1500.0);
                idle_since = Some(now);
            }
            None => average += weight * (f64::from(PACKET) * leaving.len() as f64 - average),
        }
        seen.push(Seen { average, cause, marked });
        if cause.is_none() {
            leaving.push_back(at);
            idle_since = None;
        }
    }
    seen
}

#[test]
fn drops_start_at_min_and_are_total_at_max() {
    for (seed, load, weight) in [(1, 1.05, 0.002), (2, 1.5, 0.01), (3, 3.0, 0.1), (4, 0.9, 1.0), (5, 1.01, 1.0)] {
        let seen =
            overload(&config(red(30_000, 90_000, 0.05, weight), false, seed), weight, 20_000, load, Ecn::Capable);
        let mut between = 0;
        for (index, Seen { average, cause, .. }) in seen.iter().enumerate() {
            // Closer values are within the rounding error.
            if *average < 30_000.0 - 1e-3 {
                assert_eq!(*cause, None, "packet {index} at {average}");
            } else if *average > 90_000.0 + 1e-3 {
                assert_eq!(*cause, Some(DropCause::Aqm), "packet {index} at {average}");
            } else {
                between += 1;
            }
        }
        assert!(load < 1.0 || between > 1000, "{between} between the thresholds");
    }
}

#[test]
fn average_decays_on_an_idle_line_despite_drops() {
    // A burst of 200 packets raises the average far above the upper threshold. After the burst one packet arrives every
    // 5 ms, the time of 7.5 small packets. A few packets are dropped until one is accepted. Without the idle time it
    // would take twenty.
    let weight = 0.02;
    let settings = red(3_000, 9_000, 1.0, weight);
    let mut times = vec![Instant::ZERO; 200];
    times.extend((0..50).map(|id| Instant::from_nanos(40_000_000 + id * 5_000_000)));
    let seen = observe(&config(settings, false, 1), weight, &times, Ecn::NotCapable);
    let dropped = seen[200..].iter().take_while(|seen| seen.cause == Some(DropCause::Aqm)).count();
    assert!((2..10).contains(&dropped), "{dropped}");
    for (index, Seen { average, cause, .. }) in seen.into_iter().enumerate() {
        assert!(average < 9_000.0 || cause.is_some(), "packet {index} at {average}");
        assert!(average > 3_000.0 || cause.is_none(), "packet {index} at {average}");
    }
}

#[test]
fn drops_between_thresholds_are_spread_evenly() {
    // The next drop is the first n for which the sum of the probabilities exceeds a uniform random number from 0 to 1.
    // With p changing slowly, n·p at the drop is this number, within p.
    const BINS: usize = 10;
    let (min, max, probability, weight) = (30_000.0, 600_000.0, 0.02, 0.002);
    let mut bins = [0_u32; BINS];
    for seed in 0..40 {
        let config = config(red(min as u64, max as u64, probability, weight), false, seed);
        let mut since = None;
        for Seen { average, cause, .. } in overload(&config, weight, 20_000, 1.02, Ecn::NotCapable) {
            if !(min..max).contains(&average) {
                since = None;
                continue;
            }
            let Some(count) = since else {
                assert_eq!(cause, None, "the first between the thresholds");
                since = Some(0);
                continue;
            };
            let now = f64::from(count + 1) * probability * (average - min) / (max - min);
            since = Some(count + 1);
            if cause.is_some() {
                // The random number lies between this value and the value one packet earlier. The middle is used.
                let middle = now * (f64::from(count) + 0.5) / f64::from(count + 1);
                bins[((middle * BINS as f64) as usize).min(BINS - 1)] += 1;
                since = Some(0);
            }
        }
    }
    let total: u32 = bins.iter().sum();
    let expected = f64::from(total) / BINS as f64;
    assert!(total > 2000, "{total}");
    let chi_square: f64 = bins.iter().map(|bin| (f64::from(*bin) - expected).powi(2) / expected).sum();
    // Nine degrees of freedom, 99.9 %.
    assert!(chi_square < 27.88, "{bins:?}: {chi_square}");
}

#[test]
fn marks_replace_drops_only_below_the_max_threshold() {
    let weight = 0.01;
    let settings = red(30_000, 90_000, 0.05, weight);
    let seen = overload(&config(settings, true, 1), weight, 50_000, 1.2, Ecn::Capable);
    let marks = seen.iter().filter(|seen| seen.marked).count();
    assert!(marks > 100, "{marks}");
    let mut drops = 0;
    for Seen { average, cause, marked } in seen {
        assert!(!marked || (30_000.0 - 1e-3..90_000.0 + 1e-3).contains(&average), "marked at {average}");
        if cause == Some(DropCause::Aqm) {
            assert!(average > 90_000.0 - 1e-3, "dropped at {average}");
            drops += 1;
        }
    }
    assert!(drops > 100, "{drops}");
}

#[test]
fn queue_in_packets_has_thresholds_in_packets() {
    let discipline: Discipline = "red:min=5p:max=15p:p=0.1:weight=1".parse().unwrap();
    let config = LinkConfig { discipline, queue: QueueLimit::Packets(60), rate: RATE.into(), ..LinkConfig::default() };
    let arrivals = (0..100).map(|id| ScriptedArrival { at: Instant::ZERO, packet: Packet::single(id, 60) });
    let mut link = link(&config);
    run_link(&mut link, arrivals);
    // With a weight of one the average is the queue: at most 15 packets wait.
    assert!(link.stats().forwarded.packets <= 15);
    assert_eq!(link.stats().dropped[DropCause::Queue].packets, 0);
}

#[test]
fn seed_determines_the_draws() {
    let weight = 0.01;
    let drops = |seed| -> Vec<bool> {
        let config = config(red(30_000, 300_000, 0.05, weight), false, seed);
        overload(&config, weight, 20_000, 1.1, Ecn::NotCapable).iter().map(|seen| seen.cause.is_some()).collect()
    };
    assert_eq!(drops(1), drops(1));
    assert_ne!(drops(1), drops(2));
}
