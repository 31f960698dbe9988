//! How well the steady goodput of a running test is known: its 95 % interval, from the bytes of equal slices of time.
//!
//! The steady part begins where the report has it begin too ([`diagnose::steady`]): one rule, of whole intervals, or
//! `--omit`. Its slices are not independent; how well their mean is known is [`BatchMeans`]' to say. A test stops only on
//! [`FEWEST`] blocks that are long enough, so that one which stops as soon as the interval is narrow does not stop on a
//! lucky handful; that it looks often costs some of the 95 % all the same (the tests here say how much).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::diagnose;
use crate::path::seconds;
use crate::stats::{self, BatchMeans};
use crate::units::{BitRate, Bytes, Ratio};
use crate::wire::test::{Interval, Part};

/// Fewer blocks end no test.
pub const FEWEST: usize = 15;
/// How often in a row an interval has to be narrow.
const LOOKS: u8 = 3;

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
    judge(intervals, omit).map(|(estimate, _)| estimate)
}

/// The same, and whether it may end a test.
fn judge(intervals: &[Interval], omit: Option<Duration>) -> Option<(Estimate, bool)> {
    let whole = diagnose::whole_intervals(intervals);
    let begin = diagnose::steady(whole, omit)?.start;
    let steady: Vec<Slice> = whole.iter().filter(|interval| interval.start >= begin).flat_map(slices).collect();
    let rates: Vec<stats::Slice> = steady.iter().map(Slice::rate).collect();
    let known = BatchMeans::of(&rates).filter(|known| known.mean > 0.0)?;
    let skipped = steady.len() - known.blocks * known.length;
    let slice = total(&steady) / u32::try_from(steady.len()).ok()?;
    let estimate = Estimate {
        start: begin.saturating_add(total(&steady[..skipped])),
        goodput: BitRate(known.mean.round() as u64),
        half_width: Ratio::new((known.half() / known.mean).min(1.0))?,
        blocks: known.blocks,
        block: slice.saturating_mul(u32::try_from(known.length).ok()?),
        correlation: Duration::try_from_secs_f64(slice.as_secs_f64() * known.correlation).ok()?,
    };
    Some((estimate, known.blocks >= FEWEST && known.is_of_long_blocks()))
}

impl Estimate {
    /// The standard error of the goodput, bits per second, and its degrees of freedom.
    pub fn error(&self) -> (f64, f64) {
        let freedom = self.blocks.saturating_sub(1) as f64;
        (self.half() / stats::student(freedom), freedom)
    }

    /// Half the 95 % interval, bits per second.
    pub fn half(&self) -> f64 {
        self.half_width.get() * self.goodput.as_f64()
    }
}

impl Slice {
    fn rate(&self) -> stats::Slice {
        stats::Slice { amount: Bytes(self.bytes).bits() as f64, seconds: self.time.as_secs_f64() }
    }
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
        let narrow = judge(intervals, self.omit)
            .is_some_and(|(known, sure)| sure && known.half_width.get() <= self.wanted.get());
        self.looks = if narrow { self.looks + 1 } else { 0 };
        self.looks >= LOOKS
    }
}

fn total(slices: &[Slice]) -> Duration {
    // A file may hold any figures.
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
        let short: Vec<_> = (0..stats::FEWEST_BLOCKS - 1).map(|_| process.next()).collect();
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
}
