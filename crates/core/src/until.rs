//! How well the steady goodput of a running test is known: its 95 % interval, from the bytes of equal slices of time.
//!
//! The steady part begins where the report has it begin too ([`diagnose::steady`]): one rule, of whole intervals, or
//! `--omit`. Its slices are not independent, so a plain standard error would be far too small. Here they are laid into
//! blocks several times as long as what is left of correlation (Geyer's initial positive sequence), whose means are close
//! to independent; what dependence remains between neighbouring blocks widens the interval (as in Skart, Tafazzoli et al.
//! 2008), and it is never narrower than the autocorrelations of the slices themselves make it. Nothing is said before
//! there are [`FEWEST`] such blocks, so a test that stops as soon as the interval is narrow does not stop on a lucky
//! handful; that it looks often costs some of the 95 % all the same (the tests here say how much).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::diagnose;
use crate::path::seconds;
use crate::units::{BitRate, Bytes, Ratio};
use crate::wire::test::{Interval, Part};

/// Fewer blocks make no estimate.
pub const FEWEST: usize = 15;
/// More blocks gain nothing; longer ones are surer to be independent.
const MOST: usize = 30;
/// How often in a row an interval has to be narrow.
const LOOKS: u8 = 3;
/// Blocks are this many times as long as the correlation.
const CORRELATIONS: f64 = 4.0;

/// What was received in one slice of time; all are about as long as each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Slice {
    time: Duration,
    bytes: u64,
}

/// The steady goodput and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Estimate {
    /// Where the steady part begins.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// Mean goodput of the steady part.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Half the width of the 95 % interval, as a share of the mean; an interval wider than the mean counts as 1.
    pub half_width: Ratio,
    /// Blocks it is judged by.
    pub blocks: usize,
    /// How long each is.
    #[serde(rename = "block_seconds", with = "seconds")]
    pub block: Duration,
    /// How long what happens goes on to show: the integrated autocorrelation time.
    #[serde(rename = "correlation_seconds", with = "seconds")]
    pub correlation: Duration,
}

/// Judges the receiver's intervals so far; `None` while there is too little past start-up to judge by. `omit` says how
/// much is start-up, instead of the figures.
pub fn estimate(intervals: &[Interval], omit: Option<Duration>) -> Option<Estimate> {
    let whole = diagnose::whole_intervals(intervals);
    let begin = diagnose::steady(whole, omit)?.start;
    let steady: Vec<Slice> = whole.iter().filter(|interval| interval.start >= begin).flat_map(slices).collect();
    let rates: Vec<f64> = steady.iter().map(|slice| rate(std::slice::from_ref(slice))).collect();
    if rates.len() < FEWEST {
        return None;
    }
    let correlation = correlation(&rates);
    let length = ((CORRELATIONS * correlation).ceil() as usize).max(steady.len() / MOST).max(1);
    let blocks = steady.len() / length;
    if blocks < FEWEST {
        return None;
    }
    // What does not make a whole block is taken off the front, where start-up was.
    let judged = &steady[steady.len() - blocks * length..];
    let means: Vec<f64> = judged.chunks_exact(length).map(rate).collect();
    let mean = rate(judged);
    if mean <= 0.0 {
        return None;
    }
    let of_blocks = variance(&means) * dependence(&means) / blocks as f64;
    let of_slices = variance(&rates) * correlation / rates.len() as f64;
    let error = of_blocks.max(of_slices).sqrt();
    let slice = total(&steady) / u32::try_from(steady.len()).ok()?;
    Some(Estimate {
        start: begin + total(&steady[..steady.len() - judged.len()]),
        goodput: BitRate(mean.round() as u64),
        half_width: Ratio::new((student(blocks - 1) * error / mean).min(1.0))?,
        blocks,
        block: slice * u32::try_from(length).ok()?,
        correlation: slice.mul_f64(correlation),
    })
}

/// The slices of time an interval is told in: its parts, or the whole of it.
fn slices(interval: &Interval) -> Vec<Slice> {
    let whole = [Part { end: interval.end, bytes: interval.bytes }];
    let parts = if interval.parts.is_empty() { &whole[..] } else { &interval.parts };
    let begins = std::iter::once(interval.start).chain(parts.iter().map(|part| part.end));
    let slice = |(begin, part): (Duration, &Part)| Slice { time: part.end.saturating_sub(begin), bytes: part.bytes };
    begins.zip(parts).map(slice).collect()
}

/// Ends a test once its goodput is known well enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Until {
    wanted: Ratio,
    omit: Option<Duration>,
    looks: u8,
}

impl Until {
    /// Once the 95 % interval is no wider than this share of the mean to either side; `omit` as in [`estimate`].
    pub fn new(wanted: Ratio, omit: Option<Duration>) -> Self {
        Until { wanted, omit, looks: 0 }
    }

    /// Whether the receiver's intervals so far are enough. They have to be at [`LOOKS`] looks in a row, so that it is not
    /// the luck of one that ends the test.
    pub fn enough(&mut self, intervals: &[Interval]) -> bool {
        let narrow =
            estimate(intervals, self.omit).is_some_and(|estimate| estimate.half_width.get() <= self.wanted.get());
        self.looks = if narrow { self.looks + 1 } else { 0 };
        self.looks >= LOOKS
    }
}

/// The integrated autocorrelation time in slices, at least 1: sums of neighbouring pairs of autocorrelations until one
/// is not positive (Geyer 1992), or a quarter of the series is used up.
fn correlation(rates: &[f64]) -> f64 {
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let at = |lag: usize| -> f64 { rates.iter().zip(&rates[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum() };
    let whole = at(0);
    if whole <= 0.0 {
        return 1.0;
    }
    let pairs = (0..rates.len() / 4).step_by(2).map(|lag| (at(lag) + at(lag + 1)) / whole);
    (2.0 * pairs.take_while(|&pair| pair > 0.0).sum::<f64>() - 1.0).max(1.0)
}

/// By how much neighbouring means that still depend on each other understate the variance of their mean.
fn dependence(means: &[f64]) -> f64 {
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    let whole: f64 = means.iter().map(|value| (value - mean).powi(2)).sum();
    let next: f64 = means.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if whole <= 0.0 {
        return 1.0;
    }
    let r = (next / whole).clamp(0.0, 0.8);
    (1.0 + r) / (1.0 - r)
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

fn rate(slices: &[Slice]) -> f64 {
    let bytes: u64 = slices.iter().map(|slice| slice.bytes).sum();
    Bytes(bytes).bits() as f64 / total(slices).as_secs_f64().max(f64::MIN_POSITIVE)
}

fn total(slices: &[Slice]) -> Duration {
    slices.iter().map(|slice| slice.time).sum()
}

/// The 97.5 % point of Student's distribution: expansion of Cornish and Fisher in 1/ν, within 0.1 % from ν = 9 on.
fn student(freedom: usize) -> f64 {
    let (z, v): (f64, f64) = (1.959_964, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / v + second / v.powi(2) + third / v.powi(3)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    const SLICE: Duration = Duration::from_millis(100);
    /// Slices of an interval.
    const PARTS: usize = 10;
    /// Bytes a slice of the processes below has in the mean.
    const MEAN: f64 = 1e6;

    /// Intervals of so many bytes in each slice.
    fn intervals(bytes: &[u64]) -> Vec<Interval> {
        let end = |slices: usize| SLICE * u32::try_from(slices).unwrap();
        let cut = bytes.chunks(PARTS).enumerate().map(|(n, chunk)| {
            let parts = chunk.iter().enumerate().map(|(i, &bytes)| Part { end: end(n * PARTS + i + 1), bytes });
            let (start, end) = (end(n * PARTS), end(n * PARTS + chunk.len()));
            Interval { start, end, bytes: chunk.iter().sum(), parts: parts.collect(), ..Interval::default() }
        });
        cut.collect()
    }

    /// An autoregressive process of first order about [`MEAN`], with this standard deviation of its values as a share.
    struct Process {
        random: Pcg64,
        phi: f64,
        sigma: f64,
        value: f64,
    }

    impl Process {
        fn new(seed: u64, phi: f64, sigma: f64) -> Self {
            let mut process = Process { random: Pcg64::seed_from_u64(seed), phi, sigma, value: 0.0 };
            // So that its first value is as any other.
            process.value = process.normal() * sigma;
            process
        }

        /// Box and Muller.
        fn normal(&mut self) -> f64 {
            let (a, b): (f64, f64) = (self.random.random(), self.random.random());
            (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        }

        fn next(&mut self) -> u64 {
            let shock = self.normal() * self.sigma * (1.0 - self.phi * self.phi).sqrt();
            self.value = self.phi * self.value + shock;
            (MEAN * (1.0 + self.value)).max(0.0) as u64
        }
    }

    fn covers(estimate: &Estimate) -> bool {
        let truth = MEAN * 8.0 / SLICE.as_secs_f64();
        (estimate.goodput.as_f64() / truth - 1.0).abs() <= estimate.half_width.get() * estimate.goodput.as_f64() / truth
    }

    #[test]
    fn the_interval_has_the_truth_in_it_also_where_slices_depend_on_each_other() {
        // Correlation times of 1, 3 and 19 slices; of 300 runs 95 % is exact to 2.5 points. Of 1000 the interval has 97.7,
        // 96.2 and 95.4 %; a plain standard error 95, 74 and 35 %.
        for (phi, slices) in [(0.0, 300), (0.5, 600), (0.9, 3000)] {
            let hits = (0..300).filter(|&seed| {
                let mut process = Process::new(seed, phi, 0.1);
                let bytes: Vec<_> = (0..slices).map(|_| process.next()).collect();
                covers(&estimate(&intervals(&bytes), None).expect("long enough"))
            });
            let share = hits.count() as f64 / 300.0;
            assert!(share >= 0.92, "phi {phi}: {share}");
        }
    }

    #[test]
    fn stopping_when_narrow_costs_little_of_the_95_percent() {
        for phi in [0.0, 0.5, 0.8] {
            let (mut hits, mut longest) = (0, 0);
            for seed in 0..400 {
                let mut process = Process::new(seed, phi, 0.1);
                let (mut bytes, mut until) = (Vec::new(), Until::new(Ratio::new(0.02).unwrap(), None));
                while !until.enough(&intervals(&bytes)) {
                    bytes.extend((0..PARTS).map(|_| process.next()));
                    assert!(bytes.len() < 20_000, "it ends");
                }
                hits += usize::from(covers(&estimate(&intervals(&bytes), None).unwrap()));
                longest = longest.max(bytes.len());
            }
            // 392, 373 and 372 with these seeds: 93 % where slices depend on each other. 365 are 91.
            assert!(hits >= 365, "phi {phi}: {hits} of 400");
            assert!(longest < 4000, "phi {phi}: {longest} slices");
        }
    }

    #[test]
    fn slow_start_is_cut_off_where_the_report_cuts_it_off() {
        // Doubling each round trip of five slices, from 1 % of the rate; then CUBIC's concave teeth of 80 slices.
        let ramp = (0..40).map(|i| (0.01 * 2f64.powi(i / 5)).min(1.0));
        let teeth = (0..2000).map(|i| 1.0 - 0.3 * (1.0 - f64::from(i % 80) / 80.0).powi(3));
        let intervals = intervals(&ramp.chain(teeth).map(|share| (MEAN * share) as u64).collect::<Vec<_>>());
        let found = estimate(&intervals, None).unwrap();
        let steady = diagnose::steady(&intervals, None).unwrap();
        // What makes no whole block goes with it.
        assert!(found.start >= steady.start && found.start < steady.start + found.block, "{found:?} {steady:?}");
        assert!((SLICE * 30..=SLICE * 60).contains(&steady.start), "{steady:?}");
        let truth = MEAN * 8.0 / SLICE.as_secs_f64() * (1.0 - 0.3 / 4.0);
        let off = (found.goodput.as_f64() / truth - 1.0).abs();
        assert!(off <= found.half_width.get().max(0.02), "{off}: {found:?}");
        assert!(found.block >= found.correlation * 3, "{found:?}");
        // Who says how much is start-up decides it here too.
        let omitted = estimate(&intervals, Some(SLICE * 500)).unwrap();
        assert!(omitted.start >= SLICE * 500 && omitted.start < SLICE * 500 + omitted.block, "{omitted:?}");
        assert_eq!(estimate(&intervals, Some(SLICE * 5000)), None);
    }

    #[test]
    fn what_still_grows_or_is_too_short_is_not_judged() {
        let growing: Vec<_> = (0..200u64).map(|i| 1000 * (i + 1)).collect();
        assert_eq!(estimate(&intervals(&growing), None), None);
        let mut process = Process::new(1, 0.0, 0.1);
        let short: Vec<_> = (0..FEWEST - 1).map(|_| process.next()).collect();
        assert_eq!(estimate(&intervals(&short), None), None);
        assert_eq!(estimate(&[], None), None);
        assert_eq!(estimate(&intervals(&[0; 100]), None), None, "nothing was received");
        assert_eq!(estimate(&vec![Interval::default(); 100], None), None);
    }

    #[test]
    fn a_rate_that_does_not_move_is_known_exactly() {
        let found = estimate(&intervals(&[12_500; 80]), None).unwrap();
        assert_eq!((found.goodput, found.half_width, found.start), (BitRate(1_000_000), Ratio::NONE, Duration::ZERO));
        // Intervals that are not cut are slices themselves.
        let uncut: Vec<_> =
            intervals(&[12_500; 4000]).into_iter().map(|i| Interval { parts: Vec::new(), ..i }).collect();
        let found = estimate(&uncut, None).unwrap();
        assert_eq!((found.goodput, found.blocks), (BitRate(1_000_000), 30));
    }

    #[test]
    fn the_quantiles_are_students() {
        for (freedom, value) in [(9, 2.2622), (14, 2.1448), (29, 2.0452)] {
            assert!((student(freedom) / value - 1.0).abs() < 1e-3, "{freedom}: {}", student(freedom));
        }
    }
}
