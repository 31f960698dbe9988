//! Fit of a token bucket to the packets that passed and that were lost.
//!
//! A token bucket of rate r and size B drops a packet if fewer tokens than its length are left. The missing tokens follow
//! from the packets that passed: they grow by each passed packet, and shrink with r. If a bucket caused the losses, then all
//! lost packets were sent at more missing tokens than the passed ones. The same holds for a queue of size B that is
//! drained at r; there, the packets before a loss have a delay.

use std::ops::RangeInclusive;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_results::evidence::capture::PolicerFit;

use crate::sent_packets::SentPacket;

/// Minimum losses of a fit.
const MIN_LOSSES: usize = 8;
/// Minimum size of a bucket, packets. The time of a lost packet has an error of about this many packets.
const MIN_BUCKET_PACKETS: f64 = 3.2;
/// Size of a bucket, packets, below which its losses look like random ones. A smaller bucket must be more likely than random
/// losses.
const SMALL_BUCKET_PACKETS: f64 = 6.0;
/// Rates that are tried, relative to the goodput between the losses. A short queue on a fast line is empty most of the time.
const FACTORS: [f64; 18] =
    [1.0, 0.97, 1.03, 0.93, 1.07, 0.87, 1.15, 0.8, 1.3, 0.7, 1.6, 2.2, 3.0, 4.0, 5.3, 7.0, 10.0, 14.0];
/// Range of the tried rates between pairs of losses, relative to the goodput between all losses.
const PAIR_FACTORS: RangeInclusive<f64> = 0.5..=3.0;
/// Steps of the search around the best rate.
const STEPS: [f64; 3] = [0.03, 0.01, 0.003];
/// Minimum quality after the first rates, for a search of better ones.
const MIN_PROMISING: f64 = 0.3;
/// Losses between which other rates are measured.
const MAX_RATE_LOSSES: usize = 24;
/// Number of the tried rates between pairs of losses.
const MAX_PAIR_RATES: usize = 14;
/// Minimum packets between two losses for a rate.
const MIN_PAIR_PACKETS: f64 = 20.0;
/// Sizes of the bucket that are tried for each rate.
const MAX_SIZES: usize = 48;
/// Maximum tolerance as a share of the bucket, and in seconds at the rate.
const MAX_TOLERANCE: f64 = 0.05;
const MAX_TOLERANCE_TIME: f64 = 0.02;
/// Share of lost packets far below the size of the bucket, and of passed packets far above, in the model of a bucket.
const LOST_BELOW: f64 = 0.002;
const PASSED_ABOVE: f64 = 0.1;
/// Shortest time before a loss in which another packet shows its delay, nanoseconds.
const MIN_NEAR: u64 = 20_000_000;

/// Tolerance of the fit: a bucket holds whole packets, and routers add tokens in steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) mss: u32,
    /// Base RTT in seconds.
    pub(crate) rtt: f64,
}

impl Tolerance {
    fn bytes(&self, rate: f64, bucket: f64) -> f64 {
        let time = (self.rtt / 2.0).min(MAX_TOLERANCE_TIME);
        f64::from(self.mss).max((rate * time).min(bucket * MAX_TOLERANCE))
    }
}

/// A rate with the separation that it gives.
#[derive(Clone, Copy, Debug)]
struct Separation {
    rate: f64,
    bucket: f64,
    /// Shares of the losses above, and of the passed packets below the size of the bucket.
    lost_above: f64,
    passed_below: f64,
    /// Logarithm of the likelihood.
    likelihood: f64,
}

impl Separation {
    fn quality(&self) -> f64 {
        self.lost_above.min(self.passed_below)
    }

    /// Compares the quality in steps, then the likelihood.
    fn is_better_than(&self, other: &Separation) -> bool {
        let steps = |separation: &Separation| (separation.quality() * 200.0).floor();
        (steps(self), self.likelihood) > (steps(other), other.likelihood)
    }
}

/// Search of the best rate.
struct Search<'a> {
    packets: &'a [SentPacket],
    tolerance: &'a Tolerance,
    /// Logarithm of the likelihood of losses that depend on the packet before only.
    chance: f64,
    best: Option<Separation>,
}

impl Search<'_> {
    fn try_rate(&mut self, rate: f64) {
        if !rate.is_finite() || rate <= 0.0 {
            return;
        }
        if let Some(found) = separation(self.packets, rate, self.tolerance, self.chance)
            && self.best.is_none_or(|best| found.is_better_than(&best))
        {
            self.best = Some(found);
        }
    }
}

/// Fits a token bucket. `None` if too few packets were lost.
pub(crate) fn fit(packets: &[SentPacket], connections: u32, tolerance: &Tolerance) -> Option<PolicerFit> {
    let losses = packets.iter().filter(|packet| packet.is_lost).count();
    if losses < MIN_LOSSES {
        return None;
    }
    let between = goodput_between_losses(packets)?;
    let mut search = Search { packets, tolerance, chance: random_loss_likelihood(packets), best: None };
    for factor in FACTORS {
        search.try_rate(between * factor);
    }
    if search.best.is_some_and(|best| best.quality() >= MIN_PROMISING) {
        for rate in pair_rates(packets, tolerance) {
            if PAIR_FACTORS.contains(&(rate / between)) {
                search.try_rate(rate);
            }
        }
        for step in STEPS {
            let center = search.best.map_or(between, |best| best.rate);
            for number in [-2.0, -1.0, 1.0, 2.0] {
                search.try_rate(center * (1.0 + step * number));
            }
        }
    }
    let best = search.best?;
    let delays = delays_at_losses(packets, tolerance);
    let quantile = |part: usize| {
        let delay = delays.get(delays.len() * part / 10)?;
        Some(Duration::from_micros(u64::from(*delay)))
    };
    Some(PolicerFit {
        rate: BitRate((best.rate * 8.0) as u64),
        bucket: Bytes(best.bucket as u64),
        explained_share: best.quality(),
        losses: losses as u64,
        connections,
        delay: quantile(5),
        low_delay: quantile(1),
    })
}

/// Returns bytes per second between the first and the last loss, without long pauses.
fn goodput_between_losses(packets: &[SentPacket]) -> Option<f64> {
    let first = packets.iter().position(|packet| packet.is_lost)?;
    let last = packets.iter().rposition(|packet| packet.is_lost)?;
    let part = packets.get(first..=last)?;
    let time: u64 = part.windows(2).map(|pair| (pair[1].at - pair[0].at).min(1_000_000_000)).sum();
    let passed: u64 = part.iter().filter(|packet| !packet.is_lost).map(|packet| u64::from(packet.length)).sum();
    (time > 0 && passed > 0).then(|| passed as f64 * 1e9 / time as f64)
}

/// Returns rates between pairs of losses: between two losses, a bucket that is never full lets its rate pass exactly.
fn pair_rates(packets: &[SentPacket], tolerance: &Tolerance) -> Vec<f64> {
    let mut passed = 0.0;
    let mut losses: Vec<(u64, f64)> = Vec::new();
    for packet in packets {
        if packet.is_lost {
            losses.push((packet.at, passed));
        } else {
            passed += f64::from(packet.length);
        }
    }
    let step = (losses.len() / MAX_RATE_LOSSES).max(1);
    let picked: Vec<(u64, f64)> = losses.into_iter().step_by(step).collect();
    let mut rates = Vec::new();
    for (number, (start, before)) in picked.iter().enumerate() {
        for (end, after) in &picked[number + 1..] {
            let bytes = after - before;
            if end > start && bytes >= MIN_PAIR_PACKETS * f64::from(tolerance.mss) {
                rates.push(bytes * 1e9 / (end - start) as f64);
            }
        }
    }
    rates.sort_by(f64::total_cmp);
    let last = rates.len().saturating_sub(1);
    (1..=MAX_PAIR_RATES).filter_map(|number| rates.get(number * last / (MAX_PAIR_RATES + 1)).copied()).collect()
}

/// Returns the logarithm of the likelihood of losses without a cause: each depends on the fate of the packet before it.
fn random_loss_likelihood(packets: &[SentPacket]) -> f64 {
    let mut counts = [[0_u64; 2]; 2];
    let mut before = 0;
    for packet in packets {
        let fate = usize::from(packet.is_lost);
        counts[before][fate] += 1;
        before = fate;
    }
    counts.iter().flat_map(|of| of.map(|count| log_share(count, of[0] + of[1]))).sum()
}

/// Returns the logarithm of the likelihood of `count` events of `all`.
fn log_share(count: u64, all: u64) -> f64 {
    if count == 0 { 0.0 } else { count as f64 * (count as f64 / all as f64).ln() }
}

/// Returns the size of the bucket that separates lost and passed packets best.
fn separation(packets: &[SentPacket], rate: f64, tolerance: &Tolerance, chance: f64) -> Option<Separation> {
    let mss = f64::from(tolerance.mss);
    let mut missing = 0.0_f64;
    let mut at = packets.first()?.at;
    let mut lost: Vec<f64> = Vec::new();
    let mut passed: Vec<f64> = Vec::with_capacity(packets.len());
    for packet in packets {
        missing = (missing - rate * packet.at.saturating_sub(at) as f64 / 1e9).max(0.0);
        at = packet.at;
        let length = f64::from(packet.length);
        if packet.is_lost {
            lost.push(missing + mss);
        } else {
            passed.push(missing + length.min(mss));
            missing += length;
        }
    }
    lost.sort_unstable_by(f64::total_cmp);
    passed.sort_unstable_by(f64::total_cmp);
    let mut best: Option<Separation> = None;
    let steps = MAX_SIZES.min(lost.len());
    for step in 0..steps {
        let bucket = lost[step * lost.len() / steps];
        if bucket < MIN_BUCKET_PACKETS * mss {
            continue;
        }
        let slack = tolerance.bytes(rate, bucket);
        let candidate = separation_at(bucket, slack, &Levels { lost: &lost, passed: &passed, rate });
        let is_small = bucket < SMALL_BUCKET_PACKETS * mss;
        let is_likely = !is_small || candidate.likelihood > chance;
        if is_likely && best.is_none_or(|best| candidate.is_better_than(&best)) {
            best = Some(candidate);
        }
    }
    best
}

/// Sorted sizes of a bucket that each packet needed at a rate, with its own length.
struct Levels<'a> {
    lost: &'a [f64],
    passed: &'a [f64],
    rate: f64,
}

/// Judges a bucket. Within `slack` of its size, packets pass and are lost.
fn separation_at(bucket: f64, slack: f64, levels: &Levels<'_>) -> Separation {
    let up_to = |values: &[f64], limit: f64| values.partition_point(|value| *value <= limit) as u64;
    let (lost, passed) = (levels.lost.len() as u64, levels.passed.len() as u64);
    let lost_below = up_to(levels.lost, bucket - slack);
    let lost_within = up_to(levels.lost, bucket + slack) - lost_below;
    let passed_below = up_to(levels.passed, bucket - slack);
    let passed_within = up_to(levels.passed, bucket + slack) - passed_below;
    let lost_above = lost - lost_below - lost_within;
    let passed_above = passed - passed_below - passed_within;
    let within = lost_within + passed_within;
    let likelihood = lost_below as f64 * LOST_BELOW.ln()
        + passed_below as f64 * (1.0 - LOST_BELOW).ln()
        + log_share(lost_within, within)
        + log_share(passed_within, within)
        + lost_above as f64 * (1.0 - PASSED_ABOVE).ln()
        + passed_above as f64 * PASSED_ABOVE.ln();
    Separation {
        rate: levels.rate,
        bucket,
        lost_above: (lost - lost_below) as f64 / lost.max(1) as f64,
        passed_below: (passed - passed_above) as f64 / passed.max(1) as f64,
        likelihood,
    }
}

/// Returns the delays of the last packets before the losses, sorted.
fn delays_at_losses(packets: &[SentPacket], tolerance: &Tolerance) -> Vec<u32> {
    let near = ((tolerance.rtt * 1e9) as u64).max(MIN_NEAR);
    let mut delays = Vec::new();
    let mut last: Option<(u64, u32)> = None;
    for packet in packets {
        if let Some(delay) = packet.delay {
            last = Some((packet.at, delay));
        }
        if let Some((at, delay)) = last
            && packet.is_lost
            && packet.at - at < near
        {
            delays.push(delay);
        }
    }
    delays.sort_unstable();
    delays
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { mss: 1000, rtt: 0.05 };

    /// Bursts of 60 packets each 100 ms, of which `passes` decides each by its number in the burst.
    fn bursts(passes: impl Fn(u64) -> bool) -> Vec<SentPacket> {
        let packet = |number: u64| SentPacket {
            at: number / 60 * 100_000_000 + number % 60 * 10_000,
            length: 1000,
            delay: passes(number % 60).then_some(7_000),
            is_lost: !passes(number % 60),
        };
        (0..60 * 20).map(packet).collect()
    }

    #[test]
    fn size_of_a_bucket_and_delays_are_found() {
        let fit = fit(&bursts(|number| number < 40), 1, &TOLERANCE).unwrap();
        assert!(fit.explained_share > 0.95 && (38_000..=44_000).contains(&fit.bucket.0), "{fit:?}");
        assert_eq!((fit.delay, fit.low_delay), (Some(Duration::from_millis(7)), Some(Duration::from_millis(7))));
    }

    #[test]
    fn losses_of_any_position_do_not_fit_a_bucket() {
        let fit = fit(&bursts(|number| number % 7 != 3), 1, &TOLERANCE);
        assert!(fit.is_none_or(|fit| fit.explained_share < 0.8), "{fit:?}");
    }

    #[test]
    fn few_losses_do_not_fit_a_bucket() {
        let packets = bursts(|number| number < 40);
        assert_eq!(fit(&packets[..47], 1, &TOLERANCE), None);
    }
}
