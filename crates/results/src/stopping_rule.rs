//! The accuracy of the steady goodput while a test runs: its 95 % interval, from the bytes of equal slices of time.
//!
//! The steady part begins where it begins in the report ([`figures::steady_part`]): one rule, on whole intervals, or
//! `--omit`. Its slices depend on each other; [`BatchMeans`] computes the accuracy of their mean. A test stops only
//! with [`MIN_BLOCKS`] blocks that are long enough, so that a few lucky blocks do not stop it. The repeated check still
//! costs some of the 95 %; the tests in this file measure how much.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::stats::{self, BatchMeans};
use lfn_base::units::{BitRate, Bytes, Ratio};
use serde::{Deserialize, Serialize};

use crate::evidence::figures;
use crate::measure::{Interval, IntervalPart};

/// Minimum number of blocks that may end a test.
pub const MIN_BLOCKS: usize = 15;
/// Consecutive checks in which the interval must be narrow enough.
const REQUIRED_CHECKS: u8 = 3;

/// Bytes received in one slice of time; all slices have about the same length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Slice {
    time: Duration,
    bytes: u64,
}

/// The steady goodput and its accuracy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct GoodputEstimate {
    /// Start of the steady part.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// Mean goodput of the steady part.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Half the width of the 95 % interval as a share of the mean. An interval wider than the mean counts as 1.
    pub half_width: Ratio,
    /// Number of blocks whose means give the interval.
    pub blocks: usize,
    /// Length of a block.
    #[serde(rename = "block_seconds", with = "seconds")]
    pub block: Duration,
    /// Integrated autocorrelation time of the slices.
    #[serde(rename = "correlation_seconds", with = "seconds")]
    pub correlation: Duration,
}

/// Estimates the goodput from the receiver's intervals so far; `None` if too few of them are after start-up. `omit`
/// replaces the detected start-up.
pub fn estimate(intervals: &[Interval], omit: Option<Duration>) -> Option<GoodputEstimate> {
    estimate_and_check(intervals, omit).map(|(estimate, _)| estimate)
}

/// Estimates the goodput and returns whether the estimate may end a test.
fn estimate_and_check(intervals: &[Interval], omit: Option<Duration>) -> Option<(GoodputEstimate, bool)> {
    let whole = figures::full_intervals(intervals);
    let begin = figures::steady_part(whole, omit)?.start;
    let steady: Vec<Slice> = whole.iter().filter(|interval| interval.start >= begin).flat_map(slices).collect();
    let rates: Vec<stats::RateSample> = steady.iter().map(Slice::rate).collect();
    let means = BatchMeans::from_samples(&rates).filter(|known| known.mean > 0.0)?;
    let skipped = steady.len() - means.blocks * means.block_length;
    let slice = total_time(&steady) / u32::try_from(steady.len()).ok()?;
    let estimate = GoodputEstimate {
        start: begin.saturating_add(total_time(&steady[..skipped])),
        goodput: BitRate(means.mean.round() as u64),
        half_width: Ratio::new((means.half_width() / means.mean).min(1.0))?,
        blocks: means.blocks,
        block: slice.saturating_mul(u32::try_from(means.block_length).ok()?),
        correlation: Duration::try_from_secs_f64(slice.as_secs_f64() * means.correlation).ok()?,
    };
    Some((estimate, means.blocks >= MIN_BLOCKS && means.has_long_blocks()))
}

impl GoodputEstimate {
    /// Returns the standard error of the goodput in bits per second, and its degrees of freedom.
    pub fn standard_error(&self) -> (f64, f64) {
        let freedom = self.blocks.saturating_sub(1) as f64;
        (self.half_width_rate() / stats::student_quantile(freedom), freedom)
    }

    /// Returns half the width of the 95 % interval, bits per second.
    pub fn half_width_rate(&self) -> f64 {
        self.half_width.get() * self.goodput.as_f64()
    }
}

impl Slice {
    fn rate(&self) -> stats::RateSample {
        stats::RateSample { amount: Bytes(self.bytes).bits() as f64, seconds: self.time.as_secs_f64() }
    }
}

/// Returns the slices of an interval: its parts, or the whole interval.
fn slices(interval: &Interval) -> Vec<Slice> {
    let whole = [IntervalPart { end: interval.end, bytes: interval.bytes }];
    let parts = if interval.slices.is_empty() { &whole[..] } else { &interval.slices };
    let begins = std::iter::once(interval.start).chain(parts.iter().map(|part| part.end));
    let slice =
        |(begin, part): (Duration, &IntervalPart)| Slice { time: part.end.saturating_sub(begin), bytes: part.bytes };
    begins.zip(parts).map(slice).collect()
}

/// A rule that ends a test when its goodput is known accurately enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoppingRule {
    target: Ratio,
    omit: Option<Duration>,
    narrow_checks: u8,
}

impl StoppingRule {
    /// Creates a rule that is met when the 95 % interval is at most this share of the mean to either side. `omit` is as
    /// in [`estimate`].
    pub fn new(target: Ratio, omit: Option<Duration>) -> Self {
        StoppingRule { target, omit, narrow_checks: 0 }
    }

    /// Returns whether the receiver's intervals so far are enough. They must be enough in [`REQUIRED_CHECKS`]
    /// consecutive checks, so that one lucky check does not end the test.
    pub fn is_met(&mut self, intervals: &[Interval]) -> bool {
        let narrow = estimate_and_check(intervals, self.omit)
            .is_some_and(|(estimate, is_reliable)| is_reliable && estimate.half_width.get() <= self.target.get());
        // With `--bidir`, a test that is accurate enough is checked until the other one is too.
        self.narrow_checks = if narrow { self.narrow_checks.saturating_add(1) } else { 0 };
        self.narrow_checks >= REQUIRED_CHECKS
    }
}

fn total_time(slices: &[Slice]) -> Duration {
    // A file may contain any figures, so the sum saturates.
    slices.iter().fold(Duration::ZERO, |sum, slice| sum.saturating_add(slice.time))
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    const SLICE: Duration = Duration::from_millis(100);
    /// Slices of an interval.
    const PARTS: usize = 10;
    /// Mean bytes per slice of the processes below.
    const MEAN: f64 = 1e6;

    /// Creates intervals with these bytes in each slice.
    fn intervals(bytes: &[u64]) -> Vec<Interval> {
        let end = |slices: usize| SLICE * u32::try_from(slices).unwrap();
        let cut = bytes.chunks(PARTS).enumerate().map(|(n, chunk)| {
            let parts = chunk.iter().enumerate().map(|(i, &bytes)| IntervalPart { end: end(n * PARTS + i + 1), bytes });
            let (start, end) = (end(n * PARTS), end(n * PARTS + chunk.len()));
            Interval { start, end, bytes: chunk.iter().sum(), slices: parts.collect(), ..Interval::default() }
        });
        cut.collect()
    }

    /// A first-order autoregressive process around [`MEAN`]. `sigma` is the standard deviation of its values as a
    /// share.
    struct Process {
        random: Pcg64,
        phi: f64,
        sigma: f64,
        value: f64,
    }

    impl Process {
        fn new(seed: u64, phi: f64, sigma: f64) -> Self {
            let mut process = Process { random: Pcg64::seed_from_u64(seed), phi, sigma, value: 0.0 };
            // The first value then has the same distribution as all others.
            process.value = process.normal() * sigma;
            process
        }

        /// Returns a normally distributed value (Box and Muller).
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

    fn covers(estimate: &GoodputEstimate) -> bool {
        let truth = MEAN * 8.0 / SLICE.as_secs_f64();
        (estimate.goodput.as_f64() / truth - 1.0).abs() <= estimate.half_width.get() * estimate.goodput.as_f64() / truth
    }

    #[test]
    fn interval_contains_the_mean_of_dependent_slices() {
        // Correlation times of 1, 3 and 19 slices. With 300 runs, 95 % has an accuracy of 2.5 points. Over 1000 runs
        // this interval contains the true mean in 97.7, 96.2 and 95.4 %; an interval from a plain standard error in 95,
        // 74 and 35 %.
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
                let (mut bytes, mut until) = (Vec::new(), StoppingRule::new(Ratio::new(0.02).unwrap(), None));
                while !until.is_met(&intervals(&bytes)) {
                    bytes.extend((0..PARTS).map(|_| process.next()));
                    assert!(bytes.len() < 20_000, "the test ends");
                }
                hits += usize::from(covers(&estimate(&intervals(&bytes), None).unwrap()));
                longest = longest.max(bytes.len());
            }
            // With these seeds: 392, 373 and 372 of 400, so 93 % where slices depend on each other. 365 is 91 %.
            assert!(hits >= 365, "phi {phi}: {hits} of 400");
            assert!(longest < 4000, "phi {phi}: {longest} slices");
        }
    }

    #[test]
    fn rule_stays_met_while_another_test_runs() {
        let (intervals, mut rule) = (intervals(&[12_500; 400]), StoppingRule::new(Ratio::new(0.02).unwrap(), None));
        let checks: Vec<bool> = (0..300).map(|_| rule.is_met(&intervals)).collect();
        assert!(!checks[1] && checks[2..].iter().all(|is_met| *is_met), "{checks:?}");
    }

    #[test]
    fn slow_start_ends_where_the_report_ends_it() {
        // Doubles every round trip of five slices, from 1 % of the rate; then CUBIC's concave teeth of 80 slices.
        let ramp = (0..40).map(|i| (0.01 * 2f64.powi(i / 5)).min(1.0));
        let teeth = (0..2000).map(|i| 1.0 - 0.3 * (1.0 - f64::from(i % 80) / 80.0).powi(3));
        let intervals = intervals(&ramp.chain(teeth).map(|share| (MEAN * share) as u64).collect::<Vec<_>>());
        let found = estimate(&intervals, None).unwrap();
        let steady = figures::steady_part(&intervals, None).unwrap();
        // Slices that fill no whole block are removed too.
        assert!(found.start >= steady.start && found.start < steady.start + found.block, "{found:?} {steady:?}");
        assert!((SLICE * 30..=SLICE * 60).contains(&steady.start), "{steady:?}");
        let truth = MEAN * 8.0 / SLICE.as_secs_f64() * (1.0 - 0.3 / 4.0);
        let off = (found.goodput.as_f64() / truth - 1.0).abs();
        assert!(off <= found.half_width.get().max(0.02), "{off}: {found:?}");
        assert!(found.block >= found.correlation * 3, "{found:?}");
        // An explicit start-up time is used here too.
        let omitted = estimate(&intervals, Some(SLICE * 500)).unwrap();
        assert!(omitted.start >= SLICE * 500 && omitted.start < SLICE * 500 + omitted.block, "{omitted:?}");
        assert_eq!(estimate(&intervals, Some(SLICE * 5000)), None);
    }

    #[test]
    fn growing_or_short_runs_have_no_estimate() {
        let growing: Vec<_> = (0..200u64).map(|i| 1000 * (i + 1)).collect();
        assert_eq!(estimate(&intervals(&growing), None), None);
        let mut process = Process::new(1, 0.0, 0.1);
        let short: Vec<_> = (0..stats::MIN_BLOCKS - 1).map(|_| process.next()).collect();
        assert_eq!(estimate(&intervals(&short), None), None);
        assert_eq!(estimate(&[], None), None);
        assert_eq!(estimate(&intervals(&[0; 100]), None), None, "no bytes received");
        assert_eq!(estimate(&vec![Interval::default(); 100], None), None);
    }

    #[test]
    fn constant_rate_has_no_error() {
        let found = estimate(&intervals(&[12_500; 80]), None).unwrap();
        assert_eq!((found.goodput, found.half_width, found.start), (BitRate(1_000_000), Ratio::ZERO, Duration::ZERO));
        // Intervals without parts are slices themselves.
        let uncut: Vec<_> =
            intervals(&[12_500; 4000]).into_iter().map(|i| Interval { slices: Vec::new(), ..i }).collect();
        let found = estimate(&uncut, None).unwrap();
        assert_eq!((found.goodput, found.blocks), (BitRate(1_000_000), 30));
    }
}
